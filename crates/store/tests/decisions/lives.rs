//! Random lives: puts, verdicts, updates, removals and demotion over two devices that stall and fail at random, cut off at
//! random moments. With the hot level a life finds what the one before it showed; without it, what was acknowledged.
//!
//! `FOREBAY_DECISIONS_SEED` is where the seeds begin, `FOREBAY_DECISIONS_SEEDS` how many there are, and
//! `FOREBAY_DECISIONS_LIVES` how many lives follow one another for each.

use crate::common::fixture::RUN;
use crate::decisions::life::{CONTAINERS, DAY, LOGS, Life, Plan};
use forebay_store::core::{Error, Kind, LiveState};
use forebay_testkit::media::{SimDevice, SimMedium};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 6;
const LIVES: u64 = 6;
const STEPS: usize = 60;

/// What was acknowledged of an event, and what devices must know of it.
#[derive(Clone, Debug, Default)]
struct Promise {
    /// A call about it answered that its outcome is not known: anything goes without the hot level.
    unsure: bool,
    gone: bool,
    accepted: bool,
    passed: bool,
    /// Persisted fragments with their versions.
    persisted: BTreeMap<u64, u16>,
    removed: BTreeSet<u64>,
}

impl Promise {
    fn fault(&self, event: u64, life: &Life) -> Option<String> {
        // Bytes are looked at in any case.
        let found = life.find(event);
        if self.unsure {
            return None;
        }
        let Some(found) = found else {
            return (!self.gone && !self.persisted.is_empty()).then(|| "it is not there".to_owned());
        };
        if self.gone {
            return Some(format!("it is back: {found:?}"));
        }
        if self.accepted != (found.state == LiveState::Accepted) {
            return Some(format!("it is {:?}", found.state));
        }
        // Of an event that the hot level took along whole, only what was removed of it is known.
        if !found.versions.is_empty() && self.passed != (found.stage == "final") {
            return Some(format!("it is in stage {}", found.stage));
        }
        let wrong = self.persisted.iter().find(|(source, version)| found.versions.get(source) != Some(version));
        if let Some((source, version)) = wrong {
            return Some(format!("source {source}: version {:?}, not {version}", found.versions.get(source)));
        }
        let back = self.removed.iter().find(|source| found.versions.contains_key(source));
        back.map(|source| format!("source {source} is back"))
    }
}

type Promises = BTreeMap<u64, Promise>;

/// What a cut left: the hot level after a kill and after a loss of power, devices after each.
struct Cut {
    killed: (Vec<u8>, Vec<Arc<SimDevice>>),
    power: (Vec<u8>, Vec<Arc<SimDevice>>),
    bare: Vec<Arc<SimDevice>>,
}

fn cut(medium: &SimMedium, devices: &[Arc<SimDevice>], seed: u64) -> Cut {
    let left = |seed| devices.iter().map(|device| device.power_off(seed)).collect::<Vec<_>>();
    Cut {
        killed: (medium.killed_now(), left(1)),
        power: (medium.crash_now(seed.wrapping_mul(0x9E37_79B9) | 1), left(seed)),
        bare: left(seed / 4),
    }
}

struct Driver {
    life: Life,
    rng: SmallRng,
    promises: Promises,
    next_event: u64,
    what: String,
    /// Calls that were cut, and persisted fragments that were acknowledged.
    cuts: u64,
    persisted: u64,
}

impl Driver {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn event(&mut self) -> u64 {
        if self.next_event == 0 || self.chance(20) {
            self.next_event += 1;
            self.promises.insert(self.next_event, Promise::default());
            return self.next_event;
        }
        let first = self.next_event.saturating_sub(12).max(1);
        first + self.below(self.next_event + 1 - first)
    }

    /// A device begins or ends to be in trouble.
    fn trouble(&mut self) {
        if self.chance(60) {
            self.life.answer_again();
            return;
        }
        let at = self.below(2) as usize;
        let names = [LOGS, CONTAINERS, ""][self.below(3) as usize];
        let device = &self.life.devices[at];
        if self.rng.random_range(0..2) == 0 { device.stall_writes(names, DAY) } else { device.refuse_writes(names) }
    }

