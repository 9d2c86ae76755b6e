//! Full stores: decisions go through no matter what fills the store, space comes back, and inhibit says whose turn it is.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{TempDir, eventually, put, refused, sealed_events, small_config};
use forebay_store::core::{Bounds, Completeness, Key, Keyspace, Kind, Live, LiveState, PrescaleFactor};
use forebay_store::{
    Accept, Config, Fragment, GetAny, Inhibit, Lease, PutOptions, PutOutcome, ResultFragment, Sources, Store,
};
use std::time::{Duration, Instant};

const VALUE: [u8; 2048] = [0x5A; 2048];

fn singles() -> Keyspace {
    let mut keyspace = Keyspace::events("full", 1).opening_runs();
    keyspace.run.completeness = Completeness::Count(1);
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.deliveries_max = 1;
    keyspace
}

fn marks(config: &mut Config) {
    (config.hot_high, config.hot_low) = (0.60, 0.30);
}

/// Puts events of one fragment from number `first` on until the store is full; returns how many were stored.
fn fill(store: &Fixture, first: u64) -> u64 {
    for event in first.. {
        match store.try_put(event, 0, &VALUE) {
            Ok(outcome) => assert_eq!(outcome, PutOutcome::Stored),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                // What can be tidied up is: full is only full when that does not help either.
                store.tick();
                if store.try_put(event, 0, &VALUE).is_err() {
                    return event - first;
                }
            }
        }
        assert!(event - first < 4096, "more than the region holds");
    }
    unreachable!("the loop returns")
}

fn inhibit(store: &Fixture) -> Inhibit {
    store.tick();
    let stats = store.stats();
    let inhibit = stats.inhibit.clone().unwrap_or_else(|| panic!("no inhibit at fill {}", stats.fill));
    assert!(!inhibit.cause.is_empty() && !inhibit.owner.is_empty() && !inhibit.ends.is_empty(), "{inhibit:?}");
    assert!(stats.fill >= store.config.hot_high, "{stats:?}");
    inhibit
}

/// The store has space again, says so, and takes as much as before, but for `slack` fragments.
fn space_is_back(store: &Fixture, next: u64, before: u64) {
    eventually(store, "fill under the low mark", || store.stats().fill < store.config.hot_low);
    eventually(store, "inhibit ends", || store.stats().inhibit.is_none());
    let again = fill(store, next);
    // The decisions stay in memory and in the log: a few segments of the region's 64.
    assert!(again * 10 >= before * 9, "{again} fragments fit, {before} did before");
    crate::common::assert_balanced(store);
}

fn reject_all(store: &Fixture) {
    loop {
        let leases = store.any(100);
        if leases.is_empty() {
            return;
        }
        leases.iter().for_each(|lease| lease.reject().unwrap());
    }
}

#[test]
fn the_answer_to_a_put_names_the_fill() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    assert!(count * 2048 > (4 << 20) * 3 / 5, "full with {count} fragments of 2 KiB in 4 MiB");
    let message = refused(store.try_put(1 << 20, 0, &VALUE), Kind::Full);
    assert!(message.contains("fill") || message.contains('%'), "{message}");
    assert_eq!(store.read(1 << 20, 0), None);
    assert!(store.ledger(RUN).unwrap().refused.fragments > 0);
    // What is there stays readable.
    for event in 0..count {
        assert_eq!(store.read(event, 0).unwrap(), VALUE);
    }
}

