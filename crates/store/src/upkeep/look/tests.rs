//! Inhibit over both levels, with a warm level that a test fills by hand.

use crate::inhibit::{Board, WarmBytes, WarmFill, WarmGauge};
use crate::{Config, Inhibit, InhibitClass, InhibitListener, InhibitState, PutOptions, Store};
use forebay_core::{DeadTime, Keyspace, Kind, ManualClock};
use forebay_testkit::media::SimMedium;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// A warm level as a test says it is.
struct Gauge(Mutex<WarmFill>, Mutex<WarmBytes>);

impl Gauge {
    fn set(&self, change: impl FnOnce(&mut WarmFill)) {
        change(&mut self.0.lock());
    }
}

impl WarmGauge for Gauge {
    fn warm_fill(&self) -> WarmFill {
        self.0.lock().clone()
    }

    fn warm_bytes(&self) -> WarmBytes {
        *self.1.lock()
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<InhibitState>>);

impl Told {
    fn changes(&self) -> Vec<InhibitState> {
        self.0.lock().clone()
    }
}

impl InhibitListener for Told {
    fn changed(&self, state: &InhibitState) {
        self.0.lock().push(state.clone());
    }
}

struct Scene {
    store: Store,
    clock: Arc<ManualClock>,
    warm: Arc<Gauge>,
}

impl Scene {
    fn new(listener: Option<Arc<dyn InhibitListener>>) -> Scene {
        let clock = Arc::new(ManualClock::default());
        let config = Config {
            segment_bytes: Some(16 << 10),
            write_heads: 1,
            maintenance: false,
            put_deadline: Duration::ZERO,
            clock: clock.clone(),
            inhibit: listener,
            ..Config::default()
        };
        let keyspace = Keyspace::events("pressure", 1).opening_runs();
        let store = Store::create_on(SimMedium::new(1 << 20), &keyspace, config).unwrap();
        let fill = WarmFill { fill: 0.1, free_containers: 8, stalled: None };
        let warm = Arc::new(Gauge(Mutex::new(fill), Mutex::default()));
        store.engine().inhibit.set_warm(warm.clone());
        Scene { store, clock, warm }
    }

    fn wait(&self, seconds: u64) {
        self.clock.advance_ns(seconds * SECOND);
        self.store.tick();
    }

    fn class(&self) -> Option<InhibitClass> {
        self.store.stats().inhibit.map(|inhibit| inhibit.class)
    }

    /// Puts until the hot level is full; answers the refusal and how many were stored.
    fn fill_hot(&self) -> (forebay_core::Error, u64) {
        for event in 0.. {
            let key = self.store.schema().key(&[1, event, 0]).unwrap();
            if let Err(error) = self.store.put(&key, &[7; 2000], &PutOptions::default()) {
                assert_eq!(error.kind(), Kind::Full);
                return (error, event);
            }
        }
        unreachable!("the level has an end")
    }

