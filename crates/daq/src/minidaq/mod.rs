//! The MiniDAQ: DUNE's readout, trigger, request handling, record building, selection and archive in one process, around a
//! latency buffer (ring keyspace) and trigger records (events keyspace).
//!
//! ```text
//! links ─put─▶ RING ◀─window─ request handlers ─fragment─▶ STORE ─get_any─▶ filters ─accept─▶ archive: verify, release
//!                                 ▲ one request per link       ▲                │ reject          │
//!                              trigger ──────header────────────┘                ▼                 ▼
//!                                 ▲                                          token back       token back
//!                                 └───────── inhibit: records in flight, store's fill ◀───────────┘
//! ```
//!
//! *Lifecycle*: ring and store are made → run 1 → data taking for the time asked or until `stop` → no more triggers → every
//! request is answered, while the links still send → the readout ends → the run stops → filters and archive finish → the run
//! closes → all accounts are compared → the directory is removed if the MiniDAQ made it.
//!
//! *Invariants*: every frame, trigger, request and record is counted once, at each place that it passes (`summary`); every
//! wait has an end and every queue a bound (`limits`).
//!
//! *On failure*: the first thread that fails ends the others, its error is returned. Where bytes did not verify, ring and
//! store are kept and named. An account that does not balance is no error but a summary that is not `balanced`.
//!
//! *Not here*: the command line, anything that prints; DUNE's bytes (`dune`, `frames`).

mod archive;
mod builder;
mod config;
mod filter;
mod inhibit;
mod inspect;
mod links;
mod outcome;
mod pace;
mod plan;
mod requests;
mod shared;
mod summary;
#[cfg(test)]
mod tests;
mod trigger;

pub use config::{Faults, MiniDaqConfig, Pause, Reach};
pub use summary::{GapSummary, InhibitSummary, LinkSummary, MiniDaqSummary, RecordSummary, RingSummary, WindowSummary};

use crate::account::undecided;
use crate::directory::Directory;
use crate::limits::{DRAIN, LOOK};
use crate::meter::read;
use crate::progress::{Figure, Figures, Phase, Reporter, Told};
use crate::threads::{EndThreads, Failures, Together, spawn};
use forebay_core::{Error, Result};
use forebay_ring::Ring;
use forebay_store::Store;
use outcome::{Outcome, ring_summary};
use parking_lot::Mutex;
use plan::{Plan, RUN};
use shared::MiniDaqShared;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Where the ring is, in the directory of the store.
const RING_DIR: &str = "ring";

/// Runs a MiniDAQ. `told` is called about twice a second, on the calling thread; setting `stop` ends data taking, after
/// which everything is answered, decided and accounted for as at the end of the time asked.
///
/// # Errors
/// `Invalid` for choices that cannot work, `Unavailable` where no directory has room, `Corrupt` where bytes that were
/// read are not those that were put (ring and store are kept and named), and the errors of ring and store.
pub fn run(config: &MiniDaqConfig, stop: &AtomicBool, told: &mut Told<'_>) -> Result<MiniDaqSummary> {
    let plan = Plan::new(config)?;
    let bytes = plan.ring_bytes.saturating_add(plan.hot_bytes);
    Directory::with(config.dir.as_deref(), bytes, |directory| take_run(&plan, directory, stop, told))
}

fn take_run(plan: &Plan, directory: &Path, stop: &AtomicBool, told: &mut Told<'_>) -> Result<MiniDaqSummary> {
    let ring = Ring::create(&directory.join(RING_DIR), &plan.ring_keyspace()?, plan.ring_config())?;
    let store = Store::create(directory, &plan.keyspace()?, plan.store_config())?;
    store.run_open(RUN.into(), &plan.run_config()?)?;
    let shared = MiniDaqShared::new(plan, &ring, &store);
    let outcome = work(&shared, stop, told)?;
    let mut problems = Vec::new();
    let ledger = match store.run_close(RUN.into()) {
        Ok(summary) => summary.ledger,
        Err(error) => {
            problems.push(format!("the run does not close: {error}"));
            store.ledger(RUN.into())?
        }
    };
    let of_ring = ring_summary(&shared)?;
    store.close()?;
    ring.close()?;
    outcome.summarise(&shared, directory, of_ring, ledger, problems)
}

