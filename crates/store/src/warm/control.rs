//! Single blocks that somebody waits for: headers of containers, and what is tried of one that failed before.
//!
//! *Invariants*: nobody waits longer than a device may stall. Of a device one block is under way at a time, and one that
//! was given up ends before the next begins, so that a late header never lands over a newer one. The header after one that
//! was given up goes to the same copy (`Warm::write_header`): the other copy is durable.

use super::buffer::Buffer;
use super::container::Container;
use super::device::{BLOCK_BYTES, Done, FileId, Queue};
use super::space::Warm;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A block that makes no progress so many times is given up.
const RETRIES_MAX: u32 = 3;

/// A device's queue for them; made with the first.
#[derive(Default)]
pub(super) struct Control {
    queue: Option<Box<dyn Queue>>,
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
            let done = self.answer(deadline)?;
            match done.buffer {
                Some(buffer) if done.result.is_ok_and(|bytes| bytes < BLOCK_BYTES) => block = buffer,
                _ => return Ok(()),
            }
        }
        Err(io::Error::new(io::ErrorKind::WriteZero, "the device takes no more bytes"))
    }

    fn sync(&mut self, file: FileId, deadline: Instant) -> io::Result<()> {
        self.queue.as_mut().ok_or(io::ErrorKind::NotConnected)?.sync(0, file);
        self.answer(deadline).map(drop)
    }

    /// Takes in what was given up, without patience for what does not answer still.
    ///
    /// # Errors
    /// `TimedOut` where it does not.
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
    /// other of these. What the device says otherwise.
    pub(super) fn write_block(&self, container: &Container, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (_, device, file) = self.container(container.number).map_err(io::Error::other)?;
        let slot = &self.devices[container.device as usize];
        let deadline = Instant::now() + self.shape.stall;
        let mut control = slot.control.lock();
        let done = control.settle().and_then(|()| {
            if control.queue.is_none() {
                control.queue = Some(device.queue(1)?);
            }
            let mut block = Buffer::new(BLOCK_BYTES);
            block[..bytes.len()].copy_from_slice(bytes);
            control.write(file, offset, block, deadline)?;
            control.sync(file, deadline)
        });
        let silent = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        slot.stalled.store(silent, Ordering::Relaxed);
        done
    }

    /// Looks whether devices answer again of which a block was given up: a device that is said to stall is avoided, and
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

    /// Lets a device go that has nothing under way.
    pub(crate) fn let_go(&self, device: u32) {
        let slot = &self.devices[device as usize];
        let idle = slot.control.lock().queue.as_ref().is_none_or(|queue| queue.in_flight() == 0);
        if let (Some(device), true) = (&slot.device, idle && !slot.stalled.load(Ordering::Relaxed)) {
            device.let_go();
        }
    }
}
