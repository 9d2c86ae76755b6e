//! A round of maintenance: time-outs of open events and leases, sealing, evacuation, snapshots of the log. A round comes
//! when something is due or something has happened (`due.rs`), and no sooner than 5 ms after the one before.
//!
//! *Invariants*: a live record is moved by copying, fencing, and one swap under the event's lock, so that leases and
//! reads survive it; guards on the old copy stay valid until they are dropped.

use crate::engine::{Engine, Holder};
use crate::events::{LeaseState, Reason, State, Word};
use crate::limits::{BATCH_EVENTS, EVACUATE_LIVE_PERCENT, NAMES_LOOK_NS};
use crate::placement::RecordHead;
use crate::rounds::MAINTENANCE;
use crate::shards::Shard;
use crate::time;
use crate::{RunState, Store};
use forebay_core::LiveState;
use forebay_core::mutants::is_planted;
use forebay_core::nanoseconds;
use forebay_media::bytes::{Entry, EntryFlags, Mark, StateWord};
use forebay_media::hot::{Class, Location, SEALED, checksum};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl Store {
    /// One round of maintenance, for stores without their own thread: whenever [`Store::next_due_ns`] says so, or as often as
    /// its caller likes.
    pub fn tick(&self) {
        let engine = self.engine();
        engine.maintain();
        engine.maintain_level(true);
        engine.maintain_shadows();
    }
}

/// Runs rounds until the store closes or its last handle is gone.
pub(crate) fn spawn(holder: &Arc<Holder>) -> std::io::Result<()> {
    let engine: Weak<Engine> = Arc::downgrade(&holder.engine);
    let clock = holder.engine.config.clock.clone();
    let bell = holder.engine.upkeep.bell.clone();
    std::thread::Builder::new().name("forebay-store".to_owned()).spawn(move || {
        // Weak: the thread must not keep a store open that nobody has any more.
        let to_ns = || engine.upgrade().filter(|engine| !engine.is_closed()).map(|engine| engine.sleep_to_ns());
        loop {
            time::pause(&*clock, MAINTENANCE, || engine.strong_count() > 0);
            let Some(to_ns) = to_ns() else { return };
            time::sleep_to_ring(&*clock, to_ns, &bell);
            match engine.upgrade() {
                Some(engine) if !engine.is_closed() => engine.maintain(),
                _ => return,
            }
        }
    })?;
    Ok(())
}

impl Engine {
    pub(crate) fn maintain(&self) {
        if self.now_ns().saturating_sub(self.life.gone.lock().0) >= NAMES_LOOK_NS {
            self.look_at_names();
        }
        // Also before what may take long: a trigger that is told late fills what is left.
        self.look();
        let round = self.life.maintaining.lock();
        if self.is_closed() {
            return;
        }
        self.upkeep.begins(self.now_ns());
        let prefaults = self.placement.hot.region.prefault();
        self.time_out_open_events();
        self.seal_stopped_runs();
        self.time_out_leases();
        self.watch_sources();
        self.apply_policies();
        self.journal_run_times();
        let unsealed = self.placement.hot.seal_closed();
        let short = self.evacuate();
        self.snapshot_grown_log();
        // The listener of inhibit may call the store, `close` included.
        drop(round);
        let inhibited = self.look().inhibit.is_some();
        // While space is short, what ends it rings nowhere: reserves shrink with each decision.
        self.upkeep.ends(prefaults || unsealed || short || inhibited);
    }

    fn time_out_open_events(&self) {
        let now = self.now_ns();
        let mut any = false;
        for cell in &self.shards.cells {
            // Before the lock, as everywhere: a snapshot waits for effects, and must not wait for one that waits for its lock.
            let _effects = self.decisions.effects.begin();
            let mut shard = cell.lock();
            if shard.closed {
                return;
            }
            let mut moved = false;
            for run in 0..shard.events.runs.len() {
                let within = shard.events.runs[run].plan.within_ns;
                for _ in 0..BATCH_EVENTS {
                    let Some(event) = shard.events.runs[run].open.first() else {
                        shard.events.runs[run].forget_pauses(now);
                        break;
                    };
                    let arrival = shard.events[event].arrival_ns;
                    if shard.events.runs[run].waited_ns(arrival, now) < within {
                        shard.events.runs[run].forget_pauses(arrival);
                        break;
                    }
                    // Without space the next round tries again; the store itself waits for no device.
                    let Ok(ticket) = self.make_ready(&mut shard, event) else { break };
                    ticket.unanswered();
                    moved = true;
                }
            }
            // Marks are durable before anybody can be given these events.
            if moved {
                self.placement.hot.region.fence();
                cell.publish_ready(&shard);
                any = true;
            }
        }
        if any {
            self.events.waiting.notify();
        }
    }

