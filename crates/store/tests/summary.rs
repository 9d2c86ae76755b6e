//! The summary of a run says who did what when, in every life of the store.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{TempDir, refused};
use forebay_core::{
    Clock, Completeness, Keyspace, Kind, ManualClock, MaskRecord, PrescaleFactor, PrescaleRecord, Signature,
};
use forebay_store::{Config, LedgerBy, Store};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const RUN: u64 = 1;
/// A date of the tests, in milliseconds.
const DATE: u64 = 1_700_000_000_000;

/// A clock whose calendar goes on by a second each time it is asked.
#[derive(Default)]
struct Calendar {
    clock: ManualClock,
    asked: AtomicU64,
}

impl Clock for Calendar {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
    fn wall_ms(&self) -> u64 {
        DATE + 1000 * self.asked.fetch_add(1, Ordering::Relaxed)
    }
}

fn config() -> Config {
    let clock = Arc::new(Calendar::default());
    Config { hot_bytes: 4 << 20, segment_bytes: Some(64 << 10), maintenance: false, clock, ..Config::default() }
}

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("summary", 2).opening_runs();
    keyspace.run.auto_mask = Some(3);
    keyspace
}

fn record(source: &str, masked: bool, from: Option<&str>, by: &str, second: u64) -> MaskRecord {
    let signature = Signature::new(by, DATE + 1000 * second);
    MaskRecord { source: source.to_owned(), masked, from: from.map(str::to_owned), signature }
}

/// Masks by two people; answers what the summary must say of them.
fn mask(store: &Store) -> Vec<MaskRecord> {
    let (schema, source) = (store.schema(), |number: u64| store.schema().source(&[number]).unwrap());
    let from = schema.primary(&[RUN, 9]).unwrap();
    store.named("shift").run_open(RUN, &keyspace().run).unwrap();
    store.named("shift").mask(RUN, &source(1), Some(&from)).unwrap();
    // A second time it changes nothing, whoever says it.
    store.named("expert").mask(RUN, &source(1), Some(&from)).unwrap();
    store.named("expert").unmask(RUN, &source(1), None).unwrap();
    vec![record("1", true, Some("1/9"), "shift", 1), record("1", false, None, "expert", 3)]
}

#[test]
fn who_masked_what_when_survives_close_and_kill() {
    let medium = SimMedium::new(4 << 20);
    let store = Store::create_on(medium.clone(), &keyspace(), config()).unwrap();
    let expected = mask(&store);
    let opened = Signature::new("shift", DATE);
    let summary = store.run_summary(RUN).unwrap();
    assert_eq!((&summary.masks, &summary.opened), (&expected, &opened));
    // Killed: from the log alone. Then closed: from the snapshot alone.
    let mut medium = medium.after_kill(medium.killed_now());
    for _ in 0..2 {
        let store = Store::open_on(medium.clone(), &keyspace(), config()).unwrap();
        let summary = store.run_summary(RUN).unwrap();
        assert_eq!((&summary.masks, summary.masks_dropped, &summary.opened), (&expected, 0, &opened));
        store.close().unwrap();
        medium = medium.after_kill(medium.killed_now());
    }
}

