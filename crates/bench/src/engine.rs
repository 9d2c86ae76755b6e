//! Stores to measure on, and the loops that put, read and remove: the same for every part of the benchmark.

use super::options::Plan;
use super::source::{Blocks, mix};
use crate::Result;
use forebay_core::{Bounds, Completeness, Key, Keyspace, Kind, RunConfig};
use forebay_store::{Config, PutOptions, PutOutcome, Store};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Fragments of one event, where the table does not say otherwise.
pub(super) const SOURCES: u64 = 16;

/// A private directory, removed at the end.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(super) fn new(parent: &Path) -> Result<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("forebay-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A store in a directory of its own. Its creation, prefaulting included, is never part of a measurement.
pub(super) struct Bench {
    pub(super) store: Store,
    scratch: Scratch,
    next_run: u64,
}

impl Bench {
    /// A store with events of `fragments` fragments.
    pub(super) fn create(dir: &Path, hot_bytes: u64, fragments: u64) -> Result<Bench> {
        Bench::of(dir, hot_bytes, Keyspace::events("bench", fragments as u32).opening_runs())
    }

    /// A store of this keyspace, in which no event runs out of time.
    pub(super) fn of(dir: &Path, hot_bytes: u64, mut keyspace: Keyspace) -> Result<Bench> {
        let scratch = Scratch::new(dir)?;
        keyspace.run.complete_within = Duration::from_secs(3600);
        let store = Store::create(&scratch.path.join("store"), &keyspace, config(hot_bytes))?;
        Ok(Bench { store, scratch, next_run: 1 })
    }

    /// Closes the store and opens it again; yields how long opening took by the wall and by the process's CPU clock.
    pub(super) fn reopen(self, config: Config) -> Result<(Bench, Duration, Duration)> {
        let Bench { store, scratch, next_run } = self;
        close(store)?;
        let (wall, cpu) = (Instant::now(), cpu_time());
        let store = Store::open(&scratch.path.join("store"), config)?;
        let (wall, cpu) = (wall.elapsed(), cpu_time().saturating_sub(cpu));
        Ok((Bench { store, scratch, next_run }, wall, cpu))
    }

    /// Opens a fresh run whose events have `fragments` fragments.
    pub(super) fn new_run(&mut self, fragments: u64) -> Result<u64> {
        let run = self.next_run;
        self.next_run += 1;
        let completeness = Completeness::Count(fragments as u32);
        self.store.run_open(run, &RunConfig::new(completeness, Duration::from_secs(3600)))?;
        Ok(run)
    }

    /// Removes what is left of a run, closes it, and waits until its space is back.
    pub(super) fn end_run(&self, run: u64) -> Result<()> {
        let schema = self.store.schema();
        self.store.remove_range(&Bounds::parse(schema, &run.to_string())?)?;
        self.store.run_stop(run)?;
        self.store.run_close(run)?;
        self.wait_for_space()
    }

