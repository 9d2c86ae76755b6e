//! Faults that were found by reading the engine: each is pinned by a test with its name.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::fixture::{Fixture, RUN};
use crate::common::{TempDir, key, put, sealed_events, small_config};
use forebay_media::bytes::{SegmentHeader, SegmentKind, Superblock};
use forebay_store::core::*;
use forebay_store::{Config, PutOptions, PutOutcome, ResultFragment, Store};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::time::Duration;

fn sim_config() -> Config {
    Config {
        hot_bytes: 1 << 20,
        segment_bytes: Some(16 << 10),
        write_heads: 1,
        put_deadline: Duration::ZERO,
        maintenance: false,
        clock: Arc::new(ManualClock::default()),
        ..Config::default()
    }
}
fn singles() -> Keyspace {
    let mut k = Keyspace::events("r", 1).opening_runs();
    k.run.complete_within = Duration::from_secs(24 * 3600);
    k
}
fn prim(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

#[test]
fn recovery_does_not_free_the_segment_it_scans() {
    let ks = sealed_events();
    let run = |arm: Option<u64>| {
        let m = SimMedium::new(1 << 20);
        let s = Store::create_on(m.clone(), &ks, sim_config()).unwrap();
        let _ = put(&s, &key(RUN, 1, 0), b"version zero").unwrap();
        let a = m.steps();
        if let Some(k) = arm {
            m.arm(a + k, 1)
        }
        s.update(&key(RUN, 1, 0), b"version one!", None).unwrap();
        (a, m.steps(), m.crash_image())
    };
    let (a, b, _) = run(None);
    let mut bad = Vec::new();
    for k in 1..=(b - a) {
        let image = run(Some(k)).2.unwrap();
        let s = Store::open_on(SimMedium::from_image(image), &ks, sim_config()).unwrap();
        for e in 2..40 {
            let _ = put(&s, &key(RUN, e, 0), &[7; 2000]).unwrap();
        }
        match s.get(&key(RUN, 1, 0)) {
            Ok(Some(f)) if f.verify().is_ok() => {}
            other => bad.push((k, format!("{other:?}"))),
        }
    }
    assert!(bad.is_empty(), "of {} steps: {bad:?}", b - a);
}

#[test]
fn a_reservation_keeps_its_store_from_being_opened_again() {
    let dir = TempDir::new();
    let config = Config { write_heads: 1, ..small_config() };
    let a = Store::create(&dir.store(), &sealed_events(), config.clone()).unwrap();
    let r = a.reserve(&key(RUN, 1, 0), 100, &PutOptions::default()).unwrap();
    a.close().unwrap();
    assert_eq!(Store::open(&dir.store(), config.clone()).unwrap_err().kind(), Kind::Unavailable);
    drop(r);
    let b = Store::open(&dir.store(), config).unwrap();
    let mut n = 0;
    for e in 10..1200 {
        if put(&b, &key(RUN, e, 0), &[9; 2000]).is_ok() {
            n = e;
        }
    }
    for e in 10..=n {
        let f = b.get(&key(RUN, e, 0));
        assert!(f.as_ref().is_ok_and(|f| f.is_some()), "event {e} of {n}: {f:?}");
    }
}

#[test]
fn refused_puts_of_new_runs_leave_the_decisions_their_reserve() {
    let s = Fixture::new(&singles());
    let mut n = 0;
    while s.try_put(n, 0, &[1; 2048]).is_ok() {
        n += 1;
    }
    let mut refused = 0;
    for run in 2..20_000 {
        match put(&s, &key(run, 1, 0), &[1; 2048]) {
            Err(e) if e.to_string().contains("decision log") => break,
            Err(_) => refused += 1,
            Ok(_) => {}
        }
    }
    s.tick();
    println!("{n} events, {refused} refused puts, free {}", s.stats().segments_free);
    let mut rejected = 0;
    loop {
        let leases = s.any(100);
        if leases.is_empty() {
            break;
        }
        for l in leases {
            if let Err(e) = l.reject() {
                panic!("after {rejected} verdicts: {e}");
            }
            rejected += 1;
        }
    }
}

fn fill_zero(s: &Store) -> u64 {
    let mut n = 0;
    while put(s, &key(RUN, 1, n), &[]).is_ok() {
        n += 1;
    }
    n
}

#[test]
fn single_removals_leave_the_decisions_their_reserve() {
    let m = SimMedium::new(1 << 20);
    let s = Store::create_on(m, &sealed_events(), sim_config()).unwrap();
    let n = fill_zero(&s);
    let mut removed = 0;
    let mut failed = None;
    for k in (0..n).step_by(2) {
        match s.remove(&key(RUN, 1, k)) {
            Ok(_) => removed += 1,
            Err(e) => {
                failed = Some(e.to_string());
                break;
            }
        }
    }
    for _ in 0..50 {
        s.tick();
    }
    let last = s.remove_event(&prim(&s, 1));
    assert!(
        // A removal that frees less than its record takes may find no space; the event as a whole always goes.
        failed.is_none_or(|error| error.starts_with("Full")) && last.as_ref().is_ok_and(|gone| *gone),
        "{n} fragments, {removed} removed; remove_event: {last:?}; free {}",
        s.stats().segments_free
    );
}

#[test]
fn stale_pieces_of_a_given_up_snapshot_are_passed_over() {
    let m = SimMedium::new(1 << 20);
    let s = Store::create_on(m.clone(), &sealed_events(), sim_config()).unwrap();
    let n = fill_zero(&s);
    let mut big = 0;
    let mut bad = Vec::new();
    let mut tried = 0;
    for k in (0..n).step_by(2) {
        let before = m.steps();
        if big >= 1 && tried < 200 {
            m.arm(before + 60, k);
        }
        let r = s.remove(&key(RUN, 1, k));
        big = if m.steps() - before > 600 { big + 1 } else { 0 };
        if let Some(image) = m.crash_image() {
            m.arm(0, 0);
            tried += 1;
            if let Err(e) = Store::open_on(SimMedium::from_image(image), &sealed_events(), sim_config()) {
                bad.push((k, e.to_string()));
                if bad.len() > 2 {
                    break;
                }
            }
        }
        if r.is_err() {
            break;
        }
    }
    assert!(bad.is_empty(), "{tried} images: {bad:?}");
}

#[test]
fn removing_a_key_never_takes_a_newer_fragment_along() {
    let s = Fixture::with(&singles(), |c| {
        c.hot_bytes = 1 << 20;
        c.segment_bytes = Some(16 << 10);
        c.put_deadline = Duration::from_secs(5);
    });
    let lost = std::sync::atomic::AtomicU64::new(0);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (s, lost, barrier) = (&s, &lost, &barrier);
        let over = &*Box::leak(Box::new(std::sync::atomic::AtomicBool::new(false)));
        // Others decide as well: their snapshots hold removals up between their two looks.
        for lane in 0..2_u64 {
            scope.spawn(move || {
                for e in (0..60_000).map(|e| (1 << 40) + (lane << 36) + e) {
                    if over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let _ = s.try_put(e, 0, b"z");
                    let _ = s.remove_event(&s.primary(e));
                }
            });
        }
        scope.spawn(move || {
            for e in 0..60_000_u64 {
                barrier.wait();
                assert!(s.remove(&s.key(e, 0)).unwrap());
                barrier.wait();
            }
        });
        scope.spawn(move || {
            for e in 0..60_000_u64 {
                s.stored(e, 0, b"x");
                barrier.wait();
                for _ in 0..(e % 20) {
                    std::hint::spin_loop();
                }
                let r = s.try_put(e, 1, b"y").unwrap();
                barrier.wait();
                if r == PutOutcome::Stored && s.read(e, 1).is_none() {
                    lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                let _ = s.remove_event(&s.primary(e));
                over.store(e == 59_999, std::sync::atomic::Ordering::Relaxed);
            }
        });
    });
    assert_eq!(lost.into_inner(), 0, "acknowledged fragments that a removal of another key took along");
}

