//! Taking a fragment in.
//!
//! ```text
//! claim the key (pending) ─▶ copy + checksum ─▶ entry ─▶ flush, fence ─▶ visible, booked ─▶ answer
//!        │ taken: compare            └ one pass over the bytes
//!        └ no space: wait to the deadline, then `Full`
//! ```
//!
//! *Invariants*: visible never precedes durable at the medium's level (tests/power_loss.rs); of several puts of one key
//! exactly one is stored, the others answer `Duplicate` or `Conflict` (tests/concurrent/).
//!
//! *On failure*: a reservation that is dropped gives its key and place back; nobody else's records suffer.

use crate::config::Arrival;
use crate::engine::{Engine, closed};
use crate::events::{Flag, Incident, IncidentKind, Shard, State, Word};
use crate::{PutOptions, PutOutcome, Store};
use forebay_core::{Error, Key, Kind, Level, LiveState, Result, Tally, check_sent_as};
use forebay_media::bytes::{Entry, EntryFlags, StateWord};
use forebay_media::hot::{Class, Location, Place, checksum, will_copy};
use forebay_media::sync::deadline_after;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A key that is taken by a record in flight.
pub(crate) struct Claimed {
    pub(crate) key: Key,
    pub(crate) event: u32,
    pub(crate) place: Place,
    pub(crate) length: u32,
    pub(crate) version: u16,
    status: u32,
    /// The event was ready before it.
    late: bool,
    /// A new version of a worker's result.
    result: bool,
}

impl Claimed {
    /// The version after an entry, of which the fragment keeps its producer's status, and what it is: late, a result.
    pub(crate) fn version(of: &Entry, word: Word, event: u32, place: Place, length: u32, version: u16) -> Claimed {
        let (late, result) = (word.is_late(), word.is_result());
        Claimed { key: of.key, event, place, length, version, status: of.status, late, result }
    }
}

/// What a claim met.
pub(super) enum Claim {
    Claimed(Claimed),
    /// A fragment stands there; its segment is pinned.
    Standing(Location),
    Late,
}

/// Why a claim must be tried again.
pub(super) enum Again {
    NoSpace(Class),
    /// Another put of this key is in flight.
    InFlight,
    UnknownRun(u64),
    /// The run is being closed, and may stay what it is.
    Closing(u64),
}

/// Lack of space for attributes is waited for like that for payload; other errors are final.
fn full_or<T>(error: Error, class: Class) -> Result<std::result::Result<T, Again>> {
    if error.kind() == Kind::Full { Ok(Err(Again::NoSpace(class))) } else { Err(error) }
}

impl Store {
    /// Puts a fragment. When this returns, the bytes are stored: they survive the death of this process.
    ///
    /// # Errors
    /// `Conflict` where other bytes (or attributes) stand there, `Full` at the deadline, `Closed` for a closed run or
    /// store, `Invalid` for a key of another schema, a value past the limit or `persisted` without a warm level, `Unavailable` while another put of the
    /// key does not end, or where the fragment is stored but not persisted as was asked for.
    #[inline]
    pub fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        let engine = self.engine();
        let length = engine.check_put(key, value.len())?;
        engine.check_persisted(options)?;
        will_copy(value);
        let outcome = match engine.claim(key, length, options)? {
            Claim::Claimed(claimed) => {
                let offset = engine.hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                let crc = engine.hot.region.copy_in(offset, value);
                engine.publish(&claimed, crc)?
            }
            Claim::Standing(location) => engine.compare(key, location, value)?,
            Claim::Late => return Ok(PutOutcome::Late),
        };
        if engine.level.is_some() {
            engine.send_down(key, length, options)?;
        }
        Ok(outcome)
    }

    /// Puts many fragments; outcomes in the same order.
    ///
    /// # Errors
    /// None for the call: those of single fragments stand in their outcomes.
    pub fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        Ok(puts.iter().map(|(key, value, options)| self.put(key, value, options)).collect())
    }

    /// Reserves memory of the store for a fragment of `length` bytes: filled in place, then committed.
    ///
    /// # Errors
    /// As [`Store::put`]; a key that is taken is only answered at commit, when there are bytes to compare.
    pub fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        let engine = self.engine();
        let wanted = engine.check_put(key, length)?;
        engine.check_persisted(options)?;
        let claim = engine.claim(key, wanted, options)?;
        Ok(self.reservation(claim, key, length, options))
    }
}

