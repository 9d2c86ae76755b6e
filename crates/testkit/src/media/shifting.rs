//! A device whose bytes at rest are others, and which moves fewer than it is asked to.
//!
//! Code that reads or writes a file past the seam finds or leaves garbage; code that does not count what was moved loses
//! the rest.
//!
//! *Invariant*: a byte `b` is stored as `b + 1`; a transfer of several blocks moves some of them, never all.

use super::random::Random;
use forebay_media::warm::{BLOCK_BYTES, Buffer, Device, Done, FileId, Queue};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub struct ShiftingDevice {
    inner: Arc<dyn Device>,
    random: Arc<Mutex<Random>>,
}

impl ShiftingDevice {
    /// Shifts what is stored on `inner`; `seed` says how short the transfers are.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> Arc<ShiftingDevice> {
        Arc::new(ShiftingDevice { inner, random: Arc::new(Mutex::new(Random::new(seed))) })
    }
}

/// How many of these bytes a transfer moves.
fn shorter(random: &Mutex<Random>, bytes: usize) -> usize {
    let blocks = bytes / BLOCK_BYTES;
    if blocks < 2 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return bytes;
    }
    (1 + random.lock().below(blocks - 1)) * BLOCK_BYTES
}

/// The bytes as they are stored, in a buffer that keeps their alignment: what is not aligned stays so, and is refused.
fn shifted(bytes: &[u8]) -> (Buffer, usize) {
    let skew = bytes.as_ptr().addr() % BLOCK_BYTES;
    let mut buffer = Buffer::new(skew + bytes.len());
    for (to, from) in buffer[skew..].iter_mut().zip(bytes) {
        *to = from.wrapping_add(1);
    }
    (buffer, skew)
}

impl Device for ShiftingDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn method(&self) -> String {
        format!("{}, shifted", self.inner.method())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        let file = self.inner.create(name, bytes)?;
        let (zeros, _) = shifted(&Buffer::new(BLOCK_BYTES));
        for at in (0..bytes).step_by(BLOCK_BYTES) {
            if let Err(error) = self.inner.write(file, at, &zeros) {
                let _ = self.inner.remove(name);
                return Err(error);
            }
        }
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        self.inner.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = shorter(&self.random, into.len());
        let into = &mut into[..bytes];
        let moved = self.inner.read(file, offset, into)?;
        for byte in &mut into[..moved] {
            *byte = byte.wrapping_sub(1);
        }
        Ok(moved)
    }

    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..shorter(&self.random, bytes.len())];
        let (stored, skew) = shifted(bytes);
        self.inner.write(file, offset, &stored[skew..skew + bytes.len()])
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        self.inner.sync(file)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let inner = self.inner.queue(depth)?;
        Ok(Box::new(ShiftingQueue { inner, random: self.random.clone(), begun: 0, originals: BTreeMap::new() }))
    }
}

struct ShiftingQueue {
    inner: Box<dyn Queue>,
    random: Arc<Mutex<Random>>,
    begun: u64,
    /// By our own tag: the caller's, and its buffer.
    originals: BTreeMap<u64, (u64, Option<Buffer>)>,
}

impl ShiftingQueue {
    fn keep(&mut self, tag: u64, buffer: Option<Buffer>) -> u64 {
        self.begun += 1;
        self.originals.insert(self.begun, (tag, buffer));
        self.begun
    }
}

impl Queue for ShiftingQueue {
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        let (stored, _) = shifted(&buffer);
        // A length that is more than the buffer is the inner device's to refuse.
        let length = if length > buffer.len() { length } else { shorter(&self.random, length) };
        let tag = self.keep(tag, Some(buffer));
        self.inner.write(tag, file, offset, stored, length);
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        let tag = self.keep(tag, None);
        self.inner.sync(tag, file);
    }

    fn complete(&mut self, wait: Duration) -> Option<Done> {
        let done = self.inner.complete(wait)?;
        let (tag, buffer) = self.originals.remove(&done.tag)?;
        Some(Done { tag, buffer, result: done.result })
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
