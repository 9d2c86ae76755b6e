//! The tail scan: what is in a container that was not closed.
//!
//! ```text
//! head ─▶ head ─▶ head ─▶ ✗ … look ahead, block by block … ─▶ head?       C = the furthest `committed` of all heads
//! extents that end at C or before: committed. After C: doubtful, each image is told only where its payloads verify
//! ```
//!
//! *Invariants*: an image of a committed extent is told or named as lost; an image that was perhaps never acknowledged is
//! told only where all of it verifies. One that does not verify there was never acknowledged, or has rotted since: nobody
//! can tell, so it is noted and stops nothing.

use super::device::{Device, FileId};
use super::forward::ForwardReader;
use crate::bytes::{
    CONTAINER_BLOCK_BYTES, CONTAINER_DATA_OFFSET, ContainerSeed, ExtentHead, IMAGE_ALIGN, Image, ImageHead, ImageLayout,
};
use crate::hot::checksum;
use std::io;

/// Payloads are compared in pieces of this length, so that a fragment of gigabytes needs no buffer of that size.
const PIECE_BYTES: u64 = 1 << 20;

/// One container to be scanned.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) file: FileId,
    pub(super) container_bytes: u64,
    pub(super) seed: ContainerSeed,
    pub(super) layout: ImageLayout,
    /// Everything before is known to have been durable.
    pub(super) committed: u64,
}

/// An extent that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) position: u64,
    pub(super) head: ExtentHead,
    /// Whether it was committed is not known.
    pub(super) doubtful: bool,
}

/// From, to.
pub(super) type Gap = (u64, u64);

/// The content of a container.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) extents: Vec<Extent>,
    /// Where acknowledged extents must have been that do not verify.
    pub(super) lost: Vec<Gap>,
    /// End of the last extent that counts.
    pub(super) data_end: u64,
}

