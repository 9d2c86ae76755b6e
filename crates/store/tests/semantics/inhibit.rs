//! Inhibit as a trigger meets it: set once, cleared once, watched, told, and its time charged to its cause.

use super::*;
use crate::common::fixture::RUN;
use crate::common::{eventually, put, refused, small_config};
use forebay_store::core::{Kind, ManualClock};
use forebay_store::{Config, InhibitClass, InhibitListener, InhibitState, Store, Watch};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const VALUE: [u8; 4096] = [0x5A; 4096];

#[derive(Default)]
struct Told(Mutex<Vec<InhibitState>>);

impl InhibitListener for Told {
    fn changed(&self, state: &InhibitState) {
        self.0.lock().unwrap().push(state.clone());
    }
}

fn marks(config: &mut Config) {
    (config.hot_high, config.hot_low) = (0.50, 0.25);
}

/// Puts events from `next` on until the fill is at least `fill`; answers the next number.
fn fill_to(store: &Fixture, mut next: u64, fill: f64) -> u64 {
    while store.stats().fill < fill {
        store.stored(next, 0, &VALUE);
        next += 1;
    }
    next
}

/// Rejects the oldest events, from `first` on, until the fill is at most `fill`; answers the oldest that is left.
fn drain_to(store: &Fixture, mut first: u64, fill: f64) -> u64 {
    while store.stats().fill > fill {
        store.take(first).reject().unwrap();
        first += 1;
        store.tick();
    }
    first
}

#[test]
fn a_sawtooth_on_a_border_does_not_flap() {
    let told = Arc::new(Told::default());
    let listener = told.clone();
    let store = Fixture::on_hot_alone(&single(), |config| {
        marks(config);
        config.inhibit = Some(listener);
    });
    let transitions = || told.0.lock().unwrap().len();
    let (mut first, mut next) = (0, 0);
    for _ in 0..20 {
        next = fill_to(&store, next, 0.48);
        first = drain_to(&store, first, 0.42);
    }
    assert_eq!(transitions(), 0, "the high mark was never reached");
    for _ in 0..20 {
        next = fill_to(&store, next, 0.53);
        assert!(store.stats().inhibit.is_some());
        first = drain_to(&store, first, 0.45);
        assert!(store.stats().inhibit.is_some(), "between the marks, from above");
    }
    assert_eq!(transitions(), 1);
    for _ in 0..20 {
        first = drain_to(&store, first, 0.24);
        assert_eq!(store.stats().inhibit, None);
        next = fill_to(&store, next, 0.45);
        assert_eq!(store.stats().inhibit, None, "between the marks, from below");
    }
    assert_eq!(transitions(), 2);
}

#[test]
fn time_is_charged_to_the_cause_that_holds() {
    let store = Fixture::on_hot_alone(&Keyspace { deliveries_max: 1, ..single() }, |config| {
        marks(config);
        config.debug_share = 1.0 / 64.0;
    });
    store.advance(Duration::from_secs(3));
    // Past the debug stream's quota first.
    let mut next = 0;
    while store.stats().inhibit.is_none() {
        store.stored(next, 0, &VALUE);
        drop(store.take(next));
        store.advance(store.config.lease * 2);
        next += 1;
    }
    let debug = store.stats().inhibit.unwrap();
    assert_eq!((debug.class, &*debug.scope), (InhibitClass::DebugStream, "debug stream"));
    let before = store.stats().dead_time;
    assert_eq!(before, Default::default(), "set in this very instant");
    store.advance(Duration::from_secs(5));
    let ready = next;
    fill_to(&store, next, 0.5);
    let hot = store.stats().inhibit.unwrap();
    assert_eq!((hot.class, &*hot.scope, &*hot.owner), (InhibitClass::HotFull, "hot level", "selection"));
    assert!(hot.ends.contains("until hot fill is 25 %"), "{hot}");
    assert!(hot.ends.contains("the debug stream holds the trigger as well"), "{hot}");
    store.advance(Duration::from_secs(7));
    drain_to(&store, ready, 0.25);
    assert_eq!(store.stats().inhibit.unwrap().class, InhibitClass::DebugStream, "it is still there");
    store.advance(Duration::from_secs(2));
    store.debug_events().iter().for_each(|event| assert!(store.release(&event.primary).unwrap()));
    store.tick();
    let stats = store.stats();
    assert_eq!(stats.inhibit, None);
    let seconds = |class| stats.dead_time.of(class).as_secs_f64();
    assert_eq!((seconds(InhibitClass::DebugStream), seconds(InhibitClass::HotFull)), (7.0, 7.0));
    assert_eq!(stats.inhibited_ns, 14_000_000_000);
    assert_eq!(stats.dead_time.total(), Duration::from_secs(14));
    store.advance(Duration::from_secs(9));
    assert_eq!(store.stats().dead_time, stats.dead_time);
}

