//! Collects the results of a MiniDAQ's threads into the summary.

use super::archive::ArchiveReport;
use super::filter::FilterReport;
use super::links::{LinkReport, ReadoutReport};
use super::plan::{Plan, RUN};
use super::requests::{Answers, HandlerReport};
use super::shared::MiniDaqShared;
use super::summary::{
    InhibitSummary, LinkSummary, MiniDaqSummary, RecordSummary, RingSummary, WindowSummary, by_cause, record_problems,
    ring_problems,
};
use super::trigger::TriggerReport;
use crate::meter::{LatencySummary, read};
use forebay_core::{GAP_CAUSES, Ledger, Result};
use std::path::Path;
use std::time::Duration;

/// What the threads and their supervision came to.
pub(super) struct Outcome {
    pub(super) readout: Vec<ReadoutReport>,
    pub(super) trigger: TriggerReport,
    pub(super) handlers: Vec<HandlerReport>,
    pub(super) filter: Vec<FilterReport>,
    pub(super) archive: ArchiveReport,
    pub(super) interrupted: bool,
    pub(super) taking: Duration,
    /// Until the readout ended: it goes on until the last request is answered.
    pub(super) reading: Duration,
    pub(super) draining: Duration,
}

impl Outcome {
    /// Holds the accounts against what the threads counted. `problems` are those found so far.
    pub(super) fn summarise(
        &self,
        shared: &MiniDaqShared<'_>,
        directory: &Path,
        ring: RingSummary,
        ledger: Ledger,
        mut problems: Vec<String>,
    ) -> Result<MiniDaqSummary> {
        let (plan, config) = (shared.plan, &shared.plan.config);
        let links = self.links(plan);
        let windows = self.windows();
        let records = self.records(shared);
        let in_ring = ring_problems(&ring.ledger, &links, plan.chunk_frames);
        let bytes: u64 = links.iter().map(|link| link.bytes).sum();
        let seconds = self.reading.as_secs_f64();
        let gb_per_second = if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 };
        let ring = RingSummary { balanced: in_ring.is_empty(), gb_per_second, ..ring };
        problems.extend(in_ring);
        problems.extend(record_problems(&ledger, &records, &windows, plan.links.into()));
        if self.archive.not_there > 0 {
            problems.push(format!("{} accepted records were not there for the archive", self.archive.not_there));
        }
        Ok(MiniDaqSummary {
            profile: "dune",
            frames: plan.frames.kind(),
            input: config.input.as_ref().map(|path| path.display().to_string()),
            rate_scale: config.rate_scale,
            frames_per_second: plan.frames_per_second(),
            ticks_per_second: plan.ticks_per_second,
            window_before_ticks: plan.before,
            window_after_ticks: plan.after,
            hot_bytes: plan.hot_bytes,
            directory: directory.display().to_string(),
            seed: config.seed,
            interrupted: self.interrupted,
            taking_s: self.taking.as_secs_f64(),
            readout_s: self.reading.as_secs_f64(),
            draining_s: self.draining.as_secs_f64(),
            links,
            ring,
            windows,
            records,
            record_bytes: read(&shared.taken).bytes,
            archived_bytes: read(std::slice::from_ref(&shared.archived)).bytes,
            dead_time: self.dead_time(shared),
            latencies: self.latencies()?,
            ledger,
            balanced: problems.is_empty(),
            problems,
        })
    }

    fn links(&self, plan: &Plan) -> Vec<LinkSummary> {
        let one = |report: &LinkReport| LinkSummary {
            link: report.link,
            made: report.made * plan.chunk_frames,
            frames: report.stored * plan.chunk_frames,
            bytes: report.stored * plan.chunk_bytes as u64,
            refused: report.refused.iter().sum::<u64>() * plan.chunk_frames,
            lost: report.lost * plan.chunk_frames,
            paused: report.paused * plan.chunk_frames,
        };
        let mut links: Vec<LinkSummary> = self.readout.iter().flat_map(|report| report.links.iter().map(one)).collect();
        links.sort_by_key(|link| link.link);
        links
    }

    fn windows(&self) -> WindowSummary {
        let mut answers = Answers::default();
        self.handlers.iter().for_each(|report| answers.add(&report.answers));
        WindowSummary {
            asked: answers.asked,
            complete: answers.complete,
            incomplete: answers.incomplete,
            empty: answers.empty,
            invalid: answers.invalid,
            unanswered: answers.unanswered,
            late: answers.late,
            timed_out: answers.timed_out,
            gone: answers.gone,
            gaps: by_cause(&answers.gaps),
        }
    }

    fn records(&self, shared: &MiniDaqShared<'_>) -> RecordSummary {
        let sum = |of: fn(&FilterReport) -> u64| self.filter.iter().map(of).sum::<u64>();
        RecordSummary {
            due: self.trigger.due,
            announced: self.trigger.issued,
            lost: shared.inhibit.lost(),
            late: self.trigger.late,
            complete: sum(|report| report.complete),
            incomplete: sum(|report| report.incomplete),
            short: sum(|report| report.marked),
            missing: sum(|report| report.missing),
            accepted: sum(|report| report.accepted),
            rejected: sum(|report| report.rejected),
            released: self.archive.released,
            in_flight_most: shared.inhibit.most(),
            in_flight_left: shared.inhibit.in_flight(),
            redelivered: sum(|report| report.redelivered),
            fenced: sum(|report| report.fenced),
        }
    }

    fn dead_time(&self, shared: &MiniDaqShared<'_>) -> Vec<InhibitSummary> {
        let taking = self.taking.as_secs_f64();
        let one = |dead: super::inhibit::Dead| {
            let seconds = dead.ns as f64 / 1e9;
            let share = if taking > 0.0 { seconds / taking } else { 0.0 };
            let (cause, detail, times) = (dead.cause, dead.detail, dead.times);
            InhibitSummary { cause, detail, times, seconds, share, triggers_lost: dead.lost }
        };
        shared.inhibit.dead_time().into_iter().map(one).collect()
    }

    fn latencies(&self) -> Result<Vec<LatencySummary>> {
        let (handlers, filter) = (&self.handlers, &self.filter);
        Ok(vec![
            LatencySummary::of("ring put", self.readout.iter().map(|report| &report.put))?,
            LatencySummary::of("window", handlers.iter().map(|report| &report.window))?,
            LatencySummary::of("answer", handlers.iter().map(|report| &report.answer))?,
            LatencySummary::of("get_any", filter.iter().map(|report| &report.get_any))?,
            LatencySummary::of("check", filter.iter().map(|report| &report.check))?,
            LatencySummary::of("verdict", filter.iter().map(|report| &report.verdict))?,
            LatencySummary::of("archive", [&self.archive.verify].into_iter())?,
        ])
    }
}

/// The state of the ring at the end; what follows from the links is filled in later.
pub(super) fn ring_summary(shared: &MiniDaqShared<'_>) -> Result<RingSummary> {
    let (plan, ring) = (shared.plan, shared.ring);
    let stats = ring.stats();
    let mut gaps = [(0, 0_u64); GAP_CAUSES.len()];
    for link in 0..plan.links {
        let source = plan.ring_source(ring.keyspace(), link)?;
        for gap in ring.gaps(&source, 0, u64::MAX)? {
            let sum = &mut gaps[gap.cause as usize];
            *sum = (sum.0 + 1, sum.1.saturating_add(gap.end - gap.begin));
        }
    }
    Ok(RingSummary {
        bytes: plan.ring_bytes,
        history_ms: u64::try_from(plan.config.history.as_millis()).unwrap_or(u64::MAX),
        gb_per_second: 0.0,
        evicted_chunks: stats.evicted,
        memory_bytes: stats.memory.index + stats.memory.books + stats.memory.fixed,
        gaps: by_cause(&gaps),
        ledger: ring.ledger_of(RUN),
        balanced: false,
    })
}
