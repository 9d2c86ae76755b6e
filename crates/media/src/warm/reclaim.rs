//! Changes of a container's state outside of writing: draining, custody, reclaiming, poisoning.
//!
//! *Invariants*: a state is durable before anything follows from it. What was the only copy of a fragment is given up once
//! its device knows that the fragment has ended: until then the event comes back whole, if at all. Two locks are held while a header or a test block is
//! written: the container's `transition`, and its device's `control` (`control.rs`), for which other such blocks of the
//! device wait, as long as it may stall. A writer takes them only where a write has failed; reads take neither.
//!
//! *On failure*: a header that the device refuses poisons the container; its data stays readable. Where the device does
//! not answer, nothing has changed, and the next round tries again.

use super::buffer::Buffer;
use super::container::{Container, Phase};
use super::device::{BLOCK_BYTES, Device, FileId};
use super::log::DeviceLog;
use super::space::Warm;
use crate::bytes::{CONTAINER_BLOCK_BYTES, CONTAINER_DATA_OFFSET, ContainerHeader, ContainerState, DirectoryPlace};
use forebay_core::{Error, Filling, Result};
use std::io;
use std::sync::atomic::Ordering;

/// A header that makes no progress this many times is given up.
const RETRIES_MAX: u32 = 3;

impl Warm {
    /// The events of a full container are about to be moved away: durable before it returns.
    ///
    /// # Errors
    /// `Conflict` where it is not full; `Unavailable` where the device fails.
    pub fn begin_drain(&self, number: u32) -> Result<()> {
        let (container, ..) = self.container(number)?;
        // The first of the two locks; a container's state in memory and on the medium change together under it.
        let _transition = container.transition.lock();
        if !container.set_phase(&[Phase::Full], Phase::Draining) {
            let phase = container.phase();
            return Err(Error::conflict(format!("{} is {phase:?}: only a full one drains", self.describe(number))));
        }
        let draining = &self.devices[container.device as usize].draining;
        draining.fetch_add(1, Ordering::Relaxed);
        let begun = self.write_header(container, |header| header.state = ContainerState::Draining);
        // Refused, it is poisoned and stays so; silent, it is full again, as its header says.
        if begun.is_err() && container.set_phase(&[Phase::Draining], Phase::Full) {
            draining.fetch_sub(1, Ordering::Relaxed);
        }
        begun
    }

