//! State that all threads of a MiniDAQ share: the plan, ring and store, the clock, the inhibit, counters, and how far
//! it has come.

use super::inhibit::Inhibit;
use super::pace::Pace;
use super::plan::Plan;
use crate::meter::Meter;
use crate::threads::{Ends, Together};
use forebay_ring::Ring;
use forebay_store::Store;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct MiniDaqShared<'a> {
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
    ends: Ends,
    /// Data taking is over: no more triggers.
    closed: AtomicBool,
    /// Every request is answered: the readout ends.
    read_out: AtomicBool,
}

fn meters(n: usize) -> Vec<Meter> {
    (0..n).map(|_| Meter::default()).collect()
}

impl<'a> MiniDaqShared<'a> {
    pub(crate) fn new(plan: &'a Plan, ring: &'a Ring, store: &'a Store) -> MiniDaqShared<'a> {
        let config = &plan.config;
        MiniDaqShared {
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
            ends: Ends::default(),
            closed: AtomicBool::new(false),
            read_out: AtomicBool::new(false),
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether no more triggers are to be issued.
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.aborted()
    }

    pub(crate) fn end_readout(&self) {
        self.read_out.store(true, Ordering::Release);
    }

    /// Whether the readout is to end.
    pub(crate) fn read_out(&self) -> bool {
        self.read_out.load(Ordering::Acquire) || self.aborted()
    }
}

impl Together for MiniDaqShared<'_> {
    fn ends(&self) -> &Ends {
        &self.ends
    }
}
