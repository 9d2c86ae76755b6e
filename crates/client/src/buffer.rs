//! Memory of answers, used again once nobody holds it.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

/// Most bytes that are kept for later.
const KEPT_BYTES: usize = 64 << 20;

/// Buffers of one client.
#[derive(Default)]
pub(crate) struct Buffers {
    kept: Mutex<(Vec<Vec<u8>>, usize)>,
}

impl Buffers {
    /// A buffer of this length with unspecified content.
    pub(crate) fn take(self: &Arc<Buffers>, length: usize) -> Buffer {
        // The lock is held for the search only, not while fresh memory is zeroed.
        let found = {
            let (kept, bytes) = &mut *self.kept.lock();
            // The last one that fits: it is the likeliest to be in the cache.
            let at = kept.iter().rposition(|buffer| buffer.len() >= length && buffer.len() / 4 <= length.max(4096));
            at.map(|at| kept.swap_remove(at)).inspect(|buffer| *bytes -= buffer.len())
        };
        let bytes = found.unwrap_or_else(|| vec![0; length]);
        debug_assert!(bytes.len() >= length, "a buffer has room for its answer");
        Buffer { bytes, length, home: Arc::downgrade(self) }
    }
}

impl Buffers {
    /// Memory that came from elsewhere, and is kept once nobody holds it.
    pub(crate) fn of(self: &Arc<Buffers>, bytes: Vec<u8>) -> Buffer {
        let length = bytes.len();
        Buffer { bytes, length, home: Arc::downgrade(self) }
    }
}

/// A buffer, on loan.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    home: Weak<Buffers>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        // Kept up to a bound: one large answer must not hold its memory for the life of the client.
        let (kept, bytes) = &mut *home.kept.lock();
        if *bytes + self.bytes.len() <= KEPT_BYTES && kept.len() < 256 && !self.bytes.is_empty() {
            *bytes += self.bytes.len();
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back() {
        let buffers = Arc::new(Buffers::default());
        let first = buffers.take(10_000);
        let place = first.as_ptr();
        drop(first);
        let again = buffers.take(9_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 9_000));
        assert_ne!(buffers.take(9_000).as_ptr(), place);
        assert_eq!(buffers.take(0).len(), 0);
    }
}
