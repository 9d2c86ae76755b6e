//! What all threads of a demo see: the plan, the store, the trigger, counters, and how far the run has come.

use super::meter::Meter;
use super::plan::Plan;
use super::trigger::Trigger;
use forebay_store::{Producer, Store};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) store: &'a Store,
    pub(crate) trigger: Trigger,
    /// Counts what the trigger announces.
    pub(crate) announcer: Mutex<Option<Producer>>,
    /// Per readout thread: what was put.
    pub(crate) put: Vec<Meter>,
    /// Per filter thread: what the first stage was given; verdicts.
    pub(crate) taken: Vec<Meter>,
    /// Per filter thread: what the last stage was given, whole.
    pub(crate) read: Vec<Meter>,
    /// A thread has failed: everybody ends now.
    aborted: AtomicBool,
    /// Data taking is over and took too long to end: the readout no longer waits for space.
    giving_up: AtomicBool,
    /// Nothing is left to decide, or the time for it is over: the filters end.
    finished: AtomicBool,
}

fn meters(n: usize) -> Vec<Meter> {
    (0..n).map(|_| Meter::default()).collect()
}

impl<'a> Shared<'a> {
    pub(crate) fn new(plan: &'a Plan, store: &'a Store, announcer: Producer) -> Shared<'a> {
        let config = &plan.config;
        Shared {
            plan,
            store,
            trigger: Trigger::new(config.readout_threads, plan.window, config.events_per_second),
            announcer: Mutex::new(Some(announcer)),
            put: meters(config.readout_threads),
            taken: meters(config.filter_threads),
            read: meters(config.filter_threads),
            aborted: AtomicBool::new(false),
            giving_up: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    /// The trigger has announced an event.
    pub(crate) fn announced(&self) {
        if let Some(announcer) = &*self.announcer.lock() {
            announcer.announced(1);
        }
    }

    /// The source that does not send now.
    pub(crate) fn silent(&self) -> Option<u32> {
        let kill = self.plan.config.kill.as_ref()?;
        let now = self.trigger.elapsed().as_secs_f64();
        let silent = now >= kill.at_s && kill.back_at_s.is_none_or(|back| now < back);
        silent.then_some(kill.source)
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.trigger.close();
    }

    pub(crate) fn aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    pub(crate) fn give_up(&self) {
        self.giving_up.store(true, Ordering::Release);
    }

    /// Whether a put that finds the store full is not to be tried again.
    pub(crate) fn gives_up(&self) -> bool {
        self.giving_up.load(Ordering::Acquire) || self.aborted()
    }

    pub(crate) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Whether the filters are to end.
    pub(crate) fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) || self.aborted()
    }
}

/// Ends all threads when the scope that started them is left, whatever the reason: no thread is waited for in vain.
pub(crate) struct EndThreads<'s, 'a>(pub(crate) &'s Shared<'a>);

impl Drop for EndThreads<'_, '_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the others when a thread dies of a panic; a failure is told by the thread itself.
pub(crate) struct AbortOnPanic<'s, 'a>(pub(crate) &'s Shared<'a>);

impl Drop for AbortOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort();
        }
    }
}
