//! `close` while a device stalls, and a second `close` beside the first.

use crate::close::{open_when_free, stored};
use crate::common::{TempDir, key, put, sealed_events, small_config};
use forebay_store::{Config, PutOptions, Store, WarmDevice};
use forebay_testkit::media::{FaultyDevice, SimDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A store over one device that a test may stall.
pub(crate) fn two_levels(stall: Duration) -> (Arc<FaultyDevice>, Config) {
    let device = FaultyDevice::new(SimDevice::new("warm", 16 << 20));
    let config = Config {
        warm: vec![WarmDevice::device(device.clone(), 5 << 20)],
        container_bytes: 256 << 10,
        device_log_bytes: 256 << 10,
        device_stall: stall,
        persist_delay: Duration::ZERO,
        ..small_config()
    };
    (device, config)
}

const STALL: Duration = Duration::from_millis(40);
/// Half of how long the device stalls: seven stalls for what is under way, one for each step after that, seven for the log,
/// and a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn close_while_a_device_stalls_is_bounded_and_a_second_close_waits_for_it() {
    let dir = TempDir::new();
    let (device, config) = two_levels(STALL);
    let store = Store::create(&dir.store(), &sealed_events(), config.clone()).unwrap();
    for event in 0..20 {
        stored(put(&store, &key(1, event, 0), &[event as u8; 5000]));
        let primary = store.schema().primary(&[1, event]).unwrap();
        store.seal(&primary).unwrap();
        store.lease(&primary, None).unwrap().unwrap().accept(&["main"]).unwrap();
    }
    device.stall(Duration::from_secs(60));
    let ended = AtomicU32::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        // Something is on its way, and a call waits for the device.
        scope.spawn(|| store.tick());
        let persists = scope.spawn(|| {
            let options = PutOptions { persisted: true, ..PutOptions::default() };
            store.put(&key(1, 100, 0), &[7; 5000], &options)
        });
        let is_stored = || store.get(&key(1, 100, 0)).unwrap().is_some();
        // Where it has been given up already, nobody waits any more.
        while !is_stored() || device.waiting() == 0 && !persists.is_finished() {
            assert!(begun.elapsed() < LIMIT, "nothing waits for the device");
            std::thread::yield_now();
        }
        let closing: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let answer = store.close();
                    // Whichever of them returns: the first has finished, and lets the lock go.
                    if ended.fetch_add(1, Ordering::SeqCst) == 0 {
                        device.stall(Duration::ZERO);
                        drop(open_when_free(|| Store::open(&dir.store(), config.clone())));
                    }
                    answer.map_err(|error| error.to_string())
                })
            })
            .collect();
        let answers: Vec<_> = closing.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert!(persists.join().unwrap().is_err(), "the device did not take it");
    });
    assert!(store.kept().is_empty(), "{}", store.kept());
    let next = Store::open(&dir.store(), config).unwrap();
    for event in 0..20 {
        assert_eq!(next.get(&key(1, event, 0)).unwrap().unwrap().to_vec(), [event as u8; 5000]);
    }
    // Stored, though not persisted.
    assert_eq!(next.get(&key(1, 100, 0)).unwrap().unwrap().len(), 5000);
}

#[test]
fn a_close_alone_beside_a_stalled_device_is_bounded() {
    let dir = TempDir::new();
    let (device, config) = two_levels(STALL);
    let store = Store::create(&dir.store(), &sealed_events(), config.clone()).unwrap();
    stored(put(&store, &key(1, 1, 0), &[1; 5000]));
    device.stall(Duration::from_secs(60));
    let begun = Instant::now();
    store.close().unwrap();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    device.stall(Duration::ZERO);
    let next = Store::open(&dir.store(), config).unwrap();
    assert_eq!(next.get(&key(1, 1, 0)).unwrap().unwrap().len(), 5000);
}
