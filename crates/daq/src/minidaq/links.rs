//! A readout thread: feeds its share of the links into the ring, at the detector's pace, straight into the ring's memory.
//!
//! ```text
//! chunks due by now ─▶ for each of its links: reserve ─▶ fill (frames) ─▶ commit ─▶ stored │ refused, a gap with its cause
//!        └ overdue by more than READOUT_CATCH_UP: lost at the link, as at a receiver that is overrun
//! ```
//!
//! *Invariants*: every frame of every link is put, refused, lost at the link or kept back by a pause, and counted as one of
//! them (`summary`). The detector never waits for anybody.

use super::config::Pause;
use super::plan::RUN;
use super::shared::MiniDaqShared;
use crate::limits::{FREE_RUNNING_SHARE, READOUT_CATCH_UP, READOUT_STEP};
use crate::meter::{Latency, Meter};
use forebay_core::{Error, GAP_CAUSES, Result, SourceId};
use forebay_ring::{Ring, RingOutcome, RingPut};
use std::time::{Duration, Instant};

/// What became of one link's chunks.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkReport {
    pub(crate) link: u32,
    /// Chunks that the detector made.
    pub(crate) made: u64,
    pub(crate) stored: u64,
    /// By cause, in the order of [`GAP_CAUSES`].
    pub(crate) refused: [u64; GAP_CAUSES.len()],
    /// The readout came too late for them.
    pub(crate) lost: u64,
    /// The link paused.
    pub(crate) paused: u64,
}

/// What a readout thread has to say at its end.
pub(crate) struct ReadoutReport {
    /// Reserve, fill and commit of one chunk.
    pub(crate) put: Latency,
    pub(crate) links: Vec<LinkReport>,
}

struct Link {
    report: LinkReport,
    source: SourceId,
    /// Chunks that it keeps back.
    pauses: Vec<std::ops::Range<u64>>,
}

/// The body of a readout thread.
pub(crate) fn run(shared: &MiniDaqShared<'_>, thread: usize) -> Result<ReadoutReport> {
    let (plan, pace) = (shared.plan, &shared.pace);
    let ring = shared.ring.named(&format!("readout-{thread}"));
    let mut put = Latency::new()?;
    let chunks_per_second = plan.ticks_per_second as f64 / plan.chunk_ticks as f64;
    let mut links = Vec::new();
    for link in (thread as u32..plan.links).step_by(plan.config.readout_threads) {
        let source = plan.ring_source(ring.keyspace(), link)?;
        let of_link = plan.config.faults.pauses.iter().filter(|pause| pause.link == link);
        let pauses = of_link.map(|pause| chunks_of(pause, chunks_per_second)).collect();
        links.push(Link { report: LinkReport { link, ..LinkReport::default() }, source, pauses });
    }
    let ahead_max = (plan.ring_keyspace()?.history.as_secs_f64() / FREE_RUNNING_SHARE as f64
        * plan.ticks_per_second as f64
        / plan.chunk_ticks as f64)
        .max(1.0) as u64;
    let mut next = 0;
    while !shared.read_out() {
        let due = if pace.is_free_running() { pace.chunks() + ahead_max } else { pace.chunks() };
        if due <= next {
            std::thread::sleep(if pace.is_free_running() { READOUT_STEP / 10 } else { READOUT_STEP });
            continue;
        }
        // A real detector does not wait: what the readout cannot catch up with is lost, and counted.
        let lost = overrun(due - next, pace.chunks_within(READOUT_CATCH_UP));
        for link in &mut links {
            link.report.made += lost;
            link.report.lost += lost;
        }
        next += lost;
        // What the progress shows is counted after each such step.
        let last = due.min(next + STEP_CHUNKS);
        let mut stored = 0;
        for chunk in next..last {
            for link in &mut links {
                stored += u64::from(put_chunk(shared, &ring, link, chunk, &mut put)?);
            }
        }
        next = last;
        // After the puts: triggers look only at time that all threads have read out.
        pace.done(thread, next);
        Meter::count(&shared.put[thread].fragments, stored * plan.chunk_frames);
        Meter::count(&shared.put[thread].bytes, stored * plan.chunk_bytes as u64);
    }
    for LinkReport { link, made, stored, refused, lost, paused } in links.iter().map(|link| &link.report) {
        // Checked here, where a chunk that nobody counted is still one thread's fault; the summary checks it in frames.
        debug_assert_eq!(stored + refused.iter().sum::<u64>() + lost + paused, *made, "link {link}");
    }
    Ok(ReadoutReport { put, links: links.into_iter().map(|link| link.report).collect() })
}

/// Chunks that are lost where the readout is `behind` and catches up at most `most` (0: without a limit). It goes on
/// half as far behind, so that an overrun costs few long stretches and not many short ones.
fn overrun(behind: u64, most: u64) -> u64 {
    if most == 0 || behind <= most { 0 } else { behind - most / 2 }
}

/// Most chunks that are put before the clock is looked at again.
const STEP_CHUNKS: u64 = 64;

/// Puts one chunk of one link; `true` where it was stored.
fn put_chunk(shared: &MiniDaqShared<'_>, ring: &Ring, link: &mut Link, chunk: u64, put: &mut Latency) -> Result<bool> {
    let plan = shared.plan;
    let report = &mut link.report;
    report.made += 1;
    if link.pauses.iter().any(|pause| pause.contains(&chunk)) {
        report.paused += 1;
        return Ok(false);
    }
    let timestamp = plan.timestamp(chunk);
    let start = Instant::now();
    let options = RingPut { run: RUN, status: 0 };
    let mut memory = ring.reserve(&link.source, timestamp, plan.chunk_ticks as u32, plan.chunk_bytes, &options)?;
    plan.frames.fill(chunk, report.link, &mut memory);
    match memory.commit()? {
        RingOutcome::Stored => {
            put.record(start);
            report.stored += 1;
            Ok(true)
        }
        RingOutcome::Refused(cause) => {
            report.refused[cause as usize] += 1;
            Ok(false)
        }
        RingOutcome::Duplicate => Err(Error::internal(format!(
            "the first put of link {}, timestamp {timestamp} was answered Duplicate",
            report.link
        ))),
    }
}

fn chunks_of(pause: &Pause, chunks_per_second: f64) -> std::ops::Range<u64> {
    let chunk = |at: Duration| (at.as_secs_f64() * chunks_per_second) as u64;
    chunk(pause.from)..chunk(pause.from.saturating_add(pause.length))
}

#[cfg(test)]
mod tests {
    use super::{Pause, chunks_of, overrun};
    use std::time::Duration;

    #[test]
    fn a_pause_may_last_for_ever() {
        let pause = Pause { link: 0, from: Duration::from_secs(2), length: Duration::MAX };
        assert_eq!(chunks_of(&pause, 1000.0), 2000..u64::MAX);
    }

    #[test]
    fn an_overrun_frees_half_of_what_is_caught_up() {
        assert_eq!([overrun(100, 100), overrun(101, 100), overrun(1000, 100), overrun(1000, 0)], [0, 51, 950, 0]);
    }
}