/// Memory of the store for one fragment. Dropping it gives it up.
pub struct Reservation {
    store: Store,
    backing: Option<Backing>,
    /// Whether it is to be persisted, and the level that it goes to.
    down: (bool, Option<Level>),
}

pub(super) enum Backing {
    Place(Claimed),
    /// The key was taken: the bytes are compared at commit.
    Scratch {
        bytes: Vec<u8>,
        key: Key,
        status: u32,
    },
}

impl Reservation {
    pub(super) fn new(store: &Store, backing: Backing, options: &PutOptions<'_>) -> Reservation {
        if matches!(backing, Backing::Place(_)) {
            store.holder.reservations.fetch_add(1, Ordering::Relaxed);
        }
        let down = (options.persisted, options.level);
        Reservation { store: store.clone(), backing: Some(backing), down }
    }

    /// Whether its commit waits for a device, or for the bytes that stand there to be read.
    pub fn commit_may_wait(&self) -> bool {
        self.down.0 || (matches!(self.backing, Some(Backing::Scratch { .. })) && self.store.engine().level.is_some())
    }

    /// Makes the fragment visible; the answers are those of [`Store::put`].
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn commit(self) -> Result<PutOutcome> {
        self.commit_if(None)
    }

    /// The same for bytes that came with a CRC-32C of their own, such as from a network or a readout board.
    ///
    /// # Errors
    /// `Corrupt` where the bytes do not have it: then nothing is stored. Else as [`Reservation::commit`].
    pub fn commit_checked(self, checksum: u32) -> Result<PutOutcome> {
        self.commit_if(Some(checksum))
    }

    fn commit_if(mut self, expected: Option<u32>) -> Result<PutOutcome> {
        let engine = self.store.engine();
        let crc = checksum(&self);
        if let Some(expected) = expected {
            check_sent_as(self.len(), expected, crc)?;
        }
        match self.backing.take() {
            Some(Backing::Place(claimed)) => {
                // From here on it is a call in flight, which a closing store waits for.
                self.store.holder.reservations.fetch_sub(1, Ordering::Relaxed);
                let offset = engine.hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                engine.hot.region.flush(offset, claimed.length as usize);
                let outcome = engine.publish(&claimed, crc)?;
                if outcome == PutOutcome::Stored && engine.level.is_some() {
                    let (persisted, level) = self.down;
                    let options = PutOptions { persisted, level, ..PutOptions::default() };
                    engine.send_down(&claimed.key, claimed.length, &options)?;
                }
                Ok(outcome)
            }
            Some(Backing::Scratch { bytes, key, status }) => {
                let (persisted, level) = self.down;
                self.store.put(&key, &bytes, &PutOptions { status, persisted, level, ..PutOptions::default() })
            }
            None => Err(Error::internal("reservation without memory")),
        }
    }

    /// Gives the memory up.
    pub fn abort(self) {}
}

impl Deref for Reservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.backing {
            Some(Backing::Place(claimed)) => {
                let hot = &self.store.engine().hot;
                let offset = hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                hot.region.bytes(offset, claimed.length as usize)
            }
            Some(Backing::Scratch { bytes, .. }) => bytes,
            None => &[],
        }
    }
}

impl DerefMut for Reservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.backing {
            Some(Backing::Place(claimed)) => {
                let hot = &self.store.engine().hot;
                let offset = hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                hot.region.bytes_mut(offset, claimed.length as usize)
            }
            Some(Backing::Scratch { bytes, .. }) => bytes,
            None => &mut [],
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(Backing::Place(claimed)) = self.backing.take() {
            self.store.holder.reservations.fetch_sub(1, Ordering::Relaxed);
            self.store.engine().give_up(&claimed);
        }
    }
}

