//! Events and when they are complete: `cargo run -p forebay-store --example 02_events_and_completeness`.
//!
//! All fragments with the same run/event are one event. It is *open* until it has all sources of its run, is sealed, or
//! `complete_within` is over; then it is *ready* for the selection, and never open again.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{AttributeSchema, Attributes, Completeness, Keyspace, LiveState, RunConfig};
use forebay_store::{Config, PutOptions, PutOutcome, Sources, Store};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-02-{}", std::process::id()));
    let mut keyspace = Keyspace::events("events", 1);
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "class"], &["physics", "calib"])?;
    let store = Store::create(&dir, &keyspace, Config { hot_bytes: 16 << 20, ..Config::default() })?;
    let schema = store.schema();

    // Run 7: every event must have sources 0, 1 and 2. There is always a time limit; here it is long.
    let completeness = Completeness::first_sources(schema, 3)?;
    store.run_open(7, &RunConfig::new(completeness, Duration::from_secs(3600)))?;

    // Two of three have arrived, the first with attributes of the event: it is open and names what is missing.
    let attributes = Attributes::parse(&keyspace.attributes, &["lumi=12", "class=physics"])?;
    let with_attributes = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
    assert_eq!(store.put(&schema.key(&[7, 1, 0])?, b"first", &with_attributes)?, PutOutcome::Stored);
    assert_eq!(store.put(&schema.key(&[7, 1, 2])?, b"third", &PutOptions::default())?, PutOutcome::Stored);
    let primary = schema.primary(&[7, 1])?;
    let event = store.get_event(&primary, &Sources::All)?.ok_or("event 7/1 is there")?;
    assert_eq!((event.state, event.fragments.len()), (LiveState::Open, 2));
    assert_eq!(event.missing, [schema.key(&[7, 1, 1])?]);
    println!("event 7/1 is {} and waits for source 1", event.state.name());

    // A fragment without bytes is valid and counts: the source reported that it has no data.
    assert_eq!(store.put(&schema.key(&[7, 1, 1])?, b"", &PutOptions::default())?, PutOutcome::Stored);
    let event = store.get_event(&primary, &Sources::None)?.ok_or("event 7/1 is there")?;
    assert_eq!(event.state, LiveState::Ready);
    println!("event 7/1 is {}: {:?}", event.state.name(), event.attributes.text(&keyspace.attributes));

    // An event that gets no more fragments: sealing makes it ready with those it has.
    assert_eq!(store.put(&schema.key(&[7, 2, 0])?, b"alone", &PutOptions::default())?, PutOutcome::Stored);
    assert!(store.seal(&schema.primary(&[7, 2])?)?);
    let event = store.get_event(&schema.primary(&[7, 2])?, &Sources::None)?.ok_or("event 7/2 is there")?;
    assert_eq!(event.state, LiveState::Ready);

    // The run's account always balances and shows the state of all data.
    let ledger = store.ledger(7)?;
    assert_eq!(ledger.imbalance(), None);
    assert_eq!((ledger.stored.fragments, ledger.live.ready.events), (4, 2));
    println!("run 7: {} fragments stored in 2 ready events", ledger.stored.fragments);

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
