//! What the connections of Redis's protocol have in common: numbers of clients, places of scans.

use forebay_core::Key;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Places of scans that are remembered: a cursor is forgotten once so many later ones were given out.
const CURSORS: u64 = 4096;

/// Shared by all connections of one server.
#[derive(Debug)]
pub(crate) struct State {
    clients: AtomicU64,
    cursors: Mutex<Cursors>,
}

#[derive(Debug)]
struct Cursors {
    next: u64,
    places: Vec<(u64, Key)>,
}

impl Default for State {
    fn default() -> State {
        // Another server's cursors, or those of an earlier life, are not taken for this one's.
        let first = (RandomState::new().hash_one(0) >> 16 | 1 << 40) & ((1 << 48) - 1);
        State { clients: AtomicU64::new(0), cursors: Mutex::new(Cursors { next: first, places: Vec::new() }) }
    }
}

impl State {
    /// A number for a new client.
    pub(super) fn next_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Clients since the start.
    pub(super) fn clients(&self) -> u64 {
        self.clients.load(Ordering::Relaxed)
    }

    /// A cursor that goes on behind this key.
    pub(super) fn remember(&self, key: Key) -> u64 {
        let mut cursors = self.cursors.lock();
        let cursor = cursors.next;
        cursors.next += 1;
        let at = (cursor % CURSORS) as usize;
        if cursors.places.len() <= at {
            cursors.places.resize(at + 1, (0, Key::EMPTY));
        }
        cursors.places[at] = (cursor, key);
        cursor
    }

    /// The key behind which this cursor goes on, while it is remembered.
    pub(super) fn recall(&self, cursor: u64) -> Option<Key> {
        let cursors = self.cursors.lock();
        let (known, key) = *cursors.places.get((cursor % CURSORS) as usize)?;
        (known == cursor && cursor != 0).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_bounded_and_not_mixed_up() {
        let state = State::default();
        let first = state.remember(Key::from_packed(&[1]));
        assert_eq!(state.recall(first), Some(Key::from_packed(&[1])));
        assert_eq!((state.recall(first + 1), state.recall(0), state.recall(first + CURSORS)), (None, None, None));
        for _ in 0..CURSORS {
            state.remember(Key::from_packed(&[2]));
        }
        assert_eq!(state.recall(first), None);
        assert!(state.cursors.lock().places.len() <= CURSORS as usize);
        assert!(first < 1 << 53);
    }
}
