//! Helpers that the tests share: directories that go away, payloads that prove themselves, a store whose clock a test
//! moves.
#![allow(dead_code, reason = "every test file takes its own part of this")]

pub(crate) mod driver;
pub(crate) mod fixture;
pub(crate) mod model;
pub(crate) mod ops;
pub(crate) mod settle;

use forebay_store::core::{Key, KeySchema, Keyspace, Kind, Result};
use forebay_store::{Config, Event, Fragment, PutOptions, PutOutcome, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A new directory under the system's temporary one, removed with everything in it on drop.
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-test-{}-{number}", std::process::id()));
        // Left over from a process of the same id that was killed.
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        TempDir { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A place for a store, not there yet.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}

/// The kind and message of a call that must fail, checked against the kind.
#[track_caller]
pub(crate) fn refused<T>(answer: Result<T>, kind: Kind) -> String {
    match answer {
        Ok(_) => panic!("expected an error of kind {kind:?}, the call succeeded"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(!error.message().is_empty(), "an error of kind {kind:?} says nothing");
            error.to_string()
        }
    }
}

/// As [`refused`], where either of some kinds will do.
#[track_caller]
pub(crate) fn refused_as<T>(answer: Result<T>, kinds: &[Kind]) -> String {
    match answer {
        Ok(_) => panic!("expected an error of kind {kinds:?}, the call succeeded"),
        Err(error) => {
            assert!(kinds.contains(&error.kind()), "{error}: expected {kinds:?}");
            error.to_string()
        }
    }
}

/// The tag of a payload without bytes.
pub(crate) const EMPTY: u64 = 7;

/// The bytes of one version of one fragment, a function of key and tag: the tag first, then noise. Tags that leave 7
/// modulo 16 give no bytes at all.
pub(crate) fn payload(key: &Key, tag: u64, bytes_max: usize) -> Vec<u8> {
    if tag % 16 == EMPTY {
        return Vec::new();
    }
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let seed = key.as_bytes().iter().chain(&tag.to_le_bytes()).fold(0xCBF2_9CE4_8422_2325, fold);
    let mut rng = SmallRng::seed_from_u64(seed);
    let length = rng.random_range(8..=bytes_max.max(8));
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes[..]);
    bytes[..8].copy_from_slice(&tag.to_le_bytes());
    bytes
}

/// The tag that a payload carries.
pub(crate) fn tag_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(EMPTY, |first| u64::from_le_bytes(*first))
}

/// A fragment's bytes are what [`payload`] gives for its key and the tag inside, and its checksum holds.
#[track_caller]
pub(crate) fn genuine(fragment: &Fragment, bytes_max: usize) -> u64 {
    fragment.verify().unwrap();
    let tag = tag_of(fragment);
    assert!(
        **fragment == *payload(&fragment.key(), tag, bytes_max),
        "{:?}: not the bytes of tag {tag}",
        fragment.key()
    );
    tag
}

/// `run/event/source`, packed.
pub(crate) fn key(run: u64, event: u64, source: u64) -> Key {
    KeySchema::run_event_source().key(&[run, event, source]).unwrap()
}

/// The last sub-key of each fragment.
pub(crate) fn sources_of(fragments: &[Fragment]) -> Vec<u64> {
    let schema = KeySchema::run_event_source();
    fragments.iter().map(|fragment| schema.values(fragment.key().as_bytes())[2]).collect()
}

/// The event's fragments as (source, bytes).
pub(crate) fn contents(event: &Event) -> Vec<(u64, Vec<u8>)> {
    sources_of(&event.fragments).into_iter().zip(event.fragments.iter().map(|fragment| fragment.to_vec())).collect()
}

/// Put with the store's deadline and nothing else.
pub(crate) fn put(store: &Store, key: &Key, value: &[u8]) -> Result<PutOutcome> {
    store.put(key, value, &PutOptions::default())
}

/// A small store without its own thread, that never waits for space.
pub(crate) fn small_config() -> Config {
    Config {
        hot_bytes: 4 << 20,
        segment_bytes: Some(64 << 10),
        write_heads: 2,
        maintenance: false,
        put_deadline: Duration::ZERO,
        ..Config::default()
    }
}

/// Events of `run/event/source` that only a seal completes.
pub(crate) fn sealed_events() -> Keyspace {
    let mut keyspace = Keyspace::events("test", 1).opening_runs();
    keyspace.run.completeness = forebay_store::core::Completeness::Seal;
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace
}

/// Every run's account balances.
#[track_caller]
pub(crate) fn assert_balanced(store: &Store) {
    for status in store.runs() {
        let ledger = store.ledger(status.run).unwrap();
        assert_eq!(ledger.imbalance(), None, "run {}: {ledger:?}", status.run);
        assert_eq!(ledger.lost, Default::default(), "run {}", status.run);
    }
}

/// Waits until `done`, driving maintenance; panics with `what` after half a minute.
#[track_caller]
pub(crate) fn eventually(store: &Store, what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}: not within 30 s; {:?}", store.stats());
        store.tick();
        std::thread::yield_now();
    }
}