#[test]
fn nothing_is_written_after_close() {
    for round in 0..6_u64 {
        let dir = TempDir::new();
        let config = Config {
            hot_bytes: 136 << 20,
            segment_bytes: Some(8 << 20),
            hot_low: 0.0,
            write_heads: 1,
            ..small_config()
        };
        let s = Store::create(&dir.store(), &singles(), config).unwrap();
        let mut n = 0;
        while n < 250_000 && put(&s, &key(RUN, n, 0), &[5; 100]).is_ok() {
            n += 1;
        }
        for e in (0..n).filter(|e| e % 3 != 0) {
            s.remove_event(&prim(&s, e)).unwrap();
        }
        let other = s.clone();
        let ticking = std::thread::spawn(move || other.tick());
        std::thread::sleep(Duration::from_micros(500 * round));
        let closed = s.close();
        let then = std::fs::read(dir.store().join("hot.fb")).unwrap();
        ticking.join().unwrap();
        let now = std::fs::read(dir.store().join("hot.fb")).unwrap();
        let differ = then.iter().zip(&now).filter(|(a, b)| a != b).count();
        assert!(differ == 0, "round {round}: {differ} bytes changed after close ({closed:?}) had given the lock away");
    }
}

#[test]
fn dense_decided_events_do_not_use_the_region_up() {
    let m = SimMedium::new(1 << 20);
    let s = Store::create_on(m, &singles(), sim_config()).unwrap();
    for e in 0..600_000_u64 {
        if let Err(error) = put(&s, &key(RUN, e, 0), b"x") {
            panic!(
                "event {e}, nothing is live ({:?}), free {}: {error}",
                s.stats().events.ready.events,
                s.stats().segments_free
            );
        }
        s.remove_event(&prim(&s, e)).unwrap();
    }
}