#[test]
fn filled_with_open_events() {
    let store = Fixture::with(&sealed_events(), marks);
    let count = fill(&store, 0);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("open"), "{inhibit:?}");
    for event in 0..count {
        assert!(store.seal(&store.primary(event)).unwrap());
    }
    reject_all(&store);
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_ready_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("ready"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "selection");
    reject_all(&store);
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_leased_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    let leases = store.any(count as usize);
    assert_eq!(leases.len() as u64, count);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("leased"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "selection");
    leases.iter().for_each(|lease| lease.reject().unwrap());
    drop(leases);
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_accepted_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    for lease in store.any(count as usize) {
        lease.accept(&["main"]).unwrap();
    }
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("accepted"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "archive");
    for event in 0..count {
        assert!(store.release(&store.primary(event)).unwrap());
    }
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_debug_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    drop(store.any(count as usize));
    store.advance(store.config.lease * 2);
    assert_eq!(store.live(LiveState::Debug).events, count);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("debug"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "debug stream");
    for event in 0..count {
        assert!(store.release(&store.primary(event)).unwrap());
    }
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_dead_bytes_under_guards() {
    let store = Fixture::with(&singles(), |config| {
        marks(config);
        config.pinned_share = 1.0;
    });
    let count = fill(&store, 0);
    let display = store.named("event-display");
    let keys: Vec<Key> = (0..count).map(|event| store.key(event, 0)).collect();
    let guards: Vec<Fragment> = display.get_many(&keys).unwrap().into_iter().flatten().collect();
    assert_eq!(guards.len() as u64, count);
    reject_all(&store);
    store.tick();
    let stats = store.stats();
    assert!(stats.segments_pinned > 0, "{stats:?}");
    let holder = stats.holders.iter().find(|holder| holder.holder == "event-display").expect("the holder is named");
    assert_eq!((holder.guards, holder.bytes), (count, count * 2048));
    let inhibit = inhibit(&store);
    assert!(inhibit.owner.contains("event-display"), "{inhibit:?}");
    for guard in &guards {
        assert_eq!(**guard, VALUE, "memory under a guard was used again");
    }
    drop(guards);
    space_is_back(&store, count + 1, count);
    assert!(store.stats().holders.iter().all(|holder| holder.guards == 0));
}

#[test]
fn past_their_quota_guards_are_copies() {
    let store = Fixture::with(&singles(), |config| config.pinned_share = 1.0 / 64.0);
    let count = fill(&store, 0);
    let mut guards = Vec::new();
    // A guard in every segment, whose events then die.
    for event in (0..count / 2).step_by(8) {
        guards.push(store.get(&store.key(event, 0)).unwrap().unwrap());
    }
    let bounds = Bounds::parse(store.schema(), &format!("{RUN}/0-{}", count / 2)).unwrap();
    store.remove_range(&bounds).unwrap();
    store.tick();
    let later = store.get(&store.key(count - 1, 0)).unwrap().unwrap();
    assert!(later.is_copied());
    assert_eq!(*later, VALUE);
    later.verify().unwrap();
    drop(guards);
    eventually(&store, "guards are in place again", || {
        !store.get(&store.key(count - 1, 0)).unwrap().unwrap().is_copied()
    });
}

#[test]
fn filled_by_a_reservation_that_nobody_commits() {
    let store = Fixture::with(&singles(), marks);
    let reservation = store.reserve(&store.key(1 << 30, 0), 2048, &PutOptions::default()).unwrap();
    for round in 0..3 {
        let first = round * 10_000;
        let count = fill(&store, first);
        assert!(count > 1000, "round {round}: {count}");
        let bounds = Bounds::parse(store.schema(), &format!("{RUN}/{first}-{}", first + count)).unwrap();
        assert_eq!(store.remove_range(&bounds).unwrap(), count);
        eventually(&store, "fill under the low mark", || store.stats().fill < store.config.hot_low);
    }
    reservation.abort();
}

#[test]
fn fragments_of_existing_events_have_space_when_new_events_have_none() {
    let store = Fixture::with(&sealed_events(), marks);
    let count = fill(&store, 0);
    for event in 0..4 {
        store.stored(event, 1, &VALUE);
    }
    refused(store.try_put(count + 1, 0, &VALUE), Kind::Full);
    // That reserve ends as well; decisions still have theirs.
    let mut extra = 0;
    while extra < 4096 && store.try_put(extra % count, 2 + extra / count, &VALUE).is_ok() {
        extra += 1;
    }
    assert!(extra < 4096);
    for event in 0..count {
        assert!(store.seal(&store.primary(event)).unwrap());
    }
    reject_all(&store);
    space_is_back(&store, count + 10, count);
}

#[test]
fn a_full_store_opens_and_can_be_emptied() {
    let mut store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    store.reopen();
    assert!(store.stats().fill >= 0.6);
    refused(store.try_put(count + 1, 0, &VALUE), Kind::Full);
    for event in 0..count {
        assert_eq!(store.read(event, 0).unwrap(), VALUE);
    }
    reject_all(&store);
    store.reopen();
    space_is_back(&store, count + 10, count);
}

