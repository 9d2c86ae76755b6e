//! Fragments that are on a device before their put returns: committed in groups, as images of their events.
//!
//! ```text
//! put ─▶ stored, visible ─▶ queue ─▶ the first to come waits `persist_delay` for others ─▶ one extent, one sync ─▶ all return
//! ```
//!
//! *Invariants*: the fragment stays on the hot level as well, for the selection; its copy ends with its event, or when the
//! event goes down whole. From the moment at which it joins the queue, decisions about its event are copied to the devices
//! (`Shard::sets_out`); before its put returns, the device knows its run.
//!
//! *On failure*: the put answers `Unavailable`: stored, not persisted; the same put again tries again.

use super::plan::KIND;
use crate::engine::Engine;
use crate::events::State;
use crate::placement::{Answer, At, Level, Waiting, at, place_of};
use crate::shards::Shard;
use forebay_core::{Error, Key, LiveState, Result};
use forebay_media::bytes::{Decision, DecisionKind, ExtentKind, ImageMarks, ImageState, Stream};
use forebay_media::hot::Location;
use forebay_media::sync::{deadline_after, is_over, wait_for_device};
use forebay_media::warm::{EntryDraft, ImageDraft, ImagePlace, Placed, Target};
use std::time::Instant;

/// Fragments that may wait for one commit.
const GROUP_MAX: usize = 4096;

impl Engine {
    /// Whether a put can have what it asks for; before anything is stored.
    ///
    /// # Errors
    /// `Invalid` for `persisted` without a warm level.
    #[inline]
    pub(crate) fn check_persisted(&self, options: &crate::PutOptions<'_>) -> Result<()> {
        if options.persisted && self.placement.level.is_none() { Err(no_warm_level()) } else { Ok(()) }
    }

    /// Puts a stored fragment on a device, with others that come at the same time.
    ///
    /// # Errors
    /// `Invalid` without a warm level, `Unavailable` where no device took it in time.
    pub(crate) fn persist(&self, key: &Key) -> Result<()> {
        let level = self.placement.level.as_ref().ok_or_else(no_warm_level)?;
        let Some(waiting) = self.to_persist(level, key)? else { return Ok(()) };
        self.persist_with_others(level, waiting).map_err(|why| not_persisted(&why))
    }

    /// Waits in the queue, or leads a group; why not, where that fails.
    fn persist_with_others(&self, level: &Level, waiting: Waiting) -> std::result::Result<(), String> {
        self.locks.assert_free();
        let queue = &level.persisting;
        let deadline = level.deadline();
        let mut group = queue.group.lock();
        // Bounded: behind a device that stalls every producer of the readout would wait here with its memory.
        while group.waiting.len() >= GROUP_MAX {
            if wait_for_device(&queue.changed, &mut group, deadline) {
                drop(group);
                self.leave_queue(&waiting);
                return Err("too many wait for the device".to_owned());
            }
        }
        let (number, answer) = (group.next, waiting.answer.clone());
        group.next += 1;
        group.waiting.push(Waiting { number, ..waiting });
        debug_assert!(group.waiting.len() <= GROUP_MAX, "{} wait for one commit", group.waiting.len());
        loop {
            // Asked under the lock of the group: the leader notifies under it, after the answers, so none is missed.
            if let Some(answer) = answer.get() {
                return answer.clone();
            }
            if !group.leading {
                group.leading = true;
                // Others may come along: one sync for all of them costs as much as for one.
                let gathered = deadline_after(level.persist_delay);
                while group.waiting.len() < GROUP_MAX && !wait_for_device(&queue.changed, &mut group, gathered) {}
                // Others join the next group while this one is written.
                let taken = group.take();
                drop(group);
                self.persist_group(level, taken);
                group = queue.group.lock();
                debug_assert!(group.leading, "one thread leads a group");
                group.leading = false;
                // The fill of the warm level is another.
                self.upkeep.bell.ring();
                // All of them: those who have their answer, and one of the others leads next.
                queue.changed.notify_all();
            } else if wait_for_device(&queue.changed, &mut group, deadline) && group.leading && answer.get().is_none() {
                // The thread that leads goes on with it, or it is not in a group yet.
                let own = group.waiting.iter().position(|waiting| waiting.number == number);
                let own = own.map(|at| group.waiting.remove(at));
                drop(group);
                own.iter().for_each(|own| self.leave_queue(own));
                return Err("no device answered in time".to_owned());
            }
        }
    }

