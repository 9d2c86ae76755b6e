//! Taking a fragment in.
//!
//! ```text
//! source's lock ─▶ sane? gone? repeated? ─▶ place ─▶ copy + checksum ─▶ entry ─▶ flush, fence ─▶ visible, booked
//!                     │                       └ no room: close the chunk, let go, take or evict one, look again
//!                     └ refused, entered as a gap; repeated: compared
//! ```
//!
//! Fragments up to `COPY_LOCKED_BYTES_MAX` are copied under the lock of their source, which one link writes; longer ones
//! take the way of a reservation, so that readers wait for microseconds at most.
//!
//! *Rules*: a source has a timestamp once (write once): the same span and bytes again are `Duplicate`, anything
//! else is `Conflict`. Fragments may overlap: each is kept, a tick counts once in the coverage. Disorder is taken in as
//! far as timestamps are sane and their ticks are not evicted.
//!
//! *On failure*: without a chunk the answer is `Refused(NoSpace)`: a ring never waits.

use super::coverage::Knowledge;
use super::engine::{RingEngine, closed};
use super::limits::{COPY_LOCKED_BYTES_MAX, RESERVATIONS_MAX};
use super::source::{Cell, Reserved, Source, Standing};
use super::{Gap, Ring, RingOutcome, RingPut};
use forebay_core::{Error, GapCause, Ledger, Result, RingStamp, SourceId, Tally};
use forebay_media::bytes::{Entry, EntryFlags, Mark, StateWord};
use forebay_media::hot::{Location, Place, checksum, will_copy};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

/// A place and the ticks that it is for.
#[derive(Clone, Copy)]
pub(super) struct Claimed {
    pub(super) cell: u32,
    pub(super) stamp: RingStamp,
    pub(super) status: u32,
    pub(super) place: Place,
    pub(super) length: u32,
}

/// What a reservation gets.
pub(super) enum Claim {
    Place(Claimed),
    /// A fragment is there: the bytes are needed to answer.
    Standing,
    Refused(GapCause),
}

/// What a put meets.
enum Met {
    Nothing,
    Refused(GapCause),
    Standing(Standing),
}

/// What a put gets.
enum Got<'a> {
    Place(MutexGuard<'a, Source>, Place),
    Refused(GapCause),
    /// Its segment is pinned.
    Standing(Standing),
}

impl Ring {
    /// Puts a fragment that covers `[timestamp, timestamp + span)`. When this returns `Stored`, it survives the death of
    /// this process. Waits for nothing.
    ///
    /// # Errors
    /// `Conflict` where another fragment has this timestamp, `Invalid` for a source of another schema, one more
    /// than `sources_max`, no span, ticks past the end or a value past the limit, `Unavailable` while a reservation
    /// holds the timestamp, `Fenced` for a source that is another node's, `Closed`.
    #[inline]
    pub fn put(
        &self,
        source: &SourceId,
        timestamp: u64,
        span: u32,
        value: &[u8],
        options: &RingPut,
    ) -> Result<RingOutcome> {
        let engine = self.engine();
        let stamp = RingStamp { timestamp, span, run: options.run };
        let length = engine.check_put(source, &stamp, value.len())?;
        will_copy(value);
        let now_ns = engine.now_ns();
        let cell = engine.table.find_or_add(source)?;
        match engine.get(cell, &stamp, length, now_ns)? {
            Got::Place(mut guard, place) => {
                let claimed = Claimed { cell: cell.number, stamp, status: options.status, place, length };
                let offset = engine.hot.payload_offset(place.location.segment, place.offset);
                if value.len() <= COPY_LOCKED_BYTES_MAX {
                    let crc = engine.hot.region.copy_in(offset, value);
                    engine.write(cell, &claimed, crc);
                    engine.show(cell, &mut guard, &claimed, now_ns);
                    return Ok(RingOutcome::Stored);
                }
                engine.hold(&mut guard, &claimed)?;
                drop(guard);
                let crc = engine.hot.region.copy_in(offset, value);
                engine.publish(&claimed, crc)
            }
            Got::Refused(cause) => Ok(RingOutcome::Refused(cause)),
            Got::Standing(standing) => engine.compare(cell, &stamp, standing, value),
        }
    }
}

impl RingEngine {
    #[inline]
    pub(super) fn check_put(&self, source: &SourceId, stamp: &RingStamp, length: usize) -> Result<u32> {
        self.check_source(source)?;
        if let Some(takes) = self.placement.get() {
            takes(source, stamp.run)?;
        }
        if stamp.span == 0 {
            return Err(Error::invalid(format!("source {source}: a fragment covers at least one tick")));
        }
        if length > self.length_max {
            return Err(Error::invalid(format!(
                "a fragment of {length} bytes; the limit is {} (fragment_bytes_max {}, chunk {})",
                self.length_max, self.keyspace.fragment_bytes_max, self.hot.geometry.segment_bytes
            )));
        }
        Ok(length as u32)
    }

