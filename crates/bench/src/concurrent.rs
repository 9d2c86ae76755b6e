//! The DAQDB paper's test: one thread puts, the other gets and removes what was put, at the same time.

use super::engine::{Bench, SOURCES, Span, create};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The progress of each side, in events, and whether the test has ended.
struct Progress {
    put: AtomicU64,
    taken: AtomicU64,
    over: AtomicBool,
}

/// Measures one repetition at one size.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, bytes: usize, results: &mut Results) -> Result<()> {
    let mut bench = create(plan, SOURCES)?;
    let run = bench.new_run(SOURCES)?;
    // The putting side waits for the other one rather than running into a full store.
    let ahead_max = plan.fragments(bytes) / SOURCES;
    let progress = Progress { put: 0.into(), taken: 0.into(), over: false.into() };
    let (put, taken) = std::thread::scope(|scope| {
        let putting = scope.spawn(|| ended(&progress, put(&bench, run, buffer, bytes, ahead_max, &progress)));
        let taking = scope.spawn(|| ended(&progress, take(&bench, run, &progress)));
        let from = Instant::now();
        while from.elapsed() < plan.concurrent && !progress.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1).min(plan.concurrent));
        }
        progress.over.store(true, Ordering::Relaxed);
        let join = |side: std::thread::ScopedJoinHandle<'_, Result<f64>>| {
            side.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (join(putting), join(taking))
    });
    results.record("concurrent.put", bytes, put?);
    results.record("concurrent.getremove", bytes, taken?);
    bench.end_run(run)
}

/// A side that ends, also by an error, ends the test.
fn ended(progress: &Progress, rate: Result<f64>) -> Result<f64> {
    progress.over.store(true, Ordering::Relaxed);
    rate
}

fn put(bench: &Bench, run: u64, buffer: &Buffer, bytes: usize, ahead_max: u64, progress: &Progress) -> Result<f64> {
    let store = bench.store.named("put");
    let mut blocks = buffer.blocks(bytes, Warmth::Cached, 0, 1);
    let from = Instant::now();
    let mut event = 0;
    while !progress.over.load(Ordering::Relaxed) {
        if event - progress.taken.load(Ordering::Relaxed) >= ahead_max {
            std::hint::spin_loop();
            continue;
        }
        Span::dense(run, event..event + 1).put(&store, &mut blocks)?;
        event += 1;
        progress.put.store(event, Ordering::Release);
    }
    Ok((event * SOURCES) as f64 / from.elapsed().as_secs_f64())
}

fn take(bench: &Bench, run: u64, progress: &Progress) -> Result<f64> {
    let store = bench.store.named("take");
    let from = Instant::now();
    let mut event = 0;
    while !progress.over.load(Ordering::Relaxed) {
        if event == progress.put.load(Ordering::Acquire) {
            std::hint::spin_loop();
            continue;
        }
        Span::dense(run, event..event + 1).get_and_remove(&store)?;
        event += 1;
        progress.taken.store(event, Ordering::Relaxed);
    }
    Ok((event * SOURCES) as f64 / from.elapsed().as_secs_f64())
}
