//! A store whose accepted events go down at once, and what every part does with it: write, wait, read as a mover does, move,
//! set archive and ledger against each other.
//!
//! *Invariants*: the hot level lies in memory, the warm one on the device that is measured; a measurement ends when the device
//! has everything.

use super::options::Plan;
use crate::Result;
use crate::engine::{Scratch, config, cpu_time};
use crate::source::{Blocks, Buffer, Warmth};
use forebay_core::{Bounds, ClaimRequest, Completeness, Keyspace, MovedStore, Primary, RunConfig, RunState};
use forebay_dataset::storage::{Options, Storage};
use forebay_mover::{Archive, Mover, MoverOptions};
use forebay_store::{Config, PutOptions, PutOutcome, Sources, Store, WarmDevice};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Fragments of an event, and bytes of each: an event is 256 KiB.
const SOURCES: u64 = 16;
pub(super) const FRAGMENT_BYTES: usize = 16 << 10;
pub(super) const EVENT_BYTES: u64 = SOURCES * FRAGMENT_BYTES as u64;
/// How long anything may take that has to come to rest.
const PATIENCE: Duration = Duration::from_secs(300);

/// A store, with the number of the next event.
pub(super) struct Scene {
    pub(super) store: Store,
    run: u64,
    next: AtomicU64,
    put_bytes: AtomicU64,
    // After the store: it is closed when its directories go.
    _scratch: [Scratch; 2],
}

impl Scene {
    /// A store with a warm level for this many bytes on each of some devices, which are directories of the plan's.
    pub(super) fn new(plan: &Plan, bytes: u64, devices: usize) -> Result<Scene> {
        let scratch = [Scratch::new(&plan.memory)?, Scratch::new(&plan.dir)?];
        let log_bytes: u64 = if plan.smoke { 1 << 20 } else { 16 << 20 };
        let containers =
            bytes.div_ceil(plan.container_bytes) + 4 + plan.streams.iter().max().map_or(0, |most| *most as u64);
        let device_bytes = containers * plan.container_bytes + 2 * log_bytes + (1 << 20);
        let warm = |at| WarmDevice::directory(scratch[1].path().join(format!("warm{at}")), device_bytes);
        let config = Config {
            warm: (0..devices).map(warm).collect(),
            // What is proved makes room at once.
            custody_min: Duration::ZERO,
            container_bytes: plan.container_bytes,
            device_log_bytes: log_bytes,
            ..config(plan.hot_bytes)
        };
        let mut keyspace = Keyspace::events("bench", SOURCES as u32).opening_runs();
        keyspace.run.complete_within = Duration::from_secs(3600);
        let store = Store::create(&scratch[0].path().join("store"), &keyspace, config)?;
        // Of its own, so that several scenes can use one archive.
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        store.run_open(run, &RunConfig::new(Completeness::Count(SOURCES as u32), Duration::from_secs(3600)))?;
        Ok(Scene { store, run, next: AtomicU64::new(0), put_bytes: AtomicU64::new(0), _scratch: scratch })
    }

    /// Puts an event and accepts it.
    pub(super) fn accept(&self, buffer: &mut Blocks<'_>, stream: &str) -> Result<()> {
        let event = self.next.fetch_add(1, Ordering::Relaxed);
        let schema = self.store.schema();
        for source in 0..SOURCES {
            let put = self.store.put(
                &schema.key(&[self.run, event, source])?,
                buffer.next_block(),
                &PutOptions::default(),
            )?;
            if put != PutOutcome::Stored {
                return Err(format!("a put was answered {put:?}").into());
            }
        }
        self.put_bytes.fetch_add(EVENT_BYTES, Ordering::Relaxed);
        let primary = schema.primary(&[self.run, event])?;
        let lease = self.store.lease(&primary, None)?.ok_or("an event that was put is not ready")?;
        Ok(lease.accept(&[stream])?)
    }

    /// Writes at least this many bytes of events into some streams in turn, until the device has them; answers bytes per second.
    pub(super) fn write(&self, buffer: &Buffer, bytes: u64, streams: usize) -> Result<f64> {
        let mut blocks = buffer.blocks(FRAGMENT_BYTES, Warmth::Cold, 0, 1);
        let events = bytes.div_ceil(EVENT_BYTES);
        let from = Instant::now();
        for event in 0..events {
            self.accept(&mut blocks, &format!("stream{}", event % streams as u64))?;
        }
        self.settle()?;
        Ok((events * EVENT_BYTES) as f64 / from.elapsed().as_secs_f64())
    }