    #[inline]
    pub(super) fn check_source(&self, source: &SourceId) -> Result<()> {
        if self.keyspace.source.fits(source) {
            return Ok(());
        }
        let parts = self.keyspace.source.describe().join(", ");
        Err(Error::invalid(format!("source {source} is of another schema; this ring has {parts}")))
    }

    /// A place for a fragment, or why not.
    #[inline]
    fn get<'a>(&'a self, cell: &'a Cell, stamp: &RingStamp, length: u32, now_ns: u64) -> Result<Got<'a>> {
        // Guards one source, which one link writes: putters of different sources never meet here.
        let mut source = cell.source.lock();
        match self.meet(cell, &mut source, stamp, now_ns)? {
            Met::Nothing => match source.place(&self.hot, stamp.run, length) {
                Some(place) => Ok(Got::Place(source, place)),
                None => self.get_slowly(cell, source, stamp, length, now_ns),
            },
            Met::Refused(cause) => {
                self.refuse(cell, &mut source, stamp, length, cause);
                Ok(Got::Refused(cause))
            }
            Met::Standing(standing) => {
                // Pinned under the lock that shows the fragment: its entry is read without the lock, and must not be evicted.
                self.hot.segment(standing.location.segment).pin();
                Ok(Got::Standing(standing))
            }
        }
    }

