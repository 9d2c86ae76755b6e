//! What is there: every record of every data segment goes to its event, or was ended by a decision.
//!
//! *Invariants*: a decision dominates every record that it covers; of several versions of a fragment the highest one is used
//! (`Records::second_record`); while records are adopted every event is open, and no list is made before all is read
//! (`settle`).
//!
//! *Not here*: what the warm level has (`images.rs`), which is read between the records and `settle`.

use super::images::Alone;
use super::{Decided, Version};
use crate::RunState;
use crate::engine::Engine;
use crate::events::{Flag, Incident, IncidentKind, State, Word};
use crate::placement::{At, Kept};
use crate::shards::Shard;
use forebay_core::limits::LOSSES_LISTED_MAX;
use forebay_core::map::Role;
use forebay_core::{Error, FixedSet, Key, Ledger, LiveState, Result, SeededHasher, SeededMap, Tally};
use forebay_media::bytes::{Entry, EntryFlags, ImageMarks, Mark, RecordSeed, SegmentHeader, SegmentState, StateWord};
use forebay_media::hot::{CLOSED, FREE, Location, Place, SEALED};
use forebay_media::limits::SEGMENT_HEADER_BYTES;
use std::sync::atomic::Ordering;

/// Records going into the index.
pub(super) struct Records<'a> {
    pub(super) engine: &'a Engine,
    pub(super) shards: Vec<&'a mut Shard>,
    pub(super) decided: &'a Decided,
    /// The last record's event: its neighbours mostly belong to the same one.
    last: Option<(Vec<u8>, usize, u32)>,
    /// Records whose bytes do not match their checksum.
    rotten: FixedSet<Location>,
    /// Those of sealed segments: lost, unless another copy is found.
    doomed: Vec<(Location, Entry)>,
    /// Copies in conflict, by their checksums.
    copies: FixedSet<(Key, u32)>,
    /// Versions that an update replaced without coming to its record.
    pub(super) replaced: Vec<Version>,
    /// Versions of fragments in containers, where they are not the first.
    pub(super) versions: SeededMap<Key, u16>,
    /// Marks of images that may be older than those beside records or in the log, with shard and event.
    pub(super) doubted: Vec<(usize, u32, ImageMarks)>,
    /// Events that one image says are accepted, and of which others have a part, with their shards.
    pub(super) mixed: FixedSet<(usize, u32)>,
    /// Records in images, of events that were not known when these were read.
    pub(super) alone: Vec<Alone>,
    /// There is no hot level to ask.
    pub(super) hot_lost: bool,
    /// When recovery began: ages are counted from here.
    pub(super) now_ns: u64,
    /// Places of an open segment that hold no whole entry.
    incomplete: Vec<u32>,
}

/// What becomes of a record.
enum Fate {
    Live,
    Dead,
    /// It counts for nothing, but is not marked dead before it is known to be lost.
    Doomed,
}

