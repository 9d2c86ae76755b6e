//! Reading a ring that nobody serves, and pins that nobody holds.

use super::{FIRST, frame, keyspace, put, refused, small_ring, source};
use forebay_core::{Kind, RingStore, RingWindow};
use forebay_ring::{Ring, RingConfig, RingSources};
use forebay_testkit::TempDir;
use std::time::Duration;

#[test]
fn a_look_reads_everything_and_changes_nothing() {
    let dir = TempDir::new();
    let config = RingConfig { hot_bytes: 8 << 20, segment_bytes: Some(64 << 10), ..RingConfig::default() };
    let ring = Ring::create(dir.path(), &keyspace(2), config.clone()).unwrap();
    (0..40).for_each(|number| put(&ring, 1, frame(number)));
    let source = source(&ring, 1);
    refused(Ring::look(dir.path(), config.clone()), Kind::Unavailable);
    refused(Ring::check(dir.path(), false), Kind::Unavailable);
    ring.close().unwrap();
    drop(ring);
    let region = dir.path().join("ring.fb");
    let before = std::fs::read(&region).unwrap();
    for deep in [false, true] {
        let report = Ring::check(dir.path(), deep).unwrap();
        assert_eq!((report.fragments, report.sources, report.clean), (40, 1, true), "{report:?}");
        assert!(report.problems.is_empty(), "{report:?}");
    }
    let look = Ring::look(dir.path(), config.clone()).unwrap();
    let window = look.window(FIRST, frame(50), &RingSources::All, Duration::from_secs(60)).unwrap();
    assert_eq!((window.sources.len(), RingWindow::source(&window, 0)), (1, source));
    assert_eq!(window.sources[0].fragments().len(), 40);
    assert!(!look.may_come(frame(50), Duration::ZERO).unwrap(), "nothing comes to a ring that nobody serves");
    refused(look.keep(FIRST, frame(1), &RingSources::All, Duration::from_secs(1)), Kind::Invalid);
    drop((window, look));
    assert!(before == std::fs::read(&region).unwrap());
    // It is opened as it was closed.
    let again = Ring::open(dir.path(), config).unwrap();
    assert_eq!((again.boot(), again.stats().fragments), (2, 40));
}

#[test]
fn a_pin_that_nobody_holds_ends_at_its_time_or_by_its_number() {
    let ring = small_ring(32, 2);
    (0..4).for_each(|number| put(&ring, 1, frame(number)));
    let hour = Duration::from_secs(3600);
    let pin = |ring: &Ring| ring.pin(FIRST, frame(2), &RingSources::All, hour).unwrap();
    let (held, kept) = (pin(&ring), pin(&ring.named("operator")).keep().unwrap());
    assert!(kept.kept && kept.holder == "operator" && kept.bytes > 0);
    assert_eq!(ring.stats().pins.iter().map(|pin| pin.kept).collect::<Vec<_>>(), [false, true]);
    assert!(ring.chunks().iter().all(|chunk| chunk.pinned && chunk.fragments > 0));
    let said = refused(ring.unpin(held.id()), Kind::Conflict);
    assert!(said.contains("is held by"), "{said}");
    assert!(ring.unpin(kept.id).unwrap() && !ring.unpin(kept.id).unwrap());
    drop(held);
    assert!(ring.stats().pins.is_empty() && ring.chunks().iter().all(|chunk| !chunk.pinned));
}