    /// Gets the source another chunk. Its lock is let go meanwhile, so everything is looked at again.
    #[cold]
    fn get_slowly<'a>(
        &'a self,
        cell: &'a Cell,
        mut source: MutexGuard<'a, Source>,
        stamp: &RingStamp,
        length: u32,
        now_ns: u64,
    ) -> Result<Got<'a>> {
        self.close_chunk(cell, &mut source);
        drop(source);
        let taken = self.take_segment();
        let mut source = cell.source.lock();
        // Another producer of this source may have put meanwhile: this very timestamp, or a chunk with room.
        let met = self.meet(cell, &mut source, stamp, now_ns);
        let fresh = matches!(met, Ok(Met::Nothing));
        let place = if fresh { source.place(&self.hot, stamp.run, length) } else { None };
        if let Some(segment) = taken {
            if fresh && place.is_none() {
                self.close_chunk(cell, &mut source);
                self.open_chunk(cell, &mut source, segment, now_ns);
            } else {
                self.give_back(segment);
            }
        }
        let place = place.or_else(|| if fresh { source.place(&self.hot, stamp.run, length) } else { None });
        let cause = match met? {
            Met::Nothing => match place {
                Some(place) => return Ok(Got::Place(source, place)),
                // The close comes to this source in a moment: it is no lack of space.
                None if self.is_closed() => return Err(closed()),
                None => GapCause::NoSpace,
            },
            Met::Standing(standing) => {
                self.hot.segment(standing.location.segment).pin();
                return Ok(Got::Standing(standing));
            }
            Met::Refused(cause) => cause,
        };
        self.refuse(cell, &mut source, stamp, length, cause);
        Ok(Got::Refused(cause))
    }

    /// Looks for what prevents storing a fragment.
    #[inline]
    fn meet(&self, cell: &Cell, source: &mut Source, stamp: &RingStamp, now_ns: u64) -> Result<Met> {
        // Asked under the lock under which the close sets it: what passes here is seen by the close as a user of its chunk.
        if source.closed {
            return Err(closed());
        }
        source.last_put_ns = Some(now_ns);
        source.last_run = stamp.run;
        let votes = || self.table.iter().map(|cell| &cell.vote);
        let judged = self.relations.judge(&mut source.relation, &cell.vote, votes, stamp.run, stamp.timestamp, now_ns);
        if !judged {
            return Ok(Met::Refused(GapCause::Skew));
        }
        if stamp.end().is_none() {
            let RingStamp { timestamp, span, .. } = stamp;
            return Err(Error::invalid(format!("timestamp {timestamp} and span {span} reach past the last tick")));
        }
        if let Some(head) = source.known.head
            && stamp.timestamp < head
            && self.relations.is_ahead(&source.relation, head, now_ns)
        {
            // Its clock was ahead of what is sane by now: the timing system was started again, or this source was insane at the
            // start.
            self.close_chunk(cell, source);
            source.restart();
        }
        if let Some(standing) = source.find(stamp.timestamp) {
            return Ok(Met::Standing(standing));
        }
        if !source.reserved.is_empty() && source.reserved.iter().any(|one| one.timestamp == stamp.timestamp) {
            return Err(Error::unavailable(format!(
                "source {} timestamp {}: a reservation holds it",
                cell.id, stamp.timestamp
            )));
        }
        // After the comparison: a repeat of what is still there is a duplicate, also where its neighbours are gone.
        if source.known.is_gone(stamp.timestamp) {
            return Ok(Met::Refused(GapCause::TooLate));
        }
        Ok(Met::Nothing)
    }

    #[cold]
    fn refuse(&self, cell: &Cell, source: &mut Source, stamp: &RingStamp, length: u32, cause: GapCause) {
        let ledger = source.accounts.of(stamp.run);
        let tally = Tally::fragment(u64::from(length));
        ledger.offered += tally;
        *if cause == GapCause::TooLate { &mut ledger.late } else { &mut ledger.refused } += tally;
        source.refused.enter(stamp.timestamp, cause);
        note_refused(&mut source.known, stamp, cause);
        // A gap ends a wait as a fragment does.
        if source.wakes() {
            cell.arrived.notify_all();
        }
    }

    /// Writes the entry of a fragment whose bytes are in place, and makes both durable.
    #[inline]
    fn write(&self, cell: &Cell, claimed: &Claimed, crc: u32) {
        let entry = Entry {
            key: self.keyspace.source.key(&cell.id, &claimed.stamp),
            offset: claimed.place.offset,
            length: claimed.length,
            payload_crc: crc,
            status: claimed.status,
            version: 0,
            flags: EntryFlags::FRAGMENT,
        };
        self.hot.write_entry(&claimed.place, &entry, StateWord::FRESH);
        // One fence for payload and entry. Either may reach persistent memory alone; recovery then finds an entry whose bytes do
        // not match, or none, and neither was acknowledged (decision 0002).
        self.hot.region.fence();
    }

    /// Makes a durable fragment visible and books it.
    #[inline]
    fn show(&self, cell: &Cell, source: &mut Source, claimed: &Claimed, now_ns: u64) {
        source.show(&claimed.stamp, claimed.place.location, claimed.length);
        let tally = Tally::fragment(u64::from(claimed.length));
        // Booked in the hold that makes it visible: a reader of the account never finds a fragment that is not counted.
        let ledger: &mut Ledger = source.accounts.of(claimed.stamp.run);
        ledger.offered += tally;
        ledger.stored += tally;
        // Not for a reservation whose chunk is closed: its word is `NO_OPEN_CHUNK`.
        if source.cursor.is_some() {
            cell.idle_since_ns.store(now_ns, Ordering::Relaxed);
        }
        if source.wakes() {
            cell.arrived.notify_all();
        }
    }

    /// A place is out of the lock's reach from now on: its chunk stays, its timestamp is taken.
    pub(super) fn hold(&self, source: &mut Source, claimed: &Claimed) -> Result<()> {
        if source.reserved.len() >= RESERVATIONS_MAX {
            self.void(claimed);
            return Err(Error::unavailable(format!("{RESERVATIONS_MAX} reservations of this source are out")));
        }
        // A user of the segment from here on: it keeps the chunk from being evicted and the region from being unlocked.
        self.hot.segment(claimed.place.location.segment).begin();
        debug_assert!(
            source.reserved.iter().all(|one| one.timestamp != claimed.stamp.timestamp),
            "two reservations of one timestamp"
        );
        let end = claimed.stamp.timestamp + u64::from(claimed.stamp.span);
        source.reserved.push(Reserved { timestamp: claimed.stamp.timestamp, end });
        Ok(())
    }

    /// A held place has its bytes.
    pub(super) fn publish(&self, claimed: &Claimed, crc: u32) -> Result<RingOutcome> {
        let Some(cell) = self.table.by_number(claimed.cell) else { return Err(Error::internal("a source is gone")) };
        self.write(cell, claimed, crc);
        let mut source = cell.source.lock();
        if source.closed {
            drop(source);
            self.give_up(claimed);
            return Err(closed());
        }
        // In the same hold as the fragment appears: a window finds its ticks reserved or covered, never missing.
        source.reserved.retain(|one| one.timestamp != claimed.stamp.timestamp);
        self.show(cell, &mut source, claimed, self.now_ns());
        self.stretch_closed(&mut source, claimed.place.location);
        // Last, and under the lock: from here on another process may have the region.
        self.let_go(claimed.place.location);
        Ok(RingOutcome::Stored)
    }

    /// The chunk may have been closed meanwhile: then pins must see its ticks as they are now.
    fn stretch_closed(&self, source: &mut Source, location: Location) {
        if source.writes(location.segment) {
            return;
        }
        let Some(chunk) = source.chunk_on(location.segment) else { return };
        let mut space = self.space.lock();
        if let Some(closed) = space.closed.iter_mut().find(|closed| closed.segment == location.segment) {
            (closed.begin, closed.end) = (chunk.begin, chunk.end);
        }
    }

    /// The last access to the region of who held the place, under the source's lock. The chunk's own live count stays.
    fn let_go(&self, location: Location) {
        self.hot.left(location.segment, self.hot.segment(location.segment).abandoned(0));
    }

    /// A held place is not needed.
    pub(super) fn give_up(&self, claimed: &Claimed) {
        self.void(claimed);
        if let Some(cell) = self.table.by_number(claimed.cell) {
            let mut source = cell.source.lock();
            source.reserved.retain(|one| one.timestamp != claimed.stamp.timestamp);
            self.let_go(claimed.place.location);
            if source.waiters.any() {
                cell.arrived.notify_all();
            }
        }
    }

    /// Fills a place with an entry that holds nothing: sealed directories have no holes.
    fn void(&self, claimed: &Claimed) {
        let Some(cell) = self.table.by_number(claimed.cell) else { return };
        let entry = Entry {
            key: self.keyspace.source.key(&cell.id, &claimed.stamp),
            offset: claimed.place.offset,
            length: 0,
            payload_crc: 0,
            status: claimed.status,
            version: 0,
            flags: EntryFlags::VOID,
        };
        let dead = StateWord { mark: Mark::Dead, ..StateWord::FRESH };
        self.hot.write_entry(&claimed.place, &entry, dead);
        self.hot.region.fence();
    }

    /// Compares a fragment with the one that has its timestamp, whose segment is pinned.
    #[cold]
    fn compare(&self, cell: &Cell, stamp: &RingStamp, standing: Standing, value: &[u8]) -> Result<RingOutcome> {
        // Compared by checksum and length, without the lock: reading all bytes of the stored fragment would cost as much as the
        // put, for a case that links meet at each retransmission.
        let entry = self.hot.read_entry(standing.location);
        self.hot.unpin(standing.location.segment);
        let entry = entry.ok_or_else(|| {
            let Location { segment, entry } = standing.location;
            Error::corrupt(format!("segment {segment} entry {entry}: does not verify any more"))
        })?;
        let crc = checksum(value);
        let same = entry.length as usize == value.len() && entry.payload_crc == crc && standing.item.span == stamp.span;
        let tally = Tally::fragment(value.len() as u64);
        let mut source = cell.source.lock();
        if source.closed {
            // The account is final.
            return Err(closed());
        }
        let ledger = source.accounts.of(stamp.run);
        ledger.offered += tally;
        if same {
            ledger.duplicate += tally;
            return Ok(RingOutcome::Duplicate);
        }
        ledger.conflict += tally;
        Err(Error::conflict(format!(
            "source {} timestamp {}: {} ticks in {} bytes with checksum {:08x} are there; offered were {} ticks in {} \
             bytes with {crc:08x}",
            cell.id,
            stamp.timestamp,
            standing.item.span,
            entry.length,
            entry.payload_crc,
            stamp.span,
            value.len()
        )))
    }

    /// Claims a place for a reservation.
    pub(super) fn claim(&self, source: &SourceId, stamp: RingStamp, length: u32, status: u32) -> Result<Claim> {
        let cell = self.table.find_or_add(source)?;
        match self.get(cell, &stamp, length, self.now_ns())? {
            Got::Place(mut guard, place) => {
                let claimed = Claimed { cell: cell.number, stamp, status, place, length };
                self.hold(&mut guard, &claimed)?;
                Ok(Claim::Place(claimed))
            }
            Got::Standing(standing) => {
                self.hot.unpin(standing.location.segment);
                Ok(Claim::Standing)
            }
            Got::Refused(cause) => Ok(Claim::Refused(cause)),
        }
    }
}

/// What a refusal tells of ticks.
fn note_refused(known: &mut Knowledge, stamp: &RingStamp, cause: GapCause) {
    match cause {
        // They were sane and are gone: a gap with its cause, so that no window waits for them.
        GapCause::NoSpace => {
            let end = stamp.timestamp + u64::from(stamp.span);
            known.arrived(stamp.timestamp, end);
            known.enter(Gap { begin: stamp.timestamp, end, cause });
        }
        // Its own ticks mean nothing: what is missing lies after the newest sane one.
        GapCause::Skew if known.head.is_some() => {
            known.pending.get_or_insert(cause);
        }
        _ => {}
    }
}
