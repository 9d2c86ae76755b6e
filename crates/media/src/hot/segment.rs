//! The life of a segment, and who keeps it from being used again.
//!
//! ```text
//! free ──take──▶ open ──close──▶ closed ──seal──▶ sealed
//!   ▲                              │ nothing live, in flight or pinned │
//!   └──────────────────────────────┴───────────────────────────────────┘
//! ```
//!
//! *Invariants* (loom models below): a record in flight or live, or a guard, keeps a segment from being freed; a guard
//! is only taken while the record is live, under the lock of the record's shard; a segment is freed exactly once. A
//! *shut* segment without users gets no user ([`Segment::begin`], [`Segment::pin`] assert it); while it still has users it
//! may get more. The last user to release it learns so, exactly once (`closing.rs`).

use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// States as the table keeps them.
pub const FREE: u8 = 0;
/// Records are placed in it.
pub const OPEN: u8 = 1;
/// Takes no more records; some are in flight.
pub const CLOSED: u8 = 2;
/// All its records are there or void.
pub const SEALED: u8 = 3;
/// Holds slots of the decision log.
pub const LOG: u8 = 4;
// On the way between two states one thread has the segment: all others leave it alone, and it looks again afterwards.
const SEALING: u8 = 5;
const FREEING: u8 = 6;

/// One word says who needs the segment: live records (24 bits, those in flight included), guards (24), records in
/// flight (15). Zero is nobody; the thread that makes it zero sees that in the same access. The highest bit says that the
/// region is being closed: a thread that lets go learns in the same access that the closing waits for it.
const LIVE: u64 = 1;
const PIN: u64 = 1 << 24;
const IN_FLIGHT: u64 = 1 << 48;
const SHUT: u64 = 1 << 63;
/// Guards and records in flight: those who access the memory.
const USERS: u64 = SHUT - PIN;

/// Most guards on one segment, and most records in flight in one: their fields hold some more.
const PINS_MAX: u32 = 16_000_000;
pub(crate) const IN_FLIGHT_MAX: u32 = 30_000;
/// Most entries of one segment.
pub const ENTRIES_MAX: u32 = (1 << 24) - 1;

/// What is left of a segment's needs after one of them was let go. `Hot::left` draws the consequences.
#[derive(Clone, Copy, Debug)]
pub struct Left(u64);

impl Left {
    /// Whether nobody needs the segment any more.
    #[inline]
    pub fn nobody(self) -> bool {
        self.0 & !SHUT == 0
    }

    /// Whether only guards need the segment.
    #[inline]
    pub(super) fn is_only_pinned(self) -> bool {
        self.0 & (PIN - 1) == 0 && !self.nobody()
    }

    /// Whether the segment is shut and this was its last guard or record in flight. Only for a thread that let go of one
    /// of these: a record that ends was no user, and the segment may have had no user for long.
    #[inline]
    pub fn was_last_user(self) -> bool {
        self.0 & SHUT != 0 && self.0 & USERS == 0
    }
}

/// One segment's row of the table.
// Two cache lines, because processors prefetch them in pairs: threads at work in different segments never share one.
#[repr(align(128))]
#[derive(Debug)]
pub struct Segment {
    needs: AtomicU64,
    state: AtomicU8,
    /// Generation; changes only while free or being taken.
    pub generation: AtomicU32,
    /// Writes of the header; changes only while free, being taken or being sealed.
    pub revision: AtomicU32,
    /// Order in which it was taken.
    pub order: AtomicU64,
    /// Entries or slots, known once closed.
    pub entries: AtomicU32,
    /// End of the payload, known once closed.
    pub payload_end: AtomicU64,
    /// Payload and entry bytes of records that have died.
    pub dead_bytes: AtomicU64,
}

impl Default for Segment {
    /// A free segment that was never used.
    fn default() -> Segment {
        Segment {
            needs: AtomicU64::new(0),
            state: AtomicU8::new(FREE),
            generation: AtomicU32::new(0),
            revision: AtomicU32::new(0),
            order: AtomicU64::new(0),
            entries: AtomicU32::new(0),
            payload_end: AtomicU64::new(0),
            dead_bytes: AtomicU64::new(0),
        }
    }
}

impl Segment {
    /// One of [`FREE`], [`OPEN`], [`CLOSED`], [`SEALED`], [`LOG`], or on its way between two.
    pub fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Sets the state without a comparison. Only for the one thread that has the segment: recovery, or the thread that took
    /// it.
    pub fn set_state(&self, state: u8) {
        self.state.store(state, Ordering::Release);
    }

    /// A record begins: in flight and live. Protocol: under the lock of a cell that is not closed.
    #[inline]
    pub fn begin(&self) {
        // Relaxed: the cell's lock orders this before the closing of the cell, and only the zero of the word is acted on.
        let before = self.needs.fetch_add(IN_FLIGHT | LIVE, Ordering::Relaxed);
        debug_assert!(may_begin(before), "a record begins in a region that is closed");
        debug_assert!(
            !overflows(before, IN_FLIGHT | LIVE),
            "a field of the word is full: it would run into the next one"
        );
    }

