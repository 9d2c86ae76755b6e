//! Frames of one link that go to a device together: filled by the link, one extent on the medium.
//!
//! *Invariants*: frames of an image are of one era, their ticks go up; payloads are at multiples of 8.

use super::books::Contents;
use super::limits::{
    ERAS_MAX, EXTENT_OVERHEAD_BYTES, FRAME_OVERHEAD_BYTES, IMAGE_FRAMES_MAX, PRIMARY_BYTES, SOURCE_BYTES_MAX,
};
use super::pool::Lent;
use forebay_media::bytes::{EntryFlags, EntryMeta};
use forebay_media::hot::checksum;
use forebay_media::warm::EntryDraft;
use std::time::Instant;

/// One frame's place in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) tick: [u8; 8],
    pub(super) span: u32,
    pub(super) at: u32,
    pub(super) length: u32,
    pub(super) crc: u32,
    /// Number of the reason of the gap before it, 0 if there is none.
    pub(super) gap_code: u16,
}

/// A frame as the table of its image says it. The table's bytes are those of an event's fragments (`docs/format-container.md`),
/// whose fields a recording uses for other things: here they have their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameEntry {
    /// First tick; in the place where an event has the sub-keys of a fragment, big-endian, so that it sorts as a key does.
    pub(super) tick: u64,
    /// Ticks covered; in the field that an event store uses for the producer's status.
    pub(super) span: u32,
    /// Number of the reason of the gap before it, 0 without one; in the field that an event store uses for the version:
    /// no frame is ever updated.
    pub(super) gap_code: u16,
}

impl FrameEntry {
    /// What an entry says; `None` where its key is not that of a frame.
    pub(super) fn of(entry: &EntryMeta<'_>) -> Option<FrameEntry> {
        let tick = entry.rest.try_into().map(u64::from_be_bytes).ok()?;
        Some(FrameEntry { tick, span: entry.status, gap_code: entry.version })
    }

    /// The tick after the last one; `None` past the end of 64 bits.
    pub(super) fn end(&self) -> Option<u64> {
        self.tick.checked_add(u64::from(self.span))
    }
}

impl Frame {
    /// The entry that the image gets for it, with its bytes.
    pub(super) fn draft<'a>(&'a self, payload: &'a [u8]) -> EntryDraft<'a> {
        let Frame { tick, span, crc, gap_code, .. } = self;
        let (status, version) = (*span, *gap_code);
        let draft = EntryDraft { rest: tick, payload, crc: *crc, status, version, flags: EntryFlags::FRAGMENT };
        debug_assert_eq!(payload.len(), self.length as usize, "the bytes of another frame");
        draft
    }
}

/// Frames of one link.
pub(super) struct Image {
    pub(super) link: u32,
    pub(super) number: u32,
    pub(super) primary: [u8; PRIMARY_BYTES],
    pub(super) frames: Vec<Frame>,
    pub(super) contents: Contents,
    pub(super) began: Instant,
    /// Failed writes so far, on this device.
    pub(super) attempts: u32,
    /// Devices that it was passed on from.
    pub(super) hops: usize,
    buffer: Lent,
    used: usize,
}

impl Image {
    pub(super) fn new(link: u32, source: &[u8], era: u32, number: u32, buffer: Lent) -> Image {
        Image {
            link,
            number,
            primary: primary(source, era, number),
            frames: Vec::new(),
            contents: Contents { era, ..Contents::default() },
            began: Instant::now(),
            attempts: 0,
            hops: 0,
            buffer,
            used: 0,
        }
    }

    /// Longest payload of a frame in an extent of this length.
    pub(super) fn payload_max(extent_bytes: usize) -> usize {
        extent_bytes - EXTENT_OVERHEAD_BYTES - FRAME_OVERHEAD_BYTES
    }

    /// Whether one more frame of this length keeps the extent within its bytes.
    pub(super) fn has_room(&self, length: usize) -> bool {
        // Reckoned as the extent will be, table and heads included: an image that does not fit would be refused by the writer,
        // long after its frames were answered as written.
        let frames = self.frames.len() + 1;
        let payload = self.used + length.next_multiple_of(8);
        frames <= IMAGE_FRAMES_MAX
            && payload + frames * FRAME_OVERHEAD_BYTES + EXTENT_OVERHEAD_BYTES <= self.buffer.len()
    }

