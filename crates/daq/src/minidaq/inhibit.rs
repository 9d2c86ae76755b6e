//! Whether the trigger may fire: trigger records in flight against two thresholds, and the store's own inhibit; dead time
//! by cause.
//!
//! ```text
//!            in flight ≥ busy_at
//!   FREE ──────────────────────────▶ BUSY
//!        ◀──────────────────────────
//!            in flight < free_below            between the two nothing changes: hysteresis
//! ```
//!
//! *Invariants*: a trigger record is in flight from its trigger until it is rejected, or verified and released by the
//! archive, and never longer or shorter (the count is 0 at the end, `summary`); never more than `busy_at` are (test
//! `busy_and_free_have_a_distance`); one cause of dead time runs at a time.

use parking_lot::Mutex;
use std::time::Instant;

/// Dead time of one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) cause: String,
    /// In words, as of the last time.
    pub(crate) detail: String,
    pub(crate) ns: u64,
    /// How often it began.
    pub(crate) times: u64,
    /// Triggers that were due meanwhile and not issued.
    pub(crate) lost: u64,
}

pub(crate) struct Inhibit {
    start: Instant,
    busy_at: u32,
    free_below: u32,
    state: Mutex<TriggerInhibitState>,
}

#[derive(Default)]
struct TriggerInhibitState {
    in_flight: u32,
    most: u32,
    busy: bool,
    /// Owner and cause of the store's inhibit.
    store: Option<(String, String)>,
    /// The cause that runs now, as its place in `dead`, and since when.
    running: Option<(usize, u64)>,
    dead: Vec<Dead>,
    ended: bool,
    /// Triggers that were inhibited when data taking had just ended.
    lost_at_end: u64,
}

impl Inhibit {
    pub(crate) fn new(busy_at: u32, free_below: u32) -> Inhibit {
        Inhibit { start: Instant::now(), busy_at, free_below, state: Mutex::default() }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Issues a trigger; `false` where it is inhibited, which is booked with its cause.
    pub(crate) fn issue(&self) -> bool {
        self.issue_at(self.now_ns())
    }

    fn issue_at(&self, now: u64) -> bool {
        let mut state = self.state.lock();
        if state.busy || state.store.is_some() {
            match state.running {
                Some((place, _)) => state.dead[place].lost += 1,
                None => state.lost_at_end += 1,
            }
            return false;
        }
        state.in_flight += 1;
        state.most = state.most.max(state.in_flight);
        // A trigger that found `busy` unset below `busy_at` is the last one that does: the check and the count share a lock.
        debug_assert!(state.in_flight <= self.busy_at, "{} trigger records in flight", state.in_flight);
        state.busy = state.in_flight >= self.busy_at;
        self.account(&mut state, now);
        true
    }

    /// A trigger record is through: rejected, or taken over by the archive.
    pub(crate) fn done(&self) {
        self.done_at(self.now_ns());
    }

    fn done_at(&self, now: u64) {
        let mut state = self.state.lock();
        debug_assert!(state.in_flight > 0, "a trigger record that was not in flight is through");
        state.in_flight = state.in_flight.saturating_sub(1);
        // Free only below the lower threshold: with one threshold the trigger would go on and off with each record.
        if state.in_flight < self.free_below {
            state.busy = false;
        }
        self.account(&mut state, now);
    }

    /// What the store says: owner and cause of its inhibit.
    pub(crate) fn store(&self, inhibit: Option<(String, String)>) {
        let mut state = self.state.lock();
        state.store = inhibit;
        self.account(&mut state, self.now_ns());
    }

    /// Data taking has ended: no dead time runs any more.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        // From here on no dead time runs: draining is no dead time of the trigger.
        state.ended = true;
        self.account(&mut state, self.now_ns());
    }

