//! Where changes of inhibit are shown: to watches, which look when they like, and to a listener, which is called.
//!
//! *Invariants*: a change is that inhibit is set or cleared, or that its scope, class or owner is another; figures in
//! its text change nothing. The listener gets each change once, in order, with no lock held (`pressure/tests.rs`).
//!
//! *On failure*: a listener that does not keep up misses changes between the first [`OUTBOX_MAX`] and the newest; the
//! numbers of the changes show it.

use crate::{DeadTime, Inhibit, Store};
use forebay_media::sync::deadline_after;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most changes that wait for a listener.
const OUTBOX_MAX: usize = 256;

/// Inhibit as it stands after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InhibitState {
    /// Number of this change since the store was opened; 0 before the first.
    pub change: u64,
    /// Set while the trigger should pause. Its figures are those of the change.
    pub inhibit: Option<Inhibit>,
    /// When the change was noticed, in nanoseconds of the store's clock.
    pub since_ns: u64,
    /// Dead time by class, up to the change.
    pub dead_time: DeadTime,
}

/// Who is told of every change of inhibit: what stops a trigger.
pub trait InhibitListener: Send + Sync {
    /// Called once per change, in order, on the thread that noticed it and with no lock of the store held; it may call
    /// the store. Must not block.
    fn changed(&self, state: &InhibitState);
}

#[derive(Default)]
pub(crate) struct Board {
    /// Number of the change that is shown: what a watch asks first.
    change: AtomicU64,
    shown: Mutex<InhibitState>,
    changed: Condvar,
    outbox: Mutex<Outbox>,
}

#[derive(Default)]
struct Outbox {
    changes: VecDeque<InhibitState>,
    /// Somebody is calling the listener.
    delivering: bool,
}

/// What makes a change.
fn essence(inhibit: Option<&Inhibit>) -> Option<(crate::InhibitClass, &str, &str)> {
    inhibit.map(|inhibit| (inhibit.class, &*inhibit.scope, &*inhibit.owner))
}

impl Board {
    /// Shows what a look found, if that is a change.
    pub(super) fn post(&self, inhibit: Option<&Inhibit>, now: u64, dead_time: DeadTime, listened: bool) {
        let mut shown = self.shown.lock();
        if essence(shown.inhibit.as_ref()) == essence(inhibit) {
            return;
        }
        *shown = InhibitState { change: shown.change + 1, inhibit: inhibit.cloned(), since_ns: now, dead_time };
        if listened {
            let mut outbox = self.outbox.lock();
            if outbox.changes.len() >= OUTBOX_MAX {
                outbox.changes.pop_back();
            }
            outbox.changes.push_back(shown.clone());
        }
        self.change.store(shown.change, Ordering::Release);
        self.changed.notify_all();
    }

    /// Calls the listener with what waits for it, unless another thread is at it, which then does this as well.
    pub(super) fn deliver(&self, listener: &dyn InhibitListener) {
        struct Delivering<'b>(&'b Mutex<Outbox>);
        impl Drop for Delivering<'_> {
            fn drop(&mut self) {
                self.0.lock().delivering = false;
            }
        }
        loop {
            let next = {
                let mut outbox = self.outbox.lock();
                if outbox.delivering {
                    return;
                }
                let Some(next) = outbox.changes.pop_front() else { return };
                outbox.delivering = true;
                next
            };
            // Also where the listener panics the next change finds its way.
            let _delivering = Delivering(&self.outbox);
            listener.changed(&next);
        }
    }

    /// As it stands now.
    pub(crate) fn state(&self) -> InhibitState {
        self.shown.lock().clone()
    }
}

impl Store {
    /// Follows inhibit from now on. Who polls asks a watch rather than `stats`, which looks at everything.
    pub fn watch_inhibit(&self) -> InhibitWatch {
        InhibitWatch { seen: self.engine().pressure.board.state().change, store: self.clone() }
    }
}

/// Follows inhibit. It shows what the last look found: maintenance looks every few milliseconds.
pub struct InhibitWatch {
    store: Store,
    seen: u64,
}

impl InhibitWatch {
    /// Inhibit as it stands now.
    pub fn state(&self) -> InhibitState {
        self.store.engine().pressure.board.state()
    }

    /// The state after changes that this watch has not yet answered; waits for one, `None` at the end of the wait. Several
    /// changes at once give the newest; their numbers tell. Without a change and a timeout it takes no lock.
    pub fn wait_change(&mut self, timeout: Duration) -> Option<InhibitState> {
        let board = &self.store.engine().pressure.board;
        if timeout.is_zero() && board.change.load(Ordering::Acquire) == self.seen {
            return None;
        }
        let deadline = deadline_after(timeout);
        let mut shown = board.shown.lock();
        while shown.change == self.seen {
            if board.changed.wait_until(&mut shown, deadline).timed_out() && shown.change == self.seen {
                return None;
            }
        }
        self.seen = shown.change;
        Some(shown.clone())
    }
}

impl fmt::Debug for InhibitWatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "InhibitWatch(change {})", self.seen)
    }
}
