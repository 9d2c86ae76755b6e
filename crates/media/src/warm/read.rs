//! Reading images: one read for a whole event where its size is known.
//!
//! *Invariants*: head, primary key and table verify before anything is answered; `ReadImage::payload` compares a payload
//! with its checksum before it gives it out, `ReadImage::payload_at` leaves that to its caller.
//!
//! *On failure*: `Corrupt` names the place; `Unavailable` where the device does not give the bytes.

use super::buffer::Buffer;
use super::container::Phase;
use super::device::BLOCK_BYTES;
use super::reclaim::read_all;
use super::request::ImagePlace;
use super::space::Warm;
use crate::bytes::{CONTAINER_DATA_OFFSET, Entry, EntryMeta, Image, ImageHead, TableIter};
use crate::hot::checksum;
use forebay_core::{Error, Key, Result};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Read first where only one fragment is wanted; images up to the second size are read whole, in bytes.
// The table of 400 fragments; one read of 16 KiB takes a disk about as long as one of 4 KiB.
const META_BYTES_FIRST: usize = 16 << 10;
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// Read where nothing is known of an image's size, in bytes.
const HINT_BYTES_MIN: u64 = BLOCK_BYTES as u64;

/// An image in memory. Its buffer goes back for the next read when it is dropped.
pub struct ReadImage {
    /// Where it was read.
    pub place: ImagePlace,
    /// What its head says.
    pub head: ImageHead,
    warm: Arc<Warm>,
    buffer: Option<Buffer>,
    /// Where the image begins in the buffer.
    start: usize,
    /// Bytes of the image in the buffer: all of it, or its meta.
    have: usize,
    /// One payload that was read by itself: its number, its blocks, where it begins and ends in them.
    part: Option<(u32, Buffer, Range<usize>)>,
    /// Where each payload begins in the image: found when the first one is asked for.
    offsets: OnceLock<Vec<u64>>,
}

impl Warm {
    /// Reads an image. `hint_bytes` is what it is thought to take: one read where that is enough, two otherwise. The
    /// place must be durable and its container pinned, or live under a lock that keeps it so.
    ///
    /// # Errors
    /// `Corrupt` where head or table do not verify; `Unavailable` where the device does not give the bytes.
    pub fn read(self: &Arc<Warm>, place: ImagePlace, hint_bytes: u64) -> Result<Arc<ReadImage>> {
        let (container, ..) = self.container(place.container)?;
        let corrupt = |what: &str| {
            Error::corrupt(format!("image at {} of {}: {what}", place.position, self.describe(place.container)))
        };
        let room = self.shape.container_bytes.checked_sub(place.position).filter(|room| {
            *room >= ImageHead::BYTES as u64
                && place.position >= CONTAINER_DATA_OFFSET
                && place.position.is_multiple_of(crate::bytes::IMAGE_ALIGN)
        });
        // A place of an earlier filling: the checksum would refuse it as well, after a read.
        let room = room.filter(|_| !matches!(container.phase(), Phase::Empty | Phase::Reclaiming));
        let room = room.ok_or_else(|| corrupt("no image can be there"))?;
        let start = (place.position % BLOCK_BYTES as u64) as usize;
        let mut have = hint_bytes.clamp(HINT_BYTES_MIN, room.max(HINT_BYTES_MIN)).min(room) as usize;
        let mut buffer = self.pool.take(start + have);
        have = self.read_into(place, &mut buffer, 0, start + have)? - start;
        let head = ImageHead::peek(&buffer[start..start + have]).ok_or_else(|| corrupt("its head does not verify"))?;
        // Not verified yet: the length decides only how much is read, and is bounded before it allocates anything.
        if head.bytes > room {
            return Err(corrupt("its head names more bytes than its container has"));
        }
        let whole = head.bytes as usize;
        if whole > have {
            let mut larger = self.pool.take(start + whole);
            let known = start + have;
            larger[..known].copy_from_slice(&buffer[..known]);
            self.pool.give(std::mem::replace(&mut buffer, larger));
            self.read_into(place, &mut buffer, known, start + whole)?;
        }
        debug_assert!(place.position + head.bytes <= self.shape.container_bytes, "an image past its container's end");
        let seed = container.seed(&self.store);
        let verified = self.layout.decode(&buffer[start..start + whole], seed, place.position);
        let head = verified.filter(|image| !image.head.void).map(|image| image.head);
        let head = head.ok_or_else(|| corrupt("its head or its table does not verify"))?;
        Ok(Arc::new(ReadImage {
            place,
            head,
            warm: self.clone(),
            buffer: Some(buffer),
            start,
            have: whole,
            part: None,
            offsets: OnceLock::new(),
        }))
    }

