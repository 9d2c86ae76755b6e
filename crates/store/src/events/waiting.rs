//! Threads and tasks that wait for ready events.
//!
//! *Invariants*: a thread that finds nothing ready and waits is woken by what becomes ready after it looked: it looks again
//! under the lock that a notice passes, and counts itself before it looks.

use crate::time;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Threads and tasks that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    threads: AtomicU32,
    /// Tasks of event loops.
    tasks: AtomicU32,
    wakers: Mutex<VecDeque<Waker>>,
    lock: Mutex<()>,
    ready: Condvar,
}

impl Waiting {
    /// There are ready events. Costs two loads where nobody waits.
    #[inline]
    pub(crate) fn notify(&self) {
        // The notifier publishes and then reads the count, the waiter counts itself and then looks: in this order one of them
        // sees the other. A notice that is missed all the same costs one pause, because waits are short (`get_any`).
        if self.threads.load(Ordering::SeqCst) > 0 {
            // Between the look of a thread and its wait this lock is held: the notice comes before or after both.
            drop(self.lock.lock());
            self.ready.notify_all();
        }
        if self.tasks.load(Ordering::SeqCst) > 0 {
            self.wake_task();
        }
    }

    /// Waits for a notice, at most `pause`, unless `there` already holds.
    pub(crate) fn wait(&self, pause: Duration, there: impl Fn() -> bool) {
        let mut guard = self.lock.lock();
        self.threads.fetch_add(1, Ordering::SeqCst);
        if !there() {
            time::block(&self.ready, &mut guard, pause);
        }
        let before = self.threads.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a waiting thread is counted");
    }

    /// One notice wakes this task, unless it is known already.
    pub(crate) fn add_task(&self, waker: &Waker) {
        // The count is written under this lock and read without it: it says whether there is anything to look for.
        let mut wakers = self.wakers.lock();
        debug_assert_eq!(self.tasks.load(Ordering::SeqCst) as usize, wakers.len(), "each task is counted");
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push_back(waker.clone());
            self.tasks.store(wakers.len() as u32, Ordering::SeqCst);
        }
    }

    /// The task waits no longer. A notice that it had, and will not follow, goes to another.
    pub(crate) fn forget_task(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock();
        let known = wakers.iter().position(|known| known.will_wake(waker));
        if let Some(at) = known {
            wakers.remove(at);
            self.tasks.store(wakers.len() as u32, Ordering::SeqCst);
            return;
        }
        drop(wakers);
        self.wake_task();
    }

    #[cold]
    fn wake_task(&self) {
        let mut wakers = self.wakers.lock();
        debug_assert_eq!(self.tasks.load(Ordering::SeqCst) as usize, wakers.len(), "each task is counted");
        let waker = wakers.pop_front();
        self.tasks.store(wakers.len() as u32, Ordering::SeqCst);
        drop(wakers);
        // One task for one notice: all of them would wake for one event, and all but one find nothing.
        // Not under the lock: a waker may run the task, which may wait again.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
