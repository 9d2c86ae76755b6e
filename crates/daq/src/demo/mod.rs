//! The demo: readout, store and selection in one process, and an account of every fragment at the end.
//!
//! ```text
//! trigger ─announces, grants─▶ readout threads ─reserve, fill, commit─▶ store ─get_any─▶ filter threads
//!    ▲                                                                   │              fast:  pass | reject
//!    └────────────────────────────── inhibit ◀──────────────────────┬────┘              final: accept
//!                                            archive ◀─ mover ◀─ warm level ◀─ accepted events go down
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
mod duty;
mod filter;
mod outcome;
pub(crate) mod plan;
mod profile;
mod readout;
mod setup;
mod shared;
mod summary;
mod trigger;
mod warm;

pub use backlog::Gap;
pub use config::{DemoConfig, DemoDevice, Duty};
pub use profile::Profile;
pub use summary::{DeadTime, Decided, DutySummary, RoleSummary, StageSummary, StreamSummary, Summary};
pub use warm::{WarmDeviceSummary, WarmSummary};

pub(crate) use plan::Plan;

use crate::account::undecided;
use crate::archive::SHELF_BYTES;
use crate::directory::Directory;
use crate::limits::{DRAIN, LOOK};
use crate::meter::read;
use crate::progress::{Figure, Figures, Phase, Reporter, Told};
use crate::threads::{EndThreads, Failures, Together, spawn};
use backlog::Backlog;
use forebay_core::{Kind, Result};
use forebay_store::Store;
use outcome::{Ended, Outcome};
use plan::RUN;
use shared::DemoShared;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use warm::Devices;

/// Runs a demo. `told` is called about twice a second, on the calling thread; setting `stop` ends data taking, after
/// which everything is decided and accounted for as at the end of the time asked.
///
/// # Errors
/// `Invalid` for choices that cannot work, `Unavailable` where no directory has room, `Corrupt` where bytes that were
/// read are not those that were put (the store is kept and named), and the errors of the store.
pub fn run(config: &DemoConfig, stop: &AtomicBool, told: &mut Told<'_>) -> Result<Summary> {
    let plan = Plan::new(config)?;
    let own_warm = if config.warm.is_empty() { config.warm_bytes } else { 0 };
    let needed = config.hot_bytes.saturating_add(own_warm).saturating_add(SHELF_BYTES);
    Directory::with(config.dir.as_deref(), needed, |directory| {
        let mut devices = Devices::new(config, directory);
        take_run(&plan, directory, &devices, stop, told).inspect_err(|error| {
            if error.kind() == Kind::Corrupt {
                devices.keep();
            }
        })
    })
}

fn take_run(
    plan: &Plan,
    directory: &Path,
    devices: &Devices,
    stop: &AtomicBool,
    told: &mut Told<'_>,
) -> Result<Summary> {
    let store = Store::create(directory, &plan.keyspace()?, plan.store_config(devices.devices()))?;
    store.run_open(RUN, &plan.run_config()?)?;
    let shared = DemoShared::new(plan, &store, store.producer(RUN, "trigger")?);
    let outcome = work(&shared, directory, stop, told)?;
    if let Some(announcer) = shared.announcer.lock().take() {
        announcer.finish()?;
    }
    let ended = match store.run_close(RUN) {
        Ok(summary) => Ended::Closed(Box::new(summary)),
        Err(error) => Ended::Not(Box::new(store.ledger(RUN)?), error.to_string()),
    };
    let stats = store.stats();
    let warm = warm::summary(&store, outcome.warm_fill_most);
    store.close()?;
    outcome.summarise(&shared, directory, ended, &stats, warm)
}

