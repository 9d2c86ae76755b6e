//! The demo: readout, store and selection in one process, and an account of every fragment at the end.
//!
//! ```text
//! trigger ─announces, grants─▶ readout threads ─reserve, fill, commit─▶ store ─get_any─▶ filter threads
//!    ▲                                                                   │              fast:  pass | reject
//!    └────────────────────────────── inhibit ◀──────────────────────┬────┘              final: accept
//!                                                          warm level ◀─ accepted events go down, archive: release
//! ```
//!
//! *Lifecycle*: create the store → open run 1 → take data for the time asked or until `stop` → readout ends at one common
//! event → stop the run → filters decide what is left → close the run → compare the ledger with what the threads counted →
//! remove the store if the demo made its directory.
//!
//! One readout thread, one filter thread for both stages and a main thread that mostly sleeps keep two cores busy.
//!
//! *Invariants*: nothing that was granted by the trigger is lost; every wait has an end (`limits`).
//!
//! *On failure*: the first thread that fails ends the others, its error is returned. Where stored bytes did not verify the
//! store is kept and named. A run that does not add up is no error but a [`Summary`] that is not `balanced`.
//!
//! *Not here*: the command line, anything that prints.

mod archive;
mod audit;
mod backlog;
mod config;
mod dead;
mod decided;
pub(crate) mod directory;
mod duty;
mod filter;
pub(crate) mod meter;
mod notices;
mod outcome;
pub(crate) mod plan;
mod profile;
mod progress;
mod readout;
mod setup;
mod shared;
mod summary;
pub(crate) mod text;
mod trigger;
mod warm;

pub use backlog::Gap;
pub use config::{DemoConfig, DemoDevice, Duty, Kill};
pub use profile::Profile;
pub use progress::{Phase, Progress};
pub use summary::{
    ClassSummary, DeadTime, Decided, DutySummary, Happened, LatencySummary, RoleSummary, StageSummary, StreamSummary,
    Summary,
};

pub use warm::{WarmDeviceSummary, WarmSummary};

pub(crate) use plan::Plan;

use crate::ends::{EndThreads, Together};
use crate::limits::DRAIN;
use backlog::Backlog;
use directory::Directory;
use forebay_core::{Error, Kind, Ledger, LiveState, Result, Tally};
use forebay_store::Store;
use notices::Notices;
use outcome::{Ended, Outcome};
use plan::RUN;
use progress::Reporter;
use shared::Shared;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use warm::Devices;

