//! What every place for objects does: run against a directory, the stand-in for S3 and a real Ceph.

use bytes::Bytes;
use forebay_core::Kind;
use forebay_dataset::storage::{Back, Condition, Part, Put, Storage, Tag};
use std::sync::Arc;
use std::time::Duration;

/// Opens the same place again, as another writer would.
pub(crate) type Open<'a> = &'a (dyn Fn() -> Arc<dyn Storage> + Sync);

/// All of it, in an empty place.
pub(crate) fn check(open: Open<'_>) {
    let place = open();
    objects_are_what_was_put(&*place);
    what_comes_back_is_compared(&*place);
    parts_come_in_their_order(&*place);
    parts_that_are_not_there_are_found(&*place);
    neighbours_are_one_request(&*place);
    conditions_hold(&*place);
    removal_can_be_repeated(&*place);
    ages_are_those_of_the_place(&*place);
    names_are_checked(&*place);
    place.check_conditions("writers/one/check").unwrap();
    assert_eq!(place.get("writers/one/check", 1 << 20).unwrap(), None);
    writers_do_not_lose_each_other(open);
}

/// What places with an index do as well.
pub(crate) fn check_listing(place: &dyn Storage) {
    assert_eq!(place.list("listed/").unwrap(), Vec::<String>::new());
    let objects: Vec<(String, Bytes)> =
        (0..120).map(|at| (format!("listed/run-{}/o-{at:03}", at % 3), bytes(at, at))).collect();
    place.put(&objects).unwrap();
    let mut names: Vec<String> = objects.iter().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    assert_eq!(place.list("listed/").unwrap(), names);
    assert_eq!(place.list("listed/run-1/").unwrap().len(), 40);
    let all = place.list("").unwrap();
    assert!(names.iter().all(|name| all.contains(name)));
    assert_eq!(place.list("../etc").unwrap_err().kind(), Kind::Invalid);
    place.remove(&names).unwrap();
    assert_eq!(place.list("listed/").unwrap(), Vec::<String>::new());
    for (name, bytes) in &objects[..2] {
        place.put(&[(name.clone(), bytes.clone())]).unwrap();
        assert_eq!(place.read_back(name, 1 << 10).unwrap().unwrap(), bytes);
        assert!(place.read_back("listed/none", 10).unwrap().is_none());
    }
}

fn what_comes_back_is_compared(place: &dyn Storage) {
    assert_eq!(place.compare_back("compared/none", &Bytes::from_static(b"anything")).unwrap(), Back::Missing);
    // A directory writes large ones past the kernel's pages, the last block whole.
    for length in [1_000_000, (17 << 20) + 4321] {
        let (name, bytes_there) = ("compared/one", length as u64);
        let sent = bytes(length, 3);
        place.put(&[(name.to_owned(), sent.clone())]).unwrap();
        assert_eq!(place.compare_back(name, &sent).unwrap(), Back::Same);
        assert_eq!(place.read_back(name, bytes_there).unwrap().unwrap(), sent);
        assert_eq!(place.read_back(name, bytes_there - 1).unwrap_err().kind(), Kind::Corrupt);
        for at in [0, length - 1, length / 2, (1 << 20) - 1, 1 << 20].into_iter().filter(|at| *at < length) {
            let mut other = sent.to_vec();
            other[at] ^= 1;
            let differs = Back::Differs { at: at as u64, bytes: bytes_there };
            assert_eq!(place.compare_back(name, &other.into()).unwrap(), differs, "byte {at}");
        }
        let longer = [&sent[..], b"more"].concat();
        let shorter = Back::Differs { at: bytes_there, bytes: bytes_there };
        assert_eq!(place.compare_back(name, &longer.into()).unwrap(), shorter);
        let other = place.compare_back(name, &sent.slice(..length - 1));
        assert!(matches!(other, Ok(Back::Differs { .. })) || other.unwrap_err().kind() == Kind::Corrupt);
        place.remove(&[name.to_owned()]).unwrap();
    }
}

