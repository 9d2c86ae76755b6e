//! Samplers: what monitors see, how often, and that nothing waits or changes for them.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, put, refused, sources_of};
use crate::semantics::{of_stage, staged};
use forebay_store::core::{Filter, Kind, LiveState};
use forebay_store::{PutOutcome, ResultFragment, Sample, Sampling, Sources};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn often() -> Sampling {
    Sampling { rate_hz: 100_000.0, ..Sampling::default() }
}

/// A sample of a verdict that `decide` gives, as soon as the sampler waits: it is asked to decide again and again.
fn sample_of(store: &Fixture, sampling: &Sampling, mut decide: impl FnMut()) -> Sample {
    let mut sampler = store.sampler(sampling).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || sampler.next(Duration::from_secs(60)).unwrap().expect("a decided event"));
        while !waiting.is_finished() {
            decide();
            std::thread::yield_now();
        }
        waiting.join().unwrap()
    })
}

#[test]
fn a_live_sampler_sees_events_in_every_state_and_changes_none() {
    let mut keyspace = staged(2);
    keyspace.deliveries_max = 1;
    let store = Fixture::new(&keyspace);
    for event in 2..=5 {
        store.stored(event, 0, &[7; 100]);
        store.stored(event, 1, b"x");
    }
    drop(store.take(3));
    store.advance(store.config.lease * 2);
    store.stored(1, 0, &[7; 100]);
    assert_eq!(store.state(3), Some(LiveState::Debug));
    let lease = store.take(4);
    store.take(5).accept(&["main"]).unwrap();
    let mut sampler = store.sampler(&often()).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let sample = sampler.next(Duration::from_secs(5)).unwrap().expect("there are events");
        let number = store.number(&sample.primary);
        assert_eq!(*sample.fragments[0], [7; 100]);
        assert_eq!(sample.event_fragments as usize, sample.fragments.len());
        assert!(sample.fragments.iter().all(|fragment| fragment.verify().is_ok() && fragment.is_copied()));
        seen.insert((number, sample.state));
    }
    assert_eq!(
        Vec::from_iter(seen),
        [(1, "open"), (2, "ready"), (3, "debug"), (4, "leased"), (5, "accepted")]
            .map(|(event, state)| (event, state.into()))
    );
    assert_eq!((store.info(2).deliveries, store.stats().leases), (0, 1));
    lease.reject().unwrap();
}

