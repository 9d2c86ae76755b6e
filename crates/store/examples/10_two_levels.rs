//! Two levels: memory for urgent data, a device for data that must be safe or is accepted:
//! `cargo run -p forebay-store --example 10_two_levels`.
//!
//! A store with one warm device. One fragment is persisted before its put returns. Accepted events are demoted. After
//! reopening, all data is where it was.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Keyspace, Level, LiveState};
use forebay_store::{Config, GetAny, PutOptions, Sources, Store, WarmDevice};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-10-{}", std::process::id()));

    // One device: a directory, best on an NVMe disk of its own. Its containers are allocated now. Each is written front
    // to back and reclaimed as a whole. Their size is fixed at creation.
    let config = Config {
        hot_bytes: 32 << 20,
        warm: vec![WarmDevice::directory(dir.join("device"), 64 << 20)],
        container_bytes: 4 << 20,
        device_log_bytes: 1 << 20,
        ..Config::default()
    };
    let store = Store::create(&dir.join("store"), &Keyspace::events("events", 2), config)?;
    store.run_open(1, &store.keyspace().run)?;
    let schema = store.schema();

    // Stored: the fragment survives the end of this process. Persisted: it is also on the device and survives a power
    // loss. Concurrent puts share one write and one sync.
    let precious = PutOptions { persisted: true, ..PutOptions::default() };
    let _ = store.put(&schema.key(&[1, 1, 0])?, b"stored", &PutOptions::default())?;
    let _ = store.put(&schema.key(&[1, 1, 1])?, b"stored and persisted", &precious)?;

    // The selection still reads it from the hot level.
    let fragment = store.get(&schema.key(&[1, 1, 1])?)?.ok_or("it was just put")?;
    assert_eq!(fragment.level(), Level::Hot);
    drop(fragment);

    // Twenty more events; half of them are accepted. Accepted events are demoted as a whole, soon after the verdict.
    for event in 2..=21 {
        for source in 0..2 {
            let _ = store.put(&schema.key(&[1, event, source])?, &[event as u8; 10_000], &PutOptions::default())?;
        }
    }
    for lease in store.get_any(&GetAny { n: 21, ..GetAny::default() })? {
        let event = schema.values(lease.primary.as_bytes())[1];
        if event % 2 == 0 { lease.accept(&["physics"])? } else { lease.requeue()? }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while store.warm_stats().ok_or("a warm level")?.demoted_events < 10 {
        assert!(Instant::now() < deadline, "ten events go down in less than ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
    let warm = store.warm_stats().ok_or("a warm level")?;
    println!(
        "{} events with {} bytes went down, written by {}, {} bytes in all",
        warm.demoted_events, warm.demoted_bytes, warm.devices[0].method, warm.devices[0].written_bytes
    );
    store.close()?;
    drop(store);

    // Opening needs only the store's directory, which lists the devices.
    let store = Store::open(&dir.join("store"), Config::default())?;
    let schema = store.schema();
    for event in 1..=21 {
        let primary = schema.primary(&[1, event])?;
        let found = store.get_event(&primary, &Sources::All)?.ok_or("every event is there")?;
        let (state, level) =
            if event % 2 == 0 { (LiveState::Accepted, Level::Warm) } else { (LiveState::Ready, Level::Hot) };
        assert_eq!(found.state, state);
        for fragment in &found.fragments {
            fragment.verify()?;
            assert_eq!(fragment.level(), level);
        }
    }

    // `get_any` can choose the level, for instance for a second farm that works on the backlog.
    let from_warm = GetAny { n: 100, level: Some(Level::Warm), ..GetAny::default() };
    assert!(store.get_any(&from_warm)?.is_empty(), "events on that level alone have been decided");

    // Release the archived events; the container is reclaimed when its last event is gone.
    for event in (2..=20).step_by(2) {
        assert!(store.release(&schema.primary(&[1, event])?)?);
    }
    let ledger = store.ledger(1)?;
    assert_eq!((ledger.released.events, ledger.imbalance()), (10, None));
    println!("ten released, {} ready; the ledger balances over both levels", ledger.live.ready.events);
    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