    fn seal_stopped_runs(&self) {
        let stopped: Vec<u64> = {
            let runs = self.runs.known.lock();
            let stopped = runs.iter().filter(|known| known.state == RunState::Stopped);
            stopped.map(|known| known.run).collect()
        };
        for run in stopped {
            // Without space for a record, or while the store closes, the next round or opening does it.
            let _ = self.seal_stopped_run(run);
        }
    }

    fn time_out_leases(&self) {
        let now = self.now_ns();
        let mut any = false;
        for cell in &self.shards.cells {
            for _ in 0..BATCH_EVENTS {
                if self.is_closed() {
                    return;
                }
                let _effects = self.decisions.effects.begin();
                let mut shard = cell.lock();
                let leases = &mut shard.events.leases;
                let Some((deadline, lease)) = leases.timers.first(&leases.out) else { break };
                if deadline > now || shard.closed || is_planted("lease-kept") {
                    break;
                }
                let LeaseState { event, granted_ns, .. } = shard.events.leases.out[lease];
                debug_assert_eq!(
                    shard.events[event].state,
                    State::Live(LiveState::Leased),
                    "lease {lease} is in force"
                );
                debug_assert_eq!(shard.events[event].lease(), lease, "event {event} has the lease that runs out");
                let most = nanoseconds(self.config.max_hold);
                let too_long = deadline.saturating_sub(granted_ns) >= most;
                let reason = if too_long { Reason::HeldTooLong } else { Reason::WorkerSilent };
                let Ok(ticket) = self.fail_lease(&mut shard, event, reason) else { break };
                ticket.unanswered();
                cell.publish_ready(&shard);
                any = true;
            }
        }
        if any {
            self.events.waiting.notify();
        }
    }

    /// Moves the live records of mostly dead segments elsewhere when space gets short. Whether it is.
    fn evacuate(&self) -> bool {
        let short =
            self.placement.hot.fill() > self.config.hot_low * 0.9 || !self.placement.hot.admits(Class::NewEvent);
        if !short {
            return false;
        }
        let most = self.placement.hot.geometry.segment_bytes * EVACUATE_LIVE_PERCENT / 100;
        let mut victims: Vec<(u64, u32)> = Vec::new();
        for number in 0..self.placement.hot.geometry.segments {
            let segment = self.placement.hot.segment(number);
            if segment.state() == SEALED && segment.live() > 0 {
                let entries = u64::from(segment.entries.load(Ordering::Relaxed));
                let used = segment.payload_end.load(Ordering::Relaxed)
                    + entries * self.placement.hot.layout.entry_bytes() as u64;
                let live = used.saturating_sub(segment.dead_bytes.load(Ordering::Relaxed));
                if live < most {
                    victims.push((live, number));
                }
            }
        }
        // The emptiest first, and few in one round: each move takes the space that it is to give.
        victims.sort_unstable();
        for (_, number) in victims.into_iter().take(4) {
            if !self.evacuate_segment(number) {
                break;
            }
        }
        true
    }

