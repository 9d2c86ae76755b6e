//! Put a fragment, get it back: `cargo run -p forebay-store --example 01_put_get`.
//!
//! A fragment is the data of one source for one event, addressed by run/event/source.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_store::core::{Keyspace, Kind};
use forebay_store::{Config, PutOptions, PutOutcome, Store};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-01-{}", std::process::id()));

    // A keyspace defines the keys and when events are complete: here run/event/source, with 2 fragments.
    let keyspace = Keyspace::events("first", 2);
    let config = Config { hot_bytes: 16 << 20, ..Config::default() };
    let store = Store::create(&dir, &keyspace, config.clone())?;
    store.run_open(1, &store.keyspace().run)?;

    // Keys are typed: one number per sub-key, or the same as text.
    let key = store.schema().key(&[1, 42, 0])?;
    assert_eq!(key, store.schema().parse_key("1/42/0")?);

    // When put returns `Stored`, the fragment survives the death of this process.
    let options = PutOptions { status: 0x3, ..PutOptions::default() };
    assert_eq!(store.put(&key, b"hello", &options)?, PutOutcome::Stored);

    // A fragment is written once: the same bytes again are a duplicate, which is a success; other bytes are a conflict.
    assert_eq!(store.put(&key, b"hello", &options)?, PutOutcome::Duplicate);
    let conflict = store.put(&key, b"other", &options).expect_err("other bytes are refused");
    assert_eq!(conflict.kind(), Kind::Conflict);

    // A get returns a guard on the bytes in place, without a copy. Absence is `None`, not an error.
    if let Some(fragment) = store.get(&key)? {
        fragment.verify()?;
        assert_eq!((&*fragment, fragment.status()), (&b"hello"[..], 0x3));
        println!(
            "{}: {} bytes, crc32c {:08x}",
            store.schema().text(key.as_bytes()),
            fragment.len(),
            fragment.checksum()
        );
    }
    assert!(store.get(&store.schema().parse_key("1/42/9")?)?.is_none());

    // Put without a copy: fill the store's memory, then commit.
    let mut reservation = store.reserve(&store.schema().key(&[1, 42, 1])?, 5, &PutOptions::default())?;
    reservation.copy_from_slice(b"world");
    assert_eq!(reservation.commit()?, PutOutcome::Stored);

    // Fragments are still there after closing and reopening.
    store.close()?;
    let store = Store::open(&dir, config)?;
    let fragment = store.get(&store.schema().parse_key("1/42/1")?)?;
    assert_eq!(fragment.as_deref(), Some(&b"world"[..]));
    println!("both fragments are there after reopening");

    store.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
