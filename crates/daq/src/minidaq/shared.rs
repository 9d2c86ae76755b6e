//! What all threads of a MiniDAQ see: the plan, ring and store, the clock, the inhibit, counters, and how far it has come.

use super::inhibit::Inhibit;
use super::pace::Pace;
use super::plan::Plan;
use crate::demo::meter::Meter;
use forebay_store::{Ring, Store};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) ring: &'a Ring,
    pub(crate) store: &'a Store,
    pub(crate) pace: Pace,
    pub(crate) inhibit: Inhibit,
    /// Per readout thread: frames (`fragments`) and bytes that went into the ring.
    pub(crate) put: Vec<Meter>,
    /// Per link: fragments that went into the store, and their bytes.
    pub(crate) built: Vec<Meter>,
    /// Triggers that were issued (`events`).
    pub(crate) issued: Meter,
    /// Per filter thread: trigger records that were checked, and how many were accepted.
    pub(crate) taken: Vec<Meter>,
    /// Trigger records that the archive took over, and their bytes.
    pub(crate) archived: Meter,
    /// A thread has failed: everybody ends now.
    aborted: AtomicBool,
    /// Data taking is over: no more triggers.
    closed: AtomicBool,
    /// Data taking is over and took too long to end: nobody waits for space any more.
    giving_up: AtomicBool,
    /// Every request is answered: the readout ends.
    read_out: AtomicBool,
    /// Nothing is left to decide, or the time for it is over: the filters end.
    finished: AtomicBool,
}

fn meters(n: usize) -> Vec<Meter> {
    (0..n).map(|_| Meter::default()).collect()
}

impl<'a> Shared<'a> {
    pub(crate) fn new(plan: &'a Plan, ring: &'a Ring, store: &'a Store) -> Shared<'a> {
        let config = &plan.config;
        Shared {
            plan,
            ring,
            store,
            pace: Pace::new(plan),
            inhibit: Inhibit::new(config.busy_at, config.free_below),
            put: meters(config.readout_threads),
            built: meters(plan.links as usize),
            issued: Meter::default(),
            taken: meters(config.filter_threads),
            archived: Meter::default(),
            aborted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            giving_up: AtomicBool::new(false),
            read_out: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    pub(crate) fn aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether no more triggers are to be issued.
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.aborted()
    }

    pub(crate) fn give_up(&self) {
        self.giving_up.store(true, Ordering::Release);
    }

    /// Whether a put that finds the store full is not to be tried again.
    pub(crate) fn gives_up(&self) -> bool {
        self.giving_up.load(Ordering::Acquire) || self.aborted()
    }

    pub(crate) fn end_readout(&self) {
        self.read_out.store(true, Ordering::Release);
    }

    /// Whether the readout is to end.
    pub(crate) fn read_out(&self) -> bool {
        self.read_out.load(Ordering::Acquire) || self.aborted()
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

/// Tells the others when a thread dies of a panic; a failure is told by [`Shared::guarded`].
struct AbortOnPanic<'s, 'a>(&'s Shared<'a>);

impl Drop for AbortOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort();
        }
    }
}

impl Shared<'_> {
    /// Runs the body of a thread: its failure or panic ends the others.
    pub(crate) fn guarded<T>(&self, body: impl FnOnce() -> forebay_core::Result<T>) -> forebay_core::Result<T> {
        let _abort = AbortOnPanic(self);
        body().inspect_err(|_| self.abort())
    }
}
