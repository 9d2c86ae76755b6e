//! A file that is locked for this process: unlocked on drop, and by nobody but this process.
//!
//! ```text
//! flock(2) is of the open file, which a fork shares        after fork, in the child: its descriptor becomes one of /dev/null
//! ```
//!
//! *Invariants*: nothing but the descriptor here holds the open file that is locked, so mappings are made of another one
//! ([`Locked::again`]). A child has it for no longer than the fork takes: its parent may be killed, and the file is free at once.
//! A child never unlocks: that would unlock its parent's file.
//!
//! *Not here*: children that are made without the C library, by the system call alone: no handler is run for these.
#![expect(unsafe_code, reason = "what runs in a child after a fork is told to the C library")]

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Most files that are locked at once: a store has one, and one for each device.
const LOCKED_MAX: usize = 4096;
const NONE: RawFd = -1;
const PAUSE: Duration = Duration::from_millis(2);

// Without a lock of our own: another thread could have it when the process forks.
static HELD: [AtomicI32; LOCKED_MAX] = [const { AtomicI32::new(NONE) }; LOCKED_MAX];
static EMPTY: OnceLock<File> = OnceLock::new();

/// A locked file.
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    place: usize,
}

impl Locked {
    /// Locks a file, once nobody has it any more.
    ///
    /// # Errors
    /// `WouldBlock` where another process, or another part of this one, has it for longer than `wait`; others of the system.
    pub(crate) fn take(file: File, wait: Duration) -> io::Result<Locked> {
        prepare()?;
        let place = hold(file.as_raw_fd())?;
        // Listed first: a child that is made in between must not keep it.
        let locked = Locked { file, place };
        // Polled: a blocking flock knows no deadline, and a signal to end it would be the whole process's.
        let deadline = Instant::now() + wait;
        loop {
            match flock(&locked.file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                done => return done.map(|()| locked).map_err(io::Error::from),
            }
        }
    }

    /// The same file once more, for what lives longer than the lock, or is shared with children.
    ///
    /// # Errors
    /// `NotFound` where another file has its name; others of the system.
    pub(crate) fn again(&self, path: &Path, write: bool) -> io::Result<File> {
        let file = File::options().read(true).write(write).open(path)?;
        let (ours, there) = (rustix::fs::fstat(&self.file)?, rustix::fs::fstat(&file)?);
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file has its name now"));
        }
        Ok(file)
    }
}

impl std::ops::Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // In a child this is another file. Explicitly: a child that is made at this moment may have the descriptor.
        let _ = flock(&self.file, FlockOperation::Unlock);
        HELD[self.place].store(NONE, Ordering::Release);
    }
}

fn hold(file: RawFd) -> io::Result<usize> {
    let free = |held: &AtomicI32| held.compare_exchange(NONE, file, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let full = || io::Error::new(io::ErrorKind::QuotaExceeded, format!("{LOCKED_MAX} files are locked already"));
    HELD.iter().position(free).ok_or_else(full)
}

/// Once: the C library calls [`let_go`] in each child.
fn prepare() -> io::Result<()> {
    if EMPTY.get().is_some() {
        return Ok(());
    }
    let empty = File::open("/dev/null")?;
    if EMPTY.set(empty).is_ok() {
        // SAFETY: `let_go` calls nothing but what may be called between a fork and the next program (`dup3`), and touches
        // atomics only; nothing of this library is ever unloaded.
        let told = unsafe { libc::pthread_atfork(None, None, Some(let_go)) };
        if told != 0 {
            return Err(io::Error::from_raw_os_error(told));
        }
    }
    Ok(())
}

/// In a child: every locked file's descriptor becomes one of /dev/null. Not closed, because its owner closes it by its number.
extern "C" fn let_go() {
    let Some(empty) = EMPTY.get() else { return };
    for held in &HELD {
        let file = held.swap(NONE, Ordering::AcqRel);
        if file != NONE {
            // SAFETY: two numbers; the one that is replaced is a locked file's of this process, whose owner in the child uses it
            // only to unlock and to close it.
            unsafe { libc::dup3(empty.as_raw_fd(), file, libc::O_CLOEXEC) };
        }
    }
}
