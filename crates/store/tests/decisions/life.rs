//! One life of a store on a simulated hot level and simulated devices, and the lives that follow from it.

use crate::common::fixture::RUN;
use crate::common::{eventually, key};
use forebay_store::core::{
    Attributes, Bounds, Completeness, Error, Keyspace, Kind, Ledger, Level, LiveState, ManualClock, Primary, Result,
    Token,
};
use forebay_store::{Config, PutOptions, PutOutcome, Sources, Store, WarmDevice};
use forebay_testkit::media::{FaultyDevice, SimDevice, SimMedium};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any test lasts.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// A lease without a heartbeat, on a clock that tests move.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// How long events wait for what is missing, on the same clock.
pub(crate) const WITHIN: Duration = Duration::from_secs(1000);
/// A device that is stalled for this long is given up after a moment.
pub(crate) const SOON: Duration = Duration::from_millis(10);
/// Calls that a stall must not hold up get as much, half of what a device that stalls gets (`device_stall`).
const BOUND: Duration = Duration::from_secs(60);
/// A device is not given up for much longer than a test waits.
pub(crate) const PATIENT: Duration = Duration::from_secs(120);

/// What a round of maintenance does without a device it has done after this time.
const ROUND: Duration = Duration::from_millis(300);

const REGION_BYTES: u64 = 2 << 20;
const DEVICE_BYTES: u64 = 3 << 19;
/// Files of a device that hold decisions, and those that hold data.
pub(crate) const LOGS: &str = "decisions-";
pub(crate) const CONTAINERS: &str = "container-";

/// What a store is made of.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) keyspace: Keyspace,
    pub(crate) config: Config,
    pub(crate) region_bytes: u64,
    pub(crate) devices: usize,
    pub(crate) device_bytes: u64,
}

impl Plan {
    /// Events of two fragments in two stages. What is undecided stays on the hot level; a device is waited for with
    /// patience.
    pub(crate) fn new() -> Plan {
        let mut keyspace = Keyspace::events("decisions", 2).opening_runs();
        keyspace.run.completeness = Completeness::Count(2);
        keyspace.run.complete_within = WITHIN;
        keyspace.stages = ["fast", "final"].map(str::to_owned).into();
        let config = Config {
            segment_bytes: Some(16 << 10),
            write_heads: 1,
            put_deadline: Duration::from_millis(50),
            lease: LEASE,
            max_hold: DAY,
            maintenance: false,
            container_bytes: 64 << 10,
            device_log_bytes: 256 << 10,
            persist_delay: Duration::ZERO,
            flush_delay: Duration::ZERO,
            device_stall: PATIENT,
            ..Config::default()
        };
        Plan { keyspace, config, region_bytes: REGION_BYTES, devices: 1, device_bytes: DEVICE_BYTES }
    }

    pub(crate) fn devices(self, devices: usize) -> Plan {
        Plan { devices, ..self }
    }

    /// A device that does not answer is given up after a moment.
    pub(crate) fn impatient(mut self) -> Plan {
        self.config.device_stall = SOON;
        self
    }

    /// What is ready goes down with the next round.
    pub(crate) fn all_down(mut self) -> Plan {
        (self.config.demote_high, self.config.demote_low) = (0.001, 0.0);
        self
    }

    /// Records are moved out of segments that are mostly dead, however much space there is.
    pub(crate) fn evacuating(mut self) -> Plan {
        (self.config.hot_low, self.config.demote_low) = (0.001, 0.0005);
        self
    }

    /// The first worker that fails is the last.
    pub(crate) fn one_delivery(mut self) -> Plan {
        self.keyspace.deliveries_max = 1;
        self
    }

    pub(crate) fn create(&self) -> Life {
        let simulated = (0..self.devices)
            .map(|at| SimDevice::new(&format!("device-{at}"), 2 * self.device_bytes + (8 << 20)))
            .collect::<Vec<_>>();
        let medium = SimMedium::new(self.region_bytes);
        Life::begin(self, medium.clone(), simulated, |config| Store::create_on(medium, &self.keyspace, config)).unwrap()
    }
}