#[test]
fn single_removals_go_through_in_a_full_store() {
    let store = Fixture::with(&sealed_events(), marks);
    let count = fill(&store, 0);
    for event in 0..count {
        assert!(store.remove(&store.key(event, 0)).unwrap(), "{event}");
    }
    space_is_back(&store, count + 1, count);
}

#[test]
fn filling_and_emptying_for_ever_gives_the_same_capacity() {
    let mut store = Fixture::with(&singles(), marks);
    let first = fill(&store, 0);
    let mut next = 0;
    for round in 0..40 {
        let bounds = Bounds::parse(store.schema(), &format!("{RUN}/{next}-{}", next + 9999)).unwrap();
        match round % 3 {
            0 => assert!(store.remove_range(&bounds).unwrap() >= first * 9 / 10),
            1 => reject_all(&store),
            _ => {
                for event in store.events(&bounds).unwrap() {
                    assert!(store.remove_event(&event.primary).unwrap());
                }
            }
        }
        eventually(&store, "everything is free", || store.stats().fill < store.config.hot_low);
        if round % 10 == 9 {
            store.reopen();
        }
        next += 10_000;
        let count = fill(&store, next);
        assert!(count * 100 >= first * 93, "round {round}: {count} fragments fit, {first} did at first");
    }
    assert!(store.stats().decided_events > 0);
}

#[test]
fn stragglers_are_evacuated_so_that_holes_become_space() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    // One event in sixteen stays: more than one per segment.
    for event in (0..count).filter(|event| event % 16 != 0) {
        assert!(store.remove_event(&store.primary(event)).unwrap());
    }
    eventually(&store, "segments are emptied", || store.stats().fill < store.config.hot_low);
    assert!(store.stats().evacuated > 0);
    let more = fill(&store, count + 1);
    assert!(more * 4 >= count * 3, "{more} of {count} fit beside a sixteenth");
    for event in (0..count).step_by(16) {
        assert_eq!(store.read(event, 0).unwrap(), VALUE);
    }
}

fn on_the_machines_clock(maintenance: bool) -> (TempDir, Store) {
    let dir = TempDir::new();
    let config = Config { maintenance, hot_bytes: 1 << 20, segment_bytes: Some(32 << 10), ..small_config() };
    let store = Store::create(&dir.store(), &singles(), config).unwrap();
    (dir, store)
}

fn fill_now(store: &Store) -> u64 {
    let now = PutOptions { deadline: Some(Duration::ZERO), ..PutOptions::default() };
    (0..).find(|event| store.put(&crate::common::key(RUN, *event, 0), &VALUE, &now).is_err()).unwrap()
}

#[test]
fn a_put_waits_for_its_deadline_and_no_longer() {
    let (_dir, store) = on_the_machines_clock(false);
    let count = fill_now(&store);
    for wait in [0, 60, 200].map(Duration::from_millis) {
        let start = Instant::now();
        let options = PutOptions { deadline: Some(wait), ..PutOptions::default() };
        refused(store.put(&crate::common::key(RUN, count + 1, 0), &VALUE, &options), Kind::Full);
        let waited = start.elapsed();
        assert!(waited >= wait && waited < wait + Duration::from_secs(20), "{waited:?} for {wait:?}");
    }
}

#[test]
fn a_put_that_waits_gets_the_space_that_comes() {
    let (_dir, store) = on_the_machines_clock(true);
    let count = fill_now(&store);
    let options = PutOptions { deadline: Some(Duration::from_secs(60)), ..PutOptions::default() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.put(&crate::common::key(RUN, count + 1, 0), &VALUE, &options).unwrap());
        for event in 0..count {
            let primary = store.schema().primary(&[RUN, event]).unwrap();
            store.lease(&primary, None).unwrap().expect("a ready event").reject().unwrap();
        }
        assert_eq!(waiting.join().unwrap(), PutOutcome::Stored);
    });
    assert_eq!(put(&store, &crate::common::key(RUN, count + 1, 0), &VALUE).unwrap(), PutOutcome::Duplicate);
    crate::common::assert_balanced(&store);
}

