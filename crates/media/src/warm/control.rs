//! Single blocks written with a deadline: headers of containers, and the test block of a container that failed before.
//!
//! *Invariants*: no call waits longer than a device may stall. A device has one of these blocks under way at a time. A block
//! that was given up ends before the next one begins, so a late header never overwrites a newer one. The next header after
//! one that was given up goes to the same copy (`Warm::write_header`), because the other copy is durable. After
//! [`Warm::let_go`] none is written: the device may belong to another life.

use super::buffer::Buffer;
use super::container::Container;
use super::device::{BLOCK_BYTES, Done, FileId, Queue};
use super::space::Warm;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a short write of one block is repeated.
const RETRIES_MAX: u32 = 3;

/// A device's queue for these blocks; created with the first one.
#[derive(Default)]
pub(super) struct Control {
    queue: Option<Box<dyn Queue>>,
    /// The store has closed.
    is_let_go: bool,
}

impl Control {
    /// # Errors
    /// `TimedOut` at the deadline, what the device says otherwise.
    fn answer(&mut self, deadline: Instant) -> io::Result<Done> {
        let queue = self.queue.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match queue.complete(left) {
                Some(Done { result: Err(error), .. }) => return Err(error),
                Some(done) => return Ok(done),
                None if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                None => {}
            }
        }
    }

    fn write(&mut self, file: FileId, offset: u64, mut block: Buffer, deadline: Instant) -> io::Result<()> {
        for _ in 0..=RETRIES_MAX {
            let queue = self.queue.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            queue.write(0, file, offset, block, BLOCK_BYTES);
            let Done { buffer, result, .. } = self.answer(deadline)?;
            if result? >= BLOCK_BYTES {
                return Ok(());
            }
            block = buffer.ok_or(io::ErrorKind::WriteZero)?;
        }
        Err(io::Error::new(io::ErrorKind::WriteZero, "the device takes no more bytes"))
    }

    fn sync(&mut self, file: FileId, deadline: Instant) -> io::Result<()> {
        self.queue.as_mut().ok_or(io::ErrorKind::NotConnected)?.sync(0, file);
        self.answer(deadline).map(drop)
    }

    /// Takes the answer to a block that was given up, without waiting for it.
    ///
    /// # Errors
    /// `TimedOut` while there is none.
    fn settle(&mut self) -> io::Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        while queue.in_flight() > 0 {
            // Whether it landed makes no difference: it is written again.
            queue.complete(Duration::ZERO).ok_or(io::ErrorKind::TimedOut)?;
        }
        Ok(())
    }
}

impl Warm {
    /// Writes a block of a container that begins with `bytes`, durably.
    ///
    /// # Errors
    /// `TimedOut` where the device does not answer as long as it may stall: the block may land later, but before any
    /// other of these. `NotConnected` after [`Warm::let_go`]. Otherwise the device's error.
    pub(super) fn write_block(&self, container: &Container, offset: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(bytes.len() <= BLOCK_BYTES, "more than one block");
        let (_, device, file) = self.container(container.number).map_err(io::Error::other)?;
        let slot = &self.devices[container.device as usize];
        let deadline = Instant::now() + self.shape.stall;
        // Held while the device works, for `stall` at most: two blocks of one device never pass each other. It is taken last;
        // the transition of one container may be held above it.
        let mut control = slot.control.lock();
        let done = control.settle().and_then(|()| {
            if control.is_let_go {
                return Err(io::ErrorKind::NotConnected.into());
            }
            if control.queue.is_none() {
                control.queue = Some(device.queue(1)?);
            }
            debug_assert_eq!(
                control.queue.as_ref().map(|queue| queue.in_flight()),
                Some(0),
                "a block passes another one"
            );
            let mut block = Buffer::new(BLOCK_BYTES);
            block[..bytes.len()].copy_from_slice(bytes);
            control.write(file, offset, block, deadline)?;
            control.sync(file, deadline)
        });
        let silent = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        // Also cleared here: any answer, a refusal included, shows that the device is no longer silent.
        slot.stalled.store(silent, Ordering::Relaxed);
        done
    }

    /// Takes late answers of devices that stalled. A device that is marked as stalled is avoided, so that without this it
    /// might never be asked again.
    pub(super) fn settle_blocks(&self) {
        for slot in self.devices.iter().filter(|slot| slot.stalled.load(Ordering::Relaxed)) {
            let mut control = slot.control.lock();
            let asked = control.queue.as_ref().is_some_and(|queue| queue.in_flight() > 0);
            if asked && control.settle().is_ok() {
                slot.stalled.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Releases a device for other lives, unless something is still under way to it.
    pub fn let_go(&self, device: u32) {
        let slot = &self.devices[device as usize];
        let mut control = slot.control.lock();
        // Otherwise the block could land in the next life, over a header that is newer: the device stays locked instead.
        let idle = control.queue.as_ref().is_none_or(|queue| queue.in_flight() == 0);
        if let (Some(device), true) = (&slot.device, idle && !slot.stalled.load(Ordering::Relaxed)) {
            control.is_let_go = true;
            device.let_go();
        }
    }
}