#[test]
fn a_sampler_holds_nothing_and_its_copies_stay() {
    let store = Fixture::new(&staged(1));
    store.stored(1, 0, &[9; 5000]);
    let mut sampler = store.sampler(&often()).unwrap();
    let sample = sampler.next(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!(store.stats().holders.len(), 0);
    store.take(1).reject().unwrap();
    // Without the event only a pin could keep its segment.
    assert_eq!(store.stats().segments_pinned, 0);
    assert!(sampler.next(Duration::ZERO).unwrap().is_none());
    assert_eq!(*sample.fragments[0], [9; 5000]);
    // An event that a verdict left for a sampler that went away meanwhile is let go as well.
    let mut decided = store.sampler(&Sampling { decided: true, ..often() }).unwrap();
    assert!(decided.next(Duration::from_millis(1)).unwrap().is_none());
    store.stored(2, 0, b"x");
    store.take(2).reject().unwrap();
    drop(decided);
    assert_eq!(store.stats().segments_pinned, 0);
}

#[test]
fn decided_events_are_shown_as_they_are_decided_rejected_ones_too() {
    let store = Fixture::new(&staged(1));
    let sampling = Sampling { decided: true, ..often() };
    let mut next = 0;
    let mut put_one = || {
        next += 1;
        store.stored(next, 0, b"seen");
        next
    };
    let rejected = sample_of(&store, &sampling, || store.take(put_one()).reject().unwrap());
    assert_eq!(
        (&*rejected.state, rejected.stage.as_str(), &*rejected.fragments[0]),
        ("rejected", "fast", &b"seen"[..])
    );
    assert_eq!(store.get_event(&rejected.primary, &Sources::All).unwrap().map(|event| event.state), None);
    let result = store.source(50);
    let passed = sample_of(&store, &sampling, || {
        store.take(put_one()).pass("middle", &[ResultFragment::new(&result, b"tracks")]).unwrap();
    });
    assert_eq!((&*passed.state, passed.stage.as_str(), sources_of(&passed.fragments)), ("passed", "fast", vec![0, 50]));
    let only = Sampling { stage: Some("middle".to_owned()), sources: Sources::Only(vec![result.clone()]), ..sampling };
    let accepted = sample_of(&store, &only, || {
        store.take(put_one()).pass("middle", &[]).unwrap();
        of_stage(&store, "middle")[0].accept(&["main"]).unwrap();
    });
    assert_eq!((&*accepted.state, accepted.stage.as_str()), ("accepted", "middle"));
    assert!(sources_of(&accepted.fragments).iter().all(|source| *source == 50));
    assert_eq!(accepted.event_fragments as usize, accepted.sources.iter().count());
}

#[test]
fn samples_are_chosen_by_attribute_run_and_stage() {
    let store = Fixture::new(&staged(1));
    for event in 0..200 {
        store.stored_with(event, 0, b"x", &[format!("lumi={}", event % 10).as_str()]);
    }
    assert_eq!(put(&store, &key(2, 1, 0), b"x").unwrap(), PutOutcome::Stored);
    store.take(7).pass("final", &[]).unwrap();
    let filter = Filter::parse(&store.keyspace().attributes, &["lumi=3"]).unwrap();
    let take = |sampling: Sampling, n: usize| {
        let mut sampler = store.sampler(&sampling).unwrap();
        let mut numbers: Vec<u64> = (0..n)
            .map(|_| store.number(&sampler.next(Duration::from_secs(20)).unwrap().expect("one that matches").primary))
            .collect();
        numbers.sort_unstable();
        numbers
    };
    let threes: Vec<u64> = (0..20).map(|event| event * 10 + 3).collect();
    let mut seen = take(Sampling { filter, ..often() }, 100);
    seen.dedup();
    assert_eq!(seen, threes, "a few rounds show each of them, and no others");
    assert_eq!(take(Sampling { run: Some(2), ..often() }, 3), [1, 1, 1]);
    assert_eq!(take(Sampling { stage: Some("final".to_owned()), ..often() }, 2), [7, 7]);
    let none = Sampling { run: Some(3), ..often() };
    assert!(store.sampler(&none).unwrap().next(Duration::from_millis(30)).unwrap().is_none());
}

#[test]
fn the_rate_and_the_bytes_are_bounded() {
    let store = Fixture::new(&staged(3));
    (0..3).for_each(|source| store.stored(1, source, &[1; 100]));
    // The rate counts from when the sampler is made, which is before its answer is here.
    let start = Instant::now();
    let mut sampler = store.sampler(&Sampling { rate_hz: 20.0, bytes_max: 250, ..Sampling::default() }).unwrap();
    for _ in 0..4 {
        let sample = sampler.next(Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!((sample.fragments.len(), sample.left_out, sample.event_bytes), (2, 1, 300));
        assert!(sampler.next(Duration::ZERO).unwrap().is_none(), "not before its time");
    }
    assert!(start.elapsed() >= Duration::from_millis(149), "{:?}", start.elapsed());
    let mut sampler = store.sampler(&Sampling { sources: Sources::None, ..often() }).unwrap();
    let sample = sampler.next(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!((sample.fragments.len(), sample.left_out, sample.sources.iter().count()), (0, 0, 3));
}

#[test]
fn samplers_that_cannot_be_are_refused() {
    let store = Fixture::new(&staged(1));
    for rate_hz in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(store.sampler(&Sampling { rate_hz, ..Sampling::default() }).map(|_| ()), Kind::Invalid);
    }
    refused(store.sampler(&Sampling { stage: Some("slow".to_owned()), ..often() }).map(|_| ()), Kind::Invalid);
    let decided = Sampling { decided: true, ..often() };
    let mut samplers: Vec<_> = (0..64).map(|_| store.sampler(&decided).unwrap()).collect();
    refused(store.sampler(&decided).map(|_| ()), Kind::Full);
    samplers.pop();
    store.sampler(&decided).unwrap();
    store.stored(1, 0, b"x");
    store.take(1).reject().unwrap();
    assert_eq!(store.ledger(RUN).unwrap().rejected.events, 1, "samplers that do not look cost nothing");
    let mut live = store.sampler(&often()).unwrap();
    store.close().unwrap();
    refused(live.next(Duration::ZERO).map(|_| ()), Kind::Closed);
    refused(samplers[0].next(Duration::from_secs(20)).map(|_| ()), Kind::Closed);
    refused(store.sampler(&often()).map(|_| ()), Kind::Closed);
}
