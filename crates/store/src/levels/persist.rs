//! Fragments that are on a device before their put returns: committed in groups, as images of their events.
//!
//! ```text
//! put ─▶ stored, visible ─▶ queue ─▶ the first to come waits `persist_delay` for others ─▶ one extent, one sync ─▶ all return
//! ```
//!
//! *Invariants*: the fragment stays on the hot level as well, for who selects; its copy ends with its event, or when the
//! event goes down whole. Decisions about such an event go to the device's log from then on.
//!
//! *On failure*: the put answers `Unavailable`: stored, not persisted; the same put again tries again.

use super::Level;
use super::plan::KIND;
use crate::engine::Engine;
use crate::hot::Location;
use crate::warm::{EntryPlan, ImagePlan, Placed, Target, Writer};
use forebay_core::{Entry, Error, ExtentKind, ImageMarks, Key, Result, Stream};
use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// Fragments that may wait for one commit.
const GROUP_MAX: usize = 4096;

/// One fragment that waits; its segment is pinned.
struct Waiting {
    number: u64,
    entry: Entry,
    from: Location,
}

#[derive(Default)]
struct Group {
    waiting: Vec<Waiting>,
    /// Numbers below are done; of those that failed, the last failure.
    done: u64,
    next: u64,
    failed: Vec<(u64, String)>,
    leading: bool,
}

/// The queue before the device.
#[derive(Default)]
pub(crate) struct Persisting {
    group: Mutex<Group>,
    changed: Condvar,
    writer: Mutex<Vec<(Target, Writer)>>,
}

/// Failures remembered for those who wait.
const FAILED_MAX: usize = 2 * GROUP_MAX;

impl Persisting {
    /// Its writers are given back; nothing is under way.
    pub(crate) fn close(&self) {
        self.writer.lock().clear();
    }
}

impl Engine {
    /// Whether a put can have what it asks for; before anything is stored.
    ///
    /// # Errors
    /// `Invalid` for `persisted` without a warm level.
    #[inline]
    pub(crate) fn check_persisted(&self, options: &crate::PutOptions<'_>) -> Result<()> {
        if options.persisted && self.level.is_none() { Err(no_warm_level()) } else { Ok(()) }
    }

    /// Puts a stored fragment on a device, with others that come at the same time.
    ///
    /// # Errors
    /// `Invalid` without a warm level, `Unavailable` where no device took it in time.
    pub(crate) fn persist(&self, key: &Key) -> Result<()> {
        let level = self.level.as_ref().ok_or_else(no_warm_level)?;
        let Some((from, entry)) = self.to_persist(key)? else { return Ok(()) };
        let queue = &level.persisting;
        let deadline = level.deadline();
        let mut group = queue.group.lock();
        while group.waiting.len() >= GROUP_MAX {
            if queue.changed.wait_until(&mut group, deadline).timed_out() {
                drop(group);
                self.unpin(from);
                return Err(not_persisted("too many wait for the device"));
            }
        }
        let number = group.next;
        group.next += 1;
        group.waiting.push(Waiting { number, entry, from });
        loop {
            if group.done > number {
                let failed = group.failed.iter().find(|failed| failed.0 == number);
                return failed.map_or(Ok(()), |failed| Err(not_persisted(&failed.1)));
            }
            if !group.leading {
                group.leading = true;
                // Others may come along.
                let gathered = Instant::now() + level.persist_delay;
                while group.waiting.len() < GROUP_MAX && !queue.changed.wait_until(&mut group, gathered).timed_out() {}
                let taken = std::mem::take(&mut group.waiting);
                drop(group);
                let last = taken.last().map_or(number, |last| last.number);
                let failed = self.persist_group(level, taken);
                group = queue.group.lock();
                group.leading = false;
                group.done = group.done.max(last + 1);
                group.failed.extend(failed);
                let excess = group.failed.len().saturating_sub(FAILED_MAX);
                group.failed.drain(..excess);
                queue.changed.notify_all();
            } else {
                // Whoever leads answers within the device's patience; then somebody else leads.
                queue.changed.wait_for(&mut group, level.patience);
            }
        }
    }

    /// The fragment, pinned on the hot level; `None` where a device has it, or where it is gone by decision.
    fn to_persist(&self, key: &Key) -> Result<Option<(Location, Entry)>> {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let shard = self.cell_of(primary).lock();
        if shard.closed {
            return Err(not_persisted("the store is closed"));
        }
        let Some(event) = shard.find(primary) else { return Ok(None) };
        let Ok((_, word)) = shard.slot(event, rest) else { return Ok(None) };
        if !word.is_present() || word.is_warm() || word.is_persisted() {
            return Ok(None);
        }
        let from = word.location();
        self.pin(from);
        drop(shard);
        match self.entry_of(from) {
            Ok(entry) => Ok(Some((from, entry))),
            Err(error) => {
                self.unpin(from);
                Err(error)
            }
        }
    }

