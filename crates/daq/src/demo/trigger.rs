//! The trigger: says which events the readout may produce, obeys inhibit, and accounts for the time in which it could not.
//!
//! ```text
//!   slowest thread done     granted            slowest + window
//! ────────┬────────────────────┬──────────────────────┬──────▶ event number
//!         └ complete           └ may be produced      └ never beyond: bounds what is open in the store
//! ```
//!
//! Each event is announced before it is granted, so that the store knows of it before its first fragment.
//!
//! Without a rate, events are granted to the end of the window at once. With one, each is granted when it is due; what is
//! overdue by more than [`CATCH_UP`] is lost to dead time, as at a real detector. While the beam is off nothing is due, and
//! being held is no dead time.
//!
//! *Invariants*: after `close` nothing more is granted, and every granted event is produced by all threads (test
//! `all_threads_end_at_the_same_event`).

use super::dead::{Dead, DeadAccount};
use super::duty::Beam;
use crate::limits::{CATCH_UP, TRIGGER_WAIT};
use forebay_core::Result;
use forebay_store::{Inhibit, InhibitState};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Set in `granted` once nothing more will be.
const CLOSED: u64 = 1 << 63;
/// Shortest sleep of a thread that waits.
const WAIT_MIN: Duration = Duration::from_micros(20);

/// What the trigger asks of the store.
pub(crate) struct Port<'p> {
    /// The store's inhibit, where it has changed since the last time; never waits.
    pub(crate) inhibit: &'p dyn Fn() -> Option<InhibitState>,
    /// Announces an event; `false` where there is no space for it now.
    pub(crate) announce: &'p dyn Fn(u64) -> Result<bool>,
}

/// One thread's last finished event, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Done(AtomicU64);

pub(crate) struct Trigger {
    start: Instant,
    granted: AtomicU64,
    done: Vec<Done>,
    window: u64,
    /// Nanoseconds from event to event; 0 without a rate.
    period_ns: f64,
    beam: Option<Beam>,
    state: Mutex<TriggerState>,
}

#[derive(Default)]
struct TriggerState {
    due_ns: f64,
    lost: u64,
    inhibit: Option<Inhibit>,
    dead: DeadAccount,
}

