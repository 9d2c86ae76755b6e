//! State that the threads of a recording share: its plan, its clock, and how it ends.

use super::config::Plan;
use crate::threads::{Ends, Together};
use forebay_recorder::GapReason;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub(super) struct RecordShared<'a> {
    pub(super) plan: &'a Plan,
    pub(super) start: Instant,
    stop: &'a AtomicBool,
    ends: Ends,
    ended: Mutex<Option<GapReason>>,
}

impl<'a> RecordShared<'a> {
    pub(super) fn new(plan: &'a Plan, stop: &'a AtomicBool) -> RecordShared<'a> {
        RecordShared { plan, start: Instant::now(), stop, ends: Ends::default(), ended: Mutex::default() }
    }

    /// Whether links are to end before their time.
    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.aborts() || self.ended.lock().is_some()
    }

    /// Whether a thread has failed.
    pub(super) fn aborts(&self) -> bool {
        self.aborted()
    }

    /// No device takes anything any more.
    pub(super) fn end_with(&self, reason: GapReason) {
        self.ended.lock().get_or_insert(reason);
    }

    pub(super) fn ended(&self) -> Option<GapReason> {
        *self.ended.lock()
    }
}

impl Together for RecordShared<'_> {
    fn ends(&self) -> &Ends {
        &self.ends
    }
}
