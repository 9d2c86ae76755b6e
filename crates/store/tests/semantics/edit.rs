//! Update, remove and ranges: versions, closed keys, closed events.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, refused, refused_as, sources_of};
use crate::semantics::{single, three};
use forebay_store::core::{Bounds, Filter, Kind, LiveState};
use forebay_store::{GetAny, PutOutcome, Sources};

fn range(store: &Fixture, bounds: &str) -> Vec<(u64, u64)> {
    let bounds = Bounds::parse(store.schema(), bounds).unwrap();
    let pair = |key: forebay_store::core::Key| {
        let values = store.schema().values(key.as_bytes());
        (values[1], values[2])
    };
    store.range(&bounds).map(|fragment| pair(fragment.unwrap().key())).collect()
}

#[test]
fn updates_count_versions_and_the_newest_is_read() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"version 0");
    for version in 1..=5_u16 {
        let bytes = format!("version {version}");
        assert_eq!(store.update(&store.key(1, 0), bytes.as_bytes(), None).unwrap(), version);
        assert_eq!(store.read(1, 0).unwrap(), bytes.as_bytes());
    }
    store.reopen();
    let fragment = store.get(&store.key(1, 0)).unwrap().unwrap();
    assert_eq!((&*fragment, fragment.version()), (&b"version 5"[..], 5));
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.superseded.fragments), (6, 5));
    assert_eq!(store.update(&store.key(1, 0), b"", None).unwrap(), 6);
    assert_eq!(store.read(1, 0).unwrap(), b"");
}

#[test]
fn a_put_of_the_newest_bytes_is_a_duplicate() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"old");
    store.update(&store.key(1, 0), b"new", None).unwrap();
    assert_eq!(store.try_put(1, 0, b"new").unwrap(), PutOutcome::Duplicate);
    refused(store.try_put(1, 0, b"neither"), Kind::Conflict);
}

#[test]
fn a_guard_on_an_old_version_keeps_its_bytes() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"old");
    let guard = store.get(&store.key(1, 0)).unwrap().unwrap();
    store.update(&store.key(1, 0), b"new", None).unwrap();
    assert_eq!((&*guard, guard.version()), (&b"old"[..], 0));
    guard.verify().unwrap();
}

#[test]
fn updating_what_is_not_there_is_invalid() {
    let store = Fixture::new(&three());
    refused(store.update(&store.key(1, 0), b"x", None), Kind::Invalid);
    store.stored(1, 0, b"x");
    refused(store.update(&store.key(1, 1), b"x", None), Kind::Invalid);
    assert_eq!(store.read(1, 1), None);
}

#[test]
fn a_leased_event_is_updated_under_its_token_only() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"raw");
    let lease = store.take(1);
    refused(store.update(&store.key(1, 0), b"foreign", None), Kind::Fenced);
    let mut wrong = lease.token;
    wrong.counter += 1;
    refused(store.update(&store.key(1, 0), b"foreign", Some(&wrong)), Kind::Fenced);
    assert_eq!(store.update(&store.key(1, 0), b"calibrated", Some(&lease.token)).unwrap(), 1);
    assert_eq!(*lease.get(&Sources::All).unwrap()[0], *b"calibrated");
    lease.accept(&["main"]).unwrap();
    assert!(store.update(&store.key(1, 0), b"too late", Some(&lease.token)).is_err());
    assert!(store.update(&store.key(1, 0), b"too late", None).is_err());
    drop(lease);
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), b"calibrated");
}

#[test]
fn a_removed_key_stays_closed_while_its_event_lives() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"a");
    store.stored(1, 1, b"b");
    store.update(&store.key(1, 1), b"b, newer", None).unwrap();
    assert!(store.remove(&store.key(1, 1)).unwrap());
    for _ in 0..2 {
        assert!(!store.remove(&store.key(1, 1)).unwrap());
        assert_eq!(store.read(1, 1), None);
        store.late(1, 1, b"b");
        store.late(1, 1, b"other");
        assert_eq!(store.read(1, 0).unwrap(), b"a");
        store.reopen();
    }
    assert!(!store.remove(&store.key(1, 7)).unwrap());
    assert!(!store.remove(&store.key(7, 0)).unwrap());
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.removed.fragments, ledger.superseded.fragments), (1, 1));
}

#[test]
fn the_only_fragment_of_an_event_can_be_removed() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"a");
    assert!(store.remove(&store.key(1, 0)).unwrap());
    for _ in 0..2 {
        assert_eq!(store.read(1, 0), None);
        store.late(1, 0, b"a");
        assert!(range(&store, "1").is_empty());
        store.reopen();
    }
    assert_eq!(store.ledger(RUN).unwrap().removed.fragments, 1);
}

#[test]
fn a_removed_event_stays_closed() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"a");
    store.stored(1, 1, b"b");
    store.stored(2, 0, b"other");
    assert!(store.remove_event(&store.primary(1)).unwrap());
    for _ in 0..2 {
        assert!(!store.remove_event(&store.primary(1)).unwrap());
        assert!(store.get_event(&store.primary(1), &Sources::None).unwrap().is_none());
        for source in 0..3 {
            assert_eq!(store.read(1, source), None);
            store.late(1, source, b"late");
        }
        assert_eq!(store.read(2, 0).unwrap(), b"other");
        store.reopen();
    }
    assert!(!store.remove_event(&store.primary(9)).unwrap(), "there is no such event");
    assert_eq!(store.ledger(RUN).unwrap().removed.fragments, 2);
}