/// Starts all threads and sees them to their end.
fn work(shared: &DemoShared<'_>, directory: &Path, stop: &AtomicBool, told: &mut Told<'_>) -> Result<Outcome> {
    let config = &shared.plan.config;
    std::thread::scope(|scope| {
        let _end = EndThreads(shared);
        let readout = spawn(scope, "readout", config.readout_threads, |thread| readout::run(shared, thread))?;
        let filter = spawn(scope, "filter", config.filter_threads, |thread| filter::run(shared, thread))?;
        let archive = spawn(scope, "archive", 1, |_| archive::run(shared, directory))?;
        let start = Instant::now();
        let mut reporter = Reporter::new(told);
        let mut backlog = Backlog::default();
        let mut warm_fill_most = 0.0_f64;
        let mut report = |phase| reporter.tick(phase, |figures| tell(shared, figures, &mut warm_fill_most));
        let taking = Duration::from_secs_f64(config.seconds);
        let stopped = || stop.load(Ordering::Relaxed);
        while !stopped() && !shared.aborted() && start.elapsed() < taking {
            std::thread::sleep(LOOK.min(taking.saturating_sub(start.elapsed())));
            report(Phase::Taking);
            look(shared, &mut backlog, Duration::ZERO)?;
        }
        let interrupted = stopped();
        if !interrupted && !shared.aborted() {
            // The trigger's clock began a little later than this one: the last period ends with the time of data taking.
            look(shared, &mut backlog, taking)?;
        }
        let produced = shared.trigger.close();
        // A farm that is slow on purpose would take longer for the rest than the drain may last.
        shared.farm.lift();
        let taking = start.elapsed();
        let deadline = Instant::now() + DRAIN;
        let mut failures = Failures::default();
        while !readout.iter().all(ScopedJoinHandle::is_finished) {
            if Instant::now() >= deadline {
                shared.give_up();
            }
            std::thread::sleep(LOOK);
            report(Phase::Draining);
        }
        let readout = failures.join(readout);
        // After a failure the others end by themselves, and the run is never stopped: its account is not looked at.
        if failures.is_empty() {
            shared.store.run_stop(RUN)?;
            while !shared.aborted() && Instant::now() < deadline && undecided(&shared.store.ledger(RUN)?).events > 0 {
                std::thread::sleep(LOOK);
                report(Phase::Draining);
            }
        }
        shared.finish();
        let filter = failures.join(filter);
        shared.end_decisions();
        while failures.is_empty() && !archive.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOOK);
            report(Phase::Draining);
        }
        let archive = failures.join(archive).pop().unwrap_or_default();
        // Only now: a filter that read wrong bytes explains a readout that was ended, not the other way round.
        failures.result()?;
        let draining = start.elapsed().saturating_sub(taking);
        Ok(Outcome { readout, filter, archive, produced, interrupted, taking, draining, backlog, warm_fill_most })
    })
}

/// How it is going. What the filters read are chosen sources and whole events.
fn tell(shared: &DemoShared<'_>, figures: &mut Figures<'_>, warm_fill_most: &mut f64) {
    let (put, taken, whole) = (read(&shared.put), read(&shared.taken), read(&shared.read));
    let stats = shared.store.stats();
    figures.byte_rate("in", put.bytes);
    figures.rate("events", put.events);
    figures.byte_rate("out", taken.bytes + whole.bytes);
    figures.rate("taken", taken.events);
    figures.set("fill", Figure::Share(stats.fill));
    if let Some(warm) = &stats.warm {
        *warm_fill_most = warm_fill_most.max(warm.fill);
        figures.set("warm", Figure::Share(warm.fill));
    }
    figures.set("ready", Figure::Count(stats.events.ready.events));
    figures.set("leased", Figure::Count(stats.events.leased.events));
    match stats.inhibit {
        Some(inhibit) => figures.set("INHIBIT", Figure::Words(format!("by {}: {}", inhibit.owner, inhibit.cause))),
        None => figures.set("inhibit", Figure::Words("no".to_owned())),
    }
}

/// Follows the backlog of a beam that comes and goes; `passed` have at least.
fn look(shared: &DemoShared<'_>, backlog: &mut Backlog, passed: Duration) -> Result<()> {
    let Some(beam) = shared.plan.beam else { return Ok(()) };
    // The time first: what is left at the end of a gap is never counted too low.
    let now = u64::try_from(shared.trigger.elapsed().max(passed).as_nanos()).unwrap_or(u64::MAX);
    backlog.look(beam, now, undecided(&shared.store.ledger(RUN)?));
    Ok(())
}
