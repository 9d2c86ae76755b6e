//! A fixed life of one store on simulated media, the power cut at every step of every call, on all media at once. What an
//! opening finds then is what was answered: of the call that was cut all or nothing.
//!
//! Three ways to lose: the hot level is persistent memory, and every medium keeps an arbitrary part of what was not made
//! durable; only the process dies; the hot level was memory, and is gone. In the last one holds what a device was told:
//! persisted puts, demoted events, and decisions about events of which anything is there.
//!
//! `FOREBAY_POWER_STEPS` bounds the steps of the hot level that are tried (400 by default, spread evenly); those of
//! devices are all tried.

use crate::common::fixture::RUN;
use crate::common::key;
use forebay_store::core::{
    Bounds, ClaimRequest, Completeness, Keyspace, Kind, Level, LiveState, ManualClock, MovedStore, Primary, Source,
    Token,
};
use forebay_store::measure::demote;
use forebay_store::{Accept, Config, OpenEvent, PutOptions, PutOutcome, ResultFragment, Sources, Store, WarmDevice};
use forebay_testkit::media::{SimDevice, SimMedium};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const REGION_BYTES: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 400 << 10;
const DEVICES: usize = 2;
const LEASE: Duration = Duration::from_secs(10);
/// Source of a worker's result.
const RESULT: u64 = 100;

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("power", 2).opening_runs();
    keyspace.run.completeness = Completeness::Count(2);
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.stages = ["fast", "final"].map(str::to_owned).into();
    keyspace.deliveries_max = 1;
    keyspace.announced = true;
    keyspace.streams = std::iter::once("main".to_owned()).chain((1..=203).map(|number| format!("s{number}"))).collect();
    keyspace
}

/// The streams into which an event is accepted: a mask, a list of numbers, or an output.
fn streams_of(event: u64) -> &'static [&'static str] {
    match event % 3 {
        0 => &["main"],
        1 => &["main", "s200"],
        _ => &["main", "s201", "s202", "s203"],
    }
}

fn config(clock: &Arc<ManualClock>, devices: &[Arc<SimDevice>]) -> Config {
    Config {
        segment_bytes: Some(16 << 10),
        write_heads: 1,
        put_deadline: Duration::ZERO,
        lease: LEASE,
        maintenance: false,
        demote_high: 0.001,
        demote_low: 0.0,
        // Full as it is, what is in custody stays: a round is not to change what there is.
        warm_low: 0.899,
        container_bytes: 64 << 10,
        device_log_bytes: 64 << 10,
        persist_delay: Duration::ZERO,
        flush_delay: Duration::ZERO,
        warm: devices.iter().map(|device| WarmDevice::device(device.clone(), DEVICE_BYTES)).collect(),
        clock: clock.clone(),
        ..Config::default()
    }
}

/// What must hold of an event even where the hot level is gone.
#[derive(Clone, Debug, Default, PartialEq)]
struct Promise {
    /// It was rejected, released or removed, and never comes back.
    gone: bool,
    /// Its state, if that is promised.
    state: Option<LiveState>,
    /// Version and bytes by source.
    fragments: BTreeMap<u64, (u16, Vec<u8>)>,
    removed: BTreeSet<u64>,
}

/// An event as a store shows it.
#[derive(Clone, Debug)]
struct Seen {
    state: LiveState,
    fragments: BTreeMap<u64, (u16, Vec<u8>)>,
}

impl Promise {
    fn fault(&self, seen: Option<&Seen>) -> Option<String> {
        let Some(seen) = seen else { return (!self.gone).then(|| "it is not there".to_owned()) };
        if self.gone {
            return Some("it is back".to_owned());
        }
        if self.state.is_some_and(|state| state != seen.state) {
            return Some(format!("it is {}", seen.state.name()));
        }
        let wrong = self.fragments.iter().find(|(source, held)| seen.fragments.get(source) != Some(held));
        if let Some((source, (version, _))) = wrong {
            let found = seen.fragments.get(source).map(|found| found.0);
            return Some(format!("source {source}: version {found:?}, not {version}, or other bytes"));
        }
        let back = self.removed.iter().find(|source| seen.fragments.contains_key(source));
        back.map(|source| format!("source {source} is back"))
    }
}

/// A verdict that was answered.
#[derive(Clone, Copy, Debug)]
struct Given {
    event: u64,
    token: Token,
    accepted: bool,
    /// Something of the event was on a device.
    warm: bool,
}

