//! A selection in two stages, with streams for accepted events:
//! `cargo run -p forebay-store --example 07_stages_and_streams`.
//!
//! The `fast` stage reads a few sources, a region of interest, and passes interesting events. The `final` stage reads
//! all sources and accepts into streams, each with the sources that it keeps.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Keyspace, Kind, Prescale};
use forebay_store::{Accept, Config, GetAny, PutOptions, PutOutcome, ResultFragment, Sources, Store};
use std::error::Error;

const EVENTS: u64 = 1000;
const KEYSPACE: &str = r#"
    name = "example"
    key = ["run:u32", "event:u64", "source:u32"]
    primary = ["run", "event"]
    stages = ["fast", "final"]
    streams = ["physics", "calibration"]
    [[groups]]
    name = "muon"
    sources = ["0..1"]
    [[groups]]
    name = "calorimeter"
    sources = ["2..7"]
    [run]
    sources = ["0..7"]
    complete_within_ms = 3600000
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-07-{}", std::process::id()));
    let keyspace = Keyspace::from_toml(KEYSPACE)?;
    let store = Store::create(&dir, &keyspace, Config { hot_bytes: 64 << 20, ..Config::default() })?;
    store.run_open(1, &store.keyspace().run)?;
    let schema = store.schema();
    for event in 0..EVENTS {
        for source in 0..8 {
            let outcome = store.put(&schema.key(&[1, event, source])?, &[event as u8; 100], &PutOptions::default())?;
            assert_eq!(outcome, PutOutcome::Stored);
        }
    }

    // Stage `fast`: only the muon sources come with the lease; others are read when needed. The stage adds
    // its result as a fragment with a new source.
    let fast_result = schema.source(&[1000])?;
    let fast = GetAny {
        n: 64,
        stage: Some("fast".to_owned()),
        sources: Sources::group(&keyspace, "muon")?,
        ..GetAny::default()
    };
    let mut passed = 0;
    loop {
        let leases = store.get_any(&fast)?;
        if leases.is_empty() {
            break;
        }
        for lease in leases {
            assert_eq!((lease.fragments.len(), lease.event_fragments), (2, 8));
            let interesting = schema.values(lease.primary.as_bytes())[1] % 10 == 0;
            if interesting {
                assert_eq!(lease.get(&Sources::group(&keyspace, "calorimeter")?)?.len(), 6);
                lease.pass("final", &[ResultFragment::new(&fast_result, b"a muon")])?;
                passed += 1;
            } else {
                lease.reject()?;
            }
        }
    }
    println!("fast: {passed} of {EVENTS} events passed");

    // A prescale keeps a share of events by a hash of their keys: every worker and every replay keeps the same events.
    let calibration = Prescale::new("calibration", 4.0)?;

    // Stage `final`: its results go to every stream. Physics keeps everything, calibration only the calorimeter.
    let final_result = schema.source(&[1001])?;
    let results = [ResultFragment::new(&final_result, b"accepted")];
    let last = GetAny { n: 64, stage: Some("final".to_owned()), ..GetAny::default() };
    let (mut accepted, mut calibrations) = (Vec::new(), 0);
    loop {
        let leases = store.get_any(&last)?;
        if leases.is_empty() {
            break;
        }
        for lease in leases {
            assert_eq!((lease.fragments.len(), lease.delivery), (9, 1));
            let mut streams = vec![("physics", Sources::All)];
            if calibration.keeps(&lease.primary) {
                streams.push(("calibration", Sources::group(&keyspace, "calorimeter")?));
                calibrations += 1;
            }
            lease.accept_into(&Accept { streams: &streams, results: &results })?;
            // A repeat gets the recorded answer; the results are not added twice.
            lease.accept_into(&Accept { streams: &streams, results: &results })?;
            let back = lease.pass("final", &[]).expect_err("the event is decided");
            assert_eq!(back.kind(), Kind::Fenced);
            accepted.push(lease.primary);
        }
    }
    assert_eq!((passed, accepted.len()), (100, 100));
    assert!((1..100).contains(&calibrations));
    println!("final: {} accepted, {calibrations} of them also into `calibration`", accepted.len());

    // The archive asks which sources each stream keeps, copies them, and releases the event: its space is free.
    for primary in &accepted {
        let event = store.get_event(primary, &Sources::All)?.ok_or("an accepted event is there")?;
        assert_eq!(event.fragments.len(), 10);
        for (stream, sources) in store.outputs(primary)?.ok_or("an accepted event has outputs")? {
            match (&stream[..], sources) {
                ("physics", Sources::All) => {}
                ("calibration", Sources::Only(kept)) => assert_eq!(kept.len(), 6 + 1),
                other => return Err(format!("unexpected: {other:?}").into()),
            }
        }
        assert!(store.release(primary)?);
    }
    let ledger = store.ledger(1)?;
    assert_eq!(ledger.imbalance(), None);
    assert_eq!((ledger.rejected.events, ledger.released.events), (900, 100));
    assert_eq!(ledger.released.fragments, 100 * 10);
    println!("900 events rejected, 100 released with 2 results each: the ledger balances");

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