/// Small events: the room that their decisions need runs out before the mark is reached.
#[test]
fn reserves_that_bind_before_the_mark_are_named() {
    let store = Fixture::on_hot_alone(&single(), |_| {});
    let mut next = 0;
    while store.stats().inhibit.is_none() {
        store.stored(next, 0, &[1; 64]);
        next += 1;
    }
    let inhibit = store.stats().inhibit.unwrap();
    assert_eq!(inhibit.class, InhibitClass::Reserves);
    assert!(inhibit.cause.contains("new events must leave") && inhibit.ends.contains("have space again"), "{inhibit}");
    assert!(store.stats().fill < store.config.hot_high);
    let mut changes = 0;
    let mut watch = store.watch_inhibit();
    for event in 0..next {
        store.take(event).reject().unwrap();
        store.tick();
        changes += u64::from(watch.wait_change(Duration::ZERO).is_some());
    }
    assert_eq!((changes, store.stats().inhibit), (1, None));
}

#[test]
fn a_refused_put_says_whose_turn_it_is() {
    let store = Fixture::on_hot_alone(&single(), |_| {});
    let mut next = 0;
    let message = loop {
        if let Err(error) = put(&store, &store.key(next, 0), &VALUE) {
            break error;
        }
        next += 1;
    };
    assert_eq!(message.kind(), Kind::Full);
    for words in ["hot level: hot fill", "% ready", "owner: selection; ends when workers take and decide ready events"]
    {
        assert!(message.message().contains(words), "{words} in {message}");
    }
    let shortage = message.shortage().unwrap();
    assert_eq!((&shortage.level[..], &shortage.owner[..]), ("hot level", "selection"));
    assert!(shortage.cause.contains("% ready"), "{shortage:?}");
    // Other calls say the same; limits say whose they are.
    let announced = store.announce(next, &[0]).unwrap_err();
    assert_eq!(announced.kind(), Kind::Full);
    assert_eq!(
        (&announced.shortage().unwrap().level[..], announced.message().contains("no space")),
        ("hot level", true)
    );
    let taken = put(&store, &store.key(next, 0), b"x").unwrap_err();
    assert!(taken.shortage().unwrap().cause.starts_with("hot fill"), "{taken}");
}

#[test]
fn a_watch_waits_for_a_change_to_its_deadline() {
    let store = Fixture::on_hot_alone(&single(), marks);
    let mut watch = store.watch_inhibit();
    assert_eq!(watch.wait_change(Duration::ZERO), None);
    let start = Instant::now();
    assert_eq!(watch.wait_change(Duration::from_millis(30)), None);
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    let mut other = store.watch_inhibit();
    let waiting = std::thread::spawn(move || other.wait_change(Duration::from_secs(30)));
    fill_to(&store, 0, 0.5);
    let told = waiting.join().unwrap().expect("a change");
    assert_eq!((told.change, told.inhibit.as_ref().map(|inhibit| inhibit.class)), (1, Some(InhibitClass::HotFull)));
    assert_eq!(watch.state(), told, "without waiting");
    assert_eq!(watch.wait_change(Duration::ZERO), Some(told), "answered once");
    assert_eq!(watch.wait_change(Duration::ZERO), None);
    let late = store.watch_inhibit();
    assert!(late.state().inhibit.is_some());
    store.remove_range(&forebay_store::core::Bounds::parse(store.schema(), "*").unwrap()).unwrap();
    eventually(&store, "inhibit ends", || watch.state().inhibit.is_none());
    let ended = watch.wait_change(Duration::ZERO).unwrap();
    assert_eq!((ended.change, ended.inhibit), (2, None));
}

