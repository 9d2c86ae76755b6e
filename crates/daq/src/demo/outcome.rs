//! Collects the results of a demo's threads into the summary.

use super::Profile;
use super::audit::{Counted, problems as imbalances};
use super::backlog::Backlog;
use super::dead::Dead;
use super::decided::{FilterReport, StageReport};
use super::readout::ReadoutReport;
use super::setup::{CALIB, FAST, FINAL, PHYSICS};
use super::shared::DemoShared;
use super::summary::{DeadTime, Decided, DutySummary, RoleSummary, StageSummary, StreamSummary, Summary};
use super::warm::WarmSummary;
use crate::archive::ArchiveSummary;
use crate::limits::GAP_LEFT_SHARE;
use crate::meter::{LatencySummary, Meter, read};
use forebay_core::{Ledger, Result, Tally};
use forebay_store::{RunSummary, Stats};
use std::path::Path;
use std::time::Duration;

/// What the threads and their supervision came to.
pub(super) struct Outcome {
    pub(super) readout: Vec<ReadoutReport>,
    pub(super) filter: Vec<FilterReport>,
    pub(super) archive: ArchiveSummary,
    pub(super) produced: u64,
    pub(super) interrupted: bool,
    pub(super) taking: Duration,
    pub(super) draining: Duration,
    pub(super) backlog: Backlog,
    pub(super) warm_fill_most: f64,
}

/// How the run ended: with its summary, or with an account and why there is no more.
pub(super) enum Ended {
    Closed(Box<RunSummary>),
    Not(Box<Ledger>, String),
}

impl Ended {
    /// The account of the run, and its summary.
    fn account(self, problems: &mut Vec<String>) -> (Ledger, Option<Box<RunSummary>>) {
        match self {
            Ended::Closed(run) => (run.ledger, Some(run)),
            Ended::Not(ledger, why) => {
                problems.push(format!("the run does not close: {why}"));
                (*ledger, None)
            }
        }
    }
}

impl Outcome {
    /// Holds the ledger against what the threads counted.
    pub(super) fn summarise(
        &self,
        shared: &DemoShared<'_>,
        directory: &Path,
        ended: Ended,
        inhibited: &Stats,
        warm: Option<WarmSummary>,
    ) -> Result<Summary> {
        let (plan, config) = (shared.plan, &shared.plan.config);
        let mut problems: Vec<String> = self.readout.iter().filter_map(|report| report.gave_up.clone()).collect();
        let (ledger, run) = ended.account(&mut problems);
        let producers = run.as_ref().map(|run| run.producers.clone()).unwrap_or_default();
        let (fast, last) = self.stages();
        let events = self.decided(&fast, &last);
        let full_answers = self.readout.iter().map(|report| report.full_answers).sum();
        let results = self.results();
        let archived = self.archive.contents;
        let counted = Counted { events, producers: &producers, results, refused: full_answers, archived };
        problems.extend(imbalances(&ledger, &counted));
        problems.extend(self.accounts_that_differ(inhibited));
        let streams = self.streams(shared);
        problems.extend(stream_problems(&streams, run.as_deref()));
        let taking = self.taking.as_secs_f64();
        let (dead_time, dead_time_s, lost_triggers) = dead_time(shared, taking, &mut problems);
        let duty = self.duty(shared);
        if let Some(duty) = &duty {
            problems.extend(duty.problems(&dead_time, dead_time_s, full_answers, self.interrupted));
        }
        Ok(Summary {
            profile: config.profile.map(Profile::name),
            frames: plan.frames.kind(),
            input: config.input.as_ref().map(|path| path.display().to_string()),
            sources: config.sources,
            fragment_bytes: plan.fragment_bytes,
            event_bytes: plan.event_bytes,
            hot_bytes: config.hot_bytes,
            warm,
            archive: self.archive.clone(),
            directory: directory.display().to_string(),
            seed: config.seed,
            interrupted: self.interrupted,
            taking_s: taking,
            draining_s: self.draining.as_secs_f64(),
            roles: self.roles(shared),
            latencies: self.latencies()?,
            dead_time,
            dead_time_s,
            inhibit: inhibited.dead_time,
            lost_triggers,
            full_answers,
            full_s: self.full_s(),
            duty,
            events,
            stages: vec![stage(FAST, &fast), stage(FINAL, &last)],
            streams,
            results_left_out: self.sum(|report| report.left_out),
            producers,
            ledger,
            balanced: problems.is_empty(),
            problems,
        })
    }

    /// A figure over all filters.
    fn sum(&self, of: fn(&FilterReport) -> u64) -> u64 {
        self.filter.iter().map(of).sum()
    }

    /// What the two stages did.
    fn stages(&self) -> (StageReport, StageReport) {
        let (mut fast, mut last) = (StageReport::default(), StageReport::default());
        for report in &self.filter {
            fast += report.fast;
            last += report.last;
        }
        (fast, last)
    }

    /// What became of events, by the count of the threads.
    fn decided(&self, fast: &StageReport, last: &StageReport) -> Decided {
        Decided {
            produced: self.produced,
            accepted: last.accepted,
            rejected: fast.rejected + last.rejected,
            with_signal: self.sum(|report| report.with_signal),
            incomplete: fast.incomplete,
            redelivered: fast.redelivered + last.redelivered,
            fenced: fast.fenced + last.fenced,
        }
    }