impl Trigger {
    /// For this many readout threads; `events_per_second` 0 is as fast as it goes, no beam is always on.
    pub(crate) fn new(threads: usize, window: u64, events_per_second: u64, beam: Option<Beam>) -> Trigger {
        Trigger {
            start: Instant::now(),
            granted: AtomicU64::new(0),
            done: (0..threads).map(|_| Done::default()).collect(),
            window: window.max(1),
            period_ns: if events_per_second == 0 { 0.0 } else { 1e9 / events_per_second as f64 },
            beam,
            state: Mutex::new(TriggerState::default()),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Time since the trigger was made, which is when data taking began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until `event` may be produced; `false` when it never will. Inhibit is obeyed. The wait ends at the latest when the trigger is closed.
    ///
    /// # Errors
    /// What an announcement was answered, space excepted.
    pub(crate) fn wait(&self, event: u64, port: &Port<'_>) -> Result<bool> {
        let mut pause = WAIT_MIN;
        loop {
            let granted = self.granted.load(Ordering::Acquire);
            // Before the flag is looked at: an event that was granted is produced by all threads, also after the close.
            if event <= granted & !CLOSED {
                return Ok(true);
            }
            if granted & CLOSED != 0 {
                return Ok(false);
            }
            if !self.grant(self.now_ns(), port)? {
                std::thread::sleep(pause);
                // Doubled: many threads wait at once, and each look takes the trigger's lock.
                pause = (pause * 2).min(TRIGGER_WAIT);
            }
        }
    }

    /// Grants what may be granted now; `false` where nothing may.
    fn grant(&self, now: u64, port: &Port<'_>) -> Result<bool> {
        // One thread grants for all. The port's calls are made under this lock; neither of them waits.
        let state = &mut *self.state.lock();
        let granted = self.granted.load(Ordering::Acquire);
        if granted & CLOSED != 0 {
            return Ok(true);
        }
        if let Some(changed) = (port.inhibit)() {
            state.inhibit = changed.inhibit;
        }
        let off = self.beam.and_then(|beam| beam.off_since(now));
        let hold = |dead: &mut DeadAccount, cause, owner: &str, detail: &str| match off {
            // Nobody is held while there is no beam.
            Some(off) => dead.free(off),
            None => dead.hold(now, cause, owner, detail),
        };
        if let Some(inhibit) = &state.inhibit {
            hold(&mut state.dead, inhibit.class.name(), &inhibit.owner, &inhibit.cause);
            return Ok(false);
        }
        // Acquire: the fragments of events up to this one were put before.
        let slowest = self.done.iter().map(|done| done.0.load(Ordering::Acquire)).min().unwrap_or(0);
        let limit = slowest + self.window;
        let due = self.due(state, now);
        if due == 0 {
            state.dead.free(off.unwrap_or(now));
            return Ok(false);
        }
        if granted >= limit {
            if self.period_ns > 0.0 {
                let detail = "a readout thread is a whole window of events behind the trigger";
                hold(&mut state.dead, "readout", "readout", detail);
            } else {
                state.dead.free(now);
            }
            return Ok(false);
        }
        debug_assert!(granted < limit, "the window has room");
        let most = granted + due.min(limit - granted);
        let mut last = granted;
        while last < most && (port.announce)(last + 1)? {
            last += 1;
        }
        if last == granted {
            hold(&mut state.dead, "store full", "store", "an announcement found no space");
            return Ok(false);
        }
        debug_assert!(last <= limit, "event {last} is beyond the window, which ends at {limit}");
        state.dead.free(off.unwrap_or(now));
        state.due_ns += (last - granted) as f64 * self.period_ns;
        // Under the state's lock: `close` takes it too, so that nothing is granted after its last event.
        self.granted.store(last, Ordering::Release);
        Ok(true)
    }

    /// Events that are due now; the schedule moves on past what is overdue too long.
    fn due(&self, state: &mut TriggerState, now: u64) -> u64 {
        if self.period_ns == 0.0 {
            return u64::MAX;
        }
        let now = self.beam.map_or(now, |beam| beam.time(now));
        let behind = now as f64 - state.due_ns;
        if behind < 0.0 {
            return 0;
        }
        let over = ((behind - CATCH_UP.as_nanos() as f64) / self.period_ns).floor();
        // One event is always granted late rather than lost, so that slow rates do not skip.
        if over >= 1.0 {
            state.lost += over as u64;
            state.due_ns += over * self.period_ns;
        }
        ((now as f64 - state.due_ns) / self.period_ns) as u64 + 1
    }

    /// A thread has put all its fragments of this event.
    pub(crate) fn done(&self, thread: usize, event: u64) {
        debug_assert!(self.done[thread].0.load(Ordering::Relaxed) < event, "a thread finishes its events in order");
        self.done[thread].0.store(event, Ordering::Release);
    }

    /// Ends data taking: what is granted will be produced, nothing more. Returns the last event.
    pub(crate) fn close(&self) -> u64 {
        let state = &mut *self.state.lock();
        // Under the state's lock: a grant under way is either before the close or sees it.
        let granted = self.granted.fetch_or(CLOSED, Ordering::AcqRel);
        if granted & CLOSED == 0 {
            let now = self.now_ns();
            state.dead.free(self.beam.and_then(|beam| beam.off_since(now)).unwrap_or(now));
        }
        granted & !CLOSED
    }

    /// Dead time by cause and owner, longest first; its total in nanoseconds; and triggers that were due but lost.
    pub(crate) fn dead_time(&self) -> (Vec<Dead>, u64, u64) {
        let state = self.state.lock();
        (state.dead.rows(), state.dead.total_ns(), state.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{DemoConfig, Duty, duty};
    use forebay_store::InhibitClass;

    const MS: u64 = 1_000_000;

    const FREE: Port<'_> = Port { inhibit: &|| None, announce: &|_| Ok(true) };

    fn grant(trigger: &Trigger, now: u64, port: &Port<'_>) -> bool {
        trigger.grant(now, port).unwrap()
    }

    fn granted(trigger: &Trigger) -> u64 {
        trigger.granted.load(Ordering::Acquire) & !CLOSED
    }

    #[test]
    fn no_thread_leaves_the_window() {
        let trigger = Trigger::new(2, 4, 0, None);
        assert!(grant(&trigger, 0, &FREE));
        assert_eq!(granted(&trigger), 4);
        trigger.done(0, 4);
        assert!(!grant(&trigger, MS, &FREE), "thread 1 has finished nothing");
        trigger.done(1, 3);
        assert!(grant(&trigger, 2 * MS, &FREE));
        assert_eq!(granted(&trigger), 7);
        assert_eq!(trigger.dead_time(), (vec![], 0, 0), "without a rate nothing is due");
    }

    #[test]
    fn a_rate_is_kept_and_overdue_triggers_are_lost() {
        let trigger = Trigger::new(1, 1000, 1000, None);
        assert!(grant(&trigger, 0, &FREE));
        assert!(!grant(&trigger, MS / 2, &FREE));
        assert_eq!(granted(&trigger), 1);
        assert!(grant(&trigger, 3 * MS, &FREE));
        assert_eq!(granted(&trigger), 4);
        // 100 ms later 100 more are due: 10 ms are caught up, the others are lost.
        assert!(grant(&trigger, 104 * MS, &FREE));
        assert_eq!((granted(&trigger), trigger.dead_time().2), (15, 90));
    }

    fn inhibited(owner: &str, cause: &str) -> Option<InhibitState> {
        let inhibit = Inhibit {
            class: InhibitClass::HotFull,
            scope: "hot level".to_owned(),
            cause: cause.to_owned(),
            owner: owner.to_owned(),
            ends: "soon".to_owned(),
        };
        Some(InhibitState { inhibit: Some(inhibit), ..InhibitState::default() })
    }

    const FREED: Port<'_> = Port { inhibit: &|| Some(InhibitState::default()), ..FREE };

    #[test]
    fn dead_time_is_booked_by_cause_and_owner() {
        let trigger = Trigger::new(1, 10, 1000, None);
        let selection = &|| inhibited("selection", "hot fill 92 %");
        let archive = &|| inhibited("archive", "hot fill 91 %");
        let (selection, archive) = (Port { inhibit: selection, ..FREE }, Port { inhibit: archive, ..FREE });
        assert!(!grant(&trigger, 0, &selection));
        assert!(!grant(&trigger, MS, &FREE), "nothing has changed");
        assert!(!grant(&trigger, 5 * MS, &archive));
        assert!(grant(&trigger, 8 * MS, &FREED));
        let dead = |owner: &str, detail: &str, ms| Dead {
            cause: "hot full",
            owner: owner.into(),
            detail: detail.into(),
            ns: ms * MS,
        };
        let expected = vec![dead("selection", "hot fill 92 %", 5), dead("archive", "hot fill 91 %", 3)];
        assert_eq!(trigger.dead_time(), (expected, 8 * MS, 0));
    }

    #[test]
    fn as_fast_as_it_goes_a_full_window_is_no_dead_time() {
        let trigger = Trigger::new(1, 10, 0, None);
        assert!(grant(&trigger, 0, &FREE));
        let selection = &|| inhibited("selection", "hot fill 92 %");
        assert!(!grant(&trigger, MS, &Port { inhibit: selection, ..FREE }));
        assert!(!grant(&trigger, 3 * MS, &FREED), "the window is full");
        trigger.done(0, 10);
        assert!(grant(&trigger, 50 * MS, &FREE));
        assert_eq!(trigger.dead_time().1, 2 * MS);
    }

    #[test]
    fn without_beam_nothing_is_due_and_nobody_is_held() {
        // Half of each 100 ms, 1000 events a second meanwhile.
        let duty = Some(Duty { share: 0.5, period_s: 0.1 });
        let beam = duty::size(&mut DemoConfig { duty, ..DemoConfig::default() }, 1000).unwrap();
        let trigger = Trigger::new(1, 1000, 1000, beam);
        for ms in 0..100 {
            grant(&trigger, ms * MS, &FREE);
        }
        assert_eq!(granted(&trigger), 51, "one at once, one each millisecond of beam");
        let selection = &|| inhibited("selection", "hot fill 92 %");
        for ms in 140..230 {
            grant(&trigger, ms * MS, &Port { inhibit: selection, ..FREE });
        }
        assert!(grant(&trigger, 230 * MS, &FREED));
        let (rows, total, lost) = trigger.dead_time();
        assert_eq!((rows.len(), rows[0].ns, total), (1, 40 * MS, 40 * MS), "10 ms before the gap, 30 after it");
        // 80 ms of beam passed since the last grant: all but what is caught up is lost.
        assert_eq!((granted(&trigger), lost), (51 + 11, 69));
        grant(&trigger, 299 * MS, &FREE);
        assert_eq!(trigger.dead_time().1, total);
    }

    #[test]
    fn what_cannot_be_announced_is_not_granted() {
        let trigger = Trigger::new(1, 8, 0, None);
        let room = AtomicU64::new(3);
        let announce = &|event: u64| Ok(event <= room.load(Ordering::Relaxed));
        let port = Port { announce, ..FREE };
        assert!(grant(&trigger, 0, &port));
        assert_eq!(granted(&trigger), 3);
        assert!(!grant(&trigger, MS, &port));
        room.store(100, Ordering::Relaxed);
        assert!(grant(&trigger, 3 * MS, &port));
        assert_eq!(granted(&trigger), 8);
        assert_eq!((trigger.dead_time().0[0].ns, trigger.dead_time().1), (2 * MS, 2 * MS));
        let broken = Port { announce: &|_| Err(forebay_core::Error::internal("no")), ..FREE };
        trigger.done(0, 8);
        assert!(trigger.grant(4 * MS, &broken).is_err());
    }

    #[test]
    fn all_threads_end_at_the_same_event() {
        let trigger = Trigger::new(3, 8, 0, None);
        let last: Vec<u64> = std::thread::scope(|scope| {
            let work = |thread: usize| {
                let trigger = &trigger;
                scope.spawn(move || {
                    let mut event = 1;
                    while trigger.wait(event, &FREE).unwrap() {
                        trigger.done(thread, event);
                        event += 1;
                    }
                    event - 1
                })
            };
            let threads: Vec<_> = (0..3).map(work).collect();
            std::thread::sleep(Duration::from_millis(20));
            trigger.close();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(last, [trigger.close(); 3]);
        assert!(last[0] > 0);
    }
}
