//! Snapshots of the decision log: what all its slots said, taken beside calls.
//!
//! ```text
//! boundary of a log ─▶ accounts, shard by shard ─▶ events, in slices ─▶ runs, streams, holds ─▶ effects settled ─▶ written
//!        └ decisions go on: each part says how far the log was when it was taken
//! ```
//!
//! *Invariants*: a snapshot blocks no call that has space: each part is taken under a short hold of its lock. A reader goes on from the
//! boundary and carries every slot out once more: what a slot says of events replaces what was said before, so that saying
//! it twice changes nothing; what it adds to accounts counts only where the account was taken before it (`Seen`). What the
//! snapshot replaces is freed only after every record before the boundary has its effects (`Effects::settled`).
//!
//! *Not here*: its bytes (`decisions/snapshot.rs`), where it is written (the logs of `forebay-media`).

use crate::decisions::{HotLength, KeyTable, Seen, Sum, Superseded, Taken, mark_of, output_number};
use crate::engine::Engine;
use crate::engine::mark_detail;
use crate::events::{Flag, Given, Incident, KeptForeign, PlaceBits, State};
use crate::limits::{BATCH_RUNS, SHARDS, incidents_kept, records_kept, verdicts_kept};
use crate::placement::At;
use crate::shards::{Cell, Shard};
use forebay_core::{FixedSet, LiveState, Result};
use forebay_media::hot::{Boundary, Class};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Events looked at in one hold of a shard's lock.
const SLICE_EVENTS: u32 = 2048;
/// How long a call that finds no space waits for a snapshot of another thread.
const OTHERS_SNAPSHOT: Duration = Duration::from_millis(100);
/// After this time a snapshot gives its processor to threads that wait for one: shorter than the time after which the kernel
/// takes it, in the middle of a hold.
const TURN: Duration = Duration::from_micros(500);

impl Engine {
    /// Takes a snapshot where the log has grown, or where space is short and a snapshot gives some back: on the thread of the store,
    /// unless it has none, or decisions have come as far as the space that live events keep for theirs.
    pub(crate) fn relieve_log(&self) {
        if !self.config.maintenance || !self.placement.hot.admits(Class::Evacuation) {
            self.snapshot_grown_log();
        }
    }

    /// The same for what people and runs say: without space that is refused, where verdicts have theirs. So it waits for a
    /// snapshot that another thread is taking.
    pub(crate) fn relieve_log_for_words(&self) {
        if !self.placement.hot.admits(Class::Evacuation) {
            // Closing holds the lock for good.
            drop(self.decisions.snapshotting.try_lock_for(OTHERS_SNAPSHOT));
        }
        self.relieve_log();
    }

    /// Takes a snapshot where the log has grown, or where space is short and a snapshot gives some back.
    pub(crate) fn snapshot_grown_log(&self) {
        let (snapshot, grown) = self.decisions.log.lengths();
        // Twice the snapshot that it leads to: then writing snapshots costs as much as writing decisions, regardless of
        // their number.
        let generous = (self.placement.hot.geometry.segments / 16).max(2) + snapshot;
        let short = !self.placement.hot.admits(Class::NewEvent);
        if grown <= 1 || grown <= generous && !short {
            return;
        }
        // Asked under the lock that closing takes for good: a call that outlives it must not replace the log of a later
        // life.
        if let Some(_only_one) = self.decisions.snapshotting.try_lock().filter(|_| !self.is_closed()) {
            // Without space the log goes on as it is: nothing is lost.
            let _ = self.take_snapshot();
        }
    }

    /// Replaces what the log says by a snapshot; answers its bytes. One at a time (`snapshotting`), except for opening and
    /// closing.
    pub(crate) fn take_snapshot(&self) -> Result<usize> {
        self.forget_decided();
        let boundary = self.decisions.log.boundary(&self.placement.hot);
        let snapshot = self.capture(boundary)?;
        self.decisions.log.replace(&self.placement.hot, &snapshot, &boundary)?;
        Ok(snapshot.len())
    }

    pub(crate) fn verdicts_kept(&self) -> usize {
        verdicts_kept(self.placement.hot.geometry.region_bytes())
    }

    fn seen(&self) -> Seen {
        Seen {
            log: self.decisions.log.position(),
            shadow: self.placement.level.as_ref().map_or(0, |level| level.log.end()),
        }
    }

