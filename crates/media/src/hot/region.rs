//! The mapped memory of the hot level: a file on tmpfs, hugetlbfs, an ordinary or a DAX file system, or a simulated
//! medium.
//!
//! *Lifecycle*: created at full length, allocated and prefaulted (no SIGBUS later) → mapped → unmapped when the last
//! guard is gone. A lock on the file keeps other processes out until it is unlocked explicitly: closing the descriptor is
//! not enough, because a child that another thread forks shares it until it executes its program.
//!
//! *Invariants*: offsets are checked against the length on every access; the mapping outlives every slice, because
//! slices are handed out only under something that holds the region.

#![expect(unsafe_code, reason = "this is the mapping")]

use super::copy;
use crate::limits::{PAYLOAD_ALIGN, SUPERBLOCK_AREA_BYTES};
use crate::locked::Locked;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// When written cache lines are flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushPolicy {
    /// Flush where the mapping is persistent memory (`MAP_SYNC` succeeded), otherwise rely on the page cache, which
    /// survives the death of the process.
    #[default]
    Auto,
    /// Flush cache lines for any kind of mapping; for measuring what persistent memory would cost.
    Always,
}

/// Memory of its own kind in place of a mapped file: the seam at which tests lose what was not flushed.
///
/// # Safety
/// The memory is valid, and stays where it is, as long as the medium lives; nobody else writes it.
pub unsafe trait Medium: Send + Sync {
    /// Where the memory begins, and its length in bytes.
    fn memory(&self) -> (NonNull<u8>, usize);

    /// Whether what was flushed and fenced survives power loss.
    fn is_persistent(&self) -> bool;

    /// The boot id of the machine that has it; `None` where it is the real one's.
    fn machine_boot(&self) -> Option<[u8; 36]>;

    /// Begins to write a range back.
    fn flush(&self, offset: u64, length: usize);

    /// What was flushed before is durable before what follows.
    fn fence(&self);

    /// Makes the first bytes durable.
    fn sync(&self, length: usize);
}

/// How written lines reach the medium.
#[derive(Clone)]
enum Flush {
    /// The page cache has them; it survives the process.
    Nothing,
    /// Cache lines are written back: persistent memory.
    Lines,
    /// The medium is told.
    Told(Arc<dyn Medium>),
}

/// A mapped region.
pub struct Region {
    base: NonNull<u8>,
    length: usize,
    flush: Flush,
    /// The locked file; `None` for another medium and after [`Region::unlock`].
    file: Mutex<Option<Locked>>,
    mapped: bool,
    /// What is flushed survives power loss.
    persistent: bool,
    /// Bytes from the start whose pages are in the page table.
    faulted: AtomicUsize,
}

// SAFETY: the memory is plain bytes; the protocol that decides which thread may access which part is that of segments
// (`segment.rs`) and the index locks' business, not bound to a thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// How long an opening waits where the file is locked: a last guard may be on its way out, or a check looks at the file.
const LOCK_WAIT: Duration = Duration::from_millis(250);
const PREFAULT_BYTES: usize = 64 << 20;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

