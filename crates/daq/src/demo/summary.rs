//! The summary of a demo: throughput, latencies, dead time, decisions and the account of the run.

use super::backlog::Gap;
use super::warm::WarmSummary;
use crate::archive::ArchiveSummary;
use crate::frames::FrameKind;
use crate::meter::{LatencySummary, Reading};
use forebay_core::Ledger;
use forebay_store::ProducerStatus;
use serde::Serialize;

/// Throughput of one role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleSummary {
    /// `readout`, `fast` (chosen sources of every event) or `final` (what was passed on, whole).
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

/// Time in which the trigger was held although there was beam. One cause at a time: the rows add up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadTime {
    /// What held it: the class of the store's inhibit (`hot full`, `warm full`, …), `store full` for an announcement
    /// without space, or `readout` for a thread that is behind.
    pub cause: &'static str,
    /// Who can change that: `selection`, `archive`, ….
    pub owner: String,
    /// In words, as of the last time.
    pub detail: String,
    /// Seconds.
    pub seconds: f64,
    /// Part of the time of data taking, 0 to 1.
    pub share: f64,
}

/// A beam that came and went, and the backlog of a farm that is sized for the mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DutySummary {
    /// Part of each period with beam.
    pub share: f64,
    /// Length of a period, in seconds.
    pub period_s: f64,
    /// Triggers per second of beam.
    pub beam_events_per_second: u64,
    /// Triggers per second over whole periods.
    pub mean_events_per_second: f64,
    /// Most events per second that the farm began.
    pub farm_events_per_second: f64,
    /// Undecided events when they had most bytes.
    pub backlog_most_events: u64,
    /// These bytes.
    pub backlog_most_bytes: u64,
    /// When, in seconds of data taking.
    pub backlog_most_at_s: f64,
    /// Most events that a gap may leave undecided.
    pub left_allowed: u64,
    /// Periods that ended.
    pub periods: u64,
    /// The first thousand of them.
    pub gaps: Vec<Gap>,
}

/// Events by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// Events that the trigger granted and the readout produced.
    pub produced: u64,
    /// Events accepted by the last stage.
    pub accepted: u64,
    /// Events rejected by the first stage.
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

/// What one stage of the selection did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageSummary {
    /// Its name.
    pub stage: &'static str,
    /// Events that it was given.
    pub events: u64,
    /// Fragments that it read.
    pub fragments: u64,
    /// Bytes that it read.
    pub bytes: u64,
    /// Events that it dropped.
    pub rejected: u64,
    /// Events that it handed to the next stage.
    pub passed: u64,
    /// Events that it kept.
    pub accepted: u64,
    /// Events that it was given without all of the sources that they wait for.
    pub incomplete: u64,
    /// Verdicts that came after the lease had run out.
    pub fenced: u64,
}

/// What one stream was given.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Its name.
    pub stream: &'static str,
    /// Events.
    pub events: u64,
    /// Fragments that it keeps, results included.
    pub fragments: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What it keeps, in words.
    pub keeps: String,
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
    /// The warm level; `None` without one.
    pub warm: Option<WarmSummary>,
    /// What the archive has of the run.
    pub archive: ArchiveSummary,
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
    /// Dead time of the trigger by cause, longest first.
    pub dead_time: Vec<DeadTime>,
    /// Dead time of the trigger in all, in seconds.
    pub dead_time_s: f64,
    /// How long the store held inhibit, by class, draining included: longer than what the trigger lost to it where
    /// nothing was due.
    pub inhibit: forebay_store::DeadTime,
    /// Triggers that were due at the given rate and lost: to dead time, or because no thread of the trigger ran.
    pub lost_triggers: u64,
    /// Puts that were answered `Full`; each was tried again.
    pub full_answers: u64,
    /// Seconds that a readout thread lost to these, on average; the trigger may have been held meanwhile.
    pub full_s: f64,
    /// The beam; `None` where it was always on.
    pub duty: Option<DutySummary>,
    /// Events by what became of them.
    pub events: Decided,
    /// The selection by stage.
    pub stages: Vec<StageSummary>,
    /// What streams were given.
    pub streams: Vec<StreamSummary>,
    /// Results that were left out, because the store was full.
    pub results_left_out: u64,
    /// What the trigger and the readout threads say they announced and offered.
    pub producers: Vec<ProducerStatus>,
    /// The account of the run.
    pub ledger: Ledger,
    /// Whether the account is exact, nothing is left, and nothing was lost.
    pub balanced: bool,
    /// Why it is not balanced, one sentence each; empty where it is.
    pub problems: Vec<String>,
}

impl crate::Summary for Summary {
    fn claim(&self) -> &'static str {
        "balanced: every fragment is accounted for, nothing is left"
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }
}
