//! Windows at the edges of frames, over gaps and across runs.

use super::{
    FIRST, SPAN, balanced, coverage, frame, genuine, keyspace, put, put_in, refused, shape, small_ring, source, window,
};
use forebay_core::{GapCause, Kind, SourceSchema};
use forebay_ring::{Gap, RingOutcome, RingPut, RingSources};
use std::time::Duration;

#[test]
fn a_window_takes_what_overlaps_by_a_tick() {
    let ring = small_ring(32, 2);
    (0..10).for_each(|number| put(&ring, 1, frame(number)));
    // Begin one tick before, at and after the edge between frames 2 and 3; end likewise between frames 5 and 6.
    for (begin, first) in [(frame(3) - 1, 2), (frame(3), 3), (frame(3) + 1, 3)] {
        for (end, last) in [(frame(6) - 1, 5), (frame(6), 5), (frame(6) + 1, 6)] {
            let window = window(&ring, begin, end);
            let expected: Vec<u64> = (first..=last).map(frame).collect();
            assert_eq!(genuine(&window.sources[0]), expected, "[{begin}, {end})");
            assert!(window.is_complete());
        }
    }
    balanced(&ring);
}

#[test]
fn a_window_of_one_tick_shows_one_frame() {
    let ring = small_ring(32, 2);
    (0..4).for_each(|number| put(&ring, 1, frame(number)));
    for (tick, expected) in [(frame(1) - 1, frame(0)), (frame(1), frame(1)), (frame(2) - 1, frame(1))] {
        assert_eq!(genuine(&window(&ring, tick, tick + 1).sources[0]), [expected]);
    }
}

#[test]
fn before_the_first_tick_is_gone_and_after_the_newest_not_yet() {
    let ring = small_ring(32, 2);
    (0..4).for_each(|number| put(&ring, 1, frame(number)));
    let all = |begin, end| coverage(&window(&ring, begin, end).sources[0]);
    let text = |parts: &[(&str, u64)]| parts.iter().map(|part| (part.0.to_owned(), part.1)).collect::<Vec<_>>();
    assert_eq!(all(FIRST - 1, FIRST), text(&[("G", FIRST)]));
    assert_eq!(all(FIRST, FIRST + 1), text(&[("C", FIRST + 1)]));
    assert_eq!(all(FIRST - 1, FIRST + 1), text(&[("G", FIRST), ("C", FIRST + 1)]));
    assert_eq!(all(frame(4) - 1, frame(4)), text(&[("C", frame(4))]));
    assert_eq!(all(frame(4), frame(4) + 1), text(&[("N", frame(4) + 1)]));
    assert_eq!(all(0, u64::MAX), text(&[("G", FIRST), ("C", frame(4)), ("N", u64::MAX)]));
}

#[test]
fn a_window_over_a_gap_says_where_it_is() {
    let ring = small_ring(32, 2);
    for number in [0, 1, 4, 5] {
        put(&ring, 1, frame(number));
    }
    let source = source(&ring, 1);
    let over = window(&ring, frame(1) + 1, frame(5));
    assert_eq!(genuine(&over.sources[0]), [frame(1), frame(4)]);
    let expected = [("C".to_owned(), frame(2)), ("-".to_owned(), frame(4)), ("C".to_owned(), frame(5))];
    assert_eq!(coverage(&over.sources[0]), expected);
    assert!(!over.is_complete());
    let gap = Gap { begin: frame(2), end: frame(4), cause: GapCause::NeverArrived };
    assert_eq!(ring.gaps(&source, 0, u64::MAX).unwrap(), [gap]);
    let part = Gap { begin: frame(3), end: frame(3) + 7, ..gap };
    assert_eq!(ring.gaps(&source, frame(3), frame(3) + 7).unwrap(), [part]);
    // The edges of the gap, to the tick.
    for (begin, end, expected) in [
        (frame(2) - 1, frame(2), "C"),
        (frame(2), frame(2) + 1, "-"),
        (frame(2) - 1, frame(2) + 1, "C -"),
        (frame(4) - 1, frame(4), "-"),
        (frame(4), frame(4) + 1, "C"),
        (frame(4) - 1, frame(4) + 1, "- C"),
    ] {
        assert_eq!(shape(&window(&ring, begin, end).sources[0]), expected, "[{begin}, {end})");
    }
}

#[test]
fn a_window_across_a_run_change_shows_both_runs() {
    let ring = small_ring(32, 2);
    for number in 0..6 {
        let run = if number < 3 { 7 } else { 8 };
        assert_eq!(put_in(&ring, run, 1, frame(number), SPAN).unwrap(), RingOutcome::Stored);
    }
    let over = window(&ring, frame(2), frame(4));
    let runs: Vec<u32> = over.sources[0].fragments().map(|fragment| fragment.run).collect();
    assert_eq!((runs, over.is_complete()), (vec![7, 8], true));
    for (run, fragments) in [(7, 3), (8, 3), (9, 0)] {
        let ledger = ring.ledger_of(run);
        assert_eq!(
            (ledger.imbalance(), ledger.offered.fragments, ledger.live.ready.fragments),
            (None, fragments, fragments)
        );
    }
    balanced(&ring);
}

#[test]
fn fragments_may_overlap_and_a_tick_counts_once() {
    let ring = small_ring(32, 2);
    for (timestamp, span) in [(100, 50), (120, 10), (140, 20), (160, 1)] {
        assert_eq!(put_in(&ring, 1, 1, timestamp, span).unwrap(), RingOutcome::Stored);
    }
    assert_eq!(genuine(&window(&ring, 125, 126).sources[0]), [100, 120]);
    assert_eq!(genuine(&window(&ring, 149, 161).sources[0]), [100, 140, 160]);
    assert_eq!(shape(&window(&ring, 99, 162).sources[0]), "G C N");
}