    /// Starts, changes or ends the dead time that runs, as the state says.
    fn account(&self, state: &mut TriggerInhibitState, now: u64) {
        let cause = if state.ended {
            None
        } else if state.busy {
            let detail = format!("{} trigger records in flight; free again below {}", state.in_flight, self.free_below);
            Some(("records in flight".to_owned(), detail))
        } else {
            state.store.clone().map(|(owner, cause)| (format!("store: {owner}"), cause))
        };
        let place = cause.as_ref().map(|(cause, _)| {
            state.dead.iter().position(|dead| dead.cause == *cause).unwrap_or_else(|| {
                let cause = cause.clone();
                state.dead.push(Dead { cause, detail: String::new(), ns: 0, times: 0, lost: 0 });
                state.dead.len() - 1
            })
        });
        let before = state.running.map(|(place, _)| place);
        if before == place {
            return;
        }
        if let Some((place, since)) = state.running.take() {
            state.dead[place].ns += now.saturating_sub(since);
        }
        if let (Some(place), Some((_, detail))) = (place, cause) {
            state.dead[place].detail = detail;
            state.dead[place].times += 1;
            state.running = Some((place, now));
        }
    }

    /// Trigger records in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.state.lock().in_flight
    }

    /// Most trigger records that were in flight at once.
    pub(crate) fn most(&self) -> u32 {
        self.state.lock().most
    }

    /// The cause that runs now, in words.
    pub(crate) fn running(&self) -> Option<String> {
        let state = self.state.lock();
        state.running.map(|(place, _)| format!("{}: {}", state.dead[place].cause, state.dead[place].detail))
    }

    /// Triggers that were due and not issued.
    pub(crate) fn lost(&self) -> u64 {
        let state = self.state.lock();
        state.dead.iter().map(|dead| dead.lost).sum::<u64>() + state.lost_at_end
    }

    /// Dead time by cause, longest first.
    pub(crate) fn dead_time(&self) -> Vec<Dead> {
        let mut dead = self.state.lock().dead.clone();
        dead.sort_by_key(|dead| std::cmp::Reverse(dead.ns));
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_free_have_a_distance() {
        let inhibit = Inhibit::new(4, 2);
        for now in 0..4 {
            assert!(inhibit.issue_at(now));
        }
        assert!(!inhibit.issue_at(10), "4 are in flight");
        inhibit.done_at(20);
        assert!(!inhibit.issue_at(21), "3 are in flight: between the thresholds");
        inhibit.done_at(30);
        assert!(!inhibit.issue_at(31), "2 are in flight: not below the lower threshold");
        inhibit.done_at(40);
        assert!(inhibit.issue_at(41));
        assert!(inhibit.issue_at(42), "2 in flight are not busy on the way up");
        let dead = inhibit.dead_time();
        assert_eq!((dead.len(), inhibit.in_flight(), inhibit.most()), (1, 3, 4));
        let expected = ("records in flight", 37, 1, 3);
        assert_eq!((dead[0].cause.as_str(), dead[0].ns, dead[0].times, dead[0].lost), expected);
        assert!(dead[0].detail.contains("4 trigger records in flight; free again below 2"), "{}", dead[0].detail);
    }

    #[test]
    fn causes_run_one_at_a_time() {
        let inhibit = Inhibit::new(2, 1);
        assert!(inhibit.issue());
        inhibit.store(Some(("selection".to_owned(), "hot fill 92 %".to_owned())));
        assert!(!inhibit.issue());
        assert_eq!(inhibit.running().unwrap(), "store: selection: hot fill 92 %");
        inhibit.store(None);
        assert!(inhibit.issue());
        assert!(inhibit.running().unwrap().starts_with("records in flight"));
        inhibit.store(Some(("archive".to_owned(), "hot fill 91 %".to_owned())));
        assert!(inhibit.running().unwrap().starts_with("records in flight"));
        inhibit.done();
        inhibit.done();
        assert!(inhibit.running().unwrap().starts_with("store: archive"));
        inhibit.end();
        assert_eq!(inhibit.running(), None);
        let dead = inhibit.dead_time();
        assert_eq!((dead.len(), inhibit.lost()), (3, 1));
        assert!(!inhibit.issue(), "the store inhibits still");
        assert_eq!((inhibit.lost(), inhibit.dead_time()), (2, dead));
    }
}