    /// Everything that is decided, with all that was recorded before this call. `boundary` is where a reader of the hot log
    /// goes on.
    pub(crate) fn capture(&self, boundary: Boundary) -> Result<Vec<u8>> {
        // Every cell is locked in turn, and effects are waited for.
        self.locks.assert_free();
        // An accept that named its output before is recorded before the first event is looked at.
        let turn = self.decisions.outputs.write().begin_turn();
        self.decisions.effects.settled();
        let mut shards = OfShards::default();
        self.take_shards(&mut shards);
        self.take_absent(&mut shards);
        let taken = self.take_others(boundary, turn, shards);
        // What was recorded before the boundary is carried out: its records are marked, its slots can go.
        self.decisions.effects.settled();
        taken.write(&self.keyspace.schema)
    }

    /// Takes what the shards say, one after another.
    fn take_shards(&self, taken: &mut OfShards) {
        let closing = self.is_closed();
        let hot_length = |place: PlaceBits| self.hot_length(place);
        let hot_length: Option<HotLength<'_>> = closing.then_some(&hot_length);
        let kept = incidents_kept(self.placement.hot.geometry.region_bytes()).div_ceil(SHARDS);
        let mut turn_began = self.timer().now();
        for (number, cell) in self.shards.cells.iter().enumerate() {
            // Accounts before events: an event that ends in between is in neither, and its record after `seen` says how it ended.
            self.take_accounts(number, cell, hot_length, taken);
            for first in (0..).step_by(SLICE_EVENTS as usize) {
                let shard = cell.lock();
                let end = shard.events.slab.used().min(first + SLICE_EVENTS);
                (first..end).for_each(|event| self.take_event(&shard, event, taken));
                if end < first + SLICE_EVENTS {
                    let superseded = shard.places.superseded.iter();
                    taken.superseded.extend(superseded.map(|(key, ended)| (key.as_bytes().to_vec(), *ended)));
                    taken.incidents.extend(shard.events.incidents.last(kept).copied());
                    break;
                }
                // Waiting verdicts go first.
                shard.unlock_fair();
                let now = self.timer().now();
                if now.saturating_duration_since(turn_began) > TURN {
                    std::thread::yield_now();
                    turn_began = now;
                }
            }
        }
    }

    /// Takes the accounts of one shard, some runs in each hold of its lock.
    fn take_accounts(&self, number: usize, cell: &Cell, hot_length: Option<HotLength<'_>>, taken: &mut OfShards) {
        for batch in 0.. {
            let shard = cell.lock();
            let runs = &shard.events.runs[(batch * BATCH_RUNS).min(shard.events.runs.len())..];
            if runs.is_empty() {
                break;
            }
            if taken.accounts_seen.len() == batch {
                taken.accounts_seen.push(Default::default());
            }
            taken.accounts_seen[batch][number] = self.seen();
            for (at, run) in (batch * BATCH_RUNS..).zip(runs.iter().take(BATCH_RUNS)) {
                if taken.sums.len() == at {
                    taken.sums.push((run.run, Sum::default()));
                }
                debug_assert_eq!(taken.sums[at].0, run.run, "every shard has the runs in one order");
                taken.sums[at].1.add(&shard.events, at as u16, hot_length);
            }
            shard.unlock_fair();
        }
    }

    /// Takes what was decided about one event, if it is live.
    fn take_event(&self, shard: &Shard, event: u32, taken: &mut OfShards) {
        let form = self.shards.decided_form;
        let leaf = &shard.events[event];
        let (state, output) = match (leaf.state, shard.events.kept_foreign(event)) {
            (State::Live(LiveState::Accepted), _) => (LiveState::Accepted, leaf.output()),
            (State::Live(state), _) => (state, 0),
            // Its decision is in force again if its home comes back.
            (State::Foreign, Some(KeptForeign::Accepted(output))) => (LiveState::Accepted, output),
            (State::Foreign, Some(KeptForeign::Debug(_))) => (LiveState::Debug, 0),
            (State::Foreign, None) => (LiveState::Open, 0),
            _ => return,
        };
        // What images say need not be said here: a full warm level would make each snapshot as large as itself.
        let settled = shard.events.slab.at(event, At::SettledThere) && leaf.is(Flag::Far);
        let marked = shard.events.slab.at(event, At::MarksLogged);
        match state {
            LiveState::Accepted => {
                taken.used.extend(output_number(output));
                // Of a settled one the images say so.
                if !settled {
                    taken.accepted.add(form, shard.events.primary(event).as_bytes(), u64::from(output));
                }
            }
            LiveState::Debug => {
                let reason = match shard.events.kept_foreign(event) {
                    Some(KeptForeign::Debug(reason)) => reason,
                    _ => shard.events.lists.reasons.get(&event).copied().unwrap_or_default(),
                };
                taken.debug.add(form, shard.events.primary(event).as_bytes(), u64::from(reason));
            }
            _ => {}
        }
        if marked && !(settled && state == LiveState::Accepted) {
            let word = leaf.marks();
            let mark = mark_of(word.stage, mark_detail(&word));
            taken.marks.add(form, shard.events.primary(event).as_bytes(), mark);
        }
        if shard.events.removed_slots > 0 {
            for (rest, result) in shard.events.removed_of(event) {
                let key = self.keyspace.schema.join(&shard.events.primary(event), rest);
                taken.removed.push((key.as_bytes().to_vec(), result));
            }
        }
    }