/// Devices as a kill leaves them.
pub(crate) fn killed(devices: &[Arc<SimDevice>]) -> Vec<Arc<SimDevice>> {
    devices.iter().map(|device| device.power_off(1)).collect()
}

/// A store with its media.
pub(crate) struct Life {
    pub(crate) store: Store,
    pub(crate) medium: Arc<SimMedium>,
    pub(crate) simulated: Vec<Arc<SimDevice>>,
    pub(crate) devices: Vec<Arc<FaultyDevice>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) plan: Plan,
    /// Rounds that may wait for devices.
    ticking: Mutex<Vec<JoinHandle<()>>>,
}

impl Deref for Life {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // The store closes as well when a test has failed.
        self.answer_again();
        self.ticking.lock().drain(..).for_each(|round| drop(round.join()));
    }
}

/// An event as it is found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) state: LiveState,
    pub(crate) stage: String,
    /// Versions by source.
    pub(crate) versions: BTreeMap<u64, u16>,
}

impl Life {
    fn begin(
        plan: &Plan,
        medium: Arc<SimMedium>,
        simulated: Vec<Arc<SimDevice>>,
        open: impl FnOnce(Config) -> Result<Store>,
    ) -> Result<Life> {
        let devices: Vec<_> = simulated.iter().map(|device| FaultyDevice::new(device.clone())).collect();
        Life::begin_on(plan, medium, simulated, devices, open)
    }

    fn begin_on(
        plan: &Plan,
        medium: Arc<SimMedium>,
        simulated: Vec<Arc<SimDevice>>,
        devices: Vec<Arc<FaultyDevice>>,
        open: impl FnOnce(Config) -> Result<Store>,
    ) -> Result<Life> {
        let clock = Arc::new(ManualClock::default());
        let warm = devices.iter().map(|device| WarmDevice::device(device.clone(), plan.device_bytes)).collect();
        let store = open(Config { clock: clock.clone(), warm, ..plan.config.clone() })?;
        Ok(Life { store, medium, simulated, devices, clock, plan: plan.clone(), ticking: Mutex::default() })
    }

    /// The life after a kill: media keep all that was written.
    pub(crate) fn after_kill(&self) -> Life {
        self.after_kill_on(|_| {}).unwrap()
    }

    /// The same on devices to which something happened before the opening.
    pub(crate) fn after_kill_on(&self, happened: impl Fn(&FaultyDevice)) -> Result<Life> {
        let medium = SimMedium::from_image(self.medium.killed_now());
        let simulated = killed(&self.simulated);
        let devices: Vec<_> = simulated.iter().map(|device| FaultyDevice::new(device.clone())).collect();
        devices.iter().for_each(|device| happened(device));
        let open = |config| Store::open_on(medium.clone(), &self.plan.keyspace, config);
        Life::begin_on(&self.plan, medium.clone(), simulated, devices, open)
    }

    /// The life on what a cut left of the hot level, if anything, and of devices.
    pub(crate) fn opened_on(&self, hot: Option<Vec<u8>>, simulated: Vec<Arc<SimDevice>>) -> Result<Life> {
        let keyspace = &self.plan.keyspace;
        match hot {
            Some(image) => {
                let medium = SimMedium::from_image(image);
                Life::begin(&self.plan, medium.clone(), simulated, |config| Store::open_on(medium, keyspace, config))
            }
            None => {
                let medium = SimMedium::new(self.plan.region_bytes);
                Life::begin(&self.plan, medium.clone(), simulated, |config| {
                    Store::open_without_hot_on(medium, keyspace, Config { accept_loss: true, ..config })
                })
            }
        }
    }

