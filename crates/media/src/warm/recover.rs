//! Opening the warm level: which store the devices belong to, in which state each container was left, what is in them.
//!
//! ```text
//! device.fb ─▶ headers ─▶ full: directory            ┐
//!                        filling, poisoned: tail scan ┴▶ each image: place, head, primary key, table
//! ```
//!
//! *Invariants*: no payload is read of what was closed; a container that was being filled takes no more: it is closed
//! with what is valid.
//!
//! *On failure*: what was acknowledged and cannot be accounted for is named and stops the opening, unless the loss is
//! accepted.

use super::buffer::Buffer;
use super::container::{Container, Phase};
use super::create::{DEVICE_FILE, container_file};
use super::device::{BLOCK_BYTES, Device, FileId};
use super::reclaim::{FoundContent, read_all};
use super::request::{ImagePlace, WarmShape};
use super::scan::{Extent, Scan, Scanned};
use super::space::{DeviceSlot, Warm};
use crate::bytes::{
    CONTAINER_BLOCK_BYTES, CONTAINER_DATA_OFFSET, ContainerHeader, ContainerSeed, ContainerState, DeviceSuperblock,
    Directory, DirectoryBuilder, DirectoryPlace, ExtentHead, Image, ImageLayout, Stream,
};
use forebay_core::{Error, Kind, Result};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A directory is read in pieces of this length: one call of gigabytes could not be told from a device that hangs.
const DIRECTORY_READ_BYTES: usize = 16 << 20;

/// The callback for each image: its place, and what is read of it.
pub(crate) type Told<'t> = dyn FnMut(ImagePlace, &Image<'_>) -> Result<()> + 't;

/// What an opening found.
#[derive(Debug, Default)]
pub struct Found {
    /// What was acknowledged and is not there, by name.
    pub losses: Vec<String>,
    /// What was being written when the last life ended and does not verify: never acknowledged, or damaged since.
    pub unfinished: Vec<String>,
    /// Containers with something in them, in the order in which they began to be filled.
    pub(super) contents: Vec<Content>,
    accept_loss: bool,
}

/// A directory in memory.
struct DirectoryRead {
    bytes: Buffer,
    length: usize,
    sound: bool,
}

impl DirectoryRead {
    fn decode<'a>(&'a self, warm: &Warm, container: &Container, place: DirectoryPlace) -> Option<Directory<'a>> {
        let bytes = self.sound.then(|| &self.bytes[..self.length])?;
        Directory::decode(bytes, warm.layout, container.seed(&warm.store), place.offset).ok()
    }
}

#[derive(Debug)]
pub(super) struct Content {
    container: u32,
    from: From,
}

#[derive(Debug)]
enum From {
    Directory(DirectoryPlace),
    Extents(Scanned),
}

impl Found {
    fn lose(&mut self, what: String) -> Result<()> {
        if !self.accept_loss {
            return Err(Error::corrupt(what));
        }
        self.losses.push(what);
        Ok(())
    }
}