    /// The fragment, pinned on the hot level; `None` where a device has it, or where it is gone by decision.
    fn to_persist(&self, level: &Level, key: &Key) -> Result<Option<Waiting>> {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.shards.cell_of(primary).lock();
        if shard.closed {
            return Err(not_persisted("the store is closed"));
        }
        let Some(event) = shard.events.find(primary) else { return Ok(None) };
        let Ok((_, word)) = shard.events.slot(event, rest) else { return Ok(None) };
        if !word.is_present() || word.is_warm() || word.is_persisted() {
            return Ok(None);
        }
        let from = word.location();
        let entry = self.entry_of(from)?;
        // Before the lock is released: from here on a decision about the event is told to all devices.
        self.pin(from);
        let way = shard.events.primary(event);
        shard.places.sets_out_persisting(way);
        let standing = self.shadow_standing(level, &shard, event);
        let marks = self.persisted_marks(&shard, event);
        let run = shard.events.runs[shard.events[event].run as usize].shadowed;
        Ok(Some(Waiting { number: 0, entry, from, marks, run, standing, answer: Answer::default() }))
    }

    /// What an image of a part of an event says: the stage that the event has reached, but not where it went: the
    /// shadows say that.
    fn persisted_marks(&self, shard: &Shard, event: u32) -> ImageMarks {
        ImageMarks { state: ImageState::Undecided, detail: 0, ..self.image_marks(shard, event) }
    }

    /// What was decided about an event before anything of it set out: the shadows are told now. Answers up to where a
    /// device must know them before it has any more of the event.
    fn shadow_standing(&self, level: &Level, shard: &Shard, event: u32) -> u64 {
        let leaf = &shard.events[event];
        let decided = match leaf.state {
            State::Live(LiveState::Accepted) => Some((DecisionKind::Accept, leaf.output())),
            State::Live(LiveState::Debug) => Some((
                DecisionKind::Debug,
                u32::from(shard.events.lists.reasons.get(&event).copied().unwrap_or_default()),
            )),
            _ => None,
        };
        // An event on a device was told when it was decided; of this one the shadows have not heard.
        if let (Some((kind, detail)), false) = (decided, shard.events.slab.at(event, At::Warm)) {
            let group = self.group_of(shard, event);
            self.shadow(shard, event, &Decision { detail, ..shard.events.decision(event, kind, group) }).unanswered();
        }
        self.shadow_removed(shard, event);
        let any =
            decided.is_some() || shard.events.removed_slots > 0 && shard.events.removed_of(event).next().is_some();
        if any { level.log.end() } else { 0 }
    }

    /// An image of these may be found although nobody counts it.
    fn doubt(&self, fragments: &[Waiting], devices: &[u32]) {
        for waiting in fragments {
            let primary = self.keyspace.schema.primary_of(&waiting.entry.key);
            doubt(&mut self.shards.cell_of(primary.as_bytes()).lock(), primary.as_bytes(), devices);
        }
    }

    /// It is on its way no more.
    fn leave_queue(&self, waiting: &Waiting) {
        let primary = self.keyspace.schema.primary_of(&waiting.entry.key);
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        // In one hold, this one first: a way has never fewer carriers than puts that may be answered.
        shard.places.is_persisted(primary.as_bytes());
        shard.places.arrives(primary.as_bytes(), &[]);
        drop(shard);
        self.unpin(waiting.from);
    }

