//! One per cent of the events held under lease while the others are selected at full rate.
//!
//! One thread puts single-fragment events as fast as the selection takes them; the other takes them in batches, accepts
//! and releases them, and keeps every hundredth lease for a given time before its verdict. Guards are dropped at once:
//! the thread holds leases, not pins. Held events are scattered over all segments, so only evacuation frees their space.

use super::engine::{Bench, Span, create};
use super::options::Plan;
use super::results::Results;
use super::selection::BYTES;
use super::source::{Buffer, Warmth};
use crate::Result;
use forebay_store::{GetAny, Lease, Store};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BATCH: usize = 64;
/// One event in this many is held.
const HELD_OF: u64 = 100;

/// Measures without, with, and again without held leases; every repetition after one warm-up.
pub(super) fn measure(plan: &Plan, results: &mut Results) -> Result<()> {
    let buffer = Buffer::new(1 << 20);
    let mut bench = create(plan, 1)?;
    let measured = plan.hold.min(Duration::from_secs(30));
    let ahead_max = plan.fragments(BYTES) / 4;
    for hold in [None, Some(plan.hold), None] {
        // With leases held, the measurement begins when the first of them are due: from there on their number is steady.
        let warm = hold.unwrap_or(measured.min(Duration::from_secs(2)));
        let rate = phase(&mut bench, &buffer, hold, warm, measured, ahead_max)?;
        results.record(if hold.is_some() { "held.some" } else { "held.none" }, BYTES, rate);
    }
    Ok(())
}

fn phase(
    bench: &mut Bench,
    buffer: &Buffer,
    hold: Option<Duration>,
    warm: Duration,
    measured: Duration,
    ahead_max: u64,
) -> Result<f64> {
    let run = bench.new_run(1)?;
    let (taken, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let store = &bench.store;
    let rate = std::thread::scope(|scope| -> Result<f64> {
        let putting = scope.spawn(|| put(store, run, buffer, ahead_max, &taken, &over));
        let rate = take(store, hold, warm, measured, &taken, &over);
        over.store(true, Ordering::Relaxed);
        putting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        rate
    })?;
    // No leak: no event is leased or accepted; the space of the rest is freed with its run.
    let stats = store.stats();
    if stats.leases != 0 || stats.events.leased.events != 0 || stats.events.accepted.events != 0 {
        return Err(
            format!("{} leases and {} accepted events are left", stats.leases, stats.events.accepted.events).into()
        );
    }
    bench.end_run(run)?;
    Ok(rate)
}

fn put(store: &Store, run: u64, buffer: &Buffer, ahead_max: u64, taken: &AtomicU64, over: &AtomicBool) -> Result<()> {
    let mut blocks = buffer.blocks(BYTES, Warmth::Cached, 0, 1);
    let mut event = 0;
    let store = store.named("put");
    while !over.load(Ordering::Relaxed) {
        if event >= taken.load(Ordering::Relaxed) + ahead_max {
            std::hint::spin_loop();
            continue;
        }
        let end = event + BATCH as u64;
        if let Err(error) = Span::single(run, event..end).put(&store, &mut blocks) {
            over.store(true, Ordering::Relaxed);
            return Err(error);
        }
        event = end;
    }
    Ok(())
}

/// Takes events until the time is over; yields how many per second, counted after the warm-up.
fn take(
    store: &Store,
    hold: Option<Duration>,
    warm: Duration,
    measured: Duration,
    taken: &AtomicU64,
    over: &AtomicBool,
) -> Result<f64> {
    let store = store.named("select");
    let lease = hold.map(|hold| hold + Duration::from_secs(60));
    let request = GetAny { n: BATCH, wait: Duration::from_millis(10), lease, ..GetAny::default() };
    let mut held: VecDeque<(Instant, Lease)> = VecDeque::new();
    let mut done = 0;
    let mut at_warm = None;
    let from = Instant::now();
    let rate = loop {
        let now = Instant::now();
        if now - from >= warm && at_warm.is_none() {
            at_warm = Some((now, done));
        }
        if let Some((since, before)) = at_warm
            && (now - since >= measured || over.load(Ordering::Relaxed))
        {
            break (done - before) as f64 / (now - since).as_secs_f64();
        }
        if over.load(Ordering::Relaxed) {
            return Err("the putting side ended early".into());
        }
        while held.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, lease)) = held.pop_front() {
                finish(&store, &lease)?;
            }
        }
        for mut lease in store.get_any(&request)? {
            done += 1;
            match hold {
                Some(hold) if done % HELD_OF == 0 => {
                    lease.fragments.clear();
                    held.push_back((now + hold, lease));
                }
                _ => finish(&store, &lease)?,
            }
        }
        taken.store(done, Ordering::Relaxed);
    };
    for (_, lease) in held {
        finish(&store, &lease)?;
    }
    Ok(rate)
}

fn finish(store: &Store, lease: &Lease) -> Result<()> {
    lease.accept(&["physics"])?;
    match store.release(&lease.primary)? {
        true => Ok(()),
        false => Err("an accepted event was not there to be released".into()),
    }
}
