//! Cuts the power at every flush and fence of a workload on simulated persistent memory.
//!
//! The medium keeps an arbitrary subset of the 8-byte words that were not flushed and fenced yet. The workload goes
//! round the ring, so that chunks are sealed, evicted and taken again. `FOREBAY_POWER_STEPS` bounds the steps that are
//! tried (800 by default, spread evenly).

use super::{SPAN, config, frame, genuine, keyspace, payload, source};
use forebay_core::GapCause;
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut, RingSources};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::time::Duration;

const CHUNKS: u64 = 16;
const FRAMES: u64 = 700;

/// What was answered, and the medium's steps by then.
struct Answer {
    link: u64,
    number: u64,
    stored: bool,
    after: u64,
}

/// A ring's life on a medium, until the medium is past `until`.
fn live(medium: &Arc<SimMedium>, until: u64) -> (Vec<Answer>, u64, u64) {
    let ring = Ring::create_on(medium.clone(), &keyspace(2), config(CHUNKS)).unwrap();
    let created = medium.steps();
    let mut answers = Vec::new();
    for at in 0..FRAMES {
        if medium.steps() > until {
            break;
        }
        let (link, number) = (at % 2, at / 2);
        let source = source(&ring, link);
        let bytes = payload(&source, frame(number));
        let put = RingPut { run: 1 + (number / 100) as u32, status: frame(number) as u32 };
        let stored = if at % 7 == 3 {
            let mut reservation = ring.reserve(&source, frame(number), SPAN, bytes.len(), &put).unwrap();
            reservation.copy_from_slice(&bytes);
            // Some are given up.
            at % 21 == 3 || reservation.commit().unwrap() == RingOutcome::Stored
        } else {
            ring.put(&source, frame(number), SPAN, &bytes, &put).unwrap() == RingOutcome::Stored
        };
        answers.push(Answer { link, number, stored: stored && at % 21 != 3, after: medium.steps() });
        if at % 50 == 49 {
            ring.tick();
        }
    }
    let evicted = ring.stats().evicted;
    // Cut off, not closed.
    std::mem::forget(ring);
    (answers, created, evicted)
}