/// Two stages, announcements, and events that one failure sends to the debug stream.
fn two_stages() -> Keyspace {
    let mut keyspace = singles();
    keyspace.announced = true;
    keyspace.stages = ["fast", "final"].map(str::to_owned).into();
    keyspace
}

fn of_stage(store: &Fixture, stage: &str, n: usize) -> Vec<Lease> {
    store.get_any(&GetAny { stage: Some(stage.to_owned()), n, ..GetAny::default() }).unwrap()
}

/// Announces until the store is full; returns how many it took.
fn announce_until_full(store: &Fixture, first: u64) -> u64 {
    for event in first.. {
        match store.announce(event, &[0, 1]) {
            Ok(outcome) => assert_eq!(outcome, PutOutcome::Stored),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                return event - first;
            }
        }
    }
    unreachable!("the loop returns")
}

#[test]
fn filled_with_events_of_every_kind_it_is_emptied_without_a_refusal() {
    let mut store = Fixture::with(&two_stages(), |config| {
        marks(config);
        config.debug_share = 1.0;
    });
    // An eighth announced and not seen, an eighth in the debug stream, an eighth accepted with chosen sources.
    let announced = 150;
    for event in 0..announced {
        let _ = store.announce(1_000_000 + event, &[0, 1]).unwrap();
    }
    let some = 150;
    (0..some).for_each(|event| store.stored(2_000_000 + event, 0, &VALUE));
    drop(store.any(some as usize));
    store.advance(store.config.lease * 2);
    assert_eq!(store.live(LiveState::Debug).events, some);
    (0..some).for_each(|event| store.stored(3_000_000 + event, 0, &VALUE));
    for (number, lease) in (0..).zip(store.any(some as usize)) {
        let streams = [("express", Sources::only(store.schema(), [0, number]).unwrap()), ("main", Sources::All)];
        lease.accept_into(&Accept { streams: &streams, results: &[] }).unwrap();
    }
    let count = fill(&store, 0);
    refused(store.announce(9_000_000, &[0]), Kind::Full);
    for life in 0..3 {
        // Every third event passes on, the others end in the first stage.
        let leases = of_stage(&store, "fast", count as usize / 3);
        assert!(!leases.is_empty());
        for (number, lease) in leases.iter().enumerate() {
            match number % 3 {
                0 => lease.pass("final", &[]).unwrap(),
                1 => lease.reject().unwrap(),
                _ => {
                    let streams = [("express", Sources::only(store.schema(), [0]).unwrap())];
                    lease.accept_into(&Accept { streams: &streams, results: &[] }).unwrap();
                }
            }
        }
        drop(leases);
        of_stage(&store, "final", 1000).iter().for_each(|lease| lease.reject().unwrap());
        if life == 0 {
            store.crash();
        } else {
            store.reopen();
        }
    }
    for event in store.debug_events() {
        if store.number(&event.primary).is_multiple_of(2) {
            assert!(store.replay(&event.primary).unwrap());
        } else {
            assert!(store.release(&event.primary).unwrap());
        }
    }
    reject_all(&store);
    store.run_stop(RUN).unwrap();
    for info in store.events(&Bounds::all(store.schema())).unwrap() {
        assert_eq!(info.state, LiveState::Accepted);
        assert!(store.release(&info.primary).unwrap());
    }
    let ledger = store.run_close(RUN).unwrap().ledger;
    assert_eq!((ledger.imbalance(), ledger.never_seen, ledger.awaited), (None, announced, 0));
    assert_eq!(ledger.live, Live::default());
    eventually(&store, "everything is free", || store.stats().fill < store.config.hot_low);
}

