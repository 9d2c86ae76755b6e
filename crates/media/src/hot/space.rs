//! Segments as space: taking, closing, sealing, freeing; records as places in them.
//!
//! *Invariants*: a class of writers takes a segment only above the reserves of the classes after it (`Hot::reserve`),
//! so that a full store can always be emptied (tests/full.rs); the new generation is durable before a reclaimed
//! segment's first entry is used (`take`, tests/power_loss.rs); a segment that is taken is needed by nobody, one that
//! becomes free is not free yet (asserted in `take_at`, `add_free`).
//!
//! *On failure*: without space of its class a caller gets `None` and waits on [`Hot::wait_for_space`].

use super::cursors::WriteCursors;
use super::free::FreeSegments;
use super::segment::Left;
use super::{CLOSED, Closing, ENTRIES_MAX, FREE, LOG, OPEN, Region, Segment};
use crate::bytes::{
    CONTAINER_BYTES_MAX, Entry, EntryLayout, Geometry, IMAGE_ALIGN, RecordSeed, SegmentHeader, SegmentKind,
    SegmentState, SlotLayout, StateWord,
};
use crate::limits::{PAYLOAD_ALIGN, SEGMENT_HEADER_BYTES};
use crate::limits::{RESERVE_DECISIONS, RESERVE_EVACUATION, RESERVE_EXISTING, outputs_kept_bytes};
use crate::sync::Bell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The requester of space, from first refused to never refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The first fragment of an event.
    NewEvent,
    /// Fragments, versions and attributes of existing events.
    Existing,
    /// Evacuation.
    Evacuation,
    /// Decisions and the ledger.
    Decision,
    /// A chunk of a ring: its store has no other class, so nothing is kept back.
    Chunk,
}

/// Where a record is. On the hot level: segment and entry number. On the warm one: container, position of the image
/// and number of the fragment in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Number of the segment; of a warm location container and index.
    pub segment: u32,
    /// Number of the entry; of a warm location the position of the image.
    pub entry: u32,
}

/// Bits of a warm location: container and position number name the image, the index a fragment of it.
// A slot of an event's table is one word: 57 bits say where, one says on which level, six are flags of the index. Wider
// slots would cost 8 bytes for each fragment in memory (decision 0001).
const CONTAINER_BITS: u32 = 14;
const INDEX_BITS: u32 = 15;
const POSITION_BITS: u32 = 28;
const WARM: u32 = 1 << 31;
/// Bits of a segment's number, and of an entry's number in it.
const SEGMENT_BITS: u32 = 24;
const ENTRY_BITS: u32 = 24;

impl Location {
    /// A fragment of an image; `position` is a number of units of 16 bytes.
    pub fn warm(container: u32, position: u32, index: u32) -> Location {
        debug_assert!(container >> CONTAINER_BITS == 0 && index >> INDEX_BITS == 0 && position >> POSITION_BITS == 0);
        Location { segment: WARM | index << CONTAINER_BITS | container, entry: position }
    }

    /// Whether it names a fragment of an image.
    #[inline]
    pub fn is_warm(self) -> bool {
        self.segment & WARM != 0
    }

    /// The container of a warm location.
    pub fn container(self) -> u32 {
        self.segment & ((1 << CONTAINER_BITS) - 1)
    }

    /// The fragment's number in its image.
    pub fn index(self) -> u32 {
        (self.segment & !WARM) >> CONTAINER_BITS
    }

    /// 58 bits: those of a slot's word that say where.
    pub fn bits(self) -> u64 {
        if self.is_warm() {
            return 1 << 57
                | u64::from(self.index()) << (POSITION_BITS + CONTAINER_BITS)
                | u64::from(self.container()) << POSITION_BITS
                | u64::from(self.entry);
        }
        debug_assert!(self.segment >> SEGMENT_BITS == 0 && self.entry >> ENTRY_BITS == 0, "{self:?} has no bits");
        u64::from(self.segment) << ENTRY_BITS | u64::from(self.entry)
    }

    /// What [`Location::bits`] made; higher bits are ignored.
    #[inline]
    pub fn from_bits(bits: u64) -> Location {
        if bits & 1 << 57 != 0 {
            let part = |shift: u32, width: u32| (bits >> shift) as u32 & ((1 << width) - 1);
            let container = part(POSITION_BITS, CONTAINER_BITS);
            return Location::warm(container, part(0, POSITION_BITS), part(POSITION_BITS + CONTAINER_BITS, INDEX_BITS));
        }
        Location { segment: (bits >> ENTRY_BITS) as u32 & 0xFF_FFFF, entry: bits as u32 & 0xFF_FFFF }
    }
}

