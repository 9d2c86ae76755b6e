//! The trigger: fires at a rate, announces each trigger record, and asks every link for its window.
//!
//! ```text
//! due ─▶ inhibited? ─yes─▶ lost, dead time booked with its cause
//!          └─no─▶ trigger record header into the store ─▶ one data request per link ─▶ their handlers' queues
//! ```
//!
//! A burst is a number of triggers an eighth of a window apart, the last of them now. Nothing fires before the window of
//! the first trigger fits behind the first frame, unless that is asked for as a fault.
//!
//! *Invariants*: a record is announced before anything is asked for it; a queue never fills, because no more records are in
//! flight than it holds (`inhibit`).

use super::builder::Builder;
use super::plan::Plan;
use super::requests::Request;
use super::shared::MiniDaqShared;
use crate::limits::{CATCH_UP, INHIBIT_POLL, TRIGGER_WAIT};
use crate::meter::Meter;
use forebay_core::{Error, Result};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// A trigger decision: what every link is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    pub(crate) number: u64,
    pub(crate) timestamp: u64,
    pub(crate) window_begin: u64,
    pub(crate) window_end: u64,
}

/// What the trigger has to say at its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TriggerReport {
    /// Triggers that were due.
    pub(crate) due: u64,
    pub(crate) issued: u64,
    /// Triggers that the trigger itself was too late for.
    pub(crate) late: u64,
    /// Data requests.
    pub(crate) requests: u64,
}

/// A queue per link; each holds what can be in flight.
pub(crate) fn queues(plan: &Plan) -> (Vec<SyncSender<Request>>, Vec<Receiver<Request>>) {
    (0..plan.links).map(|_| sync_channel(plan.config.busy_at as usize)).unzip()
}

/// The schedule of triggers or bursts.
struct Schedule {
    period_ns: f64,
    next_ns: f64,
    late: u64,
}

impl Schedule {
    /// Whether one is due; what is overdue for longer than [`CATCH_UP`] is dropped.
    fn take(&mut self, now_ns: f64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        let over = ((now_ns - self.next_ns - CATCH_UP.as_nanos() as f64) / self.period_ns).floor();
        // One is always taken late rather than dropped, so that slow rates do not skip.
        if over >= 1.0 {
            self.late += over as u64;
            self.next_ns += over * self.period_ns;
        }
        self.next_ns += self.period_ns;
        true
    }
}

/// The body of the trigger thread; the queues end with it.
pub(crate) fn run(shared: &MiniDaqShared<'_>, queues: Vec<SyncSender<Request>>) -> Result<TriggerReport> {
    let plan = shared.plan;
    let builder = Builder::new(shared, "builder");
    let mut report = TriggerReport::default();
    let burst = u64::from(plan.config.burst);
    let oldest = plan.before.saturating_add(plan.delay).saturating_add((burst - 1).saturating_mul(apart(plan)));
    let hold = if plan.config.faults.early { 0 } else { oldest };
    while shared.pace.now_tick() < shared.pace.first_tick().saturating_add(hold) {
        if shared.closed() {
            return Ok(report);
        }
        std::thread::sleep(TRIGGER_WAIT);
    }
    let start = Instant::now();
    let mut schedule = Schedule { period_ns: 1e9 / plan.config.triggers_per_second, next_ns: 0.0, late: 0 };
    let mut watch = shared.store.watch_inhibit();
    while !shared.closed() {
        if let Some(changed) = watch.wait_change(Duration::ZERO) {
            shared.inhibit.store(changed.inhibit.map(|inhibit| (inhibit.owner, inhibit.cause)));
        }
        let now = start.elapsed().as_nanos() as f64;
        if !schedule.take(now) {
            let left = Duration::from_nanos((schedule.next_ns - now).max(0.0) as u64);
            std::thread::sleep(left.min(INHIBIT_POLL));
            continue;
        }
        let last = shared.pace.now_tick().saturating_sub(plan.delay);
        for at in 0..burst {
            report.due += 1;
            if shared.inhibit.issue() {
                report.issued += 1;
                let trigger =
                    trigger(plan, report.issued, last.saturating_sub((burst - 1 - at).saturating_mul(apart(plan))));
                issue(&builder, trigger, &queues)?;
                report.requests += queues.len() as u64;
                Meter::count(&shared.issued.events, 1);
            }
        }
    }
    report.late = schedule.late * burst;
    report.due += report.late;
    Ok(report)
}

/// Ticks between the triggers of a burst.
fn apart(plan: &Plan) -> u64 {
    ((plan.before + plan.after) / 8).max(1)
}

fn trigger(plan: &Plan, number: u64, timestamp: u64) -> Trigger {
    Trigger {
        number,
        timestamp,
        window_begin: timestamp.saturating_sub(plan.before),
        window_end: timestamp.saturating_add(plan.after),
    }
}

fn issue(builder: &Builder<'_, '_>, trigger: Trigger, queues: &[SyncSender<Request>]) -> Result<()> {
    builder.announce(&trigger)?;
    let issued = Instant::now();
    for (link, queue) in queues.iter().enumerate() {
        match queue.try_send(Request { trigger, issued }) {
            Ok(()) => {}
            // Its handler has failed, which ends the run with the handler's own error.
            Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                let message = format!("the queue of link {link} is full at trigger {}", trigger.number);
                return Err(Error::internal(message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_what_is_overdue_is_dropped() {
        let mut schedule = Schedule { period_ns: 1e6, next_ns: 0.0, late: 0 };
        assert!(schedule.take(0.0) && !schedule.take(0.5e6) && schedule.take(1e6));
        assert_eq!(schedule.late, 0);
        // 100 ms later 99 more are overdue: 10 ms of them are caught up.
        let mut caught_up = 0;
        while schedule.take(101e6) {
            caught_up += 1;
        }
        assert_eq!((schedule.late, caught_up), (89, 11));
    }
}