#[test]
fn a_dropped_reservation_with_attributes_leaves_its_event_open() {
    let mut ks = singles();
    ks.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    ks.run.complete_within = Duration::from_secs(1);
    let s = Fixture::new(&ks);
    let a = s.attributes(&["lumi=3"]);
    let r = s.reserve(&s.key(5, 0), 10, &PutOptions { attributes: Some(&a), ..PutOptions::default() }).unwrap();
    drop(r);
    s.advance(Duration::from_secs(2));
    assert_eq!(s.try_put(5, 0, b"first and only").unwrap(), PutOutcome::Stored);
}

#[test]
fn one_flipped_bit_in_a_header_is_corruption() {
    let ks = sealed_events();
    let m = SimMedium::new(1 << 20);
    let s = Store::create_on(m.clone(), &ks, sim_config()).unwrap();
    for e in 0..5 {
        let _ = put(&s, &key(RUN, e, 0), &[3; 1000]).unwrap();
    }
    let seg = s.segments().into_iter().find(|g| g.state == "open").unwrap().segment as usize;
    let mut image = m.crash_now(1);
    image[8192 + seg * (16 << 10) + 64 + 24] ^= 1;
    match Store::open_on(SimMedium::from_image(image), &ks, sim_config()) {
        Err(e) => assert_eq!(e.kind(), Kind::Corrupt),
        Ok(s) => assert!(s.get(&key(RUN, 0, 0)).unwrap().is_some(), "opened; five acknowledged fragments are gone"),
    }
}

#[test]
fn another_verdict_with_the_same_token_is_fenced() {
    let s = Fixture::new(&singles());
    s.stored(1, 0, b"x");
    let l = s.take(1);
    l.accept(&["a"]).unwrap();
    l.accept(&["a"]).unwrap();
    assert!(l.accept(&["b"]).is_err(), "accepted into a, answered Ok for b");
}

#[test]
fn a_verdict_on_a_long_held_lease_can_be_repeated() {
    let s = Fixture::with(&singles(), |c| c.lease = Duration::from_secs(3600));
    s.stored(1, 0, b"x");
    s.stored(2, 0, b"x");
    let old = s.take(1);
    for _ in 0..16_500 {
        s.take(2).requeue().unwrap();
    }
    s.take(2).reject().unwrap();
    old.accept(&["a"]).unwrap();
    old.accept(&["a"]).unwrap();
}

#[test]
fn releases_after_the_close_of_a_run_leave_no_memory() {
    let s = Fixture::new(&singles());
    for e in 0..500 {
        s.stored(e * 2, 0, b"x");
    }
    for l in s.any(500) {
        l.accept(&["a"]).unwrap();
    }
    s.run_stop(RUN).unwrap();
    s.run_close(RUN).unwrap();
    for e in 0..500 {
        assert!(s.release(&s.primary(e * 2)).unwrap());
    }
    assert_eq!(s.stats().decided_events, 0);
}

