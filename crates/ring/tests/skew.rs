//! Timestamps that cannot be: one link's insanity is its own affair.

use super::{
    FIRST, SPAN, balanced, config, coverage, frame, genuine, keyspace, payload, put, put_in, shape, small_ring, source,
    window,
};
use forebay_core::{GapCause, ManualClock, RingKeyspace};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::time::Duration;

const SKEW: GapCause = GapCause::Skew;
/// 10 ms of skew are 625,000 ticks: flips from bit 20 on are beyond it, those below are not.
const SKEW_BITS: u32 = 20;

struct Readout {
    ring: Ring,
    clock: Arc<ManualClock>,
    links: u64,
    number: u64,
}

impl Readout {
    fn new(links: u64) -> Readout {
        let clock = Arc::new(ManualClock::default());
        clock.advance_ns(5_000_000_000);
        let config = RingConfig { clock: clock.clone(), ..config(links.max(2) * 32) };
        let keyspace = RingKeyspace { max_skew: Duration::from_millis(10), ..keyspace(links.max(2) as u32) };
        let ring = Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap();
        Readout { ring, clock, links, number: 0 }
    }

    /// One frame of every link, in real time; `timestamp` may change what a link says. The answers.
    fn step(&mut self, run: u32, timestamp: impl Fn(u64, u64) -> u64) -> Vec<RingOutcome> {
        let number = self.number;
        self.number += 1;
        self.clock.advance_ns(32_768);
        let one = |link| put_in(&self.ring, run, link, timestamp(link, frame(number)), SPAN).unwrap();
        (0..self.links).map(one).collect()
    }

    fn sane(&mut self, run: u32, frames: u64) {
        for _ in 0..frames {
            assert!(self.step(run, |_, timestamp| timestamp).iter().all(|outcome| *outcome == RingOutcome::Stored));
        }
    }
}

#[test]
fn one_frame_with_any_flipped_bit_is_refused_and_harms_nobody() {
    for bit in SKEW_BITS..64 {
        for links in [1, 2, 5] {
            let mut readout = Readout::new(links);
            readout.sane(1, 20);
            let outcomes = readout.step(1, |link, timestamp| if link == 0 { timestamp ^ 1 << bit } else { timestamp });
            assert_eq!(outcomes[0], RingOutcome::Refused(SKEW), "bit {bit}, {links} links");
            assert!(outcomes[1..].iter().all(|outcome| *outcome == RingOutcome::Stored));
            readout.sane(1, 20);
            let all = window(&readout.ring, frame(0), frame(41));
            assert_eq!(shape(&all.sources[0]), "C skew C", "bit {bit}");
            assert!(all.sources[1..].iter().all(|source| shape(source) == "C"));
            let gaps = readout.ring.gaps(&source(&readout.ring, 0), 0, u64::MAX).unwrap();
            assert_eq!(gaps.iter().map(|gap| (gap.begin, gap.end)).collect::<Vec<_>>(), [(frame(20), frame(21))]);
            let status = &readout.ring.sources()[0];
            assert_eq!((status.refused.skew, status.newest), (1, Some(frame(41))));
            balanced(&readout.ring);
        }
    }
}

#[test]
fn a_flip_within_the_skew_costs_at_most_its_own_frame() {
    for bit in 0..SKEW_BITS - 1 {
        let mut readout = Readout::new(3);
        readout.sane(1, 600);
        let mut wrong = 0;
        for at in 0..600 {
            let flip = |link, timestamp: u64| if link == 0 && at == 5 { timestamp ^ 1 << bit } else { timestamp };
            let number = readout.number;
            readout.number += 1;
            readout.clock.advance_ns(32_768);
            for link in 0..3 {
                // Where the flipped frame has a sane one's timestamp, the second of them is a conflict.
                match put_in(&readout.ring, 1, link, flip(link, frame(number)), SPAN) {
                    Ok(RingOutcome::Stored | RingOutcome::Duplicate) => {}
                    other => {
                        assert_eq!(link, 0, "{other:?}");
                        wrong += 1;
                    }
                }
            }
        }
        assert!(wrong <= 1, "bit {bit}: {wrong}");
        let newest = window(&readout.ring, frame(1199), frame(1200));
        assert!(newest.is_complete(), "bit {bit}");
        balanced(&readout.ring);
    }
}

