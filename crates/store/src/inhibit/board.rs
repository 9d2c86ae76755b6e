//! Publishes changes of inhibit: to watches, which look at it when they like, and to a listener, which is called.
//!
//! *Invariants*: a change is that inhibit is set or cleared, or that its scope, class or owner is another; figures in
//! its text change nothing. The listener gets each change once, in order, with no lock held (`upkeep/look/tests.rs`).
//!
//! *On failure*: a listener that does not keep up misses changes between the first [`OUTBOX_MAX`] and the newest; the
//! numbers of the changes show it.

use crate::time;
use forebay_core::{DeadTime, Inhibit, InhibitClass, InhibitListener, InhibitState, Timer};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most changes that wait for a listener.
const OUTBOX_MAX: usize = 256;

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

/// The fields whose change is published.
fn essence(inhibit: Option<&Inhibit>) -> Option<(InhibitClass, &str, &str)> {
    inhibit.map(|inhibit| (inhibit.class, &*inhibit.scope, &*inhibit.owner))
}

impl Board {
    /// Shows what a look found, if that is a change.
    pub(crate) fn post(&self, inhibit: Option<&Inhibit>, now: u64, dead_time: DeadTime, listened: bool) {
        let mut shown = self.shown.lock();
        // Figures in the text change with every look: each would wake all watches.
        if essence(shown.inhibit.as_ref()) == essence(inhibit) {
            return;
        }
        *shown = InhibitState { change: shown.change + 1, inhibit: inhibit.cloned(), since_ns: now, dead_time };
        if listened {
            let mut outbox = self.outbox.lock();
            if outbox.changes.len() >= OUTBOX_MAX {
                outbox.changes.pop_back();
            }
            // The newest replaces the last one that waits, not the first: the listener must end with the state that is.
            debug_assert!(
                outbox.changes.back().is_none_or(|last| last.change < shown.change),
                "changes are told in order, each once"
            );
            outbox.changes.push_back(shown.clone());
        }
        // Under the lock of what is shown: a watch that sees this number and takes the lock finds that change or a later one.
        self.change.store(shown.change, Ordering::Release);
        self.changed.notify_all();
    }

    /// Calls the listener with what waits for it, unless another thread is at it, which then does this as well.
    pub(crate) fn deliver(&self, listener: &dyn InhibitListener) {
        struct Delivering<'b>(&'b Mutex<Outbox>);
        impl Drop for Delivering<'_> {
            fn drop(&mut self) {
                let mut outbox = self.0.lock();
                debug_assert!(outbox.delivering, "one thread calls the listener");
                outbox.delivering = false;
            }
        }
        loop {
            // The lock is released before the call: the listener may call the store, which may post.
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

    /// The state now.
    pub(crate) fn state(&self) -> InhibitState {
        self.shown.lock().clone()
    }

    /// The state after a change other than `seen`; waits for one, `None` at the end of the wait. Without a change and a timeout
    /// it takes no lock.
    pub(crate) fn wait_change(&self, seen: &mut u64, timeout: Duration, timer: &dyn Timer) -> Option<InhibitState> {
        if timeout.is_zero() && self.change.load(Ordering::Acquire) == *seen {
            return None;
        }
        let deadline = time::deadline_after(timer, timeout);
        // Looked at under the lock that a post holds over its notice: a change in between is not missed.
        let mut shown = self.shown.lock();
        while shown.change == *seen {
            if time::wait(timer, &self.changed, &mut shown, deadline) && shown.change == *seen {
                return None;
            }
        }
        *seen = shown.change;
        Some(shown.clone())
    }
}
