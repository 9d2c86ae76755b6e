//! State that all threads of a demo share: the plan, the store, the trigger, counters, and how far the run has come.

use super::duty::Farm;
use super::plan::Plan;
use super::trigger::Trigger;
use crate::meter::Meter;
use crate::threads::{Ends, Together};
use forebay_store::{InhibitWatch, Producer, Store};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct DemoShared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) store: &'a Store,
    pub(crate) trigger: Trigger,
    /// What the trigger obeys.
    pub(crate) inhibit: Mutex<InhibitWatch>,
    /// What the filters obey.
    pub(crate) farm: Farm,
    /// Counts what the trigger announces.
    pub(crate) announcer: Mutex<Option<Producer>>,
    /// Per readout thread: what was put.
    pub(crate) put: Vec<Meter>,
    /// Per filter thread: what the first stage was given; verdicts.
    pub(crate) taken: Vec<Meter>,
    /// Per filter thread: what the last stage was given, whole.
    pub(crate) read: Vec<Meter>,
    /// The filters have ended: nothing more is accepted.
    all_decided: AtomicBool,
    ends: Ends,
}

fn meters(n: usize) -> Vec<Meter> {
    (0..n).map(|_| Meter::default()).collect()
}

impl<'a> DemoShared<'a> {
    pub(crate) fn new(plan: &'a Plan, store: &'a Store, announcer: Producer) -> DemoShared<'a> {
        let config = &plan.config;
        DemoShared {
            plan,
            store,
            trigger: Trigger::new(config.readout_threads, plan.window, config.events_per_second, plan.beam),
            inhibit: Mutex::new(store.watch_inhibit()),
            farm: Farm::new(config.farm_events_per_second),
            announcer: Mutex::new(Some(announcer)),
            put: meters(config.readout_threads),
            taken: meters(config.filter_threads),
            read: meters(config.filter_threads),
            all_decided: AtomicBool::new(false),
            ends: Ends::default(),
        }
    }

    /// The filters have ended.
    pub(crate) fn end_decisions(&self) {
        self.all_decided.store(true, Ordering::Release);
    }

    /// Whether nothing more will be accepted.
    pub(crate) fn all_decided(&self) -> bool {
        self.all_decided.load(Ordering::Acquire)
    }

    /// The trigger has announced an event.
    pub(crate) fn announced(&self) {
        if let Some(announcer) = &*self.announcer.lock() {
            announcer.announced(1);
        }
    }
}

impl Together for DemoShared<'_> {
    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn abort(&self) {
        self.ends.abort();
        self.trigger.close();
    }
}