    /// `false` where there is no space to move to.
    fn evacuate_segment(&self, number: u32) -> bool {
        let entries = self.placement.hot.segment(number).entries.load(Ordering::Relaxed);
        for entry in 0..entries {
            let location = Location { segment: number, entry };
            if self.placement.hot.segment(number).live() == 0 {
                break;
            }
            if self.is_closed() {
                return false;
            }
            let _effects = self.decisions.effects.begin();
            // The pin comes first: a segment that is sealed under it is not used again before the pin is gone, and nothing of
            // a sealed one is written but marks. One that is in its next life meanwhile is let go as it is.
            self.placement.hot.segment(number).pin();
            let sealed = self.placement.hot.segment(number).state() == SEALED;
            let found = if sealed { self.live_entry(location) } else { None };
            let moved = found.is_none_or(|found| self.move_record(location, &found));
            self.placement.hot.unpin(number);
            if !sealed {
                break;
            }
            if !moved {
                return false;
            }
        }
        if self.placement.hot.segment(number).live() == 0 {
            self.placement.evacuated.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// The entry of a record in a sealed, pinned segment, if its word says that it is live.
    fn live_entry(&self, location: Location) -> Option<Entry> {
        let state = self.placement.hot.state_of(location)?;
        if state.mark == Mark::Live { self.placement.hot.read_entry(location) } else { None }
    }

    /// Where the index or the list of kept conflicts says that this record lies: still here?
    fn is_current(&self, shard: &Shard, location: Location, entry: &Entry) -> Option<Current> {
        let (primary, rest) = entry.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        match entry.flags {
            EntryFlags::CONFLICT => {
                shard.places.kept.iter().position(|kept| kept.location == location).map(Current::Kept)
            }
            EntryFlags::ATTRIBUTES => {
                let event = shard.events.find(primary)?;
                (shard.events.attribute_word(event)?.location() == location).then_some(Current::Attributes(event))
            }
            _ => {
                let event = shard.events.find(primary)?;
                let (slot, word) = shard.events.slot(event, rest).ok()?;
                // One with a version in flight is left: the update has read its location, and ends that record.
                let is_here = word.is_present() && !word.is_busy() && word.location() == location;
                is_here.then_some(Current::Fragment(event, slot))
            }
        }
    }

    /// `false` where there is no space. A record that is not current any more, or does not verify, is left alone.
    fn move_record(&self, from: Location, entry: &Entry) -> bool {
        let primary = self.keyspace.schema.primary_of(&entry.key);
        let cell = self.shards.cell_of(primary.as_bytes());
        {
            let shard = cell.lock();
            if shard.closed || self.is_current(&shard, from, entry).is_none() {
                return true;
            }
            // Under the lock the record is live: the pin keeps its bytes while they are copied.
            self.placement.hot.segment(from.segment).pin();
        }
        debug_assert!(self.placement.hot.segment(from.segment).pins() > 0, "what is copied is pinned");
        let source = self
            .placement
            .hot
            .region
            .bytes(self.placement.hot.payload_offset(from.segment, entry.offset), entry.length as usize);
        if checksum(source) != entry.payload_crc {
            // Rotten bytes stay where they are; a reader's check names them.
            self.placement.hot.unpin(from.segment);
            return true;
        }
        let Some(place) = self.placement.hot.reserve_place(Class::Evacuation, entry.length) else {
            self.placement.hot.unpin(from.segment);
            return false;
        };
        // Into itself, a segment would never be freed by its evacuation.
        debug_assert_ne!(place.location.segment, from.segment, "a sealed segment takes nothing");
        // A result that the index knows is one whose verdict is recorded. What the record of an event says of it, the copy says
        // from the start: a crash before the old one ends leaves two of one version.
        let state = match entry.flags {
            EntryFlags::ATTRIBUTES => self.placement.hot.state_of(from).unwrap_or(StateWord::FRESH),
            flags => StateWord { ready: flags.0 & EntryFlags::RESULT.0 != 0, ..StateWord::FRESH },
        };
        let Entry { key, status, version, flags, .. } = *entry;
        self.placement.write_record(&place, &RecordHead { key, status, version, flags }, source, state);
        self.placement.hot.region.fence();
        // Looked at again: while the bytes were copied the record may have ended, or a new version may have come.
        let mut shard = cell.lock();
        match self.is_current(&shard, from, entry) {
            None => self.placement.hot.abandon(place.location, entry.length),
            Some(current) => {
                match current {
                    Current::Kept(at) => shard.places.kept[at].location = place.location,
                    Current::Attributes(event) => {
                        shard.events.set_attribute_word(event, Word::of(place.location));
                        // It may have been marked while it was copied: durable before the old one ends.
                        self.mark_record(&shard, event);
                        self.placement.hot.region.fence();
                    }
                    Current::Fragment(event, slot) => {
                        if let Ok((_, word)) = shard.events.slot(event, self.keyspace.schema.rest_of(&entry.key)) {
                            shard.events.set_word(event, slot, word.carried_to(place.location));
                        }
                        // What the old copy says the new one says as well, and it has the event's marks if it is the first
                        // fragment: durable before the old copy ends.
                        self.placement.hot.mark(place.location, self.placement.hot.state_of(from).unwrap_or(state));
                        if matches!(shard.events[event].state, State::Live(_)) {
                            self.mark_event(&mut shard, event);
                            self.placement.hot.region.fence();
                        }
                        debug_assert!(self.marks_have_a_home(&shard, event), "marks of event {event} were left behind");
                    }
                }
                self.placement.hot.end_record(from, entry.length);
                self.placement.hot.region.fence();
                self.placement.hot.written(place.location.segment);
            }
        }
        drop(shard);
        self.placement.hot.unpin(from.segment);
        true
    }
}

/// The relation of a record to the index.
enum Current {
    Fragment(u32, usize),
    Attributes(u32),
    Kept(usize),
}