#[test]
fn a_range_is_bounded_per_sub_key_and_in_key_order() {
    let store = Fixture::new(&three());
    for event in [300, 2, 65_536, 7, 255, 256] {
        for source in [9, 1, 300] {
            store.stored(event, source, b"x");
        }
    }
    let all = [2, 7, 255, 256, 300, 65_536].into_iter().flat_map(|event| [1, 9, 300].map(|source| (event, source)));
    assert_eq!(range(&store, "1"), all.collect::<Vec<_>>());
    assert_eq!(range(&store, "1/7-300/2-299"), [(7, 9), (255, 9), (256, 9), (300, 9)]);
    assert_eq!(range(&store, "1/256/*"), [(256, 1), (256, 9), (256, 300)]);
    assert_eq!(range(&store, "*/*/1").len(), 6);
    assert!(range(&store, "2").is_empty());
    assert!(range(&store, "1/3-6").is_empty());
}

#[test]
fn a_removed_range_of_events_closes_them() {
    let mut store = Fixture::new(&three());
    for event in 1..=6 {
        store.stored(event, 0, b"x");
        store.stored(event, 1, b"y");
    }
    let bounds = Bounds::parse(store.schema(), "1/2-4").unwrap();
    assert_eq!(store.remove_range(&bounds).unwrap(), 6);
    for _ in 0..2 {
        assert_eq!(store.remove_range(&bounds).unwrap(), 0);
        assert_eq!(range(&store, "*/*/0"), [(1, 0), (5, 0), (6, 0)]);
        for event in 2..=4 {
            store.late(event, 2, b"late");
        }
        store.reopen();
    }
    store.stored(5, 2, b"this one lives");
}

#[test]
fn a_removed_range_of_sources_leaves_the_events() {
    let mut store = Fixture::new(&three());
    for event in 1..=3 {
        for source in 0..3 {
            store.stored(event, source, b"x");
        }
    }
    let bounds = Bounds::parse(store.schema(), "1/*/1-2").unwrap();
    assert_eq!(store.remove_range(&bounds).unwrap(), 6);
    for _ in 0..2 {
        assert_eq!(range(&store, "*"), [(1, 0), (2, 0), (3, 0)]);
        store.late(2, 1, b"late");
        assert_eq!(store.state(2), Some(LiveState::Ready));
        store.reopen();
    }
    assert_eq!(sources_of(&store.take(3).fragments), [0]);
}

#[test]
fn removal_from_a_leased_event_never_leaves_it_half_decided() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    let lease = store.take(1);
    match store.remove_event(&store.primary(1)) {
        Ok(removed) => {
            assert!(removed);
            refused(lease.accept(&["main"]), Kind::Fenced);
            assert_eq!(store.read(1, 0), None);
        }
        error => {
            refused_as(error, &[Kind::Unavailable, Kind::Fenced]);
            assert_eq!(store.read(1, 0).unwrap(), b"x");
            lease.accept(&["main"]).unwrap();
        }
    }
}

#[test]
fn attributes_are_updated_and_filters_see_it() {
    let mut store = Fixture::new(&single());
    store.stored_with(1, 0, b"x", &["lumi=1"]);
    let set =
        |store: &Fixture, pair: &str| store.update_attributes(&store.primary(1), &store.attributes(&[pair]), None);
    set(&store, "lumi=2").unwrap();
    set(&store, "bits=5").unwrap();
    for _ in 0..2 {
        let event = store.get_event(&store.primary(1), &Sources::None).unwrap().unwrap();
        assert_eq!(event.attributes, store.attributes(&["lumi=2", "bits=5"]));
        store.reopen();
    }
    let filter = |text| Filter::parse(&store.keyspace().attributes, &[text]).unwrap();
    assert!(store.get_any(&GetAny { filter: filter("lumi=1"), ..GetAny::default() }).unwrap().is_empty());
    let lease = store.get_any(&GetAny { filter: filter("lumi=2"), ..GetAny::default() }).unwrap().remove(0);
    refused(set(&store, "lumi=3"), Kind::Fenced);
    store.update_attributes(&store.primary(1), &store.attributes(&["lumi=3"]), Some(&lease.token)).unwrap();
    refused(store.update_attributes(&store.primary(2), &store.attributes(&["lumi=3"]), None), Kind::Invalid);
    lease.reject().unwrap();
}

/// Found by the model: the attributes' record has the key of source 0.
#[test]
fn attributes_stay_when_source_zero_is_removed_or_replaced() {
    let mut store = Fixture::new(&three());
    for event in 1..=2 {
        for source in 0..3 {
            store.stored_with(event, source, b"x", &["lumi=7"]);
        }
    }
    assert!(store.remove(&store.key(1, 0)).unwrap());
    store.update(&store.key(2, 0), b"newer", None).unwrap();
    for _ in 0..2 {
        for event in 1..=2 {
            let event = store.get_event(&store.primary(event), &Sources::None).unwrap().unwrap();
            assert_eq!(event.attributes, store.attributes(&["lumi=7"]));
        }
        store.reopen();
    }
}

#[test]
fn runs_do_not_mix() {
    let store = Fixture::new(&three());
    store.stored(5, 0, b"run 1");
    let _ = crate::common::put(&store, &key(2, 5, 0), b"run 2").unwrap();
    assert_eq!(*store.get(&key(2, 5, 0)).unwrap().unwrap(), *b"run 2");
    assert!(store.remove_event(&store.primary(5)).unwrap());
    assert_eq!(*store.get(&key(2, 5, 0)).unwrap().unwrap(), *b"run 2");
    assert_eq!(store.ledger(2).unwrap().stored.bytes, 5);
    assert_eq!(store.ledger(RUN).unwrap().removed.bytes, 5);
}
