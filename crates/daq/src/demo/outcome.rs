//! What the threads of a demo came to, put together into the summary.

use super::Profile;
use super::filter::FilterReport;
use super::meter::{Latency, Meter, read};
use super::readout::ReadoutReport;
use super::shared::Shared;
use super::summary::{DeadTime, Decided, LatencySummary, RoleSummary, Summary, problems as imbalances};
use forebay_core::{Ledger, Result};
use std::path::Path;
use std::time::Duration;

/// What the threads and their supervision came to.
pub(super) struct Outcome {
    pub(super) readout: Vec<ReadoutReport>,
    pub(super) filter: Vec<FilterReport>,
    pub(super) produced: u64,
    pub(super) interrupted: bool,
    pub(super) taking: Duration,
    pub(super) draining: Duration,
}

impl Outcome {
    /// Holds the ledger against what the threads counted. `problems` are those found so far.
    pub(super) fn summarise(
        &self,
        shared: &Shared<'_>,
        directory: &Path,
        ledger: Ledger,
        mut problems: Vec<String>,
    ) -> Result<Summary> {
        let (plan, config) = (shared.plan, &shared.plan.config);
        let sum = |of: fn(&FilterReport) -> u64| self.filter.iter().map(of).sum::<u64>();
        let events = Decided {
            produced: self.produced,
            accepted: sum(|report| report.accepted),
            rejected: sum(|report| report.rejected),
            with_signal: sum(|report| report.with_signal),
            incomplete: sum(|report| report.incomplete),
            redelivered: sum(|report| report.redelivered),
            fenced: sum(|report| report.fenced),
        };
        problems.extend(imbalances(&ledger, &events, config.sources));
        let not_released = sum(|report| report.not_released);
        if not_released > 0 {
            problems.push(format!("{not_released} accepted events were not there to be released"));
        }
        let taking = self.taking.as_secs_f64();
        let whole = (self.taking + self.draining).as_secs_f64();
        let role = |name, threads, meters: &[Meter], seconds| RoleSummary::new(name, threads, read(meters), seconds);
        let (dead_time, lost_triggers) = dead_time(shared, &self.readout, taking);
        Ok(Summary {
            profile: config.profile.map(Profile::name),
            frames: plan.frames.kind(),
            input: config.input.as_ref().map(|path| path.display().to_string()),
            sources: config.sources,
            fragment_bytes: plan.fragment_bytes,
            event_bytes: plan.event_bytes,
            hot_bytes: config.hot_bytes,
            directory: directory.display().to_string(),
            seed: config.seed,
            interrupted: self.interrupted,
            taking_s: taking,
            draining_s: self.draining.as_secs_f64(),
            roles: vec![
                role("readout", config.readout_threads, &shared.put, taking),
                role("selection", config.filter_threads, &shared.taken, whole),
                role("event read", config.filter_threads, &shared.read, whole),
            ],
            latencies: vec![
                latency("put", self.readout.iter().map(|report| &report.put))?,
                latency("get_any", self.filter.iter().map(|report| &report.get_any))?,
                latency("event read", self.filter.iter().map(|report| &report.event_read))?,
                latency("verdict", self.filter.iter().map(|report| &report.verdict))?,
            ],
            dead_time,
            lost_triggers,
            full_answers: self.readout.iter().map(|report| report.full_answers).sum(),
            events,
            ledger,
            balanced: problems.is_empty(),
            problems,
        })
    }
}

fn latency<'l>(call: &'static str, threads: impl Iterator<Item = &'l Latency>) -> Result<LatencySummary> {
    let mut all = Latency::new()?;
    for one in threads {
        all.merge(one)?;
    }
    Ok(LatencySummary::new(call, &all))
}

/// Dead time by cause, longest first, and triggers lost to it.
fn dead_time(shared: &Shared<'_>, readout: &[ReadoutReport], taking: f64) -> (Vec<DeadTime>, u64) {
    let (held, lost) = shared.trigger.dead_time();
    let dead = |cause: String, detail: String, seconds: f64| {
        let share = if taking > 0.0 { seconds / taking } else { 0.0 };
        DeadTime { cause, detail, seconds, share }
    };
    let mut causes: Vec<DeadTime> =
        held.into_iter().map(|held| dead(held.owner, held.detail, held.ns as f64 / 1e9)).collect();
    let full: Duration = readout.iter().map(|report| report.full).sum();
    if !full.is_zero() {
        let seconds = full.as_secs_f64() / readout.len().max(1) as f64;
        let detail = "puts found no space and were repeated (mean of the readout threads)";
        causes.push(dead("store full".to_owned(), detail.to_owned(), seconds));
    }
    causes.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    (causes, lost)
}