    /// Results that filters added to events.
    fn results(&self) -> Tally {
        self.filter.iter().fold(Tally::default(), |mut all, report| {
            all += report.results;
            all
        })
    }

    /// Figures that the store and the threads have twice, where they differ.
    fn accounts_that_differ(&self, inhibited: &Stats) -> Vec<String> {
        let mut problems = Vec::new();
        let by_class = inhibited.dead_time.total().as_nanos();
        if by_class != u128::from(inhibited.inhibited_ns) {
            problems.push(format!("inhibit by class sums to {by_class} ns, {} in all", inhibited.inhibited_ns));
        }
        problems
    }

    /// How much each role did, and how fast.
    fn roles(&self, shared: &DemoShared<'_>) -> Vec<RoleSummary> {
        let config = &shared.plan.config;
        let (taking, whole) = (self.taking.as_secs_f64(), (self.taking + self.draining).as_secs_f64());
        let role = |name, threads, meters: &[Meter], seconds| RoleSummary::new(name, threads, read(meters), seconds);
        vec![
            role("readout", config.readout_threads, &shared.put, taking),
            role(FAST, config.filter_threads, &shared.taken, whole),
            role(FINAL, config.filter_threads, &shared.read, whole),
        ]
    }

    /// How long calls took.
    fn latencies(&self) -> Result<Vec<LatencySummary>> {
        Ok(vec![
            LatencySummary::of("put", self.readout.iter().map(|report| &report.put))?,
            LatencySummary::of("get_any", self.filter.iter().map(|report| &report.get_any))?,
            LatencySummary::of("event read", self.filter.iter().map(|report| &report.event_read))?,
            LatencySummary::of("verdict", self.filter.iter().map(|report| &report.verdict))?,
        ])
    }

    /// How long a readout thread was held up by a full store, on average.
    fn full_s(&self) -> f64 {
        let full: Duration = self.readout.iter().map(|report| report.full).sum();
        full.as_secs_f64() / self.readout.len().max(1) as f64
    }

    fn streams(&self, shared: &DemoShared<'_>) -> Vec<StreamSummary> {
        let plan = shared.plan;
        let calib =
            format!("one physics event of {:.0}: its {CALIB} group of {}", plan.prescale.factor(), plan.calib.len());
        let one = |stream, keeps| {
            let mut all = Tally::default();
            self.filter.iter().filter_map(|report| report.streams.get(stream)).for_each(|tally| all += *tally);
            StreamSummary { stream, events: all.events, fragments: all.fragments, bytes: all.bytes, keeps }
        };
        vec![one(PHYSICS, "whole events, and the result".to_owned()), one(CALIB, calib)]
    }

    fn duty(&self, shared: &DemoShared<'_>) -> Option<DutySummary> {
        let config = &shared.plan.config;
        let duty = config.duty?;
        let (most, backlog_most_at_s) = self.backlog.most();
        let (periods, gaps) = self.backlog.gaps();
        let mean = config.events_per_second as f64 * duty.share;
        let leased = (config.filter_threads * shared.plan.batch) as u64;
        Some(DutySummary {
            share: duty.share,
            period_s: duty.period_s,
            beam_events_per_second: config.events_per_second,
            mean_events_per_second: mean,
            farm_events_per_second: config.farm_events_per_second,
            backlog_most_events: most.events,
            backlog_most_bytes: most.bytes,
            backlog_most_at_s,
            left_allowed: ((mean * duty.period_s) as u64 / GAP_LEFT_SHARE).max(leased),
            periods,
            gaps: gaps.to_vec(),
        })
    }
}

fn stage(stage: &'static str, report: &StageReport) -> StageSummary {
    StageSummary {
        stage,
        events: report.taken.events,
        fragments: report.taken.fragments,
        bytes: report.taken.bytes,
        rejected: report.rejected,
        passed: report.passed,
        accepted: report.accepted,
        incomplete: report.incomplete,
        fenced: report.fenced,
    }
}

/// The ledger by stream has exactly the events that the last stage gave to each.
fn stream_problems(streams: &[StreamSummary], run: Option<&RunSummary>) -> Vec<String> {
    let Some(run) = run else { return Vec::new() };
    let in_ledger = |name: &str| run.streams.iter().find(|row| row.name == name).map_or(0, |row| row.released.events);
    let wrong = streams.iter().filter(|stream| in_ledger(stream.stream) != stream.events);
    let say = |stream: &StreamSummary| {
        format!(
            "stream {}: {} events in the ledger, expected {}",
            stream.stream,
            in_ledger(stream.stream),
            stream.events
        )
    };
    wrong.map(say).collect()
}

/// Dead time of the trigger: by cause, longest first; in all, in seconds; and triggers lost to it.
fn dead_time(shared: &DemoShared<'_>, taking: f64, problems: &mut Vec<String>) -> (Vec<DeadTime>, f64, u64) {
    let (held, total_ns, lost) = shared.trigger.dead_time();
    let sum: u64 = held.iter().map(|dead| dead.ns).sum();
    if sum != total_ns {
        problems.push(format!("dead time by cause sums to {sum} ns, {total_ns} in all"));
    }
    let one = |dead: Dead| {
        let seconds = dead.ns as f64 / 1e9;
        let share = if taking > 0.0 { seconds / taking } else { 0.0 };
        DeadTime { cause: dead.cause, owner: dead.owner, detail: dead.detail, seconds, share }
    };
    (held.into_iter().map(one).collect(), total_ns as f64 / 1e9, lost)
}