impl Warm {
    /// Opens the warm level of a store on its devices, in any order they are given. `shape` says how it is driven;
    /// sizes are those of its creation. [`Warm::images`] must follow before anything is reclaimed.
    ///
    /// # Errors
    /// `Invalid` where a device is not one of this store, or one is missing; `Corrupt` where what was acknowledged
    /// cannot be accounted for, unless `accept_loss`; `Unavailable` where a device fails.
    pub fn open(
        devices: Vec<Arc<dyn Device>>,
        store: [u8; 16],
        widths: (usize, usize),
        shape: WarmShape,
        accept_loss: bool,
    ) -> Result<(Warm, Found)> {
        let mut found = Found { accept_loss, ..Found::default() };
        let mut known: Vec<(DeviceSuperblock, Arc<dyn Device>)> = Vec::new();
        for device in devices {
            let superblock = superblock(device.as_ref(), &store, widths)?;
            if known.iter().any(|(other, _)| other.device == superblock.device) {
                return Err(Error::invalid(format!("{}: device {} twice", device.name(), superblock.device)));
            }
            known.push((superblock, device));
        }
        known.sort_by_key(|(superblock, _)| superblock.device);
        // The others count fewer than the one that was added last, until all are taken in.
        let count = known.iter().map(|(superblock, _)| superblock.devices).max().unwrap_or(0);
        let (container_bytes, log_bytes) = match known.first() {
            Some((first, _)) => (first.container_bytes, first.log_bytes),
            None => return Err(Error::invalid("a warm level without devices")),
        };
        let shape = WarmShape { container_bytes, log_bytes, ..shape };
        shape.check()?;
        let mut slots: Vec<DeviceSlot> = (0..count).map(|_| DeviceSlot::new(None)).collect();
        let mut containers: Vec<Container> = Vec::new();
        for (superblock, device) in known {
            if superblock.container_bytes != container_bytes {
                return Err(Error::invalid(format!("{}: of another warm level of this store", device.name())));
            }
            // Numbers run over all devices: containers of a missing device keep theirs, or every location would be wrong.
            while (containers.len() as u32) < superblock.first {
                let number = containers.len() as u32;
                containers.push(Container::new(ContainerHeader::empty(0, number, container_bytes), None));
            }
            for number in superblock.first..superblock.first + superblock.containers {
                containers.push(open_container(device.as_ref(), &superblock, number, &mut found)?);
            }
            slots[superblock.device as usize] = DeviceSlot::new(Some(device));
        }
        for (number, slot) in slots.iter().enumerate() {
            if slot.device.is_none() {
                let what = format!("warm device {number} of {count} is not there");
                // Not `Corrupt`: most likely the device is not mounted, and the next opening finds it.
                found.lose(what).map_err(|error| Error::invalid(error.message()))?;
            }
        }
        let warm = Warm::new(store, ImageLayout::new(widths.0, widths.1), shape, slots, containers);
        warm.find_contents(&mut found)?;
        Ok((warm, found))
    }

    fn find_contents(&self, found: &mut Found) -> Result<()> {
        let mut by_order: Vec<&Container> = self
            .containers
            .iter()
            .filter(|container| !matches!(container.phase(), Phase::Empty | Phase::Lost))
            .collect();
        // In the order in which they began to be filled: of two copies of a version the one that is told later is in force.
        by_order.sort_by_key(|container| container.header.lock().order);
        for container in by_order {
            let header = *container.header.lock();
            let from = match header.directory {
                Some(place) => From::Directory(place),
                None => match self.scan_unclosed(container, &header) {
                    Ok(scanned) => {
                        for (from, to) in &scanned.lost {
                            let name = self.describe(container.number);
                            found.lose(format!(
                                "{name}: an extent that was committed at {from} does not verify, up to {to}"
                            ))?;
                        }
                        From::Extents(scanned)
                    }
                    Err(error) => {
                        found.lose(format!("{}: cannot be read: {error}", self.describe(container.number)))?;
                        self.poison(container);
                        continue;
                    }
                },
            };
            // It takes no more: regardless of its state before, it is closed in this life.
            container.set_phase(&[Phase::Filling], Phase::Full);
            found.contents.push(Content { container: container.number, from });
        }
        Ok(())
    }

    fn scan_unclosed(&self, container: &Container, header: &ContainerHeader) -> io::Result<Scanned> {
        let (device, file) = self.reach(container)?;
        // What is read from now on is durable, including writes that the last life had left in flight. Without it an
        // extent could be read from the page cache, counted as there, and be gone after the next power loss.
        device.sync(file)?;
        self.scan(container, device, file, header.data_end).run()
    }

    fn reach(&self, container: &Container) -> io::Result<(&dyn Device, FileId)> {
        let (_, device, file) =
            self.container(container.number).map_err(|error| io::Error::other(error.to_string()))?;
        Ok((device.as_ref(), file))
    }