    /// Waits until the number of free segments has stopped growing.
    pub(super) fn wait_for_rest(&self) -> Result<()> {
        let mut free = self.store.stats().segments_free;
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(300));
            let now = self.store.stats().segments_free;
            if now <= free {
                return Ok(());
            }
            free = now;
        }
        Err("reclaiming does not come to rest".into())
    }

    /// Waits until almost all segments are free.
    pub(super) fn wait_for_space(&self) -> Result<()> {
        let from = Instant::now();
        loop {
            // No live data is left: open segments and the decision log may remain.
            let stats = self.store.stats();
            if stats.segments - stats.segments_free <= stats.segments / 8 + 4 {
                return Ok(());
            }
            if from.elapsed() > Duration::from_secs(30) {
                return Err(format!(
                    "space does not come back: {} of {} segments free",
                    stats.segments_free, stats.segments
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn is_full(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<forebay_core::Error>().is_some_and(|error| error.kind() == Kind::Full)
}

/// The configuration of every store here: two write cursors for at most two putting threads; else the defaults.
pub(super) fn config(hot_bytes: u64) -> Config {
    Config { hot_bytes, write_heads: 2, put_deadline: Duration::from_secs(5), ..Config::default() }
}

/// Closes a store and drops its last handle.
fn close(store: Store) -> Result<()> {
    Ok(store.close()?)
}

/// CPU time of this process so far, all threads.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// How events are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    Dense,
    Random,
}

/// Some fragments of one run, in the order in which they are put: event by event.
#[derive(Clone)]
pub(super) struct Span {
    pub(super) run: u64,
    pub(super) events: Range<u64>,
    pub(super) sources: Range<u64>,
    pub(super) numbering: Numbering,
}

impl Span {
    /// Dense events of all sources.
    pub(super) fn dense(run: u64, events: Range<u64>) -> Span {
        Span { run, events, sources: 0..SOURCES, numbering: Numbering::Dense }
    }

    /// Dense events of a single fragment.
    pub(super) fn single(run: u64, events: Range<u64>) -> Span {
        Span { sources: 0..1, ..Span::dense(run, events) }
    }

    pub(super) fn fragments(&self) -> u64 {
        (self.events.end - self.events.start) * (self.sources.end - self.sources.start)
    }

    fn each(&self, store: &Store, mut work: impl FnMut(&Key) -> Result<()>) -> Result<()> {
        let schema = store.schema();
        for event in self.events.clone() {
            let event = if self.numbering == Numbering::Random { mix(event) } else { event };
            for source in self.sources.clone() {
                work(&schema.key(&[self.run, event, source])?)?;
            }
        }
        Ok(())
    }

    /// Puts every fragment. Making the key is part of it, as it is for every caller.
    pub(super) fn put(&self, store: &Store, blocks: &mut Blocks<'_>) -> Result<()> {
        let options = PutOptions::default();
        self.each(store, |key| match store.put(key, blocks.next_block(), &options)? {
            PutOutcome::Stored => Ok(()),
            other => Err(format!("put answered {other:?}").into()),
        })
    }

    /// Puts single-fragment events and removes each event right away.
    pub(super) fn put_and_remove_events(&self, store: &Store, blocks: &mut Blocks<'_>) -> Result<()> {
        let options = PutOptions::default();
        self.each(store, |key| {
            let outcome = store.put(key, blocks.next_block(), &options)?;
            let removed = store.remove_event(&store.schema().primary_of(key))?;
            if outcome == PutOutcome::Stored && removed { Ok(()) } else { Err("an event did not come and go".into()) }
        })
    }

    /// Puts until the store is full; yields how many fragments went in.
    pub(super) fn put_until_full(&self, store: &Store, blocks: &mut Blocks<'_>) -> Result<u64> {
        let options = PutOptions { deadline: Some(Duration::ZERO), ..PutOptions::default() };
        let mut stored = 0;
        let end = self.each(store, |key| match store.put(key, blocks.next_block(), &options) {
            Ok(PutOutcome::Stored) => {
                stored += 1;
                Ok(())
            }
            Ok(other) => Err(format!("put answered {other:?}").into()),
            Err(error) => Err(error.into()),
        });
        match end {
            Ok(()) => Err(format!("{stored} fragments did not fill the store").into()),
            Err(error) if is_full(&*error) => Ok(stored),
            Err(error) => Err(error),
        }
    }

    /// Reads and verifies every fragment.
    pub(super) fn get_verified(&self, store: &Store) -> Result<()> {
        self.each(store, |key| {
            store.get(key)?.ok_or("a fragment is missing")?.verify()?;
            Ok(())
        })
    }

    /// Takes a guard on every fragment and does not touch the bytes.
    pub(super) fn get_untouched(&self, store: &Store) -> Result<()> {
        self.each(store, |key| {
            std::hint::black_box(&store.get(key)?.ok_or("a fragment is missing")?);
            Ok(())
        })
    }

    /// Reads, verifies and removes every fragment.
    pub(super) fn get_and_remove(&self, store: &Store) -> Result<()> {
        self.each(store, |key| {
            store.get(key)?.ok_or("a fragment is missing")?.verify()?;
            if store.remove(key)? { Ok(()) } else { Err("a fragment was gone before its removal".into()) }
        })
    }
}

/// Runs the works at once, one thread each, and yields what they return per second, from the first start to the last
/// end.
pub(super) fn side_by_side<T: Send>(inputs: Vec<T>, work: impl Fn(T) -> u64 + Sync) -> f64 {
    let barrier = Barrier::new(inputs.len());
    let (work, barrier) = (&work, &barrier);
    std::thread::scope(|scope| {
        let spawn = |input: T| {
            scope.spawn(move || {
                barrier.wait();
                let from = Instant::now();
                let done = work(input);
                (done, from, Instant::now())
            })
        };
        let threads: Vec<_> = inputs.into_iter().map(spawn).collect();
        let ended: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        let done: u64 = ended.iter().map(|(done, ..)| done).sum();
        match (ended.iter().map(|end| end.1).min(), ended.iter().map(|end| end.2).max()) {
            (Some(from), Some(to)) => done as f64 / (to - from).as_secs_f64(),
            _ => 0.0,
        }
    })
}

/// As [`side_by_side`], for works that can fail.
pub(super) fn try_side_by_side<T: Send>(inputs: Vec<T>, work: impl Fn(T) -> Result<u64> + Sync) -> Result<f64> {
    let failure = std::sync::Mutex::new(None);
    let rate = side_by_side(inputs, |input| {
        work(input).unwrap_or_else(|error| {
            *failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            0
        })
    });
    match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(rate),
    }
}

/// Rate per second of `many` operations in the time of `work`.
pub(super) fn rate(many: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let from = Instant::now();
    work()?;
    Ok(many as f64 / from.elapsed().as_secs_f64())
}

/// A store for one pass of a plan.
pub(super) fn create(plan: &Plan, fragments: u64) -> Result<Bench> {
    Bench::create(&plan.dir, plan.hot_bytes, fragments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_count_their_fragments_and_scratch_goes_away() {
        assert_eq!(Span::dense(1, 10..20).fragments(), 160);
        assert_eq!(Span::single(1, 10..20).fragments(), 10);
        let path = Scratch::new(&std::env::temp_dir()).unwrap().path().to_owned();
        assert!(!path.exists());
    }

    #[test]
    fn rates_add_up_over_threads_and_failures_come_through() {
        let rate = side_by_side(vec![1, 2], |n| {
            std::thread::sleep(Duration::from_millis(20));
            n
        });
        assert!(rate > 0.0 && rate <= 150.0, "{rate}");
        assert!(try_side_by_side(vec![1], |_: i32| Err("no".into())).is_err());
    }
}