    /// An answer of a call about an event; whether it is done for certain.
    fn told(&mut self, event: u64, answer: std::result::Result<(), Error>, what: &str) -> bool {
        match answer {
            Ok(()) => true,
            Err(error) => {
                match error.kind() {
                    Kind::OutcomeUnknown | Kind::Unavailable => self.promise(event).unsure = true,
                    Kind::Full | Kind::Conflict | Kind::Fenced | Kind::Invalid => {}
                    other => panic!("{}: {what} of event {event}: {other:?}: {error}", self.what),
                }
                false
            }
        }
    }

    fn promise(&mut self, event: u64) -> &mut Promise {
        self.promises.entry(event).or_default()
    }

    fn step(&mut self) {
        let event = self.event();
        match self.below(100) {
            0..45 => self.put(event),
            45..70 => self.judge(event),
            70..77 => self.update(event),
            77..83 => self.remove(event),
            83..86 => self.remove_event(event),
            86..94 => self.life.tick(),
            _ => self.trouble(),
        }
    }

    fn put(&mut self, event: u64) {
        let (source, persisted) = (self.below(3), self.chance(45));
        if self.life.version(event, source).is_some_and(|version| version > 0) {
            return;
        }
        let answer = self.life.try_put(event, source, persisted);
        let stored = answer.as_ref().is_ok_and(|outcome| *outcome != forebay_store::PutOutcome::Late);
        let done = match answer {
            // What is stored and not persisted promises nothing more.
            Err(error) if persisted && error.kind() == Kind::Unavailable => false,
            other => self.told(event, other.map(drop), "put"),
        };
        if done && stored && persisted {
            // Not 0 where versions before it went with the hot level.
            let version = self.life.version(event, source).expect("it was stored");
            self.promise(event).persisted.insert(source, version);
            self.persisted += 1;
        }
    }

    fn judge(&mut self, event: u64) {
        let state = self.life.find_state(event);
        if state == Some(LiveState::Accepted) && self.chance(50) {
            let answer = self.life.release(&self.life.name(event)).map(drop);
            if self.told(event, answer, "release") {
                self.promise(event).gone = true;
            }
            return;
        }
        let Some(token) = self.life.lease_of(event) else { return };
        let how = self.below(4);
        let call = |life: &Life| match how {
            0 => life.accept(event, &token),
            1 => life.reject(event, &token),
            2 => life.pass(event, &token),
            _ => life.store.requeue(&life.name(event), &token),
        };
        let mut answer = call(&self.life);
        if answer.as_ref().is_err_and(|error| error.kind() == Kind::OutcomeUnknown) && self.chance(50) {
            // A repeat of the verdict gets its answer when devices have it.
            self.life.answer_again();
            self.life.eventually_ok(&format!("{}: the repeated verdict", self.what), call);
            answer = Ok(());
        }
        let invalid = answer.as_ref().is_err_and(|error| error.kind() == Kind::Invalid);
        if invalid {
            // It is in the last stage already.
            self.life.store.requeue(&self.life.name(event), &token).unwrap();
            return;
        }
        if self.told(event, answer, "verdict") {
            let promise = self.promise(event);
            match how {
                0 => promise.accepted = true,
                1 => promise.gone = true,
                2 => promise.passed = true,
                _ => {}
            }
        }
    }

    fn update(&mut self, event: u64) {
        let source = self.below(3);
        let Some(version) = self.life.version(event, source) else { return };
        let answer = self.life.update(event, source, version + 1, None).map(|now| assert_eq!(now, version + 1));
        if self.told(event, answer, "update")
            && let Some(known) = self.promise(event).persisted.get_mut(&source)
        {
            *known = version + 1;
        }
    }

    fn remove(&mut self, event: u64) {
        let source = self.below(3);
        let there = self.life.version(event, source).is_some();
        let answer = self.life.remove(event, source).map(drop);
        if self.told(event, answer, "remove") && there {
            let gone = self.life.find_state(event).is_none();
            let promise = self.promise(event);
            promise.persisted.remove(&source);
            promise.removed.insert(source);
            promise.gone |= gone;
        }
    }

    fn remove_event(&mut self, event: u64) {
        let there = self.life.find_state(event).is_some();
        let answer = self.life.remove_event(&self.life.name(event)).map(drop);
        if self.told(event, answer, "remove_event") && there {
            self.promise(event).gone = true;
        }
    }

