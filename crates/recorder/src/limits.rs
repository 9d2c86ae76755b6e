//! Limits of recordings and how they relate.

use forebay_media::warm::BLOCK_BYTES;

/// Default bytes of one container.
pub(super) const CONTAINER_BYTES: u64 = 1 << 30;
/// Default bytes of one extent: long enough that a disk is read at its full rate, short enough to be filled by a link of
/// 220 MB/s in 40 ms.
pub(super) const EXTENT_BYTES: usize = 8 << 20;
/// Smallest extent.
pub(super) const EXTENT_BYTES_MIN: usize = 16 << 10;
/// Largest extent: it is held in memory as a whole.
pub(super) const EXTENT_BYTES_MAX: usize = 256 << 20;
/// Default bytes of one write.
pub(super) const IO_BYTES: usize = 1 << 20;
/// Default extents in memory per link: 270 ms of a WIBEth link.
pub(super) const BUFFERS_PER_LINK: usize = 8;
/// Default bytes from one commit to the next.
pub(super) const COMMIT_BYTES: u64 = 64 << 20;
/// Bytes of each of the two files of a device's decision log: a recording decides nothing.
pub(super) const LOG_BYTES: u64 = 64 << 10;
/// Longest source key, in bytes; shorter ones are padded with zeros on the medium.
pub(super) const SOURCE_BYTES_MAX: usize = 16;
/// Primary key of an image: source, era, number.
pub(super) const PRIMARY_BYTES: usize = SOURCE_BYTES_MAX + 2 + 4;
/// Remaining key of a frame: its first tick.
pub(super) const REST_BYTES: usize = 8;
/// Bytes of an extent that are not payload, beside the frames' table entries: heads, primary key, alignment.
pub(super) const EXTENT_OVERHEAD_BYTES: usize = 256;
/// Bytes that one frame takes beside its payload: table entry and alignment.
pub(super) const FRAME_OVERHEAD_BYTES: usize = REST_BYTES + 16 + 8;
// An image of frames without payload would otherwise be all table, which a reader has to hold whole.
/// Frames of one image: tables stay small against the payload also where frames are empty.
pub(super) const IMAGE_FRAMES_MAX: usize = 1 << 16;
/// Most links of one recording.
pub(super) const LINKS_MAX: usize = 4096;
/// Longest name of a recording or link, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// Gaps kept one by one per link; what comes after that widens the last one, with a count.
pub(super) const GAPS_MAX: usize = 1 << 16;
/// Eras of one link: how often its clock may step back.
pub(super) const ERAS_MAX: usize = 1 << 12;
/// Room that is kept on the first device for the manifest, in bytes: beside what each link may need.
pub(super) const MANIFEST_RESERVE_BYTES: u64 = 64 << 10;
/// The same per link.
pub(super) const MANIFEST_RESERVE_LINK_BYTES: u64 = 4 << 10;
/// Longest manifest or description that is read, in bytes.
pub(super) const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// How often a write that failed is tried again in another container.
pub(super) const ATTEMPTS_MAX: u32 = 3;

// The smallest extent holds its heads and a frame of some size.
const _: () = assert!(EXTENT_BYTES_MIN >= 2 * BLOCK_BYTES && EXTENT_BYTES_MIN > 4 * EXTENT_OVERHEAD_BYTES);
// The default extent is written in whole writes.
const _: () = assert!(EXTENT_BYTES.is_multiple_of(IO_BYTES) && CONTAINER_BYTES > 2 * EXTENT_BYTES as u64);
// A commit is asked for before the buffers of one link run out.
const _: () = assert!(COMMIT_BYTES <= (BUFFERS_PER_LINK * EXTENT_BYTES) as u64);
// Keys fit where any key fits.
const _: () = assert!(PRIMARY_BYTES + REST_BYTES <= forebay_core::limits::KEY_BYTES_MAX);
// A gap's code is the version of an entry, 16 bits of the format, and 0 there is no gap.
const _: () = assert!(super::cause::GapReason::ALL.len() < 1 << 16 && super::cause::GapReason::ALL[0] as u16 > 0);
// Eras are 16 bits of a primary key.
const _: () = assert!(ERAS_MAX <= 1 << 16);
