//! `close`, then `open`: the lock is let go for certain, and opening waits a moment for it.

use crate::close::stall::two_levels;
use crate::close::stored;
use crate::common::{TempDir, key, put, refused, sealed_events, small_config};
use forebay_store::core::Kind;
use forebay_store::{Config, LedgerBy, PutOptions, Store, WarmDevice, check};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Events of empty fragments have no bytes under way, so closing did not wait for them; their pins were never
/// let go, and the lock lasted as long as any thread had the engine.
#[test]
fn a_close_beside_empty_fragments_on_their_way_lets_go() {
    let dir = TempDir::new();
    let (device, config) = two_levels(Duration::from_millis(50));
    let store = Store::create(&dir.store(), &sealed_events(), config.clone()).unwrap();
    for event in 0..4 {
        stored(put(&store, &key(1, event, 0), &[]));
        store.seal(&store.schema().primary(&[1, event]).unwrap()).unwrap();
        store.lease(&store.schema().primary(&[1, event]).unwrap(), None).unwrap().unwrap().accept(&["main"]).unwrap();
    }
    device.stall(Duration::from_millis(30));
    store.tick();
    store.close().unwrap();
    // The handle is still there: what let the lock go was the close.
    let next = Store::open(&dir.store(), config).unwrap();
    assert_eq!(next.get(&key(1, 3, 0)).unwrap().unwrap().len(), 0);
    drop(store);
}

/// A child that another thread forks shares the lock's descriptor until it executes its program.
#[test]
fn forks_in_other_threads_do_not_keep_the_lock() {
    let dir = TempDir::new();
    Store::create(&dir.store(), &sealed_events(), small_config()).unwrap().close().unwrap();
    let other = Config { accept_loss: true, ..small_config() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::process::Command::new("true").status().unwrap();
                }
            });
        }
        let _stops = Stops(&over);
        let begun = Instant::now();
        for round in 0..100 {
            if begun.elapsed() > Duration::from_secs(8) {
                break;
            }
            // Each way in which a region is let go: a look at it, an opening that fails, and a close.
            check(&dir.store(), false).unwrap();
            refused(
                Store::open(&dir.store(), Config { demote_low: 2.0, hot_low: 3.0, ..other.clone() }),
                Kind::Invalid,
            );
            let store =
                Store::open(&dir.store(), other.clone()).unwrap_or_else(|error| panic!("round {round}: {error}"));
            store.close().unwrap();
        }
    });
}

/// The other threads end also where this one panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn opening_waits_a_moment_for_the_last_guard() {
    let begun = Instant::now();
    // On a busy machine the guard may be dropped after that moment.
    while !opens_beside_a_guard() {
        assert!(begun.elapsed() < Duration::from_secs(60), "opening does not wait");
    }
}

/// Opens a closed store whose last guard is dropped soon after; whether the opening succeeds.
fn opens_beside_a_guard() -> bool {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
    stored(put(&store, &key(1, 1, 0), b"bytes"));
    let guard = store.get(&key(1, 1, 0)).unwrap().unwrap();
    store.close().unwrap();
    let opens = &Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            opens.wait();
            std::thread::sleep(Duration::from_millis(40));
            drop(guard);
        });
        opens.wait();
        let from = Instant::now();
        match Store::open(&dir.store(), small_config()) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unavailable, "{error}");
                assert!(from.elapsed() >= Duration::from_millis(250), "opening does not wait");
                false
            }
        }
    })
}

/// Refused within well under a second while a guard stays, and told why by who closed.
#[test]
fn what_keeps_a_closed_store_is_named() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
    stored(put(&store, &key(1, 1, 0), b"bytes"));
    let guard = store.named("display").get(&key(1, 1, 0)).unwrap().unwrap();
    let reservation = store.named("readout").reserve(&key(1, 2, 0), 100, &PutOptions::default()).unwrap();
    let begun = Instant::now();
    store.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "guards and reservations are not waited for");
    let kept = store.kept();
    assert_eq!(kept.calls, 0, "{kept}");
    let words = kept.to_string();
    for part in ["1 guards and 0 reservations of `display`", "0 guards and 1 reservations of `readout`"] {
        assert!(words.contains(part), "{part} in {words}");
    }
    let begun = Instant::now();
    let message = refused(Store::open(&dir.store(), small_config()), Kind::Unavailable);
    assert!(message.contains("open already"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    // A second close answers as the first did.
    store.close().unwrap();
    drop(guard);
    refused(Store::open(&dir.store(), small_config()), Kind::Unavailable);
    refused(reservation.commit(), Kind::Closed);
    assert!(store.kept().is_empty(), "{}", store.kept());
    let next = Store::open(&dir.store(), small_config()).unwrap();
    assert!(next.get(&key(1, 2, 0)).unwrap().is_none());
}

/// Handles, and what hangs on them, may outlive the close.
#[test]
fn a_store_over_directories_opens_again_beside_handles_of_the_closed_one() {
    let dir = TempDir::new();
    let config = Config {
        warm: (0..2).map(|at| WarmDevice::directory(dir.path().join(format!("warm-{at}")), 5 << 20)).collect(),
        container_bytes: 256 << 10,
        device_log_bytes: 256 << 10,
        ..small_config()
    };
    let mut handles = vec![Store::create(&dir.store(), &sealed_events(), config.clone()).unwrap()];
    for event in 0..4 {
        let store = handles.last().unwrap();
        let options = PutOptions { persisted: true, ..PutOptions::default() };
        stored(store.put(&key(1, event, 0), &[event as u8; 3000], &options));
        store.close().unwrap();
        handles.push(Store::open(&dir.store(), config.clone()).unwrap());
    }
    let store = handles.last().unwrap();
    (0..4).for_each(|event| assert_eq!(store.get(&key(1, event, 0)).unwrap().unwrap().len(), 3000));
    // Two lives at a time never have a device.
    let message = refused(Store::open(&dir.store(), config), Kind::Unavailable);
    assert!(message.contains("open already"), "{message}");
}

/// What walks over a closed store reads nothing of it: another life may have the region.
#[test]
fn accounts_and_updates_of_a_closed_store_are_refused() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
    stored(put(&store, &key(1, 1, 0), b"bytes"));
    store.close().unwrap();
    let _next = Store::open(&dir.store(), small_config()).unwrap();
    for by in [LedgerBy::Stream, LedgerBy::Source] {
        refused(store.ledger_by(1, by), Kind::Closed);
    }
    refused(store.update(&key(1, 1, 0), b"bytes", None), Kind::Closed);
}
