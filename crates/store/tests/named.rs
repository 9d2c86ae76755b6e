//! A store whose files do not have their names any more says so: what is put is acknowledged, and gone with the process.

use crate::common::fixture::Fixture;
use crate::common::{TempDir, put, sealed_events, small_config};
use forebay_store::core::{InhibitClass, Kind, ManualClock};
use forebay_store::{Config, Store, WarmDevice};
use std::sync::Arc;
use std::time::Duration;

/// The cause of *store gone*, after the next look; `None` where that is not what holds the trigger.
fn gone(store: &Store, clock: &ManualClock) -> Option<String> {
    clock.advance_ns(1_000_000_000);
    store.tick();
    let inhibit = store.stats().inhibit?;
    assert_eq!((inhibit.class, &*inhibit.owner), (InhibitClass::StoreGone, "operator"), "{inhibit:?}");
    Some(inhibit.cause)
}

#[test]
fn a_directory_that_is_moved_away_holds_the_trigger_until_it_is_back() {
    let fixture = Fixture::new(&sealed_events().opening_runs());
    fixture.stored(1, 0, b"x");
    let (here, elsewhere) = (fixture.path(), fixture.path().with_extension("elsewhere"));
    assert_eq!(gone(&fixture, &fixture.clock), None);
    std::fs::rename(&here, &elsewhere).unwrap();
    let cause = gone(&fixture, &fixture.clock).expect("its files are gone");
    assert!(cause.contains("hot.fb is not there any more"), "{cause}");
    std::fs::rename(&elsewhere, &here).unwrap();
    assert_eq!(gone(&fixture, &fixture.clock), None);
    fixture.close().unwrap();
}

#[test]
fn a_store_that_was_removed_does_not_close_as_if_nothing_were_lost() {
    let fixture = Fixture::new(&sealed_events().opening_runs());
    fixture.stored(1, 0, b"x");
    std::fs::remove_dir_all(fixture.path()).unwrap();
    fixture.stored(1, 1, b"acknowledged into nothing");
    let refused = fixture.close().unwrap_err();
    assert_eq!(refused.kind(), Kind::Corrupt);
    assert!(refused.message().contains("lost with this process"), "{}", refused.message());
}

#[test]
fn another_file_in_the_place_of_one_is_noticed() {
    for file in ["hot.fb", "keyspace.toml"] {
        let fixture = Fixture::new(&sealed_events().opening_runs());
        let (path, bytes) = (fixture.path().join(file), std::fs::read(fixture.path().join(file)).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let cause = gone(&fixture, &fixture.clock).expect("another file");
        assert!(cause.contains(file) && cause.contains("something else is in its place"), "{cause}");
    }
}

#[test]
fn a_device_whose_directory_is_gone_is_named() {
    let (dir, clock) = (TempDir::new(), Arc::new(ManualClock::default()));
    let device = dir.path().join("disk");
    let config = Config {
        clock: clock.clone(),
        container_bytes: 128 << 10,
        device_log_bytes: 256 << 10,
        warm: vec![WarmDevice::directory(&device, 3 << 20)],
        device_stall: Duration::from_secs(5),
        ..small_config()
    };
    let store = Store::create(&dir.store(), &sealed_events().opening_runs(), config).unwrap();
    let _ = put(&store, &crate::common::key(1, 1, 0), b"x").unwrap();
    std::fs::rename(&device, dir.path().join("unmounted")).unwrap();
    std::fs::create_dir(&device).unwrap();
    let cause = gone(&store, &clock).expect("the disk is gone");
    assert!(cause.contains("disk is not what was opened"), "{cause}");
}