const _: () = assert!(CONTAINER_BITS + INDEX_BITS + POSITION_BITS == 57);
const _: () = assert!(SEGMENT_BITS + ENTRY_BITS <= 57 && ENTRIES_MAX < 1 << ENTRY_BITS);
// A warm location has its container and index below the bit that says that it is one.
const _: () = assert!(CONTAINER_BITS + INDEX_BITS <= 31);
const _: () = assert!(forebay_core::limits::FRAGMENTS_PER_EVENT_MAX < 1 << INDEX_BITS);
// Every place in the largest container has a number.
const _: () = assert!(CONTAINER_BYTES_MAX / IMAGE_ALIGN <= 1 << POSITION_BITS);

/// A place for one record: entry and payload.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where the entry is.
    pub location: Location,
    /// Payload offset from the segment's start.
    pub offset: u64,
    /// What checksums of this life of the segment begin with.
    pub seed: RecordSeed,
}

/// The hot level.
pub struct Hot {
    /// The memory.
    pub region: Region,
    /// How it is cut.
    pub geometry: Geometry,
    /// Bytes of an entry.
    pub layout: EntryLayout,
    /// Bytes of a slot of the log.
    pub slots: SlotLayout,
    /// Whose region it is.
    pub store: [u8; 16],
    /// What is known of each segment, by number.
    pub segments: Vec<Segment>,
    /// The users of the region that remain while it closes.
    pub closing: Closing,
    pub(super) cursors: WriteCursors,
    free: FreeSegments,
    /// Rings where a segment is taken, and where only guards are left on one: where the fill is another, and a closed one may
    /// be sealed.
    pub bell: Arc<Bell>,
    /// Live events of which something is here: each keeps room for its decision.
    pub events: Arc<AtomicU64>,
    /// Removed keys of live events: every snapshot contains each of them.
    pub removed: AtomicU64,
    /// Bytes of outputs with chosen sources: every snapshot contains them.
    pub output_bytes: AtomicU64,
    /// Stages of the selection: each may cost an event one decision more.
    pub stages: u64,
    /// Slots that the last snapshot took.
    pub snapshot_slots: AtomicU64,
    /// Slots that a snapshot takes once its bounded parts are full: reserved from the start, so that the capacity stays.
    pub snapshot_floor: u64,
}

impl Hot {
    /// A hot level over a region that is cut as `geometry` says, for `writers` threads that put side by side. No
    /// segment is free yet: recovery or creation says which are.
    pub fn new(region: Region, geometry: Geometry, store: [u8; 16], writers: usize) -> Hot {
        debug_assert!(region.length() >= geometry.region_bytes(), "the last segments lie outside of the region");
        Hot {
            region,
            geometry,
            layout: EntryLayout::for_key_bytes(geometry.key_bytes as usize),
            slots: SlotLayout::for_key_bytes(geometry.key_bytes as usize),
            store,
            segments: (0..geometry.segments).map(|_| Segment::default()).collect(),
            closing: Closing::default(),
            cursors: WriteCursors::new(writers),
            free: FreeSegments::new(),
            bell: Arc::default(),
            events: Arc::default(),
            removed: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            stages: 1,
            snapshot_slots: AtomicU64::new(0),
            snapshot_floor: 0,
        }
    }