    /// The archive was proved to have what a container that drains holds, at this time in milliseconds since 1970: durable
    /// before it returns. `false` where that filling was reclaimed, because nothing in it lived any more.
    ///
    /// # Errors
    /// `Conflict` where it does not drain; `Unavailable` where the device fails: the next opening may find it in custody all the
    /// same.
    pub fn begin_custody(&self, number: u32, filling: Filling, since: u64) -> Result<bool> {
        debug_assert!(since > 0, "0 says that it is not in custody");
        let (container, ..) = self.container(number)?;
        let _transition = container.transition.lock();
        if container.phase() == Phase::Empty || container.header.lock().filling != filling.0 {
            return Ok(false);
        }
        if container.phase() != Phase::Draining {
            let phase = container.phase();
            return Err(Error::conflict(format!("{} is {phase:?}: nobody drains it", self.describe(number))));
        }
        self.write_header(container, |header| (header.state, header.custody_since) = (ContainerState::Custody, since))?;
        // Under `transition` all along: only a failed write, in its own thread, could have poisoned it.
        if container.set_phase(&[Phase::Draining], Phase::Custody) {
            self.devices[container.device as usize].draining.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Gives up draining, or ends it: the container is full again, or, where nothing lives in it any more, empty.
    ///
    /// # Errors
    /// `Unavailable` where the device fails.
    pub fn end_drain(&self, number: u32, log: Option<&DeviceLog>) -> Result<()> {
        if self.reclaim_if_empty(number, log)? {
            return Ok(());
        }
        let (container, ..) = self.container(number)?;
        let _transition = container.transition.lock();
        if !container.set_phase(&[Phase::Draining], Phase::Full) {
            return Ok(());
        }
        self.devices[container.device as usize].draining.fetch_sub(1, Ordering::Relaxed);
        self.write_header(container, |header| header.state = ContainerState::Full)
    }

    /// A closed container in which nothing lives and that nobody reads becomes empty, durably; `true` where it did. Not before
    /// its device's `log`, if decisions are recorded, has what ended there. To be called without any lock: it waits for the
    /// device.
    ///
    /// # Errors
    /// `Unavailable` where the device fails: the container is poisoned then; and where it does not answer: it is as before.
    pub fn reclaim_if_empty(&self, number: u32, log: Option<&DeviceLog>) -> Result<bool> {
        let (container, device, file) = self.container(number)?;
        // A container that failed in this life is not trusted again before the next one has tried its medium.
        if !self.recovered.load(Ordering::Acquire) || container.poisoned_here.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let _transition = container.transition.lock();
        // The images are the only copy that survives the hot level: the device must know first that their events have ended, or
        // an event whose verdict is durable nowhere would come back in part (decision 0016).
        if log.is_some_and(|log| !log.is_durable(container.device, container.emptied_at(|| log.end()))) {
            return Ok(false);
        }
        // One swap decides: a pin that comes first keeps the container, one that comes later finds nothing live to read.
        let Some(before) = container.begin_reclaiming() else { return Ok(false) };
        let slot = &self.devices[container.device as usize];
        if before == Phase::Draining {
            slot.draining.fetch_sub(1, Ordering::Relaxed);
        }
        if before == Phase::Poisoned {
            slot.poisoned.fetch_sub(1, Ordering::Relaxed);
        }
        let tried = if before == Phase::Poisoned { self.try_medium(container, device.as_ref(), file) } else { Ok(()) };
        let reclaimed = tried.and_then(|()| {
            self.write_header(container, |header| {
                let revision = header.revision;
                // Kept: the next filling raises the generation, and its order is the age among the free ones.
                let (generation, order) = (header.generation, header.order);
                *header = ContainerHeader::empty(header.device, header.container, header.container_bytes);
                (header.revision, header.generation, header.order) = (revision, generation, order);
            })
        });
        if let Err(error) = reclaimed {
            let silent = if before == Phase::Draining { Phase::Full } else { before };
            if container.set_phase(&[Phase::Reclaiming], silent) && before == Phase::Poisoned {
                slot.poisoned.fetch_add(1, Ordering::Relaxed);
            }
            return Err(error);
        }
        if !container.set_phase(&[Phase::Reclaiming], Phase::Empty) {
            return Ok(false);
        }
        slot.used.fetch_sub(self.shape.container_bytes, Ordering::Relaxed);
        self.add_free(number);
        Ok(true)
    }

    /// Recycles all that can be, for the maintenance round; answers how many were.
    ///
    /// # Errors
    /// `Unavailable` where a device fails; the others have been tried.
    pub fn reclaim_empty(&self, log: Option<&DeviceLog>) -> Result<u32> {
        let (mut reclaimed, mut failed) = (0, None);
        for container in &self.containers {
            let closed = matches!(container.phase(), Phase::Full | Phase::Draining | Phase::Custody | Phase::Poisoned);
            if closed && container.live() == 0 && container.pins() == 0 {
                match self.reclaim_if_empty(container.number, log) {
                    Ok(done) => reclaimed += u32::from(done),
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(reclaimed), Err)
    }

    /// Writes, syncs and reads back a block of a container that had failed in an earlier life.
    fn try_medium(&self, container: &Container, device: &dyn Device, file: FileId) -> Result<()> {
        // Not zeros, which a disk may keep without writing, and not one value, which would hide a shift.
        let pattern: Vec<u8> = (0..BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
        let mut back = Buffer::new(BLOCK_BYTES);
        let tried = self
            .write_block(container, CONTAINER_DATA_OFFSET, &pattern)
            .and_then(|()| read_all(device, file, CONTAINER_DATA_OFFSET, &mut back));
        let error = match tried {
            Ok(()) if *back == *pattern => return Ok(()),
            Ok(()) => io::Error::other("what was written does not read back"),
            Err(error) => error,
        };
        Err(self.failed(container, "it failed before and fails again", error))
    }

    /// Nothing is written into the container any more in this life.
    pub(super) fn poison(&self, container: &Container) {
        let from = [Phase::Filling, Phase::Full, Phase::Draining, Phase::Custody, Phase::Reclaiming, Phase::Poisoned];
        if !container.poisoned_here.swap(true, Ordering::Relaxed) {
            let slot = &self.devices[container.device as usize];
            match container.phase() {
                Phase::Poisoned => {}
                Phase::Draining => {
                    slot.draining.fetch_sub(1, Ordering::Relaxed);
                    slot.poisoned.fetch_add(1, Ordering::Relaxed);
                }
                _ => {
                    slot.poisoned.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        container.set_phase(&from, Phase::Poisoned);
        let mut header = container.header.lock();
        (header.state, header.custody_since) = (ContainerState::Poisoned, 0);
    }

    /// Says on the medium, where that still works, that a container is poisoned and how far it was durable.
    pub(super) fn write_poisoned(&self, container: &Container, durable: u64) {
        let _transition = container.transition.lock();
        let (at, bytes) = container.next_header(&self.store, |header| {
            (header.state, header.custody_since) = (ContainerState::Poisoned, 0);
            header.data_end = durable;
            header.directory = None;
        });
        // A failure changes nothing: the next opening reads the extents themselves.
        if self.write_block(container, at, &bytes).is_ok() {
            self.devices[container.device as usize].counters.wrote_header(CONTAINER_BLOCK_BYTES);
        }
    }

    /// Writes the header with a change, durably. Where that fails, it is as it was, and the next one goes to the same copy:
    /// the other one is what an opening finds.
    pub(super) fn write_header(&self, container: &Container, change: impl FnOnce(&mut ContainerHeader)) -> Result<()> {
        // The lock is not held while the device writes: readers take it for the seed of each read.
        let before = *container.header.lock();
        let (at, bytes) = container.next_header(&self.store, change);
        if let Err(error) = self.write_block(container, at, &bytes) {
            let mut header = container.header.lock();
            // One revision more than was tried, so that the next write goes to the same copy: the other one is durable.
            *header = ContainerHeader { revision: header.revision + 1, ..before };
            drop(header);
            return Err(self.failed(container, "its header cannot be written", error));
        }
        self.devices[container.device as usize].counters.wrote_header(CONTAINER_BLOCK_BYTES);
        Ok(())
    }

    /// What a device's error makes of a container: poisoned where it was refused, as it was where nothing answers.
    fn failed(&self, container: &Container, what: &str, error: io::Error) -> Error {
        if error.kind() != io::ErrorKind::TimedOut {
            self.poison(container);
        }
        Error::unavailable(format!("{}: {what}", self.describe(container.number))).with_source(error)
    }

    /// Closes a container that was found unclosed: its directory, then its header.
    pub(super) fn close_found(&self, container: &Container, found: FoundContent) -> Result<()> {
        let (_, device, file) = self.container(container.number)?;
        let _transition = container.transition.lock();
        let (bytes, crc) = found.directory.seal(container.seed(&self.store), found.data_end);
        let place = DirectoryPlace { offset: found.data_end, bytes: bytes.len() as u64, crc };
        let mut buffer = Buffer::new(self.shape.io_bytes.min(bytes.len()));
        let mut at = found.data_end;
        for piece in bytes.chunks(buffer.len()) {
            buffer[..piece.len()].copy_from_slice(piece);
            let whole = piece.len().next_multiple_of(BLOCK_BYTES);
            buffer[piece.len()..whole].fill(0);
            if let Err(error) = write_all(device.as_ref(), file, at, &buffer[..whole]) {
                return Err(self.failed(container, "it cannot be closed", error));
            }
            at += whole as u64;
        }
        let counters = &self.devices[container.device as usize].counters;
        counters.wrote(at - found.data_end, 0, at - found.data_end);
        // The directory is durable before the header names it.
        if let Err(error) = device.sync(file) {
            return Err(self.failed(container, "it cannot be closed", error));
        }
        self.write_header(container, |header| {
            header.state = ContainerState::Full;
            header.data_end = found.data_end;
            header.directory = Some(place);
            header.extents = found.extents;
            header.images = found.images;
            header.fragments = found.fragments;
            header.payload_bytes = found.payload_bytes;
        })
    }
}

/// What a scan found in a container that was not closed.
pub(super) struct FoundContent {
    pub(super) directory: crate::bytes::DirectoryBuilder,
    pub(super) data_end: u64,
    pub(super) extents: u32,
    pub(super) images: u64,
    pub(super) fragments: u64,
    pub(super) payload_bytes: u64,
}

/// Writes all of `bytes`, whole blocks, however short single writes are.
pub(super) fn write_all(device: &dyn Device, file: FileId, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    // Short writes are legal; only whole blocks count, because the next write must begin at one.
    let mut idle = 0;
    while !bytes.is_empty() {
        let written = device.write(file, offset, bytes)?.min(bytes.len()) / BLOCK_BYTES * BLOCK_BYTES;
        idle = if written == 0 { idle + 1 } else { 0 };
        if idle > RETRIES_MAX {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the device takes no more bytes"));
        }
        offset += written as u64;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Reads all of `into`, whole blocks, however short single reads are.
pub(super) fn read_all(device: &dyn Device, file: FileId, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    let mut idle = 0;
    while !into.is_empty() {
        let read = device.read(file, offset, into)?.min(into.len()) / BLOCK_BYTES * BLOCK_BYTES;
        idle = if read == 0 { idle + 1 } else { 0 };
        if idle > RETRIES_MAX {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the device gives no more bytes"));
        }
        offset += read as u64;
        into = &mut into[read..];
    }
    Ok(())
}