    /// Takes again what is known of events on devices that are not there.
    fn take_absent(&self, taken: &mut OfShards) {
        let Some(absent) = self.decisions.absent.get() else { return };
        let form = self.shards.decided_form;
        taken.used.extend(absent.accepted.iter().filter_map(|(_, detail)| output_number(*detail as u32)));
        for (table, kept) in [
            (&mut taken.accepted, &absent.accepted),
            (&mut taken.debug, &absent.debug),
            (&mut taken.marks, &absent.marks),
        ] {
            kept.iter().for_each(|(primary, number)| table.add(form, primary, *number));
        }
        taken.removed.extend(absent.removed.iter().cloned());
        taken.superseded.extend(absent.superseded.iter().cloned());
    }

    /// Takes what is not of a shard. Each with how far the log was, under the lock under which it is written to: a record
    /// before that is in what is taken, one after it is not.
    fn take_others(&self, boundary: Boundary, turn: u64, shards: OfShards) -> Taken {
        let mut seen = [Seen::default(); 4];
        let (runs, streams, holds);
        {
            let mut known = self.runs.known.lock();
            let most = records_kept(self.placement.hot.geometry.region_bytes());
            known.iter_mut().for_each(|known| known.keep_records(most));
            let now = self.balance();
            let mut taken = known.clone();
            taken.iter_mut().for_each(|known| known.time.settle(&now));
            (runs, seen[0]) = (taken, self.seen());
        }
        {
            let known = self.decisions.streams.read();
            (streams, seen[1]) = (known.names().to_vec(), self.seen());
        }
        let outputs = {
            let mut outputs = self.decisions.outputs.write();
            let left = outputs.retain(&shards.used, turn);
            self.placement.hot.output_bytes.store(outputs.bytes, Ordering::Relaxed);
            seen[2] = self.seen();
            left
        };
        {
            let known = self.runs.holds.read();
            (holds, seen[3]) = ((known.clone(), self.runs.next_hold.load(Ordering::Relaxed)), self.seen());
        }
        let verdicts: Vec<Given> = self.events.recent.lock().last().collect();
        debug_assert!(
            seen.windows(2).all(|pair| pair[0].log <= pair[1].log && pair[0].shadow <= pair[1].shadow),
            "logs only grow"
        );
        let OfShards { sums, accounts_seen, accepted, debug, marks, removed, superseded, incidents, used: _ } = shards;
        Taken {
            boundary,
            seen,
            accounts_seen,
            streams,
            outputs,
            runs,
            sums,
            accepted,
            debug,
            removed,
            superseded,
            marks,
            verdicts,
            holds,
            incidents,
        }
    }
}

/// What the shards said, one after another.
#[derive(Default)]
struct OfShards {
    sums: Vec<(u64, Sum)>,
    accounts_seen: Vec<[Seen; SHARDS]>,
    accepted: KeyTable,
    debug: KeyTable,
    marks: KeyTable,
    removed: Vec<(Vec<u8>, bool)>,
    superseded: Vec<(Vec<u8>, Superseded)>,
    incidents: Vec<Incident>,
    /// Outputs that accepted events have.
    used: FixedSet<u32>,
}

#[cfg(test)]
mod tests {

    use crate::decisions::SnapshotContent;
    use crate::{Config, Store};
    use forebay_core::Keyspace;
    use forebay_testkit::media::SimMedium;

    #[test]
    fn a_snapshot_of_an_earlier_build_is_refused_with_words() {
        let keyspace = Keyspace::events("snapshots", 1).opening_runs();
        let config = Config { hot_bytes: 16 << 20, maintenance: false, ..Config::default() };
        let store = Store::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap();
        let engine = store.engine();
        let mut bytes = engine.capture(engine.decisions.log.boundary(&engine.placement.hot)).unwrap();
        assert!(SnapshotContent::read(&keyspace, &bytes).is_ok());
        bytes[..4].copy_from_slice(&(3_u32).to_le_bytes());
        let refused = SnapshotContent::read(&keyspace, &bytes).err().unwrap();
        assert!(refused.message().contains("version 3") && refused.message().contains("reads 4 to 6"), "{refused}");
    }
}