    /// The life after a loss of power that took the hot level along: devices keep what was synced. Of four seeds in a
    /// row one keeps nothing else, one everything, the others a part.
    pub(crate) fn after_loss_of_hot(&self, seed: u64) -> Life {
        let simulated = self.simulated.iter().map(|device| device.power_off(seed)).collect();
        self.opened_on(None, simulated).unwrap()
    }

    /// Looks now, after a kill, after another one, and (`false`) where the hot level was lost.
    pub(crate) fn in_every_life(&self, look: impl Fn(&Life, bool)) {
        self.in_lives_with_hot(|life| look(life, true));
        for seed in 0..2 {
            let life = self.after_loss_of_hot(seed);
            look(&life, false);
            life.balanced();
            look(&life.after_kill(), false);
        }
    }

    /// Looks now, after a kill, and after another one.
    pub(crate) fn in_lives_with_hot(&self, look: impl Fn(&Life)) {
        look(self);
        self.balanced();
        let next = self.after_kill();
        look(&next);
        next.balanced();
        look(&next.after_kill());
    }

    /// The same where this life was closed: what was closed is not asked any more.
    pub(crate) fn in_lives_with_hot_after_close(&self, look: impl Fn(&Life)) {
        let next = self.after_kill();
        look(&next);
        next.balanced();
        look(&next.after_kill());
    }

    /// No device stalls or refuses any more.
    pub(crate) fn answer_again(&self) {
        for device in &self.devices {
            device.stall(Duration::ZERO);
            ["", LOGS, CONTAINERS].into_iter().for_each(|names| device.stall_writes(names, Duration::ZERO));
            device.heal();
        }
    }

    /// Files whose names begin like this take no writes, on any device.
    pub(crate) fn stall_writes(&self, names: &str) {
        self.devices.iter().for_each(|device| device.stall_writes(names, DAY));
    }

    /// No device answers anything.
    pub(crate) fn stall(&self) {
        self.devices.iter().for_each(|device| device.stall(DAY));
    }

    /// Waits until an operation waits for a stalled device.
    #[track_caller]
    pub(crate) fn until_somebody_waits(&self) {
        until("nobody waits for the device", || self.devices.iter().any(|device| device.waiting() > 0));
    }

    /// Makes a call while devices stall: it ends before they answer again.
    #[track_caller]
    pub(crate) fn unhindered<T: Send>(&self, what: &str, call: impl FnOnce(&Store) -> T + Send) -> T {
        let (tell, told) = mpsc::channel();
        let ended = std::thread::scope(|scope| {
            let store = &self.store;
            scope.spawn(move || drop(tell.send(call(store))));
            let ended = told.recv_timeout(BOUND);
            if ended.is_err() {
                self.answer_again();
            }
            ended
        });
        ended.unwrap_or_else(|_| panic!("{what} waits for a device that it has nothing to do with"))
    }