#[test]
fn a_closed_run_keeps_its_summary_in_the_directory() {
    let dir = TempDir::new();
    let store = Store::create(dir.path(), &keyspace(), config()).unwrap();
    let expected = mask(&store);
    store.run_stop(RUN).unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!(summary.masks, expected);
    store.close().unwrap();
    drop(store);
    let store = Store::open(dir.path(), config()).unwrap();
    assert_eq!(store.run_summary(RUN).unwrap(), summary);
    refused(store.run_summary(7), Kind::Invalid);
    // As a version that kept sentences wrote it.
    let file = dir.path().join("runs/run-1.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    json["masks"] = serde_json::json!(["source 1 masked by hand from 1/9", "source 2 masked by policy from now on"]);
    json.as_object_mut().unwrap().retain(|name, _| !["opened", "masks_dropped"].contains(&&**name));
    std::fs::write(&file, json.to_string()).unwrap();
    let earlier = store.run_summary(RUN).unwrap();
    let by = |at: usize| (earlier.masks[at].signature.by.as_deref(), earlier.masks[at].from.as_deref());
    assert_eq!((by(0), by(1)), ((None, Some("1/9")), (Some("auto"), None)));
    std::fs::remove_file(&file).unwrap();
    refused(store.run_summary(RUN), Kind::Corrupt);
}

/// Accepts event 1, rejects event 2, each of one fragment, and closes their run.
fn decide_and_close(store: &Store) {
    let mut run = keyspace().run;
    run.completeness = Completeness::Count(1);
    store.run_open(RUN, &run).unwrap();
    for event in 1..=2 {
        let key = store.schema().key(&[RUN, event, event]).unwrap();
        let _ = store.put(&key, b"12345", &forebay_store::PutOptions::default()).unwrap();
        let lease = store.get_any(&forebay_store::GetAny::default()).unwrap().pop().unwrap();
        if event == 1 { lease.accept(&["main"]) } else { lease.reject() }.unwrap();
    }
    store.run_stop(RUN).unwrap();
    let _ = store.run_close(RUN).unwrap();
}

/// The account of the run by source: name, live and ended fragments.
fn by_source(store: &Store) -> Vec<(String, u64, u64)> {
    let rows = store.ledger_by(RUN, LedgerBy::Source).unwrap();
    rows.into_iter().map(|row| (row.name, row.live.fragments, row.ended.fragments)).collect()
}

/// Without a summary the next life knows the sources of what is live; what has ended is without a name.
#[test]
fn the_account_by_source_of_a_closed_run_needs_its_summary() {
    let row = |name: &str, live, ended| (name.to_owned(), live, ended);
    let whole = [row("1", 1, 0), row("2", 0, 1)];
    let rest = [row("1", 1, 0), row("unknown", 0, 1)];
    // This one keeps no summary.
    let medium = SimMedium::new(4 << 20);
    let store = Store::create_on(medium.clone(), &keyspace(), config()).unwrap();
    decide_and_close(&store);
    assert_eq!(by_source(&store), whole);
    store.close().unwrap();
    let store = Store::open_on(medium.after_kill(medium.killed_now()), &keyspace(), config()).unwrap();
    assert_eq!(by_source(&store), rest);
    // This one loses it.
    let dir = TempDir::new();
    let store = Store::create(dir.path(), &keyspace(), config()).unwrap();
    decide_and_close(&store);
    store.close().unwrap();
    let store = Store::open(dir.path(), config()).unwrap();
    assert_eq!(by_source(&store), whole);
    std::fs::remove_file(dir.path().join("runs/run-1.json")).unwrap();
    assert_eq!(by_source(&store), rest);
}

#[test]
fn the_policy_signs_its_masks_as_the_store_itself() {
    let store = Store::create_on(SimMedium::new(4 << 20), &keyspace(), config()).unwrap();
    let mut run = keyspace().run;
    run.completeness = Completeness::sources(store.schema(), &[vec![0], vec![1]]).unwrap();
    store.run_open(RUN, &run).unwrap();
    for event in 0..3 {
        let key = store.schema().key(&[RUN, event, 0]).unwrap();
        let _ = store.put(&key, b"x", &forebay_store::PutOptions::default()).unwrap();
        assert!(store.seal(&store.schema().primary(&[RUN, event]).unwrap()).unwrap());
    }
    store.tick();
    let summary = store.run_summary(RUN).unwrap();
    let by: Vec<_> = summary.masks.iter().map(|mask| (&*mask.source, mask.signature.by.as_deref())).collect();
    assert_eq!(by, [("1", Some(Signature::AUTO))]);
    assert_eq!(summary.opened.by.as_deref(), Some("store"));
}

fn prescale(name: &str, factor: &str, from: Option<&str>, by: &str, second: u64) -> PrescaleRecord {
    let (name, factor) = (name.to_owned(), PrescaleFactor::parse(factor).unwrap());
    let signature = Signature::new(by, DATE + 1000 * second);
    PrescaleRecord { name, factor, from: from.map(str::to_owned), signature }
}

#[test]
fn prescales_are_listed_from_the_opening_on_in_every_life() {
    let medium = SimMedium::new(4 << 20);
    let store = Store::create_on(medium.clone(), &keyspace(), config()).unwrap();
    let factor = |text: &str| PrescaleFactor::parse(text).unwrap();
    let mut run = keyspace().run;
    run.prescales = [("mu-4".to_owned(), factor("10")), ("jet-40".to_owned(), factor("2.5"))].into();
    let from = store.schema().primary(&[RUN, 50]).unwrap();
    refused(store.prescale(RUN, "mu-4", factor("5"), None), Kind::Invalid);
    let shift = store.named("shift");
    shift.run_open(RUN, &run).unwrap();
    shift.run_open(RUN, &run).unwrap();
    refused(store.run_open(RUN, &keyspace().run), Kind::Conflict);
    // What is so already is not listed again.
    shift.prescale(RUN, "mu-4", factor("10"), None).unwrap();
    for _ in 0..2 {
        shift.prescale(RUN, "mu-4", factor("off"), Some(&from)).unwrap();
        store.named("expert").prescale(RUN, "tau", factor("3"), None).unwrap();
    }
    refused(store.prescale(RUN, "", factor("3"), None), Kind::Invalid);
    refused(store.prescale(RUN, &"x".repeat(65), factor("3"), None), Kind::Invalid);
    let listed = store.run_summary(RUN).unwrap().prescales;
    let at = |name: &str| listed.iter().rfind(|known| known.name == name).unwrap().signature.at_ms.unwrap() - DATE;
    let (off, tau) = (at("mu-4") / 1000, at("tau") / 1000);
    assert!(0 < off && off < tau, "{listed:?}");
    let expected = [
        prescale("jet-40", "2.5", None, "shift", 1),
        prescale("mu-4", "10", None, "shift", 1),
        prescale("mu-4", "off", Some("1/50"), "shift", off),
        prescale("tau", "3", None, "expert", tau),
    ];
    assert_eq!(listed, expected);
    let mut medium = medium.after_kill(medium.killed_now());
    for _ in 0..2 {
        let store = Store::open_on(medium.clone(), &keyspace(), config()).unwrap();
        assert_eq!(store.run_summary(RUN).unwrap().prescales, expected);
        // The configuration is the same after a restart.
        store.run_open(RUN, &run).unwrap();
        store.close().unwrap();
        medium = medium.after_kill(medium.killed_now());
    }
    let store = Store::open_on(medium, &keyspace(), config()).unwrap();
    store.run_stop(RUN).unwrap();
    assert_eq!(store.run_close(RUN).unwrap().prescales, expected);
    refused(store.prescale(RUN, "tau", factor("3"), None), Kind::Closed);
}

#[test]
fn a_run_has_so_many_prescales_and_changes_of_them() {
    let store = Store::create_on(SimMedium::new(4 << 20), &keyspace(), config()).unwrap();
    let limit = forebay_core::limits::PRESCALES_MAX;
    let factor = |number: usize| PrescaleFactor::new(number as f64).unwrap();
    store.run_open(RUN, &keyspace().run).unwrap();
    for number in 0..limit {
        store.prescale(RUN, &format!("item-{number}"), factor(1), None).unwrap();
    }
    refused(store.prescale(RUN, "one more", factor(1), None), Kind::Invalid);
    for number in 2..1002 {
        store.prescale(RUN, "item-7", factor(number), None).unwrap();
    }
    let summary = store.run_summary(RUN).unwrap();
    assert_eq!((summary.prescales.len(), summary.prescales_dropped), (1000, limit as u64));
    assert!((0..limit).all(|number| summary.prescales.iter().any(|known| known.name == format!("item-{number}"))));
    let mut run = keyspace().run;
    run.prescales = (0..=limit).map(|number| (number.to_string(), factor(1))).collect();
    refused(store.run_open(2, &run), Kind::Invalid);
}

const SECOND: u64 = 1_000_000_000;

/// A store whose hot level is soon full.
struct Small {
    medium: Arc<SimMedium>,
    clock: Arc<Calendar>,
    store: Store,
}

impl Small {
    fn config(clock: &Arc<Calendar>) -> Config {
        Config {
            segment_bytes: Some(16 << 10),
            write_heads: 1,
            put_deadline: std::time::Duration::ZERO,
            clock: clock.clone(),
            ..config()
        }
    }

    fn new() -> Small {
        let (medium, clock) = (SimMedium::new(1 << 20), Arc::new(Calendar::default()));
        let store = Store::create_on(medium.clone(), &keyspace(), Small::config(&clock)).unwrap();
        Small { medium, clock, store }
    }

    /// The store after its process died.
    fn killed(self) -> Small {
        let medium = self.medium.after_kill(self.medium.killed_now());
        let store = Store::open_on(medium.clone(), &keyspace(), Small::config(&self.clock)).unwrap();
        Small { medium, store, clock: self.clock }
    }

    fn wait(&self, seconds: u64) {
        self.clock.clock.advance_ns(seconds * SECOND);
        self.store.tick();
    }

    /// Seconds that a run was open, and of dead time by owner.
    fn time(&self, run: u64) -> (u64, Vec<(String, u64)>) {
        let summary = self.store.run_summary(run).unwrap();
        assert!(summary.dead_ns() <= summary.ran_ns && summary.dead_time.iter().all(|row| row.level == "hot level"));
        let dead = summary.dead_time.iter().map(|row| (row.owner.clone(), row.ns / SECOND));
        (summary.ran_ns / SECOND, dead.collect())
    }
}

#[test]
fn dead_time_is_that_of_the_runs_that_are_open() {
    let small = Small::new();
    let store = &small.store;
    let readout = |seconds: u64| vec![("readout".to_owned(), seconds)];
    store.run_open(1, &keyspace().run).unwrap();
    small.wait(10);
    let mut events = 0;
    let key = |event: u64| store.schema().key(&[1, event, 0]).unwrap();
    while store.put(&key(events), &[7; 2000], &forebay_store::PutOptions::default()).is_ok() {
        events += 1;
    }
    // No event waits longer than the run's second: all are open at the next look, and ready at the one after.
    assert!(store.stats().inhibit.is_some_and(|inhibit| inhibit.owner == "readout"));
    store.run_open(2, &keyspace().run).unwrap();
    small.clock.clock.advance_ns(5 * SECOND);
    assert_eq!((small.time(1), small.time(2)), ((15, readout(5)), (5, readout(5))));
    store.run_pause(2).unwrap();
    small.wait(0);
    small.wait(3);
    let both = vec![("readout".to_owned(), 5), ("selection".to_owned(), 3)];
    assert_eq!((small.time(1), small.time(2)), ((18, both.clone()), (5, readout(5))));
    for event in 0..events {
        store.remove_event(&store.schema().primary(&[1, event]).unwrap()).unwrap();
    }
    small.wait(0);
    assert_eq!(small.store.stats().inhibit, None);
    small.wait(2);
    assert_eq!(small.time(1), (20, both.clone()));
    // What was journaled is there after a kill: at the pause of one run, not yet of the other one.
    let small = small.killed();
    assert_eq!((small.time(1), small.time(2)), ((0, vec![]), (5, readout(5))));
    small.store.run_resume(2).unwrap();
    small.wait(61);
    small.wait(8);
    let small = small.killed();
    assert_eq!((small.time(1), small.time(2)), ((61, vec![]), (66, readout(5))));
    // A close in order loses nothing, and time without the store is nobody's.
    small.wait(4);
    small.store.close().unwrap();
    small.clock.clock.advance_ns(1000 * SECOND);
    let small = small.killed();
    small.wait(1);
    assert_eq!(small.time(2), (71, readout(5)));
    small.store.run_stop(2).unwrap();
    small.wait(50);
    let summary = small.store.run_close(2).unwrap();
    assert_eq!((summary.ran_ns, summary.dead_ns()), (71 * SECOND, 5 * SECOND));
    assert!((summary.share(summary.dead_ns()) - 5.0 / 71.0).abs() < 1e-9);
}