/// Also where one node of several is full.
#[test]
fn a_watch_of_a_run_shows_inhibit_and_its_end() {
    let store = Fixture::on_hot_alone(&single(), marks);
    store.run_open(RUN, &single().run).unwrap();
    let mut watch = store.watch(RUN).unwrap();
    assert_eq!(watch.next(Duration::ZERO).expect("how it is now").inhibit, None);
    let start = Instant::now();
    assert_eq!(watch.next(Duration::from_millis(30)), None);
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    let until = |mut watch: Watch, is_set: bool| loop {
        let status = watch.next(Duration::from_secs(30)).expect("a change");
        if status.inhibit.is_some() == is_set {
            return (watch, status.inhibit);
        }
    };
    let waiting = std::thread::spawn(move || until(watch, true));
    fill_to(&store, 0, 0.5);
    let (watch, inhibit) = waiting.join().unwrap();
    let inhibit = inhibit.unwrap();
    assert_eq!((inhibit.class, &*inhibit.owner), (InhibitClass::HotFull, "selection"));
    assert!(inhibit.scope.starts_with("hot level"), "{inhibit}");
    let waiting = std::thread::spawn(move || until(watch, false));
    store.remove_range(&forebay_store::core::Bounds::parse(store.schema(), "*").unwrap()).unwrap();
    eventually(&store, "inhibit ends", || waiting.is_finished());
    assert_eq!(waiting.join().unwrap().1, None);
}

/// With the store's own thread nobody needs to look.
#[test]
fn maintenance_looks_by_itself() {
    let told = Arc::new(Told::default());
    let listener = told.clone();
    let store = Fixture::on_hot_alone(&single(), |config| {
        marks(config);
        config.maintenance = true;
        config.inhibit = Some(listener);
    });
    let mut watch = store.watch_inhibit();
    let mut next = 0;
    let change = loop {
        store.stored(next, 0, &VALUE);
        next += 1;
        if let Some(change) = watch.wait_change(Duration::from_millis(2)) {
            break change;
        }
        assert!(next < 900, "more than half of the region");
    };
    assert!(change.inhibit.is_some());
    for event in 0..next {
        store.take(event).reject().unwrap();
    }
    // On the way it may be in force for another cause.
    while watch.wait_change(Duration::from_secs(30)).expect("it ends").inhibit.is_some() {}
    eventually(&store, "the listener is told", || told.0.lock().unwrap().len() >= 2);
}

#[test]
fn marks_that_contradict_each_other_open_nothing() {
    let mut store = Fixture::on_hot_alone(&single(), |_| {});
    let dir = store.path();
    store.shut();
    let config =
        |high, low| Config { clock: Arc::new(ManualClock::default()), hot_high: high, hot_low: low, ..small_config() };
    let message = refused(Store::open(&dir, config(0.5, 0.6)), Kind::Invalid);
    assert!(message.contains("hot_low 0.6 and hot_high 0.5"), "{message}");
    let elsewhere = dir.with_file_name("elsewhere");
    refused(Store::create(&elsewhere, &single(), config(f64::NAN, 0.1)), Kind::Invalid);
    assert!(!elsewhere.exists(), "nothing is made");
    Store::open(&dir, config(0.6, 0.5)).unwrap().close().unwrap();
}
