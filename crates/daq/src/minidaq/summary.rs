//! The summary of a MiniDAQ: links, ring, windows, trigger records, dead time, and accounts that must balance.

use crate::account::Problems;
use crate::frames::FrameKind;
use crate::meter::LatencySummary;
use forebay_core::{GAP_CAUSES, GapCause, Ledger};
use serde::Serialize;

/// One link. All counts are frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkSummary {
    /// Number of the link.
    pub link: u32,
    /// Frames that the detector made.
    pub made: u64,
    /// Frames that the ring took.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that the ring refused.
    pub refused: u64,
    /// Frames that the readout came too late for.
    pub lost: u64,
    /// Frames that the link kept back (a fault that was asked for).
    pub paused: u64,
}

/// Gaps of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GapSummary {
    /// Why.
    pub cause: GapCause,
    /// Gaps.
    pub gaps: u64,
    /// Ticks in them.
    pub ticks: u64,
}

/// The latency buffer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RingSummary {
    /// Bytes of its region.
    pub bytes: u64,
    /// How long it was to keep data, in milliseconds.
    pub history_ms: u64,
    /// Payload that went in, in 10⁹ bytes per second of readout.
    pub gb_per_second: f64,
    /// Chunks evicted.
    pub evicted_chunks: u64,
    /// Memory beyond the region, in bytes.
    pub memory_bytes: u64,
    /// Gaps in what it still keeps at the end, by cause; causes without gaps are left out.
    pub gaps: Vec<GapSummary>,
    /// The account; fragments are what was put at once: a WIBEth frame, or a superchunk of 12 WIB1 frames.
    pub ledger: Ledger,
    /// Whether it is exact and agrees with what the links count.
    pub balanced: bool,
}

/// Data requests by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WindowSummary {
    /// Windows asked for: one per trigger and link.
    pub asked: u64,
    /// Answered with all of the window.
    pub complete: u64,
    /// Answered with a part (`Incomplete`).
    pub incomplete: u64,
    /// Answered with nothing (`DataNotFound`).
    pub empty: u64,
    /// Windows that are none (`InvalidWindow`).
    pub invalid: u64,
    /// Not answered (a fault that was asked for).
    pub unanswered: u64,
    /// Answered after the record had gone on without them.
    pub late: u64,
    /// Of all: data had not arrived by the time-out.
    pub timed_out: u64,
    /// Of all: data was gone already, or from before the first frame.
    pub gone: u64,
    /// Gaps in windows, by cause; causes without gaps are left out.
    pub gaps: Vec<GapSummary>,
}

/// Triggers and their records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordSummary {
    /// Triggers that were due.
    pub due: u64,
    /// Trigger records announced: triggers that were issued.
    pub announced: u64,
    /// Triggers lost to dead time.
    pub lost: u64,
    /// Triggers that the trigger itself was too late for.
    pub late: u64,
    /// Records with all of every window.
    pub complete: u64,
    /// All other records.
    pub incomplete: u64,
    /// Records that missed fragments at their time-out; their headers say `Incomplete`.
    pub short: u64,
    /// Fragments that they missed.
    pub missing: u64,
    /// Records accepted.
    pub accepted: u64,
    /// Records rejected.
    pub rejected: u64,
    /// Accepted records that the archive verified and released.
    pub released: u64,
    /// Most records in flight at once.
    pub in_flight_most: u32,
    /// Records in flight at the end.
    pub in_flight_left: u32,
    /// Deliveries of records that another worker had before.
    pub redelivered: u64,
    /// Verdicts that came after the lease had run out.
    pub fenced: u64,
}

/// Time in which the trigger was inhibited.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InhibitSummary {
    /// What held it: `records in flight`, or `store:` and who fills the store.
    pub cause: String,
    /// In words, as of the last time.
    pub detail: String,
    /// How often it began.
    pub times: u64,
    /// Seconds.
    pub seconds: f64,
    /// Part of the time of data taking, 0 to 1.
    pub share: f64,
    /// Triggers that were due meanwhile.
    pub triggers_lost: u64,
}