#[test]
fn a_power_loss_at_any_step_loses_nothing_acknowledged() {
    let bytes = config(CHUNKS).hot_bytes;
    let rehearsal = SimMedium::new(bytes);
    let (_, created, evicted) = live(&rehearsal, u64::MAX);
    assert!(evicted > 8, "{evicted}: this proves nothing");
    let steps = rehearsal.steps();
    let tries: u64 = std::env::var("FOREBAY_POWER_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(800);
    let stride = ((steps - created) / tries).max(1);
    let mut tried = 0;
    for step in (created + 1..steps).step_by(stride as usize) {
        let medium = SimMedium::new(bytes);
        medium.arm(step, step * 77 + 1);
        let (answers, _, _) = live(&medium, step);
        let image = medium.crash_image().unwrap();
        check(SimMedium::from_image(image), &answers, step);
        tried += 1;
    }
    assert!(tried > 300, "{tried} cuts");
}

fn check(medium: Arc<SimMedium>, answers: &[Answer], step: u64) {
    let open = |medium: &Arc<SimMedium>| {
        Ring::open_on(medium.clone(), &keyspace(2), RingConfig { verify: true, ..config(CHUNKS) })
            .unwrap_or_else(|error| panic!("step {step}: {error}"))
    };
    let ring = open(&medium);
    let mut live = 0;
    for link in 0..2 {
        let id = source(&ring, link);
        let all = ring.window(0, u64::MAX, &RingSources::Only(vec![id]), Duration::ZERO).unwrap();
        let there = genuine(&all.sources[0]);
        live += there.len() as u64;
        let oldest = there.first().copied();
        let mut of_link = answers.iter().filter(|answer| answer.link == link).peekable();
        while let Some(answer) = of_link.next() {
            // A step number is that of a flush or fence that was about to take effect.
            let acknowledged = answer.stored && answer.after < step;
            let begun = of_link.peek().is_none() || answer.after < step;
            let timestamp = frame(answer.number);
            let is_there = there.contains(&timestamp);
            assert!(begun || !is_there, "step {step}: link {link} frame {} was never put", answer.number);
            let evicted = oldest.is_none_or(|oldest| timestamp < oldest);
            assert!(!acknowledged || is_there || evicted, "step {step}: link {link} frame {} is gone", answer.number);
        }
    }
    // Evicted or there, each counts once: what is stored is what was acknowledged, and at most one more.
    let acknowledged = answers.iter().filter(|answer| answer.stored && answer.after < step).count() as u64;
    let ledger = ring.ledger();
    assert_eq!(
        (ledger.imbalance(), ledger.lost.fragments, ledger.live.ready.fragments),
        (None, 0, live),
        "step {step}"
    );
    let stored = ledger.stored.fragments;
    assert!((acknowledged..=acknowledged + 1).contains(&stored), "step {step}: {stored} of {acknowledged}");
    // Cut again before anything is taken: what the first note had counted is not counted twice.
    let second = SimMedium::from_image(medium.crash_now(step));
    assert_eq!(open(&second).ledger(), ledger, "step {step}: after a second cut");
    // It goes on: the next frames are taken, and a second look finds the same.
    let next = frame(FRAMES);
    let id = source(&ring, 0);
    let put = RingPut { run: 9, status: next as u32 };
    assert_eq!(ring.put(&id, next, SPAN, &payload(&id, next), &put).unwrap(), RingOutcome::Stored);
    let gaps = ring.gaps(&id, next - 1, next).unwrap();
    let empty = live == 0 || ring.sources()[0].fragments == 1;
    assert!(empty || gaps[0].cause == GapCause::Restart, "step {step}: {gaps:?}");
    ring.close().unwrap();
    let before = ring.ledger();
    assert_eq!(before.stored.fragments, stored + 1);
    drop(ring);
    assert_eq!(open(&medium).ledger(), before, "step {step}");
}

/// Over an ordinary file the kernel writes pages when it likes, and a power loss takes what it has not written: that is
/// noticed, also in the life that follows an orderly close.
#[test]
fn a_power_loss_over_a_file_in_the_life_after_an_orderly_close_is_noticed() {
    let put = |ring: &Ring, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let source = source(ring, 0);
            let bytes = payload(&source, frame(number));
            let put = RingPut { run: 1, status: frame(number) as u32 };
            assert_eq!(ring.put(&source, frame(number), SPAN, &bytes, &put).unwrap(), RingOutcome::Stored);
        }
    };
    let open = |medium: &Arc<SimMedium>, accept_loss| {
        Ring::open_on(medium.clone(), &keyspace(2), RingConfig { accept_loss, ..config(CHUNKS) })
    };
    let medium = SimMedium::file(config(CHUNKS).hot_bytes);
    let ring = Ring::create_on(medium.clone(), &keyspace(2), config(CHUNKS)).unwrap();
    put(&ring, 0..40);
    ring.close().unwrap();
    drop(ring);
    let mut served = 0;
    for seed in 0..48 {
        let second = medium.after_power_loss(medium.crash_now(seed));
        let ring = open(&second, false).unwrap();
        assert_eq!((ring.stats().fragments, ring.losses().len()), (40, 0), "closed in order");
        put(&ring, 40..60);
        let image = second.crash_now(seed * 7 + 1);
        drop(ring);
        let refused = open(&second.after_power_loss(image.clone()), false).err();
        let refused = refused.unwrap_or_else(|| panic!("seed {seed}: served without a word"));
        assert!(refused.message().contains("restarted"), "seed {seed}: {refused}");
        let Ok(ring) = open(&second.after_power_loss(image), true) else { continue };
        served += 1;
        // Every fragment that is given out is the one that was put.
        let window = ring.window(0, u64::MAX, &RingSources::All, Duration::ZERO).unwrap();
        let there: usize = window.sources.iter().map(|source| genuine(source).len()).sum();
        let ledger = ring.ledger();
        assert_eq!((ledger.imbalance(), ledger.live.ready.fragments), (None, there as u64), "seed {seed}");
        let lost = ledger.lost.fragments;
        assert!(lost == 0 || !ring.losses().is_empty(), "seed {seed}: {lost} lost, none named");
    }
    assert!(served > 4, "{served} served: this proves little");
}
