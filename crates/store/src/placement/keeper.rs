//! The task of keeping the shadow of one device.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::thread::Thread;
use std::time::Instant;

/// The keeper of one shadow.
#[derive(Default)]
pub(crate) struct Keeper {
    pub(crate) round: Mutex<Round>,
    /// Its thread, if the store has threads.
    pub(crate) thread: OnceLock<Thread>,
}

/// State that one round keeps for the next.
#[derive(Default)]
pub(crate) struct Round {
    /// When a snapshot may be tried again, where one did not help.
    pub(crate) fold_again: Option<Instant>,
}

impl Keeper {
    /// Begins the next round at once: what waits becomes durable beside the caller.
    pub(crate) fn wake(&self) {
        // A store without threads has nobody to wake: the call that waits writes for itself.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
