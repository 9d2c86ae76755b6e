//! The work of a mover: drain a full container of an accepted stream, read its events one by one, and release them:
//! `cargo run -p forebay-store --example 11_draining_containers`.
//!
//! Meanwhile the device writes into other containers. When the last event of the container is gone, all its space is
//! free at once.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Keyspace, Kind, Level};
use forebay_store::{Config, GetAny, PutOptions, Store, WarmDevice};
use std::error::Error;
use std::time::{Duration, Instant};

const EVENTS: u64 = 400;
static FRAGMENT: [u8; 20_000] = [0x5A; 20_000];

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-11-{}", std::process::id()));
    let config = Config {
        hot_bytes: 32 << 20,
        warm: vec![WarmDevice::directory(dir.join("device"), 32 << 20)],
        container_bytes: 2 << 20,
        device_log_bytes: 1 << 20,
        ..Config::default()
    };
    let store = Store::create(&dir.join("store"), &Keyspace::events("events", 1), config)?;
    let schema = store.schema();

    // Eight megabytes of accepted events: four containers, one after the other, each of one run and one stream.
    for event in 0..EVENTS {
        let _ = store.put(&schema.key(&[7, event, 0])?, &FRAGMENT, &PutOptions::default())?;
    }
    for lease in store.get_any(&GetAny { n: EVENTS as usize, ..GetAny::default() })? {
        lease.accept(&["physics"])?;
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let full = || store.containers().iter().any(|container| container.state == "full");
    while store.warm_stats().ok_or("a warm level")?.demoted_events < EVENTS || !full() {
        assert!(Instant::now() < deadline, "{EVENTS} events go down in less than ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
    for container in store.containers().iter().filter(|container| container.state != "empty") {
        println!(
            "container {} is {}: {} fragments of run {:?} in stream {}",
            container.container, container.state, container.live_fragments, container.run, container.stream
        );
    }

    // An unknown stream is an error, not an empty answer.
    let unknown = store.drain("calibration").err().ok_or("no such stream")?;
    assert_eq!(unknown.kind(), Kind::Invalid);

    // The oldest full container first. It is not written to any more, and no other caller drains it.
    let mut moved = 0;
    while let Some(mut drain) = store.drain("physics")? {
        let mut of_container = 0;
        while let Some(event) = drain.next_event()? {
            for fragment in &event.fragments {
                // Here a mover writes to the archive, reads back and compares; then it releases.
                fragment.verify()?;
                assert_eq!((&**fragment, fragment.level()), (&FRAGMENT[..], Level::Warm));
            }
            let primary = event.primary;
            // Drop the guards first: space under a guard is not reused.
            drop(event);
            assert!(store.release(&primary)?);
            of_container += 1;
        }
        let number = drain.container();
        drop(drain);
        let state = store.containers()[number as usize].state.clone();
        println!("container {number}: {of_container} events moved, now {state}");
        assert_eq!(state, "empty");
        moved += of_container;
    }

    // The other events are in containers that are still filling: they are drained once they are full or closed.
    let ledger = store.ledger(7)?;
    assert_eq!((ledger.released.events, ledger.imbalance()), (moved, None));
    assert!(moved > 0 && moved < EVENTS);
    println!("{moved} events moved, {} wait in containers that are being filled", EVENTS - moved);
    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