    fn empty_hot(&self, events: u64) {
        for event in 0..events {
            self.store.remove_event(&self.store.schema().primary(&[1, event]).unwrap()).unwrap();
        }
    }
}

#[test]
fn dead_time_by_class_adds_up_while_causes_change() {
    let scene = Scene::new(None);
    scene.wait(5);
    assert_eq!(scene.class(), None);
    scene.warm.set(|warm| warm.fill = 0.92);
    scene.wait(0);
    assert_eq!(scene.class(), Some(InhibitClass::WarmFull));
    scene.wait(3);
    scene.warm.set(|warm| warm.stalled = Some("warm-1".to_owned()));
    assert_eq!(scene.class(), Some(InhibitClass::DeviceStalled));
    scene.wait(2);
    scene.warm.set(|warm| (warm.stalled, warm.fill) = (None, 0.80));
    assert_eq!(scene.class(), Some(InhibitClass::WarmFull), "between its marks");
    scene.wait(1);
    let (_, events) = scene.fill_hot();
    scene.warm.set(|warm| warm.fill = 0.70);
    scene.wait(0);
    let hot = scene.class().expect("the hot level is full");
    assert!(matches!(hot, InhibitClass::HotFull | InhibitClass::Reserves), "{hot:?}");
    scene.wait(5);
    scene.warm.set(|warm| warm.free_containers = 0);
    assert_eq!(scene.class(), Some(InhibitClass::WarmFull), "nothing can be demoted");
    scene.wait(4);
    scene.empty_hot(events);
    scene.wait(0);
    assert_eq!(scene.class(), None, "{:?}", scene.store.stats());
    scene.wait(100);
    let stats = scene.store.stats();
    let seconds = |class| stats.dead_time.of(class).as_secs();
    assert_eq!(seconds(InhibitClass::DeviceStalled), 2);
    assert_eq!(seconds(InhibitClass::WarmFull), 3 + 1 + 4);
    assert_eq!(seconds(InhibitClass::HotFull) + seconds(InhibitClass::Reserves), 5);
    assert_eq!((stats.inhibited_ns, stats.dead_time.total().as_nanos()), (15 * SECOND, 15 * u128::from(SECOND)));
}

/// At random instants and causes, with looks at some of them: the sum of the classes is the total, to the nanosecond.
#[test]
fn dead_time_adds_up_whatever_happens() {
    let scene = Scene::new(None);
    let mut number = 0x9E37_79B9_7F4A_7C15_u64;
    let mut seen = Vec::new();
    for _ in 0..5000 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = number >> 33;
        scene.clock.advance_ns(dice % 1_000_003);
        scene.warm.set(|warm| {
            warm.fill = (dice % 101) as f64 / 100.0;
            warm.stalled = dice.is_multiple_of(3).then(|| format!("warm-{}", dice % 2));
        });
        let stats = scene.store.stats();
        assert_eq!(u128::from(stats.inhibited_ns), stats.dead_time.total().as_nanos());
        assert_eq!(stats.inhibit.is_some(), scene.class().is_some());
        seen.extend(stats.inhibit.map(|inhibit| inhibit.class));
    }
    assert!(seen.contains(&InhibitClass::WarmFull) && seen.contains(&InhibitClass::DeviceStalled));
    let stats = scene.store.stats();
    assert!(stats.inhibited_ns > 0 && stats.inhibited_ns < scene.store.engine().now_ns());
}

#[test]
fn a_refused_put_names_scope_cause_owner_and_end() {
    let scene = Scene::new(None);
    let (error, _) = scene.fill_hot();
    for words in ["hot level: hot fill", "(marks 90 and 75 %)", "% ready", "owner: selection", "ends when workers take"]
    {
        assert!(error.message().contains(words), "{words} in {error}");
    }
    scene.warm.set(|warm| warm.stalled = Some("/mnt/nvme1".to_owned()));
    let (error, _) = scene.fill_hot();
    for words in [
        "device /mnt/nvme1: the device answers nothing, or refuses what is written",
        "owner: device /mnt/nvme1",
        "it answers again",
    ] {
        assert!(error.message().contains(words), "{words} in {error}");
    }
    assert!(error.message().contains("the hot level holds the trigger as well"), "{error}");
    scene.warm.set(|warm| (warm.stalled, warm.fill) = (None, 0.95));
    *scene.warm.1.lock() = WarmBytes { all: 1000, accepted: 810, dead: 100, undecided: 40, ..WarmBytes::default() };
    let (error, _) = scene.fill_hot();
    for words in ["warm level: warm fill 95 % (marks 90 and 75 %), 8 containers free: 81 % accepted", "owner: archive"]
    {
        assert!(error.message().contains(words), "{words} in {error}");
    }
    assert!(error.message().contains("taken over and released, until warm fill is 75 %"), "{error}");
}

/// What went down does not fill the hot level, regardless of the account of the run.
#[test]
fn the_hot_level_names_what_stands_on_it() {
    let scene = Scene::new(None);
    let (_, events) = scene.fill_hot();
    let key = |event| scene.store.schema().primary(&[1, event]).unwrap();
    for event in 0..events * 2 / 3 {
        scene.store.lease(&key(event), None).unwrap().unwrap().accept(&["main"]).unwrap();
    }
    let words = || scene.store.stats().inhibit.unwrap();
    assert!(words().cause.ends_with("% accepted"), "{}", words());
    assert_eq!((&*words().owner, words().ends.contains("are demoted")), ("warm level", true));
    *scene.warm.1.lock() = WarmBytes { all: 1 << 30, accepted: events * 1200, ..WarmBytes::default() };
    assert!(words().cause.ends_with("% ready"), "{}", words());
    assert_eq!(words().owner, "selection");
    *scene.warm.1.lock() = WarmBytes { all: 1 << 30, undecided: 1 << 29, accepted: 1 << 29, ..WarmBytes::default() };
    let nothing = words();
    assert!(nothing.cause.contains(": 0 % "), "{nothing}");
}

