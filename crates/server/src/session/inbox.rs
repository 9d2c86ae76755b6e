//! Bytes that came in and were not looked at yet.
//!
//! *Invariants*: memory is taken only while there is something in it, so that an idle connection costs next to nothing;
//! it grows no further than what is asked for (`reserve`), which the connection's credit bounds.

use std::cell::RefCell;
use std::io::IoSliceMut;

/// Bytes of a buffer: a system call reads as many at most.
const BUFFER_BYTES: usize = 64 << 10;
/// Buffers that a thread keeps for its connections.
const BUFFERS_KEPT: usize = 64;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer from which frames are taken at the front, and to which the socket adds at the back.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// What is there.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How much is there.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Memory beyond one buffer.
    pub(super) fn memory(&self) -> u64 {
        self.bytes.len().saturating_sub(BUFFER_BYTES) as u64
    }

    /// Takes bytes away at the front.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes.min(self.len());
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room, so that `bytes` fit in one piece.
    pub(super) fn reserve(&mut self, bytes: usize) {
        // Taken with the first byte, given back with the last: thousands of idle connections have no buffer.
        if self.bytes.is_empty() {
            self.bytes = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        }
        if self.start + bytes > self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if bytes > self.bytes.len() {
            self.bytes.resize(bytes, 0);
        }
    }

    /// Where the socket adds, `most` bytes at most.
    pub(super) fn spare(&mut self, most: usize) -> IoSliceMut<'_> {
        let end = self.bytes.len().min(self.end.saturating_add(most));
        IoSliceMut::new(&mut self.bytes[self.end..end])
    }

    /// This many bytes were added.
    pub(super) fn added(&mut self, bytes: usize) {
        debug_assert!(self.end + bytes <= self.bytes.len(), "no more is added than there was room for");
        self.end = (self.end + bytes).min(self.bytes.len());
    }

    /// Gives the memory back where nothing is in it.
    pub(super) fn rest(&mut self) {
        if self.len() > 0 || self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        (self.start, self.end) = (0, 0);
        // Only buffers of the usual size are kept: a large one would stay for the life of the thread.
        if bytes.len() == BUFFER_BYTES {
            BUFFERS.with_borrow_mut(|kept| {
                if kept.len() < BUFFERS_KEPT {
                    kept.push(bytes);
                }
            });
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.consume(self.len());
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_taken_in_order_and_moves_to_the_front_for_room() {
        let mut inbox = Inbox::default();
        inbox.reserve(8);
        let put = |inbox: &mut Inbox, bytes: &[u8]| {
            inbox.spare(usize::MAX)[..bytes.len()].copy_from_slice(bytes);
            inbox.added(bytes.len());
        };
        put(&mut inbox, b"abcdef");
        inbox.consume(4);
        put(&mut inbox, b"gh");
        assert_eq!(inbox.bytes(), b"efgh");
        inbox.reserve(BUFFER_BYTES + 1);
        assert_eq!(inbox.bytes(), b"efgh");
        assert_eq!(inbox.spare(3).len(), 3);
        inbox.consume(100);
        inbox.rest();
        assert_eq!((inbox.len(), inbox.bytes.len()), (0, 0));
    }
}