#[test]
fn a_cut_removal_leaves_a_sealed_event_ready() {
    let ks = sealed_events();
    let run = |arm: Option<u64>| {
        let m = SimMedium::new(1 << 20);
        let s = Store::create_on(m.clone(), &ks, sim_config()).unwrap();
        let _ = put(&s, &key(RUN, 1, 0), b"zero").unwrap();
        let _ = put(&s, &key(RUN, 1, 1), b"one").unwrap();
        assert!(s.seal(&prim(&s, 1)).unwrap());
        let a = m.steps();
        if let Some(k) = arm {
            m.arm(a + k, 1)
        }
        s.remove(&key(RUN, 1, 0)).unwrap();
        (a, m.steps(), m.crash_image())
    };
    let (a, b, _) = run(None);
    let mut bad = Vec::new();
    for k in 1..=(b - a) {
        let s = Store::open_on(SimMedium::from_image(run(Some(k)).2.unwrap()), &ks, sim_config()).unwrap();
        let e = s.get_event(&prim(&s, 1), &forebay_store::Sources::None).unwrap().unwrap();
        if e.state != LiveState::Ready {
            bad.push((k, e.state));
        }
    }
    assert!(bad.is_empty(), "of {} steps: {bad:?}", b - a);
}

#[test]
fn an_orderly_close_of_a_full_store_is_clean() {
    let s = Fixture::new(&singles());
    let mut n = 0;
    while s.try_put(n, 0, &[1; 2048]).is_ok() {
        n += 1;
    }
    for run in 2..20_000 {
        let _ = put(&s, &key(run, 1, 0), &[1; 2048]);
        if run % 500 == 0 && s.stats().segments_free == 0 {
            break;
        }
    }
    let closed = s.close();
    let report = forebay_store::check(&s.path(), false).unwrap();
    assert!(report.clean, "{closed:?}");
}

#[test]
fn a_large_table_with_wide_sub_keys() {
    let mut ks = Keyspace::events("wide", 22_000).opening_runs();
    ks.schema = KeySchema::parse(&["run:u8", "a:u64", "b:u64", "c:u64", "d:u56"], &["run"]).unwrap();
    let dir = TempDir::new();
    let s = Store::create(&dir.store(), &ks, Config { hot_bytes: 16 << 20, ..small_config() }).unwrap();
    for n in 0..23_900 {
        let _ = put(&s, &s.schema().key(&[1, 0, 0, 0, n]).unwrap(), &[]).unwrap();
    }
}

#[test]
fn a_hostile_header_does_not_panic() {
    let ks = sealed_events();
    let m = SimMedium::new(1 << 20);
    let config = Config { hot_low: 0.0, ..sim_config() };
    let s = Store::create_on(m.clone(), &ks, config.clone()).unwrap();
    for e in 0..5 {
        let _ = put(&s, &key(RUN, e, 0), &[3; 1000]).unwrap();
    }
    s.close().unwrap();
    let mut image = m.crash_now(1);
    let sb = [0, 4096]
        .iter()
        .filter_map(|&o| Superblock::decode(&image[o..o + 128]).ok())
        .max_by_key(|s| s.revision)
        .unwrap();
    for seg in 0..sb.geometry.segments {
        let at = sb.geometry.segment_offset(seg) as usize;
        let best = [at, at + 64]
            .iter()
            .filter_map(|&o| SegmentHeader::decode(&image[o..o + 64], &sb.store, seg))
            .max_by_key(|h| h.revision);
        if let Some(h) = best
            && h.kind == SegmentKind::Data
        {
            let h = SegmentHeader { payload_end: u64::MAX, ..h };
            image[at..at + 64].copy_from_slice(&h.encode(&sb.store));
            image[at + 64..at + 128].copy_from_slice(&h.encode(&sb.store));
        }
    }
    if let Ok(s) = Store::open_on(SimMedium::from_image(image), &ks, config) {
        s.tick();
        let _ = s.segments();
    }
}