    /// A round of maintenance while devices stall, as far as it comes: what it does on the hot level is done. It may wait for
    /// a device itself; the round goes on until they answer.
    pub(crate) fn unhindered_round(&self) {
        let store = self.store.clone();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let ticking = std::thread::spawn(move || {
            store.tick();
            end.store(true, Ordering::Release);
        });
        let began = Instant::now();
        while !ended.load(Ordering::Acquire) && began.elapsed() < ROUND {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.ticking.lock().push(ticking);
    }

    /// Makes a call on a thread of its own, does something once a device is waited for, and answers what the call did.
    #[track_caller]
    pub(crate) fn meanwhile<T: Send>(&self, call: impl FnOnce(&Store) -> T + Send, something: impl FnOnce(&Life)) -> T {
        std::thread::scope(|scope| {
            let store = &self.store;
            let calling = scope.spawn(move || call(store));
            let _answer = AnswerAgain(self);
            self.until_somebody_waits();
            something(self);
            self.answer_again();
            until("the call does not end", || calling.is_finished());
            calling.join().unwrap()
        })
    }

    pub(crate) fn name(&self, event: u64) -> Primary {
        self.store.schema().primary(&[RUN, event]).unwrap()
    }

    pub(crate) fn put(&self, event: u64, source: u64) {
        assert_eq!(self.try_put(event, source, false).unwrap(), PutOutcome::Stored, "{event}/{source}");
    }

    pub(crate) fn persist(&self, event: u64, source: u64) {
        self.put_as(event, source, &PutOptions { persisted: true, ..PutOptions::default() });
    }

    /// A busy machine may take longer than a store is patient: a persisted fragment is stored then, and put again.
    pub(crate) fn put_as(&self, event: u64, source: u64, options: &PutOptions<'_>) {
        let put = || self.store.put(&key(RUN, event, source), &bytes(event, source, 0), options);
        let mut expected = PutOutcome::Stored;
        eventually(&self.store, "no device takes it", || match put() {
            Ok(outcome) => {
                assert_eq!(outcome, expected, "{event}/{source}");
                true
            }
            Err(error) => {
                assert!(options.persisted && error.kind() == Kind::Unavailable, "{event}/{source}: {error}");
                expected = PutOutcome::Duplicate;
                false
            }
        });
    }

    pub(crate) fn try_put(&self, event: u64, source: u64, persisted: bool) -> Result<PutOutcome> {
        try_put(&self.store, event, source, persisted)
    }

    /// A ready event whose fragments are on the hot level.
    pub(crate) fn ready(&self, event: u64) {
        (0..2).for_each(|source| self.put(event, source));
    }

    /// A ready event whose fragments were put as persisted.
    pub(crate) fn ready_persisted(&self, event: u64) {
        (0..2).for_each(|source| self.persist(event, source));
    }

    pub(crate) fn lease(&self, event: u64) -> Token {
        self.lease_of(event).unwrap_or_else(|| panic!("event {event} is not ready: {:?}", self.find(event)))
    }

    pub(crate) fn lease_of(&self, event: u64) -> Option<Token> {
        self.store.lease(&self.name(event), None).unwrap().map(|lease| lease.token)
    }

    pub(crate) fn accept(&self, event: u64, token: &Token) -> Result<()> {
        self.store.accept(&self.name(event), token, &["main"])
    }

    pub(crate) fn reject(&self, event: u64, token: &Token) -> Result<()> {
        self.store.reject(&self.name(event), token)
    }

    pub(crate) fn pass(&self, event: u64, token: &Token) -> Result<()> {
        self.store.pass(&self.name(event), token, "final", &[])
    }

    pub(crate) fn update(&self, event: u64, source: u64, version: u16, token: Option<&Token>) -> Result<u16> {
        self.store.update(&key(RUN, event, source), &bytes(event, source, version), token)
    }

    pub(crate) fn remove(&self, event: u64, source: u64) -> Result<bool> {
        self.store.remove(&key(RUN, event, source))
    }

    /// Time goes on; the store notices with its next round.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance_ns(u64::try_from(by.as_nanos()).unwrap());
    }

    pub(crate) fn level(&self, event: u64, source: u64) -> Level {
        self.store.get(&key(RUN, event, source)).unwrap().expect("a fragment").level()
    }

    /// The event with its fragments, whose bytes are those that were put.
    pub(crate) fn find(&self, event: u64) -> Option<Found> {
        let found = self.store.get_event(&self.name(event), &Sources::All).unwrap()?;
        let mut versions = BTreeMap::new();
        for fragment in &found.fragments {
            let source = self.store.schema().values(fragment.key().as_bytes())[2];
            fragment.verify().unwrap();
            // What was put again after an update went with the hot level has the bytes of a put under a later version.
            let wanted = [fragment.version(), 0].map(|version| bytes(event, source, version));
            assert!(wanted.contains(&fragment.to_vec()), "{event}/{source}, version {}", fragment.version());
            versions.insert(source, fragment.version());
        }
        Some(Found { state: found.state, stage: found.stage, versions })
    }

