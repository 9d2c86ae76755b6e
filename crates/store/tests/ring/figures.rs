//! Figures of speed, for people: `cargo test --release -p forebay-store --test ring -- --ignored figures --nocapture`.

use super::{FIRST, SPAN, TempDir};
use forebay_store::core::{Keyspace, RingKeyspace};
use forebay_store::{Config, PutOptions, PutOutcome, Ring, RingConfig, RingOutcome, RingPut, RingSources, Store};
use std::hint::black_box;
use std::time::{Duration, Instant};

const LINKS: u64 = 48;
const FRAME_BYTES: usize = 7200;
const FRAMES: u64 = 400;
const REGION_BYTES: u64 = 512 << 20;
const ROUNDS: usize = 9;

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn keyspace() -> RingKeyspace {
    RingKeyspace {
        history: Duration::from_millis(30),
        max_skew: Duration::from_secs(3600),
        ..RingKeyspace::wibeth("figures", LINKS as u32).unwrap()
    }
}

/// Frames as a link produces them, more of them than the cache holds.
fn frames() -> Vec<Vec<u8>> {
    (0..4096_u64).map(|at| (0..FRAME_BYTES as u64).map(|byte| (at * 31 + byte * 7) as u8).collect()).collect()
}

#[test]
#[ignore = "measures; in release builds only"]
fn figures() {
    let shm = std::path::Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    let dir = base.join(format!("forebay-figures-{}", std::process::id()));
    let _dir = TempDir(dir.clone());
    let frames = frames();
    let config = RingConfig { hot_bytes: REGION_BYTES, ..RingConfig::default() };
    let ring = Ring::create(&dir.join("ring"), &keyspace(), config).unwrap();
    let sources: Vec<_> = (0..LINKS).map(|link| ring.keyspace().source(&[link]).unwrap()).collect();
    let (mut ring_ns, mut store_ns, mut copy_ns) = (Vec::new(), Vec::new(), Vec::new());
    let mut target = vec![1_u8; 256 << 20];
    let mut tick = FIRST;
    let puts = (LINKS * FRAMES) as f64;
    for round in 0..ROUNDS {
        let put = RingPut { run: 1, status: 0 };
        // Once around first: pages are there, and chunks are evicted.
        for _ in 0..if round == 0 { 4 } else { 1 } {
            let start = Instant::now();
            for number in 0..FRAMES {
                for (link, source) in sources.iter().enumerate() {
                    let frame = &frames[(number as usize * 48 + link) % frames.len()];
                    assert_eq!(ring.put(source, tick, SPAN, frame, &put).unwrap(), RingOutcome::Stored);
                }
                tick += u64::from(SPAN);
            }
            ring_ns.push(start.elapsed().as_nanos() as f64 / puts);
        }
        let start = Instant::now();
        for at in 0..LINKS * FRAMES {
            let frame = &frames[at as usize % frames.len()];
            let place = at as usize * 7232 % (target.len() - 7232) / 64 * 64;
            target[place..place + FRAME_BYTES].copy_from_slice(frame);
        }
        copy_ns.push(start.elapsed().as_nanos() as f64 / puts);
        let store_dir = dir.join(format!("store-{round}"));
        let config = Config { hot_bytes: REGION_BYTES, ..Config::default() };
        let store = Store::create(&store_dir, &Keyspace::events("figures", LINKS as u32), config).unwrap();
        let options = PutOptions::default();
        let start = Instant::now();
        for number in 0..FRAMES {
            for link in 0..LINKS {
                let key = store.schema().key(&[1, number, link]).unwrap();
                let frame = &frames[(number * 48 + link) as usize % frames.len()];
                assert_eq!(store.put(&key, frame, &options).unwrap(), PutOutcome::Stored);
            }
        }
        store_ns.push(start.elapsed().as_nanos() as f64 / puts);
        drop(store);
        std::fs::remove_dir_all(&store_dir).unwrap();
    }
    let (ring_put, store_put, copy) = (median(ring_ns), median(store_ns), median(copy_ns));
    println!("put of {FRAME_BYTES} B: ring {ring_put:.0} ns, Store {store_put:.0} ns, memcpy {copy:.0} ns");
    println!("{}", windows(&ring, tick, &mut target));
    let stats = ring.stats();
    let memory = stats.memory;
    let bytes = memory.index + memory.books + memory.fixed;
    println!("memory: {:.1} B per fragment of {} ({memory:?})", bytes as f64 / stats.fragments as f64, stats.fragments);
    assert_eq!(ring.ledger().imbalance(), None);
}

fn windows(ring: &Ring, newest: u64, target: &mut [u8]) -> String {
    // 1 ms of 62.5 MHz.
    let ticks = 62_500;
    let (mut open, mut out, mut plain, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let source = vec![3_u8; 256 << 20];
    for turn in 0..400_u64 {
        let begin = newest - (2 + turn % 60) * ticks / 10 - 100 * u64::from(SPAN);
        let start = Instant::now();
        let window = ring.window(begin, begin + ticks, &RingSources::All, Duration::ZERO).unwrap();
        black_box(&window);
        let touched = Instant::now();
        open.push((touched - start).as_nanos() as f64 / 1e3);
        let mut at = 0;
        for one in &window.sources {
            for fragment in one.fragments() {
                target[at..at + fragment.bytes.len()].copy_from_slice(fragment.bytes);
                at += fragment.bytes.len();
            }
        }
        black_box(&target);
        out.push(at as f64 / touched.elapsed().as_nanos() as f64);
        bytes = at;
        assert!(window.is_complete());
        // The same bytes in one piece, from memory as cold as the ring's.
        let from = turn as usize * 13_000_000 % (source.len() - at);
        let start = Instant::now();
        target[..at].copy_from_slice(&source[from..from + at]);
        black_box(&target);
        plain.push(at as f64 / start.elapsed().as_nanos() as f64);
    }
    let (open, out, plain) = (median(open), median(out), median(plain));
    format!(
        "window of 1 ms, {LINKS} links, {bytes} B: opened in {open:.1} us; copied out at {out:.2} GB/s, plain copy \
         {plain:.2} GB/s: {:.0} %",
        out / plain * 100.0
    )
}