#[test]
fn sources_come_as_they_were_asked_for() {
    let ring = small_ring(64, 4);
    for link in [5, 2, 9] {
        put(&ring, link, FIRST);
    }
    let named =
        |window: &forebay_ring::Window| window.sources.iter().map(|one| one.source.values()[1]).collect::<Vec<_>>();
    assert_eq!(named(&window(&ring, FIRST, FIRST + 1)), [2, 5, 9]);
    let never = ring.keyspace().source(&[3, 77]).unwrap();
    let only = RingSources::Only(vec![source(&ring, 9), never, source(&ring, 2)]);
    let some = ring.window(FIRST, FIRST + 1, &only, Duration::ZERO).unwrap();
    assert_eq!(named(&some), [9, 77, 2]);
    assert_eq!(some.sources.iter().map(shape).collect::<Vec<_>>(), ["C", "N", "C"]);
    assert!(ring.gaps(&never, 0, 10).unwrap().is_empty());
    // Looking at a source does not make it one.
    assert_eq!(ring.sources().len(), 3);
}

#[test]
fn calls_that_cannot_be_served_are_invalid() {
    let ring = small_ring(32, 2);
    put(&ring, 1, FIRST);
    let all = RingSources::All;
    for (begin, end, message) in [(5, 5, "empty"), (6, 5, "inverted")] {
        for answer in [
            ring.window(begin, end, &all, Duration::ZERO).err(),
            ring.pin(begin, end, &all, Duration::from_secs(1)).err(),
            ring.gaps(&source(&ring, 1), begin, end).err(),
        ] {
            assert!(refused(answer.map_or(Ok(()), Err), Kind::Invalid).contains(message));
        }
    }
    let foreign = SourceSchema::parse(&["link:u32"]).unwrap().source(&[1]).unwrap();
    let twice = RingSources::Only(vec![source(&ring, 1); 2]);
    refused(ring.window(0, 1, &RingSources::Only(vec![foreign]), Duration::ZERO), Kind::Invalid);
    assert!(refused(ring.window(0, 1, &twice, Duration::ZERO), Kind::Invalid).contains("twice"));
    let options = RingPut::default();
    let one = source(&ring, 1);
    refused(ring.put(&foreign, FIRST, 1, b"x", &options), Kind::Invalid);
    assert!(refused(ring.put(&one, FIRST + 5, 0, b"x", &options), Kind::Invalid).contains("at least one tick"));
    assert!(refused(ring.put(&one, FIRST + 5, 1, &[0; 1001], &options), Kind::Invalid).contains("1000"));
    put(&ring, 2, FIRST);
    assert!(refused(put_in(&ring, 1, 3, FIRST, 1), Kind::Invalid).contains("sources_max of 2"));
    balanced(&ring);
    ring.close().unwrap();
    refused(put_in(&ring, 1, 1, frame(1), SPAN), Kind::Closed);
    refused(ring.window(0, 1, &all, Duration::ZERO), Kind::Closed);
    refused(ring.pin(0, 1, &all, Duration::from_secs(1)), Kind::Closed);
}

#[test]
fn capacity_below_the_declared_history_is_refused() {
    use forebay_testkit::media::SimMedium;
    let mut keyspace = keyspace(2);
    // 11 fragments of 1024 + 56 bytes fill a chunk; 8 chunks for each source, one of them being filled.
    keyspace.source_bytes_per_second = 1_000_000;
    keyspace.history = Duration::from_millis(11 * 7 + 1);
    let config = super::config(16);
    let medium = || SimMedium::new(config.hot_bytes);
    let error = forebay_ring::Ring::create_on(medium(), &keyspace, config.clone());
    let message = refused(error, Kind::Invalid);
    for figure in ["16 chunks of 16384", "78ms", "2 sources", "1000000 bytes/s", "9 chunks each", "303104 bytes"] {
        assert!(message.contains(figure), "{figure}: {message}");
    }
    keyspace.history = Duration::from_millis(77);
    forebay_ring::Ring::create_on(medium(), &keyspace, config.clone()).unwrap();
    // Too few chunks for the sources, regardless of the history.
    let few = super::config(15);
    let error = forebay_ring::Ring::create_on(SimMedium::new(few.hot_bytes), &keyspace, few);
    assert!(refused(error, Kind::Invalid).contains("16 to"));
}

#[test]
fn a_refusal_that_ends_a_window_wakes_who_waits_for_it() {
    let ring = small_ring(16, 2);
    let mut guards = Vec::new();
    let mut number = 0;
    // Every chunk is under a guard: the ring can take nothing more.
    while put_in(&ring, 1, 1, frame(number), SPAN).unwrap() == RingOutcome::Stored {
        guards.push(window(&ring, frame(number), frame(number + 1)));
        number += 1;
    }
    let waiting = ring.named("reader");
    let reader = std::thread::spawn(move || {
        let start = std::time::Instant::now();
        let (begin, end) = (frame(number), frame(number + 2));
        let shown = waiting.window(begin, end, &forebay_ring::RingSources::All, Duration::from_secs(20)).unwrap();
        (shape(&shown.sources[0]), start.elapsed())
    });
    std::thread::sleep(Duration::from_millis(200));
    let refused = put_in(&ring, 1, 1, frame(number + 1), SPAN).unwrap();
    assert_eq!(refused, RingOutcome::Refused(GapCause::NoSpace));
    let (shape, waited) = reader.join().unwrap();
    assert_eq!(shape, "no space");
    assert!(waited < Duration::from_secs(10), "nothing was to come, {waited:?} were waited");
}