#[test]
fn a_link_that_stays_insane_is_refused_until_it_comes_back() {
    for bit in [SKEW_BITS, 32, 40, 63] {
        let mut readout = Readout::new(4);
        readout.sane(1, 20);
        for _ in 0..300 {
            let outcomes = readout.step(1, |link, timestamp| if link == 3 { timestamp ^ 1 << bit } else { timestamp });
            assert_eq!(outcomes[3], RingOutcome::Refused(SKEW));
            assert!(outcomes[..3].iter().all(|outcome| *outcome == RingOutcome::Stored));
        }
        let skew = readout.ring.sources()[3].skew_ticks.unsigned_abs();
        assert!(skew >= 1 << (bit - 1), "{skew}");
        // Nobody waits for it, nobody lost anything to it, and its first sane frame is taken.
        readout.sane(1, 20);
        let all = window(&readout.ring, frame(300), frame(340));
        assert_eq!(shape(&all.sources[3]), "skew C");
        assert!(all.sources[..3].iter().all(|source| shape(source) == "C"));
        assert_eq!(readout.ring.ledger().refused.fragments, 300);
        balanced(&readout.ring);
    }
}

#[test]
fn the_first_frame_of_a_run_may_be_insane() {
    for bit in [SKEW_BITS, 30, 41, 62, 63] {
        let mut readout = Readout::new(5);
        let insane = |link, timestamp: u64| if link == 0 { timestamp ^ 1 << bit } else { timestamp };
        let mut refused = 0;
        for at in 0..20 {
            let outcomes = readout.step(1, insane);
            let sane = outcomes[1..].iter().filter(|outcome| **outcome == RingOutcome::Stored).count();
            refused += 4 - sane;
            assert!(sane == 4 || at < 4, "bit {bit}: {outcomes:?} at frame {at}");
        }
        // The majority has its way after three frames of each.
        assert!(refused <= 12, "{refused}");
        assert_eq!(readout.step(1, insane)[0], RingOutcome::Refused(SKEW));
        // The insane link comes back; what it said first does not get in its way.
        readout.sane(1, 20);
        let newest = window(&readout.ring, frame(25), frame(41));
        assert!(newest.is_complete(), "bit {bit}: {newest:?}");
        assert_eq!(shape(&window(&readout.ring, frame(41), frame(42)).sources[0]), "N", "bit {bit}");
        balanced(&readout.ring);
    }
}

#[test]
fn a_new_run_may_begin_anywhere() {
    for (jump, text) in [(1 << 50, "forward"), (0_u64.wrapping_sub(FIRST - 1000), "back")] {
        let mut readout = Readout::new(3);
        readout.sane(1, 50);
        let moved = |_, timestamp: u64| timestamp.wrapping_add(jump);
        // The same run does not jump for one link, no matter what it says.
        let one = readout.step(1, |link, timestamp| if link == 1 { timestamp.wrapping_add(jump) } else { timestamp });
        assert_eq!(one[1], RingOutcome::Refused(SKEW), "{text}");
        let from = readout.number;
        for _ in 0..50 {
            let outcomes = readout.step(2, moved);
            assert!(outcomes.iter().all(|outcome| *outcome == RingOutcome::Stored), "{text}: {outcomes:?}");
        }
        let (begin, end) = (frame(from).wrapping_add(jump), frame(from + 50).wrapping_add(jump));
        let new = window(&readout.ring, begin, end);
        assert!(new.is_complete(), "{text}: {new:?}");
        assert_eq!(shape(&window(&readout.ring, end, end + 1).sources[0]), "N", "{text}");
        // What is left of the old run is still there, by its own ticks.
        let old = window(&readout.ring, frame(0), frame(50));
        assert!(old.is_complete(), "{text}: {old:?}");
        assert_eq!(genuine(&old.sources[2]).len(), 50);
        assert_eq!((readout.ring.ledger_of(1).imbalance(), readout.ring.ledger_of(2).imbalance()), (None, None));
        balanced(&readout.ring);
    }
}

#[test]
fn links_change_the_run_one_after_the_other() {
    let mut readout = Readout::new(4);
    readout.sane(1, 20);
    // The timing system started again with run 2, and half of the links lag behind with frames of run 1.
    for _ in 0..5 {
        let number = readout.number;
        readout.number += 1;
        readout.clock.advance_ns(32_768);
        for link in 0..4 {
            let (run, timestamp) = if link < 2 { (2, frame(number) + (1 << 45)) } else { (1, frame(number)) };
            assert_eq!(put_in(&readout.ring, run, link, timestamp, SPAN).unwrap(), RingOutcome::Stored, "link {link}");
        }
    }
    balanced(&readout.ring);
}

#[test]
fn a_jump_of_most_links_within_a_run_is_believed_in_the_end() {
    let mut readout = Readout::new(3);
    readout.sane(1, 20);
    let mut refused = 0;
    for _ in 0..20 {
        let outcomes = readout.step(1, |_, timestamp| timestamp + (1 << 45));
        refused += outcomes.iter().filter(|outcome| **outcome != RingOutcome::Stored).count();
    }
    assert!((1..=9).contains(&refused), "{refused}");
}