    /// What is known of a segment.
    #[inline]
    pub fn segment(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    /// What checksums of this life of the segment begin with.
    #[inline]
    pub fn seed(&self, segment: u32) -> RecordSeed {
        RecordSeed::new(&self.store, segment, self.segment(segment).generation.load(Ordering::Relaxed))
    }

    /// Slots of one log segment.
    pub fn slots_per_segment(&self) -> u32 {
        ((self.geometry.segment_bytes as usize - SEGMENT_HEADER_BYTES) / self.slots.slot_bytes()) as u32
    }

    /// Longest payload that fits an empty segment.
    pub fn payload_bytes_max(&self) -> u64 {
        let room = self.geometry.segment_bytes - SEGMENT_HEADER_BYTES as u64 - self.layout.entry_bytes() as u64;
        room / PAYLOAD_ALIGN as u64 * PAYLOAD_ALIGN as u64
    }

    /// Bytes that a record of this payload takes, entry included.
    pub fn record_bytes(&self, length: u32) -> u64 {
        u64::from(length).next_multiple_of(PAYLOAD_ALIGN as u64) + self.layout.entry_bytes() as u64
    }

    /// Free segments.
    pub fn free_segments(&self) -> u32 {
        self.free.count()
    }

    /// Occupied share of the segments, 0 to 1.
    pub fn fill(&self) -> f64 {
        1.0 - f64::from(self.free_segments()) / f64::from(self.geometry.segments)
    }

    /// Segments that must stay free for the classes after this one.
    pub fn reserve(&self, class: Class) -> u32 {
        if class >= Class::Decision {
            return 0;
        }
        // Computed for each admission, so that the reserve follows the number of events: an event that came without its
        // room for a decision could not be ended once the region is full (decision 0003).
        // Per live event: its verdicts and, once a snapshot has them, its release; per removed key its share of a snapshot.
        let kept = outputs_kept_bytes(self.geometry.region_bytes());
        let outputs = self.output_bytes.load(Ordering::Relaxed).max(kept) / self.slots.blob_bytes() as u64;
        // The floor is reserved from the start: otherwise the capacity would shrink as the memory of verdicts fills.
        let growing = self.snapshot_floor + self.removed.load(Ordering::Relaxed) / 2 + outputs;
        let snapshot = self.snapshot_slots.load(Ordering::Relaxed).max(growing);
        // Two snapshots: the one in force stays until the next one is whole and durable.
        let slots = self.events.load(Ordering::Relaxed) * (2 * self.stages + 1) / 2 + 2 * snapshot;
        let decisions = slots.div_ceil(u64::from(self.slots_per_segment())) as u32 + RESERVE_DECISIONS;
        decisions
            + match class {
                Class::NewEvent => RESERVE_EVACUATION + RESERVE_EXISTING,
                Class::Existing => RESERVE_EVACUATION,
                Class::Evacuation | Class::Decision | Class::Chunk => 0,
            }
    }

    /// Whether this class may take space now, regardless of the room in open segments.
    #[inline]
    pub fn admits(&self, class: Class) -> bool {
        self.free_segments() > self.reserve(class)
    }

    /// Takes a free segment and makes its new generation durable; `None` at the class's reserve.
    pub fn take(&self, class: Class, kind: SegmentKind) -> Option<u32> {
        self.take_at(class, kind, 0)
    }

    /// The same for a segment of the decision log, whose header says how many slots came before its first one.
    pub fn take_at(&self, class: Class, kind: SegmentKind, position: u64) -> Option<u32> {
        let (number, order) = self.free.take(self.reserve(class))?;
        let segment = self.segment(number);
        debug_assert_eq!(segment.state(), FREE, "segment {number} is taken and was not free");
        debug_assert!(segment.live() == 0 && !segment.is_used(), "segment {number} is taken and somebody needs it");
        // Relaxed throughout: this thread has the segment alone until `set_state` below releases all of it.
        segment.generation.fetch_add(1, Ordering::Relaxed);
        segment.order.store(order, Ordering::Relaxed);
        segment.entries.store(0, Ordering::Relaxed);
        segment.payload_end.store(position, Ordering::Relaxed);
        segment.dead_bytes.store(0, Ordering::Relaxed);
        // Durable before the first entry. Otherwise a power loss could leave entries of the new generation under a header of
        // the old one: recovery would not find them, although they were acknowledged.
        self.write_header(number, kind, SegmentState::Open);
        segment.set_state(if kind == SegmentKind::Data { OPEN } else { LOG });
        self.bell.ring();
        Some(number)
    }

    /// Writes the segment's header over its older copy, durably.
    pub fn write_header(&self, number: u32, kind: SegmentKind, state: SegmentState) {
        let segment = self.segment(number);
        let revision = segment.revision.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let header = SegmentHeader {
            kind,
            state,
            segment: number,
            generation: segment.generation.load(Ordering::Relaxed),
            order: segment.order.load(Ordering::Relaxed),
            entries: segment.entries.load(Ordering::Relaxed),
            payload_end: segment.payload_end.load(Ordering::Relaxed),
            revision,
        };
        debug_assert!(kind != SegmentKind::Data || header.payload_end <= self.geometry.segment_bytes);
        // The older copy is overwritten, so that a write that is cut off leaves the header that was in force.
        let copy = u64::from(revision % 2) * SegmentHeader::BYTES as u64;
        let offset = self.geometry.segment_offset(number) + copy;
        self.region.write(offset, &header.encode(&self.store));
        self.region.flush(offset, SegmentHeader::BYTES);
        self.region.fence();
    }

    /// The valid header of a segment with the higher revision.
    pub fn read_header(&self, number: u32) -> Option<SegmentHeader> {
        let bytes = self.region.bytes(self.geometry.segment_offset(number), 2 * SegmentHeader::BYTES);
        let copies = bytes.chunks(SegmentHeader::BYTES);
        copies.filter_map(|copy| SegmentHeader::decode(copy, &self.store, number)).max_by_key(|header| header.revision)
    }

    /// No more records go into the segment.
    pub fn close(&self, number: u32, entries: u32, payload_end: u64) {
        let segment = self.segment(number);
        debug_assert_eq!(segment.state(), OPEN, "segment {number} is closed and was not open");
        debug_assert!(
            payload_end + u64::from(entries) * self.layout.entry_bytes() as u64 <= self.geometry.segment_bytes,
            "payloads and directory of segment {number} cross"
        );
        segment.entries.store(entries, Ordering::Relaxed);
        segment.payload_end.store(payload_end, Ordering::Relaxed);
        // Releases both figures to the thread that seals it. From here on records that end may free it; the last of them may
        // have ended before, when the segment was still open: so it is checked below.
        segment.set_state(CLOSED);
        self.free_if_idle(number);
    }

    /// Seals closed segments without records in flight: from then on every entry counts. Whether some are left, whose records
    /// are still written.
    pub fn seal_closed(&self) -> bool {
        let mut left = false;
        for number in 0..self.geometry.segments {
            let segment = self.segment(number);
            if segment.state() != CLOSED {
                continue;
            }
            // Not earlier: in a sealed segment an entry that does not verify is corruption. One in flight would look like it.
            if segment.begin_seal() {
                self.write_header(number, SegmentKind::Data, SegmentState::Sealed);
                segment.sealed();
            }
            self.free_if_idle(number);
            left |= segment.state() == CLOSED;
        }
        left
    }

    /// Returns the segment to the free ones if nothing needs it any more.
    pub fn free_if_idle(&self, number: u32) {
        if self.segment(number).try_free() {
            self.add_free(number);
        }
    }

    /// A log segment whose slots a snapshot has replaced.
    pub fn free_log(&self, number: u32) {
        self.segment(number).set_state(FREE);
        self.add_free(number);
    }

    /// A segment that holds nothing any more: wakes writers that wait for space.
    pub fn add_free(&self, number: u32) {
        debug_assert_eq!(self.segment(number).state(), FREE, "segment {number} is in use");
        self.free.add(number);
    }

    /// Waits until `class` is admitted, at most to `deadline`; `false` at the deadline.
    pub fn wait_for_space(&self, class: Class, deadline: Instant) -> bool {
        self.free.wait(|| self.reserve(class), deadline)
    }

    /// Sets the order that the next taken segment gets.
    pub fn continue_order(&self, after: u64) {
        self.free.continue_order(after);
    }

    /// Offset of an entry in the region. Entry 0 is at the segment's end, the next ones before it.
    #[inline]
    pub fn entry_offset(&self, location: Location) -> u64 {
        debug_assert!(!location.is_warm() && location.segment < self.geometry.segments, "{location:?} is not here");
        debug_assert!(
            (u64::from(location.entry) + 1) * self.layout.entry_bytes() as u64
                <= self.geometry.segment_bytes - SEGMENT_HEADER_BYTES as u64,
            "{location:?} lies outside of its segment"
        );
        self.geometry.segment_offset(location.segment) + self.geometry.segment_bytes
            - (u64::from(location.entry) + 1) * self.layout.entry_bytes() as u64
    }

    /// Offset in the region of an offset from the segment's start.
    #[inline]
    pub fn payload_offset(&self, segment: u32, offset: u64) -> u64 {
        self.geometry.segment_offset(segment) + offset
    }

    /// Writes an entry with its state word; the valid word is the checksum that covers it all. Flushed, not fenced.
    #[inline]
    pub fn write_entry(&self, place: &Place, entry: &Entry, state: StateWord) {
        debug_assert!(self.fits(place.location, entry), "{entry:?} reaches into the directory");
        debug_assert_eq!(place.seed, self.seed(place.location.segment), "a place of an earlier life");
        let mut bytes = [0; 64];
        let size = self.layout.entry_bytes();
        self.layout.encode(entry, place.seed, place.location.entry, &mut bytes);
        // Entry and word in one store: a reader of the medium never finds an entry that is whole beside the word of another.
        let word = state.encode(place.seed, place.location.entry);
        bytes[self.layout.state_offset()..size].copy_from_slice(&word.to_le_bytes());
        let offset = self.entry_offset(place.location);
        self.region.write(offset, &bytes[..size]);
        self.region.flush(offset, size);
    }

    /// Reads the entry at a location; `None` where it does not verify.
    #[inline]
    pub fn read_entry(&self, location: Location) -> Option<Entry> {
        let bytes = self.region.bytes(self.entry_offset(location), self.layout.state_offset());
        self.layout.decode(bytes, self.seed(location.segment), location.entry)
    }

    /// Entries that a segment can have: the number in its header once it is sealed, before that the number that fits.
    pub fn entries_possible(&self, header: &SegmentHeader) -> u32 {
        let room = self.geometry.segment_bytes - SEGMENT_HEADER_BYTES as u64;
        let most = (room / self.layout.entry_bytes() as u64) as u32;
        if header.state == SegmentState::Sealed { header.entries.min(most) } else { most }
    }

    /// Whether an entry's payload lies between the header and the directory of its segment.
    pub fn fits(&self, location: Location, entry: &Entry) -> bool {
        let directory = (u64::from(location.entry) + 1) * self.layout.entry_bytes() as u64;
        let end = entry.offset + u64::from(entry.length);
        entry.offset >= SEGMENT_HEADER_BYTES as u64 && end <= self.geometry.segment_bytes - directory
    }

    /// Payload length of a record that is known to be whole.
    #[inline]
    pub fn length_of(&self, location: Location) -> u32 {
        // Read at its place in the entry: the checksum was compared when the record came into the index.
        let bytes = self.region.bytes(self.entry_offset(location) + 12, 4);
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Offset in the region of the entry's state word.
    #[inline]
    pub fn state_word_offset(&self, location: Location) -> u64 {
        self.entry_offset(location) + self.layout.state_offset() as u64
    }

    /// What the state word of a record says; `None` where it does not verify.
    pub fn state_of(&self, location: Location) -> Option<StateWord> {
        let word = self.region.load_word(self.state_word_offset(location));
        StateWord::decode(word, self.seed(location.segment), location.entry)
    }

    /// Replaces the state word of a record; flushed, not fenced.
    #[inline]
    pub fn mark(&self, location: Location, state: StateWord) {
        let word = state.encode(self.seed(location.segment), location.entry);
        self.region.store_word(self.state_word_offset(location), word);
    }

    /// Ends a record: its state word says so, its space counts as dead. Flushed, not fenced.
    #[inline]
    pub fn end_record(&self, location: Location, length: u32) {
        // The mark first: once the live count is gone, the segment may be taken by another writer, and the mark would hit one
        // of its entries.
        self.mark(location, StateWord::ENDED);
        let left = self.segment(location.segment).ended(self.record_bytes(length));
        if left.nobody() {
            self.free_if_idle(location.segment);
        } else if left.is_only_pinned() {
            self.bell.ring();
        }
    }

    /// Unpins a segment and frees it if that was the last need.
    #[inline]
    pub fn unpin(&self, segment: u32) {
        // The guard's last access: what follows looks at the table of segments, which is not in the region.
        self.left(segment, self.segment(segment).unpin());
    }

    /// A record is written, durable and booked. The caller accesses the region no more on its behalf; where the record
    /// can be found, this is called under the lock of its cell.
    #[inline]
    pub fn written(&self, segment: u32) {
        self.left(segment, self.segment(segment).written());
    }

    /// A record that was not shown ends: its word says so, durably. The same holds for the caller.
    pub fn abandon(&self, location: Location, length: u32) {
        self.mark(location, StateWord::ENDED);
        self.abandon_void(location.segment, length);
    }

    /// The same for a place whose entry says already that it holds nothing.
    pub fn abandon_void(&self, segment: u32, length: u32) {
        // Before the place is let go: a sealed segment must not have an entry whose end is only in a store buffer.
        self.region.fence();
        let bytes = self.record_bytes(length);
        self.left(segment, self.segment(segment).abandoned(bytes));
    }

    /// What follows from letting go.
    #[inline]
    pub fn left(&self, segment: u32, left: Left) {
        if left.nobody() {
            self.free_if_idle(segment);
        }
        // Last: from here on the region may be another process's. A segment that was freed before is in this life's table
        // only, so the order of the two does not matter to the other process.
        if left.was_last_user() {
            self.let_go();
        }
    }

    /// The region closes: from now on nobody begins to use it, and the last user lets it go. Protocol: every cell is
    /// closed, and maintenance rests.
    pub fn shut(&self) {
        self.closing.shut(&self.segments);
    }

    /// A segment's last user, or who closes, needs the region no more.
    #[cold]
    pub fn let_go(&self) {
        if self.closing.let_go() {
            self.region.unlock();
        }
    }

    /// Guards on segments, and records in flight.
    pub fn users(&self) -> (u64, u64) {
        let both = |segment: &Segment| (u64::from(segment.pins()), u64::from(segment.in_flight()));
        self.segments.iter().map(both).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}