    /// Writes a group, within the time that one device is given, and answers each fragment of it.
    fn persist_group(&self, level: &Level, group: Vec<Waiting>) {
        let schema = &self.keyspace.schema;
        let deadline = level.deadline();
        debug_assert!(
            group.is_sorted_by(|one, next| one.entry.key.as_bytes() < next.entry.key.as_bytes()),
            "an image has a key once, and fragments of an event are neighbours"
        );
        for of_run in
            group.chunk_by(|a, b| schema.run_of(a.entry.key.as_bytes()) == schema.run_of(b.entry.key.as_bytes()))
        {
            let events: Vec<&[Waiting]> =
                of_run.chunk_by(|a, b| schema.primary_of(&a.entry.key) == schema.primary_of(&b.entry.key)).collect();
            let run = schema.run_of(of_run[0].entry.key.as_bytes());
            match self.persist_run(level, run, &events, deadline) {
                Ok(placed) => {
                    debug_assert_eq!(placed.len(), events.len(), "each event of the group has an image, or a reason");
                    for (event, placed) in events.iter().zip(placed) {
                        match placed {
                            Placed::At(place) => self.persisted_at(level, event, place, deadline),
                            Placed::Rotten(_) => fail(event, "its bytes do not match their checksum"),
                            Placed::TooLarge => fail(event, "it is larger than a container"),
                        }
                    }
                }
                Err(error) => {
                    level.note(error.to_string());
                    // It may be found there all the same.
                    self.doubt(of_run, &level.present().collect::<Vec<u32>>());
                    fail(of_run, &error.to_string());
                }
            }
        }
        for waiting in &group {
            self.leave_queue(waiting);
            // Where it did not fail.
            let _ = waiting.answer.set(Ok(()));
        }
    }

    /// The image of an event is durable: it counts once its device knows the run. An image of a run that nobody opened is
    /// nothing to a life without the hot level.
    fn persisted_at(&self, level: &Level, fragments: &[Waiting], place: ImagePlace, deadline: Instant) {
        self.locks.assert_free();
        let run = fragments.iter().map(|waiting| waiting.run).max().unwrap_or(0);
        let device = level.warm.device_of(place.container);
        if let Err(error) = level.log.wait(device, run, deadline) {
            level.note(error.to_string());
            self.doubt(fragments, &[device]);
            level.warm.ended(place, fragments.len() as u32);
            fail(fragments, error.message());
        } else if !self.note_copy(fragments, device, at(place, 0)) {
            fail(fragments, "the store was closed meanwhile");
        }
    }

    /// Waits until a device knows what was decided of a group's events before they set out, and answers which one may be
    /// written; `None` is any, as it is for events that wait for their decision. It must know first: the images do not say it,
    /// and a cut can come right after they are durable.
    fn device_that_knows(&self, level: &Level, standing: u64, deadline: Instant) -> Result<Option<u32>> {
        self.locks.assert_free();
        let knows = |device: &u32| level.log.is_durable(*device, standing);
        if level.warm.taking().all(|device| knows(&device)) {
            return Ok(None);
        }
        let devices = level.warm.devices();
        // None that rests; one that knows already, else one that answers: a put must not wait for a stalled disk while another one
        // works.
        let first = level.warm.taking().min_by_key(|device| {
            let info = &devices[*device as usize];
            (info.resting, !knows(device), info.stalled)
        });
        let device = first.ok_or_else(|| Error::unavailable("no device is there that takes data"))?;
        level.log.wait(device, standing, deadline)?;
        Ok(Some(device))
    }

