//! The selection: lease any ready event, look, decide: `cargo run -p forebay-store --example 03_get_any_and_verdicts`.
//!
//! A lease is an exclusive right to one event for a limited time, fenced by a token. One verdict ends it.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Keyspace, Kind};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Sources, Store};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-03-{}", std::process::id()));
    let store =
        Store::create(&dir, &Keyspace::events("events", 3), Config { hot_bytes: 16 << 20, ..Config::default() })?;
    store.run_open(1, &store.keyspace().run)?;
    let schema = store.schema();

    // Four events of three sources each: ready with their last fragment.
    for event in 1..=4 {
        for source in 0..3 {
            let value = format!("event {event} source {source}");
            let outcome = store.put(&schema.key(&[1, event, source])?, value.as_bytes(), &PutOptions::default())?;
            assert_eq!(outcome, PutOutcome::Stored);
        }
    }

    // Up to two events, with only source 0 of each read in the same call: a filter rarely needs all sources.
    let request = GetAny { n: 2, sources: Sources::only(schema, [0])?, ..GetAny::default() };
    let leases = store.get_any(&request)?;
    assert_eq!(leases.len(), 2);
    for lease in &leases {
        assert_eq!((lease.fragments.len(), lease.event_fragments), (1, 3));
        println!("leased {} with token {}", schema.text(lease.primary.as_bytes()), lease.token);
    }

    // The first is interesting: read and verify its other sources, accept it into a stream. Reject the second.
    let (first, second) = (&leases[0], &leases[1]);
    for fragment in first.get(&Sources::All)? {
        fragment.verify()?;
    }
    first.accept(&["physics"])?;
    second.reject()?;

    // Repeating a verdict with its token is safe, for instance after an unknown outcome; another verdict is fenced.
    first.accept(&["physics"])?;
    let fenced = first.reject().expect_err("the event is decided");
    assert_eq!(fenced.kind(), Kind::Fenced);

    // A decided event stays closed: later puts are late, and no worker gets the event again.
    let outcome = store.put(&schema.key(&[1, 9, 0])?, b"another event", &PutOptions::default())?;
    assert_eq!(outcome, PutOutcome::Stored);
    let late = store.put(
        &schema.parse_key(&format!("{}/7", schema.text(second.primary.as_bytes())))?,
        b"late",
        &PutOptions::default(),
    )?;
    assert_eq!(late, PutOutcome::Late);

    // A third event is given back, for another worker: four events, two decided, two ready.
    for lease in store.get_any(&GetAny::default())? {
        lease.requeue()?;
    }
    let stats = store.stats();
    assert_eq!(stats.events.ready.events, 2);
    assert_eq!(stats.events.accepted.events, 1);

    let ledger = store.ledger(1)?;
    assert_eq!(ledger.imbalance(), None);
    assert_eq!((ledger.rejected.events, ledger.late.fragments), (1, 1));
    println!("one accepted, one rejected, two ready: the ledger of run 1 balances");

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