/// How the media are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Persistent memory and devices keep a part of what was not made durable.
    Power,
    /// All media keep everything.
    Process,
    /// The hot level is gone.
    Hot,
}

/// One life.
struct Life {
    store: Store,
    clock: Arc<ManualClock>,
    medium: Arc<SimMedium>,
    devices: Vec<Arc<SimDevice>>,
    tokens: BTreeMap<u64, Token>,
    given: Arc<Mutex<Vec<Given>>>,
    promises: BTreeMap<u64, Promise>,
    /// Fragments that were put, by event: what a demotion promises.
    put: BTreeMap<u64, Promise>,
}

fn bytes_of(event: u64, source: u64, version: u16, length: usize) -> Vec<u8> {
    let seed = event.wrapping_mul(31) ^ source.wrapping_mul(7) ^ u64::from(version);
    (0..length).map(|at| (seed as usize + at * 13) as u8).collect()
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

impl Life {
    fn new() -> Life {
        let clock = Arc::new(ManualClock::default());
        let medium = SimMedium::new(REGION_BYTES);
        let devices: Vec<_> = (0..DEVICES).map(|at| SimDevice::new(&format!("device-{at}"), 2 << 20)).collect();
        let store = Store::create_on(medium.clone(), &keyspace(), config(&clock, &devices)).unwrap();
        Life {
            store,
            clock,
            medium,
            devices,
            tokens: BTreeMap::new(),
            given: Arc::default(),
            promises: BTreeMap::new(),
            put: BTreeMap::new(),
        }
    }

    fn name(&self, event: u64) -> Primary {
        primary(&self.store, event)
    }

    fn put(&mut self, event: u64, source: u64, length: usize, persisted: bool) {
        let bytes = bytes_of(event, source, 0, length);
        let options = PutOptions { persisted, ..PutOptions::default() };
        let outcome = self.store.put(&key(RUN, event, source), &bytes, &options).unwrap();
        assert_ne!(outcome, PutOutcome::Late);
        self.put.entry(event).or_default().fragments.insert(source, (0, bytes.clone()));
        if persisted {
            self.promises.entry(event).or_default().fragments.insert(source, (0, bytes));
        }
    }

    fn source(&self, source: u64) -> Source {
        self.store.schema().source(&[source]).unwrap()
    }

    fn announce(&self, event: u64, sources: &[u64]) {
        let sources: Vec<Source> = sources.iter().map(|source| self.source(*source)).collect();
        let how = OpenEvent { sources: Some(&sources), attributes: None };
        assert_eq!(self.store.open_event(&self.name(event), &how).unwrap(), PutOutcome::Stored);
    }

    fn lease(&mut self, event: u64) {
        let lease = self.store.lease(&self.name(event), None).unwrap().expect("a ready event");
        self.tokens.insert(event, lease.token);
        // One death of a worker is enough for the debug stream here.
        if let Some(promise) = self.promises.get_mut(&event) {
            promise.state = None;
        }
    }

    fn decided(&mut self, event: u64, accepted: bool, warm: bool) {
        self.given.lock().push(Given { event, token: self.tokens[&event], accepted, warm });
    }

    fn accept(&mut self, event: u64) {
        self.store.accept(&self.name(event), &self.tokens[&event], streams_of(event)).unwrap();
        self.decided(event, true, true);
        self.promises.entry(event).or_default().state = Some(LiveState::Accepted);
    }

    fn reject(&mut self, event: u64, warm: bool) {
        self.store.reject(&self.name(event), &self.tokens[&event]).unwrap();
        self.decided(event, false, warm);
        self.ended(event, warm);
    }

    fn ended(&mut self, event: u64, warm: bool) {
        self.put.remove(&event);
        self.promises.remove(&event);
        if warm {
            self.promises.insert(event, Promise { gone: true, ..Promise::default() });
        }
    }

    fn release(&mut self, event: u64) {
        assert!(self.store.release(&self.name(event)).unwrap());
        self.ended(event, true);
    }

    /// A round of both levels. All events that are not open are on devices after it.
    fn tick(&mut self) {
        self.store.tick();
        for (event, put) in &self.put {
            let seen = self.store.get_event(&self.name(*event), &Sources::None).unwrap().unwrap();
            if seen.state == LiveState::Open {
                continue;
            }
            let promise = self.promises.entry(*event).or_default();
            promise.fragments.clone_from(&put.fragments);
            promise.removed.clone_from(&put.removed);
            promise.state = match seen.state {
                LiveState::Leased => None,
                other => Some(other),
            };
        }
    }
}

type Call = Box<dyn Fn(&mut Life)>;

/// Each is one call that changes something durable, or what leads to the next one.
fn script() -> Vec<(&'static str, Call)> {
    let mut calls: Vec<(&'static str, Call)> = Vec::new();
    let mut call = |name: &'static str, call: Call| calls.push((name, call));
    fn of(call: impl Fn(&mut Life) + 'static) -> Call {
        Box::new(call)
    }
    call("run_open", of(|life| life.store.run_open(RUN, &keyspace().run).unwrap()));
    call("persisted put", of(|life| life.put(1, 0, 700, true)));
    call("persisted put again", of(|life| life.put(1, 0, 700, true)));
    call("second persisted put", of(|life| life.put(1, 1, 3000, true)));
    for (event, source) in [(2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1)] {
        call("put", of(move |life| life.put(event, source, 900, false)));
    }
    call("put of an open event", of(|life| life.put(9, 0, 500, false)));
    call("demotion of ready events", of(Life::tick));
    call("persisted late put on a warm event", of(|life| life.put(2, 5, 400, true)));
    call("late put on a warm event", of(|life| life.put(2, 6, 400, false)));
    call(
        "update on warm",
        of(|life| {
            let bytes = bytes_of(2, 0, 1, 1200);
            assert_eq!(life.store.update(&key(RUN, 2, 0), &bytes, None).unwrap(), 1);
            life.put.get_mut(&2).unwrap().fragments.insert(0, (1, bytes));
            // The new version is on the hot level only, until the next round.
            life.promises.get_mut(&2).unwrap().fragments.remove(&0);
        }),
    );
    call(
        "remove on warm",
        of(|life| {
            assert!(life.store.remove(&key(RUN, 2, 1)).unwrap());
            for promise in [life.put.get_mut(&2).unwrap(), life.promises.get_mut(&2).unwrap()] {
                promise.fragments.remove(&1);
                promise.removed.insert(1);
            }
        }),
    );
    call("demotion of the rest", of(Life::tick));
    call("lease on warm", of(|life| life.lease(3)));
    call(
        "pass with a result on warm",
        of(|life| {
            let bytes = bytes_of(3, RESULT, 0, 900);
            let source = life.source(RESULT);
            let result = ResultFragment::new(&source, &bytes);
            life.store.pass(&life.name(3), &life.tokens[&3], "final", &[result]).unwrap();
            life.put.get_mut(&3).unwrap().fragments.insert(RESULT, (0, bytes));
        }),
    );
    call("demotion of the result", of(Life::tick));
    call("lease of the second stage", of(|life| life.lease(3)));
    call(
        "accept with a result on warm",
        of(|life| {
            let bytes = bytes_of(3, RESULT + 1, 0, 300);
            let source = life.source(RESULT + 1);
            let results = [ResultFragment::new(&source, &bytes)];
            let accept = Accept { streams: &[("main", Sources::All)], results: &results };
            life.store.accept_into(&life.name(3), &life.tokens[&3], &accept).unwrap();
            life.put.get_mut(&3).unwrap().fragments.insert(RESULT + 1, (0, bytes));
            life.promises.get_mut(&3).unwrap().state = Some(LiveState::Accepted);
            life.decided(3, true, true);
        }),
    );
    call("demotion of an accepted event", of(Life::tick));
    call("lease", of(|life| life.lease(4)));
    call("requeue on warm", of(|life| life.store.requeue(&life.name(4), &life.tokens[&4]).unwrap()));
    call("lease after requeue", of(|life| life.lease(4)));
    call("reject on warm", of(|life| life.reject(4, true)));
    call("lease of a persisted event", of(|life| life.lease(1)));
    call("accept of a persisted event", of(|life| life.accept(1)));
    call("demotion", of(Life::tick));
    // What is on one device moves to the other one, and it takes data again.
    call("drain of a device", of(|life| life.store.drain_device(0).unwrap()));
    for _ in 0..2 {
        call("moves off a device", of(Life::tick));
    }
    call("undo of a drain", of(|life| life.store.undo_drain(0).unwrap()));
    call("release on warm", of(|life| life.release(1)));
    for source in 0..2 {
        call("put", of(move |life| life.put(5, source, 600, source == 0)));
    }
    call("lease", of(|life| life.lease(5)));
    call(
        "a worker falls silent",
        of(|life| {
            life.clock.advance_ns(2 * LEASE.as_nanos() as u64);
            life.tick();
        }),
    );
    call(
        "replay",
        of(|life| {
            assert!(life.store.replay(&life.name(5)).unwrap());
            life.promises.get_mut(&5).unwrap().state = None;
        }),
    );
    call("demotion", of(Life::tick));
    call(
        "remove_event on warm",
        of(|life| {
            assert!(life.store.remove_event(&life.name(5)).unwrap());
            life.ended(5, true);
        }),
    );
    for source in 0..2 {
        call("put", of(move |life| life.put(6, source, 600, false)));
    }
    call("lease on hot", of(|life| life.lease(6)));
    call("reject on hot", of(|life| life.reject(6, false)));
    // Containers of 64 KiB are filled, closed and followed by others.
    for event in 10..18 {
        for source in 0..2 {
            call("put", of(move |life| life.put(event, source, 6000, false)));
        }
        if event % 4 == 1 {
            call("demotion to another container", of(Life::tick));
        }
    }
    call("demotion", of(Life::tick));
    for event in 10..18 {
        call("lease", of(move |life| life.lease(event)));
        if event < 16 {
            call("accept", of(move |life| life.accept(event)));
        } else {
            call("reject", of(move |life| life.reject(event, true)));
        }
    }
    call("demotion of accepted events, recycling", of(Life::tick));
    call("recycling", of(Life::tick));
    call(
        "claim and custody",
        of(|life| {
            let request = ClaimRequest { duration: Duration::from_secs(60), ..ClaimRequest::default() };
            let given_back = life.store.claim(&request).unwrap().expect("a full container of the stream");
            life.store.give_back(&given_back.token).unwrap();
            // What the archive has stays in the store as well: all that was promised is promised still.
            let claim = life.store.claim(&request).unwrap().expect("it, or one that was not tried");
            assert!(life.store.prove(&claim.token).unwrap() > 0);
        }),
    );
    for event in 3..18 {
        call(
            "release",
            of(move |life| {
                let accepted =
                    life.promises.get(&event).is_some_and(|promise| promise.state == Some(LiveState::Accepted));
                if accepted {
                    life.release(event);
                }
            }),
        );
    }
    call("recycling of the accepted stream", of(Life::tick));
    // What goes into containers that had other events before.
    for event in 20..24 {
        for source in 0..2 {
            call("put", of(move |life| life.put(event, source, 5000, source == 1)));
        }
    }
    call("demotion into recycled containers", of(Life::tick));
    // Events that a mask completes, or that lack a source, are on devices, with images that say so. Then they are announced
    // with other sources.
    for event in [31, 33] {
        call("put of an event that lacks a source", of(move |life| life.put(event, 0, 300, false)));
    }
    call("seal", of(|life| assert!(life.store.seal(&life.name(33)).unwrap())));
    call("mask", of(|life| life.store.mask(RUN, &life.source(1), Some(&life.name(30))).unwrap()));
    call("put of an event that the mask completes", of(|life| life.put(32, 0, 300, true)));
    call("demotion of masked events", of(Life::tick));
    call("announcement that a mask does not complete", of(|life| life.announce(31, &[0, 3])));
    call("announcement that a mask completes", of(|life| life.announce(33, &[0, 1])));
    call("announcement of an event with a persisted part", of(|life| life.announce(32, &[0, 3])));
    call("unmask", of(|life| life.store.unmask(RUN, &life.source(1), None).unwrap()));
    call("demotion of records", of(Life::tick));
    call("put that opens the last", of(|life| life.put(9, 1, 500, true)));
    call("stop", of(|life| life.store.run_stop(RUN).unwrap()));
    for event in [2, 9, 20, 21, 22, 23, 31, 32, 33] {
        call("lease", of(move |life| life.lease(event)));
        call("reject", of(move |life| life.reject(event, true)));
    }
    call("close of the run", of(|life| drop(life.store.run_close(RUN).unwrap())));
    call("recycling of the run", of(Life::tick));
    calls
}

/// What an opening shows.
struct View {
    loss: Loss,
    what: String,
    found: Result<(String, BTreeMap<u64, Seen>), String>,
}

/// Opens what is left, and looks at everything.
fn look(
    medium: Option<Vec<u8>>,
    devices: &[Arc<SimDevice>],
    given: &[Given],
) -> Result<(String, BTreeMap<u64, Seen>), String> {
    let clock = Arc::new(ManualClock::default());
    let without_hot = medium.is_none();
    let opened = Config { accept_loss: without_hot, ..config(&clock, devices) };
    let medium = medium.map_or_else(|| SimMedium::new(REGION_BYTES), SimMedium::from_image);
    let store = match without_hot {
        false => Store::open_on(medium.clone(), &keyspace(), opened),
        true => Store::open_without_hot_on(medium.clone(), &keyspace(), opened),
    };
    let store = store.map_err(|error| format!("cannot open: {error}"))?;
    let look = look_at(&store, given, without_hot)?;
    // Going on changes nothing that was there.
    demote(&store);
    let again = look_at(&store, given, without_hot)?;
    if look.0 != again.0 {
        return Err(format!("after a round it is\n{}\nbefore\n{}", again.0, look.0));
    }
    // Records have gone down with their events by now: what images say counts alone.
    let devices: Vec<_> = devices.iter().map(|device| device.power_off(1)).collect();
    let killed = SimMedium::from_image(medium.killed_now());
    let store = Store::open_on(killed, &keyspace(), config(&clock, &devices));
    let store = store.map_err(|error| format!("cannot open after another kill: {error}"))?;
    let after = look_at(&store, given, without_hot)?;
    if look.0 != after.0 {
        return Err(format!("after another kill it is\n{}\nbefore\n{}", after.0, look.0));
    }
    Ok(look)
}

fn look_at(store: &Store, given: &[Given], without_hot: bool) -> Result<(String, BTreeMap<u64, Seen>), String> {
    let mut told = String::new();
    for run in store.runs() {
        let ledger = run.ledger;
        if let Some(imbalance) = ledger.imbalance() {
            return Err(imbalance);
        }
        let ended = (ledger.rejected, ledger.released, ledger.removed, ledger.superseded, ledger.stored, ledger.lost);
        let counts = [ledger.complete, ledger.incomplete, ledger.never_seen, ledger.awaited];
        writeln!(told, "{:?} {:?} {ended:?} {counts:?}", run.state, ledger.live).unwrap();
    }
    for event in store.debug_events() {
        writeln!(told, "debug {:?} {} {}", event.primary, event.reason, event.stage).unwrap();
    }
    let mut seen = BTreeMap::new();
    for info in store.events(&Bounds::all(store.schema())).map_err(|error| error.to_string())? {
        let event = store.get_event(&info.primary, &Sources::All).map_err(|error| error.to_string())?;
        let event = event.ok_or("an event is listed and not there")?;
        // A replay clears the failures first: until it is decided the event stays in the debug stream.
        let failures = if info.state == LiveState::Debug { 0 } else { info.deliveries };
        let (state, outputs) = (info.state, store.outputs(&info.primary));
        let number = store.schema().values(info.primary.as_bytes())[1];
        writeln!(told, "{number} {state:?} {} {failures} {outputs:?} {}", event.stage, info.bytes).unwrap();
        let mut sources: Vec<_> = event.sources.iter().collect();
        sources.sort_unstable_by_key(|one| one.0);
        writeln!(told, "  {sources:?} {:?}", event.missing).unwrap();
        let mut fragments = BTreeMap::new();
        for fragment in &event.fragments {
            fragment.verify().map_err(|error| error.to_string())?;
            let source = store.schema().values(fragment.key().as_bytes())[2];
            writeln!(told, "  {source} {} {}", fragment.version(), fragment.len()).unwrap();
            let known = bytes_of(number, source, fragment.version(), fragment.len());
            if **fragment != known[..] {
                return Err(format!("event {number}, source {source}: other bytes"));
            }
            fragments.insert(source, (fragment.version(), fragment.to_vec()));
        }
        seen.insert(number, Seen { state, fragments });
    }
    for given in given.iter().filter(|given| given.warm || !without_hot) {
        let (name, streams) = (primary(store, given.event), streams_of(given.event));
        let (same, other) = if given.accepted {
            (store.accept(&name, &given.token, streams), store.reject(&name, &given.token))
        } else {
            (store.reject(&name, &given.token), store.accept(&name, &given.token, streams))
        };
        let closed = store.runs().iter().any(|run| run.state == forebay_store::RunState::Closed);
        let fenced = other.as_ref().is_err_and(|error| matches!(error.kind(), Kind::Fenced));
        if !closed && (same.is_err() || !fenced) {
            return Err(format!("{given:?} given again: {same:?}, another: {other:?}"));
        }
    }
    Ok((told, seen))
}

/// Cuts the power before steps of all media of a life: views by what was lost.
#[derive(Clone)]
struct Cutter {
    medium: Arc<SimMedium>,
    devices: Vec<Arc<SimDevice>>,
    given: Arc<Mutex<Vec<Given>>>,
    views: Arc<Mutex<Vec<View>>>,
    stride: u64,
}

impl Cutter {
    fn cut(&self, what: &str, seeds: u64) {
        let given = self.given.lock().clone();
        let losses = [Loss::Power, Loss::Hot].into_iter().flat_map(|loss| (0..seeds).map(move |seed| (loss, seed)));
        for (loss, seed) in losses.chain([(Loss::Process, 1)]) {
            // Neighbouring seeds of devices keep nothing, everything, and parts.
            let device = |(at, device): (usize, &Arc<SimDevice>)| device.power_off(seed + at as u64 * (seed / 4));
            let devices: Vec<_> = self.devices.iter().enumerate().map(device).collect();
            let medium = match loss {
                Loss::Power => Some(self.medium.crash_now(seed.wrapping_mul(0x9E37_79B9) + self.medium.steps())),
                Loss::Process => Some(self.medium.killed_now()),
                Loss::Hot => None,
            };
            let found = look(medium, &devices, &given);
            self.views.lock().push(View { loss, what: format!("{what}, seed {seed}"), found });
        }
    }

    fn arm(&self) {
        for at in 0..self.devices.len() {
            self.arm_device(at);
        }
        self.arm_medium();
    }

    fn arm_device(&self, at: usize) {
        let cutter = self.clone();
        self.devices[at].before_step(self.devices[at].steps() + 1, move |device| {
            cutter.cut(&format!("before step {} of device {at}", device.steps()), 4);
            cutter.arm_device(at);
        });
    }

    fn arm_medium(&self) {
        let cutter = self.clone();
        self.medium.before_step(self.medium.steps() + self.stride, move || {
            cutter.cut(&format!("before step {} of the hot level", cutter.medium.steps()), 3);
            cutter.arm_medium();
        });
    }
}

fn check(views: Vec<View>, call: &str, told: [&str; 2], promises: [&BTreeMap<u64, Promise>; 2]) {
    for view in views {
        let at = format!("{call}, {:?} lost {}", view.loss, view.what);
        let (text, seen) = view.found.unwrap_or_else(|wrong| panic!("{at}: {wrong}"));
        if view.loss != Loss::Hot {
            assert!(told.contains(&text.as_str()), "{at}: found\n{text}\nbefore\n{}\nafter\n{}", told[0], told[1]);
        }
        let events: BTreeSet<u64> = promises.iter().flat_map(|of| of.keys().copied()).collect();
        for event in events {
            // Without a promise before or after anything may be found.
            let fault =
                |of: &BTreeMap<u64, Promise>| of.get(&event).and_then(|promise| promise.fault(seen.get(&event)));
            let faults = promises.map(fault);
            if let [Some(before), Some(after)] = faults {
                panic!(
                    "{at}: event {event}: {before}; or {after}; promised {:?}",
                    promises.map(|of| of.get(&event).map(|promise| (promise.gone, promise.state)))
                );
            }
        }
    }
}

#[test]
fn a_cut_at_every_step_of_every_call_keeps_every_promise() {
    let steps = {
        let mut life = Life::new();
        let before = life.medium.steps();
        script().iter().for_each(|(_, call)| call(&mut life));
        life.medium.steps() - before
    };
    let bound = std::env::var("FOREBAY_POWER_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let mut life = Life::new();
    let stride = steps.div_ceil(bound).max(1);
    let (medium, devices, given) = (life.medium.clone(), life.devices.clone(), life.given.clone());
    let cutter = Cutter { medium, devices, given, views: Arc::default(), stride };
    let mut told = look(Some(life.medium.killed_now()), &power_off(&life, 1), &[]).unwrap().0;
    let cuts = AtomicUsize::new(0);
    cutter.arm();
    for (number, (name, call)) in script().iter().enumerate() {
        let before = life.promises.clone();
        call(&mut life);
        let name = format!("call {number}, {name}");
        let views = std::mem::take(&mut *cutter.views.lock());
        cuts.fetch_add(views.len(), Ordering::Relaxed);
        let given = life.given.lock().clone();
        let after = look(Some(life.medium.killed_now()), &power_off(&life, 1), &given);
        let after = after.unwrap_or_else(|wrong| panic!("{name}, answered: {wrong}")).0;
        check(views, &name, [&told, &after], [&before, &life.promises]);
        // Answered is durable, no matter what else survives.
        cutter.cut("answered", 4);
        let views = std::mem::take(&mut *cutter.views.lock());
        check(views, &name, [&after, &after], [&life.promises, &life.promises]);
        told = after;
    }
    assert!(life.store.warm_stats().unwrap().notes.is_empty(), "{:?}", life.store.warm_stats());
    let cuts = cuts.into_inner();
    assert!(cuts > 1000, "only {cuts} cuts");
}

fn power_off(life: &Life, seed: u64) -> Vec<Arc<SimDevice>> {
    life.devices.iter().map(|device| device.power_off(seed)).collect()
}

/// A mask is in the log, and the events that it makes ready have no marks yet: one is on a device, one has a copy there. The
/// next life makes them ready, and may give them out. Once the mask is lifted, nothing but a mark of that life knows that.
#[test]
fn what_a_mask_makes_ready_in_the_life_after_a_cut_stays_ready() {
    let states = |store: &Store| -> Vec<LiveState> {
        let state = |event| store.get_event(&primary(store, event), &Sources::None).unwrap().unwrap().state;
        [1, 2].map(state).to_vec()
    };
    let clock = Arc::new(ManualClock::default());
    let open = |medium: &Arc<SimMedium>, devices: &[Arc<SimDevice>]| {
        Store::open_on(medium.clone(), &keyspace(), config(&clock, devices)).unwrap()
    };
    let mut ready = 0;
    for step in 1.. {
        let mut life = Life::new();
        life.store.run_open(RUN, &keyspace().run).unwrap();
        life.put(1, 0, 700, true);
        let down = PutOptions { level: Some(Level::Warm), ..PutOptions::default() };
        assert_eq!(life.store.put(&key(RUN, 2, 0), &[2; 700], &down).unwrap(), PutOutcome::Stored);
        life.store.tick();
        assert_eq!(life.store.get(&key(RUN, 2, 0)).unwrap().unwrap().level(), Level::Warm);
        assert_eq!(states(&life.store), [LiveState::Open; 2]);
        let (medium, devices, left) = (life.medium.clone(), life.devices.clone(), Arc::new(Mutex::new(None)));
        let cut = left.clone();
        life.medium.before_step(life.medium.steps() + step, move || {
            let devices: Vec<_> = devices.iter().map(|device| device.power_off(step)).collect();
            *cut.lock() = Some((medium.crash_now(step), devices));
        });
        life.store.mask(RUN, &life.source(1), None).unwrap();
        let Some((image, devices)) = left.lock().take() else { break };
        let medium = SimMedium::from_image(image);
        let store = open(&medium, &devices);
        let found = states(&store);
        ready += found.iter().filter(|state| **state == LiveState::Ready).count();
        store.unmask(RUN, &life.source(1), None).unwrap();
        let devices: Vec<_> = devices.iter().map(|device| device.power_off(step)).collect();
        let again = states(&open(&SimMedium::from_image(medium.killed_now()), &devices));
        assert_eq!(again, found, "power lost at step {step}");
    }
    assert!(ready > 1, "no cut fell between the mask and the marks");
}

#[test]
fn the_life_that_is_cut_reclaims_containers_and_takes_snapshots() {
    let mut life = Life::new();
    script().iter().for_each(|(_, call)| call(&mut life));
    let containers = life.store.containers();
    assert!(containers.iter().any(|container| container.generation > 1), "no container was filled again");
    let stats = life.store.warm_stats().unwrap();
    assert!(stats.devices.iter().all(|device| device.log_commits > 1), "{stats:?}");
    assert!(stats.devices.iter().all(|device| device.payload_bytes > 0), "{stats:?}");
    assert!(stats.notes.is_empty(), "{:?}", stats.notes);
    assert!(containers.iter().all(|container| container.live_fragments == 0), "everything is decided: {containers:?}");
}