/// Starts all threads and sees them to their end, in the order in which data flows.
fn work(shared: &MiniDaqShared<'_>, stop: &AtomicBool, told: &mut Told<'_>) -> Result<Outcome> {
    let (plan, config) = (shared.plan, &shared.plan.config);
    let (requests, served) = trigger::queues(plan);
    let (accepted, to_archive) = sync_channel(config.busy_at as usize);
    // Each end of a queue is held by one thread for its life; the locks only hand them over.
    let (requests, accepted, to_archive) = (Mutex::new(requests), Mutex::new(Some(accepted)), Mutex::new(to_archive));
    let served: Vec<_> = served.into_iter().map(Mutex::new).collect();
    std::thread::scope(|scope| {
        let _end = EndThreads(shared);
        let archive = spawn(scope, "archive", 1, |_| shared.guarded(|| archive::run(shared, &to_archive.lock())))?;
        let filter = spawn(scope, "filter", config.filter_threads, |thread| {
            let Some(archive) = accepted.lock().clone() else { return Err(Error::internal("no queue to the archive")) };
            shared.guarded(|| filter::run(shared, thread, &archive))
        })?;
        let handlers = spawn(scope, "request", plan.links as usize, |link| {
            shared.guarded(|| requests::run(shared, link as u32, &served[link].lock()))
        })?;
        let readout =
            spawn(scope, "readout", config.readout_threads, |thread| shared.guarded(|| links::run(shared, thread)))?;
        let trigger = spawn(scope, "trigger", 1, |_| {
            let queues = std::mem::take(&mut *requests.lock());
            shared.guarded(|| trigger::run(shared, queues))
        })?;
        let start = Instant::now();
        let mut reporter = Reporter::new(told);
        let mut report = |phase| reporter.tick(phase, |figures| tell(shared, figures));
        let taking = Duration::from_secs_f64(config.seconds);
        let stopped = || stop.load(Ordering::Relaxed);
        while !stopped() && !shared.aborted() && start.elapsed() < taking {
            std::thread::sleep(LOOK.min(taking.saturating_sub(start.elapsed())));
            report(Phase::Taking);
        }
        let interrupted = stopped();
        shared.close();
        shared.inhibit.end();
        let taking = start.elapsed();
        let deadline = Instant::now() + DRAIN;
        let mut failures = Failures::default();
        let mut wait = |over: &dyn Fn() -> bool| {
            while !over() {
                if Instant::now() >= deadline {
                    shared.give_up();
                }
                std::thread::sleep(LOOK);
                report(Phase::Draining);
            }
        };
        wait(&|| trigger.iter().all(ScopedJoinHandle::is_finished));
        let trigger = failures.join(trigger);
        // The links send until the last request is answered: windows reach past the last trigger.
        wait(&|| handlers.iter().all(ScopedJoinHandle::is_finished));
        let handlers = failures.join(handlers);
        shared.end_readout();
        let readout = failures.join(readout);
        let reading = start.elapsed();
        if !shared.aborted() {
            shared.store.run_stop(RUN.into())?;
            let left = || shared.store.ledger(RUN.into()).map_or(0, |ledger| undecided(&ledger).events);
            wait(&|| shared.aborted() || Instant::now() >= deadline || left() == 0);
        }
        shared.finish();
        let filter = failures.join(filter);
        // The last sender: the archive ends when it has taken what is in its queue.
        accepted.lock().take();
        let archive = failures.join(archive);
        let draining = start.elapsed().saturating_sub(taking);
        failures.result()?;
        let one = |what: &str| Error::internal(format!("the {what} thread has no report"));
        Ok(Outcome {
            readout,
            trigger: trigger.into_iter().next().ok_or_else(|| one("trigger"))?,
            handlers,
            filter,
            archive: archive.into_iter().next().ok_or_else(|| one("archive"))?,
            interrupted,
            taking,
            reading,
            draining,
        })
    })
}

/// How it is going. The ring's fill is near 1 once it has come round.
fn tell(shared: &MiniDaqShared<'_>, figures: &mut Figures<'_>) {
    let (put, built, taken) = (read(&shared.put), read(&shared.built), read(&shared.taken));
    figures.byte_rate("ring", put.bytes);
    figures.rate("frames", put.fragments);
    figures.set("fill", Figure::Share(shared.ring.stats().fill));
    figures.rate("triggers", read(std::slice::from_ref(&shared.issued)).events);
    figures.byte_rate("built", built.bytes);
    figures.rate("out", taken.events);
    figures.set("in flight", Figure::Count(shared.inhibit.in_flight().into()));
    match shared.inhibit.running() {
        Some(inhibit) => figures.set("BUSY", Figure::Words(format!("by {inhibit}"))),
        None => figures.set("busy", Figure::Words("no".to_owned())),
    }
}
