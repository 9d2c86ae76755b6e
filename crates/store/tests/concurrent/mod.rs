//! Several threads on the same keys and events: who wins is open, but there is one winner, and nobody sees half of
//! anything. Modest sizes: these tests also run under ThreadSanitizer, which makes them ten times slower.

mod races;
mod reading;
mod stages;

use crate::common::fixture::RUN;
use crate::common::{TempDir, genuine, key, payload, put, small_config};
use forebay_store::core::{Completeness, Keyspace, Primary};
use forebay_store::{Config, Fragment, PutOutcome, Store};
use std::sync::Barrier;
use std::time::Duration;

const THREADS: u64 = 4;
const BYTES_MAX: usize = 3000;

fn count(fragments: u32) -> Keyspace {
    let mut keyspace = Keyspace::events("concurrent", fragments).opening_runs();
    keyspace.run.completeness = Completeness::Count(fragments);
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.deliveries_max = 15;
    keyspace
}

/// A store with its own thread and the machine's clock, on a region that is soon full.
fn open(keyspace: &Keyspace) -> (TempDir, Store) {
    let dir = TempDir::new();
    let config = Config {
        maintenance: true,
        write_heads: 4,
        put_deadline: Duration::from_secs(60),
        lease: Duration::from_secs(3600),
        max_hold: Duration::from_secs(7200),
        ..small_config()
    };
    let store = Store::create(&dir.store(), keyspace, config).unwrap();
    store.run_open(RUN, &keyspace.run).unwrap();
    (dir, store)
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

fn number(store: &Store, primary: &Primary) -> u64 {
    store.schema().values(primary.as_bytes())[1]
}

fn put_tagged(store: &Store, event: u64, source: u64, tag: u64) -> PutOutcome {
    let key = key(RUN, event, source);
    put(store, &key, &payload(&key, tag, BYTES_MAX)).unwrap()
}

/// Runs `work(thread)` on all threads at once and collects what they return.
fn together<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        let (barrier, work) = (&barrier, &work);
        let start = |thread| {
            scope.spawn(move || {
                barrier.wait();
                work(thread)
            })
        };
        let running: Vec<_> = (0..THREADS).map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Puts what must be stored.
fn feed(store: &Store, event: u64, source: u64, tag: u64) {
    assert_eq!(put_tagged(store, event, source, tag), PutOutcome::Stored, "{event}/{source}");
}

/// The fragment's bytes are whole, and those of its key.
fn check(fragment: &Fragment) {
    genuine(fragment, BYTES_MAX);
}