#[test]
fn slow_drift_is_followed_in_both_directions() {
    for drift in [99_i64, -99] {
        let mut readout = Readout::new(3);
        for at in 0..40_000_i64 {
            let outcomes = readout.step(1, |_, timestamp| timestamp.wrapping_add_signed(at * drift));
            assert!(outcomes.iter().all(|outcome| *outcome == RingOutcome::Stored), "{at}: {outcomes:?}");
            if at % 1000 == 0 {
                readout.ring.tick();
            }
        }
        // 4 million ticks in all, six times the skew; a link that does not drift with them is now the insane one.
        let outcomes =
            readout.step(
                1,
                |link, timestamp| {
                    if link == 2 { timestamp } else { timestamp.wrapping_add_signed(40_000 * drift) }
                },
            );
        assert_eq!(outcomes[2], RingOutcome::Refused(SKEW));
        balanced(&readout.ring);
    }
}

#[test]
fn ticks_past_the_end_are_refused_or_invalid() {
    let mut readout = Readout::new(2);
    readout.sane(1, 3);
    assert_eq!(put_in(&readout.ring, 1, 0, u64::MAX, SPAN).unwrap(), RingOutcome::Refused(SKEW));
    // As the first word of a ring it is sane, and cannot be taken all the same.
    let other = Readout::new(1);
    super::refused(put_in(&other.ring, 1, 0, u64::MAX - 5, SPAN), forebay_core::Kind::Invalid);
    assert_eq!(put_in(&other.ring, 1, 0, u64::MAX - 5, 5).unwrap(), RingOutcome::Stored);
}

#[test]
fn a_frame_far_ahead_makes_nothing_late_once_its_chunk_is_evicted() {
    let ring = small_ring(16, 2);
    (0..10).for_each(|number| put(&ring, 1, frame(number)));
    // Within the skew, and further ahead than the ring's memory reaches back.
    put(&ring, 1, frame(2000));
    let mut number = 10;
    while ring.stats().evicted < 20 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    assert!(number < 2000, "{number}");
    // What never came is not called gone, except for the frame that was there.
    let expected = [("C", frame(number)), ("-", frame(2000)), ("G", frame(2001)), ("N", frame(2002))];
    let found = coverage(&window(&ring, frame(number - 1), frame(2002)).sources[0]);
    assert_eq!(found, expected.map(|(state, end)| (state.to_owned(), end)));
    balanced(&ring);
}

#[test]
fn a_slow_clock_is_followed_through_a_long_silence() {
    let clock = Arc::new(ManualClock::default());
    let config = RingConfig { clock: clock.clone(), ..config(32) };
    for ticks_per_second in [1, 7, 1000, 40_000_001] {
        let keyspace = RingKeyspace { ticks_per_second, max_skew: Duration::from_secs(2), ..keyspace(2) };
        let ring = Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace, config.clone()).unwrap();
        let mut timestamp = 1 << 30;
        for hours in [0, 1, 10, 100, 5000] {
            clock.advance_ns(hours * 3600 * 1_000_000_000);
            timestamp += hours * 3600 * ticks_per_second;
            let outcomes = [1, 2].map(|link| put_in(&ring, 1, link, timestamp, 1).unwrap());
            assert_eq!(outcomes, [RingOutcome::Stored; 2], "{ticks_per_second} Hz, after {hours} hours");
        }
    }
}

#[test]
fn a_reservation_from_before_a_new_clock_moves_no_ticks() {
    let mut readout = Readout::new(1);
    readout.sane(1, 20);
    let link = source(&readout.ring, 0);
    let held = frame(20);
    let put = RingPut { run: 1, status: held as u32 };
    let mut reservation = readout.ring.reserve(&link, held, SPAN, payload(&link, held).len(), &put).unwrap();
    // The timing system starts again, and is believed.
    for _ in 0..20 {
        readout.step(1, |_, timestamp| timestamp - FIRST / 2);
    }
    let newest = frame(39) - FIRST / 2;
    let end = newest + 2 * u64::from(SPAN);
    assert_eq!(shape(&window(&readout.ring, newest, end).sources[0]), "C N");
    reservation.copy_from_slice(&payload(&link, held));
    assert_eq!(reservation.commit().unwrap(), RingOutcome::Stored);
    assert_eq!(shape(&window(&readout.ring, newest, end).sources[0]), "C N", "what is still to come reads as a gap");
    assert_eq!(genuine(&window(&readout.ring, held, held + 1).sources[0]), [held]);
    balanced(&readout.ring);
}
