//! Reading through a container at opening: what is near is read in one piece, what is far is skipped.

use super::buffer::Buffer;
use super::device::{BLOCK_BYTES, Device, FileId};
use super::reclaim::read_all;
use std::io;

/// Read ahead while the reading is sequential, and after a jump, in bytes.
const NEAR_BYTES: usize = 1 << 20;
const FAR_BYTES: usize = 16 << 10;

/// A view of a container that moves forward.
pub(super) struct ForwardReader<'a> {
    device: &'a dyn Device,
    file: FileId,
    container_bytes: u64,
    buffer: Buffer,
    start: u64,
    length: usize,
}

impl<'a> ForwardReader<'a> {
    pub(super) fn new(device: &'a dyn Device, file: FileId, container_bytes: u64) -> ForwardReader<'a> {
        // Nothing longer is read of a small container.
        let buffer = Buffer::new(NEAR_BYTES.min(container_bytes as usize));
        ForwardReader { device, file, container_bytes, buffer, start: 0, length: 0 }
    }

    /// `bytes` bytes at a position; `None` where they pass the container's end.
    pub(super) fn get(&mut self, position: u64, bytes: usize) -> io::Result<Option<&[u8]>> {
        let Some(end) = position.checked_add(bytes as u64).filter(|end| *end <= self.container_bytes) else {
            return Ok(None);
        };
        if position < self.start || end > self.start + self.length as u64 {
            self.load(position, end)?;
        }
        let at = (position - self.start) as usize;
        Ok(Some(&self.buffer[at..at + bytes]))
    }

    fn load(&mut self, position: u64, end: u64) -> io::Result<()> {
        let block = BLOCK_BYTES as u64;
        let start = position / block * block;
        let known = self.start + self.length as u64;
        // A scan steps from head to head: near ones are in one read, a jump over payload must not read what it skips.
        let near = self.length > 0 && position >= self.start && position <= known + FAR_BYTES as u64;
        let ahead = if near { NEAR_BYTES } else { FAR_BYTES };
        let length = ((end - start) as usize).next_multiple_of(BLOCK_BYTES).max(ahead);
        let length = (length as u64).min(self.container_bytes - start) as usize;
        if length > self.buffer.len() {
            self.buffer = Buffer::new(length);
        }
        // Empty until the read has succeeded: after an error the buffer holds parts of both pieces.
        self.length = 0;
        read_all(self.device, self.file, start, &mut self.buffer[..length])?;
        (self.start, self.length) = (start, length);
        Ok(())
    }
}