/// The result of a MiniDAQ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MiniDaqSummary {
    /// Always `dune`.
    pub profile: &'static str,
    /// Kind of the frames.
    pub frames: FrameKind,
    /// The file of recorded frames; `None` where they were emulated.
    pub input: Option<String>,
    /// Detector time per time; 0 is as fast as it went.
    pub rate_scale: f64,
    /// Frames per second and link that this asks for; `None` for as fast as it goes.
    pub frames_per_second: Option<f64>,
    /// Ticks per second of the detector's clock.
    pub ticks_per_second: u64,
    /// Window of a trigger, in ticks before it.
    pub window_before_ticks: u64,
    /// Window of a trigger, in ticks from it on.
    pub window_after_ticks: u64,
    /// Bytes of the hot level of the trigger records.
    pub hot_bytes: u64,
    /// Where ring and store were, or still are if the directory was given.
    pub directory: String,
    /// Seed of frames and decisions.
    pub seed: u64,
    /// Whether somebody stopped it before its time.
    pub interrupted: bool,
    /// Seconds of data taking.
    pub taking_s: f64,
    /// Seconds in which the links sent: until the last request of data taking was answered.
    pub readout_s: f64,
    /// Seconds from the end of data taking until everything was decided.
    pub draining_s: f64,
    /// The links.
    pub links: Vec<LinkSummary>,
    /// The latency buffer.
    pub ring: RingSummary,
    /// Data requests.
    pub windows: WindowSummary,
    /// Triggers and their records.
    pub records: RecordSummary,
    /// Bytes of trigger records that were checked.
    pub record_bytes: u64,
    /// Bytes that the archive took over.
    pub archived_bytes: u64,
    /// Dead time by cause, longest first.
    pub dead_time: Vec<InhibitSummary>,
    /// Latency by call.
    pub latencies: Vec<LatencySummary>,
    /// The account of the trigger records.
    pub ledger: Ledger,
    /// Whether all accounts are exact, nothing is left, and nothing was lost.
    pub balanced: bool,
    /// Why not, one sentence each; empty where they are.
    pub problems: Vec<String>,
}

impl crate::Summary for MiniDaqSummary {
    fn claim(&self) -> &'static str {
        "balanced: every frame and every trigger record is accounted for, nothing is left"
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }
}

/// Gaps and their ticks by cause, causes without gaps left out.
pub(crate) fn by_cause(gaps: &[(u64, u64); GAP_CAUSES.len()]) -> Vec<GapSummary> {
    let all = GAP_CAUSES.into_iter().zip(*gaps).filter(|(_, (gaps, _))| *gaps > 0);
    all.map(|(cause, (gaps, ticks))| GapSummary { cause, gaps, ticks }).collect()
}

/// What does not add up in the ring; `chunk` is the frames of a put.
pub(crate) fn ring_problems(ledger: &Ledger, links: &[LinkSummary], chunk: u64) -> Vec<String> {
    let mut problems = Problems::of("ring: ", ledger);
    let sum = |of: fn(&LinkSummary) -> u64| links.iter().map(of).sum::<u64>();
    problems.expect("ring: frames stored", ledger.stored.fragments * chunk, sum(|link| link.frames));
    problems.expect("ring: bytes stored", ledger.stored.bytes, sum(|link| link.bytes));
    problems.expect("ring: frames refused", ledger.refused.fragments * chunk, sum(|link| link.refused));
    problems.expect("ring: duplicates", ledger.duplicate.fragments, 0);
    problems.expect("ring: conflicts", ledger.conflict.fragments, 0);
    problems.expect("ring: fragments lost", ledger.lost.fragments, 0);
    for link in links {
        let told = link.frames + link.refused + link.lost + link.paused;
        problems.expect(&format!("link {}: frames accounted for", link.link), told, link.made);
    }
    problems.0
}

