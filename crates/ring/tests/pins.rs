//! Pins: what they keep, for how long, and how much.

use super::{
    SPAN, balanced, config, frame, genuine, keyspace, put, put_in, refused, shape, small_ring, source, window,
};
use forebay_core::{GapCause, Kind, ManualClock};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingSources};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::time::Duration;

const CHUNK: u64 = 16 << 10;
const HOUR: Duration = Duration::from_secs(3600);

fn with_clock(chunks: u64, pin_percent: u8) -> (Ring, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let config = RingConfig { clock: clock.clone(), ..config(chunks) };
    let keyspace = forebay_core::RingKeyspace { pin_percent, ..keyspace(2) };
    (Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap(), clock)
}

/// Puts frames until the ring is full, then this many times as much again; the next number.
fn go_round(ring: &Ring, mut number: u64, times: u64) -> u64 {
    let evicted = ring.stats().evicted + times * u64::from(ring.stats().segments);
    while ring.stats().evicted < evicted {
        put(ring, 1, frame(number));
        number += 1;
    }
    number
}

#[test]
fn a_pin_keeps_its_ticks_until_it_is_released() {
    let ring = small_ring(16, 2);
    (0..30).for_each(|number| put(&ring, 1, frame(number)));
    let pin = ring.pin(frame(3), frame(5), &RingSources::All, HOUR).unwrap();
    assert_eq!(pin.bytes(), CHUNK);
    let next = go_round(&ring, 30, 2);
    assert_eq!(genuine(&window(&ring, frame(3), frame(5)).sources[0]), [frame(3), frame(4)]);
    assert_eq!(shape(&window(&ring, frame(25), frame(30)).sources[0]), "G", "what the pin does not name goes");
    let stats = ring.stats();
    assert_eq!((stats.pinned_bytes, stats.pin_quota_bytes, stats.pins[0].id), (CHUNK, 8 * CHUNK, pin.id()));
    pin.release();
    assert_eq!((ring.stats().pinned_bytes, ring.stats().pins.len()), (0, 0));
    go_round(&ring, next, 1);
    assert_eq!(shape(&window(&ring, frame(3), frame(5)).sources[0]), "G");
    balanced(&ring);
}

#[test]
fn a_pin_names_sources() {
    let ring = small_ring(32, 2);
    for number in 0..12 {
        put(&ring, 1, frame(number));
        put(&ring, 2, frame(number));
    }
    let only = RingSources::Only(vec![source(&ring, 2)]);
    let _pin = ring.pin(frame(0), frame(2), &only, HOUR).unwrap();
    for number in 12..400 {
        put(&ring, 1, frame(number));
        put(&ring, 2, frame(number));
    }
    let start = window(&ring, frame(0), frame(2));
    assert_eq!([shape(&start.sources[0]), shape(&start.sources[1])], ["G", "C"]);
}

#[test]
fn a_pin_ends_by_itself() {
    let (ring, clock) = with_clock(16, 50);
    (0..30).for_each(|number| put(&ring, 1, frame(number)));
    let pin = ring.pin(frame(0), frame(2), &RingSources::All, Duration::from_secs(10)).unwrap();
    clock.advance_ns(9_000_000_000);
    pin.extend(Duration::from_secs(10)).unwrap();
    clock.advance_ns(9_999_999_999);
    assert!(!pin.expired());
    let next = go_round(&ring, 30, 1);
    assert_eq!(shape(&window(&ring, frame(0), frame(2)).sources[0]), "C");
    clock.advance_ns(1);
    assert!(pin.expired());
    assert!(refused(pin.extend(HOUR), Kind::Fenced).contains("deadline"));
    assert_eq!(ring.stats().pinned_bytes, 0);
    go_round(&ring, next, 1);
    assert_eq!(shape(&window(&ring, frame(0), frame(2)).sources[0]), "G");
}

