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

use super::holder::{Size, is_asked};
use crate::config::Arrival;
use crate::engine::{Engine, closed};
use crate::events::{Flag, Incident, IncidentKind, State, Word};
use crate::placement::RecordHead;
use crate::shards::{Shard, ShardGuard};
use crate::{PutOptions, PutOutcome, RUN_OPENS, Reservation, Store};
use forebay_core::map::Role;
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Key, Kind, Level, LiveState, Report, Result, Tally, check_sent_as};
use forebay_media::bytes::{Entry, EntryFlags, StateWord};
use forebay_media::hot::{Class, Location, Place, checksum, will_copy};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A key that is taken by a record in flight.
pub(crate) struct Claimed {
    pub(crate) key: Key,
    pub(crate) event: u32,
    pub(crate) place: Place,
    pub(crate) length: u32,
    pub(crate) version: u16,
    /// Bytes that the account counts.
    counted: u32,
    status: u32,
    /// Late, a result, elsewhere.
    flags: EntryFlags,
    /// When the home of its event hears of it.
    report: Report,
}

impl Claimed {
    /// The version after an entry, of which the fragment keeps its producer's status, and what it is: late, a result.
    pub(crate) fn version(of: &Entry, word: Word, event: u32, place: Place, length: u32, version: u16) -> Claimed {
        let flags = match (word.is_result(), word.is_late()) {
            (true, _) => EntryFlags::RESULT,
            (false, true) => EntryFlags::LATE,
            (false, false) => EntryFlags::FRAGMENT,
        };
        let report = Report::default();
        Claimed { key: of.key, event, place, length, version, counted: length, status: of.status, flags, report }
    }

    /// The head of its record.
    pub(crate) fn head(&self) -> RecordHead {
        RecordHead { key: self.key, status: self.status, version: self.version, flags: self.flags }
    }
}

/// The result of a claim.
pub(super) enum Claim {
    Claimed(Claimed),
    /// There is a fragment; its segment is pinned.
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

/// A claim, or why it must be tried again.
type Tried = std::result::Result<Claim, Again>;

/// Lack of space for attributes is waited for like that for payload; other errors are final.
fn full_or(error: Error, class: Class) -> Result<Tried> {
    if error.kind() == Kind::Full { Ok(Err(Again::NoSpace(class))) } else { Err(error) }
}

impl Store {
    /// Puts a fragment. When this returns, the bytes are stored: they survive the death of this process.
    ///
    /// # Errors
    /// `Conflict` where there are other bytes (or attributes), `Full` at the deadline, `Closed` for a closed run or
    /// store, `Invalid` for a key of another schema, a value past the limit or `persisted` without a warm level, `Unavailable` while another put of the
    /// key does not end, or where the fragment is stored but not persisted as was asked for.
    #[inline]
    pub fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        let engine = self.engine();
        let size = engine.check_offer(key, value, options)?;
        engine.check_persisted(options)?;
        // Before the lock: the bytes come to the cache while the event is looked up.
        will_copy(value);
        let claim = engine.claim(key, size, options)?;
        engine.put_claimed(claim, key, (value, size), options, None)
    }

    /// [`Store::put`] of bytes that came with a CRC-32C, where nothing must be waited for; `None` where it would wait: then
    /// nothing is stored or booked.
    ///
    /// # Errors
    /// `Corrupt` where the bytes do not have the checksum: then nothing is stored. Else as [`Store::put`].
    pub fn try_put(
        &self,
        key: &Key,
        value: &[u8],
        options: &PutOptions<'_>,
        checksum: Option<u32>,
    ) -> Result<Option<PutOutcome>> {
        let engine = self.engine();
        let size = engine.check_offer(key, value, options)?;
        engine.check_persisted(options)?;
        if options.persisted {
            return Ok(None);
        }
        will_copy(value);
        let Some(claim) = engine.claim_at_once(key, size, options)? else { return Ok(None) };
        engine.put_claimed(claim, key, (value, size), options, checksum).map(Some)
    }