    /// Waits until everything that was accepted is on the device.
    pub(super) fn settle(&self) -> Result<()> {
        let put = self.put_bytes.load(Ordering::Relaxed);
        self.until("what was accepted goes down", || {
            let warm = self.store.warm_stats().ok_or("a store with a warm level")?;
            Ok(warm.demoted_bytes >= put && warm.in_flight_bytes == 0)
        })
    }

    /// Waits for something that has to come.
    pub(super) fn until(&self, what: &str, done: impl Fn() -> Result<bool>) -> Result<()> {
        let from = Instant::now();
        while !done()? {
            if from.elapsed() > PATIENCE {
                let notes = self.store.warm_stats().map(|warm| warm.notes);
                return Err(format!("{what}: not after {PATIENCE:?}: {notes:?}").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Payload bytes until now.
    pub(super) fn put_bytes(&self) -> u64 {
        self.put_bytes.load(Ordering::Relaxed)
    }

    /// Fill of the warm level, 0 to 1.
    pub(super) fn fill(&self) -> Result<f64> {
        Ok(self.store.warm_stats().ok_or("a store with a warm level")?.fill)
    }

    /// Reads the events of all units that can be claimed, front to back and one after the other; the claims are given back.
    pub(super) fn read_claimed(&self, claims_max: usize) -> Result<Read> {
        let request = ClaimRequest { duration: Duration::from_secs(600), ..ClaimRequest::default() };
        let mut read = Read::default();
        let (process, others) = (cpu_time(), times_of_others()?);
        let mut claims = Vec::new();
        while claims.len() < claims_max
            && let Some(claim) = self.store.claim(&request)?
        {
            let mut at = 0;
            loop {
                let page = self.store.claimed(&claim.token, at)?;
                if page.is_empty() {
                    break;
                }
                at += page.len() as u64;
                for event in page.into_iter().filter(|event| event.event_fragments > 0) {
                    let sources = event.sources.map_or(Sources::All, Sources::Only);
                    let from = Instant::now();
                    read.bytes += self.read(&event.primary, &sources)?;
                    read.seconds += from.elapsed().as_secs_f64();
                    read.events.push(event.primary);
                }
            }
            claims.push(claim.token);
        }
        read.core_seconds = own_time(process, &others)?;
        for token in claims {
            self.store.give_back(&token)?;
        }
        if read.bytes == 0 { Err("nothing can be claimed".into()) } else { Ok(read) }
    }

    /// Reads an event; answers its bytes.
    pub(super) fn read(&self, primary: &Primary, sources: &Sources) -> Result<u64> {
        let event = self.store.get_event(primary, sources)?.ok_or("an event is not there")?;
        Ok(event.fragments.iter().map(|fragment| fragment.len() as u64).sum())
    }

    /// A mover into a place, asked to end by `stop`. With `all` it takes containers that are still being filled too.
    pub(super) fn mover(
        &self,
        plan: &Plan,
        place: Arc<dyn Storage>,
        all: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Mover<Store>> {
        let options = MoverOptions {
            move_after: if all { Duration::ZERO } else { Duration::from_secs(3600) },
            object_bytes: plan.object_bytes,
            ..MoverOptions::default()
        };
        let archive = Archive::at(place);
        if archive.identity()?.is_none() {
            archive.create("bench")?;
        }
        Ok(Mover::new(self.store.clone(), archive, options, stop.clone()))
    }

    /// Moves everything into a place.
    pub(super) fn move_all(&self, plan: &Plan, place: Arc<dyn Storage>) -> Result<Trip> {
        let mover = self.mover(plan, place, true, &Arc::default())?;
        let from = Instant::now();
        let (process, others) = (cpu_time(), times_of_others()?);
        let moved = mover.run(true, &mut |_, _| {})?;
        let seconds = from.elapsed().as_secs_f64();
        let process_seconds = cpu_time().saturating_sub(process).as_secs_f64();
        let core_seconds = own_time(process, &others)?;
        Ok(Trip { bytes: moved.contents.payload_bytes, seconds, core_seconds, process_seconds })
    }

    /// Sets archive and ledger against each other, once everything is moved: all that was put is released or in custody, and in
    /// the archive, whole, and every object verifies. Answers fragments, and objects.
    pub(super) fn audit(&self, place: &Arc<dyn Storage>) -> Result<(u64, u64)> {
        let archive = Archive::at(place.clone());
        let ledger = self.store.ledger(self.run)?;
        if let Some(what) = ledger.imbalance() {
            return Err(format!("the ledger does not balance: {what}").into());
        }
        let manifest = archive.manifest_there(self.run)?;
        let inventory = archive.inventory(&manifest)?;
        let put = self.put_bytes();
        let gone = ledger.released.bytes + ledger.in_custody.bytes;
        if gone != put || inventory.payload_bytes != put || inventory.partial > 0 || !inventory.faults.is_empty() {
            return Err(format!(
                "{put} bytes were put, {gone} are released or in custody, in the archive: {inventory:?}"
            )
            .into());
        }
        for object in &manifest.objects {
            archive.verify(self.run, object).map_err(|error| format!("{}: {error}", object.name))?;
        }
        Ok((inventory.fragments, manifest.objects.len() as u64))
    }

    /// Releases everything, archived or not, and waits until the containers are free again.
    pub(super) fn discard(&self) -> Result<()> {
        let bounds = Bounds::parse(self.store.schema(), &self.run.to_string())?;
        let mut after = None;
        loop {
            after = self.store.release_range(&bounds, None, after.as_ref())?.after;
            if after.is_none() {
                return self.until("containers are free again", || Ok(self.fill()? < 0.1));
            }
        }
    }

    /// The run takes no new events any more.
    pub(super) fn stop_run(&self) -> Result<()> {
        let open = self.store.runs().iter().any(|run| run.run == self.run && run.state == RunState::Open);
        if open { Ok(self.store.run_stop(self.run)?) } else { Ok(()) }
    }
}

/// What one mover did by itself.
pub(super) struct Trip {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of the processor, by the mover's own threads: reading from the store is part of it.
    pub(super) core_seconds: f64,
    /// The same by all threads of the process.
    pub(super) process_seconds: f64,
}

impl Trip {
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Core seconds for each 10⁹ bytes, of the mover's threads.
    pub(super) fn cores(&self) -> f64 {
        self.core_seconds / (self.bytes as f64 / 1e9)
    }
}

/// Processor seconds of this thread, and of those that began and ended since: of what the process used, what the threads did not
/// that were there before and after.
fn own_time(process: Duration, others: &BTreeMap<i32, Duration>) -> Result<f64> {
    let process = cpu_time().saturating_sub(process);
    let after = times_of_others()?;
    let gone = others.iter().filter_map(|(thread, before)| Some(after.get(thread)?.saturating_sub(*before)));
    Ok(process.saturating_sub(gone.sum()).as_secs_f64())
}

/// Processor time until now of every thread of this process but this one.
fn times_of_others() -> Result<BTreeMap<i32, Duration>> {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let mut times = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        let thread: i32 = task.file_name().to_string_lossy().parse()?;
        // A thread that just ended is not one that stays.
        let Ok(line) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
        let ns = line.split_whitespace().next().ok_or("schedstat without a first number")?;
        if thread != own {
            times.insert(thread, Duration::from_nanos(ns.parse()?));
        }
    }
    Ok(times)
}

/// What was read of claims, and the time of it.
#[derive(Default)]
pub(super) struct Read {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of the processor, by the thread that reads.
    pub(super) core_seconds: f64,
    pub(super) events: Vec<Primary>,
}

impl Read {
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Core seconds for each 10⁹ bytes.
    pub(super) fn cores(&self) -> f64 {
        self.core_seconds / (self.bytes as f64 / 1e9)
    }
}

/// A directory below the plan's, as a place.
pub(super) fn archive_in(scratch: &Scratch) -> Result<Arc<dyn Storage>> {
    Ok(forebay_dataset::storage::open(&scratch.path().join("archive").display().to_string(), &Options::default())?)
}