fn bytes(length: usize, seed: usize) -> Bytes {
    (0..length).map(|at| (at.wrapping_mul(31) + at / 251 + seed) as u8).collect()
}

fn part(name: &str, range: std::ops::Range<u64>) -> Part {
    Part { name: name.to_owned(), range }
}

fn objects_are_what_was_put(place: &dyn Storage) {
    assert_eq!(place.get("objects/none", 10).unwrap(), None);
    let objects: Vec<(String, Bytes)> =
        (0..60).map(|at| (format!("objects/{}/o-{at}.bin", at % 3), bytes(at * 40, at))).collect();
    place.put(&objects).unwrap();
    for (name, bytes) in &objects {
        assert_eq!(place.get(name, 1 << 20).unwrap().unwrap().0, bytes, "{name}");
    }
    let large = bytes(3_000_001, 1);
    place.put(&[("objects/large".to_owned(), large.clone())]).unwrap();
    let (there, tag) = place.get("objects/large", large.len() as u64).unwrap().unwrap();
    assert!(there == large);
    let error = place.get("objects/large", large.len() as u64 - 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.message().contains("objects/large"), "{error}");

    place.put(&[("objects/large".to_owned(), bytes(3_000_001, 2))]).unwrap();
    assert_ne!(place.get("objects/large", u64::MAX).unwrap().unwrap().1, tag);
    place.put(&[]).unwrap();
    assert!(place.traffic().bytes_written > 6_000_000);
}

fn parts_come_in_their_order(place: &dyn Storage) {
    let (one, other) = (bytes(1 << 20, 3), bytes(5000, 4));
    place.put(&[("parts/one".to_owned(), one.clone()), ("parts/other".to_owned(), other.clone())]).unwrap();
    let asked = [
        part("parts/other", 4990..5000),
        part("parts/one", 1_000_000..1_048_576),
        part("parts/one", 0..10),
        part("parts/one", 5..8),
        part("parts/one", 7..7),
        part("parts/other", 0..5000),
        part("parts/one", 10..100),
        part("parts/one", 0..10),
    ];
    let came = place.parts(&asked).unwrap();
    for (asked, came) in asked.iter().zip(&came) {
        let whole = if asked.name == "parts/one" { &one } else { &other };
        assert!(*came == whole.slice(asked.range.start as usize..asked.range.end as usize), "{asked:?}");
    }
    assert_eq!(came.len(), asked.len());
    assert!(place.parts(&[]).unwrap().is_empty());
}

fn parts_that_are_not_there_are_found(place: &dyn Storage) {
    for asked in [part("parts/none", 0..10), part("parts/other", 4990..5001), part("parts/other", 6000..6001)] {
        let error = place.parts(&[part("parts/one", 0..10), asked.clone()]).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{asked:?}: {error}");
        assert!(error.message().contains(&asked.name), "{error}");
    }
}

fn neighbours_are_one_request(place: &dyn Storage) {
    let before = place.traffic();
    let asked: Vec<Part> = (0..100).map(|at| part("parts/one", at * 1000..at * 1000 + 990)).collect();
    place.parts(&asked).unwrap();
    let after = place.traffic();
    assert_eq!(after.reads - before.reads, 1);
    assert_eq!(after.bytes_read - before.bytes_read, 99_990);
}

fn conditions_hold(place: &dyn Storage) {
    let put = |bytes: &Bytes, condition| place.put_if("conditions/root", bytes, condition).unwrap();
    let [one, two, three] = [bytes(100, 1), bytes(100, 2), bytes(100, 3)];
    let other = Tag("\"0123456789abcdef0123456789abcdef\"".to_owned());
    assert_eq!(put(&one, Condition::Unchanged(&other)), Put::Refused);
    let Put::Done(first) = put(&one, Condition::Absent) else { panic!("nothing was there") };
    assert_eq!(put(&two, Condition::Absent), Put::Refused);
    assert_eq!(place.get("conditions/root", 1000).unwrap(), Some((one.clone(), first.clone())));
    let Put::Done(second) = put(&two, Condition::Unchanged(&first)) else { panic!("nobody changed it") };
    assert_ne!(first, second);
    assert_eq!(put(&three, Condition::Unchanged(&first)), Put::Refused);
    assert_eq!(place.get("conditions/root", 1000).unwrap(), Some((two, second.clone())));
    place.remove(&["conditions/root".to_owned()]).unwrap();
    assert_eq!(put(&three, Condition::Unchanged(&second)), Put::Refused);
    assert!(matches!(put(&three, Condition::Absent), Put::Done(_)));
}

