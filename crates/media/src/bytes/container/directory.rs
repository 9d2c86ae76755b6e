//! The directory of a closed container: the meta of every image in it, so that opening reads no payload.
//!
//! ```text
//! head:  magic 4 | crc 4 | version 4 | images 4 | bytes 8 | zero 8
//! entry: position / 16, 4 | meta_bytes 4 | meta, as the image has it
//! ```
//!
//! *Invariants*: one checksum covers all of it after the crc, seeded with its position.

use super::image::{Image, ImageLayout};
use super::{ContainerSeed, IMAGE_ALIGN, set, u32_at, u64_at, zero};
use forebay_core::{Error, Result};

const MAGIC: [u8; 4] = *b"FBDR";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
const ENTRY_HEAD_BYTES: usize = 8;

/// A directory that grows while its container is filled.
#[derive(Clone, Debug)]
pub struct DirectoryBuilder {
    bytes: Vec<u8>,
    images: u32,
}

impl Default for DirectoryBuilder {
    fn default() -> DirectoryBuilder {
        DirectoryBuilder::new()
    }
}

impl DirectoryBuilder {
    /// A directory without images.
    pub fn new() -> DirectoryBuilder {
        DirectoryBuilder { bytes: vec![0; HEAD_BYTES], images: 0 }
    }

    /// Bytes so far, head included.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether no image is in it.
    pub fn is_empty(&self) -> bool {
        self.images == 0
    }

    /// Bytes that an image with this length of meta adds.
    pub fn entry_bytes(meta_bytes: u64) -> u64 {
        ENTRY_HEAD_BYTES as u64 + meta_bytes
    }

    /// Adds an image by its position (a multiple of [`IMAGE_ALIGN`]) and its meta.
    pub fn push(&mut self, position: u64, meta: &[u8]) {
        debug_assert!(position.is_multiple_of(IMAGE_ALIGN), "the entry keeps positions in units of {IMAGE_ALIGN}");
        self.bytes.extend_from_slice(&((position / IMAGE_ALIGN) as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(meta);
        self.images += 1;
    }

    /// The whole directory for this position of the container, and its checksum.
    pub fn seal(mut self, seed: ContainerSeed, position: u64) -> (Vec<u8>, u32) {
        let bytes = self.bytes.len() as u64;
        set(&mut self.bytes, 0, MAGIC);
        set(&mut self.bytes, 8, VERSION.to_le_bytes());
        set(&mut self.bytes, 12, self.images.to_le_bytes());
        set(&mut self.bytes, 16, bytes.to_le_bytes());
        let crc = seed.checksum(position, &self.bytes[8..]);
        set(&mut self.bytes, 4, crc.to_le_bytes());
        (self.bytes, crc)
    }
}

/// A directory whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    /// Images in it.
    pub images: u32,
    layout: ImageLayout,
    entries: &'a [u8],
}

impl<'a> Directory<'a> {
    /// Reads a directory. `bytes` may be longer than it.
    ///
    /// # Errors
    /// `Invalid` for another version; `Corrupt` where it does not verify at this position of this filling.
    pub fn decode(bytes: &'a [u8], layout: ImageLayout, seed: ContainerSeed, position: u64) -> Result<Directory<'a>> {
        let head = bytes.get(..HEAD_BYTES).ok_or_else(|| Error::corrupt("directory: too short"))?;
        let length = usize::try_from(u64_at(head, 16)).unwrap_or(usize::MAX);
        let whole = bytes.get(..length).filter(|whole| whole.len() >= HEAD_BYTES);
        let verified = |whole: &&[u8]| whole[..4] == MAGIC && seed.checksum(position, &whole[8..]) == u32_at(whole, 4);
        let whole = whole.filter(verified).ok_or_else(|| Error::corrupt("directory: does not verify"))?;
        if u32_at(whole, 8) != VERSION {
            let version = u32_at(whole, 8);
            return Err(Error::invalid(format!("directory of version {version}; this build reads version {VERSION}")));
        }
        if !zero(&whole[24..HEAD_BYTES]) {
            return Err(Error::corrupt("directory: head with unknown bytes"));
        }
        Ok(Directory { images: u32_at(whole, 12), layout, entries: &whole[HEAD_BYTES..] })
    }

    /// Its checksum, as a head of these bytes has it.
    pub fn crc_of(bytes: &[u8]) -> Option<u32> {
        bytes.get(..HEAD_BYTES).map(|head| u32_at(head, 4))
    }

    /// The images in it, in the order of their positions, without any allocation.
    pub fn iter(&self) -> DirectoryIter<'a> {
        DirectoryIter { layout: self.layout, entries: self.entries, left: self.images }
    }
}

/// Images of a directory: each its position in bytes from the container's start, and its meta.
#[derive(Clone, Debug)]
pub struct DirectoryIter<'a> {
    layout: ImageLayout,
    entries: &'a [u8],
    left: u32,
}