#[test]
fn results_may_find_no_space_but_verdicts_do() {
    let store = Fixture::with(&two_stages(), marks);
    store.stored(1 << 30, 0, b"small");
    store.stored(2 << 30, 0, b"small");
    store.stored(3 << 30, 0, b"small");
    let lease = store.take(1 << 30);
    let result = store.source(9);
    lease.pass("final", &[ResultFragment::new(&result, b"in time")]).unwrap();
    let token = lease.token;
    let count = fill(&store, 0);
    // Fragments of events that are there fill the reserve that results would take.
    let mut extra = 0;
    while store.try_put(extra % count, 1 + extra / count, &VALUE).is_ok() {
        extra += 1;
    }
    let lease = store.take(2 << 30);
    let big = [7; 4096];
    refused(lease.pass("final", &[ResultFragment::new(&result, &big)]), Kind::Full);
    refused(lease.accept_into(&Accept { streams: &[], results: &[ResultFragment::new(&result, &big)] }), Kind::Full);
    assert_eq!(store.state(2 << 30), Some(LiveState::Leased), "nothing is decided");
    // Results that were stored when there was space: the repetition needs none.
    store.pass(&store.primary(1 << 30), &token, "final", &[ResultFragment::new(&result, &big)]).unwrap();
    lease.pass("final", &[]).unwrap();
    store.take(3 << 30).accept(&["main"]).unwrap();
    let leases = of_stage(&store, "final", 10);
    assert_eq!(leases.len(), 2);
    leases.iter().for_each(|lease| lease.reject().unwrap());
    reject_all(&store);
    space_is_back(&store, 10_000, count);
}

#[test]
fn filled_with_announcements() {
    let mut store = Fixture::with(&two_stages(), marks);
    let count = announce_until_full(&store, 0);
    assert!(count > 500, "{count}");
    store.crash();
    assert_eq!(store.counts(), [0, 0, 0, count]);
    refused(store.announce(count + 1, &[0]), Kind::Full);
    for event in 0..count / 2 {
        store.seal(&store.primary(event)).unwrap();
    }
    store.advance(two_stages().run.complete_within * 2);
    eventually(&store, "nothing is awaited", || store.counts()[3] == 0);
    assert_eq!(store.counts(), [0, 0, count, 0]);
    let again = announce_until_full(&store, 1 << 20);
    assert!(again * 10 >= count * 8, "{again} announcements fit, {count} did before");
}

/// The smallest region, and what operators may say in it as often as they like.
fn smallest(config: &mut Config) {
    marks(config);
    (config.hot_bytes, config.segment_bytes) = (1 << 20, Some(16 << 10));
}

#[test]
fn what_operators_say_for_ever_leaves_the_space_of_events() {
    for maintenance in [false, true] {
        let mut store = Fixture::on_hot_alone(&singles(), smallest);
        store.config.maintenance = maintenance;
        store.reopen();
        store.run_open(RUN, &singles().run).unwrap();
        let (source, other) = (store.source(7), store.source(8));
        let before = fill(&store, 0);
        reject_all(&store);
        let said = |store: &Fixture, times: u64| {
            for time in 0..times {
                let from = (time % 3 == 0).then(|| store.primary(time));
                store.mask(RUN, &source, from.as_ref()).unwrap_or_else(|error| panic!("mask {time}: {error}"));
                store.unmask(RUN, &source, None).unwrap_or_else(|error| panic!("unmask {time}: {error}"));
                let hold = store.hold(Some(RUN), &[]).unwrap_or_else(|error| panic!("hold {time}: {error}"));
                store.release_hold(hold).unwrap_or_else(|error| panic!("release of hold {time}: {error}"));
                let factor = PrescaleFactor::new((time + 1) as f64).unwrap();
                store.prescale(RUN, "jets", factor, None).unwrap_or_else(|error| panic!("prescale {time}: {error}"));
            }
        };
        said(&store, 3000);
        eventually(&store, "what was said is in a snapshot", || store.stats().fill < store.config.hot_low);
        store.mask(RUN, &other, None).unwrap();
        let again = fill(&store, 1_000_000);
        assert!(
            again * 10 >= before * 6,
            "{again} fragments fit beside a thousand records of each kind, {before} without"
        );
        // In the full store as well, and after its restart.
        said(&store, 200);
        store.reopen();
        store.unmask(RUN, &other, None).unwrap();
        said(&store, 200);
        // Until no more can begin: what began can be ended, with the store as full as before.
        let masked =
            (100..9000).take_while(|&source| store.mask(RUN, &store.source(source), None).is_ok()).count() as u64;
        assert!((100..8900).contains(&masked), "{masked} masks in force found space");
        refused(store.hold(None, &[]), Kind::Full);
        (100..100 + masked).for_each(|source| store.unmask(RUN, &store.source(source), None).unwrap());
        reject_all(&store);
        store.run_stop(RUN).unwrap();
        store.run_close(RUN).unwrap();
        crate::common::assert_balanced(&store);
    }
}