    /// Reads an image for the sake of one fragment: of a large one only its meta and that payload.
    ///
    /// # Errors
    /// As [`Warm::read`].
    pub fn read_fragment(self: &Arc<Warm>, place: ImagePlace, index: u32) -> Result<Arc<ReadImage>> {
        let corrupt = |what: &str| {
            Error::corrupt(format!("image at {} of {}: {what}", place.position, self.describe(place.container)))
        };
        let (container, ..) = self.container(place.container)?;
        let start = (place.position % BLOCK_BYTES as u64) as usize;
        let room = self.shape.container_bytes.saturating_sub(place.position);
        let mut have = (META_BYTES_FIRST as u64).min(room) as usize;
        let mut buffer = self.pool.take(start + have);
        have = self.read_into(place, &mut buffer, 0, start + have)? - start;
        let head = ImageHead::peek(&buffer[start..start + have]).ok_or_else(|| corrupt("its head does not verify"))?;
        // A small image is read whole: the second read for the fragment alone would cost more than the bytes. A head that
        // names too many bytes goes the same way, which says what is wrong.
        if head.bytes <= WHOLE_BYTES_MAX || head.bytes > room {
            self.pool.give(buffer);
            return self.read(place, head.bytes.min(WHOLE_BYTES_MAX));
        }
        let meta = head.meta_bytes as usize;
        if meta > have {
            let mut larger = self.pool.take(start + meta);
            larger[..start + have].copy_from_slice(&buffer[..start + have]);
            self.pool.give(std::mem::replace(&mut buffer, larger));
            have = self.read_into(place, &mut buffer, start + have, start + meta)? - start;
        }
        let seed = container.seed(&self.store);
        let image = self.layout.decode(&buffer[start..start + have], seed, place.position);
        let image = image.filter(|image| !image.head.void).ok_or_else(|| corrupt("its meta does not verify"))?;
        let found = image.table().nth(index as usize);
        let (entry, offset) = found.ok_or_else(|| corrupt(&format!("it has no fragment {index}")))?;
        let at = ImagePlace { position: place.position + offset, ..place };
        let begin = (at.position % BLOCK_BYTES as u64) as usize;
        let end = begin + entry.length as usize;
        let mut blocks = self.pool.take(end.max(1));
        self.read_into(at, &mut blocks, 0, end.max(1))?;
        Ok(Arc::new(ReadImage {
            place,
            head,
            warm: self.clone(),
            buffer: Some(buffer),
            start,
            have: meta,
            part: Some((index, blocks, begin..end)),
            offsets: OnceLock::new(),
        }))
    }

    /// Reads whole blocks into the buffer from `from` (a block's beginning) up to the block in which `to` lies; answers
    /// where in the buffer the bytes end.
    fn read_into(&self, place: ImagePlace, buffer: &mut Buffer, from: usize, to: usize) -> Result<usize> {
        let (container, device, file) = self.container(place.container)?;
        let to = to.next_multiple_of(BLOCK_BYTES);
        let offset = place.position / BLOCK_BYTES as u64 * BLOCK_BYTES as u64 + from as u64;
        read_all(device.as_ref(), file, offset, &mut buffer[from..to]).map_err(|error| {
            let name = self.describe(place.container);
            Error::unavailable(format!("{name}: {} bytes at {offset} cannot be read", to - from)).with_source(error)
        })?;
        self.devices[container.device as usize].counters.read((to - from) as u64);
        Ok(to)
    }
}

