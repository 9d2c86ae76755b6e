//! Memory of the ring, filled in place.

use super::{SPAN, balanced, frame, genuine, payload, put, put_in, refused, shape, small_ring, source, window};
use forebay_core::{GapCause, Kind};
use forebay_ring::{Ring, RingOutcome, RingPut, RingReservation, RingSources};
use std::time::Duration;

fn reserve(ring: &Ring, number: u64) -> RingReservation {
    let source = source(ring, 1);
    let bytes = payload(&source, frame(number));
    let put = RingPut { run: 1, status: frame(number) as u32 };
    let mut reservation = ring.reserve(&source, frame(number), SPAN, bytes.len(), &put).unwrap();
    reservation.copy_from_slice(&bytes);
    reservation
}

#[test]
fn a_reservation_shows_when_it_is_committed() {
    let ring = small_ring(32, 2);
    put(&ring, 1, frame(0));
    let reservation = reserve(&ring, 1);
    put(&ring, 1, frame(2));
    // Reserved ticks are not a gap: they may still come.
    assert_eq!(shape(&window(&ring, frame(0), frame(4)).sources[0]), "C N C N");
    assert!(refused(put_in(&ring, 1, 1, frame(1), SPAN), Kind::Unavailable).contains("reservation"));
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| ring.window(frame(0), frame(3), &RingSources::All, Duration::from_secs(60)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        assert_eq!(reservation.commit().unwrap(), RingOutcome::Stored);
        assert_eq!(genuine(&waiting.join().unwrap().sources[0]), [frame(0), frame(1), frame(2)]);
    });
    assert_eq!(put_in(&ring, 1, 1, frame(1), SPAN).unwrap(), RingOutcome::Duplicate);
    balanced(&ring);
}

#[test]
fn a_reservation_that_is_dropped_leaves_nothing() {
    let ring = small_ring(32, 2);
    drop(reserve(&ring, 0));
    reserve(&ring, 0).abort();
    assert_eq!(ring.ledger().offered.fragments, 0);
    put(&ring, 1, frame(0));
    put(&ring, 1, frame(2));
    drop(reserve(&ring, 1));
    assert_eq!(shape(&window(&ring, frame(0), frame(3)).sources[0]), "C - C");
    balanced(&ring);
    // Void places do not make a chunk corrupt.
    ring.tick();
    ring.close().unwrap();
}

#[test]
fn a_reservation_keeps_its_chunk() {
    let ring = small_ring(16, 2);
    put(&ring, 1, frame(0));
    let reservation = reserve(&ring, 1);
    let mut number = 2;
    while ring.stats().evicted < 40 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    let before = window(&ring, frame(0), frame(2));
    assert_eq!(genuine(&before.sources[0]), [frame(0)]);
    drop(before);
    assert_eq!(reservation.commit().unwrap(), RingOutcome::Stored);
    assert_eq!(genuine(&window(&ring, frame(0), frame(2)).sources[0]), [frame(0), frame(1)]);
    balanced(&ring);
}

#[test]
fn a_reservation_says_at_commit_what_stands_in_its_way() {
    let ring = small_ring(16, 2);
    put(&ring, 1, frame(0));
    assert_eq!(reserve(&ring, 0).commit().unwrap(), RingOutcome::Duplicate);
    let mut other = reserve(&ring, 0);
    other.fill(0);
    refused(other.commit(), Kind::Conflict);
    let mut number = 1;
    while ring.stats().evicted < 10 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    assert_eq!(reserve(&ring, 1).commit().unwrap(), RingOutcome::Refused(GapCause::TooLate));
    let ledger = ring.ledger();
    assert_eq!((ledger.offered.fragments, ledger.late.fragments), (number + 3, 1));
    balanced(&ring);
}

#[test]
fn too_many_reservations_of_a_source_are_told() {
    let ring = small_ring(256, 2);
    let source = source(&ring, 1);
    let put = RingPut::default();
    let all: Vec<_> = (0..1024).map(|number| ring.reserve(&source, frame(number), SPAN, 1, &put).unwrap()).collect();
    refused(ring.reserve(&source, frame(5000), SPAN, 1, &put), Kind::Unavailable);
    for reservation in all {
        assert_eq!(reservation.commit().unwrap(), RingOutcome::Stored);
    }
    assert!(window(&ring, frame(0), frame(1024)).is_complete());
    balanced(&ring);
}

#[test]
fn a_reservation_outlives_the_ring_and_is_told_so() {
    let ring = small_ring(32, 2);
    put(&ring, 1, frame(0));
    let reservation = reserve(&ring, 1);
    ring.close().unwrap();
    refused(reservation.commit(), Kind::Closed);
}