    /// A step that is cut at a moment of its own; what was left is looked at as any opening would.
    fn step_with_cut(&mut self) {
        let told = [self.life.told(), String::new()];
        let before = self.promises.clone();
        let taken: Arc<Mutex<Option<Cut>>> = Arc::default();
        let armed = Arc::new(Mutex::new(true));
        let at = self.below(3) as usize;
        let (steps, seed) = (1 + self.below(6), self.below(1000));
        let (medium, devices) = (self.life.medium.clone(), self.life.simulated.clone());
        let (take, is_armed) = (taken.clone(), armed.clone());
        let hook = move || {
            if *is_armed.lock() {
                *take.lock() = Some(cut(&medium, &devices, seed));
            }
        };
        if at == 2 {
            self.life.medium.before_step(self.life.medium.steps() + steps * 4, hook);
        } else {
            let device = &self.life.simulated[at];
            device.before_step(device.steps() + steps, move |_| hook());
        }
        self.step();
        *armed.lock() = false;
        let Some(cut) = taken.lock().take() else { return };
        self.cuts += 1;
        let told = [told[0].clone(), self.life.told()];
        let promises = [&before, &self.promises];
        let what = format!("{}, cut within a call", self.what);
        look(&self.life, cut, &told, promises, &what, None);
    }
}

/// Opens what a cut left in one way, or in each, and looks at it. Answers the life of the way that was asked for.
fn look(
    life: &Life,
    cut: Cut,
    told: &[String; 2],
    promises: [&Promises; 2],
    what: &str,
    way: Option<usize>,
) -> Option<Life> {
    let mut next = None;
    for (at, (medium, devices)) in [cut.killed, cut.power].into_iter().enumerate() {
        if way.is_some_and(|way| way != at) {
            continue;
        }
        let opened = life.opened_on(Some(medium), devices).unwrap_or_else(|error| panic!("{what}, {at}: {error}"));
        let found = opened.told();
        assert!(told.contains(&found), "{what}, {}:\n{found}\nwas\n{}\n{}", ["killed", "power"][at], told[0], told[1]);
        opened.balanced();
        next = Some(opened);
    }
    if way.is_none_or(|way| way == 2) {
        let opened = life.opened_on(None, cut.bare).unwrap_or_else(|error| panic!("{what}, hot level lost: {error}"));
        for (event, after) in promises[1] {
            let before = promises[0].get(event).cloned().unwrap_or_default();
            // An event that the call was about is as before it or as after it.
            let faults = [before.fault(*event, &opened), after.fault(*event, &opened)];
            if let [Some(one), Some(other)] = faults {
                panic!("{what}, hot level lost: event {event}: {one}; or {other}; promised {before:?}; or {after:?}");
            }
        }
        opened.balanced();
        next = Some(opened);
    }
    next
}

