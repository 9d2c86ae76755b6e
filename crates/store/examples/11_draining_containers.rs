//! The work of a mover: claim a full container, read its events one by one, say that the archive has them:
//! `cargo run -p forebay-store --example 11_draining_containers`.
//!
//! Meanwhile the device writes into other containers. What was proved stays in custody for `custody_min`, here for no time; when
//! the last event of the container is gone, all its space is free at once. `forebay move` is such a mover.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{ClaimRequest, Keyspace, Level, MovedStore};
use forebay_store::{Config, GetAny, PutOptions, Sources, Store, WarmDevice};
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
        custody_min: Duration::ZERO,
        ..Config::default()
    };
    let store = Store::create(&dir.join("store"), &Keyspace::events("events", 1), config)?;
    store.run_open(7, &store.keyspace().run)?;
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

    // The oldest full container first. It is not written to any more, and no other mover gets it. Those that are still being
    // filled wait for more, up to an hour.
    let request = ClaimRequest {
        move_after: Duration::from_secs(3600),
        duration: Duration::from_secs(60),
        ..ClaimRequest::default()
    };
    let mut moved = 0;
    while let Some(claim) = store.claim(&request)? {
        let mut seen = 0;
        loop {
            let page = store.claimed(&claim.token, seen)?;
            if page.is_empty() {
                break;
            }
            seen += page.len() as u64;
            for claimed in page {
                let sources = claimed.sources.map_or(Sources::All, Sources::Only);
                let event = store.get_event(&claimed.primary, &sources)?.ok_or("a claimed event")?;
                for fragment in &event.fragments {
                    // Here a mover writes to the archive; then it reads all of it back and compares.
                    fragment.verify()?;
                    assert_eq!((&**fragment, fragment.level()), (&FRAGMENT[..], Level::Warm));
                }
            }
            store.extend_claim(&claim.token, request.duration)?;
        }
        // Durable before the answer: from here on the store may let the events go.
        let proved = store.prove(&claim.token)?;
        println!("{:?}: {proved} events are in custody", claim.unit);
        moved += proved;
    }
    while store.ledger(7)?.released.events < moved {
        assert!(Instant::now() < deadline, "custody of no time ends at once");
        std::thread::sleep(Duration::from_millis(5));
    }

    // The other events are in containers that are still being filled.
    let ledger = store.ledger(7)?;
    assert_eq!((ledger.released.events, ledger.imbalance()), (moved, None));
    assert!(moved > 0 && moved < EVENTS);
    println!("{moved} events moved, {} wait in containers that are being filled", EVENTS - moved);
    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
