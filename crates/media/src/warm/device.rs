//! One device of the warm level: a directory of preallocated files, behind the seam that all of its I/O goes through.
//!
//! *Invariants*: offsets, lengths and buffers are multiples of [`BLOCK_BYTES`]; a write may be short and a read may be
//! short: callers count what was really moved; nothing is durable before a `sync` that began after its write completed.
//!
//! *Not here*: what the files mean (`container.rs`, `log/`).

use super::buffer::Buffer;
use crate::bytes::CONTAINER_BLOCK_BYTES;
use std::io;
use std::time::Duration;

/// Alignment of every offset, length and buffer, in bytes.
// What direct I/O wants of any disk of today, and what a file system writes at once; the formats use the same block.
pub const BLOCK_BYTES: usize = 4096;
const _: () = assert!(BLOCK_BYTES as u64 == CONTAINER_BLOCK_BYTES);

/// A file of a device, as `create` or `open` answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// A directory of files on one device. The real one is a directory of the file system; tests have ones that forget,
/// fail, stall, shift and shorten.
pub trait Device: Send + Sync {
    /// Its name for people: the directory's path.
    fn name(&self) -> String;

    /// How it is written, for people: `io_uring, direct`, `pwrite, direct`, `pwrite, buffered`.
    fn method(&self) -> String;

    /// Names of its files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Bytes that could still be allocated.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Makes a file of this length, all of it allocated; it reads as zeros. `AlreadyExists` if it is there.
    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId>;

    /// Opens a file; answers its length in bytes.
    fn open(&self, name: &str) -> io::Result<(FileId, u64)>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Reads into `into` (aligned); answers how many bytes, which may be fewer.
    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes `bytes` (aligned) and waits; answers how many, which may be fewer.
    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes what was written to the file durable.
    fn sync(&self, file: FileId) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync_names(&self) -> io::Result<()>;

    /// What became of its name, for people, where what is open is not there any more, or something else is; `None` as long as
    /// all is well.
    fn gone(&self) -> Option<String> {
        None
    }

    /// A store that opened it is done with it and has nothing under way: others may have it, also while handles are left.
    fn let_go(&self) {}

    /// A queue of asynchronous operations, `depth` of them at a time.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// Whether an operation on `length` bytes (in `memory`, if any) at `offset` keeps to blocks.
///
/// # Errors
/// `InvalidInput`, with what is not a multiple of [`BLOCK_BYTES`].
pub fn check_aligned(offset: u64, length: u64, memory: &[u8]) -> io::Result<()> {
    let block = BLOCK_BYTES as u64;
    let address = if memory.is_empty() { 0 } else { memory.as_ptr().addr() as u64 };
    for (what, value) in [("offset", offset), ("length", length), ("address", address)] {
        if value % block != 0 {
            let what = format!("{what} {value:#x} is not a multiple of {block}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    Ok(())
}

/// What became of a queued operation.
#[derive(Debug)]
pub struct Done {
    /// What the caller named it.
    pub tag: u64,
    /// The buffer that was written, back; `None` after a sync.
    pub buffer: Option<Buffer>,
    /// Bytes written, perhaps fewer than asked for; 0 for a sync.
    pub result: io::Result<usize>,
}

/// Asynchronous operations of one thread. Dropping it waits for what is in flight.
pub trait Queue: Send {
    /// Begins to write the first `length` bytes of `buffer`. Only while `in_flight` is below the depth.
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize);

    /// Begins to make durable what was written to the file by operations that have completed.
    fn sync(&mut self, tag: u64, file: FileId);

    /// The next completed operation, in any order; `None` where none completes in time.
    fn complete(&mut self, wait: Duration) -> Option<Done>;

    /// Operations begun and not yet answered by `complete`.
    fn in_flight(&self) -> usize;
}
