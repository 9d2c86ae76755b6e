//! Random operations against a model: a map from timestamps to fragments per source.

use super::{SPAN, balanced, config, frame, genuine, keyspace, payload, source};
use forebay_core::{GapCause, Kind};
use forebay_ring::{Coverage, Ring, RingOutcome, RingPin, RingPut, RingSources, Window};
use forebay_testkit::media::SimMedium;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

const LINKS: u64 = 3;
const CHUNKS: u64 = 40;

/// What a source was told.
#[derive(Default)]
struct Link {
    /// Timestamp to span and run, of everything that was stored and not seen to be gone.
    stored: BTreeMap<u64, (u32, u32)>,
    newest: u64,
}

#[derive(Default)]
struct Counts {
    offered: u64,
    stored: u64,
    duplicate: u64,
    conflict: u64,
    late: u64,
    refused: u64,
}

struct World {
    links: Vec<Link>,
    counts: Counts,
    next: u64,
}

#[test]
fn a_ring_does_what_its_model_does() {
    for seed in 0..12 {
        one_world(seed);
    }
}

fn one_world(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let config = config(CHUNKS);
    let medium = SimMedium::new(config.hot_bytes);
    let mut ring = Ring::create_on(medium.clone(), &keyspace(LINKS as u32), config.clone()).unwrap();
    let links = (0..LINKS).map(|_| Link::default()).collect();
    let mut world = World { links, counts: Counts::default(), next: 100 };
    let mut windows: Vec<(Window, Vec<Vec<u64>>)> = Vec::new();
    let mut pins: Vec<(RingPin, u64)> = Vec::new();
    for turn in 0..4000 {
        match rng.random_range(0..100) {
            0..70 => world.put(&ring, &mut rng),
            70..85 => world.look(&ring, &mut rng),
            85..89 => {
                let shown = world.window(&ring, &mut rng);
                let timestamps = shown.sources.iter().map(genuine).collect();
                windows.push((shown, timestamps));
            }
            89..93 if !windows.is_empty() => {
                let (shown, timestamps) = windows.swap_remove(rng.random_range(0..windows.len()));
                assert_eq!(
                    shown.sources.iter().map(genuine).collect::<Vec<_>>(),
                    timestamps,
                    "seed {seed} turn {turn}"
                );
            }
            93..95 => {
                let at = frame(world.next.saturating_sub(rng.random_range(1..60)));
                match ring.pin(at, at + 1, &RingSources::All, Duration::from_secs(60)) {
                    Ok(pin) => pins.push((pin, at)),
                    Err(error) => assert_eq!(error.kind(), Kind::Full),
                }
            }
            95..97 if !pins.is_empty() => drop(pins.swap_remove(rng.random_range(0..pins.len()))),
            97 => ring.tick(),
            98 if turn % 10 == 0 => {
                windows.clear();
                pins.clear();
                // In order, or cut off.
                if rng.random_bool(0.5) {
                    ring.close().unwrap();
                }
                drop(ring);
                ring = Ring::open_on(medium.clone(), &keyspace(LINKS as u32), config.clone()).unwrap();
            }
            _ => {}
        }
        if turn % 100 == 0 {
            windows.truncate(3);
            world.audit(&ring, seed);
        }
    }
    world.audit(&ring, seed);
    assert!(ring.ledger().expired.fragments > 300, "the ring never came round");
}

impl World {
    fn put(&mut self, ring: &Ring, rng: &mut SmallRng) {
        let link = rng.random_range(0..LINKS);
        // Mostly in order; now and then a hole, some disorder, a repeat, or something long gone.
        let number = match rng.random_range(0..20) {
            0 => self.next.saturating_sub(rng.random_range(0..8)),
            1 => self.next.saturating_sub(rng.random_range(0..100)),
            2 => self.next + rng.random_range(0..3),
            _ => self.next,
        };
        self.next += u64::from(rng.random_range(0..LINKS) == 0);
        let span = if rng.random_range(0..10) == 0 { SPAN * 2 } else { SPAN };
        let run = 1 + (number / 200) as u32;
        let (id, timestamp) = (source(ring, link), frame(number));
        let put = RingPut { run, status: timestamp as u32 };
        let good = payload(&id, timestamp);
        let other = rng.random_range(0..30) == 0;
        let bytes = if other { b"something else".as_slice() } else { &good };
        if other && !self.links[link as usize].stored.contains_key(&timestamp) {
            return;
        }
        let answer = ring.put(&id, timestamp, span, bytes, &put);
        self.counts.offered += 1;
        let model = &mut self.links[link as usize];
        let standing = model.stored.get(&timestamp).copied();
        match answer {
            Ok(RingOutcome::Stored) => {
                // A model that has not noticed yet that the old one is gone would have it still; ticks that were evicted
                // are refused, so nothing is ever stored twice in one life.
                assert!(!other, "timestamp {timestamp} took other bytes");
                self.counts.stored += 1;
                model.stored.insert(timestamp, (span, run));
                model.newest = model.newest.max(timestamp + u64::from(span));
            }
            Ok(RingOutcome::Duplicate) => {
                assert_eq!(standing.map(|standing| standing.0), Some(span), "{timestamp}");
                assert!(!other);
                self.counts.duplicate += 1;
            }
            Ok(RingOutcome::Refused(GapCause::TooLate)) => {
                let shown =
                    ring.window(timestamp, timestamp + 1, &RingSources::Only(vec![id]), Duration::ZERO).unwrap();
                let is_there = shown.sources[0].fragments().any(|fragment| fragment.timestamp == timestamp);
                assert!(!is_there, "{timestamp} is there and too late");
                self.counts.late += 1;
            }
            Ok(RingOutcome::Refused(GapCause::NoSpace)) => {
                model.newest = model.newest.max(timestamp + u64::from(span));
                self.counts.refused += 1;
            }
            Err(error) if error.kind() == Kind::Conflict => {
                assert!(standing.is_some_and(|standing| other || standing.0 != span), "{error}");
                self.counts.conflict += 1;
            }
            other => panic!("{timestamp}: {other:?}"),
        }
    }

