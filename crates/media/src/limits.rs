//! Limits of regions: sizes on the medium, how regions are cut, and what each class of writers leaves to the next.

use forebay_core::limits::KEY_BYTES_MAX;

/// Bytes of one decision slot before its key.
pub const SLOT_HEAD_BYTES: usize = 48;
/// Alignment of payloads, in bytes: one cache line, so that non-temporal stores fill whole lines.
pub const PAYLOAD_ALIGN: usize = 64;
/// Bytes at the start of each segment that hold its two header copies.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// Bytes before the first segment: two superblock copies of 4 KiB.
pub const SUPERBLOCK_AREA_BYTES: usize = 8192;
/// Smallest segment: holds its header and a few small records.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Largest default segment.
pub const SEGMENT_BYTES_DEFAULT_MAX: u64 = 64 << 20;
/// Smallest default segment.
pub const SEGMENT_BYTES_DEFAULT_MIN: u64 = 256 << 10;
/// Segments of a default region.
pub const SEGMENTS_DEFAULT: u64 = 64;
/// Fewest segments of a region: every class finds its reserve and there is room to work.
pub const SEGMENTS_MIN: u32 = 16;
/// Free segments kept for decisions and the ledger beside what live events need: a segment under way and a snapshot.
pub const RESERVE_DECISIONS: u32 = 2;
/// Free segments kept for evacuation beyond those for decisions.
pub const RESERVE_EVACUATION: u32 = 2;
/// Free segments kept for fragments of existing events beyond those for evacuation.
pub const RESERVE_EXISTING: u32 = 2;
/// Bytes of choices of sources that always find space: fewest, most, and bytes of the region for each of them.
const OUTPUTS_KEPT_MIN: u64 = 4 << 10;
const OUTPUTS_KEPT_MAX: u64 = 1 << 20;
const REGION_BYTES_PER_OUTPUT_BYTE: u64 = 1 << 10;

/// Bytes of choices of sources that always find space in a region of this size.
pub fn outputs_kept_bytes(region_bytes: u64) -> u64 {
    (region_bytes / REGION_BYTES_PER_OUTPUT_BYTE).clamp(OUTPUTS_KEPT_MIN, OUTPUTS_KEPT_MAX)
}

// A superblock and the ring's note behind it share a copy; copies lie in different pages, so that no torn page hits both.
const _: () = assert!(SUPERBLOCK_AREA_BYTES.is_multiple_of(2 * 4096) && SEGMENT_HEADER_BYTES.is_multiple_of(4096));
// Default sizes stay within those that can be.
const _: () = assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_DEFAULT_MIN && SEGMENTS_MIN as u64 <= SEGMENTS_DEFAULT);
// Each class leaves the next one its reserve, and a region has room beyond all reserves.
const _: () = assert!(RESERVE_DECISIONS + RESERVE_EVACUATION + RESERVE_EXISTING < SEGMENTS_MIN);
// The smallest segment has room for its header and at least one record of some size.
const _: () = assert!(SEGMENT_BYTES_MIN > 2 * SEGMENT_HEADER_BYTES as u64);
// A key and the slot head fit into a slot of one and a half cache lines.
const _: () = assert!(SLOT_HEAD_BYTES + KEY_BYTES_MAX <= 96);
// Payload offsets are stored as 32-bit counts of PAYLOAD_ALIGN: 256 GiB per segment.
const _: () = assert!(PAYLOAD_ALIGN.is_power_of_two() && SEGMENT_HEADER_BYTES.is_multiple_of(PAYLOAD_ALIGN));