/// Answers how many calls were cut, and how many persisted fragments were acknowledged.
fn lives(seed: u64, lives: u64) -> (u64, u64) {
    let mut plan = Plan::new().impatient().devices(2);
    plan.config.device_stall = Duration::from_millis(4);
    plan.keyspace.deliveries_max = 15;
    (plan.config.demote_high, plan.config.demote_low) = (0.1, 0.02);
    plan.region_bytes = 1 << 20;
    plan.config.device_log_bytes = 128 << 10;
    let life = plan.create();
    life.store.run_open(RUN, &life.keyspace().run.clone()).unwrap();
    let rng = SmallRng::seed_from_u64(seed);
    let mut driver =
        Driver { life, rng, promises: Promises::new(), next_event: 0, what: String::new(), cuts: 0, persisted: 0 };
    for number in 0..lives {
        driver.what = format!("seed {seed}, life {number}");
        for _ in 0..STEPS {
            if driver.chance(12) { driver.step_with_cut() } else { driver.step() }
        }
        let told = driver.life.told();
        let way = driver.below(3) as usize;
        let seed = driver.below(1000);
        let cut = cut(&driver.life.medium, &driver.life.simulated, seed);
        let promises = [&driver.promises, &driver.promises];
        let what = format!("{}, at its end", driver.what);
        let next = look(&driver.life, cut, &[told.clone(), told], promises, &what, Some(way)).unwrap();
        driver.life = next;
        if way == 2 {
            // What is found now is on devices, and is all that there is.
            for (event, promise) in &mut driver.promises {
                if promise.gone && promise.persisted.is_empty() {
                    // It may have ended on the hot level alone, which took that along: what is put now is a new event.
                    *promise = Promise::default();
                }
                if promise.gone {
                    continue;
                }
                let found = driver.life.find(*event);
                promise.unsure = false;
                promise.gone = found.is_none() && !promise.persisted.is_empty();
                promise.persisted = found.as_ref().map(|found| found.versions.clone()).unwrap_or_default();
                promise.accepted = found.as_ref().is_some_and(|found| found.state == LiveState::Accepted);
                promise.passed = found.as_ref().is_some_and(|found| found.stage == "final");
                if found.is_none() && !promise.gone {
                    *promise = Promise::default();
                }
            }
        }
        for event in 1..driver.next_event.saturating_sub(30) {
            // Room for the lives to come.
            let name = driver.life.name(event);
            if driver.life.remove_event(&name).is_ok_and(|there| there) {
                driver.promise(event).gone = true;
            }
        }
    }
    (driver.cuts, driver.persisted)
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn random_lives_keep_what_they_acknowledged() {
    let first = number("FOREBAY_DECISIONS_SEED", 1);
    let count = number("FOREBAY_DECISIONS_LIVES", LIVES);
    let seeds = number("FOREBAY_DECISIONS_SEEDS", SEEDS);
    let (mut cuts, mut persisted) = (0, 0);
    for seed in first..first + seeds {
        let happened = lives(seed, count);
        (cuts, persisted) = (cuts + happened.0, persisted + happened.1);
    }
    assert!(cuts > 0 && persisted > 0, "too little happened: {cuts} cuts, {persisted} persisted fragments");
}

/// A store with events on the hot level, on devices and on the way to them, in each state.
fn about_to_close() -> Life {
    let life = Plan::new().devices(2).create();
    (1..4).for_each(|event| life.ready_persisted(event));
    (4..7).for_each(|event| life.ready(event));
    for event in [1, 4] {
        life.accept(event, &life.lease(event)).unwrap();
        life.reject(event + 1, &life.lease(event + 1)).unwrap();
    }
    assert_eq!(life.update(3, 0, 1, None).unwrap(), 1);
    life.put(7, 0);
    life
}

/// At every step of a close, on the hot level and on each device: what was there is there, however it was cut off.
#[test]
fn a_close_that_is_cut_off_anywhere_loses_nothing() {
    let steps = |life: &Life| [life.medium.steps(), life.simulated[0].steps(), life.simulated[1].steps()];
    let life = about_to_close();
    let before = steps(&life);
    life.close().unwrap();
    let of_close: Vec<u64> = steps(&life).iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(of_close.iter().all(|steps| *steps > 0), "{of_close:?}");
    for (place, last) in of_close.into_iter().enumerate() {
        for step in 1..=last {
            let life = about_to_close();
            let told = life.told();
            let taken: Arc<Mutex<Option<Cut>>> = Arc::default();
            let (take, medium, devices) = (taken.clone(), life.medium.clone(), life.simulated.clone());
            let hook = move || _ = take.lock().get_or_insert_with(|| cut(&medium, &devices, step));
            if place == 0 {
                life.medium.before_step(before[0] + step, hook);
            } else {
                life.simulated[place - 1].before_step(before[place] + step, move |_| hook());
            }
            life.close().unwrap();
            let Some(cut) = taken.lock().take() else { continue };
            for (what, (medium, devices)) in [("killed", cut.killed), ("power", cut.power)] {
                let opened = life.opened_on(Some(medium), devices).unwrap();
                assert_eq!(opened.told(), told, "{what} at step {step} of {place}");
                opened.balanced();
            }
            let bare = life.opened_on(None, cut.bare).unwrap();
            let found = [1, 2, 3].map(|event| bare.find(event).map(|found| (found.state, found.versions)));
            let versions = |first| BTreeMap::from([(0, first), (1, 0)]);
            let expected = [Some((LiveState::Accepted, versions(0))), None, Some((LiveState::Ready, versions(1)))];
            assert_eq!(found, expected, "hot level lost at step {step} of {place}");
        }
    }
}