    pub(super) fn scan<'a>(
        &self,
        container: &Container,
        device: &'a dyn Device,
        file: FileId,
        committed: u64,
    ) -> Scan<'a> {
        Scan {
            device,
            file,
            container_bytes: self.shape.container_bytes,
            seed: container.seed(&self.store),
            layout: self.layout,
            committed,
        }
    }

    /// Tells every image that was found, containers in the order in which they began to be filled: its place, its head,
    /// its primary key, its table. A container that was not closed is closed on the way. Once.
    ///
    /// # Errors
    /// What `each` answers; `Corrupt` where what was committed does not verify, unless the loss is accepted:
    /// then it is named in `found`.
    pub fn images(&self, found: &mut Found, each: &mut Told<'_>) -> Result<()> {
        let contents = std::mem::take(&mut found.contents);
        let directories: Vec<(&Container, DirectoryPlace)> = contents
            .iter()
            .filter_map(|content| match content.from {
                From::Directory(place) => Some((&self.containers[content.container as usize], place)),
                From::Extents(_) => None,
            })
            .collect();
        // Two buffers for all directories: fresh memory would be faulted in for each.
        // No directory waits in the channel: one is told and one is read, so that memory is bounded by the two largest.
        let (give, given) = std::sync::mpsc::sync_channel(0);
        let (back, returned) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            // The next directory is read and verified while this one is told.
            scope.spawn(move || {
                for (container, place) in directories {
                    let scratch = returned.try_recv().unwrap_or_else(|_| Buffer::new(BLOCK_BYTES));
                    if give.send(self.read_directory(container, place, scratch)).is_err() {
                        return;
                    }
                }
            });
            // Dropped where this ends early: the reader ends with it.
            let (given, back) = (given, back);
            for content in contents {
                let container = &self.containers[content.container as usize];
                match content.from {
                    From::Directory(place) => {
                        let ahead = given.recv();
                        let directory = ahead.map_err(|_| Error::internal("the reader of directories ended"))?;
                        self.tell_directory(container, place, &directory, found, each)?;
                        let _ = back.send(directory.bytes);
                    }
                    From::Extents(scanned) => self.tell_and_close(container, &scanned, found, each)?,
                }
            }
            Ok(())
        })?;
        // Only now: before, a container could look empty because nobody had been told of its images, and be reclaimed.
        self.recovered.store(true, Ordering::Release);
        Ok(())
    }

    /// Tells the images of a container that was being filled, and closes it.
    fn tell_and_close(
        &self,
        container: &Container,
        scanned: &Scanned,
        found: &mut Found,
        each: &mut Told<'_>,
    ) -> Result<()> {
        let closing = self.tell_extents(container, scanned, found, each)?;
        if container.phase() == Phase::Full
            && let Some(content) = closing
            && let Err(error) = self.close_found(container, content)
        {
            // It is poisoned and readable; nothing is lost by it, and the next opening scans it again.
            found.losses.extend((error.kind() == Kind::Corrupt).then(|| error.to_string()));
        }
        Ok(())
    }

    /// The images of a container that is closed, or was given up.
    ///
    /// # Errors
    /// What `each` answers; `Corrupt` where neither directory nor extents can be read.
    pub fn images_of(&self, number: u32, each: &mut Told<'_>) -> Result<()> {
        let (container, device, file) = self.container(number)?;
        let mut found = Found::default();
        let directory = container.header.lock().directory;
        // A poisoned container may have failed at its directory: its extents are the truth.
        match directory.filter(|_| container.phase() != Phase::Poisoned) {
            Some(place) => {
                let directory = self.read_directory(container, place, Buffer::new(BLOCK_BYTES));
                self.tell_directory(container, place, &directory, &mut found, each)
            }
            None => {
                // Rescue takes what is left; the move names what is lost.
                found.accept_loss = true;
                let scanned = self.scan(container, device.as_ref(), file, 0).run().map_err(|error| {
                    Error::unavailable(format!("{}: cannot be read", self.describe(number))).with_source(error)
                })?;
                self.tell_extents(container, &scanned, &mut found, each).map(|_| ())
            }
        }
    }

    /// Whether the container's first block can be read.
    pub fn answers(&self, number: u32) -> bool {
        let mut block = Buffer::new(BLOCK_BYTES);
        self.container(number).is_ok_and(|(_, device, file)| read_all(device.as_ref(), file, 0, &mut block).is_ok())
    }

    /// The store whose devices these are, by the first of them.
    ///
    /// # Errors
    /// `Invalid` where it is no device of a store, `Corrupt`, `Unavailable`.
    pub fn store_of(devices: &[Arc<dyn Device>]) -> Result<[u8; 16]> {
        let device = devices.first().ok_or_else(|| Error::invalid("a warm level without devices"))?;
        let mut blocks = Buffer::new(2 * BLOCK_BYTES);
        let read = device.open(DEVICE_FILE).and_then(|(file, _)| read_all(device.as_ref(), file, 0, &mut blocks));
        read.map_err(|error| {
            Error::invalid(format!("{} is not a warm device: {error}", device.name())).with_source(error)
        })?;
        let (one, two) = blocks.split_at(BLOCK_BYTES);
        DeviceSuperblock::decode(one).or_else(|_| DeviceSuperblock::decode(two)).map(|superblock| superblock.store)
    }

    /// What a device of this store says of itself; `widths` as at its creation.
    ///
    /// # Errors
    /// `Invalid` where it is none, or one of another store; `Corrupt`, `Unavailable`.
    pub fn superblock_of(device: &dyn Device, store: &[u8; 16], widths: (usize, usize)) -> Result<DeviceSuperblock> {
        superblock(device, store, widths)
    }

    /// Reads a directory into a buffer, and looks whether all of it is sound.
    fn read_directory(&self, container: &Container, place: DirectoryPlace, scratch: Buffer) -> DirectoryRead {
        let length = (place.bytes as usize).next_multiple_of(BLOCK_BYTES);
        let mut bytes = if scratch.len() < length { Buffer::new(length) } else { scratch };
        let read = self.reach(container).and_then(|(device, file)| {
            for (at, piece) in bytes[..length].chunks_mut(DIRECTORY_READ_BYTES).enumerate() {
                read_all(device, file, place.offset + (at * DIRECTORY_READ_BYTES) as u64, piece)?;
            }
            Ok(())
        });
        let mut directory = DirectoryRead { bytes, length, sound: read.is_ok() };
        // All of it before the first image is told: half a directory beside the scan of its extents would be told twice.
        directory.sound = directory.decode(self, container, place).is_some_and(|found| {
            // The checksum is right; that all entries can be read is seen before the first one is told.
            Directory::crc_of(&directory.bytes[..length]) == Some(place.crc) && found.iter().all(|image| image.is_ok())
        });
        directory
    }

    fn tell_directory(
        &self,
        container: &Container,
        place: DirectoryPlace,
        directory: &DirectoryRead,
        found: &mut Found,
        each: &mut Told<'_>,
    ) -> Result<()> {
        let Some(directory) = directory.decode(self, container, place) else {
            // The extents say the same, in more reads: a directory that rots costs time, not data. Up to `data_end` all was
            // durable when the header was written, so a gap before it is a loss.
            let data_end = container.header.lock().data_end;
            let scanned =
                self.reach(container).and_then(|(device, file)| self.scan(container, device, file, data_end).run());
            return match scanned {
                Ok(scanned) => {
                    for (from, to) in &scanned.lost {
                        let name = self.describe(container.number);
                        found.lose(format!(
                            "{name}: neither its directory nor an extent at {from} verifies, up to {to}"
                        ))?;
                    }
                    self.tell_extents(container, &scanned, found, each).map(|_| ())
                }
                Err(error) => found.lose(format!("{}: cannot be read: {error}", self.describe(container.number))),
            };
        };
        for image in directory.iter() {
            let (position, image) = image?;
            let place = ImagePlace { container: container.number, position };
            each(place, &image)?;
        }
        Ok(())
    }

    /// Tells the images of these extents; answers what a directory would say of them, where all could be read.
    fn tell_extents(
        &self,
        container: &Container,
        scanned: &Scanned,
        found: &mut Found,
        each: &mut Told<'_>,
    ) -> Result<Option<FoundContent>> {
        let mut content = FoundContent {
            directory: DirectoryBuilder::new(),
            data_end: scanned.data_end,
            extents: scanned.extents.len() as u32,
            images: 0,
            fragments: 0,
            payload_bytes: 0,
        };
        for extent in &scanned.extents {
            let mut lost = Vec::new();
            let told = self.tell_extent(container, extent, &mut content, &mut lost, each);
            for position in lost {
                let name = self.describe(container.number);
                // Never acknowledged, or rotten since: nobody can tell, so it is noted and stops nothing.
                if extent.doubtful {
                    found.unfinished.push(format!("{name}: an image at {position} is not whole"));
                } else {
                    found.lose(format!("{name}: an image that was committed at {position} does not verify"))?;
                }
            }
            match told {
                Ok(result) => result?,
                Err(error) => {
                    let (name, at) = (self.describe(container.number), extent.position);
                    found.lose(format!("{name}: an extent at {at} cannot be read: {error}"))?;
                }
            }
        }
        // Without room for a directory, after an image that was torn, the container stays one that is scanned.
        let block = CONTAINER_BLOCK_BYTES;
        let fits = content.data_end + content.directory.len().next_multiple_of(block) <= self.shape.container_bytes;
        Ok(fits.then_some(content))
    }

    fn tell_extent(
        &self,
        container: &Container,
        extent: &Extent,
        content: &mut FoundContent,
        lost: &mut Vec<u64>,
        each: &mut Told<'_>,
    ) -> io::Result<Result<()>> {
        let (device, file) = self.reach(container)?;
        let scan = self.scan(container, device, file, 0);
        scan.images(
            extent,
            |position, image, meta| {
                content.directory.push(position, meta);
                content.images += 1;
                content.fragments += u64::from(image.head.fragments);
                content.payload_bytes += image.head.payload_bytes;
                let place = ImagePlace { container: container.number, position };
                each(place, image)
            },
            |position| lost.push(position),
        )
    }
}

