//! Single blocks that somebody waits for: headers of containers, and what is tried of one that failed before.
//!
//! *Invariants*: nobody waits longer than a device may stall. Of a device one block is under way at a time, and one that
//! was given up ends before the next begins: a late header never lands over a newer one, and the older copy of a header is
//! overwritten only once the newer one is durable.

use super::buffer::Buffer;
use super::container::Container;
use super::device::{BLOCK_BYTES, Device, Done, FileId, Queue};
use super::space::Warm;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A block that makes no progress so many times is given up.
const RETRIES_MAX: u32 = 3;

/// A device's queue for them; made with the first.
#[derive(Default)]
pub(super) struct Control {
    queue: Option<Box<dyn Queue>>,
    /// Whose block was given up, and is not known to be durable.
    owed: Option<u32>,
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

    /// Ends what was given up, without patience for what does not answer still.
    fn settle(&mut self, file: FileId, deadline: Instant) -> io::Result<()> {
        if self.queue.as_ref().is_some_and(|queue| queue.in_flight() > 0) {
            self.answer(Instant::now())?;
        }
        self.sync(file, deadline)
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
        let done = self.settle_owed(&mut control, device, deadline).and_then(|()| {
            let mut block = Buffer::new(BLOCK_BYTES);
            block[..bytes.len()].copy_from_slice(bytes);
            control.owed = Some(container.number);
            control.write(file, offset, block, deadline)?;
            control.sync(file, deadline)
        });
        let silent = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        slot.stalled.store(silent, Ordering::Relaxed);
        if !silent {
            control.owed = None;
        }
        done
    }

    fn settle_owed(&self, control: &mut Control, device: &Arc<dyn Device>, deadline: Instant) -> io::Result<()> {
        if control.queue.is_none() {
            control.queue = Some(device.queue(1)?);
        }
        let Some(owed) = control.owed else { return Ok(()) };
        let (container, _, file) = self.container(owed).map_err(io::Error::other)?;
        match control.settle(file, deadline) {
            Err(error) if error.kind() != io::ErrorKind::TimedOut => self.poison(container),
            silent_or_done => silent_or_done?,
        }
        control.owed = None;
        Ok(())
    }
}