/// How often the main thread looks how things are going.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a demo. `progress` is called about twice a second, on the calling thread; setting `stop` ends data taking, after
/// which everything is decided and accounted for as at the end of the time asked.
///
/// # Errors
/// `Invalid` for choices that cannot work, `Unavailable` where no directory has room, `Corrupt` where bytes that were
/// read are not those that were put (the store is kept and named), and whatever the store answers.
pub fn run(config: &DemoConfig, stop: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Summary> {
    let plan = Plan::new(config)?;
    let own_warm = if config.warm.is_empty() { config.warm_bytes } else { 0 };
    let mut directory = Directory::prepare(config.dir.as_deref(), config.hot_bytes.saturating_add(own_warm))?;
    let mut devices = Devices::new(config, &directory);
    match take_run(&plan, &directory, &devices, stop, progress) {
        Ok(summary) => directory.remove().map(|()| summary),
        Err(error) if error.kind() == Kind::Corrupt => {
            directory.keep();
            devices.keep();
            let place = directory.path().display();
            Err(Error::corrupt(format!("{}; the store is kept in {place}", error.message())))
        }
        Err(error) => Err(error),
    }
}

fn take_run(
    plan: &Plan,
    directory: &Directory,
    devices: &Devices,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary> {
    let store = Store::create(directory.path(), &plan.keyspace()?, plan.store_config(devices.devices()))?;
    store.run_open(RUN, &plan.run_config()?)?;
    let shared = Shared::new(plan, &store, store.producer(RUN, "trigger")?);
    let outcome = work(&shared, stop, progress)?;
    if let Some(announcer) = shared.announcer.lock().take() {
        announcer.finish()?;
    }
    let ended = match store.run_close(RUN) {
        Ok(summary) => Ended::Closed(Box::new(summary)),
        Err(error) => Ended::Not(Box::new(store.ledger(RUN)?), error.to_string()),
    };
    let stats = store.stats();
    let warm = warm::summary(&store, &outcome.archive, outcome.warm_fill_most);
    store.close()?;
    outcome.summarise(&shared, directory.path(), ended, &stats, warm)
}

/// Starts all threads and sees them to their end.
fn work(shared: &Shared<'_>, stop: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome> {
    let config = &shared.plan.config;
    std::thread::scope(|scope| {
        let _end = EndThreads(shared);
        let readout = spawn(scope, "readout", config.readout_threads, |thread| readout::run(shared, thread))?;
        let filter = spawn(scope, "filter", config.filter_threads, |thread| filter::run(shared, thread))?;
        let archive = spawn(scope, "archive", usize::from(shared.plan.warm.is_some()), |_| archive::run(shared))?;
        let start = Instant::now();
        let mut reporter = Reporter::new(progress);
        let mut notices = Notices::new(shared)?;
        let mut backlog = Backlog::default();
        let taking = Duration::from_secs_f64(config.seconds);
        let stopped = || stop.load(Ordering::Relaxed);
        while !stopped() && !shared.aborted() && start.elapsed() < taking {
            std::thread::sleep(LOOK.min(taking.saturating_sub(start.elapsed())));
            reporter.tick(shared, Phase::Taking, notices.look(shared)?);
            look(shared, &mut backlog)?;
        }
        let interrupted = stopped();
        let produced = shared.trigger.close();
        shared.farm.lift();
        let taking = start.elapsed();
        let deadline = Instant::now() + DRAIN;
        while !readout.iter().all(ScopedJoinHandle::is_finished) {
            if Instant::now() >= deadline {
                shared.give_up();
            }
            std::thread::sleep(LOOK);
            reporter.tick(shared, Phase::Draining, Vec::new());
        }
        let readout = join(readout);
        if readout.is_ok() {
            shared.store.run_stop(RUN)?;
            while !shared.aborted() && Instant::now() < deadline && left(&shared.store.ledger(RUN)?).events > 0 {
                std::thread::sleep(LOOK);
                reporter.tick(shared, Phase::Draining, Vec::new());
            }
        }
        shared.finish();
        let filter = join(filter);
        shared.custody.close();
        let archive = join(archive);
        let draining = start.elapsed().saturating_sub(taking);
        let (readout, (filter, archive)) = first_failure(readout, both(filter, archive))?;
        let archive = archive.first().copied().unwrap_or_default();
        let (happened, warm_fill_most) = (notices.happened, reporter.warm_fill_most());
        Ok(Outcome {
            readout,
            filter,
            archive,
            produced,
            interrupted,
            taking,
            draining,
            happened,
            backlog,
            warm_fill_most,
        })
    })
}

/// Events that nobody has decided.
fn left(ledger: &Ledger) -> Tally {
    let mut left = Tally::default();
    [LiveState::Open, LiveState::Ready, LiveState::Leased]
        .iter()
        .for_each(|state| left += ledger.live[*state as usize]);
    left
}

/// Follows the backlog of a beam that comes and goes.
fn look(shared: &Shared<'_>, backlog: &mut Backlog) -> Result<()> {
    let Some(beam) = shared.plan.beam else { return Ok(()) };
    // The time first: what is left at the end of a gap is never counted too low.
    let now = u64::try_from(shared.trigger.elapsed().as_nanos()).unwrap_or(u64::MAX);
    backlog.look(beam, now, left(&shared.store.ledger(RUN)?));
    Ok(())
}

pub(crate) fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    role: &str,
    threads: usize,
    body: impl Fn(usize) -> Result<T> + Copy + Send + 'scope,
) -> Result<Vec<ScopedJoinHandle<'scope, Result<T>>>> {
    let one = |thread: usize| {
        let builder = Builder::new().name(format!("{role}-{thread}"));
        builder
            .spawn_scoped(scope, move || body(thread))
            .map_err(|error| Error::unavailable(format!("no thread for {role} {thread}")).with_source(error))
    };
    (0..threads).map(one).collect()
}

pub(crate) fn join<T>(threads: Vec<ScopedJoinHandle<'_, Result<T>>>) -> Result<Vec<T>> {
    let one = |thread: ScopedJoinHandle<'_, Result<T>>| {
        thread.join().unwrap_or_else(|_| Err(Error::internal("a thread of the demo panicked")))
    };
    // All are joined before the first failure is looked at.
    threads.into_iter().map(one).collect::<Vec<_>>().into_iter().collect()
}

/// Both of those who read; where both failed, corruption comes first.
fn both<F, A>(filter: Result<F>, archive: Result<A>) -> Result<(F, A)> {
    match (filter, archive) {
        (Ok(filter), Ok(archive)) => Ok((filter, archive)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(error), Err(other)) => Err(if other.kind() == Kind::Corrupt { other } else { error }),
    }
}

/// Both roles' reports; where both failed, corruption comes before what followed from it.
fn first_failure<R, F>(readout: Result<R>, filter: Result<F>) -> Result<(R, F)> {
    match (readout, filter) {
        (Ok(readout), Ok(filter)) => Ok((readout, filter)),
        (_, Err(error)) if error.kind() == Kind::Corrupt => Err(error),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}