/// The superblock of a device, if it is one of this store.
fn superblock(device: &dyn Device, store: &[u8; 16], widths: (usize, usize)) -> Result<DeviceSuperblock> {
    superblocks(device, store, widths).map(|(in_force, _)| in_force)
}

/// The same, with both copies where they verify.
pub(super) fn superblocks(
    device: &dyn Device,
    store: &[u8; 16],
    widths: (usize, usize),
) -> Result<(DeviceSuperblock, [Option<DeviceSuperblock>; 2])> {
    let name = device.name();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::invalid(format!("{name} is not a warm device: no {DEVICE_FILE} there")),
        _ => Error::unavailable(format!("{name}: {DEVICE_FILE} cannot be read")).with_source(error),
    };
    let (file, bytes) = device.open(DEVICE_FILE).map_err(failed)?;
    if bytes < 2 * CONTAINER_BLOCK_BYTES {
        return Err(Error::corrupt(format!("{name}: {DEVICE_FILE} has only {bytes} bytes")));
    }
    let mut blocks = Buffer::new(2 * BLOCK_BYTES);
    read_all(device, file, 0, &mut blocks).map_err(failed)?;
    let (one, two) = blocks.split_at(BLOCK_BYTES);
    let (one, two) = (DeviceSuperblock::decode(one), DeviceSuperblock::decode(two));
    let copies = [one.as_ref().ok().copied(), two.as_ref().ok().copied()];
    let superblock = match (one, two) {
        (Ok(one), Ok(two)) => {
            if two.revision > one.revision {
                two
            } else {
                one
            }
        }
        (Ok(superblock), Err(_)) | (Err(_), Ok(superblock)) => superblock,
        (Err(error), Err(_)) => return Err(Error::new(error.kind(), format!("{name}: {}", error.message()))),
    };
    // Fail closed: containers of another store would verify nowhere, and every event would be called lost.
    if superblock.store != *store {
        return Err(Error::invalid(format!("{name} belongs to another store")));
    }
    let key_bytes = (usize::from(superblock.primary_bytes), usize::from(superblock.key_bytes));
    if key_bytes != (widths.0, widths.0 + widths.1) {
        return Err(Error::invalid(format!("{name} has keys of other lengths than its store")));
    }
    Ok((superblock, copies))
}

