//! Eviction: what leaves the ring, in which order, and how it is counted.

use super::{
    FIRST, SPAN, TempDir, balanced, config, coverage, frame, genuine, keyspace, put, put_in, refused, shape,
    small_ring, source, window,
};
use forebay_core::{GapCause, Kind, ManualClock};
use forebay_ring::{Ring, RingOutcome};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;

#[test]
fn the_oldest_goes_when_space_is_needed_and_not_before() {
    let ring = small_ring(16, 2);
    let mut number = 0;
    while ring.stats().segments_free > 0 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    assert_eq!((ring.stats().evicted, ring.ledger().expired.fragments), (0, 0));
    assert_eq!(shape(&window(&ring, FIRST, frame(number)).sources[0]), "C");
    let kept = number;
    while number < 4 * kept {
        put(&ring, 1, frame(number));
        number += 1;
        if number % 50 == 0 {
            balanced(&ring);
        }
    }
    let stats = ring.stats();
    let status = &ring.sources()[0];
    let oldest = status.oldest.unwrap();
    assert!(stats.evicted > 30 && oldest > frame(2 * kept), "{stats:?}");
    let ledger = ring.ledger();
    let sum = ledger.live.ready.fragments + ledger.expired.fragments;
    assert_eq!((ledger.stored.fragments, sum), (number, number));
    assert_eq!(stats.fragments, status.fragments);
    assert_eq!(stats.fragments, (frame(number) - oldest) / u64::from(SPAN));
    let whole = window(&ring, FIRST, frame(number + 1));
    let expected = [("G", oldest), ("C", frame(number)), ("N", frame(number + 1))];
    assert_eq!(coverage(&whole.sources[0]), expected.map(|(text, end)| (text.to_owned(), end)));
    assert_eq!(genuine(&whole.sources[0]).len() as u64, stats.fragments);
    // What comes for evicted ticks is too late, and says so.
    assert_eq!(put_in(&ring, 1, 1, frame(1), SPAN).unwrap(), RingOutcome::Refused(GapCause::TooLate));
    assert_eq!(ring.sources()[0].last_refused, Some((frame(1), GapCause::TooLate)));
    assert_eq!((ring.ledger().late.fragments, ring.stats().refused.too_late), (1, 1));
    balanced(&ring);
}

#[test]
fn chunks_go_by_arrival_whatever_their_ticks() {
    let ring = small_ring(32, 2);
    // Link 2 does not move in time but not in arrival; link 1's ticks are far ahead of it.
    for number in 0..20 {
        put(&ring, 2, frame(number));
    }
    let mut number = 1_000_000;
    while ring.stats().evicted < 3 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    // Link 2 arrived first: its closed chunk went first. Its open chunk is not idle for longer than the history.
    let statuses = ring.sources();
    assert_eq!(
        (statuses[0].oldest, statuses[1].chunks),
        (Some(frame(1_000_000 + statuses[0].fragments_before(number))), 1)
    );
    balanced(&ring);
}

trait Before {
    fn fragments_before(&self, number: u64) -> u64;
}

impl Before for forebay_ring::RingSourceStatus {
    /// How many of a run of frames up to `number`, from 1,000,000 on, it no longer has.
    fn fragments_before(&self, number: u64) -> u64 {
        number - 1_000_000 - self.fragments
    }
}

#[test]
fn a_silent_source_gives_its_chunk_back() {
    let clock = Arc::new(ManualClock::default());
    let config = forebay_ring::RingConfig { clock: clock.clone(), ..config(16) };
    let ring = Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace(2), config).unwrap();
    put(&ring, 2, frame(0));
    let mut number = 0;
    let fill = |number: &mut u64, evicted: u64| {
        while ring.stats().evicted < evicted {
            put(&ring, 1, frame(*number));
            *number += 1;
        }
    };
    fill(&mut number, 20);
    // Within the history its only fragment stays.
    assert_eq!(ring.sources()[1].fragments, 1);
    clock.advance_ns(2_000_000);
    // All that was closed before its fragment came goes first.
    fill(&mut number, 40);
    let silent = &ring.sources()[1];
    assert_eq!((silent.fragments, silent.chunks, silent.newest), (0, 0, Some(frame(1))));
    assert_eq!(coverage(&window(&ring, frame(0), frame(2)).sources[1])[0], ("G".to_owned(), frame(1)));
    // It comes back.
    put(&ring, 2, frame(number));
    assert_eq!(shape(&window(&ring, frame(0), frame(number + 1)).sources[1]), "G - C");
    balanced(&ring);
}

