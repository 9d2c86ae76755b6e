//! Fragments out of order, repeated, conflicting, of no bytes; waiting for what comes.

use super::{FIRST, SPAN, balanced, frame, genuine, put, put_in, refused, shape, small_ring, source, window};
use forebay_core::Kind;
use forebay_ring::{RingOutcome, RingPut, RingSources};
use std::time::{Duration, Instant};

#[test]
fn disorder_is_read_in_time_order() {
    let ring = small_ring(64, 2);
    // Across several chunks, far out of order.
    let order: Vec<u64> = (0..120).map(|at| at * 77 % 120).collect();
    order.iter().for_each(|&number| put(&ring, 1, frame(number)));
    let all = window(&ring, FIRST, frame(120));
    assert_eq!(genuine(&all.sources[0]), (0..120).map(frame).collect::<Vec<_>>());
    assert!(all.is_complete());
    for number in 0..120 {
        assert_eq!(genuine(&window(&ring, frame(number), frame(number + 1)).sources[0]), [frame(number)]);
    }
    assert!(ring.sources()[0].chunks > 3);
    balanced(&ring);
}

#[test]
fn what_stands_is_a_duplicate_or_a_conflict() {
    let ring = small_ring(64, 2);
    (0..60).for_each(|number| put(&ring, 1, frame(number)));
    let source = source(&ring, 1);
    for number in [0, 30, 59] {
        assert_eq!(put_in(&ring, 1, 1, frame(number), SPAN).unwrap(), RingOutcome::Duplicate);
        let other = ring.put(&source, frame(number), SPAN, b"other", &RingPut { run: 1, status: 0 });
        assert!(refused(other, Kind::Conflict).contains(&frame(number).to_string()));
        // The same bytes that claim to cover more are not the same fragment.
        refused(put_in(&ring, 1, 1, frame(number), SPAN + 1), Kind::Conflict);
    }
    assert_eq!(genuine(&window(&ring, FIRST, frame(60)).sources[0]).len(), 60);
    let ledger = ring.ledger_of(1);
    let counts = [ledger.offered, ledger.stored, ledger.duplicate, ledger.conflict].map(|tally| tally.fragments);
    assert_eq!(counts, [69, 60, 3, 6]);
    balanced(&ring);
}

#[test]
fn no_bytes_are_a_fragment() {
    let ring = small_ring(32, 2);
    let source = source(&ring, 1);
    for expected in [RingOutcome::Stored, RingOutcome::Duplicate] {
        assert_eq!(ring.put(&source, FIRST, 10, &[], &RingPut::default()).unwrap(), expected);
    }
    let seen = window(&ring, FIRST + 9, FIRST + 10);
    assert_eq!(seen.sources[0].fragments().map(|fragment| fragment.bytes.len()).collect::<Vec<_>>(), [0]);
    assert!(seen.is_complete());
    balanced(&ring);
}

#[test]
fn a_window_waits_until_every_source_has_come() {
    let ring = small_ring(64, 4);
    put(&ring, 1, frame(0));
    let only = RingSources::Only(vec![source(&ring, 1), source(&ring, 2)]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ring.window(frame(0), frame(3), &only, Duration::from_secs(60)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        (1..3).for_each(|number| put(&ring, 1, frame(number)));
        // A source that nobody has seen yet is waited for as well.
        (0..2).for_each(|number| put(&ring, 2, frame(number)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        put(&ring, 2, frame(2));
        assert!(waiting.join().unwrap().is_complete());
    });
    // Later data ends the wait as well: what is missing then is a gap.
    put(&ring, 1, frame(9));
    put(&ring, 2, frame(9));
    let over = ring.window(frame(3), frame(9), &only, Duration::from_secs(60)).unwrap();
    assert_eq!(shape(&over.sources[1]), "-");
}

#[test]
fn a_wait_ends_at_its_deadline_and_with_the_ring() {
    let ring = small_ring(64, 4);
    put(&ring, 1, frame(0));
    let before = Instant::now();
    let over = ring.window(frame(0), frame(2), &RingSources::All, Duration::from_millis(30)).unwrap();
    assert!(before.elapsed() >= Duration::from_millis(30));
    assert_eq!(shape(&over.sources[0]), "C N");
    let unseen = RingSources::Only(vec![source(&ring, 8)]);
    let over = ring.window(frame(0), frame(2), &unseen, Duration::from_millis(30)).unwrap();
    assert_eq!(shape(&over.sources[0]), "N");
    std::thread::scope(|scope| {
        let all = scope.spawn(|| ring.window(frame(0), frame(2), &RingSources::All, Duration::from_secs(60)).unwrap());
        let none = scope.spawn(|| ring.window(frame(0), frame(2), &unseen, Duration::from_secs(60)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        ring.close().unwrap();
        assert_eq!(shape(&all.join().unwrap().sources[0]), "C N");
        assert_eq!(shape(&none.join().unwrap().sources[0]), "N");
    });
    assert!(before.elapsed() < Duration::from_secs(30));
}