#[test]
fn the_listener_is_told_once_per_change() {
    let told = Arc::new(Told::default());
    let scene = Scene::new(Some(told.clone()));
    for round in 0..10 {
        for fill in [0.91, 0.95, 0.80, 0.93, 0.751] {
            scene.warm.set(|warm| warm.fill = fill);
            scene.wait(1);
            scene.store.stats();
        }
        scene.warm.set(|warm| warm.fill = 0.6);
        scene.wait(1);
        assert_eq!(told.changes().len(), 2 * (round + 1), "{:?}", told.changes());
    }
    let told = told.changes();
    for (at, state) in told.iter().enumerate() {
        assert_eq!((state.change, state.inhibit.is_some()), (at as u64 + 1, at % 2 == 0));
    }
    assert_eq!(told[19].dead_time.warm_full_ns, 50 * SECOND);
    assert_eq!(scene.store.watch_inhibit().state(), told[19]);
}

/// A listener may call the store that calls it, and changes meanwhile come after.
#[test]
fn a_listener_may_call_the_store() {
    #[derive(Default)]
    struct Caller {
        holder: Mutex<Weak<crate::engine::Holder>>,
        /// Emptied at the first call.
        warm: Mutex<Option<Arc<Gauge>>>,
        changes: Mutex<Vec<u64>>,
    }
    impl InhibitListener for Caller {
        fn changed(&self, state: &InhibitState) {
            self.changes.lock().push(state.change);
            if let Some(warm) = self.warm.lock().take() {
                warm.set(|warm| warm.fill = 0.1);
            }
            let store = Store::handle(self.holder.lock().upgrade().unwrap());
            store.tick();
            assert_eq!(store.stats().inhibit, None);
        }
    }
    let caller = Arc::new(Caller::default());
    let scene = Scene::new(Some(caller.clone()));
    *caller.holder.lock() = Arc::downgrade(&scene.store.holder);
    *caller.warm.lock() = Some(scene.warm.clone());
    scene.warm.set(|warm| warm.fill = 0.95);
    scene.store.tick();
    assert_eq!(*caller.changes.lock(), [1, 2]);
}

#[test]
fn threads_that_look_at_once_tell_each_change_once_and_in_order() {
    let told = Arc::new(Told::default());
    let scene = Scene::new(Some(told.clone()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..400).for_each(|_| drop(scene.store.stats())));
        }
        for turn in 0..400 {
            scene.warm.set(|warm| warm.fill = if turn % 2 == 0 { 0.95 } else { 0.1 });
            scene.store.tick();
        }
    });
    scene.store.tick();
    let told = told.changes();
    assert_eq!(told.len() as u64, scene.store.watch_inhibit().state().change);
    assert!(told.len() >= 400, "{}", told.len());
    assert!(told.iter().enumerate().all(|(at, state)| state.change == at as u64 + 1));
    assert!(told.windows(2).all(|two| two[0].inhibit.is_some() != two[1].inhibit.is_some()));
}

#[test]
fn what_waits_for_a_listener_is_bounded_and_ends_with_the_newest() {
    let board = Board::default();
    let inhibit = |owner: u32| Inhibit {
        class: InhibitClass::HotFull,
        scope: "hot level".to_owned(),
        cause: "hot fill".to_owned(),
        owner: owner.to_string(),
        ends: "soon".to_owned(),
    };
    for owner in 0..1000 {
        board.post(Some(&inhibit(owner)), 0, DeadTime::default(), true);
        let refreshed = Inhibit { cause: "other figures".to_owned(), ..inhibit(owner) };
        board.post(Some(&refreshed), 0, DeadTime::default(), true);
    }
    let told = Told::default();
    board.deliver(&told);
    let told = told.changes();
    assert_eq!((told.len(), told[0].change, told[254].change, told[255].change), (256, 1, 255, 1000));
}

#[test]
fn after_a_listener_that_panics_the_next_change_is_told() {
    struct Fragile(Mutex<Vec<u64>>);
    impl InhibitListener for Fragile {
        fn changed(&self, state: &InhibitState) {
            assert_ne!(state.change, 1, "a listener that fails");
            self.0.lock().push(state.change);
        }
    }
    let fragile = Arc::new(Fragile(Mutex::default()));
    let scene = Scene::new(Some(fragile.clone()));
    scene.warm.set(|warm| warm.fill = 0.95);
    std::thread::scope(|scope| assert!(scope.spawn(|| scene.store.tick()).join().is_err()));
    scene.warm.set(|warm| warm.fill = 0.1);
    scene.store.tick();
    assert_eq!(*fragile.0.lock(), [2]);
}
