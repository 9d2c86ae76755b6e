//! A store with its threads, in a time that only the test moves: leases, deadlines and pauses are over when it says so.

use crate::common::{TempDir, key, refused, small_config};
use forebay_store::core::{Keyspace, Kind, ManualTime};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Sampling, Store};
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
/// Long enough for whatever goes by the machine's time to show.
const REAL: Duration = Duration::from_millis(60);

fn store() -> (TempDir, Store, Arc<ManualTime>) {
    let (dir, time) = (TempDir::new(), Arc::new(ManualTime::default()));
    let mut keyspace = Keyspace::events("manual", 1).opening_runs();
    keyspace.run.complete_within = 24 * HOUR;
    // Each of them is shorter than the test really lasts.
    let short = Duration::from_millis(1);
    let config = Config { clock: time.clone(), lease: short, put_deadline: short, maintenance: true, ..small_config() };
    let store = Store::create(&dir.store(), &keyspace, config).unwrap();
    (dir, store, time)
}

/// Waits for what a thread of the store does, which runs in real time once its pause is over.
#[track_caller]
fn until(what: &str, is: impl Fn() -> bool) {
    let from = Instant::now();
    while !is() {
        assert!(from.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a thread answers that waits for an hour: not before the time is moved.
#[track_caller]
fn once_moved<T>(waiting: ScopedJoinHandle<'_, T>, time: &ManualTime) -> T {
    std::thread::sleep(REAL);
    assert!(!waiting.is_finished(), "it waits for an hour of a time that does not move");
    time.advance(HOUR * 2);
    until("the wait ends", || waiting.is_finished());
    waiting.join().unwrap()
}

#[test]
fn a_lease_ends_when_the_time_is_moved() {
    let (_dir, store, time) = store();
    assert_eq!(store.put(&key(1, 1, 0), b"x", &PutOptions::default()).unwrap(), PutOutcome::Stored);
    let lease = store.get_any(&GetAny::default()).unwrap().remove(0);
    std::thread::sleep(REAL);
    // It outlived its millisecond sixty times over, by the machine's time.
    lease.extend(Duration::from_millis(1)).unwrap();
    time.advance(Duration::from_millis(10));
    until("the lease ends", || store.stats().leases == 0);
    refused(lease.reject(), Kind::Fenced);
    assert_eq!(store.get_any(&GetAny::default()).unwrap()[0].delivery, 2);
}

#[test]
fn a_put_without_space_waits_in_the_stores_time() {
    let (_dir, store, time) = store();
    let value = [7; 16 << 10];
    let mut event = 0;
    while store.try_put(&key(1, event, 0), &value, &PutOptions::default(), None).unwrap().is_some() {
        event += 1;
    }
    let options = PutOptions { deadline: Some(HOUR), ..PutOptions::default() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.put(&key(1, event, 0), &value, &options));
        refused(once_moved(waiting, &time), Kind::Full);
        // Space is no matter of time: it ends the wait of the next one, while the time stands still.
        let waiting = scope.spawn(|| store.put(&key(1, event, 0), &value, &options));
        for event in 0..event {
            assert!(store.remove_event(&store.schema().primary(&[1, event]).unwrap()).unwrap());
        }
        assert_eq!(waiting.join().unwrap().unwrap(), PutOutcome::Stored);
    });
}

#[test]
fn who_waits_for_something_to_happen_gives_up_when_the_time_is_moved() {
    let (_dir, store, time) = store();
    let wait = GetAny { wait: HOUR, ..GetAny::default() };
    std::thread::scope(|scope| {
        let ready = scope.spawn(|| store.get_any(&wait).unwrap().len());
        assert_eq!(once_moved(ready, &time), 0, "a worker");
        let mut watch = store.watch_inhibit();
        let inhibit = scope.spawn(move || watch.wait_change(HOUR).is_none());
        assert!(once_moved(inhibit, &time), "a trigger");
        store.run_open(7, &store.keyspace().run).unwrap();
        let mut watch = store.watch(7).unwrap();
        assert!(watch.next(HOUR).is_some(), "the first look");
        let changed = scope.spawn(move || watch.next(HOUR).is_none());
        assert!(once_moved(changed, &time), "a run's follower");
        for decided in [false, true] {
            let sampling = Sampling { decided, rate_hz: 1.0, ..Sampling::default() };
            let mut sampler = store.sampler(&sampling).unwrap();
            let sample = scope.spawn(move || sampler.next(HOUR).unwrap().is_none());
            assert!(once_moved(sample, &time), "a monitor, decided: {decided}");
        }
    });
}