    fn persist_run(&self, level: &Level, run: u64, events: &[&[Waiting]], deadline: Instant) -> Result<Vec<Placed>> {
        if is_over(deadline) {
            return Err(Error::unavailable("the device did not answer others of the same commit in time"));
        }
        let standing = events.iter().flat_map(|event| event.iter()).map(|waiting| waiting.standing).max().unwrap_or(0);
        let device = self.device_that_knows(level, standing, deadline)?;
        let target = Target { run, stream: Stream::Undecided, kind: KIND, device, moving: false };
        let plans: Vec<ImageDraft<'_>> = events.iter().map(|event| self.persisted_image(event)).collect();
        let mut writers = level.persisting.writer.lock();
        let at = match writers.iter().position(|open| open.0 == target) {
            Some(at) => at,
            None => {
                // A run that ends and the one that begins; each writer keeps a container from being used by others.
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
            writer.wait(ticket, deadline)
        });
        if durable.is_ok() {
            return Ok(placed);
        }
        // A writer that failed is not asked again: its container is poisoned.
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

    fn persisted_image<'a>(&'a self, event: &'a [Waiting]) -> ImageDraft<'a> {
        let schema = &self.keyspace.schema;
        let entries = event.iter().map(|Waiting { entry, from, .. }| EntryDraft {
            rest: &entry.key.as_bytes()[schema.primary_bytes()..],
            payload: self
                .placement
                .hot
                .region
                .bytes(self.placement.hot.payload_offset(from.segment, entry.offset), entry.length as usize),
            crc: entry.payload_crc,
            status: entry.status,
            version: entry.version,
            flags: entry.flags,
        });
        let primary = &event[0].entry.key.as_bytes()[..schema.primary_bytes()];
        ImageDraft { primary, marks: marks_of(event), entries: entries.collect(), record: None }
    }

    /// The copies are durable: they end with their event. `false` where the store is closed: the next opening finds them.
    fn note_copy(&self, fragments: &[Waiting], device: u32, at: Location) -> bool {
        let schema = &self.keyspace.schema;
        let primary = schema.primary_of(&fragments[0].entry.key);
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return false;
        }
        let mut kept = 0;
        if let Some(event) = shard.events.find(primary.as_bytes()) {
            for waiting in fragments {
                let key = &waiting.entry.key;
                let Ok((slot, word)) = shard.events.slot(event, schema.rest_of(key)) else { continue };
                if word.is_warm() || word.is_persisted() {
                    continue;
                }
                // Also one that an update is about to replace: until then it is in force, and the update may fail.
                let standing = if word.is_busy() { word.settled() } else { word };
                if self.is_of_version(standing, waiting.from, &waiting.entry) {
                    // Noted in the slot: a second put of it answers at once, and an update knows that a device must hear.
                    shard.events.set_word(event, slot, word.persisted());
                    kept += 1;
                } else if shard.places.superseded.get(key).is_some_and(|ended| ended.on_hot_only) {
                    // Updated meanwhile: with the hot level lost it is the only one.
                    kept += 1;
                }
            }
            if kept > 0 {
                shard.places.copies.entry(event).or_default().push((at, kept));
                self.becomes_warm(&mut shard, event);
                // What was marked since its image was planned is beside a record of the hot level alone.
                if self.persisted_marks(&shard, event) != marks_of(fragments)
                    || shard.events.slab.at(event, At::MarksLogged)
                {
                    self.log_marks(&mut shard, event);
                }
            }
        }
        let unused = fragments.len() as u32 - kept;
        if unused > 0 {
            // It is on the device all the same, for a life without the hot level to find.
            doubt(&mut shard, primary.as_bytes(), &[device]);
        }
        drop(shard);
        if let (Some(level), true) = (&self.placement.level, unused > 0) {
            level.warm.ended(place_of(at), unused);
        }
        true
    }
}

/// An image of an event that counts for nothing may be found on these devices.
fn doubt(shard: &mut Shard, primary: &[u8], devices: &[u32]) {
    if let Some(event) = shard.events.find(primary) {
        shard.sets_out(event);
        shard.places.arrives(primary, devices);
        // What the log says of marks is later than what that image says.
        shard.events.slab.set_at(event, At::MarksLogged);
    }
}

/// What the image of these says of their event: the last to come knows most.
fn marks_of(fragments: &[Waiting]) -> ImageMarks {
    fragments.iter().max_by_key(|waiting| waiting.number).map(|last| last.marks).unwrap_or_default()
}

fn fail(fragments: &[Waiting], why: &str) {
    for waiting in fragments {
        let answered = waiting.answer.set(Err(why.to_owned()));
        debug_assert!(answered.is_ok(), "a put is answered once");
    }
}

fn no_warm_level() -> Error {
    Error::invalid("`persisted` needs a warm level: this store was made without devices")
}

fn not_persisted(why: &str) -> Error {
    Error::unavailable(format!("stored on the hot level, but not persisted: {why}; the same put tries again"))
}