    /// Adds a frame, for which there is room: `fill` writes its bytes where they go to the device from.
    #[inline]
    pub(super) fn add(&mut self, tick: u64, span: u32, gap_code: u16, length: usize, fill: impl FnOnce(&mut [u8])) {
        debug_assert!(self.has_room(length), "a frame of {length} bytes does not fit its extent");
        let at = self.used;
        let Some(payload) = self.buffer.get_mut(at..at + length) else { return };
        fill(payload);
        // Made where the bytes are in the cache; the writer compares it while it copies them, so that memory that changes in
        // between is found and not recorded.
        let crc = checksum(payload);
        // Aligned as in the image, so that the writer copies payload after payload without a look at where each belongs.
        self.used = (at + length).next_multiple_of(8);
        let (at, length) = (at as u32, length as u32);
        self.frames.push(Frame { tick: tick.to_be_bytes(), span, at, length, crc, gap_code });
        self.contents.add(tick, tick + u64::from(span), u64::from(length));
    }

    /// Bytes that it takes on the medium, about.
    pub(super) fn bytes(&self) -> u64 {
        (self.used + self.frames.len() * FRAME_OVERHEAD_BYTES + EXTENT_OVERHEAD_BYTES) as u64
    }

    /// The bytes of a frame.
    pub(super) fn payload(&self, frame: &Frame) -> &[u8] {
        self.buffer.get(frame.at as usize..frame.at as usize + frame.length as usize).unwrap_or_default()
    }
}

/// The primary key of an image: source, padded with zeros, era, number.
// Era and number are big-endian, so that the order of keys is the order in which the link made its images.
pub(super) fn primary(source: &[u8], era: u32, number: u32) -> [u8; PRIMARY_BYTES] {
    debug_assert!(source.len() <= SOURCE_BYTES_MAX && era < ERAS_MAX as u32, "a key that does not read back");
    let mut primary = [0; PRIMARY_BYTES];
    let length = source.len().min(SOURCE_BYTES_MAX);
    primary[..length].copy_from_slice(&source[..length]);
    primary[SOURCE_BYTES_MAX..SOURCE_BYTES_MAX + 2].copy_from_slice(&(era as u16).to_be_bytes());
    primary[SOURCE_BYTES_MAX + 2..].copy_from_slice(&number.to_be_bytes());
    primary
}

/// Padded source, era and number of a primary key; `None` for one that no recording made.
pub(super) fn names(primary: &[u8]) -> Option<([u8; SOURCE_BYTES_MAX], u32, u32)> {
    let primary: &[u8; PRIMARY_BYTES] = primary.try_into().ok()?;
    let (source, tail) = primary.split_first_chunk::<SOURCE_BYTES_MAX>()?;
    let (era, number) = tail.split_first_chunk::<2>()?;
    let number: [u8; 4] = number.try_into().ok()?;
    Some((*source, u16::from_be_bytes(*era).into(), u32::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn a_frame_reads_back_from_its_entry() {
        let frame = Frame { tick: 77_u64.to_be_bytes(), span: 5, at: 0, length: 3, crc: 9, gap_code: 2 };
        let draft = frame.draft(&[1, 2, 3]);
        let EntryDraft { rest, crc, status, version, flags, .. } = draft;
        let entry = EntryMeta { rest, length: 3, crc, status, version, flags };
        let read = FrameEntry::of(&entry).unwrap();
        assert_eq!(read, FrameEntry { tick: 77, span: 5, gap_code: 2 });
        assert_eq!((read.end(), FrameEntry { tick: u64::MAX, ..read }.end()), (Some(82), None));
        assert_eq!(FrameEntry::of(&EntryMeta { rest: &rest[1..], ..entry }), None);
    }

    #[test]
    fn primary_keys_read_back() {
        let key = primary(&[1, 2, 3], 7, 1 << 30);
        let mut source = [0; SOURCE_BYTES_MAX];
        source[..3].copy_from_slice(&[1, 2, 3]);
        assert_eq!(names(&key), Some((source, 7, 1 << 30)));
        assert_eq!(names(&key[1..]), None);
    }

    #[test]
    fn an_image_takes_what_fits_its_extent() {
        let pool = Pool::new(16 << 10);
        pool.allow(1);
        let mut image = Image::new(0, &[9], 0, 0, pool.take(None).unwrap());
        let mut frames = 0_u64;
        while image.has_room(100) {
            image.add(frames * 5, 5, 0, 100, |bytes| bytes.fill(frames as u8));
            frames += 1;
        }
        assert_eq!(frames, (16384 - 256) / (104 + 32));
        for (at, frame) in image.frames.iter().enumerate() {
            assert_eq!(image.payload(frame), vec![at as u8; 100]);
            assert_eq!(frame.crc, forebay_core::crc32c(image.payload(frame)));
        }
        assert_eq!(
            (image.contents.frames(), image.contents.bytes, image.contents.runs.len()),
            (frames, 100 * frames, 1)
        );
        let longest = Image::payload_max(16 << 10);
        let pool = Pool::new(16 << 10);
        pool.allow(1);
        let image = Image::new(0, &[9], 0, 0, pool.take(None).unwrap());
        assert!(image.has_room(longest - 8) && !image.has_room(longest + 1));
    }
}
