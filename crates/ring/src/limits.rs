//! Limits of a ring and how they relate.

use forebay_media::limits::{SEGMENT_HEADER_BYTES, SUPERBLOCK_AREA_BYTES};

/// Offset of a ring's note from each copy of the superblock, in bytes.
pub(super) const RING_NOTE_OFFSET: usize = 1024;
/// Room for a ring's note, in bytes.
pub(super) const RING_NOTE_BYTES_MAX: usize = SUPERBLOCK_AREA_BYTES / 2 - RING_NOTE_OFFSET;
/// Smallest chunk: its header and a few small fragments.
pub(super) const CHUNK_BYTES_MIN: u64 = 16 << 10;
/// Largest default chunk.
pub(super) const CHUNK_BYTES_DEFAULT_MAX: u64 = 64 << 20;
/// Chunks for each source in a default region: what is evicted at once is a small part of its history.
pub(super) const CHUNKS_PER_SOURCE_DEFAULT: u64 = 16;
/// Fewest chunks for each source.
pub(super) const CHUNKS_PER_SOURCE_MIN: u64 = 8;
/// Longest fragment that is copied under its source's lock: a reader waits for a few microseconds at most.
pub(super) const COPY_LOCKED_BYTES_MAX: usize = 64 << 10;
/// Most reservations out for one source.
pub(super) const RESERVATIONS_MAX: usize = 1024;
/// Most runs whose fragments share a chunk; the next one begins another chunk.
pub(super) const CHUNK_RUNS_MAX: usize = 4;
/// Most gaps of one source that are remembered with their cause; older ones read as `NeverArrived`.
pub(super) const GAPS_MAX: usize = 1024;
/// Most evicted stretches between chunks that pins keep; past it neighbours are joined.
pub(super) const HOLES_MAX: usize = 64;
/// Most pins in force.
pub(super) const PINS_MAX: usize = 256;
/// Chunks that one search for the oldest looks at, should readers come to the first ones meanwhile.
pub(super) const CANDIDATES: usize = 8;
/// Most runs whose relation of ticks and time is remembered.
pub(super) const RELATIONS_MAX: usize = 4;
/// Offers in a row that must agree before a source has a say against the ring's relation.
pub(super) const STREAK_MIN: u32 = 3;
/// Pause between maintenance rounds, in milliseconds.
pub(super) const MAINTENANCE_MS: u64 = 5;
/// Rounds of maintenance between two notes of the account.
pub(super) const ROUNDS_PER_NOTE: u64 = 20;

// The smallest chunk has room for its header and at least one fragment of some size.
const _: () = assert!(CHUNK_BYTES_MIN > 2 * SEGMENT_HEADER_BYTES as u64);
const _: () = assert!(CHUNKS_PER_SOURCE_DEFAULT >= CHUNKS_PER_SOURCE_MIN);
// The note shares a page with a copy of the superblock and overlaps neither that nor the next page.
const _: () = assert!(RING_NOTE_OFFSET >= forebay_media::bytes::Superblock::BYTES);
const _: () = assert!(RING_NOTE_OFFSET + RING_NOTE_BYTES_MAX <= SUPERBLOCK_AREA_BYTES / 2);
// The relation of the run before decides where votes are half and half: it must be remembered.
const _: () = assert!(RELATIONS_MAX >= 2 && STREAK_MIN >= 1);
