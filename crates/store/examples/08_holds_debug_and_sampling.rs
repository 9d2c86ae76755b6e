//! Holds, the debug stream, and samples:
//! `cargo run -p forebay-store --example 08_holds_debug_and_sampling`.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Attributes, Keyspace};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Sampling, Store};
use std::error::Error;
use std::time::Duration;

const KEYSPACE: &str = r#"
    name = "example"
    key = ["run:u32", "event:u64", "source:u32"]
    primary = ["run", "event"]
    attributes = ["lumi:u32"]
    ledger_by = "lumi"
    deliveries_max = 2
    [run]
    count = 1
    complete_within_ms = 3600000
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-08-{}", std::process::id()));
    let keyspace = Keyspace::from_toml(KEYSPACE)?;
    let store = Store::create(&dir, &keyspace, Config { hot_bytes: 16 << 20, ..Config::default() })?;
    store.run_open(1, &store.keyspace().run)?;
    let schema = store.schema();

    // Ten lumi sections of ten events each.
    for event in 0..100_u64 {
        let attributes = Attributes::parse(&keyspace.attributes, &[format!("lumi={}", event / 10)])?;
        let options = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
        assert_eq!(store.put(&schema.key(&[1, event, 0])?, &[event as u8; 64], &options)?, PutOutcome::Stored);
    }

    // A monitor gets copies of live events at its own rate: it leases nothing and delays nothing.
    let mut monitor = store.sampler(&Sampling { rate_hz: 1000.0, ..Sampling::default() })?;
    let seen = monitor.next(Duration::from_secs(1))?.ok_or("there are events to see")?;
    assert_eq!((&*seen.state, seen.fragments.len()), ("ready", 1));
    println!("a monitor sees {} ({})", schema.text(seen.primary.as_bytes()), seen.state);

    // Sections 5 to 9 wait for their calibration: workers only get the others.
    let hold = store.hold(Some(1), &["lumi=5..9"])?;
    let mut taken = 0;
    loop {
        let leases = store.get_any(&GetAny { n: 16, ..GetAny::default() })?;
        if leases.is_empty() {
            break;
        }
        for lease in leases {
            assert!(lease.attributes.get(0).is_some_and(|lumi| lumi < 5));
            lease.reject()?;
            taken += 1;
        }
    }
    assert_eq!((taken, store.stats().held), (50, 50));
    println!("{} events are held back: {:?}", store.stats().held, store.holds());

    // Another monitor sees events as they are decided, rejected ones too.
    let decided = Sampling { decided: true, rate_hz: 1000.0, ..Sampling::default() };
    let mut decisions = store.sampler(&decided)?;
    let watching = std::thread::spawn(move || decisions.next(Duration::from_secs(10)));

    // The calibration is ready. Workers die on one event: after two deliveries (`deliveries_max`) it goes to the debug
    // stream instead of to a third worker.
    assert!(store.release_hold(hold)?);
    let poison = schema.primary(&[1, 77])?;
    for _ in 0..2 {
        let lease = loop {
            match store.lease(&poison, Some(Duration::from_millis(1)))? {
                Some(lease) => break lease,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        println!("delivery {} of {}: the worker goes silent", lease.delivery, schema.text(poison.as_bytes()));
    }
    while store.stats().debug.tally.events == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let failed = store.debug_events();
    assert_eq!((failed[0].primary, &*failed[0].reason, failed[0].deliveries), (poison, "worker silent", 2));
    println!("{}", store.stats().debug.alarm.ok_or("the debug stream is an alarm")?);

    // After the workers are repaired, the event is replayed with its delivery count reset.
    assert!(store.replay(&poison)?);
    let lease = store.lease(&poison, None)?.ok_or("the event is ready again")?;
    assert_eq!(lease.delivery, 1);
    while !watching.is_finished() {
        // A decided event is sampled only if a monitor waits at that moment.
        for lease in store.get_any(&GetAny::default())? {
            lease.reject()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    lease.accept(&["physics"])?;
    let seen = watching.join().map_err(|_| "the monitor ended badly")??.ok_or("a decision was seen")?;
    assert_eq!(seen.state, "rejected");
    println!("a monitor saw {} being {}", schema.text(seen.primary.as_bytes()), seen.state);

    // The account of the run by lumi section.
    let ledger = store.ledger(1)?;
    assert_eq!(ledger.imbalance(), None);
    let rows = store.ledger_by(1, forebay_store::LedgerBy::Attribute)?;
    assert_eq!((rows.len(), rows[0].rejected.events), (10, 10));
    println!("section {}: {} events rejected", rows[0].name, rows[0].rejected.events);

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