    pub(crate) fn state(&self, event: u64) -> Option<LiveState> {
        self.find(event).map(|found| found.state)
    }

    /// Where the event is, without a look at its bytes.
    pub(crate) fn find_state(&self, event: u64) -> Option<LiveState> {
        self.store.get_event(&self.name(event), &Sources::None).unwrap().map(|event| event.state)
    }

    /// Version of one fragment.
    pub(crate) fn version(&self, event: u64, source: u64) -> Option<u16> {
        self.find(event)?.versions.get(&source).copied()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.store.ledger(RUN).unwrap()
    }

    /// Every run's account balances, and nothing is lost.
    #[track_caller]
    pub(crate) fn balanced(&self) {
        crate::common::assert_balanced(&self.store);
    }

    /// Everything that a death of the process must not change: events with fragments and stages, and the account.
    pub(crate) fn told(&self) -> String {
        let mut told = String::new();
        for status in self.store.runs() {
            let ledger = status.ledger;
            assert_eq!(ledger.imbalance(), None, "{ledger:?}");
            let live = ledger.live.total();
            // What was offered beside it (duplicates, what came late) is not journaled.
            writeln!(told, "run {} {:?}: stored {:?}", status.run, status.state, ledger.stored).unwrap();
            writeln!(told, "  live {live:?}, rejected {:?}, released {:?}", ledger.rejected, ledger.released).unwrap();
            writeln!(
                told,
                "  removed {:?}, superseded {:?}, lost {:?}",
                ledger.removed, ledger.superseded, ledger.lost
            )
            .unwrap();
        }
        for info in self.store.events(&Bounds::all(self.store.schema())).unwrap() {
            let event = self.store.schema().values(info.primary.as_bytes())[1];
            let mut found = self.find(event).unwrap();
            if found.state == LiveState::Leased {
                // A lease ends with the process.
                found.state = LiveState::Ready;
            }
            writeln!(told, "event {event}: {found:?}").unwrap();
        }
        told
    }

    /// Drives maintenance until a call succeeds.
    #[track_caller]
    pub(crate) fn eventually_ok<T>(&self, what: &str, mut call: impl FnMut(&Life) -> Result<T>) -> T {
        let mut answer = None;
        eventually(&self.store, what, || match call(self) {
            Ok(done) => {
                answer = Some(done);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::OutcomeUnknown, "{what}: {error}");
                false
            }
        });
        answer.unwrap()
    }

    pub(crate) fn attributes(&self, pairs: &[&str]) -> Attributes {
        Attributes::parse(&self.plan.keyspace.attributes, pairs).unwrap()
    }
}

/// Devices answer again no matter what happens: a test that fails ends as well.
struct AnswerAgain<'a>(&'a Life);

impl Drop for AnswerAgain<'_> {
    fn drop(&mut self) {
        self.0.answer_again();
    }
}

pub(crate) fn try_put(store: &Store, event: u64, source: u64, persisted: bool) -> Result<PutOutcome> {
    let options = PutOptions { persisted, ..PutOptions::default() };
    store.put(&key(RUN, event, source), &bytes(event, source, 0), &options)
}

/// The bytes of one version of a fragment.
pub(crate) fn bytes(event: u64, source: u64, version: u16) -> Vec<u8> {
    let seed = event.wrapping_mul(31) ^ source.wrapping_mul(7) ^ u64::from(version).wrapping_mul(131);
    (0..500 + seed as usize % 300).map(|at| (seed as usize + at * 13) as u8).collect()
}

/// Waits for something that other threads do.
#[track_caller]
pub(crate) fn until(what_not: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what_not}");
        std::thread::yield_now();
    }
}

/// An answer that leaves open whether devices have it.
#[track_caller]
pub(crate) fn unknown<T>(answer: Result<T>, what: &str) {
    let kind = answer.as_ref().err().map(Error::kind);
    assert_eq!(kind, Some(Kind::OutcomeUnknown), "{what}: {:?}", answer.err());
}