fn removal_can_be_repeated(place: &dyn Storage) {
    let names: Vec<String> = (0..20).map(|at| format!("removal/{at}/object")).collect();
    let objects: Vec<(String, Bytes)> = names.iter().map(|name| (name.clone(), bytes(10, 0))).collect();
    place.put(&objects).unwrap();
    place.remove(&names).unwrap();
    place.remove(&names).unwrap();
    for name in &names {
        assert_eq!(place.get(name, 100).unwrap(), None, "{name}");
    }
    // Where a folder went with its objects, it comes back with them.
    place.put(&objects).unwrap();
    assert!(place.get(&names[7], 100).unwrap().is_some());
}

fn ages_are_those_of_the_place(place: &dyn Storage) {
    place.put(&[("ages/new".to_owned(), bytes(10, 0))]).unwrap();
    let age = place.age("ages/new").unwrap().unwrap();
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_eq!(place.age("ages/none").unwrap(), None);
}

fn names_are_checked(place: &dyn Storage) {
    for name in ["", "/etc/passwd", "../root", "a/../../b", ".lock", "a//b", "a b", "a\0b", "a?b"] {
        let own = || name.to_owned();
        let refused = [
            place.get(name, 10).map(drop),
            place.parts(&[part(name, 0..1)]).map(drop),
            place.put(&[(own(), Bytes::new())]),
            place.put_if(name, &Bytes::new(), Condition::Absent).map(drop),
            place.remove(&[own()]),
            place.age(name).map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind(), Kind::Invalid, "{name:?}");
        }
    }
}

fn writers_do_not_lose_each_other(open: Open<'_>) {
    const WRITERS: u32 = 3;
    const EACH: u32 = 8;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || append(&*open(), "race/log", writer, EACH));
        }
    });
    check_log(&*open(), "race/log", WRITERS, EACH);
}

/// Appends lines to an object that others write too, each of them once, whatever goes wrong on the way.
pub(crate) fn append(place: &dyn Storage, name: &str, writer: u32, count: u32) {
    for line in 0..count {
        let own = format!("writer {writer} line {line}\n");
        loop {
            let there = place.get(name, 1 << 20).unwrap();
            let text = there.as_ref().map(|(bytes, _)| String::from_utf8(bytes.to_vec()).unwrap()).unwrap_or_default();
            if text.contains(&own) {
                break;
            }
            let condition = there.as_ref().map_or(Condition::Absent, |(_, tag)| Condition::Unchanged(tag));
            match place.put_if(name, &Bytes::from(format!("{text}{own}")), condition) {
                Ok(Put::Done(_)) => break,
                Ok(Put::Refused) => {}
                Err(error) => assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error}"),
            }
        }
    }
}

/// Each line of each writer is there, once, and those of one writer in their order.
pub(crate) fn check_log(place: &dyn Storage, name: &str, writers: u32, each: u32) {
    let log = place.get(name, 1 << 20).unwrap().unwrap().0;
    let log = String::from_utf8(log.to_vec()).unwrap();
    assert_eq!(log.lines().count(), (writers * each) as usize, "{log}");
    for writer in 0..writers {
        let own: Vec<&str> = log.lines().filter(|line| line.starts_with(&format!("writer {writer} "))).collect();
        let expected: Vec<String> = (0..each).map(|line| format!("writer {writer} line {line}")).collect();
        assert_eq!(own, expected);
    }
}