    fn window(&self, ring: &Ring, rng: &mut SmallRng) -> Window {
        let begin = frame(self.next.saturating_sub(rng.random_range(0..150))) + rng.random_range(0..3) - 1;
        let end = begin + rng.random_range(1..u64::from(SPAN) * 12);
        super::window(ring, begin, end)
    }

    /// A window shows what the model has, or says that it is gone.
    fn look(&mut self, ring: &Ring, rng: &mut SmallRng) {
        let shown = self.window(ring, rng);
        for one in &shown.sources {
            let model = &mut self.links[one.source.values()[1] as usize];
            let there = genuine(one);
            let mut at = shown.begin;
            for stretch in &one.coverage {
                assert!(stretch.begin == at && stretch.end > at, "{one:?}");
                at = stretch.end;
            }
            assert_eq!(at, shown.end);
            assert!(one.coverage.windows(2).all(|pair| pair[0].state != pair[1].state), "{one:?}");
            let from = shown.begin.saturating_sub(2 * u64::from(SPAN));
            let expected: Vec<u64> = model
                .stored
                .range(from..shown.end)
                .filter(|(timestamp, held)| **timestamp + u64::from(held.0) > shown.begin)
                .map(|(timestamp, _)| *timestamp)
                .collect();
            assert!(there.iter().all(|timestamp| expected.contains(timestamp)), "{there:?} of {expected:?}");
            for timestamp in expected.iter().filter(|timestamp| !there.contains(timestamp)) {
                // Evicted: then nothing but other fragments covers it, and it never comes back.
                model.stored.remove(timestamp);
            }
            for tick in (shown.begin..shown.end).step_by(97) {
                let state = one.coverage.iter().find(|stretch| tick < stretch.end).map(|stretch| stretch.state);
                let held = |(timestamp, held): (&u64, &(u32, u32))| {
                    *timestamp <= tick && tick < *timestamp + u64::from(held.0)
                };
                let covered = model.stored.range(from..=tick).any(held);
                assert_eq!(state == Some(Coverage::Complete), covered, "tick {tick}: {one:?}");
                assert_eq!(state == Some(Coverage::NotYet), !covered && tick >= model.newest, "tick {tick}: {one:?}");
            }
        }
    }

    fn audit(&mut self, ring: &Ring, seed: u64) {
        balanced(ring);
        let ledger = ring.ledger();
        let stored = ledger.stored.fragments;
        assert_eq!(stored, self.counts.stored, "seed {seed}");
        assert_eq!(ledger.lost.fragments, 0);
        let seen =
            [ledger.offered, ledger.duplicate, ledger.conflict, ledger.late, ledger.refused].map(|one| one.fragments);
        let Counts { offered, duplicate, conflict, late, refused, .. } = self.counts;
        assert_eq!(seen, [offered, duplicate, conflict, late, refused], "seed {seed}");
        // What is kept is what the model has, except for what it has not noticed to be gone.
        let all = super::window(ring, 0, u64::MAX);
        let mut kept = 0;
        for one in &all.sources {
            let model = &mut self.links[one.source.values()[1] as usize];
            let there = genuine(one);
            assert!(there.iter().all(|timestamp| model.stored.contains_key(timestamp)));
            model.stored.retain(|timestamp, _| there.binary_search(timestamp).is_ok());
            let runs = one.fragments().map(|fragment| (fragment.span, fragment.run));
            assert!(runs.eq(model.stored.values().copied()), "seed {seed}");
            kept += there.len() as u64;
        }
        assert_eq!(ledger.live.ready.fragments, kept, "seed {seed}");
    }
}