impl<'a> Records<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        shards: Vec<&'a mut Shard>,
        decided: &'a Decided,
        rotten: FixedSet<Location>,
    ) -> Records<'a> {
        let (last, doomed, copies, replaced, doubted, mixed, alone, hot_lost, incomplete) = Default::default();
        let now_ns = engine.now_ns();
        Records {
            engine,
            shards,
            decided,
            last,
            rotten,
            doomed,
            copies,
            replaced,
            versions: SeededMap::with_hasher(SeededHasher::new(engine.config.random.next())),
            doubted,
            mixed,
            alone,
            hot_lost,
            now_ns,
            incomplete,
        }
    }

    /// Adopts the records of one segment.
    pub(super) fn segment(&mut self, header: &SegmentHeader) -> Result<()> {
        let hot = &self.engine.placement.hot;
        let number = header.segment;
        let sealed = header.state == SegmentState::Sealed;
        let entry_bytes = hot.layout.entry_bytes() as u64;
        let entries = hot.entries_possible(header);
        let seed = hot.seed(number);
        self.incomplete.clear();
        debug_assert!(hot.segment(number).state() == FREE, "each segment is adopted once");
        let (mut end, mut payload_end, mut dead) = (0, SEGMENT_HEADER_BYTES as u64, 0);
        // While its records are adopted the segment must not be freed, even if all found so far have ended.
        hot.segment(number).pin();
        hot.segment(number).set_state(if sealed { SEALED } else { CLOSED });
        for entry in 0..entries {
            let location = Location { segment: number, entry };
            let found = hot.read_entry(location).filter(|found| hot.fits(location, found));
            let Some(found) = found else {
                // A segment is sealed once all its entries are there or void. In an open one an entry that does not verify
                // was never acknowledged.
                if sealed {
                    self.lost(format!("segment {number} entry {entry}: does not verify in a sealed segment"))?;
                }
                self.incomplete.push(entry);
                continue;
            };
            payload_end = payload_end.max(found.offset + hot.record_bytes(found.length) - entry_bytes);
            // Holes before this entry are places whose writers did not finish.
            end = entry + 1;
            dead += self.entry(location, &found, seed, sealed)?;
        }
        hot.segment(number).dead_bytes.fetch_add(dead, Ordering::Relaxed);
        hot.segment(number).entries.store(entries, Ordering::Relaxed);
        let most = hot.geometry.segment_bytes;
        hot.segment(number).payload_end.fetch_min(most, Ordering::Relaxed);
        debug_assert!(self.incomplete.is_sorted(), "holes are found in the order of entries");
        if !sealed {
            // It takes no more records in this life: its end is behind the last entry that verifies.
            self.close_holes(number, seed, end);
            hot.segment(number).entries.store(end, Ordering::Relaxed);
            hot.segment(number).payload_end.store(payload_end, Ordering::Relaxed);
        }
        // What the words say is durable before the log that says the same is folded (`finish`).
        hot.region.fence();
        hot.unpin(number);
        Ok(())
    }

    /// Adopts one record of a segment, and corrects its state word where what became of it is not what the word says.
    /// Answers its bytes if it is dead.
    fn entry(&mut self, location: Location, found: &Entry, seed: RecordSeed, sealed: bool) -> Result<u64> {
        let hot = &self.engine.placement.hot;
        let Location { segment: number, entry } = location;
        let bytes = hot.record_bytes(found.length);
        let word = StateWord::decode(hot.region.load_word(hot.state_word_offset(location)), seed, entry);
        if word.is_none() && sealed {
            self.lost(format!("segment {number} entry {entry}: its state word does not verify"))?;
        }
        // In an open segment the word may not have reached the medium before power was lost.
        let state = word.unwrap_or(StateWord::FRESH);
        // The word of an event's record is part of what it says: without it the record was cut off, and the one before counts.
        let cut_off = word.is_none() && !sealed && found.flags == EntryFlags::ATTRIBUTES;
        let fate = if state.mark == Mark::Dead || found.flags == EntryFlags::VOID || cut_off {
            Fate::Dead
        } else {
            self.record(location, found, state, sealed)?
        };
        match fate {
            Fate::Live => {
                hot.segment(number).adopt();
                // The log that says so is folded: from here on a result says of itself that it counts.
                let counts = found.flags.0 & EntryFlags::RESULT.0 != 0;
                let state = StateWord { ready: state.ready || counts, ..state };
                debug_assert!(state.mark == Mark::Live, "a mark of death is never taken back");
                if word != Some(state) {
                    hot.mark(location, state);
                }
                Ok(0)
            }
            // Its word stays: if the store refuses to open, the next opening must find the same.
            Fate::Doomed => Ok(bytes),
            Fate::Dead => {
                if word.is_none_or(|word| word.mark == Mark::Live) {
                    hot.mark(location, StateWord::ENDED);
                }
                Ok(bytes)
            }
        }
    }

    /// Gives the holes of an open segment void entries: it will be sealed, and then every entry counts.
    fn close_holes(&self, number: u32, seed: RecordSeed, end: u32) {
        let zeros = [0; forebay_core::limits::KEY_BYTES_MAX];
        let key = Key::from_packed(&zeros[..self.engine.keyspace.schema.key_bytes()]);
        let offset = SEGMENT_HEADER_BYTES as u64;
        for &hole in self.incomplete.iter().filter(|&&hole| hole < end) {
            let place = Place { location: Location { segment: number, entry: hole }, offset, seed };
            self.engine.placement.write_void(&place, key);
        }
    }

    /// Something that should be there is not: an error, unless the operator accepted that.
    pub(super) fn lost(&self, what: String) -> Result<()> {
        if !self.engine.config.accept_loss {
            return Err(Error::corrupt(what));
        }
        let mut losses = self.engine.life.losses.lock();
        if losses.len() < LOSSES_LISTED_MAX {
            losses.push(what);
        }
        Ok(())
    }

    /// A record that is not marked dead: decisions first, then its bytes, then its event.
    fn record(&mut self, location: Location, entry: &Entry, state: StateWord, sealed: bool) -> Result<Fate> {
        let engine = self.engine;
        let (primary, _) = entry.key.as_bytes().split_at(engine.keyspace.schema.primary_bytes());
        let (at, known) = match &self.last {
            Some((last, at, event)) if last.as_slice() == primary => (*at, Some(*event)),
            _ => (engine.shards.shard_of(primary), None),
        };
        debug_assert!(known.is_none_or(|event| self.shards[at].events.primary(event).as_bytes() == primary));
        let Some(run) = self.run_of_record(at, known, location, primary)? else { return Ok(Fate::Dead) };
        // Decisions before bytes: what a decision ended may have rotted since, and nothing is lost by that.
        if self.was_ended(entry, state, primary) {
            return Ok(Fate::Dead);
        }
        if !self.rotten.is_empty() && self.rotten.contains(&location) {
            // In an open segment power was lost before the fence: never acknowledged.
            if sealed {
                self.doomed.push((location, *entry));
                return Ok(Fate::Doomed);
            }
            return Ok(Fate::Dead);
        }
        let shard = &mut *self.shards[at];
        let special = [EntryFlags::CONFLICT, EntryFlags::ATTRIBUTES].contains(&entry.flags);
        let known_flags = entry.flags.is_fragment() || special;
        let crowded = known.or_else(|| shard.events.find(primary)).is_some_and(|event| !shard.events.has_room(event));
        if !known_flags || crowded || entry.flags == EntryFlags::ATTRIBUTES && !engine.has_event_records() {
            self.lost(format!("segment {} entry {}: cannot belong to this store", location.segment, location.entry))?;
            return Ok(Fate::Dead);
        }
        if entry.flags == EntryFlags::CONFLICT {
            // A run's end drops them, on a node that is not the home as well. Of what was being moved there are two.
            let is_over = shard.events.runs[run as usize].state == RunState::Closed;
            if is_over || !self.copies.insert((entry.key, entry.payload_crc)) {
                return Ok(Fate::Dead);
            }
            // It belongs to a key, not to the event: it must not make one of an event that has nothing else.
            shard.places.kept.push(Kept {
                key: entry.key,
                location,
                length: entry.length,
                checksum: entry.payload_crc,
            });
            engine.events.conflict_bytes.fetch_add(engine.placement.hot.record_bytes(entry.length), Ordering::Relaxed);
            return Ok(Fate::Live);
        }
        let event = known.or_else(|| shard.events.find(primary)).unwrap_or_else(|| {
            engine.placement.hot.events.fetch_add(1, Ordering::Relaxed);
            shard.events.create(primary, run, self.now_ns)
        });
        debug_assert!(shard.events[event].run == run, "an event's key names its run");
        if known.is_none() {
            self.last = Some((primary.to_vec(), at, event));
        }
        if entry.flags == EntryFlags::ATTRIBUTES {
            // What its word says counts once it is the last version, and fragments are known (`read_event_record`).
            return self.attributes(at, event, location, entry, state);
        }
        self.shards[at].events[event].adopt_marks(state);
        self.fragment(at, event, location, entry)
    }

    /// The run of a record, by its index; `None` where the event was decided, or the run is not known.
    fn run_of_record(&self, at: usize, known: Option<u32>, location: Location, primary: &[u8]) -> Result<Option<u16>> {
        let shard = &*self.shards[at];
        // It has a record that lives.
        if let Some(event) = known {
            return Ok(Some(shard.events[event].run));
        }
        let number = self.engine.keyspace.schema.run_of(primary);
        let Some(run) = shard.events.run_index(number) else {
            let place = format!("segment {} entry {}", location.segment, location.entry);
            self.lost(format!("{place}: run {number} was never opened"))?;
            return Ok(None);
        };
        let of_run = &shard.events.runs[run as usize];
        // Closing a run ends its events, except for those that are to be kept: the log names these.
        let over =
            of_run.state == RunState::Closed || of_run.decided.contains(self.engine.shards.decided_form, primary);
        // What is held for another node ends by its word, also after its run: the home may keep the event for the archive.
        let is_home = || self.engine.role(shard, primary) == Role::Home;
        if over && is_home() && !self.decided.accepted.contains(primary) && !self.decided.debug.contains(primary) {
            return Ok(None);
        }
        Ok(Some(run))
    }

    /// Whether this record alone was ended, although its event lives: a result without its verdict, a removed key, a
    /// superseded version.
    fn was_ended(&self, entry: &Entry, state: StateWord, primary: &[u8]) -> bool {
        let result = entry.flags.0 & EntryFlags::RESULT.0 != 0;
        let judged = || self.decided.results.contains(&(primary.to_vec(), entry.status));
        if result && !state.ready && !judged() {
            // Its worker died before the verdict was recorded.
            return true;
        }
        if !entry.flags.is_fragment() {
            return false;
        }
        let key = entry.key.as_bytes();
        let removed = !self.decided.removed.is_empty() && self.decided.removed.contains_key(key);
        let superseded = || self.decided.superseded.get(key).is_some_and(|ended| ended.version >= entry.version);
        removed || !self.decided.superseded.is_empty() && superseded()
    }

    /// A fragment of a live event.
    fn fragment(&mut self, at: usize, event: u32, location: Location, entry: &Entry) -> Result<Fate> {
        let (primary, rest) = entry.key.as_bytes().split_at(self.engine.keyspace.schema.primary_bytes());
        let length = self.engine.counted(location, entry);
        let late = entry.flags.0 & EntryFlags::LATE.0 != 0;
        let result = entry.flags.0 & EntryFlags::RESULT.0 != 0;
        let here = Word::of(location).of_fragment(late, length);
        let here = if result { here.of_result() } else { here };
        let shard = &mut *self.shards[at];
        match shard.events.slot(event, rest) {
            Err(slot) => {
                shard.insert_slot(event, slot, rest, here);
                debug_assert!(shard.events.slot(event, rest) == Ok((slot, here)), "slots are sorted");
                let run = shard.events[event].run as usize;
                shard.events.runs[run].ledger.offered += Tally::fragment(u64::from(length));
                if result {
                    shard.events.add_result(event, (primary, rest), length);
                } else {
                    shard.events.arrived(event, (primary, rest), length);
                }
                Ok(Fate::Live)
            }
            Ok((slot, word)) => self.second_record(at, (event, slot), word, (location, entry, here)),
        }
    }

    /// Another record of a fragment that is there already: a copy that was made to free a segment, or a version whose
    /// update was cut off.
    fn second_record(
        &mut self,
        at: usize,
        (event, slot): (u32, usize),
        word: Word,
        (location, entry, here): (Location, &Entry, Word),
    ) -> Result<Fate> {
        let engine = self.engine;
        let shard = &mut *self.shards[at];
        let run = shard.events[event].run as usize;
        let standing = word.location();
        debug_assert!(
            !word.is_warm() && word.is_present(),
            "records are adopted before images, and before what is removed"
        );
        debug_assert!(standing != location, "each entry is adopted once");
        let Some(other) = engine.placement.hot.read_entry(standing) else {
            return Err(Error::internal("a record that was just adopted"));
        };
        let on_hot_only = engine.placement.level.is_some();
        if on_hot_only && entry.version != other.version {
            // A container may have the lower one as well: it is counted once, and stays there for the case that the
            // hot level is lost.
            let lower = entry.version.min(other.version);
            shard.note_superseded(event, entry.key, lower);
            shard.places.keep_superseded_back(&entry.key);
        }
        // An evacuated copy is the same version; an update whose record is missing is a higher one.
        let (loser, lower) = match entry.version.cmp(&other.version) {
            std::cmp::Ordering::Equal => {
                return Ok(Fate::Dead);
            }
            std::cmp::Ordering::Less => {
                let version = Version { location, length: entry.length, on_hot_only };
                supersede(&mut self.replaced, &mut shard.events.runs[run].ledger, version);
                return Ok(Fate::Live);
            }
            std::cmp::Ordering::Greater => (standing, other),
        };
        shard.events.set_word(event, slot, here);
        let leaf = &mut shard.events[event];
        leaf.bytes = leaf.bytes + u64::from(entry.length) - u64::from(lower.length);
        let live = leaf.state;
        debug_assert!(live == State::Live(LiveState::Open), "events leave the open ones when all is read");
        let ledger = &mut shard.events.runs[run].ledger;
        // The length that was booked for the slot was that of the lower version; `supersede` books that one as its own.
        let (new, old) = (Tally::fragment(u64::from(entry.length)), Tally::fragment(u64::from(lower.length)));
        ledger.offered += new;
        ledger.stored += new;
        ledger.offered -= old;
        ledger.stored -= old;
        if let State::Live(live) = live {
            ledger.live[live] += new;
            ledger.live[live] -= old;
        }
        let version = Version { location: loser, length: lower.length, on_hot_only };
        supersede(&mut self.replaced, ledger, version);
        Ok(Fate::Live)
    }

    /// What rotted and was found nowhere else is lost: an error, unless the operator accepted that.
    fn settle_doomed(&mut self) -> Result<()> {
        let (engine, schema) = (self.engine, &self.engine.keyspace.schema);
        debug_assert!(self.doomed.is_empty() || !self.hot_lost, "only records of the hot level are looked at for rot");
        for (location, entry) in std::mem::take(&mut self.doomed) {
            debug_assert!(self.rotten.contains(&location), "what verifies is not given up");
            let (primary, rest) = entry.key.as_bytes().split_at(schema.primary_bytes());
            let shard = &*self.shards[engine.shards.shard_of(primary)];
            let word =
                shard.events.find(primary).and_then(|event| shard.events.slot(event, rest).ok()).map(|(_, word)| word);
            let version = word.map(|word| match word.is_warm() {
                true => version_in(&self.versions, &entry.key),
                false => engine.placement.hot.read_entry(word.location()).map_or(0, |standing| standing.version),
            });
            let is_elsewhere = entry.flags.is_fragment() && version.is_some_and(|version| version >= entry.version);
            if !is_elsewhere {
                self.lost(format!(
                    "segment {} entry {} ({}): its bytes do not match their checksum",
                    location.segment,
                    location.entry,
                    schema.text(entry.key.as_bytes())
                ))?;
                self.book_lost(&entry);
            }
            // Only now: had the store refused to open, the loss would be found again by the next opening.
            engine.placement.hot.mark(location, StateWord::ENDED);
        }
        Ok(())
    }

    /// An acknowledged fragment is gone, and the operator accepted that.
    fn book_lost(&mut self, entry: &Entry) {
        let schema = &self.engine.keyspace.schema;
        let primary = schema.primary_of(&entry.key);
        let shard = &mut *self.shards[self.engine.shards.shard_of(primary.as_bytes())];
        if let (Some(run), true) =
            (shard.events.run_index(schema.run_of(primary.as_bytes())), entry.flags.is_fragment())
        {
            let tally = Tally::fragment(u64::from(entry.length));
            let ledger = &mut shard.events.runs[run as usize].ledger;
            ledger.offered += tally;
            ledger.stored += tally;
            ledger.lost += tally;
            let incident = Incident { key: entry.key, kind: IncidentKind::Lost, at_ns: 0, length: entry.length };
            shard.events.incidents.note(incident);
        }
    }

    fn attributes(
        &mut self,
        at: usize,
        event: u32,
        location: Location,
        entry: &Entry,
        state: StateWord,
    ) -> Result<Fate> {
        let hot = &self.engine.placement.hot;
        let shard = &mut *self.shards[at];
        if let Some(word) = shard.events.attribute_word(event) {
            let standing = word.location();
            debug_assert!(!word.is_warm(), "event records of images are adopted after these");
            // A change of attributes writes the whole record again, so that the highest version says it all.
            let other = hot.read_entry(standing);
            if other.is_some_and(|other| other.version == entry.version) {
                // A copy that evacuation left. Of one version a word only comes to say more: it was marked on one of the two.
                let said = hot.state_of(standing).unwrap_or(StateWord::FRESH);
                let more = StateWord { ready: said.ready || state.ready, masked: said.masked || state.masked, ..said };
                if more != said {
                    hot.mark(standing, more);
                    // Before the word that ends the copy.
                    hot.region.fence();
                }
            }
            if other.is_some_and(|other| other.version >= entry.version) {
                return Ok(Fate::Dead);
            }
            hot.end_record(standing, hot.length_of(standing));
        }
        shard.events.set_attribute_word(event, Word::of(location));
        Ok(Fate::Live)
    }

    /// Everything is read: removed keys close their slots, lists are as they were.
    pub(super) fn settle(&mut self) -> Result<()> {
        // Marks before lists: those that events go to follow from them. Before marks all events, also those of which only
        // removed keys are left. What rotted is judged once images are known.
        self.settle_doomed()?;
        self.settle_removed();
        self.settle_images();
        for at in 0..self.shards.len() {
            self.settle_shard(at)?;
        }
        // Decisions last: in the order of calls they came after all that makes an event ready.
        self.settle_decided();
        Ok(())
    }

    /// Removed keys of live events close their slots: a put of such a key must not be taken again.
    fn settle_removed(&mut self) {
        let engine = self.engine;
        let schema = &engine.keyspace.schema;
        for (key, &result) in &self.decided.removed {
            let (primary, rest) = key.split_at(schema.primary_bytes());
            let shard = &mut *self.shards[engine.shards.shard_of(primary)];
            let Some(run) = shard.events.run_index(schema.run_of(primary)) else { continue };
            let of_run = &shard.events.runs[run as usize];
            if of_run.state == RunState::Closed || of_run.decided.contains(engine.shards.decided_form, primary) {
                continue;
            }
            let known = shard.events.find(primary);
            if known.is_none() && engine.lacks_devices() {
                // The rest of it may be on a device that is not there (`Absent`).
                continue;
            }
            let event = known.unwrap_or_else(|| {
                engine.placement.hot.events.fetch_add(1, Ordering::Relaxed);
                shard.events.create(primary, run, self.now_ns)
            });
            if let Err(slot) = shard.events.slot(event, rest) {
                let word = if result { Word::REMOVED_KEY.of_result() } else { Word::REMOVED_KEY };
                shard.insert_slot(event, slot, rest, word);
                shard.events.remove_slot_for_good(event, slot);
                engine.placement.hot.removed.fetch_add(1, Ordering::Relaxed);
                // A removed fragment has arrived: with it the event may have been complete. A result never counts.
                let counts = !result && shard.events.rule(event).counts(rest);
                let leaf = &mut shard.events[event];
                leaf.arrived += u16::from(counts);
                if let (false, State::Live(state)) = (leaf.is(Flag::Counted), leaf.state) {
                    leaf.set(Flag::Counted);
                    shard.events.runs[run as usize].ledger.live[state].events += 1;
                }
            }
            let closed = |(_, word): (usize, Word)| word.is_removed();
            debug_assert!(shard.events.slot(event, rest).is_ok_and(closed), "no record of a removed key was adopted");
        }
    }

    fn settle_shard(&mut self, at: usize) -> Result<()> {
        let engine = self.engine;
        debug_assert!(self.shards[at].events.recovering, "a shard is settled once");
        for run in 0..self.shards[at].events.runs.len() {
            let mut next = self.shards[at].events.runs[run].open.first();
            while let Some(event) = next {
                // Asked before the event is settled: that may take it out of the list.
                next = crate::events::List::after(&self.shards[at].events.slab, event);
                self.settle_event(at, run, event)?;
            }
        }
        let shard = &mut *self.shards[at];
        shard.events.recovering = false;
        // Marks may have come from records that end here: the first fragment of each event has them from now on.
        for event in shard.events.ready_events() {
            let leaf = &shard.events[event];
            if (leaf.is_marked_ready() || leaf.deliveries() > 0) && !shard.events.slab.at(event, At::Warm) {
                engine.mark_event(shard, event);
            }
        }
        engine.placement.hot.region.fence();
        Ok(())
    }

    /// An event of which all is known now: it stays open, or it goes where its marks say.
    fn settle_event(&mut self, at: usize, run: usize, event: u32) -> Result<()> {
        let engine = self.engine;
        // What completes it may be in its own record: before it is considered.
        self.read_event_record(at, event)?;
        let shard = &mut *self.shards[at];
        debug_assert!(shard.events[event].run as usize == run, "it is in its run's list");
        let leaf = &shard.events[event];
        if shard.events.slots(event) == 0 {
            debug_assert!(leaf.present == 0, "a fragment has a slot");
            if leaf.is(Flag::Announced) {
                shard.events.runs[run].ledger.awaited += 1;
                return Ok(());
            }
            // Only attributes: its first fragment never came.
            if let Some(word) = shard.events.attribute_word(event) {
                engine.end_attributes(word.location());
            }
            let reserved = !shard.events[event].is(Flag::Far);
            shard.withdraw(event);
            engine.placement.hot.events.fetch_sub(u64::from(reserved), Ordering::Relaxed);
        } else if leaf.present > 0 {
            let primary = shard.events.primary(event);
            let passed = self.decided.passed.get(primary.as_bytes());
            if let Some(&stage) = passed.filter(|&&stage| stage > shard.events[event].stage()) {
                // A verdict is logged before it is marked: a kill in between leaves the mark behind the log.
                shard.events[event].set_progress(stage, 0);
                shard.events[event].mark_ready();
                if shard.events.slab.at(event, At::Warm) {
                    // Its images say less, and the record that says it is folded soon.
                    shard.events.slab.set_at(event, At::MarksLogged);
                }
            }
            engine.settle_found(shard, event);
            self.adopt_image_state(at, event);
        } else if leaf.is_marked_ready() {
            // All that was visible was removed, and what was being put was cut off: no fragment has its marks.
            shard.events.slab.set_at(event, At::MarksLogged);
        }
        Ok(())
    }

    /// Where the log says that events went.
    fn settle_decided(&mut self) {
        let (engine, decided, shards) = (self.engine, self.decided, &mut self.shards);
        decided.accepted.each(|primary, output| {
            let shard = &mut *shards[engine.shards.shard_of(primary)];
            if let Some(event) = shard.events.find(primary) {
                engine.settle_accepted(shard, event, output as u32);
            }
        });
        decided.debug.each(|primary, reason| {
            let shard = &mut *shards[engine.shards.shard_of(primary)];
            if let Some(event) = shard.events.find(primary) {
                engine.settle_debug(shard, event, reason as u8);
            }
        });
    }

    /// What an event's own record says: its announcement, its sources, what follows from its attributes.
    fn read_event_record(&mut self, at: usize, event: u32) -> Result<()> {
        let Some(word) = self.shards[at].events.attribute_word(event) else { return Ok(()) };
        let record = match self.engine.event_record(&*self.shards[at], event, word) {
            Ok(record) => record,
            Err(error) => {
                let name = self.engine.keyspace.schema.text(self.shards[at].events.primary(event).as_bytes());
                return self.lost(format!("{name}: {error}"));
            }
        };
        let shard = &mut *self.shards[at];
        let state = (!word.is_warm()).then(|| self.engine.placement.hot.state_of(word.location())).flatten();
        // Without any fragment left the event waits as if it had just been announced.
        if let Some(state) = state.filter(|state| state.ready && shard.events[event].present > 0) {
            // Written with the rule that it brings: marks beside fragments, in images and in the log may be those of the rule
            // before.
            let leaf = &mut shard.events[event];
            leaf.mark_ready();
            for flag in [Flag::Complete, Flag::LacksMasked] {
                leaf.clear(flag);
                if state.masked {
                    leaf.set(flag);
                }
            }
            // Images keep what they say. Once this record has gone down with its event, only the log says otherwise.
            if shard.events.slab.at(event, At::Warm) {
                shard.events.slab.set_at(event, At::MarksLogged);
            }
        }
        if record.announced {
            shard.events[event].set(Flag::Announced);
        }
        if let Some(own) = record.own.filter(|own| !own.is_empty()) {
            shard.events.set_own_rule(event, own);
        }
        self.engine.follow_attributes(shard, event, &record.attributes);
        Ok(())
    }
}