    /// The record is written; it stays live. The last access to the region of who wrote it.
    #[inline]
    pub fn written(&self) -> Left {
        self.let_go(IN_FLIGHT)
    }

    /// The record was given up; these bytes are dead. This is its writer's last access to the region.
    #[inline]
    pub fn abandoned(&self, bytes: u64) -> Left {
        // Before the need is let go: after that the segment may be in its next life, whose account this is not.
        self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.let_go(IN_FLIGHT | LIVE)
    }

    /// A record that recovery found.
    pub fn adopt(&self) {
        let before = self.needs.fetch_add(LIVE, Ordering::Relaxed);
        debug_assert!(!overflows(before, LIVE), "more live records than a segment has entries");
    }

    /// A live record ended, with its bytes.
    #[inline]
    pub fn ended(&self, bytes: u64) -> Left {
        self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.let_go(LIVE)
    }

    /// A guard is taken. Protocol: under the lock of the record's shard, which is not closed, on a live record, or beside
    /// an existing guard.
    #[inline]
    pub fn pin(&self) {
        let before = self.needs.fetch_add(PIN, Ordering::Relaxed);
        // A panic, not an answer: a program that leaks guards would overflow into the next count and free memory that is
        // read. The bound is far below the field's end: what other threads add meanwhile does not reach it either.
        assert!(((before >> 24) as u32 & ENTRIES_MAX) < PINS_MAX, "more than {PINS_MAX} guards on one segment");
        debug_assert!(may_begin(before), "a guard is taken on a region that is closed");
    }

    /// A guard is gone.
    #[inline]
    pub fn unpin(&self) -> Left {
        self.let_go(PIN)
    }

    #[inline]
    fn let_go(&self, of: u64) -> Left {
        // Release: this thread's accesses to the memory come before another thread sees the need gone and reuses it.
        // Acquire: a thread that finds zero frees the segment, and must see the accesses of all who let go before.
        let before = self.needs.fetch_sub(of, Ordering::AcqRel);
        debug_assert!(!underflows(before, of), "let go of twice");
        Left(before - of)
    }

    /// The region closes: without a user the segment gets none any more (`true`); else its last user learns that it was the
    /// last.
    pub fn shut(&self) -> bool {
        // One word for users and the mark, so that each segment has exactly one thread that counts it as released: this
        // one, or the last user, which finds the mark in the answer to its own subtraction.
        let before = self.needs.fetch_or(SHUT, Ordering::AcqRel);
        debug_assert!(before & SHUT == 0, "shut twice");
        before & USERS == 0
    }

    /// Guards on its records.
    pub fn pins(&self) -> u32 {
        (self.needs.load(Ordering::Acquire) >> 24) as u32 & ENTRIES_MAX
    }

    /// Live records, those in flight included.
    pub fn live(&self) -> u32 {
        self.needs.load(Ordering::Acquire) as u32 & ENTRIES_MAX
    }

    /// Records that are reserved and not yet committed or given up.
    pub fn in_flight(&self) -> u32 {
        ((self.needs.load(Ordering::Acquire) & !SHUT) >> 48) as u32
    }

    /// Whether a guard or a record in flight may access its memory.
    pub fn is_used(&self) -> bool {
        self.needs.load(Ordering::Acquire) & USERS != 0
    }

    fn is_needed(&self) -> bool {
        self.needs.load(Ordering::Acquire) & !SHUT != 0
    }

    /// Begins to seal a closed segment without records in flight; until [`Segment::sealed`] it is not freed. In either
    /// case the caller then tries to free it: who ended its last need meanwhile found it busy.
    pub fn begin_seal(&self) -> bool {
        if self.in_flight() != 0 || !self.swap_state(CLOSED, SEALING) {
            return false;
        }
        // Look again: between the first look and the swap the segment may have been freed, taken, filled and closed. The
        // state is the same, the life is not (tests/segment_aba.rs).
        let still = self.in_flight() == 0;
        if !still {
            self.set_state(CLOSED);
        }
        still
    }

    /// Sealing is done.
    pub fn sealed(&self) {
        debug_assert_eq!(self.state(), SEALING, "sealed by a thread that did not begin to");
        self.set_state(SEALED);
    }

    /// Frees a closed or sealed segment that nobody needs; `true` for the one caller that did it.
    pub fn try_free(&self) -> bool {
        // The thread that closes writes the state and reads the needs; the thread that ends the last need does it the other
        // way round. One of them must see the other's write, or nobody frees the segment: that needs a total order of both,
        // which acquire and release do not give.
        loop {
            fence(Ordering::SeqCst);
            let from = self.state();
            if self.is_needed() || from != CLOSED && from != SEALED {
                return false;
            }
            // Look again while nobody else can change the state: as in `begin_seal`, the segment may be in a later life.
            if self.swap_state(from, FREEING) {
                if !self.is_needed() {
                    self.set_state(FREE);
                    return true;
                }
                // A thread that ended its last need meanwhile found it busy and left it to this loop, so the loop takes
                // another turn.
                self.set_state(from);
            }
        }
    }

