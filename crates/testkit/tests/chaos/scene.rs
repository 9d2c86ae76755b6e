//! State that all threads of a chaos share: the runs, what is dead or stalled, what survives a life of the store;
//! keyspace, sizes and payloads.

use super::books::EventName;
use super::clock::JumpingClock;
use forebay_core::{AttributeSchema, Completeness, Error, Key, KeySchema, Keyspace, Primary, Result, RunConfig, Token};
use forebay_store::{Config, Sources, WarmDevice};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Threads that put, and threads that select.
pub(super) const PRODUCERS: u64 = 2;
pub(super) const WORKERS: u64 = 2;
/// Sources of an event.
pub(super) const SOURCES: u64 = 6;
/// Sources under which workers write results: of the accept, of the pass.
pub(super) const RESULT_ACCEPT: u64 = 1000;
pub(super) const RESULT_PASS: u64 = 1001;
/// Number of the first event that only the operator touches.
pub(super) const BY_HAND: u64 = 1 << 40;
/// Stages of the selection.
pub(super) const FAST: &str = "fast";
pub(super) const FINAL: &str = "final";
/// Bytes of the warm level.
const WARM_BYTES: u64 = 4 << 20;
/// Longest fragment.
const FRAGMENT_BYTES_MAX: u64 = 3000;

/// What outlives one opening of the store, and what its threads share.
pub(super) struct Scene {
    pub(super) seed: u64,
    /// The device of the warm level.
    pub(super) warm_dir: PathBuf,
    pub(super) schema: KeySchema,
    pub(super) keyspace: Keyspace,
    pub(super) clock: Arc<JumpingClock>,
    /// Runs that take puts, open, paused or stopped.
    pub(super) runs: Mutex<Vec<u64>>,
    pub(super) next_run: AtomicU32,
    /// Next event by run and producer.
    next_event: Mutex<HashMap<(u64, u64), u64>>,
    /// Bit by source: it sends nothing.
    pub(super) dead: AtomicU32,
    pub(super) stalled: AtomicBool,
    /// A put was answered `Full` since the operator last looked.
    pub(super) full: AtomicBool,
    /// The threads of this life are to end.
    pub(super) over: AtomicBool,
    /// Accepted events that the archive has not taken over.
    pub(super) accepted: Mutex<Vec<Primary>>,
    /// Tokens of earlier lives that decided nothing.
    pub(super) stale: Mutex<Vec<(Primary, Token)>>,
    pub(super) next_by_hand: AtomicU32,
}

impl Scene {
    pub(super) fn new(seed: u64, warm_dir: PathBuf) -> Result<Scene> {
        let keyspace = keyspace()?;
        Ok(Scene {
            seed,
            warm_dir,
            schema: keyspace.schema.clone(),
            keyspace,
            clock: Arc::default(),
            runs: Mutex::default(),
            next_run: AtomicU32::new(1),
            next_event: Mutex::default(),
            dead: AtomicU32::new(0),
            stalled: AtomicBool::new(false),
            full: AtomicBool::new(false),
            over: AtomicBool::new(false),
            accepted: Mutex::default(),
            stale: Mutex::default(),
            next_by_hand: AtomicU32::new(0),
        })
    }

    /// Chance of one thread in one life: the same for the same seed.
    pub(super) fn random(&self, life: u64, thread: u64) -> StdRng {
        StdRng::seed_from_u64(mixed(self.seed ^ mixed(life << 8 | thread)))
    }

    pub(super) fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) fn any_run(&self, random: &mut StdRng) -> Option<u64> {
        let runs = self.runs.lock();
        (!runs.is_empty()).then(|| runs[random.random_range(0..runs.len())])
    }

    /// The next event of a producer: no two producers have the same.
    pub(super) fn next_event(&self, run: u64, producer: u64) -> u64 {
        let mut next = self.next_event.lock();
        let count = next.entry((run, producer)).or_default();
        *count += 1;
        *count * PRODUCERS + producer
    }

    pub(super) fn key(&self, (run, event): EventName, source: u64) -> Result<Key> {
        self.schema.key(&[run, event, source])
    }

    pub(super) fn primary(&self, (run, event): EventName) -> Result<Primary> {
        self.schema.primary(&[run, event])
    }

    pub(super) fn name(&self, primary: &Primary) -> EventName {
        let values = self.schema.values(primary.as_bytes());
        (values[0], values[1])
    }

    /// What a run is opened with: all sources, little time, and now and then masks by policy and a time of grace.
    pub(super) fn run_config(&self, random: &mut StdRng) -> Result<RunConfig> {
        let sources = Completeness::first_sources(&self.schema, SOURCES)?;
        let mut config = RunConfig::new(sources, Duration::from_millis(random.random_range(20..80)));
        config.auto_mask = random.random_bool(0.5).then_some(30);
        config.stop_grace = Duration::from_millis(if random.random_bool(0.5) { 40 } else { 0 });
        Ok(config)
    }

    /// How the store is opened: small, impatient, with a small warm level, with the clock that jumps, and ticked by the
    /// operator.
    pub(super) fn config(&self) -> Config {
        Config {
            hot_bytes: 6 << 20,
            warm: vec![WarmDevice::directory(&self.warm_dir, WARM_BYTES)],
            container_bytes: 256 << 10,
            device_log_bytes: 1 << 20,
            put_deadline: Duration::from_millis(3),
            lease: Duration::from_millis(40),
            max_hold: Duration::from_millis(120),
            maintenance: false,
            clock: self.clock.clone(),
            ..Config::default()
        }
    }

    /// What a stream in part keeps.
    pub(super) fn part(&self) -> Result<Sources> {
        Sources::group(&self.keyspace, "part")
    }
}

fn keyspace() -> Result<Keyspace> {
    let mut keyspace = Keyspace::events("chaos", SOURCES as u32);
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "class"], &["physics", "by-hand"])?;
    keyspace.stages = vec![FAST.to_owned(), FINAL.to_owned()];
    let sources = [0, 1].map(|source| keyspace.schema.source(&[source]));
    let sources = sources.into_iter().collect::<Result<_>>()?;
    keyspace.groups =
        vec![forebay_core::SourceGroup { name: "part".to_owned(), sources, level: forebay_core::Level::Hot }];
    keyspace.ledger_by = Some("lumi".to_owned());
    keyspace.check()?;
    Ok(keyspace)
}

/// The bytes of a fragment: a function of its key and version, of a length that is one as well, sometimes none.
pub(super) fn payload((run, event): EventName, source: u64, version: u64) -> Vec<u8> {
    let seed = mixed(mixed(run << 48 ^ event).wrapping_add(mixed(source << 8 | version)));
    let length = if seed.is_multiple_of(16) { 0 } else { (seed >> 8) % FRAGMENT_BYTES_MAX };
    (0..length.div_ceil(8)).flat_map(|at| mixed(seed ^ at).to_le_bytes()).take(length as usize).collect()
}

/// Whether bytes that were read are those that were put.
pub(super) fn check(scene: &Scene, key: &Key, bytes: &[u8]) -> Result<()> {
    let values = scene.schema.values(key.as_bytes());
    if bytes == payload((values[0], values[1]), values[2], 0) {
        return Ok(());
    }
    let name = scene.schema.text(key.as_bytes());
    Err(Error::corrupt(format!("{name}: {} bytes that are not those that were put", bytes.len())))
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(super) fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}