#[test]
fn fenced_verdicts_name_no_streams() {
    let s = Fixture::new(&singles());
    s.stored(1, 0, b"x");
    let no = Token { epoch: 0, boot: 1, counter: 999 };
    for n in 0..32 {
        assert!(s.accept(&s.primary(1), &no, &[&format!("typo{n}")]).is_err());
    }
    s.take(1).accept(&["physics"]).unwrap();
}

/// Events that wait for sources 0 to `sources` − 1, in two stages, open for ten seconds.
fn two_stages(sources: u64) -> Keyspace {
    let mut keyspace = Keyspace::events("r", 1).opening_runs();
    keyspace.run.completeness = Completeness::first_sources(&keyspace.schema, sources).unwrap();
    keyspace.run.complete_within = Duration::from_secs(10);
    keyspace.stages = ["fast", "final"].map(str::to_owned).into();
    keyspace
}

/// A result whose verdict is recorded counts, however often power goes between the record and the mark beside it.
#[test]
fn a_result_that_counts_is_there_after_the_second_opening_too() {
    let keyspace = two_stages(1);
    let run = |cut: Option<u64>| {
        let medium = SimMedium::new(1 << 20);
        let store = Store::create_on(medium.clone(), &keyspace, sim_config()).unwrap();
        assert_eq!(put(&store, &key(RUN, 1, 0), b"raw").unwrap(), PutOutcome::Stored);
        let lease = store.lease(&prim(&store, 1), None).unwrap().unwrap();
        let before = medium.steps();
        if let Some(step) = cut {
            medium.arm(before + step, 1);
        }
        lease.pass("final", &[ResultFragment::new(&store.schema().source(&[7]).unwrap(), b"result")]).unwrap();
        (medium.steps() - before, medium.crash_image())
    };
    for step in 1..=run(None).0 {
        let mut image = run(Some(step)).1.unwrap();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let medium = SimMedium::from_image(image);
            let store = Store::open_on(medium.clone(), &keyspace, sim_config()).unwrap();
            seen.push((store.get(&key(RUN, 1, 7)).unwrap().is_some(), store.ledger(RUN).unwrap().stored));
            image = medium.crash_now(step);
        }
        assert!(seen[0] == seen[1] && seen[1] == seen[2], "power lost at step {step}: {seen:?}");
    }
}

#[test]
fn an_event_of_which_everything_was_removed_is_not_made_ready_by_a_mask() {
    let mut store = Fixture::new(&two_stages(2));
    store.stored(1, 0, b"x");
    assert!(store.remove(&store.key(1, 0)).unwrap());
    store.mask(RUN, &store.source(1), None).unwrap();
    store.in_every_life(|store| assert_eq!(store.state(1), Some(LiveState::Open)));
    store.advance(Duration::from_secs(11));
    store.in_every_life(|store| assert_eq!((store.state(1), store.ledger(RUN).unwrap().removed.events), (None, 1)));
}

#[test]
fn a_fragment_in_flight_completes_its_ready_event_for_good() {
    let mut store = Fixture::new(&two_stages(3));
    store.stored(1, 0, b"x");
    let mut reserved = store.reserve(&store.key(1, 1), 1, &PutOptions::default()).unwrap();
    assert!(store.seal(&store.primary(1)).unwrap());
    store.mask(RUN, &store.source(2), None).unwrap();
    reserved[0] = b'x';
    assert_eq!(reserved.commit().unwrap(), PutOutcome::Stored);
    store.in_every_life(|store| assert_eq!(store.counts(), [1, 0, 0, 0]));
}

#[test]
fn a_producer_of_a_closed_run_is_told_so() {
    let store = Fixture::new(&two_stages(1));
    store.run_open(RUN, &store.keyspace().run.clone()).unwrap();
    let producer = store.producer(RUN, "readout").unwrap();
    store.run_close(RUN).unwrap();
    crate::common::refused(producer.report(), Kind::Closed);
    crate::common::refused(producer.finish(), Kind::Closed);
}

/// Two of three sources, then time runs out; `misses` in a row mask the third.
fn with_policy(misses: u32) -> Keyspace {
    let mut keyspace = two_stages(3);
    keyspace.run.auto_mask = Some(misses);
    keyspace
}