impl Region {
    /// Makes a file of `length` bytes at `path`, allocates and prefaults it.
    pub fn create(path: &Path, length: u64, policy: FlushPolicy) -> Result<Region> {
        let name = path.display();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|error| Error::invalid(format!("{name}: cannot make the region file")).with_source(error))?;
        let file = lock(file, path, Duration::ZERO)?;
        let length = round_for(&file, length)?;
        // Allocated now: on a full file system the first touch of a hole would end the process with SIGBUS, at a put that
        // had its space granted.
        rustix::fs::ftruncate(&*file, length)
            .and_then(|()| rustix::fs::fallocate(&*file, rustix::fs::FallocateFlags::empty(), 0, length))
            .map_err(|error| {
                let _ = std::fs::remove_file(path);
                Error::full(format!("{name}: cannot allocate {length} bytes for the hot level")).with_source(error)
            })?;
        let region = Region::map(file, length, policy, path)?;
        // Page faults now rather than under the first puts, whose latency they would dominate.
        while region.prefault() {}
        Ok(region)
    }

    /// Whether a file is what a creation left that was cut off before its superblock: nobody has it open, and it begins
    /// with zeros.
    pub fn is_unfinished(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        let Ok(file) = Locked::take(file, Duration::ZERO) else { return false };
        let mut start = [0; SUPERBLOCK_AREA_BYTES];
        ((&*file).read_exact(&mut start).is_err() || start.iter().all(|&byte| byte == 0))
            && file.metadata().is_ok_and(|data| data.is_file())
    }

    /// Maps an existing file, at its length.
    pub fn open(path: &Path, policy: FlushPolicy) -> Result<Region> {
        let file = File::options().read(true).write(true).open(path).map_err(|error| {
            Error::invalid(format!("{}: cannot open the region file", path.display())).with_source(error)
        })?;
        let file = lock(file, path, LOCK_WAIT)?;
        let length = region_length(&file, path)?;
        let allocated = rustix::fs::fstat(&*file).is_ok_and(|stat| stat.st_blocks as u64 * 512 >= length);
        // A file with holes would fault later.
        if !allocated {
            let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&*file, flags, 0, length).map_err(|error| {
                Error::full(format!("{}: cannot allocate its holes", path.display())).with_source(error)
            })?;
        }
        Region::map(file, length, policy, path)
    }

    /// Maps an existing file so that what is written stays in this process: the file is as it was.
    pub fn open_aside(path: &Path) -> Result<Region> {
        let file = File::open(path).map_err(|error| {
            Error::invalid(format!("{}: cannot open the region file", path.display())).with_source(error)
        })?;
        // Locked as for an ordinary opening: a life that goes on would change bytes while they are checked.
        let file = lock(file, path, LOCK_WAIT)?;
        let length = region_length(&file, path)?;
        let size = usize::try_from(length).map_err(|_| Error::invalid("region larger than the address space"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapped = mapped_file(&file, path, false)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing existing is replaced.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, MapFlags::PRIVATE, &mapped, 0) };
        let base = base
            .map_err(|error| Error::invalid(format!("{}: cannot map", path.display())).with_source(error))
            .and_then(|base| NonNull::new(base.cast()).ok_or_else(|| Error::internal("mmap returned null")))?;
        Ok(Region {
            base,
            length: size,
            flush: Flush::Nothing,
            file: Mutex::new(Some(file)),
            mapped: true,
            persistent: false,
            faulted: AtomicUsize::new(size),
        })
    }

    fn map(file: Locked, length: u64, policy: FlushPolicy, path: &Path) -> Result<Region> {
        let size = usize::try_from(length).map_err(|_| Error::invalid("region larger than the address space"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapped = mapped_file(&file, path, true)?;
        let map = |flags| {
            // SAFETY: a fresh mapping at an address of the kernel's choice; nothing existing is replaced.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, &mapped, 0) }
        };
        // MAP_SYNC succeeds only on a DAX mapping of persistent memory: there, flushed lines are durable.
        let (base, persistent) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(base) => (base, true),
            Err(_) => match map(MapFlags::SHARED) {
                Ok(base) => (base, false),
                Err(error) => return Err(Error::invalid(format!("{}: cannot map", path.display())).with_source(error)),
            },
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| Error::internal("mmap returned null"))?;
        let flush = if persistent || policy == FlushPolicy::Always { Flush::Lines } else { Flush::Nothing };
        Ok(Region {
            base,
            length: size,
            flush,
            file: Mutex::new(Some(file)),
            mapped: true,
            persistent,
            faulted: AtomicUsize::new(0),
        })
    }

    /// A region over a medium that is no file.
    pub fn over(medium: Arc<dyn Medium>) -> Region {
        let (base, length) = medium.memory();
        // State words are accessed as atomics of 8 bytes, payloads are stored by whole cache lines.
        debug_assert!(base.addr().get().is_multiple_of(64), "a medium whose memory begins in the middle of a line");
        let persistent = medium.is_persistent();
        Region {
            base,
            length,
            flush: Flush::Told(medium),
            file: Mutex::new(None),
            mapped: false,
            persistent,
            faulted: AtomicUsize::new(length),
        }
    }

    /// Brings the next piece of the mapping into the page table; `false` where all is. A new region is prefaulted before
    /// its first use; one that is opened, whose pages exist, by and by, so that opening does not wait for it.
    pub fn prefault(&self) -> bool {
        // One thread prefaults at a time, creation or maintenance; two would only touch pages twice.
        let from = self.faulted.load(Ordering::Relaxed);
        debug_assert!(from <= self.length, "prefaulted past the end of the mapping");
        let piece = PREFAULT_BYTES.min(self.length - from);
        if piece == 0 {
            return false;
        }
        // SAFETY: within the mapping. Old kernels refuse to populate: pages then come at first touch.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().add(from).cast(), piece, Advice::LinuxPopulateWrite) };
        self.faulted.store(from + piece, Ordering::Relaxed);
        true
    }

    /// Bytes of the region.
    pub fn length(&self) -> u64 {
        self.length as u64
    }

    /// Whether it is the mapping of a file.
    pub fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Whether what was flushed survives power loss.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Releases the lock on the file; the mapping stays for guards.
    pub fn unlock(&self) {
        drop(self.file.lock().take());
    }

    /// Hands all dirty pages to the device, where the medium is a file on one.
    pub fn sync(&self) -> Result<()> {
        self.sync_start(self.length)
    }

    /// Hands the dirty pages of the first bytes to the device and waits for it, where the medium is a file on one.
    pub fn sync_start(&self, length: usize) -> Result<()> {
        if let Flush::Told(medium) = &self.flush {
            // Persistent memory has nothing to sync: its flushed lines are durable.
            if !self.persistent {
                medium.sync(length);
            }
            return Ok(());
        }
        let from = self.at(0, length);
        // SAFETY: `at` has checked that the range is mapped by this region, which begins at a page.
        unsafe { rustix::mm::msync(from.cast(), length, rustix::mm::MsyncFlags::SYNC) }
            .map_err(|error| Error::corrupt("the medium refused to take its pages").with_source(error))
    }

    /// The boot id of the machine that has the medium; zeros where the system has none.
    pub fn machine_boot(&self) -> [u8; 36] {
        match &self.flush {
            Flush::Told(medium) => medium.machine_boot().unwrap_or_else(machine_boot),
            Flush::Nothing | Flush::Lines => machine_boot(),
        }
    }

    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        // Also in releases: offsets come from entries, and a wild one must be a panic, never an access to other memory.
        let offset = offset as usize;
        assert!(offset <= self.length && length <= self.length - offset, "outside of the region");
        // SAFETY: just checked to lie within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Bytes of the region.
    ///
    /// Protocol: nobody writes them meanwhile. The caller holds a pin, a live record or the region alone.
    #[inline]
    pub fn bytes(&self, offset: u64, length: usize) -> &[u8] {
        // SAFETY: in range; not written meanwhile by the protocol above.
        unsafe { std::slice::from_raw_parts(self.at(offset, length), length) }
    }

    /// Bytes of the region that only the caller accesses: a reservation that is neither committed nor given up.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "exclusive by reservation, not by borrow")]
    pub fn bytes_mut(&self, offset: u64, length: usize) -> &mut [u8] {
        // SAFETY: in range; exclusive by the reservation.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, length), length) }
    }

    /// Copies a payload into a reservation, past the cache where that pays, and returns its checksum. Durable and
    /// visible after the next [`Region::fence`].
    #[inline]
    pub fn copy_in(&self, offset: u64, source: &[u8]) -> u32 {
        debug_assert!(offset.is_multiple_of(PAYLOAD_ALIGN as u64), "a payload at {offset} shares a line with another");
        let target = self.at(offset, source.len());
        // SAFETY: in range, and only the holder of the reservation writes there; `source` is the caller's memory.
        let crc = unsafe { copy::copy_checksum(target, source) };
        match &self.flush {
            Flush::Nothing => {}
            Flush::Lines => copy::flush_lines(target, source.len()),
            Flush::Told(medium) => medium.flush(offset, source.len()),
        }
        crc
    }

    /// Writes small structures with ordinary stores; durable after [`Region::flush`] and [`Region::fence`].
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.bytes_mut(offset, bytes.len()).copy_from_slice(bytes);
    }

    /// Begins to write a range back to the medium.
    #[inline]
    pub fn flush(&self, offset: u64, length: usize) {
        match &self.flush {
            Flush::Nothing => {}
            Flush::Lines => copy::flush_lines(self.at(offset, length), length),
            Flush::Told(medium) => medium.flush(offset, length),
        }
    }

    /// Everything written and flushed before is durable (as the medium goes) before everything after is visible.
    #[inline]
    pub fn fence(&self) {
        // Also without persistent memory: non-temporal stores are not ordered by the lock under which a record is published.
        copy::store_fence();
        if let Flush::Told(medium) = &self.flush {
            medium.fence();
        }
    }

    /// The 8-byte word at an aligned offset, for state words that change under readers.
    #[inline]
    fn word(&self, offset: u64) -> &std::sync::atomic::AtomicU64 {
        let target = self.at(offset, 8);
        assert!(target.addr().is_multiple_of(8));
        // SAFETY: in range, aligned, and state words are only accessed atomically once their entry is published.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(target.cast()) }
    }

    /// Reads a state word.
    #[inline]
    pub fn load_word(&self, offset: u64) -> u64 {
        // Acquire, with the release below: what a mark follows from is seen by a reader that finds the mark.
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    /// Replaces a state word at once and flushes its line.
    #[inline]
    pub fn store_word(&self, offset: u64, word: u64) {
        // One aligned store of 8 bytes: persistent memory keeps it whole or not at all, so that no crash leaves half a mark.
        self.word(offset).store(word.to_le(), Ordering::Release);
        self.flush(offset, 8);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: mapped by `map` with this length; no slice outlives the region.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        }
    }
}