#[test]
fn windows_keep_what_they_show_and_the_next_oldest_goes() {
    let ring = small_ring(16, 2);
    let held = ring.named("display");
    let mut number = 0;
    while ring.stats().segments_free > 0 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    let shown = window(&held, frame(0), frame(3));
    assert_eq!(ring.stats().holders[0].holder, "display");
    for number in number..4 * number {
        put(&ring, 1, frame(number));
    }
    assert_eq!(genuine(&shown.sources[0]), [frame(0), frame(1), frame(2)]);
    assert!(shape(&window(&ring, frame(0), frame(4 * number)).sources[0]).starts_with("C G C"));
    // What lies between the kept chunk and the others is gone for good.
    assert_eq!(put_in(&ring, 1, 1, frame(number), SPAN).unwrap(), RingOutcome::Refused(GapCause::TooLate));
    drop(shown);
    assert!(ring.stats().holders.is_empty());
    for number in 4 * number..5 * number {
        put(&ring, 1, frame(number));
    }
    assert!(shape(&window(&ring, frame(0), frame(5 * number)).sources[0]).starts_with("G C"));
    balanced(&ring);
}

#[test]
fn a_ring_full_of_windows_refuses_and_names_the_gap() {
    let ring = small_ring(16, 2);
    let mut number = 0;
    while ring.stats().segments_free > 0 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    let everything = window(&ring, 0, u64::MAX);
    // The open chunk has room for some more; then nothing can go.
    let mut stored = number;
    while put_in(&ring, 1, 1, frame(stored), SPAN).unwrap() == RingOutcome::Stored {
        stored += 1;
    }
    assert!(stored < number + 30);
    for number in stored + 1..stored + 10 {
        assert_eq!(put_in(&ring, 5, 1, frame(number), SPAN).unwrap(), RingOutcome::Refused(GapCause::NoSpace));
    }
    let ledger = ring.ledger();
    assert_eq!((ledger.stored.fragments, ledger.refused.fragments), (stored, 10));
    assert_eq!(ring.ledger_of(5).refused.fragments, 9);
    assert_eq!(ring.stats().refused.no_space, 10);
    balanced(&ring);
    // Refused ticks have arrived: a reader does not wait for them.
    let gap = forebay_ring::Gap { begin: frame(stored), end: frame(stored + 10), cause: GapCause::NoSpace };
    assert_eq!(ring.gaps(&source(&ring, 1), 0, u64::MAX).unwrap(), [gap]);
    drop(everything);
    put(&ring, 1, frame(stored + 10));
    // What was refused may be offered again.
    put(&ring, 1, frame(stored + 5));
    let around = window(&ring, frame(stored), frame(stored + 11));
    assert_eq!(shape(&around.sources[0]), "no space C no space C");
    balanced(&ring);
}

#[test]
fn a_directory_holds_a_ring_or_a_store_of_events() {
    use forebay_core::Keyspace;
    use forebay_store::{Config, Store};
    let (events, links) = (TempDir::new(), TempDir::new());
    let make = |dir: &TempDir| {
        let config = Config { hot_bytes: 16 << 20, ..Config::default() };
        Store::create(dir.path(), &Keyspace::events("events", 1).opening_runs(), config)
    };
    drop(make(&events).unwrap());
    let said = refused(Ring::create(events.path(), &keyspace(2), config(32)), Kind::Invalid);
    assert!(said.contains("holds a store of events (hot.fb)"), "{said}");
    let ring = Ring::create(links.path(), &keyspace(2), config(32)).unwrap();
    put(&ring, 1, FIRST);
    let said = refused(make(&links), Kind::Invalid);
    assert!(said.contains("holds a ring (ring.fb)"), "{said}");
    assert!(Ring::create(links.path(), &keyspace(2), config(32)).is_err());
    ring.close().unwrap();
    drop(ring);
    // Nothing of either was touched.
    assert!(Store::open(events.path(), Config::default()).is_ok());
    let ring = Ring::open(links.path(), config(32)).unwrap();
    assert_eq!(genuine(&window(&ring, FIRST, FIRST + 1).sources[0]), [FIRST]);
}