    /// Puts many fragments; outcomes in the same order.
    ///
    /// # Errors
    /// None for the call: those of single fragments are in their outcomes.
    pub fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        Ok(puts.iter().map(|(key, value, options)| self.put(key, value, options)).collect())
    }

    /// Reserves memory of the store for a fragment of `length` bytes: filled in place, then committed.
    ///
    /// # Errors
    /// As [`Store::put`]; a key that is taken is only answered at commit, when there are bytes to compare.
    pub fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        let engine = self.engine();
        let size = engine.check_reserved(key, length, options)?;
        let claim = engine.claim(key, size, options)?;
        Ok(self.reservation(claim, key, length, options))
    }

    /// [`Store::reserve`] where nothing must be waited for; `None` where it would wait. The commit of a reservation that
    /// is to be persisted waits for the device.
    ///
    /// # Errors
    /// As [`Store::reserve`].
    pub fn try_reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Option<Reservation>> {
        let engine = self.engine();
        let size = engine.check_reserved(key, length, options)?;
        let claim = engine.claim_at_once(key, size, options)?;
        Ok(claim.map(|claim| self.reservation(claim, key, length, options)))
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
        let most = self.keyspace.fragment_bytes_max.min(self.placement.hot.payload_bytes_max() as usize);
        // Refused now, not when it is to go down: on a full hot level there would be nowhere to go.
        if let Some(level) = &self.placement.level
            && length as u64 > level.image_bytes_max
        {
            return Err(crate::placement::too_large(length as u64, level.image_bytes_max));
        }
        if length <= most {
            return Ok(length as u32);
        }
        Err(Error::invalid(format!(
            "a fragment of {length} bytes; the limit is {most} (fragment_bytes_max {}, segment {})",
            self.keyspace.fragment_bytes_max, self.placement.hot.geometry.segment_bytes
        )))
    }

    /// Carries out a claim: the bytes are copied and published, or compared with those that are there.
    #[inline]
    fn put_claimed(
        &self,
        claim: Claim,
        key: &Key,
        (value, size): (&[u8], Size),
        options: &PutOptions<'_>,
        sent_as: Option<u32>,
    ) -> Result<PutOutcome> {
        // Compared with what the copy computed: a checksum that came from outside costs no pass of its own.
        let check = |found: u32| sent_as.map_or(Ok(()), |expected| check_sent_as(value.len(), expected, found));
        let outcome = match claim {
            Claim::Claimed(claimed) => {
                let crc = self.placement.copy_payload(&claimed.place, value);
                check(crc).inspect_err(|_| self.give_up(&claimed))?;
                self.publish(&claimed, crc)?
            }
            Claim::Standing(location) => {
                // Bytes that are compared need no checksum of ours: only one that was sent is worth a pass.
                if sent_as.is_some() {
                    check(checksum(value)).inspect_err(|_| self.unpin(location))?;
                }
                self.compare(key, location, (value, size), is_asked(options))?
            }
            Claim::Late => return Ok(PutOutcome::Late),
        };
        if self.placement.level.is_some() {
            self.send_down(key, value.len() as u32, options)?;
        }
        Ok(outcome)
    }

    /// A claim, waited for to the deadline.
    #[inline]
    fn claim(&self, key: &Key, size: Size, options: &PutOptions<'_>) -> Result<Claim> {
        match self.try_claim(key, size, options)? {
            Ok(claim) => Ok(claim),
            Err(again) => self.claim_slowly(key, size, options, again),
        }
    }

    /// A claim without waiting; `None` where one must wait.
    #[inline]
    fn claim_at_once(&self, key: &Key, size: Size, options: &PutOptions<'_>) -> Result<Option<Claim>> {
        let claim = match self.try_claim(key, size, options)? {
            Ok(claim) => claim,
            // Opening a run waits for no device here: the ticket is for puts that ask to be persisted.
            Err(Again::UnknownRun(run)) => {
                if !self.open_unknown_run(run, key.as_bytes())? {
                    return Ok(None);
                }
                let Ok(claim) = self.try_claim(key, size, options)? else { return Ok(None) };
                claim
            }
            Err(_) => return Ok(None),
        };
        match claim {
            // Its bytes must be read from the device to be compared.
            Claim::Standing(location) if location.is_warm() => {
                self.unpin(location);
                Ok(None)
            }
            claim => Ok(Some(claim)),
        }
    }

    /// Waits for what the first try lacked, to the deadline.
    #[cold]
    fn claim_slowly(&self, key: &Key, size: Size, options: &PutOptions<'_>, again: Again) -> Result<Claim> {
        let deadline = self.deadline_after(options.deadline.unwrap_or(self.config.put_deadline));
        // What a holder tells without a wait it tells again: its request, with parts of other runs, waits for none.
        let run_opens = match options.level {
            Some(Level::Elsewhere) if options.deadline == Some(Duration::ZERO) => deadline,
            _ => deadline.max(self.deadline_after(RUN_OPENS)),
        };
        let mut again = again;
        loop {
            match again {
                Again::UnknownRun(run) => self.begin_run(run, key.as_bytes(), run_opens)?,
                Again::Closing(run) => self.await_close(run, deadline)?,
                Again::InFlight => {
                    // Polled: a copy takes microseconds, and a wake-up per key would cost every put a lock.
                    if !self.poll(Duration::from_micros(50), deadline) {
                        return Err(Error::unavailable(format!(
                            "{}: another put of this key is in flight and did not end in time",
                            self.keyspace.schema.text(key.as_bytes())
                        )));
                    }
                }
                Again::NoSpace(class) => {
                    // Dead ends give their space back: write cursors without live records, a log of which a snapshot is smaller.
                    self.placement.hot.close_idle_cursors();
                    self.relieve_log();
                    if !self.wait_for_space(class, deadline) {
                        return Err(self.refuse_full(key, size, options));
                    }
                }
            }
            again = match self.try_claim(key, size, options)? {
                Ok(claim) => return Ok(claim),
                Err(next) => next,
            };
            if matches!(again, Again::NoSpace(_)) && self.timer().now() >= deadline {
                return Err(self.refuse_full(key, size, options));
            }
        }
    }

    /// Opens the run of a first event, or waits a moment for the node that does, and for as many different fragments as open one.
    /// A put that waits for no space waits for its run as well ([`RUN_OPENS`]).
    ///
    /// # Errors
    /// Those of its opening; past the deadline `Closed` where too little came of it, `Unavailable` where somebody was to open it.
    #[cold]
    pub(crate) fn begin_run(&self, run: u64, key: &[u8], deadline: Instant) -> Result<()> {
        if self.open_unknown_run(run, key)? || self.poll(Duration::from_micros(100), deadline) {
            return Ok(());
        }
        if self.life.epoch.load(Ordering::Acquire) == 0 && self.runs.known.lock().iter().all(|known| known.run != run) {
            return Err(Error::closed(format!(
                "run {run} is not open: it opens by itself once {} different fragments of it have come within {RUN_OPENS:?} \
                 (auto_open_after), or by name",
                self.keyspace.auto_open_after
            )));
        }
        Err(Error::unavailable(format!(
            "run {run} was not opened in time by its home, or by the map that it begins under"
        )))
    }

    /// A moment for a run that is being closed.
    ///
    /// # Errors
    /// `Unavailable` past the deadline.
    #[cold]
    pub(crate) fn await_close(&self, run: u64, deadline: Instant) -> Result<()> {
        if !self.poll(Duration::from_micros(100), deadline) {
            return Err(Error::unavailable(format!("run {run} is being closed, which did not end in time")));
        }
        Ok(())
    }

    #[cold]
    fn refuse_full(&self, key: &Key, Size { counted: length, .. }: Size, options: &PutOptions<'_>) -> Error {
        let primary = self.keyspace.schema.primary_of(key);
        let run = self.keyspace.schema.run_of(key.as_bytes());
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        // What another node has is not refused: that node tells of it again.
        let books = options.level != Some(Level::Elsewhere) && self.books(&shard, key);
        if let Some(run) = shard.events.run_index(run).filter(|_| books) {
            let ledger = &mut shard.events.runs[run as usize].ledger;
            ledger.offered += Tally::fragment(u64::from(length));
            ledger.refused += Tally::fragment(u64::from(length));
            self.note_incident(&mut shard, key, IncidentKind::RefusedFull, length);
        }
        // A look takes all cells and may call a listener.
        drop(shard);
        let inhibit = self.look().inhibit;
        let why = inhibit.as_ref().map_or_else(String::new, |inhibit| format!("; {inhibit}"));
        let shortage = self.shortage_of(inhibit);
        Error::full(format!(
            "no space for a fragment of {length} bytes: {} of {} segments free, fill {:.0} %{why}",
            self.placement.hot.free_segments(),
            self.placement.hot.geometry.segments,
            self.placement.hot.fill() * 100.0
        ))
        .with_shortage(shortage)
    }

    /// One try, under the event's lock. The outer result is final.
    #[inline]
    pub(super) fn try_claim(&self, key: &Key, size: Size, options: &PutOptions<'_>) -> Result<Tried> {
        let primary = &key.as_bytes()[..self.keyspace.schema.primary_bytes()];
        let shard = self.shards.cell_of(primary).lock();
        if shard.closed {
            return Err(closed());
        }
        let is_holder = self.check_holder(&shard, key, options)?;
        let event = match shard.events.find(primary) {
            // The bytes belong to their holder, also where another node leads the event.
            Some(event) if is_holder || shard.events[event].state != State::Foreign => event,
            found => match (self.role(&shard, primary), found) {
                (Role::None, _) if !is_holder => return Err(self.elsewhere(&shard, primary)),
                (_, Some(event)) => event,
                (role, None) => return self.try_claim_new(shard, role, key, size, options),
            },
        };
        self.try_claim_in(shard, event, key, size, options)
    }

    /// One try where the event is there: its run may be over, the fragment may be there, or the event may wait no more.
    #[inline]
    fn try_claim_in(
        &self,
        mut shard: ShardGuard<'_>,
        event: u32,
        key: &Key,
        size: Size,
        options: &PutOptions<'_>,
    ) -> Result<Tried> {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let run = shard.events[event].run as usize;
        let known = &shard.events.runs[run];
        // Waited for: whether the run closes is not decided, and an answer now could be wrong either way.
        if known.is_closing() {
            return Ok(Err(Again::Closing(known.run)));
        }
        let (is_over, is_asked) = (known.is_over(), is_asked(options));
        if is_over && !is_asked {
            return Err(self.refuse_run(&mut shard, run, key, size.counted));
        }
        // The key before the state of the event: a duplicate of what was stored is a success, however late it comes.
        let slot = match shard.events.slot(event, rest) {
            Ok((_, word)) if word.is_pending() => return Ok(Err(Again::InFlight)),
            Ok((_, word)) if word.is_present() => {
                self.pin(word.location());
                return Ok(Ok(Claim::Standing(word.location())));
            }
            Ok(_) => None,
            Err(slot) => (!self.is_removed_elsewhere(key.as_bytes())).then_some(slot),
        };
        let (Some(slot), true) = (slot, shard.events[event].waits() && !is_over) else {
            let is_away = options.level == Some(Level::Elsewhere);
            if slot.is_some() && is_away && !is_over && !is_planted("late-forgotten") {
                match self.refuse_held(&mut shard, event, key) {
                    Err(error) if error.kind() == Kind::Full => return Ok(Err(Again::NoSpace(Class::Existing))),
                    refused => refused?,
                }
            }
            if !is_asked {
                self.book_late(&mut shard, run, key, size.counted, IncidentKind::LateLeased);
            }
            return Ok(Ok(Claim::Late));
        };
        self.check_room(&shard, event)?;
        // More of the space is for events that exist: only with their last fragments can they be decided and go.
        let Some(place) = self.placement.hot.reserve_place(Class::Existing, size.here) else {
            return Ok(Err(Again::NoSpace(Class::Existing)));
        };
        if let Some(attributes) = options.attributes
            && let Err(error) = self.attach(&mut shard, event, attributes, true)
        {
            drop(shard);
            self.void(&place, *key, size.here);
            return full_or(error, Class::Existing);
        }
        // It gets a fragment on the hot level: an event that was far is near from now on.
        let was_far = shard.events[event].is(Flag::ListedFar);
        let claimed = self.take_slot(&mut shard, (event, slot), key, place, (size, options));
        if was_far {
            self.shards.cell_of(primary).publish_ready(&shard);
        }
        Ok(Ok(Claim::Claimed(claimed)))
    }

    /// # Errors
    /// `Invalid` for an event that has as many fragments as there may be.
    #[inline]
    pub(super) fn check_room(&self, shard: &Shard, event: u32) -> Result<()> {
        if shard.events.has_room(event) {
            return Ok(());
        }
        let name = self.keyspace.schema.text(shard.events.primary(event).as_bytes());
        let most = forebay_core::limits::FRAGMENTS_PER_EVENT_MAX;
        Err(Error::invalid(format!("{name}: an event has at most {most} fragments")))
    }

    /// One try where the event is not there: its run may be unknown or take no events, the event may be decided.
    #[inline]
    fn try_claim_new(
        &self,
        mut shard: ShardGuard<'_>,
        role: Role,
        key: &Key,
        size: Size,
        options: &PutOptions<'_>,
    ) -> Result<Tried> {
        let primary = &key.as_bytes()[..self.keyspace.schema.primary_bytes()];
        let number = self.keyspace.schema.run_of(primary);
        let Some(run) = shard.events.run_index(number) else {
            // A run takes room in the log forever, so it is opened only if its first event finds room as well.
            let room = self.placement.hot.admits(Class::NewEvent);
            return Ok(Err(if room { Again::UnknownRun(number) } else { Again::NoSpace(Class::NewEvent) }));
        };
        let known = &shard.events.runs[run as usize];
        if known.is_closing() {
            return Ok(Err(Again::Closing(number)));
        }
        // Decided events are remembered for as long as the run takes any: a fragment that comes after must not make a new one.
        let takes_no_more = || {
            self.is_decided(known, primary) && !is_planted("decided-forgotten")
                || self.is_removed_elsewhere(key.as_bytes())
        };
        // What another node has it took before the run was stopped there.
        let is_away = options.level == Some(Level::Elsewhere);
        let refused = known.is_over() || !is_away && !known.state.takes_events();
        if is_asked(options) && (refused || takes_no_more()) {
            return Ok(Ok(Claim::Late));
        }
        if !known.is_over() && takes_no_more() {
            self.book_late(&mut shard, run as usize, key, size.counted, IncidentKind::LateDecided);
            return Ok(Ok(Claim::Late));
        }
        if refused {
            return Err(self.refuse_run(&mut shard, run as usize, key, size.counted));
        }
        if !self.placement.hot.admits(Class::NewEvent) {
            return Ok(Err(Again::NoSpace(Class::NewEvent)));
        }
        let Some(place) = self.placement.hot.reserve_place(Class::NewEvent, size.here) else {
            return Ok(Err(Again::NoSpace(Class::NewEvent)));
        };
        // After the place: an event without one would have to be withdrawn again whenever the store is full.
        let event = match role {
            Role::Home => shard.events.create(primary, run, self.now_ns()),
            Role::Member | Role::None => {
                let home = self.home_of(&shard, primary);
                shard.events.create_foreign(primary, run, self.now_ns(), home)
            }
        };
        self.placement.hot.events.fetch_add(1, Ordering::Relaxed);
        self.opened(&shard, event);
        if let Some(attributes) = options.attributes
            && let Err(error) = self.attach(&mut shard, event, attributes, true)
        {
            self.withdraw_unborn(&mut shard, event);
            drop(shard);
            self.void(&place, *key, size.here);
            return full_or(error, Class::NewEvent);
        }
        let claimed = self.take_slot(&mut shard, (event, 0), key, place, (size, options));
        Ok(Ok(Claim::Claimed(claimed)))
    }

    /// The key is taken: its slot is pending until the record is published or given up.
    #[inline]
    fn take_slot(
        &self,
        shard: &mut Shard,
        (event, slot): (u32, usize),
        key: &Key,
        place: Place,
        (size, options): (Size, &PutOptions<'_>),
    ) -> Claimed {
        debug_assert!(shard.events[event].waits(), "only an event that waits takes another fragment");
        // Noted when the key is claimed: whether it came in time is a matter of when it came, not of how long its copy took.
        let late = shard.events[event].state == State::Live(LiveState::Ready);
        let rest = self.keyspace.schema.rest_of(key);
        let word = Word::of(place.location).of_fragment(late, size.counted);
        shard.insert_slot(event, slot, rest, word.pending());
        // Keeps the event's number from being used again until this record reports, no matter what becomes of the event.
        shard.events[event].pending += 1;
        let version = self.first_version(shard, event, key);
        if shard.events[event].state == State::Foreign {
            // Before it is here: a run that is closed meanwhile would not count it.
            shard.events.is_to_come(event, options.report, || self.now_ns());
        }
        let late = if late { EntryFlags::LATE.0 } else { 0 };
        let elsewhere = if options.level == Some(Level::Elsewhere) { EntryFlags::ELSEWHERE.0 } else { 0 };
        let flags = EntryFlags(late | elsewhere);
        let &PutOptions { status, report, .. } = options;
        Claimed { key: *key, event, place, length: size.here, counted: size.counted, version, status, flags, report }
    }

    /// The run takes nothing more, or no new events: the fragment is offered and refused.
    #[cold]
    fn refuse_run(&self, shard: &mut Shard, run: usize, key: &Key, length: u32) -> Error {
        let books = self.books(shard, key);
        let known = &mut shard.events.runs[run];
        if books {
            known.ledger.offered += Tally::fragment(u64::from(length));
            known.ledger.refused += Tally::fragment(u64::from(length));
        }
        let (number, is_over) = (known.run, known.is_over());
        let (state, kind) = if is_over {
            ("closed", IncidentKind::RefusedClosed)
        } else {
            ("stopped: it takes no new events", IncidentKind::RefusedStopped)
        };
        self.note_incident(shard, key, kind, length);
        Error::closed(format!("run {number} is {state}"))
    }

    /// A fragment that comes too late is offered, not stored, and remembered for `why`.
    #[cold]
    fn book_late(&self, shard: &mut Shard, run: usize, key: &Key, length: u32, kind: IncidentKind) {
        if !self.books(shard, key) {
            return;
        }
        let run = &mut shard.events.runs[run];
        run.ledger.offered += Tally::fragment(u64::from(length));
        run.ledger.late += Tally::fragment(u64::from(length));
        run.sources.of(self.keyspace.schema.rest_of(key)).late += 1;
        self.note_incident(shard, key, kind, length);
    }

    /// A reservation that came too late is no offer yet: its commit is.
    #[cold]
    pub(super) fn unbook_late(&self, key: &Key, length: u32) {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.shards.cell_of(primary).lock();
        // All of it in one hold, as it was booked: the account balances at any moment.
        let Some(run) = shard.events.run_index(self.keyspace.schema.run_of(primary)) else { return };
        if !self.books(&shard, key) {
            return;
        }
        let run = &mut shard.events.runs[run as usize];
        debug_assert!(run.ledger.late.fragments > 0, "what is taken back was booked as late");
        run.ledger.offered -= Tally::fragment(u64::from(length));
        run.ledger.late -= Tally::fragment(u64::from(length));
        let late = &mut run.sources.of(rest).late;
        *late = late.saturating_sub(1);
        shard.events.incidents.take_back(key);
    }

    /// Whether this node's account has what becomes of the offer of a key: that of its home has.
    #[cold]
    pub(crate) fn books(&self, shard: &Shard, key: &Key) -> bool {
        self.role(shard, &key.as_bytes()[..self.keyspace.schema.primary_bytes()]) == Role::Home
    }

    #[cold]
    pub(crate) fn note_incident(&self, shard: &mut Shard, key: &Key, kind: IncidentKind, length: u32) {
        shard.events.incidents.note(Incident { key: *key, kind, at_ns: self.now_ns(), length });
    }

    /// Writes the entry of a filled place, fences, and makes the fragment visible.
    #[inline]
    pub(super) fn publish(&self, claimed: &Claimed, crc: u32) -> Result<PutOutcome> {
        let place = &claimed.place;
        self.placement.write_head(place, &claimed.head(), claimed.length, crc, StateWord::FRESH);
        // Before anybody can see it: what a reader has seen must not be gone after a crash.
        if !is_planted("ack-unfenced") {
            self.placement.hot.region.fence();
        }

        let (primary, rest) = claimed.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let cell = self.shards.cell_of(primary);
        let mut shard = cell.lock();
        let event = claimed.event;
        // Found by its number, not by its key: the event may have been decided, and is kept for this record.
        let run = shard.events[event].run as usize;
        let offered = Tally::fragment(u64::from(claimed.counted));
        let state = shard.events[event].state;
        // The map may have changed while the bytes were copied: what is published is published under the present one.
        let fenced =
            state == State::Foreign && !self.has_table(&shard, primary) && self.role(&shard, primary) == Role::None;
        if shard.closed || fenced || !shard.events[event].waits() {
            let (is_closed, is_away) = (shard.closed, claimed.flags.is_elsewhere());
            // What is only asked about is not in the account, as where it is late at once.
            let is_asked = is_away && claimed.report == Report::Later;
            if !(is_closed || fenced || is_asked) {
                self.book_late(&mut shard, run, &claimed.key, claimed.counted, IncidentKind::LateLeased);
            }
            // The slot goes: the fragment was never visible, and was not removed by anybody.
            shard.events.remove_slot(event, rest);
            let refused = match is_away && !is_closed && !fenced {
                true => self.refuse_held(&mut shard, event, &claimed.key),
                false => Ok(()),
            };
            shard.events.settle(event);
            let attributes = if fenced { self.withdraw_unborn(&mut shard, event) } else { None };
            if let Some(location) = attributes {
                self.end_attributes(location);
            }
            // Ended before anybody else can have the region: until here this record keeps it.
            self.placement.hot.abandon(place.location, claimed.length);
            return match (is_closed, fenced) {
                (true, _) => Err(closed()),
                (false, true) => Err(self.elsewhere(&shard, primary)),
                (false, false) => refused.map(|()| PutOutcome::Late),
            };
        }
        // Offered and stored in one hold: the ledger balances whenever somebody reads it.
        if state != State::Foreign {
            shard.events.runs[run].ledger.offered += offered;
        }
        if let Ok((slot, word)) = shard.events.slot(event, rest) {
            debug_assert!(word.is_pending() && word.location() == place.location, "the slot waits for this record");
            shard.events.set_word(event, slot, word.settled());
        }
        debug_assert!(shard.events.slot(event, rest).is_ok(), "a claimed key keeps its slot");
        let complete = shard.events[event].is(Flag::Complete);
        shard.events.arrived(event, (primary, rest), claimed.counted);
        shard.events[event].pending -= 1;
        if state == State::Foreign {
            shard.events.is_to_be_told(event, claimed.report, || self.now_ns());
        }
        if claimed.flags.0 & EntryFlags::LATE.0 != 0 {
            shard.events.runs[run].sources.of(rest).late += 1;
        }
        // Also one that was in flight when its event became ready may complete it, except for the masked.
        let leaf = &shard.events[event];
        if leaf.is(Flag::LacksMasked) && !complete && leaf.is_marked_ready() {
            self.mark_event(&mut shard, event);
            self.mark_record(&shard, event);
            self.placement.hot.region.fence();
        }
        if claimed.flags.is_elsewhere() && !shard.events.runs[run].state.takes_events() {
            // Of a run that is stopped: it does not wait for more (`seal_stopped_run`).
            self.upkeep.bell.ring();
        }
        let became_ready = state == State::Live(LiveState::Open) && shard.events[event].state != state;
        if became_ready {
            self.keep_ready(&mut shard, event);
            cell.publish_ready(&shard);
        }
        debug_assert!(self.marks_have_a_home(&shard, event), "marks of event {event} are nowhere");
        // Last: a closing store waits for what is in flight before it lets the region go.
        self.placement.hot.written(place.location.segment);
        drop(shard);
        // Outside of the lock: the thread that is woken takes it at once, and a listener may call the store.
        if became_ready {
            self.events.waiting.notify();
        }
        if let Some(arrivals) = self.config.arrivals.as_ref().filter(|_| !claimed.flags.is_elsewhere()) {
            let Claimed { key, counted, status, .. } = *claimed;
            arrivals.arrived(&Arrival { key, length: counted, checksum: crc, status });
        }
        if state == State::Foreign && claimed.report == Report::Prompt {
            self.stir();
        }
        Ok(PutOutcome::Stored)
    }

    /// An event that is ready by a rule which may change (its class, masks) stays ready also after recovery.
    #[inline]
    pub(crate) fn keep_ready(&self, shard: &mut Shard, event: u32) {
        if self.may_wait_again(shard, event) {
            shard.events[event].mark_ready();
            self.mark_event(shard, event);
            self.placement.hot.region.fence();
        }
    }

    /// Whether what made an event ready may change, so that without a mark a later life could find it open.
    #[inline]
    pub(crate) fn may_wait_again(&self, shard: &Shard, event: u32) -> bool {
        let leaf = &shard.events[event];
        leaf.rule != 0 || !shard.events.runs[leaf.run as usize].masks.is_empty()
    }

    /// Takes back a claim whose bytes never came.
    pub(super) fn give_up(&self, claimed: &Claimed) {
        let (primary, rest) = claimed.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.shards.cell_of(primary).lock();
        shard.events.remove_slot(claimed.event, rest);
        shard.events.settle(claimed.event);
        // An event that only this put had made: left behind, it would wait for nothing until its time.
        let attributes = self.withdraw_unborn(&mut shard, claimed.event);
        drop(shard);
        if let Some(location) = attributes {
            self.end_attributes(location);
        }
        // Last: until here the place keeps the region.
        self.void(&claimed.place, claimed.key, claimed.length);
    }

    /// Takes out an event that never had a fragment and waits for none, as if it had not been; answers its attribute
    /// record, which the caller ends.
    pub(crate) fn withdraw_unborn(&self, shard: &mut Shard, event: u32) -> Option<Location> {
        let leaf = &shard.events[event];
        let open = matches!(leaf.state, State::Live(LiveState::Open) | State::Foreign);
        if !open
            || shard.events.slots(event) != 0
            || leaf.pending != 0
            || leaf.is(Flag::Counted)
            || leaf.is(Flag::Announced)
        {
            return None;
        }
        let attributes = shard.events.attribute_word(event).map(Word::location);
        shard.withdraw(event);
        let before = self.placement.hot.events.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "an event on the hot level reserves a slot");
        attributes
    }

    /// Fills a place that holds nothing with a void entry, so that a sealed directory has no holes, and lets go of it.
    pub(crate) fn void(&self, place: &Place, key: Key, length: u32) {
        self.placement.write_void(place, key);
        self.placement.hot.abandon_void(place.location.segment, length);
    }
}