/// Opens a container and reads its header.
fn open_container(
    device: &dyn Device,
    superblock: &DeviceSuperblock,
    number: u32,
    found: &mut Found,
) -> Result<Container> {
    let empty = ContainerHeader::empty(superblock.device, number, superblock.container_bytes);
    let name = || format!("container {number} of device {} ({})", superblock.device, device.name());
    let opened = device.open(&container_file(number)).and_then(|(file, bytes)| {
        let mut blocks = Buffer::new(2 * BLOCK_BYTES);
        read_all(device, file, 0, &mut blocks)?;
        Ok((file, bytes, blocks))
    });
    let (file, bytes, blocks) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            found.lose(format!("{}: cannot be opened: {error}", name()))?;
            return Ok(Container::new(empty, None));
        }
    };
    let decode = |block: &[u8]| ContainerHeader::decode(block, &superblock.store, superblock.device, number);
    let (one, two) = (decode(&blocks[..BLOCK_BYTES]), decode(&blocks[BLOCK_BYTES..]));
    // Copies are written in turn and creation writes both: one that does not verify was torn by the last write, or rots.
    let torn = one.is_err() != two.is_err();
    if let Err(error) = one.as_ref().and(two.as_ref())
        && error.kind() == Kind::Invalid
    {
        return Err(Error::invalid(format!("{}: {}", name(), error.message())));
    }
    let newest = one.ok().into_iter().chain(two.ok()).max_by_key(|header| header.revision);
    let Some(header) = newest.filter(|header| header.container_bytes == superblock.container_bytes) else {
        // Poisoned: what it holds cannot be found without its generation, and it takes nothing before its medium is tried.
        found.lose(format!("{}: neither copy of its header verifies", name()))?;
        return Ok(Container::new(ContainerHeader { state: ContainerState::Poisoned, ..empty }, Some(file)));
    };
    // A file that was cut: writes past its end would be refused one by one, so it is lost as a whole.
    if bytes < superblock.container_bytes {
        found.lose(format!("{}: only {bytes} of {} bytes are there", name(), superblock.container_bytes))?;
        return Ok(Container::new(empty, None));
    }
    let header = if torn && header.state == ContainerState::Empty {
        began_to_fill(device, superblock, file, &header).unwrap_or(header)
    } else {
        header
    };
    Ok(Container::new(header, Some(file)))
}

/// Where one copy of an empty container's header does not verify, it may be the one that began a filling: then the
/// first extent of that filling is there, and counts.
fn began_to_fill(
    device: &dyn Device,
    superblock: &DeviceSuperblock,
    file: FileId,
    empty: &ContainerHeader,
) -> Option<ContainerHeader> {
    // One copy says *empty* and the other is torn. Both may be a reclaim that was cut off, or a filling that began; only the
    // first extent of the next generation tells. Taken for empty, a filling would lose what it had acknowledged.
    let generation = empty.generation.wrapping_add(1);
    let seed = ContainerSeed::new(&superblock.store, superblock.device, empty.container, generation);
    let mut block = Buffer::new(BLOCK_BYTES);
    read_all(device, file, CONTAINER_DATA_OFFSET, &mut block).ok()?;
    ExtentHead::decode(&block, seed, CONTAINER_DATA_OFFSET)?;
    Some(ContainerHeader {
        generation,
        state: ContainerState::Filling,
        stream: Stream::Shared,
        run: ContainerHeader::SHARED_RUN,
        // After all that have an order: nobody knows its own any more.
        order: u64::MAX >> 1,
        revision: empty.revision + 1,
        ..*empty
    })
}
