//! Threads on one ring: what a window shows is what was put, even if data is evicted meanwhile.

use super::{SPAN, TempDir, balanced, config, frame, genuine, keyspace, payload, put_in};
use forebay_core::{GapCause, Kind, MonotonicClock};
use forebay_ring::{Coverage, Ring, RingConfig, RingOutcome, RingPut, RingSources};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LINKS: u64 = 3;
const FRAMES: u64 = 12_000;
/// Fragments that readers must have verified.
const SHOWN_MIN: u64 = 5000;

fn open(dir: &TempDir, chunks: u64, links: u64) -> Ring {
    let config = RingConfig { maintenance: true, clock: Arc::new(MonotonicClock::default()), ..config(chunks) };
    Ring::create(dir.path(), &keyspace(links as u32), config).unwrap()
}

#[test]
fn an_eviction_that_races_a_read_shows_no_reused_bytes() {
    let dir = TempDir::new();
    let ring = open(&dir, LINKS * 10, LINKS);
    let newest = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let shown = AtomicU64::new(0);
    let mut put = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..LINKS)
            .map(|link| {
                let (ring, newest, shown) = (ring.clone(), &newest, &shown);
                scope.spawn(move || {
                    let start = Instant::now();
                    let mut number = 0;
                    // Long enough for the readers, however the threads are scheduled.
                    while number < FRAMES || shown.load(Ordering::Relaxed) < SHOWN_MIN {
                        assert!(start.elapsed() < Duration::from_secs(60), "the readers see nothing");
                        let outcome = put_in(&ring, 1, link, frame(number), SPAN).unwrap();
                        // Two readers cannot hold everything.
                        assert_eq!(outcome, RingOutcome::Stored);
                        newest.fetch_max(number, Ordering::Relaxed);
                        number += 1;
                    }
                    number
                })
            })
            .collect();
        for reader in 0..2_u64 {
            let ring = ring.named(&format!("reader {reader}"));
            let (newest, over, shown) = (&newest, &over, &shown);
            scope.spawn(move || {
                let mut turn = reader;
                while !over.load(Ordering::Relaxed) {
                    turn += 1;
                    // Around what is evicted at this moment, as far as a reader can tell.
                    let oldest = ring.sources().iter().filter_map(|source| source.oldest).min().unwrap_or(frame(0));
                    let begin = match turn % 3 {
                        0 => oldest,
                        1 => oldest + u64::from(SPAN) * (turn % 17),
                        _ => frame(newest.load(Ordering::Relaxed).saturating_sub(turn % 40)),
                    };
                    let end = begin + u64::from(SPAN) * 3 + turn % 5;
                    let window = ring.window(begin, end, &RingSources::All, Duration::ZERO).unwrap();
                    for source in &window.sources {
                        let timestamps = genuine(source);
                        shown.fetch_add(timestamps.len() as u64, Ordering::Relaxed);
                        let covered: u64 = timestamps
                            .iter()
                            .map(|&timestamp| (timestamp + u64::from(SPAN)).min(end) - timestamp.max(begin))
                            .sum();
                        let complete = source.coverage.iter().filter(|stretch| stretch.state == Coverage::Complete);
                        assert_eq!(complete.map(|stretch| stretch.end - stretch.begin).sum::<u64>(), covered);
                        // One producer in order: what is not there is gone or to come, never a gap.
                        let gap = source.coverage.iter().find(|one| matches!(one.state, Coverage::Gap(_)));
                        assert_eq!(gap, None, "{source:?}");
                    }
                    if turn % 4 == 0 {
                        std::thread::yield_now();
                        // Still the same after others went on.
                        window.sources.iter().for_each(|source| drop(genuine(source)));
                    }
                }
            });
        }
        let auditor = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                balanced(&ring);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        for writer in writers {
            put += writer.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        auditor.join().unwrap();
    });
    let ledger = ring.ledger();
    assert_eq!((ledger.imbalance(), ledger.offered.fragments), (None, put));
    assert_eq!(ledger.stored, ledger.offered);
    assert!(ring.stats().evicted > 500, "this proves nothing");
    assert!(ring.stats().holders.is_empty());
}