impl Engine {
    /// An open event of which all is known goes where its marks say, and its run.
    pub(crate) fn settle_found(&self, shard: &mut Shard, event: u32) {
        let of_run = &shard.events.runs[shard.events[event].run as usize];
        let stopped = !of_run.state.takes_events() && of_run.plan.grace_ns == 0;
        let marked = shard.events[event].is_marked_ready() || stopped;
        shard.events.consider_recovered(event);
        // It was ready before, or its run takes nothing more: it does not wait for what it lacks.
        if marked && shard.events[event].state == State::Live(LiveState::Open) {
            shard.events[event].mark_ready();
            shard.events.move_to(event, LiveState::Ready);
        } else if !shard.events[event].is_marked_ready()
            && shard.events[event].state == State::Live(LiveState::Ready)
            && self.may_wait_again(shard, event)
        {
            // It is given out in this life, and a mask that made it ready may be lifted: marked as if it had come now.
            shard.events[event].mark_ready();
            if shard.events.slab.at(event, At::Warm) {
                shard.events.slab.set_at(event, At::MarksLogged);
            }
        }
    }

    /// An event that the log says is accepted, and where it goes.
    pub(crate) fn settle_accepted(&self, shard: &mut Shard, event: u32, output: u32) {
        shard.events.move_to(event, LiveState::Accepted);
        shard.events[event].set_output(output);
        self.queue_again(shard, event);
    }

    /// An event that the log says is in the debug stream, and why.
    pub(crate) fn settle_debug(&self, shard: &mut Shard, event: u32, reason: u8) {
        shard.events.move_to(event, LiveState::Debug);
        shard.events.lists.reasons.insert(event, reason);
        self.queue_again(shard, event);
    }
}

/// An update was cut off before its record: the end of recovery writes it.
/// The replaced version stays live until then, so that a crash before it finds both again.
pub(super) fn supersede(replaced: &mut Vec<Version>, ledger: &mut Ledger, version: Version) {
    let tally = Tally::fragment(u64::from(version.length));
    replaced.push(version);
    ledger.offered += tally;
    ledger.stored += tally;
    ledger.superseded += tally;
}

/// Version of a fragment on a device, of those that were ever updated.
pub(super) fn version_in(versions: &SeededMap<Key, u16>, key: &Key) -> u16 {
    if versions.is_empty() { 0 } else { versions.get(key).copied().unwrap_or(0) }
}