    /// Writes a group; answers those that failed, with why.
    fn persist_group(&self, level: &Level, mut group: Vec<Waiting>) -> Vec<(u64, String)> {
        let schema = &self.keyspace.schema;
        group.sort_by(|a, b| a.entry.key.as_bytes().cmp(b.entry.key.as_bytes()));
        let mut failed = Vec::new();
        for of_run in
            group.chunk_by(|a, b| schema.run_of(a.entry.key.as_bytes()) == schema.run_of(b.entry.key.as_bytes()))
        {
            let events: Vec<&[Waiting]> =
                of_run.chunk_by(|a, b| schema.primary_of(&a.entry.key) == schema.primary_of(&b.entry.key)).collect();
            let run = schema.run_of(of_run[0].entry.key.as_bytes());
            match self.persist_run(level, run, &events) {
                Ok(placed) => {
                    for (event, placed) in events.iter().zip(placed) {
                        match placed {
                            Placed::At(place) => self.note_copy(event, super::demote::at(place, 0)),
                            Placed::Rotten(_) => {
                                failed.extend(failures(event, "its bytes do not match their checksum"))
                            }
                            Placed::TooLarge => failed.extend(failures(event, "it is larger than a container")),
                        }
                    }
                }
                Err(error) => {
                    level.note(error.to_string());
                    failed.extend(failures(of_run, &error.to_string()));
                }
            }
        }
        group.iter().for_each(|waiting| self.unpin(waiting.from));
        failed
    }

    fn persist_run(&self, level: &Level, run: u64, events: &[&[Waiting]]) -> Result<Vec<Placed>> {
        let target = Target { run, stream: Stream::Undecided, kind: KIND, device: None, moving: false };
        let plans: Vec<ImagePlan<'_>> = events.iter().map(|event| self.persisted_image(event)).collect();
        let mut writers = level.persisting.writer.lock();
        let at = match writers.iter().position(|open| open.0 == target) {
            Some(at) => at,
            None => {
                if writers.len() >= 2 {
                    writers.remove(0);
                }
                writers.push((target, level.warm.writer(&target)?));
                writers.len() - 1
            }
        };
        let writer = &mut writers[at].1;
        let mut placed = Vec::new();
        let durable = writer.append(&plans, ExtentKind::Persisted).and_then(|all| {
            placed = all;
            let ticket = writer.commit()?;
            writer.wait(ticket, level.deadline())
        });
        if durable.is_ok() {
            return Ok(placed);
        }
        writers.remove(at);
        drop(writers);
        // Nobody will look for it there.
        for (placed, plan) in placed.iter().zip(&plans) {
            if let Placed::At(place) = placed {
                level.warm.ended(*place, plan.entries.len() as u32);
            }
        }
        durable.map(|()| placed)
    }

    fn persisted_image<'a>(&'a self, event: &'a [Waiting]) -> ImagePlan<'a> {
        let schema = &self.keyspace.schema;
        let entries = event.iter().map(|Waiting { entry, from, .. }| EntryPlan {
            rest: &entry.key.as_bytes()[schema.primary_bytes()..],
            payload: self.hot.region.bytes(self.hot.payload_offset(from.segment, entry.offset), entry.length as usize),
            crc: entry.payload_crc,
            status: entry.status,
            version: entry.version,
            flags: entry.flags,
        });
        let primary = &event[0].entry.key.as_bytes()[..schema.primary_bytes()];
        ImagePlan { primary, marks: ImageMarks::default(), entries: entries.collect(), record: None }
    }

    /// The copies are durable: they end with their event.
    fn note_copy(&self, fragments: &[Waiting], at: Location) {
        let schema = &self.keyspace.schema;
        let primary = schema.primary_of(&fragments[0].entry.key);
        let mut shard = self.cell_of(primary.as_bytes()).lock();
        let mut kept = 0;
        if let Some(event) = shard.find(primary.as_bytes()) {
            for waiting in fragments {
                if let Ok((slot, word)) = shard.slot(event, schema.rest_of(&waiting.entry.key))
                    && word.is_present()
                    && word.location() == waiting.from
                {
                    shard.set_word(event, slot, word.persisted());
                    kept += 1;
                }
            }
            if kept > 0 {
                shard.copies.entry(event).or_default().push((at, kept));
                self.becomes_warm(&mut shard, event);
            }
        }
        drop(shard);
        let unused = fragments.len() as u32 - kept;
        if let (Some(level), true) = (&self.level, unused > 0) {
            level.warm.ended(super::demote::place_of(at), unused);
        }
    }
}

fn failures<'a>(event: &'a [Waiting], why: &'a str) -> impl Iterator<Item = (u64, String)> + 'a {
    event.iter().map(move |waiting| (waiting.number, why.to_owned()))
}

fn no_warm_level() -> Error {
    Error::invalid("`persisted` needs a warm level: this store was made without devices")
}

fn not_persisted(why: &str) -> Error {
    Error::unavailable(format!("stored on the hot level, but not persisted: {why}; the same put tries again"))
}