impl Scan<'_> {
    /// Walks the heads.
    pub(super) fn run(&self) -> io::Result<Scanned> {
        let (heads, gaps) = self.heads()?;
        debug_assert!(heads.is_sorted_by_key(|extent| extent.position), "heads are found front to back");
        // The furthest of all heads, not that of the last one: the last may be the one that is torn.
        let committed = heads.iter().map(|extent| extent.head.committed).max().unwrap_or(0).max(self.committed);
        let lost = gaps.into_iter().filter(|(from, _)| *from < committed).collect();
        let mut extents = heads;
        for extent in &mut extents {
            // An extent counts as committed only as a whole: its end was durable, so all of it was.
            extent.doubtful = extent.position + extent.head.bytes > committed;
        }
        let data_end = extents.last().map_or(CONTAINER_DATA_OFFSET, |last| last.position + last.head.bytes);
        // Where even the last extents are gone, the space up to what was committed is no free space.
        Ok(Scanned { extents, lost, data_end: data_end.max(committed.min(self.container_bytes)) })
    }

    /// All heads that verify, and where one should have been and is not: from there to the next one.
    fn heads(&self) -> io::Result<(Vec<Extent>, Vec<Gap>)> {
        let mut reader = ForwardReader::new(self.device, self.file, self.container_bytes);
        let (mut extents, mut gaps) = (Vec::new(), Vec::new());
        let mut position = CONTAINER_DATA_OFFSET;
        let mut gap = None;
        while let Some(bytes) = reader.get(position, ExtentHead::BYTES)? {
            let head = ExtentHead::decode(bytes, self.seed, position)
                .filter(|head| position.checked_add(head.bytes).is_some_and(|end| end <= self.container_bytes));
            match head {
                Some(head) => {
                    gaps.extend(gap.take().map(|from| (from, position)));
                    extents.push(Extent { position, head, doubtful: false });
                    position += head.bytes;
                }
                None => {
                    // Block by block to the end of the container: extents behind one that rots are found by their heads, which
                    // begin at blocks. Old bytes are no danger, because the generation is in every checksum.
                    gap.get_or_insert(position);
                    position += CONTAINER_BLOCK_BYTES;
                }
            }
        }
        // After the last head all is free space, or what nobody can know of.
        gaps.extend(gap.map(|from| (from, self.container_bytes)));
        Ok((extents, gaps))
    }

    /// Whether every payload of the image at a position has its checksum.
    fn payloads_verify(&self, reader: &mut ForwardReader<'_>, position: u64, meta_bytes: u32) -> io::Result<bool> {
        let Some(meta) = reader.get(position, meta_bytes as usize)? else { return Ok(false) };
        let Some(image) = self.layout.decode_verified(meta) else { return Ok(false) };
        // Copied out: the view moves on to the payloads, and the table goes with what it showed.
        let payloads: Vec<(u32, u32, u64)> =
            image.table().map(|(entry, offset)| (entry.length, entry.crc, offset)).collect();
        for (length, crc, offset) in payloads {
            if !self.payload_verifies(reader, position + offset, u64::from(length), crc)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn payload_verifies(
        &self,
        reader: &mut ForwardReader<'_>,
        position: u64,
        length: u64,
        crc: u32,
    ) -> io::Result<bool> {
        // A fragment of no bytes has the checksum of nothing, 0, which no piece is read for.
        let (mut made, mut done) = (0, 0);
        while done < length {
            let piece = (length - done).min(PIECE_BYTES);
            let Some(bytes) = reader.get(position + done, piece as usize)? else { return Ok(false) };
            made = if done == 0 { checksum(bytes) } else { forebay_core::crc32c_append(made, bytes) };
            done += piece;
        }
        Ok(made == crc)
    }

    /// The image at a position, where one verifies that ends before `end`.
    fn image<'w>(&self, reader: &'w mut ForwardReader<'_>, position: u64, end: u64) -> io::Result<Option<Image<'w>>> {
        let Some(head) = reader.get(position, ImageHead::BYTES)?.and_then(ImageHead::peek) else { return Ok(None) };
        let fits = position.checked_add(head.bytes).is_some_and(|image_end| image_end <= end);
        if !fits || head.bytes == 0 {
            return Ok(None);
        }
        let meta = reader.get(position, head.meta_bytes as usize)?;
        Ok(meta.and_then(|meta| self.layout.decode(meta, self.seed, position)))
    }

    /// Tells every image of an extent, void ones left out. Where one does not verify it is named to `lost`, and the
    /// next one is looked for.
    pub(super) fn images<E>(
        &self,
        extent: &Extent,
        mut each: impl FnMut(u64, &Image<'_>, &[u8]) -> Result<(), E>,
        mut lost: impl FnMut(u64),
    ) -> io::Result<Result<(), E>> {
        let mut reader = ForwardReader::new(self.device, self.file, self.container_bytes);
        let mut position = extent.position + ExtentHead::BYTES as u64;
        let end = extent.position + extent.head.bytes;
        let (mut told, mut searching) = (0, false);
        debug_assert!(end <= self.container_bytes, "an extent past the end of its container");
        while told < extent.head.images && position + ImageHead::BYTES as u64 <= end {
            let found = self.image(&mut reader, position, end)?;
            let Some((bytes, meta_bytes, void)) =
                found.map(|image| (image.head.bytes, image.head.meta_bytes, image.head.void))
            else {
                if !searching {
                    lost(position);
                    // One at least is gone; where there were more, the extent ends without them.
                    told += 1;
                }
                searching = true;
                position += IMAGE_ALIGN;
                continue;
            };
            searching = false;
            told += 1;
            // A committed image counts by its head and table; its payloads are compared when they are read. Of a doubtful one
            // the head may have reached the medium and the payload not, so all of it is read.
            if extent.doubtful && !self.payloads_verify(&mut reader, position, meta_bytes)? {
                lost(position);
            } else if !void
                && let Some(meta) = reader.get(position, meta_bytes as usize)?
                && let Some(image) = self.layout.decode_verified(meta)
                && let Err(error) = each(position, &image, meta)
            {
                return Ok(Err(error));
            }
            position += bytes;
        }
        Ok(Ok(()))
    }
}
