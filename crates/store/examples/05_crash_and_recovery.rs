//! A process dies during its work; no acknowledged data is lost:
//! `cargo run -p forebay-store --example 05_crash_and_recovery`.
//!
//! The example starts itself as a child process. The child puts, decides and leases, prints what was acknowledged, and
//! aborts without closing the store. The parent then opens the store and checks every promise.
#![expect(clippy::print_stdout, reason = "the example prints for its reader, its child for the example")]

use forebay_store::core::{Bounds, Keyspace, Kind, LiveState, Token};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Sources, Store};
use std::error::Error;
use std::path::Path;
use std::process::Command;

const EVENTS: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(dir) = std::env::args_os().nth(1) {
        return child(Path::new(&dir));
    }
    let dir = std::env::temp_dir().join(format!("forebay-example-05-{}", std::process::id()));
    let child = Command::new(std::env::current_exe()?).arg(&dir).output()?;
    assert!(!child.status.success(), "the child aborts");
    let said = String::from_utf8(child.stdout)?;
    let after =
        |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    println!("the child ended with {}; it had been told:\n{said}", child.status);

    // Opening reads the decisions first, then every entry of the open segments.
    let store = Store::open(&dir, Config::default())?;
    let schema = store.schema();

    // Every acknowledged fragment is there with its bytes, except those of the rejected event.
    let mut fragments = 0;
    for fragment in store.range(&Bounds::all(schema)) {
        let fragment = fragment?;
        fragment.verify()?;
        assert_eq!(&*fragment, schema.text(fragment.key().as_bytes()).as_bytes());
        fragments += 1;
    }
    assert_eq!(fragments, EVENTS - 1);

    // The verdicts are in force: the accepted event is accepted, the rejected one stays closed.
    let accepted = schema.parse_primary(&after("accepted"))?;
    let event = store.get_event(&accepted, &Sources::None)?.ok_or("the accepted event is there")?;
    assert_eq!(event.state, LiveState::Accepted);
    let rejected = format!("{}/0", after("rejected"));
    assert_eq!(
        store.put(&schema.parse_key(&rejected)?, rejected.as_bytes(), &PutOptions::default())?,
        PutOutcome::Late
    );

    // The lease ended with its process: the event is ready again, and the old token is rejected.
    let leased = schema.parse_primary(&after("leased"))?;
    let event = store.get_event(&leased, &Sources::None)?.ok_or("the leased event is there")?;
    assert_eq!(event.state, LiveState::Ready);
    let old: Token = after("token").parse()?;
    let fenced = store.reject(&leased, &old).expect_err("a token of an earlier life");
    assert_eq!(fenced.kind(), Kind::Fenced);

    assert_eq!(store.ledger(1)?.imbalance(), None);
    println!("found {fragments} fragments, both verdicts, and the leased event ready again; the ledger balances");
    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Works, prints what was acknowledged, and aborts.
fn child(dir: &Path) -> Result<(), Box<dyn Error>> {
    let config = Config { hot_bytes: 16 << 20, ..Config::default() };
    let store = Store::create(dir, &Keyspace::events("events", 1), config)?;
    store.run_open(1, &store.keyspace().run)?;
    let schema = store.schema();
    for event in 0..EVENTS {
        let key = schema.key(&[1, event, 0])?;
        let outcome = store.put(&key, schema.text(key.as_bytes()).as_bytes(), &PutOptions::default())?;
        assert_eq!(outcome, PutOutcome::Stored);
    }
    println!("stored {EVENTS} fragments");
    let leases = store.get_any(&GetAny { n: 3, ..GetAny::default() })?;
    let [first, second, third] = &leases[..] else { return Err("three events are ready".into()) };
    first.accept(&["physics"])?;
    println!("accepted {}", schema.text(first.primary.as_bytes()));
    second.reject()?;
    println!("rejected {}", schema.text(second.primary.as_bytes()));
    println!("leased {}", schema.text(third.primary.as_bytes()));
    println!("token {}", third.token);
    std::process::abort()
}