#[test]
fn the_quota_names_who_holds_it() {
    let (ring, _) = with_clock(16, 25);
    let next = go_round(&ring, 0, 1);
    let oldest = ring.sources()[0].oldest.unwrap();
    let trigger = ring.named("trigger 7");
    let all = RingSources::All;
    let first = trigger.pin(oldest, oldest + 1, &all, HOUR).unwrap();
    let newest = ring.named("display").pin(frame(next - 1), frame(next), &all, HOUR).unwrap();
    assert_eq!((first.bytes(), newest.bytes()), (CHUNK, CHUNK));
    // Four chunks are the quota; the whole ring is more.
    let message = refused(ring.pin(0, frame(next), &all, HOUR), Kind::Full);
    for part in ["trigger 7 (pin 1) 16384", "display (pin 2) 16384", "quota is 65536", "32768 are held"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A pin that was refused keeps nothing.
    assert_eq!(ring.stats().pinned_bytes, 2 * CHUNK);
    drop(first);
    assert_eq!(ring.stats().pinned_bytes, CHUNK);
    assert!(refused(ring.pin(0, 1, &all, Duration::ZERO), Kind::Invalid).contains("lasts"));
    // Nothing there and nothing to come costs nothing.
    assert_eq!(ring.pin(0, 1, &all, HOUR).unwrap().bytes(), 0);
}

#[test]
fn a_pin_on_the_future_is_a_recording() {
    let (ring, clock) = with_clock(64, 50);
    // At its declared rate a source fills a chunk of 11 fragments of 1000 bytes in 11 ms: 16 frames a chunk here, as
    // they are shorter; the clock goes with the data.
    let mut number = 0;
    let run = |number: &mut u64, frames: u64| {
        for _ in 0..frames {
            put(&ring, 1, frame(*number));
            *number += 1;
            clock.advance_ns(32_768);
        }
    };
    run(&mut number, 100);
    let recording = ring.pin(frame(200), frame(260), &RingSources::All, HOUR).unwrap();
    // 160 frames are 5.2 ms: one chunk at the declared rate, and one because it begins in the middle of one.
    assert_eq!(recording.bytes(), 2 * CHUNK);
    assert_eq!(ring.stats().pinned_bytes, 2 * CHUNK);
    run(&mut number, 3000);
    // The source is faster than declared (30 MB/s for 1 MB/s): the grant keeps the oldest two chunks.
    let kept = genuine(&window(&ring, frame(200), frame(260)).sources[0]);
    assert_eq!(kept[..20], (200..220).map(frame).collect::<Vec<_>>());
    assert!(ring.stats().evicted > 50);
    drop(recording);
    run(&mut number, 2000);
    assert_eq!(shape(&window(&ring, frame(200), frame(260)).sources[0]), "G");
    balanced(&ring);
}

#[test]
fn a_recording_at_the_declared_rate_is_whole() {
    let (ring, clock) = with_clock(64, 90);
    let source = source(&ring, 1);
    // 1000 bytes a millisecond: exactly as declared.
    let ticks = 62_500;
    let mut number = 0_u64;
    let mut step = || {
        let put = forebay_ring::RingPut::default();
        let outcome = ring.put(&source, number * ticks, ticks as u32, &[number as u8; 1000], &put);
        assert_eq!(outcome.unwrap(), RingOutcome::Stored);
        number += 1;
        clock.advance_ns(1_000_000);
    };
    (0..105).for_each(|_| step());
    let recording = ring.pin(120 * ticks, 400 * ticks, &RingSources::All, HOUR).unwrap();
    (0..3000).for_each(|_| step());
    let kept = window(&ring, 120 * ticks, 400 * ticks);
    assert_eq!((kept.is_complete(), kept.sources[0].fragments().len()), (true, 280), "{recording:?} {kept:?}");
    assert_eq!(shape(&window(&ring, 0, 100 * ticks).sources[0]), "G");
    balanced(&ring);
}

#[test]
fn a_ring_full_of_pins_refuses_and_the_account_is_exact() {
    let (ring, _) = with_clock(16, 100);
    let next = go_round(&ring, 0, 1);
    let pin = ring.pin(0, frame(next + 100), &RingSources::Only(vec![source(&ring, 1)]), HOUR);
    // The whole region is granted: all chunks that are there, and nothing is left for those to come.
    let pin = pin.or_else(|_| ring.pin(0, frame(next), &RingSources::All, HOUR)).unwrap();
    let before = ring.ledger();
    let (mut stored, mut refusals) = (0, 0);
    for number in next..next + 100 {
        match put_in(&ring, 2, 1, frame(number), SPAN).unwrap() {
            RingOutcome::Stored => stored += 1,
            outcome => {
                assert_eq!(outcome, RingOutcome::Refused(GapCause::NoSpace));
                refusals += 1;
            }
        }
    }
    assert!(refusals > 60 && stored < 40, "{stored} {refusals}");
    let ledger = ring.ledger();
    assert_eq!(ledger.expired, before.expired);
    assert_eq!(ledger.refused.fragments, refusals);
    assert_eq!(ledger.stored.fragments, before.stored.fragments + stored);
    assert_eq!(ring.ledger_of(2).offered.fragments, 100);
    let gap = ring.gaps(&source(&ring, 1), frame(next), frame(next + 100)).unwrap();
    assert_eq!(gap.len(), 1);
    assert_eq!((gap[0].begin, gap[0].end, gap[0].cause), (frame(next + stored), frame(next + 100), GapCause::NoSpace));
    balanced(&ring);
    drop(pin);
    put(&ring, 1, frame(next + 100));
    balanced(&ring);
}

#[test]
fn pins_are_void_after_a_restart() {
    let dir = super::TempDir::new();
    let ring = Ring::create(dir.path(), &keyspace(2), config(16)).unwrap();
    (0..30).for_each(|number| put(&ring, 1, frame(number)));
    let pin = ring.pin(frame(0), frame(30), &RingSources::All, HOUR).unwrap();
    ring.close().unwrap();
    refused(pin.extend(HOUR), Kind::Closed);
    drop((pin, ring));
    let ring = Ring::open(dir.path(), config(16)).unwrap();
    assert_eq!((ring.stats().pinned_bytes, ring.stats().fragments), (0, 30));
    go_round(&ring, 30, 1);
    assert_eq!(shape(&window(&ring, frame(0), frame(30)).sources[0]), "G");
}
