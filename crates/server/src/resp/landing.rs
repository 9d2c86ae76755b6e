//! A large value of SET on its way: from the socket straight into the store's memory.
//!
//! ```text
//! header of the value read ─▶ reserve ─▶ what has come is copied, the rest is read into place ─▶ end of line ─▶ commit
//! ```
//!
//! *On failure*: a value that is refused is read and dropped, so that the commands behind it are found; a connection
//! that ends in between gives the reservation back.

use super::failure::Failure;
use forebay_core::{Key, ReserveFragment};

/// Values from this length on are read into place, where they have not come whole.
pub(super) const LANDING_BYTES_MIN: usize = 4096;

/// One value on its way.
pub(super) struct Landing<R> {
    pub(super) key: Key,
    /// Where it goes; or why it goes nowhere.
    pub(super) target: Result<R, Failure>,
    length: usize,
    filled: usize,
}

impl<R: ReserveFragment> Landing<R> {
    pub(super) fn new(key: Key, length: usize, target: Result<R, Failure>) -> Landing<R> {
        Landing { key, target, length, filled: 0 }
    }

    /// Bytes of the value.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether its end has to wait for a device.
    pub(super) fn commit_may_wait(&self) -> bool {
        self.target.as_ref().is_ok_and(R::commit_may_wait)
    }

    /// Bytes that have not come.
    #[inline]
    pub(super) fn lacks(&self) -> usize {
        self.length - self.filled
    }

    /// Takes what belongs to the value from bytes that have come; how many.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        // A refused value is counted as well: the command behind it begins after its last byte.
        let count = self.lacks().min(bytes.len());
        if let Ok(reservation) = &mut self.target {
            reservation[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        }
        self.filled += count;
        count
    }

    /// Where the rest is to be read to; nothing for one that is refused.
    pub(super) fn place(&mut self) -> &mut [u8] {
        match &mut self.target {
            Ok(reservation) => &mut reservation[self.filled..],
            Err(_) => &mut [],
        }
    }

    /// This many bytes came there.
    pub(super) fn came(&mut self, count: usize) {
        self.filled += count;
        debug_assert!(self.filled <= self.length, "no more is read into a value than it has");
    }
}
