//! Comparing the content of a container with itself: its directory, the heads of its images, their payloads.
//!
//! *On failure*: what does not verify is named and the next thing is looked at.

use super::buffer::Buffer;
use super::container::Phase;
use super::device::BLOCK_BYTES;
use super::forward::ForwardReader;
use super::reclaim::read_all;
use super::request::ImagePlace;
use super::space::Warm;
use crate::bytes::{Directory, EntryMeta, Image};
use forebay_core::Result;

/// The callback for each fragment: its image, its number in the table, its entry, and what is wrong with its bytes.
pub(crate) type Checked<'c> = dyn FnMut(ImagePlace, &Image<'_>, u32, &EntryMeta<'_>, Option<String>) + 'c;

/// The content of a container.
#[derive(Debug, Default)]
pub struct Seen {
    pub images: u64,
    /// What is wrong with the container as such, and with its images.
    pub problems: Vec<String>,
}

impl Warm {
    /// Whether there can be images in a container.
    pub fn holds(&self, number: u32) -> bool {
        let phase = self.containers.get(number as usize).map(|container| container.phase());
        phase.is_some_and(|phase| !matches!(phase, Phase::Empty | Phase::Reclaiming | Phase::Lost))
    }

    /// Tells every fragment of a container. With `deep` the heads of images and all payloads are read; without, nothing
    /// is found wrong with their bytes.
    ///
    /// # Errors
    /// `Unavailable` where the device does not give the bytes.
    pub fn verify(&self, number: u32, deep: bool, each: &mut Checked<'_>) -> Result<Seen> {
        let (container, device, file) = self.container(number)?;
        let (name, seed) = (self.describe(number), container.seed(&self.store));
        let mut seen = Seen::default();
        if !self.directory_verifies(number)? {
            seen.problems.push(format!("{name}: its directory does not verify; its extents say what is there"));
        }
        let mut reader = ForwardReader::new(device.as_ref(), file, self.shape.container_bytes);
        let scan = self.scan(container, device.as_ref(), file, 0);
        self.images_of(number, &mut |place, image| {
            seen.images += 1;
            // The image was told from the directory: its own head and table, which every read needs, may have rotted since.
            let mut readable = true;
            if deep {
                let meta = reader.get(place.position, image.head.meta_bytes as usize).ok().flatten();
                let there = meta.and_then(|meta| self.layout.decode(meta, seed, place.position));
                readable = there.is_some_and(|there| there.head == image.head && there.primary == image.primary);
            }
            if !readable {
                let at = place.position;
                seen.problems.push(format!("{name}: the head or the table of the image at {at} does not verify"));
            }
            for (index, (entry, offset)) in image.table().enumerate() {
                let at = place.position + offset;
                let wrong = if deep {
                    let verifies = scan.payload_verifies(&mut reader, at, u64::from(entry.length), entry.crc);
                    let why = match verifies {
                        Ok(true) => None,
                        Ok(false) => Some("its bytes do not match their checksum".to_owned()),
                        Err(error) => Some(format!("cannot be read: {error}")),
                    };
                    why.map(|why| format!("{name} at {at}: {why}"))
                } else {
                    None
                };
                each(place, image, index as u32, &entry, wrong);
            }
            Ok(())
        })?;
        Ok(seen)
    }

    /// Whether the directory of a closed container can be used; `true` if there is none.
    fn directory_verifies(&self, number: u32) -> Result<bool> {
        let (container, device, file) = self.container(number)?;
        let header = *container.header.lock();
        let Some(place) = header.directory.filter(|_| container.phase() != Phase::Poisoned) else { return Ok(true) };
        let mut bytes = Buffer::new((place.bytes as usize).next_multiple_of(BLOCK_BYTES));
        // Unreadable is as bad as wrong, and both cost only time: the extents say the same.
        if read_all(device.as_ref(), file, place.offset, &mut bytes).is_err() {
            return Ok(false);
        }
        let directory = Directory::decode(&bytes, self.layout, container.seed(&self.store), place.offset);
        let sound = directory.is_ok_and(|directory| directory.iter().all(|image| image.is_ok()));
        Ok(sound && Directory::crc_of(&bytes) == Some(place.crc))
    }
}