#[test]
fn a_person_who_masks_what_the_policy_has_masked_is_obeyed() {
    let mut store = Fixture::new(&with_policy(2));
    for event in 1..=2 {
        (0..2).for_each(|source| store.stored(event, source, b"x"));
    }
    store.advance(Duration::from_secs(11));
    store.tick();
    assert_eq!(store.runs()[0].masked, ["2"]);
    store.mask(RUN, &store.source(2), None).unwrap();
    let by_hand = |store: &Fixture| {
        let rows = store.sources(RUN).unwrap();
        assert_eq!(rows[2].masked.as_deref(), Some("by hand"));
    };
    store.in_every_life(by_hand);
    for event in 3..=9 {
        (0..3).for_each(|source| store.stored(event, 2 - source, b"x"));
        store.tick();
    }
    store.in_every_life(by_hand);
}

/// A source that is there for every other event does not lack in a row, however many events one round sees.
#[test]
fn a_source_that_comes_in_between_is_not_masked() {
    let store = Fixture::new(&with_policy(3));
    store.run_open(RUN, &store.keyspace().run.clone()).unwrap();
    store.tick();
    for event in 1..=200 {
        (0..2 + event % 2).for_each(|source| store.stored(event, source, b"x"));
        assert!(store.seal(&store.primary(event)).unwrap());
    }
    store.tick();
    store.tick();
    assert!(store.runs()[0].masked.is_empty());
}

/// Such a run could not be read back: the store could not be opened again.
#[test]
fn sources_out_of_order_or_of_another_width_are_refused() {
    let mut store = Fixture::new(&two_stages(1));
    let wrong: [Vec<&[u8]>; 4] = [vec![&[0, 0, 0, 5], &[0, 0, 0, 3]], vec![&[0, 0, 0, 5]; 2], vec![&[0; 3]], vec![]];
    for sources in wrong {
        let sources = sources.iter().map(|source| Source::from_packed(source)).collect();
        let config = RunConfig::new(Completeness::Sources(sources), Duration::from_secs(1));
        crate::common::refused(store.run_open(RUN, &config), Kind::Invalid);
        store.reopen();
    }
}

#[test]
fn a_run_with_classes_in_any_order_is_opened_again_after_a_restart() {
    let mut keyspace = two_stages(1);
    keyspace.attributes = AttributeSchema::parse(&["class"], &["physics", "calib"]).unwrap();
    let mut store = Fixture::new(&keyspace);
    let mut config = keyspace.run.clone();
    config.classes = ["physics", "calib"].map(|class| (class.to_owned(), Completeness::Count(2))).into();
    store.run_open(RUN, &config).unwrap();
    store.in_every_life(|store| store.run_open(RUN, &config).unwrap());
}

#[test]
fn a_removed_result_does_not_complete_its_event_after_a_restart() {
    let mut keyspace = two_stages(1);
    keyspace.run.completeness = Completeness::Count(3);
    let mut store = Fixture::new(&keyspace);
    (0..2).for_each(|source| store.stored(1, source, b"x"));
    assert!(store.seal(&store.primary(1)).unwrap());
    store.take(1).pass("final", &[ResultFragment::new(&store.source(7), b"result")]).unwrap();
    assert!(store.remove(&store.key(1, 7)).unwrap());
    store.in_every_life(|store| assert_eq!(store.counts(), [0, 1, 0, 0]));
}

/// How each event ended is remembered for `why`, within bounds: in every snapshot it would fill the store.
#[test]
fn a_long_run_of_mixed_verdicts_does_not_use_the_region_up() {
    let store = Store::create_on(SimMedium::new(1 << 20), &singles(), sim_config()).unwrap();
    for event in 0..100_000 {
        assert_eq!(put(&store, &key(RUN, event, 0), b"x").unwrap(), PutOutcome::Stored, "event {event}");
        let (lease, primary) = (store.lease(&prim(&store, event), None).unwrap().unwrap(), prim(&store, event));
        if event % 3 == 0 {
            lease.accept(&["main"]).unwrap();
            drop(lease);
            assert!(store.release(&primary).unwrap());
        } else {
            lease.reject().unwrap();
        }
    }
    let answer = |event| store.why(&key(RUN, event, 0)).unwrap().answer;
    assert_eq!([0, 99_999, 99_998].map(answer), ["decided", "moved", "decided"]);
}
