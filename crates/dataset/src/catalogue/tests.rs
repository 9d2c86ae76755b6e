//! Bytes from hostile hands: every decoder answers with an error, and asks for no more memory than its limits say.

use super::change::{Action, Change};
use super::entry::Entry;
use super::layout::{self, Blob, change_name, page_name};
use super::state::{self, Entries, Listed};
use super::{Catalogue, Query};
use crate::frame::{self, Magic};
use crate::storage;
use forebay_core::Kind;
use std::sync::Arc;

fn entry(name: &str) -> Entry {
    let blob = Some(Blob::of(b"something"));
    Entry { name: name.into(), uuid: "0".repeat(32), url: "/nowhere".into(), columns_blob: blob, ..Entry::default() }
}

fn change(entry: Entry) -> Change {
    Change { number: 3, time_ms: 1, id: "a".into(), action: Action::Publish(Box::new(entry)) }
}

#[test]
fn every_changed_byte_of_a_change_and_of_a_page_is_found() {
    let object = change(entry("a:b")).encode().unwrap();
    assert_eq!(Change::decode(&object, 3, "c").unwrap(), change(entry("a:b")));
    assert_eq!(Change::decode(&object, 4, "c").unwrap_err().kind(), Kind::Corrupt);
    for at in 0..object.len() {
        let mut changed = object.to_vec();
        changed[at] ^= 0x10;
        assert!(Change::decode(&changed, 3, "c").is_err(), "byte {at}");
        assert!(Change::decode(&object[..at], 3, "c").is_err(), "{at} bytes");
    }
}

#[test]
fn a_change_with_a_right_checksum_and_wrong_content_is_refused() {
    let wrongs: [fn(&mut Entry); 5] = [
        |entry| entry.name = "no scope".into(),
        |entry| entry.name = "a:\u{1b}[2J".into(),
        |entry| entry.uuid = "../../etc/passwd".into(),
        |entry| entry.columns_blob = Some(Blob { sha256: "../root".into(), bytes: 3 }),
        |entry| entry.checksum_blobs = vec![Blob { bytes: u64::MAX, ..Blob::of(b"") }],
    ];
    for wrong in wrongs {
        let mut entry = entry("a:b");
        wrong(&mut entry);
        let object = change(entry.clone()).encode().unwrap();
        assert_eq!(Change::decode(&object, 3, "c").unwrap_err().kind(), Kind::Corrupt, "{entry:?}");
    }
    for json in [
        "",
        "{}",
        "[]",
        "null",
        "{\"number\":3}",
        &"[".repeat(100_000),
        &format!("{{\"number\":3,\"x\":{}", "[".repeat(1000)),
    ] {
        let object = frame::framed(Magic::Change, json.as_bytes());
        assert_eq!(Change::decode(&object, 3, "c").unwrap_err().kind(), Kind::Corrupt, "{json:.30}");
    }
}

#[test]
fn what_a_later_program_says_of_an_entry_stays() {
    let mut later = entry("a:b");
    later.other.insert("licence".into(), serde_json::json!({"name": "CC0"}));
    let object = change(later.clone()).encode().unwrap();
    let Action::Publish(read) = Change::decode(&object, 3, "c").unwrap().action else { panic!("not a publication") };
    assert_eq!(*read, later);
}

#[test]
fn a_catalogue_of_hostile_objects_ends_with_an_error_and_not_in_a_loop() {
    let folder = std::env::temp_dir().join(format!("forebay-catalogue-hostile-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let place = storage::open(&folder.display().to_string(), &storage::Options::default()).unwrap();
    let put = |name: &str, object: Vec<u8>| place.put(&[(name.to_owned(), object.into())]).unwrap();
    // A hint beyond everything, one that is none, and pages that are none or lie about their number.
    put(layout::HEAD, layout::hint(u64::MAX).unwrap());
    let catalogue = Catalogue::on(Arc::clone(&place));
    assert!(catalogue.is_empty().unwrap());
    assert_eq!(catalogue.list().unwrap_err().kind(), Kind::Invalid);
    let mut entries = Entries::new();
    entries.insert(("a:b".into(), 0), Listed { change: 0, entry: Arc::new(entry("a:b")) });
    put(&page_name(1), state::encode_page(2, &entries).unwrap().to_vec());
    put(&page_name(2), b"FBDP and nothing else".to_vec());
    put(&change_name(0), Change { number: 0, ..change(entry("a:b")) }.encode().unwrap().to_vec());
    for hint in [u64::MAX, 200, 64, 0] {
        put(layout::HEAD, layout::hint(hint).unwrap());
        let catalogue = Catalogue::on(Arc::clone(&place));
        assert_eq!(catalogue.len().unwrap(), 1, "hint {hint}");
        // The blob that the entry names is not there.
        let found = catalogue.find(&Query { columns: vec!["*".into()], ..Query::default() }).unwrap();
        assert_eq!((found.entries.len(), found.unread.len()), (0, 1));
    }
    put(layout::HEAD, vec![0xff; 10_000]);
    assert_eq!(Catalogue::on(Arc::clone(&place)).len().unwrap(), 1);
    put(&change_name(1), vec![0xff; 3 << 20]);
    let error = Catalogue::on(Arc::clone(&place)).len().unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("changes/000000000001"), "{error}");
    // zstd that says that it is larger than a page may be.
    let bomb = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &(1_u64 << 40).to_le_bytes()].concat();
    put(&page_name(1), frame::framed(Magic::Page, &bomb));
    assert_eq!(state::read_page(place.as_ref(), 1).unwrap_err().kind(), Kind::Corrupt);
    let _ = std::fs::remove_dir_all(&folder);
}
