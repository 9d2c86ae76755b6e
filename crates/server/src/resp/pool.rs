//! Memory for reading and answering, kept by each thread and lent to the connections that have something to read or to
//! say: an idle one has none.

use super::ahead::Ahead;
use std::cell::RefCell;

/// Bytes that are read at once.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Answers that grew past this are not kept.
const REPLY_BYTES_KEPT: usize = 256 << 10;
/// Pieces of memory that a thread keeps of each kind.
const KEPT: usize = 4;

thread_local! {
    static READS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static AHEAD: RefCell<Vec<Ahead>> = const { RefCell::new(Vec::new()) };
    static REPLIES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory of [`READ_BYTES`] to read into.
pub(super) fn take_read() -> Box<[u8]> {
    READS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; READ_BYTES].into())
}

/// What was read there is used up; other lengths are let go.
pub(super) fn give_read(buffer: Box<[u8]>) {
    READS.with_borrow_mut(|kept| {
        if buffer.len() == READ_BYTES && kept.len() < KEPT {
            kept.push(buffer);
        }
    });
}

/// Memory to gather answers in.
pub(super) fn take_replies() -> Vec<u8> {
    REPLIES.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(4096))
}

/// The answers are sent.
pub(super) fn give_replies(mut buffer: Vec<u8>) {
    buffer.clear();
    REPLIES.with_borrow_mut(|kept| {
        if (1..=REPLY_BYTES_KEPT).contains(&buffer.capacity()) && kept.len() < KEPT {
            kept.push(buffer);
        }
    });
}

/// Memory for a batch of commands.
pub(super) fn take_ahead() -> Ahead {
    AHEAD.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// The batch is carried out.
pub(super) fn give_ahead(mut ahead: Ahead) {
    ahead.clear();
    AHEAD.with_borrow_mut(|kept| {
        if kept.len() < KEPT {
            kept.push(ahead);
        }
    });
}
