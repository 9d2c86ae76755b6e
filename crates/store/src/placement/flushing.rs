//! Fragments that go down after a delay.

use super::Level;
use forebay_core::Key;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// One fragment before its turn.
pub(crate) struct Turn {
    pub(crate) due_ns: u64,
    pub(crate) key: Key,
    pub(crate) length: u32,
}

/// Fragments that are to go down, in the order in which they came.
#[derive(Default)]
pub(crate) struct Flushing {
    pub(crate) turns: Mutex<VecDeque<Turn>>,
}

impl Level {
    /// Fragments that could not go now.
    pub(crate) fn flush_later(&self, keys: Vec<Key>) {
        let mut turns = self.flushing.turns.lock();
        turns.extend(keys.into_iter().map(|key| Turn { due_ns: 0, key, length: 0 }));
    }
}
