//! Ranges over composite keys, new versions, removal: `cargo run -p forebay-store --example 04_ranges_and_removal`.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Bounds, Keyspace};
use forebay_store::{Config, PutOptions, PutOutcome, Store};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-04-{}", std::process::id()));
    let store =
        Store::create(&dir, &Keyspace::events("events", 4), Config { hot_bytes: 16 << 20, ..Config::default() })?;
    store.run_open(1, &store.keyspace().run)?;
    let schema = store.schema();
    for event in 1..=10 {
        for source in 0..4 {
            let value = [event as u8, source as u8];
            let outcome = store.put(&schema.key(&[1, event, source])?, &value, &PutOptions::default())?;
            assert_eq!(outcome, PutOutcome::Stored);
        }
    }

    // Bounds are one interval per sub-key: here source 2 of events 3 to 5. The store seeks from one to the next.
    let bounds = Bounds::new(schema, &[(1, 1), (3, 5), (2, 2)])?;
    assert_eq!(bounds, Bounds::parse(schema, "1/3-5/2")?);
    let mut found = Vec::new();
    for fragment in store.range(&bounds) {
        let fragment = fragment?;
        found.push((schema.text(fragment.key().as_bytes()), fragment.to_vec()));
    }
    assert_eq!(
        found,
        [("1/3/2".to_owned(), vec![3, 2]), ("1/4/2".to_owned(), vec![4, 2]), ("1/5/2".to_owned(), vec![5, 2])]
    );
    println!("source 2 of events 3 to 5: {found:?}");

    // An update makes a new version; later reads get it. A guard on the old version keeps its bytes.
    let key = schema.key(&[1, 3, 2])?;
    let before = store.get(&key)?.ok_or("1/3/2 is there")?;
    let version = store.update(&key, b"recalibrated", None)?;
    let after = store.get(&key)?.ok_or("1/3/2 is there")?;
    assert_eq!((&*before, before.version()), (&[3_u8, 2][..], 0));
    assert_eq!((&*after, after.version()), (&b"recalibrated"[..], version));

    // Remove one fragment, one event, a range: each call returns what it removed.
    assert!(store.remove(&schema.key(&[1, 1, 0])?)?);
    assert!(!store.remove(&schema.key(&[1, 1, 0])?)?);
    assert!(store.remove_event(&schema.primary(&[1, 2])?)?);
    let removed = store.remove_range(&Bounds::parse(schema, "1/6-10/*")?)?;
    assert_eq!(removed, 20);
    let left = store.range(&Bounds::all(schema)).count();
    assert_eq!(left, 40 - 1 - 4 - 20);
    println!("removed 1 fragment, 1 event of 4 fragments and a range of {removed}; {left} are left");

    // A removed event stays closed: its fragments do not come back.
    assert_eq!(store.put(&schema.key(&[1, 7, 0])?, b"ghost", &PutOptions::default())?, PutOutcome::Late);
    assert_eq!(store.ledger(1)?.imbalance(), None);

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