#[test]
fn several_producers_of_one_source_store_each_timestamp_once() {
    let dir = TempDir::new();
    let ring = open(&dir, 40, 2);
    let counts: Vec<(u64, u64, u64)> = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..3_u64)
            .map(|producer| {
                let ring = ring.clone();
                scope.spawn(move || {
                    let (mut stored, mut duplicate, mut other) = (0, 0, 0);
                    for number in 0..4000 {
                        let source = super::source(&ring, 1);
                        let bytes = payload(&source, frame(number));
                        let put = RingPut { run: 1, status: frame(number) as u32 };
                        // One of them reserves.
                        let outcome = if producer == 2 && number % 3 == 0 {
                            ring.reserve(&source, frame(number), SPAN, bytes.len(), &put).and_then(|mut reservation| {
                                reservation.copy_from_slice(&bytes);
                                reservation.commit()
                            })
                        } else {
                            ring.put(&source, frame(number), SPAN, &bytes, &put)
                        };
                        match outcome {
                            Ok(RingOutcome::Stored) => stored += 1,
                            Ok(RingOutcome::Duplicate) => duplicate += 1,
                            Ok(RingOutcome::Refused(GapCause::TooLate)) => other += 1,
                            Ok(other) => panic!("{other:?}"),
                            Err(error) => assert_eq!(error.kind(), Kind::Unavailable),
                        }
                    }
                    (stored, duplicate, other)
                })
            })
            .collect();
        producers.into_iter().map(|producer| producer.join().unwrap()).collect()
    });
    let sum = counts.iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
    let ledger = ring.ledger();
    assert_eq!((ledger.stored.fragments, ledger.duplicate.fragments, ledger.late.fragments), sum);
    assert_eq!(sum.0, 4000, "each timestamp is stored by one of them");
    balanced(&ring);
}

#[test]
fn pins_race_evictions_and_keep_what_they_were_granted() {
    let dir = TempDir::new();
    let ring = open(&dir, 24, 2);
    let over = AtomicBool::new(false);
    let newest = AtomicU64::new(0);
    let mut kept = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                let outcome = put_in(&ring, 1, 1, frame(number), SPAN).unwrap();
                assert_eq!(outcome, RingOutcome::Stored);
                newest.store(number, Ordering::Relaxed);
                number += 1;
            }
        });
        while ring.stats().evicted < 24 {
            std::thread::yield_now();
        }
        for turn in 0..300_u64 {
            // Near the oldest: evictions are just coming that way.
            let oldest = ring.sources()[0].oldest.unwrap();
            let begin = oldest + (turn % 60) * u64::from(SPAN);
            let pin = ring.pin(begin, begin + 1, &RingSources::All, Duration::from_secs(60)).unwrap();
            let complete = |ring: &Ring| {
                let window = ring.window(begin, begin + 1, &RingSources::All, Duration::ZERO).unwrap();
                let complete = window.is_complete();
                window.sources.iter().for_each(|source| drop(genuine(source)));
                complete
            };
            // Whether it was there in time is open; but what is there under the pin stays.
            let there = complete(&ring);
            let evicted = ring.stats().evicted;
            while there && ring.stats().evicted < evicted + 30 {
                std::thread::yield_now();
            }
            assert_eq!(complete(&ring), there, "turn {turn}");
            kept += u64::from(there);
            drop(pin);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(kept > 50, "{kept} pins of 300 came in time: this proves nothing");
    balanced(&ring);
}

#[test]
fn windows_outlive_the_ring_and_keep_others_out() {
    let dir = TempDir::new();
    let ring = open(&dir, 24, 2);
    (0..20).for_each(|number| super::put(&ring, 1, frame(number)));
    let window = ring.window(frame(0), frame(20), &RingSources::All, Duration::ZERO).unwrap();
    ring.close().unwrap();
    drop(ring);
    super::refused(Ring::open(dir.path(), config(24)), Kind::Unavailable);
    assert_eq!(genuine(&window.sources[0]).len(), 20);
    drop(window);
    let ring = Ring::open(dir.path(), config(24)).unwrap();
    assert_eq!(ring.stats().fragments, 20);
}