impl ReadImage {
    /// Head, primary key, table and payloads.
    pub fn bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        &buffer[self.start..self.start + self.have]
    }

    fn image(&self) -> Option<Image<'_>> {
        self.warm.layout.view(self.head, self.bytes())
    }

    /// The event's packed primary key.
    pub fn primary(&self) -> &[u8] {
        self.image().map_or(&[], |image| image.primary)
    }

    /// A fragment's entry, by its number in the table.
    ///
    /// # Errors
    /// `Corrupt` where the table has no such number.
    pub fn entry(&self, index: u32) -> Result<Entry> {
        let layout = self.warm.layout;
        let absent = || Error::corrupt(format!("an image without a fragment {index}"));
        let image = self.image().ok_or_else(absent)?;
        let meta = image.entry(index).ok_or_else(absent)?;
        let mut key = [0; forebay_core::limits::KEY_BYTES_MAX];
        key[..image.primary.len()].copy_from_slice(image.primary);
        let bytes = layout.primary_bytes() + layout.rest_bytes();
        key[layout.primary_bytes()..bytes].copy_from_slice(meta.rest);
        Ok(Entry {
            key: Key::from_packed(&key[..bytes]),
            offset: 0,
            length: meta.length,
            payload_crc: meta.crc,
            status: meta.status,
            version: meta.version,
            flags: meta.flags,
        })
    }

    /// A fragment's bytes, by its number in the table; not compared with their checksum.
    ///
    /// # Errors
    /// `Corrupt` where the table has no such number.
    pub fn payload_at(&self, index: u32) -> Result<&[u8]> {
        if let Some((number, blocks, range)) = &self.part
            && *number == index
        {
            return Ok(&blocks[range.clone()]);
        }
        let offsets = self
            .offsets
            .get_or_init(|| self.table().map(|table| table.map(|(_, offset)| offset).collect()).unwrap_or_default());
        let absent = || Error::corrupt(format!("an image without a fragment {index}"));
        let offset = *offsets.get(index as usize).ok_or_else(absent)? as usize;
        let length = self.image().and_then(|image| image.entry(index)).ok_or_else(absent)?.length as usize;
        self.bytes().get(offset..offset + length).ok_or_else(absent)
    }

    /// All entries, each with its payload's offset from the image's start.
    pub fn table(&self) -> Option<TableIter<'_>> {
        self.image().map(|image| image.table())
    }

    /// The fragment with these remaining sub-keys, and where in [`ReadImage::bytes`] its payload is; of several
    /// versions the highest.
    #[cfg(test)]
    pub fn find(&self, rest: &[u8]) -> Option<(EntryMeta<'_>, std::ops::Range<usize>)> {
        let of_key = |entry: &(EntryMeta<'_>, u64)| entry.0.rest == rest && entry.0.flags.is_fragment();
        let (meta, offset) = self.table()?.filter(of_key).max_by_key(|entry| entry.0.version)?;
        Some((meta, offset as usize..offset as usize + meta.length as usize))
    }

    /// The payload of an entry, once it is found right.
    ///
    /// # Errors
    /// `Corrupt` where it does not have its checksum.
    pub fn payload(&self, entry: &EntryMeta<'_>, offset: u64) -> Result<&[u8]> {
        let payload = self.bytes().get(offset as usize..offset as usize + entry.length as usize).unwrap_or_default();
        if payload.len() == entry.length as usize && checksum(payload) == entry.crc {
            return Ok(payload);
        }
        Err(Error::corrupt(format!(
            "fragment {:02x?} of event {:02x?} at {} of {}: its bytes do not verify",
            entry.rest,
            self.primary(),
            self.place.position + offset,
            self.warm.describe(self.place.container)
        )))
    }
}

impl Drop for ReadImage {
    fn drop(&mut self) {
        let part = self.part.take().map(|part| part.1);
        self.buffer.take().into_iter().chain(part).for_each(|buffer| self.warm.pool.give(buffer));
    }
}
