//! The cost of a monitor for the selection: one thread leases events in batches, accepts or rejects them in turn and
//! releases the accepted ones, with or without another thread that samples at 1 kHz. The cases take turns in short
//! periods on the same store, so that drift affects all alike.

use super::engine::{Span, create};
use super::options::Plan;
use super::results::Results;
use super::selection::BYTES;
use super::source::{Buffer, Warmth};
use crate::Result;
use forebay_store::{GetAny, Sampling, Store};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BATCH: usize = 64;
const RATE_HZ: f64 = 1000.0;
/// Turns that each of the three gets.
const TURNS: u64 = 8;

/// Who looks on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Monitor {
    Nobody,
    Decided,
    Live,
}

const MONITORS: [Monitor; 3] = [Monitor::Nobody, Monitor::Decided, Monitor::Live];

/// Measures one repetition.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, results: &mut Results) -> Result<()> {
    let mut bench = create(plan, 1)?;
    let run = bench.new_run(1)?;
    let all = MONITORS.len() as u64;
    let stretch = plan.fragments(BYTES).min(plan.fragments_max / 2) / (all * TURNS + 1) / BATCH as u64 * BATCH as u64;
    // One stretch more than is taken, so that there is always something live to look at.
    let events = (all * TURNS + 1) * stretch;
    Span::single(run, 0..events).put(&bench.store, &mut buffer.blocks(BYTES, Warmth::Cached, 0, 1))?;
    let mut times = [Duration::ZERO; 3];
    let mut seen = [0_u64; 3];
    for turn in 0..TURNS * all {
        // Each round begins with another case, so that none always follows the same one.
        let at = ((turn + turn / all) % all) as usize;
        let (time, samples) = watched(&bench.store, MONITORS[at], stretch)?;
        times[at] += time;
        seen[at] += samples;
    }
    if seen[1] == 0 || seen[2] == 0 {
        return Err(format!("samplers saw {} decided and {} live events", seen[1], seen[2]).into());
    }
    let rate = |at: usize| (TURNS * stretch) as f64 / times[at].as_secs_f64();
    results.record("sampled.none", BYTES, rate(0));
    results.record("sampled.decided", BYTES, rate(1) / rate(0));
    results.record("sampled.live", BYTES, rate(2) / rate(0));
    bench.end_run(run)
}

/// Decides this many events beside a monitor; returns the time and the number of events that the monitor saw.
fn watched(store: &Store, monitor: Monitor, events: u64) -> Result<(Duration, u64)> {
    if monitor == Monitor::Nobody {
        return Ok((decided(store, events)?, 0));
    }
    let sampling = Sampling { decided: monitor == Monitor::Decided, rate_hz: RATE_HZ, ..Sampling::default() };
    let (over, begun) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| -> Result<u64> {
            let sampler = store.named("monitor").sampler(&sampling);
            begun.wait();
            let mut sampler = sampler?;
            let mut seen = 0;
            while !over.load(Ordering::Relaxed) {
                seen += u64::from(sampler.next(Duration::from_millis(20))?.is_some());
            }
            Ok(seen)
        });
        begun.wait();
        let time = decided(store, events);
        over.store(true, Ordering::Relaxed);
        let seen = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((time?, seen))
    })
}

fn decided(store: &Store, events: u64) -> Result<Duration> {
    let store = store.named("select");
    let request = GetAny { n: BATCH, ..GetAny::default() };
    let from = Instant::now();
    let mut done = 0;
    while done < events {
        let leases = store.get_any(&request)?;
        if leases.is_empty() {
            return Err(format!("get_any found nothing with {} of {events} events to go", events - done).into());
        }
        for lease in leases {
            done += 1;
            if done % 2 == 0 {
                lease.reject()?;
            } else {
                lease.accept(&["physics"])?;
                store.release(&lease.primary)?;
            }
        }
    }
    Ok(from.elapsed())
}
