//! What a demo came to: throughput, latencies, dead time, decisions and the account of the run.

use super::meter::{Latency, Reading};
use crate::frames::FrameKind;
use forebay_core::Ledger;
use serde::Serialize;

/// Throughput of one role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleSummary {
    /// `readout`, `selection` (chosen sources in `get_any`) or `event read` (accepted events as a whole).
    pub role: &'static str,
    /// Threads of this role.
    pub threads: usize,
    /// Events.
    pub events: u64,
    /// Fragments.
    pub fragments: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Seconds that the rates refer to.
    pub seconds: f64,
    /// Events per second.
    pub events_per_second: f64,
    /// Fragments per second.
    pub fragments_per_second: f64,
    /// Payload in 10⁹ bytes per second.
    pub gb_per_second: f64,
}

impl RoleSummary {
    pub(crate) fn new(role: &'static str, threads: usize, reading: Reading, seconds: f64) -> RoleSummary {
        let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        RoleSummary {
            role,
            threads,
            events: reading.events,
            fragments: reading.fragments,
            bytes: reading.bytes,
            seconds,
            events_per_second: per_second(reading.events),
            fragments_per_second: per_second(reading.fragments),
            gb_per_second: per_second(reading.bytes) / 1e9,
        }
    }
}

/// Latency of one kind of call, in microseconds, to two digits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencySummary {
    /// `put` (reserve, fill, commit of a fragment, waits for space included), `get_any` (a batch, where events were
    /// ready), `event read` (all fragments, every byte verified) or `verdict` (accept or reject).
    pub call: &'static str,
    /// Calls.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 99 of 100 calls took at most this long.
    pub p99_us: f64,
    /// 999 of 1000 calls took at most this long.
    pub p999_us: f64,
    /// The longest call.
    pub max_us: f64,
}

impl LatencySummary {
    pub(crate) fn new(call: &'static str, latency: &Latency) -> LatencySummary {
        LatencySummary {
            call,
            count: latency.count(),
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            p999_us: latency.quantile_us(0.999),
            max_us: latency.max_us(),
        }
    }
}

/// Time in which the detector could not be read out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadTime {
    /// Who held the trigger or the readout: `selection`, `archive`, …, or `store full` for puts without space.
    pub cause: String,
    /// In words, as of the last time.
    pub detail: String,
    /// Seconds; for `store full` the mean of the readout threads.
    pub seconds: f64,
    /// Part of the time of data taking, 0 to 1.
    pub share: f64,
}

/// Events by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// Events that the trigger granted and the readout produced.
    pub produced: u64,
    /// Events accepted.
    pub accepted: u64,
    /// Events rejected.
    pub rejected: u64,
    /// Events with a signal in the sources that the selection read.
    pub with_signal: u64,
    /// Events that were decided without all of their sources.
    pub incomplete: u64,
    /// Deliveries of events that another worker had before.
    pub redelivered: u64,
    /// Verdicts that came after the lease had run out.
    pub fenced: u64,
}

/// The result of a demo.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the profile; `None` for numbers chosen one by one.
    pub profile: Option<&'static str>,
    /// Kind of the frames in the fragments.
    pub frames: FrameKind,
    /// The file of recorded frames; `None` where they were emulated.
    pub input: Option<String>,
    /// Sources of an event.
    pub sources: u32,
    /// Bytes of one fragment.
    pub fragment_bytes: usize,
    /// Payload bytes of one event.
    pub event_bytes: u64,
    /// Bytes of the hot level.
    pub hot_bytes: u64,
    /// Where the store was, or still is if the directory was given.
    pub directory: String,
    /// Seed of frames and decisions.
    pub seed: u64,
    /// Whether somebody stopped it before its time.
    pub interrupted: bool,
    /// Seconds of data taking.
    pub taking_s: f64,
    /// Seconds from the end of data taking until everything was decided.
    pub draining_s: f64,
    /// Throughput by role.
    pub roles: Vec<RoleSummary>,
    /// Latency by call.
    pub latencies: Vec<LatencySummary>,
    /// Dead time by cause, longest first.
    pub dead_time: Vec<DeadTime>,
    /// Triggers that were due at the given rate and lost to dead time.
    pub lost_triggers: u64,
    /// Puts that were answered `Full`; each was tried again.
    pub full_answers: u64,
    /// Events by what became of them.
    pub events: Decided,
    /// The account of the run.
    pub ledger: Ledger,
    /// Whether the account is exact, nothing is left, and nothing was lost.
    pub balanced: bool,
    /// Why it is not balanced, one sentence each; empty where it is.
    pub problems: Vec<String>,
}

/// What does not add up in the account of a run in which every granted event was to be decided.
pub(crate) fn problems(ledger: &Ledger, events: &Decided, sources: u32) -> Vec<String> {
    let mut problems: Vec<String> = ledger.imbalance().into_iter().collect();
    let mut expect = |what: &str, found: u64, expected: u64| {
        if found != expected {
            problems.push(format!("{what}: {found}, expected {expected}"));
        }
    };
    for (name, tally) in ledger.stored_terms().iter().take(ledger.live.len()) {
        expect(&format!("fragments still {name} at the end"), tally.fragments, 0);
    }
    expect("fragments stored", ledger.stored.fragments, events.produced * u64::from(sources));
    expect("events decided", events.accepted + events.rejected, events.produced);
    expect("events rejected in the ledger", ledger.rejected.events, events.rejected);
    expect("events released in the ledger", ledger.released.events, events.accepted);
    expect("late fragments", ledger.late.fragments, 0);
    expect("duplicate fragments", ledger.duplicate.fragments, 0);
    expect("conflicting fragments", ledger.conflict.fragments, 0);
    expect("lost fragments", ledger.lost.fragments, 0);
    expect("events without all sources", events.incomplete, 0);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Tally;

    #[test]
    fn whatever_is_left_or_lost_is_named() {
        let events = Decided { produced: 2, accepted: 1, rejected: 1, ..Decided::default() };
        let mut ledger = Ledger::default();
        let event = Tally::event(3, 30);
        (ledger.rejected, ledger.released) = (event, event);
        for _ in 0..2 {
            ledger.offered += event;
            ledger.stored += event;
        }
        assert_eq!(problems(&ledger, &events, 3), Vec::<String>::new());
        let mut left = ledger;
        (left.live[1], left.rejected) = (event, Tally::default());
        let found = problems(&left, &Decided { rejected: 0, ..events }, 3);
        assert_eq!(found, ["fragments still ready at the end: 3, expected 0", "events decided: 1, expected 2"]);
        let mut short = ledger;
        short.released = Tally::event(3, 29);
        assert!(problems(&short, &events, 3)[0].contains("60 bytes; terms sum to 6 and 59"));
        assert_eq!(problems(&ledger, &events, 4), ["fragments stored: 6, expected 8"]);
    }
}