    fn swap_state(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Whether a segment with these needs may get one more user. A shut one may while it has others: a guard is taken beside
/// a guard, and the last of them still finds the mark.
fn may_begin(needs: u64) -> bool {
    needs & SHUT == 0 || needs & USERS != 0
}

/// The three counts of the word; the mark of the closing is none of them.
const FIELDS: [u64; 3] = [PIN - LIVE, IN_FLIGHT - PIN, SHUT - IN_FLIGHT];

/// Whether a count would borrow from its neighbour: one need more is let go than there is.
fn underflows(before: u64, of: u64) -> bool {
    FIELDS.iter().any(|field| before & field < of & field)
}

/// Whether a count would carry into its neighbour.
fn overflows(before: u64, by: u64) -> bool {
    FIELDS.iter().any(|field| field - (before & field) < by & field)
}

// Each count ends below the next one, with room for what threads add between their look and their change.
const _: () = assert!(ENTRIES_MAX as u64 * LIVE < PIN);
const _: () = assert!((PINS_MAX as u64 + (1 << 16)) * PIN < IN_FLIGHT);
const _: () = assert!((IN_FLIGHT_MAX as u64 + (1 << 11)) * IN_FLIGHT < SHUT);
// What accesses memory, and nothing else: a live record that nobody reads does not keep the region from closing.
const _: () = assert!(USERS & (PIN - LIVE) == 0 && USERS & SHUT == 0 && USERS | (PIN - LIVE) | SHUT == u64::MAX);
#[cfg(not(feature = "loom"))]
const _: () = assert!(size_of::<Segment>() == 128);

#[cfg(all(test, feature = "loom"))]
mod models {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// Index entry of one record: `true` while the record can be found.
    fn closed_segment_with_one_record() -> (Arc<Segment>, Arc<Mutex<bool>>) {
        let segment = Segment::default();
        segment.set_state(OPEN);
        segment.begin();
        segment.written();
        segment.set_state(CLOSED);
        (Arc::new(segment), Arc::new(Mutex::new(true)))
    }

    #[test]
    fn loom_a_guard_keeps_its_segment() {
        loom::model(|| {
            let (segment, index) = closed_segment_with_one_record();
            let reader = {
                let (segment, index) = (segment.clone(), index.clone());
                thread::spawn(move || {
                    let found = {
                        let index = index.lock().unwrap();
                        if *index {
                            segment.pin();
                        }
                        *index
                    };
                    if found {
                        assert_ne!(segment.state(), FREE, "freed under a guard");
                        segment.unpin().nobody() && segment.try_free()
                    } else {
                        false
                    }
                })
            };
            *index.lock().unwrap() = false;
            let here = segment.ended(1).nobody() && segment.try_free();
            let there = reader.join().unwrap();
            assert!(here ^ there, "freed exactly once");
        });
    }

    #[test]
    fn loom_a_record_in_flight_keeps_its_segment() {
        loom::model(|| {
            let segment = Arc::new(Segment::default());
            segment.set_state(OPEN);
            segment.begin();
            let writer = {
                let segment = segment.clone();
                thread::spawn(move || {
                    assert_ne!(segment.state(), FREE, "freed under a writer");
                    segment.written();
                    segment.ended(1).nobody() && segment.try_free()
                })
            };
            segment.set_state(CLOSED);
            let here = segment.try_free();
            let there = writer.join().unwrap();
            assert!(here ^ there, "freed exactly once");
        });
    }

    #[test]
    fn loom_sealing_and_freeing_exclude_each_other() {
        loom::model(|| {
            let (segment, _) = closed_segment_with_one_record();
            let sealer = {
                let segment = segment.clone();
                thread::spawn(move || {
                    if segment.begin_seal() {
                        assert_ne!(segment.state(), FREE, "freed while its header is written");
                        segment.sealed();
                    }
                    segment.try_free()
                })
            };
            let here = segment.ended(1).nobody() && segment.try_free();
            let there = sealer.join().unwrap();
            assert!(here ^ there, "freed exactly once");
        });
    }

    #[test]
    fn loom_publication_shows_whole_records() {
        loom::model(|| {
            // The record's bytes, its visibility in the index behind the shard's lock.
            let bytes = Arc::new(loom::cell::UnsafeCell::new(0_u8));
            let index = Arc::new(Mutex::new(false));
            let writer = {
                let (bytes, index) = (bytes.clone(), index.clone());
                thread::spawn(move || {
                    bytes.with_mut(|_| ());
                    *index.lock().unwrap() = true;
                })
            };
            if *index.lock().unwrap() {
                bytes.with(|_| ());
            }
            writer.join().unwrap();
        });
    }
}
