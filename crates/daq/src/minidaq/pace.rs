//! The detector's clock: which frames exist by now, and what time it is in ticks.
//!
//! ```text
//! with a rate      chunk c exists from (c + 1) · period on, no matter which thread reads it out
//! free running     a chunk exists once every readout thread has put it: the slowest link is the clock
//! ```

use super::plan::Plan;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One readout thread's chunks so far, on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Done(AtomicU64);

/// The clock of one MiniDAQ.
pub(crate) struct Pace {
    start: Instant,
    /// From chunk to chunk; `None` in free running.
    period_ns: Option<f64>,
    first_tick: u64,
    chunk_ticks: u64,
    done: Vec<Done>,
}

impl Pace {
    pub(crate) fn new(plan: &Plan) -> Pace {
        let scale = plan.config.rate_scale;
        let period = plan.chunk_ticks as f64 / plan.ticks_per_second as f64 * 1e9;
        Pace {
            start: Instant::now(),
            period_ns: (scale > 0.0).then(|| period / scale),
            first_tick: plan.timestamp(0),
            chunk_ticks: plan.chunk_ticks,
            done: (0..plan.config.readout_threads).map(|_| Done::default()).collect(),
        }
    }

    /// Time since the first frame began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn is_free_running(&self) -> bool {
        self.period_ns.is_none()
    }

    /// Chunks that exist by now; in free running those that every thread has put.
    pub(crate) fn chunks(&self) -> u64 {
        match self.period_ns {
            Some(period) => (self.elapsed().as_nanos() as f64 / period) as u64,
            None => self.done.iter().map(|done| done.0.load(Ordering::Acquire)).min().unwrap_or(0),
        }
    }

    /// Chunks within a time, at the given rate, at least one; 0 in free running.
    pub(crate) fn chunks_within(&self, time: Duration) -> u64 {
        self.period_ns.map_or(0, |period| ((time.as_nanos() as f64 / period) as u64).max(1))
    }

    /// A thread has put everything before this chunk.
    pub(crate) fn done(&self, thread: usize, chunk: u64) {
        self.done[thread].0.store(chunk, Ordering::Release);
    }

    /// Detector time in ticks.
    pub(crate) fn now_tick(&self) -> u64 {
        let ticks = match self.period_ns {
            Some(period) => (self.elapsed().as_nanos() as f64 / period * self.chunk_ticks as f64) as u64,
            None => self.chunks() * self.chunk_ticks,
        };
        self.first_tick.saturating_add(ticks)
    }

    /// First tick of the first frame.
    pub(crate) fn first_tick(&self) -> u64 {
        self.first_tick
    }
}