impl Engine {
    #[inline]
    pub(crate) fn check_key(&self, key: &Key) -> Result<()> {
        if key.as_bytes().len() == self.keyspace.schema.key_bytes() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a key of {} bytes; this keyspace has {} ({})",
            key.as_bytes().len(),
            self.keyspace.schema.key_bytes(),
            self.keyspace.schema.describe().join(", ")
        )))
    }

    #[inline]
    pub(crate) fn check_put(&self, key: &Key, length: usize) -> Result<u32> {
        self.check_key(key)?;
        let most = self.keyspace.fragment_bytes_max.min(self.hot.payload_bytes_max() as usize);
        if let Some(level) = &self.level
            && length as u64 > level.image_bytes_max
        {
            return Err(crate::placement::too_large(length as u64, level.image_bytes_max));
        }
        if length <= most {
            return Ok(length as u32);
        }
        Err(Error::invalid(format!(
            "a fragment of {length} bytes; the limit is {most} (fragment_bytes_max {}, segment {})",
            self.keyspace.fragment_bytes_max, self.hot.geometry.segment_bytes
        )))
    }

    #[inline]
    fn claim(&self, key: &Key, length: u32, options: &PutOptions<'_>) -> Result<Claim> {
        match self.try_claim(key, length, options)? {
            Ok(claim) => Ok(claim),
            Err(again) => self.claim_slowly(key, length, options, again),
        }
    }

    /// Waits for what the first try lacked, to the deadline.
    #[cold]
    fn claim_slowly(&self, key: &Key, length: u32, options: &PutOptions<'_>, again: Again) -> Result<Claim> {
        let deadline = deadline_after(options.deadline.unwrap_or(self.config.put_deadline));
        let mut again = again;
        loop {
            match again {
                Again::UnknownRun(run) => self.open_unknown_run(run)?,
                Again::Closing(run) => self.await_close(run, deadline)?,
                Again::InFlight => {
                    if Instant::now() >= deadline {
                        return Err(Error::unavailable(format!(
                            "{}: another put of this key is in flight and did not end in time",
                            self.keyspace.schema.text(key.as_bytes())
                        )));
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                Again::NoSpace(class) => {
                    // Dead ends give their space back: heads without live records, a log that folds to less.
                    self.hot.close_idle_cursors();
                    self.relieve_log();
                    if !self.hot.wait_for_space(class, deadline) {
                        return Err(self.refuse_full(key, length));
                    }
                }
            }
            again = match self.try_claim(key, length, options)? {
                Ok(claim) => return Ok(claim),
                Err(next) => next,
            };
            if Instant::now() >= deadline && matches!(again, Again::NoSpace(_)) {
                return Err(self.refuse_full(key, length));
            }
        }
    }

    /// A moment for a run that is being closed.
    ///
    /// # Errors
    /// `Unavailable` past the deadline.
    #[cold]
    pub(crate) fn await_close(&self, run: u64, deadline: Instant) -> Result<()> {
        if Instant::now() >= deadline {
            return Err(Error::unavailable(format!("run {run} is being closed, which did not end in time")));
        }
        std::thread::sleep(Duration::from_micros(100));
        Ok(())
    }

    #[cold]
    fn refuse_full(&self, key: &Key, length: u32) -> Error {
        let primary = self.keyspace.schema.primary_of(key);
        let run = self.keyspace.schema.run_of(key.as_bytes());
        let mut shard = self.cell_of(primary.as_bytes()).lock();
        if let Some(run) = shard.run_index(run) {
            let ledger = &mut shard.runs[run as usize].ledger;
            ledger.offered += Tally::fragment(u64::from(length));
            ledger.refused += Tally::fragment(u64::from(length));
            self.note_incident(&mut shard, key, IncidentKind::RefusedFull, length);
        }
        drop(shard);
        let why = self.look().inhibit.map_or_else(String::new, |inhibit| format!("; {inhibit}"));
        Error::full(format!(
            "no space for a fragment of {length} bytes: {} of {} segments free, fill {:.0} %{why}",
            self.hot.free_segments(),
            self.hot.geometry.segments,
            self.hot.fill() * 100.0
        ))
    }

    /// One try, under the event's lock. The outer result is final.
    #[inline]
    pub(super) fn try_claim(
        &self,
        key: &Key,
        length: u32,
        options: &PutOptions<'_>,
    ) -> Result<std::result::Result<Claim, Again>> {
        let schema = &self.keyspace.schema;
        let (primary, rest) = key.as_bytes().split_at(schema.primary_bytes());
        let mut shard = self.cell_of(primary).lock();
        if shard.closed {
            return Err(closed());
        }
        let offered = Tally::fragment(u64::from(length));
        if let Some(event) = shard.find(primary) {
            let run = shard.events[event].run as usize;
            if shard.runs[run].is_closing() {
                return Ok(Err(Again::Closing(shard.runs[run].run)));
            }
            if shard.runs[run].is_over() {
                shard.runs[run].ledger.offered += offered;
                shard.runs[run].ledger.refused += offered;
                self.note_incident(&mut shard, key, IncidentKind::RefusedClosed, length);
                return Err(Error::closed(format!("run {} is closed", shard.runs[run].run)));
            }
            let slot = match shard.slot(event, rest) {
                Ok((_, word)) if word.is_pending() => return Ok(Err(Again::InFlight)),
                Ok((_, word)) if word.is_present() => {
                    self.pin(word.location());
                    return Ok(Ok(Claim::Standing(word.location())));
                }
                Ok(_) => None,
                Err(slot) => (!self.is_removed_elsewhere(key.as_bytes())).then_some(slot),
            };
            let (Some(slot), true) = (slot, shard.events[event].waits()) else {
                self.book_late(&mut shard, run, key, length, IncidentKind::LateLeased);
                return Ok(Ok(Claim::Late));
            };
            let late = shard.events[event].state == State::Live(LiveState::Ready);
            if !shard.has_room(event) {
                return Err(Error::invalid(format!(
                    "{}: an event has at most {} fragments",
                    schema.text(primary),
                    forebay_core::limits::FRAGMENTS_PER_EVENT_MAX
                )));
            }
            let Some(place) = self.hot.reserve_place(Class::Existing, length) else {
                return Ok(Err(Again::NoSpace(Class::Existing)));
            };
            if let Some(attributes) = options.attributes
                && let Err(error) = self.attach(&mut shard, event, attributes, true)
            {
                drop(shard);
                self.void(&place, key, length);
                return full_or(error, Class::Existing);
            }
            let cold = shard.events[event].is(Flag::Cold);
            shard.insert_slot(event, slot, rest, Word::at(place.location).of_fragment(late, length).pending());
            if cold {
                self.cell_of(primary).publish_ready(&shard);
            }
            shard.events[event].pending += 1;
            return Ok(Ok(Claim::Claimed(Claimed {
                key: *key,
                event,
                place,
                length,
                version: self.first_version(&mut shard, event, key),
                status: options.status,
                late,
                result: false,
            })));
        }

        let number = schema.run_of(primary);
        let Some(run) = shard.run_index(number) else {
            // A run takes room in the log for ever: only where its first event finds some as well.
            let room = self.hot.admits(Class::NewEvent);
            return Ok(Err(if room { Again::UnknownRun(number) } else { Again::NoSpace(Class::NewEvent) }));
        };
        let known = &mut shard.runs[run as usize];
        if known.is_closing() {
            return Ok(Err(Again::Closing(number)));
        }
        let takes_no_more = || self.is_decided(known, primary) || self.is_removed_elsewhere(key.as_bytes());
        if !known.is_over() && takes_no_more() {
            self.book_late(&mut shard, run as usize, key, length, IncidentKind::LateDecided);
            return Ok(Ok(Claim::Late));
        }
        if known.is_over() || !known.state.takes_events() {
            known.ledger.offered += offered;
            known.ledger.refused += offered;
            let (state, kind) = if known.is_over() {
                ("closed", IncidentKind::RefusedClosed)
            } else {
                ("stopped: it takes no new events", IncidentKind::RefusedStopped)
            };
            self.note_incident(&mut shard, key, kind, length);
            return Err(Error::closed(format!("run {number} is {state}")));
        }
        if !self.hot.admits(Class::NewEvent) {
            return Ok(Err(Again::NoSpace(Class::NewEvent)));
        }
        let Some(place) = self.hot.reserve_place(Class::NewEvent, length) else {
            return Ok(Err(Again::NoSpace(Class::NewEvent)));
        };
        let event = shard.create(primary, run, self.now_ns());
        self.hot.events.fetch_add(1, Ordering::Relaxed);
        if let Some(attributes) = options.attributes
            && let Err(error) = self.attach(&mut shard, event, attributes, true)
        {
            self.withdraw_unborn(&mut shard, event);
            drop(shard);
            self.void(&place, key, length);
            return full_or(error, Class::NewEvent);
        }
        shard.insert_slot(event, 0, rest, Word::at(place.location).of_fragment(false, length).pending());
        shard.events[event].pending += 1;
        Ok(Ok(Claim::Claimed(Claimed {
            key: *key,
            event,
            place,
            length,
            version: self.first_version(&mut shard, event, key),
            status: options.status,
            late: false,
            result: false,
        })))
    }

    /// A fragment that comes too late is offered, not stored, and remembered for who asks why.
    #[cold]
    fn book_late(&self, shard: &mut Shard, run: usize, key: &Key, length: u32, kind: IncidentKind) {
        let run = &mut shard.runs[run];
        run.ledger.offered += Tally::fragment(u64::from(length));
        run.ledger.late += Tally::fragment(u64::from(length));
        run.sources.of(self.keyspace.schema.rest_of(key)).late += 1;
        self.note_incident(shard, key, kind, length);
    }

    /// A reservation that came too late is no offer yet: its commit is.
    #[cold]
    pub(super) fn unbook_late(&self, key: &Key, length: u32) {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.cell_of(primary).lock();
        let Some(run) = shard.run_index(self.keyspace.schema.run_of(primary)) else { return };
        let run = &mut shard.runs[run as usize];
        run.ledger.offered -= Tally::fragment(u64::from(length));
        run.ledger.late -= Tally::fragment(u64::from(length));
        let late = &mut run.sources.of(rest).late;
        *late = late.saturating_sub(1);
        shard.incidents.take_back(key);
    }

    #[cold]
    pub(crate) fn note_incident(&self, shard: &mut Shard, key: &Key, kind: IncidentKind, length: u32) {
        shard.incidents.note(Incident { key: *key, kind, at_ns: self.now_ns(), length });
    }

    /// Writes the entry of a filled place, fences, and makes the fragment visible.
    #[inline]
    pub(super) fn publish(&self, claimed: &Claimed, crc: u32) -> Result<PutOutcome> {
        let place = &claimed.place;
        self.hot.write_entry(place, &self.fragment_entry(claimed, crc), StateWord::FRESH);
        self.hot.region.fence();

        let (primary, rest) = claimed.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let cell = self.cell_of(primary);
        let mut shard = cell.lock();
        let event = claimed.event;
        let run = shard.events[event].run as usize;
        let offered = Tally::fragment(u64::from(claimed.length));
        let state = shard.events[event].state;
        if shard.closed || !shard.events[event].waits() {
            let is_closed = shard.closed;
            if !is_closed {
                self.book_late(&mut shard, run, &claimed.key, claimed.length, IncidentKind::LateLeased);
            }
            shard.remove_slot(event, rest);
            shard.settle(event);
            // Ended before anybody else can have the region: until here this record keeps it.
            self.hot.abandon(place.location, claimed.length);
            return if is_closed { Err(closed()) } else { Ok(PutOutcome::Late) };
        }
        shard.runs[run].ledger.offered += offered;
        if let Ok((slot, word)) = shard.slot(event, rest) {
            shard.set_word(event, slot, word.settled());
        }
        let complete = shard.events[event].is(Flag::Complete);
        shard.arrived(event, (primary, rest), claimed.length);
        shard.events[event].pending -= 1;
        if claimed.late {
            shard.runs[run].sources.of(rest).late += 1;
        }
        // Also one that was in flight when its event became ready may complete it, but for the masked.
        let leaf = &shard.events[event];
        if leaf.is(Flag::LacksMasked) && !complete && leaf.is(Flag::ReadyMarked) {
            self.mark_event(&mut shard, event);
            self.hot.region.fence();
        }
        let became_ready = state == State::Live(LiveState::Open) && shard.events[event].state != state;
        if became_ready {
            self.keep_ready(&mut shard, event);
            cell.publish_ready(&shard);
        }
        // Last: a closing store waits for what is in flight before it lets the region go.
        self.hot.written(place.location.segment);
        drop(shard);
        if became_ready {
            self.notify_ready();
        }
        if let Some(arrivals) = &self.config.arrivals {
            let Claimed { key, length, status, .. } = *claimed;
            arrivals.arrived(&Arrival { key, length, checksum: crc, status });
        }
        Ok(PutOutcome::Stored)
    }

    /// An event that is ready by a rule which may change (its class, masks) stays ready also after recovery.
    #[inline]
    pub(crate) fn keep_ready(&self, shard: &mut Shard, event: u32) {
        let leaf = &shard.events[event];
        if leaf.rule != 0 || !shard.runs[leaf.run as usize].masks.is_empty() {
            shard.events[event].set(Flag::ReadyMarked);
            self.mark_event(shard, event);
            self.hot.region.fence();
        }
    }

    pub(crate) fn fragment_entry(&self, claimed: &Claimed, crc: u32) -> Entry {
        Entry {
            key: claimed.key,
            offset: claimed.place.offset,
            length: claimed.length,
            payload_crc: crc,
            status: claimed.status,
            version: claimed.version,
            flags: match (claimed.result, claimed.late) {
                (true, _) => EntryFlags::RESULT,
                (false, true) => EntryFlags::LATE,
                (false, false) => EntryFlags::FRAGMENT,
            },
        }
    }

    /// Takes back a claim whose bytes never came.
    pub(super) fn give_up(&self, claimed: &Claimed) {
        let (primary, rest) = claimed.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.cell_of(primary).lock();
        shard.remove_slot(claimed.event, rest);
        shard.settle(claimed.event);
        let attributes = self.withdraw_unborn(&mut shard, claimed.event);
        drop(shard);
        if let Some(location) = attributes {
            self.end_attributes(location);
        }
        // Last: until here the place keeps the region.
        self.void(&claimed.place, &claimed.key, claimed.length);
    }

    /// Takes out an event that never had a fragment and waits for none, as if it had not been; answers its attribute
    /// record, which the caller ends.
    pub(crate) fn withdraw_unborn(&self, shard: &mut Shard, event: u32) -> Option<Location> {
        let leaf = &shard.events[event];
        let open = leaf.state == State::Live(LiveState::Open);
        if !open || leaf.slots != 0 || leaf.pending != 0 || leaf.is(Flag::Counted) || leaf.is(Flag::Announced) {
            return None;
        }
        let attributes = shard.attribute_word(event).map(Word::location);
        shard.withdraw(event);
        self.hot.events.fetch_sub(1, Ordering::Relaxed);
        attributes
    }

    /// Fills a place that holds nothing with a void entry, so that a sealed directory has no holes, and lets go of it.
    pub(crate) fn void(&self, place: &Place, key: &Key, length: u32) {
        let entry = Entry {
            key: *key,
            offset: place.offset,
            length: 0,
            payload_crc: 0,
            status: 0,
            version: 0,
            flags: EntryFlags::VOID,
        };
        self.hot.write_entry(place, &entry, StateWord::ENDED);
        self.hot.abandon_void(place.location.segment, length);
    }
}
