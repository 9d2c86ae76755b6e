//! The life of a run, classes of events, and a link that fails during the run:
//! `cargo run -p forebay-store --example 06_runs_classes_and_masks`.
//!
//! The sources that an event waits for come from its announcement (`open_event`), else from its class, else from its
//! run. A mask removes one source from all three.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Attributes, Keyspace, Kind, LiveState};
use forebay_store::{Config, GetAny, OpenEvent, PutOptions, PutOutcome, SourceState, Sources, Store};
use std::error::Error;
use std::time::Duration;

const KEYSPACE: &str = r#"
    name = "example"
    key = ["run:u32", "event:u64", "source:u32"]
    primary = ["run", "event"]
    attributes = ["class"]
    classes = ["physics", "calib"]
    auto_open_runs = false
    [run]
    sources = ["0..3"]
    complete_within_ms = 3600000
    [run.classes.calib]
    sources = ["3"]
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-06-{}", std::process::id()));
    let keyspace = Keyspace::from_toml(KEYSPACE)?;
    let store = Store::create(&dir, &keyspace, Config { hot_bytes: 16 << 20, ..Config::default() })?;
    let schema = store.schema();
    let put = |event: u64, source: u64, options: &PutOptions<'_>| {
        store.put(&schema.key(&[7, event, source])?, format!("{event}/{source}").as_bytes(), options)
    };
    let state = |event: u64| -> Result<LiveState, Box<dyn Error>> {
        let found = store.get_event(&schema.primary(&[7, event])?, &Sources::None)?;
        Ok(found.ok_or("the event is there")?.state)
    };

    // In this keyspace runs are opened by a call; an unknown run accepts nothing.
    let unknown = put(1, 0, &PutOptions::default()).expect_err("run 7 is not open");
    assert_eq!(unknown.kind(), Kind::Closed);
    store.run_open(7, &keyspace.run)?;
    let mut producer = Some(store.producer(7, "readout-0")?);

    // Event 1 is physics and waits for all four sources; event 2 is a calibration and waits for source 3 only.
    for source in 0..3 {
        assert_eq!(put(1, source, &PutOptions::default())?, PutOutcome::Stored);
    }
    let calib = Attributes::parse(&keyspace.attributes, &["class=calib"])?;
    let of_class = PutOptions { attributes: Some(&calib), ..PutOptions::default() };
    assert_eq!(put(2, 3, &of_class)?, PutOutcome::Stored);
    assert_eq!((state(1)?, state(2)?), (LiveState::Open, LiveState::Ready));

    // The trigger announces event 3 with its own list of sources: it exists before its first fragment.
    let own = [schema.source(&[0])?, schema.source(&[2])?];
    let announced = schema.primary(&[7, 3])?;
    let how = OpenEvent { sources: Some(&own), ..OpenEvent::default() };
    assert_eq!(store.open_event(&announced, &how)?, PutOutcome::Stored);
    assert_eq!(store.open_event(&announced, &how)?, PutOutcome::Duplicate);
    assert_eq!(store.ledger(7)?.awaited, 1);
    for source in [0, 2] {
        assert_eq!(put(3, source, &PutOptions::default())?, PutOutcome::Stored);
    }
    assert_eq!(state(3)?, LiveState::Ready);
    println!("by class, event 2 needs one source; by announcement, event 3 needs two; event 1 waits for source 3");

    // Source 3 has failed. Once it is masked, no event waits for it: event 1 is ready and shows source 3 as masked.
    let dead = schema.source(&[3])?;
    store.mask(7, &dead, None)?;
    assert_eq!(state(1)?, LiveState::Ready);
    let event = store.get_event(&schema.primary(&[7, 1])?, &Sources::None)?.ok_or("event 7/1 is there")?;
    assert_eq!((event.sources.of(&dead), event.missing.len()), (SourceState::Masked, 0));
    let why = store.why(&schema.key(&[7, 1, 3])?)?;
    assert_eq!(why.answer, "masked");
    println!("{}", why.because);

    // After the repair, events from number 100 on wait for it again.
    store.unmask(7, &dead, Some(&schema.primary(&[7, 100])?))?;
    for (event, wanted) in [(99, LiveState::Ready), (100, LiveState::Open)] {
        for source in 0..3 {
            assert_eq!(put(event, source, &PutOptions::default())?, PutOutcome::Stored);
        }
        assert_eq!(state(event)?, wanted);
    }
    println!("event 99 is ready without source 3, event 100 waits for it again");

    // The producer's own counts are an independent check of the store.
    if let Some(producer) = producer.take() {
        producer.announced(1);
        (0..12).for_each(|_| producer.offered(3));
        producer.finish()?;
    }

    // Pause: fragments are accepted, but the waiting time of open events stops. Stop: no new events; without a grace
    // time, open events become ready at once. Then all events can be decided and the run can be closed.
    store.run_pause(7)?;
    store.run_resume(7)?;
    store.run_stop(7)?;
    assert_eq!(state(100)?, LiveState::Ready);
    let refused = put(101, 0, &PutOptions::default()).expect_err("a stopped run takes no new events");
    assert_eq!(refused.kind(), Kind::Closed);
    let early = store.run_close(7).expect_err("events are ready");
    assert_eq!(early.kind(), Kind::Unavailable);
    for lease in store.get_any(&GetAny { n: 10, wait: Duration::from_secs(1), ..GetAny::default() })? {
        lease.reject()?;
    }

    // The summary of a closed run is also a file.
    let summary = store.run_close(7)?;
    assert!(dir.join("runs/run-7.json").exists());
    assert_eq!(summary.ledger.imbalance(), None);
    assert_eq!((summary.ledger.rejected.events, summary.ledger.complete, summary.ledger.incomplete), (5, 4, 1));
    assert_eq!(summary.announced_by_producers, Some(1));
    assert_eq!(summary.producers[0].fragments, 12);
    println!("run 7 is closed: {} events rejected", summary.ledger.rejected.events);
    summary.masks.iter().for_each(|mask| println!("  {mask}"));

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
