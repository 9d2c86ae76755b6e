//! Windows beside the close of their ring.

use crate::close::{closed_or_outlasted, open_when_free, race};
use crate::common::TempDir;
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut, RingSources, Window};
use forebay_store::core::{Kind, ManualClock, RingKeyspace, SourceId, SourceSchema};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SPAN: u32 = 2048;
const FIRST: u64 = 1 << 40;
const CHUNKS: u64 = 16;

fn keyspace() -> RingKeyspace {
    RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["link:u32"]).unwrap(),
        ticks_per_second: 62_500_000,
        sources_max: 1,
        history: Duration::from_millis(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(3600),
        fragment_bytes_max: 1000,
        pin_percent: 50,
    }
}

fn config() -> RingConfig {
    RingConfig {
        hot_bytes: 8192 + CHUNKS * (16 << 10),
        segment_bytes: Some(16 << 10),
        clock: Arc::new(ManualClock::default()),
        maintenance: false,
        ..RingConfig::default()
    }
}

fn source(ring: &Ring) -> SourceId {
    ring.keyspace().source(&[1]).unwrap()
}

/// Puts frames whose bytes name their life.
fn fill(ring: &Ring, life: u8, frames: std::ops::Range<u64>) {
    for number in frames {
        let timestamp = FIRST + number * u64::from(SPAN);
        let put = ring.put(&source(ring), timestamp, SPAN, &[life; 1000], &RingPut::default());
        assert_eq!(put.unwrap(), RingOutcome::Stored, "life {life}, frame {number}");
    }
}

/// More than the ring holds.
fn overwrite(dir: &Path, life: u8) {
    let ring = Ring::open(dir, config()).unwrap();
    fill(&ring, life, 1000..1000 + CHUNKS * 20);
}

#[track_caller]
fn is_of(window: &Window, life: u8) {
    for fragment in window.sources.iter().flat_map(|source| source.fragments()) {
        assert!(fragment.bytes.iter().all(|&byte| byte == life), "a window shows bytes of another life");
        fragment.verify().unwrap();
    }
}

/// The close wakes the caller that waits for a window; that caller gets what is there, under a guard.
#[test]
fn a_window_that_waits_while_the_ring_closes_keeps_its_memory() {
    let (mut rounds, mut kept_some) = (0, false);
    let begun = Instant::now();
    while rounds < 10 || !kept_some && begun.elapsed() < Duration::from_secs(60) {
        rounds += 1;
        let dir = TempDir::new();
        let ring = Ring::create(dir.path(), &keyspace(), config()).unwrap();
        fill(&ring, 1, 0..20);
        let end = FIRST + 40 * u64::from(SPAN);
        let window = std::thread::scope(|scope| {
            let waits = scope.spawn(|| ring.window(FIRST, end, &RingSources::All, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            ring.close().unwrap();
            // The window may be held by now, or on its way: in neither case may others have the memory.
            match Ring::open(dir.path(), config()) {
                Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
                Ok(next) => {
                    fill(&next, 2, 1000..1000 + CHUNKS * 20);
                }
            }
            waits.join().unwrap()
        });
        let window = match window {
            Ok(window) => window,
            // On a busy machine the reader may have come only after the close.
            Err(error) => {
                assert_eq!(error.kind(), Kind::Closed, "{error}");
                continue;
            }
        };
        kept_some = true;
        assert_eq!(window.sources[0].fragments().len(), 20);
        is_of(&window, 1);
        let kept = ring.kept();
        assert_eq!((kept.calls, kept.holders.len()), (0, 1), "{kept}");
        assert!(kept.to_string().contains("guards and 0 reservations of `ring`"), "{kept}");
        drop(window);
        assert!(ring.kept().is_empty());
        overwrite(dir.path(), 2);
    }
    assert!(kept_some, "who waits for a window gets what is there");
}

/// No window that is handed out, before, during or after the close, shows memory that others can have.
#[test]
fn windows_beside_close_never_show_another_life() {
    race(|round| {
        let dir = TempDir::new();
        let ring = Ring::create(dir.path(), &keyspace(), config()).unwrap();
        fill(&ring, 1, 0..60);
        let opened = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let begin = FIRST + 30 * u64::from(SPAN);
                        match ring.window(begin, begin + 20 * u64::from(SPAN), &RingSources::All, Duration::ZERO) {
                            Ok(window) => {
                                let free = opened.load(Ordering::SeqCst);
                                let shows = window.sources.iter().map(|source| source.fragments().len()).sum::<usize>();
                                assert!(!free || shows == 0, "round {round}: a window of a ring that others have");
                                is_of(&window, 1);
                            }
                            Err(error) => return assert_eq!(error.kind(), Kind::Closed, "{error}"),
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(200 + round * 10));
            closed_or_outlasted(ring.close());
            let next = open_when_free(|| Ring::open(dir.path(), config()));
            opened.store(true, Ordering::SeqCst);
            fill(&next, 2, 1000..1000 + CHUNKS * 20);
        });
    });
}

/// What is put while the ring closes is there afterwards if it was acknowledged, and was never there if it was refused.
#[test]
fn ring_puts_beside_close_are_there_or_refused() {
    race(|round| {
        let dir = TempDir::new();
        let ring = Ring::create(dir.path(), &keyspace(), config()).unwrap();
        let stored = std::thread::scope(|scope| {
            let puts = scope.spawn(|| {
                for number in 0..60_u64 {
                    let timestamp = FIRST + number * u64::from(SPAN);
                    let reservation = ring.reserve(&source(&ring), timestamp, SPAN, 1000, &RingPut::default());
                    let put = reservation.and_then(|mut reservation| {
                        reservation.fill(1);
                        reservation.commit()
                    });
                    match put {
                        Ok(RingOutcome::Stored) => {}
                        // Without a thread of its own nobody makes room.
                        Ok(RingOutcome::Refused(_)) => return number,
                        Ok(other) => panic!("{other:?}"),
                        Err(error) => {
                            assert_eq!(error.kind(), Kind::Closed, "{error}");
                            return number;
                        }
                    }
                }
                60
            });
            std::thread::sleep(Duration::from_micros(50 + round * 5));
            closed_or_outlasted(ring.close());
            puts.join().unwrap()
        });
        let next = open_when_free(|| Ring::open(dir.path(), config()));
        assert_eq!(next.stats().fragments, stored, "round {round}");
        assert_eq!(next.ledger().imbalance(), None);
    });
}