/// What does not add up in the account of the trigger records.
pub(crate) fn record_problems(
    ledger: &Ledger,
    records: &RecordSummary,
    windows: &WindowSummary,
    links: u64,
) -> Vec<String> {
    let mut problems = Problems::of("trigger records: ", ledger);
    problems.expect("triggers due", records.announced + records.lost + records.late, records.due);
    problems.expect("windows asked for", windows.asked, records.announced * links);
    let answered = windows.complete + windows.incomplete + windows.empty + windows.invalid;
    problems.expect("windows answered", answered + windows.unanswered, windows.asked);
    problems.expect("records decided", records.accepted + records.rejected, records.announced);
    problems.expect("records complete or not", records.complete + records.incomplete, records.announced);
    problems.expect("fragments missing", records.missing, windows.unanswered + windows.late);
    problems.expect("records released", records.released, records.accepted);
    problems.expect("records in flight at the end", records.in_flight_left.into(), 0);
    problems.expect_nothing_left(ledger);
    // Each header that was marked incomplete is one version more.
    let stored = records.announced + answered - windows.late + ledger.superseded.fragments;
    problems.expect("fragments stored", ledger.stored.fragments, stored);
    problems.expect("headers marked incomplete", ledger.superseded.fragments, records.short);
    problems.expect("records rejected in the ledger", ledger.rejected.events, records.rejected);
    problems.expect("records released in the ledger", ledger.released.events, records.released);
    problems.expect("late fragments", ledger.late.fragments, windows.late);
    problems.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Tally;

    fn windows() -> WindowSummary {
        WindowSummary { asked: 4, complete: 2, incomplete: 1, empty: 1, ..WindowSummary::default() }
    }

    fn records() -> RecordSummary {
        RecordSummary {
            due: 3,
            announced: 2,
            lost: 1,
            complete: 1,
            incomplete: 1,
            accepted: 1,
            rejected: 1,
            released: 1,
            ..RecordSummary::default()
        }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger { complete: 2, ..Ledger::default() };
        let event = Tally::event(3, 30);
        (ledger.rejected, ledger.released) = (event, event);
        for _ in 0..2 {
            ledger.offered += event;
            ledger.stored += event;
        }
        ledger
    }

    #[test]
    fn whatever_is_left_or_lost_is_named() {
        assert_eq!(record_problems(&ledger(), &records(), &windows(), 2), Vec::<String>::new());
        let found = record_problems(&ledger(), &RecordSummary { in_flight_left: 1, ..records() }, &windows(), 2);
        assert_eq!(found, ["records in flight at the end: 1, expected 0"]);
        let found = record_problems(&ledger(), &records(), &WindowSummary { complete: 1, ..windows() }, 2);
        assert_eq!(found, ["windows answered: 3, expected 4", "fragments stored: 6, expected 5"]);
        let found = record_problems(&ledger(), &RecordSummary { released: 0, ..records() }, &windows(), 2);
        assert_eq!(found, ["records released: 0, expected 1", "records released in the ledger: 1, expected 0"]);
    }

    #[test]
    fn a_frame_that_nobody_counts_is_named() {
        let mut ledger = Ledger::default();
        let link = LinkSummary { link: 7, made: 36, frames: 24, bytes: 240, paused: 12, ..LinkSummary::default() };
        for _ in 0..2 {
            ledger.offered += Tally::fragment(120);
            ledger.stored += Tally::fragment(120);
            ledger.expired += Tally::fragment(120);
        }
        assert_eq!(ring_problems(&ledger, std::slice::from_ref(&link), 12), Vec::<String>::new());
        let found = ring_problems(&ledger, &[LinkSummary { paused: 0, ..link.clone() }], 12);
        assert_eq!(found, ["link 7: frames accounted for: 24, expected 36"]);
        ledger.expired -= Tally::fragment(120);
        assert!(ring_problems(&ledger, &[link], 12)[0].starts_with("ring: stored 2 fragments"));
    }
}