impl<'a> DirectoryIter<'a> {
    fn take(&mut self) -> Option<(u64, Image<'a>)> {
        let (head, after) = self.entries.split_at_checked(ENTRY_HEAD_BYTES)?;
        let (meta, after) = after.split_at_checked(u32_at(head, 4) as usize)?;
        let image = self.layout.decode_verified(meta).filter(|image| image.head.meta_bytes as usize == meta.len())?;
        self.entries = after;
        Some((u64::from(u32_at(head, 0)) * IMAGE_ALIGN, image))
    }
}

impl<'a> Iterator for DirectoryIter<'a> {
    type Item = Result<(u64, Image<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let rest = std::mem::take(&mut self.entries);
            return (!rest.is_empty()).then(|| Err(Error::corrupt("directory: more bytes than images")));
        }
        self.left -= 1;
        let taken = self.take().ok_or_else(|| Error::corrupt("directory: an entry cannot be read"));
        // Lengths chain the entries: behind one that cannot be read there is nothing to go on with.
        if taken.is_err() {
            (self.left, self.entries) = (0, &[]);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::EntryFlags;
    use crate::bytes::{EntryMeta, ImageMarks};
    use forebay_core::Kind;

    const LAYOUT_WIDTHS: (usize, usize) = (8, 4);

    fn sample(images: u32) -> (Vec<u8>, ImageLayout, ContainerSeed) {
        let layout = ImageLayout::new(LAYOUT_WIDTHS.0, LAYOUT_WIDTHS.1);
        let seed = ContainerSeed::new(&[1; 16], 0, 1, 2);
        let mut builder = DirectoryBuilder::new();
        for image in 0..images {
            let position = 8256 + u64::from(image) * 160;
            let rest = [1, 2, 3, image as u8];
            let entry =
                EntryMeta { rest: &rest, length: image, crc: 5, status: 0, version: 0, flags: EntryFlags::FRAGMENT };
            let mut meta = Vec::new();
            let primary = u64::from(image).to_be_bytes();
            layout.encode(ImageMarks::default(), &primary, std::iter::once(entry), None, seed, position, &mut meta);
            builder.push(position, &meta);
            assert_eq!(builder.len(), 32 + u64::from(image + 1) * DirectoryBuilder::entry_bytes(meta.len() as u64));
        }
        assert_eq!(builder.is_empty(), images == 0);
        let (bytes, crc) = builder.seal(seed, 65536);
        assert_eq!(Directory::crc_of(&bytes), Some(crc));
        (bytes, layout, seed)
    }

    #[test]
    fn round_trip() {
        for images in [0, 1, 200] {
            let (mut bytes, layout, seed) = sample(images);
            bytes.resize(bytes.len() + 100, 0);
            let directory = Directory::decode(&bytes, layout, seed, 65536).unwrap();
            let mut count = 0;
            for (at, image) in directory.iter().enumerate() {
                let (position, image) = image.unwrap();
                assert_eq!(position, 8256 + at as u64 * 160);
                assert_eq!(image.primary, (at as u64).to_be_bytes());
                assert_eq!(image.table().next().unwrap().0.length, at as u32);
                count += 1;
            }
            assert_eq!(count, images);
        }
    }

    #[test]
    fn every_bit_matters() {
        let (mut bytes, layout, seed) = sample(2);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Directory::decode(&bytes, layout, seed, 65536).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Directory::decode(&bytes, layout, seed, 61440).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(Directory::decode(&bytes[..20], layout, seed, 65536).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn what_does_not_add_up_ends_with_an_error() {
        let (bytes, layout, seed) = sample(3);
        for (at, value) in [(12, 4_u32), (12, 2), (32 + 4, 8), (32 + 4, u32::MAX)] {
            let mut changed = bytes.clone();
            set(&mut changed, at, value.to_le_bytes());
            let crc = seed.checksum(65536, &changed[8..]);
            set(&mut changed, 4, crc.to_le_bytes());
            let directory = Directory::decode(&changed, layout, seed, 65536).unwrap();
            let results: Vec<bool> = directory.iter().map(|image| image.is_ok()).collect();
            assert_eq!(results.iter().filter(|ok| !**ok).count(), 1, "{at} {value}: {results:?}");
            assert_eq!(results.last(), Some(&false));
        }
    }
}