/// Length of an existing region file in bytes.
///
/// # Errors
/// `Corrupt` where it is too short for a superblock.
fn region_length(file: &File, path: &Path) -> Result<u64> {
    let length = file.metadata().map_err(|error| Error::invalid("region file").with_source(error))?.len();
    if length < SUPERBLOCK_AREA_BYTES as u64 {
        return Err(Error::corrupt(format!("{}: {length} bytes are too few for a region", path.display())));
    }
    Ok(length)
}

/// The machine's boot id; zeros where the system has none.
fn machine_boot() -> [u8; 36] {
    let mut id = [0; 36];
    if let Ok(text) = std::fs::read("/proc/sys/kernel/random/boot_id")
        && let Some(text) = text.get(..36)
    {
        id.copy_from_slice(text);
    }
    id
}

/// What is mapped: a mapping keeps its open file in every child, and with it a lock.
fn mapped_file(locked: &Locked, path: &Path, write: bool) -> Result<File> {
    let cannot =
        |error| Error::unavailable(format!("{}: cannot open the region file", path.display())).with_source(error);
    locked.again(path, write).map_err(cannot)
}

fn lock(file: File, path: &Path, wait: Duration) -> Result<Locked> {
    Locked::take(file, wait).map_err(|error| {
        let what = "this store or ring is open already, here or in another process";
        let refused = Error::unavailable(format!("{}: {what}", path.display()));
        // As the system says it: callers ask whether somebody has it.
        match Errno::from_io_error(&error) {
            Some(errno) => refused.with_source(errno),
            None => refused.with_source(error),
        }
    })
}

/// hugetlbfs wants whole huge pages.
fn round_for(file: &File, length: u64) -> Result<u64> {
    const HUGETLBFS_MAGIC: i64 = 0x9584_58F6;
    let info = rustix::fs::fstatfs(file).map_err(|error| Error::invalid("statfs").with_source(error))?;
    let huge = info.f_type == HUGETLBFS_MAGIC;
    Ok(if huge { length.next_multiple_of(HUGE_PAGE_BYTES) } else { length })
}
