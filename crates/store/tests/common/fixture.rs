//! A store in its own directory with a clock that the test moves; its ledgers must balance when the test is over.

use super::{TempDir, assert_balanced, small_config};
use forebay_store::core::{Attributes, Bounds, Key, Keyspace, LiveState, ManualClock, Primary, Result, Source, Tally};
use forebay_store::{
    Config, EventInfo, GetAny, Lease, OpenEvent, PutOptions, PutOutcome, SourceState, Sources, Store, WarmDevice,
};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The run that tests use when they need only one.
pub(crate) const RUN: u64 = 1;

pub(crate) struct Fixture {
    store: Option<Store>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) config: Config,
    dir: TempDir,
}

impl Deref for Fixture {
    type Target = Store;

    fn deref(&self) -> &Store {
        let store = self.store.as_ref().expect("the store is open");
        if on_both_levels() {
            forebay_store::measure::demote(store);
        }
        store
    }
}

/// Copies what a killed process leaves of a store, and of the other nodes of its cluster.
fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in ["keyspace.toml", "hot.fb", "map.json", "cluster.json"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
    if let Ok(summaries) = std::fs::read_dir(from.join("runs")) {
        std::fs::create_dir_all(to.join("runs")).unwrap();
        for file in summaries.map(|file| file.unwrap()) {
            std::fs::copy(file.path(), to.join("runs").join(file.file_name())).unwrap();
        }
    }
    for node in (2..).map(|node| format!("node-{node}")).take_while(|node| from.join(node).is_dir()) {
        copy_store(&from.join(&node), &to.join(&node));
    }
}

/// Whether the tests run with a warm level to which everything goes before each call (`FOREBAY_TEST_LEVELS=1`).
pub(crate) fn on_both_levels() -> bool {
    std::env::var_os("FOREBAY_TEST_LEVELS").is_some()
}

fn warm_in(dir: &TempDir) -> WarmDevice {
    WarmDevice::directory(dir.path().join("warm"), 3 << 20)
}

impl Fixture {
    pub(crate) fn new(keyspace: &Keyspace) -> Fixture {
        Fixture::with(keyspace, |_| {})
    }

    /// With the small configuration changed by `change`.
    pub(crate) fn with(keyspace: &Keyspace, change: impl FnOnce(&mut Config)) -> Fixture {
        Fixture::made(keyspace, change, on_both_levels())
    }

    /// The same without a warm level, however the tests run: for what is said of the fill of the hot one.
    pub(crate) fn on_hot_alone(keyspace: &Keyspace, change: impl FnOnce(&mut Config)) -> Fixture {
        Fixture::made(keyspace, change, false)
    }

    fn made(keyspace: &Keyspace, change: impl FnOnce(&mut Config), both: bool) -> Fixture {
        let clock = Arc::new(ManualClock::default());
        let mut config = Config { clock: clock.clone(), ..small_config() };
        change(&mut config);
        let dir = TempDir::new();
        if both {
            config.demote_high = 0.001;
            config.demote_low = 0.0;
            config.container_bytes = 128 << 10;
            config.device_log_bytes = 256 << 10;
            config.warm = vec![warm_in(&dir)];
        }
        let store = Store::create(&dir.store(), keyspace, config.clone()).unwrap();
        Fixture { store: Some(store), clock, config, dir }
    }

    /// Where the store lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.store()
    }

    /// Drops the only handle.
    pub(crate) fn shut(&mut self) {
        self.store = None;
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopen(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().unwrap();
        }
        self.store = Some(Store::open(&self.dir.store(), self.config.clone()).unwrap());
    }

    /// Goes on with the store as a process that was killed now leaves it: its files as they are, nothing closed.
    pub(crate) fn crash(&mut self) {
        let left = TempDir::new();
        std::fs::create_dir(left.store()).unwrap();
        copy_store(&self.dir.store(), &left.store());
        if on_both_levels() {
            std::fs::create_dir(left.path().join("warm")).unwrap();
            for file in std::fs::read_dir(self.dir.path().join("warm")).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), left.path().join("warm").join(file.file_name())).unwrap();
            }
            self.config.warm = vec![warm_in(&left)];
        }
        self.store = None;
        self.dir = left;
        self.store = Some(Store::open(&self.dir.store(), self.config.clone()).unwrap());
    }

    /// Checks now, after a kill, after an orderly close and opening, and after a kill once more.
    pub(crate) fn in_every_life(&mut self, check: impl Fn(&Fixture)) {
        check(self);
        self.crash();
        check(self);
        assert_balanced(self);
        self.reopen();
        check(self);
        assert_balanced(self);
        self.crash();
        check(self);
    }

    /// Moves the clock and lets the store notice.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance_ns(u64::try_from(by.as_nanos()).unwrap());
        self.tick();
    }

    pub(crate) fn key(&self, event: u64, source: u64) -> Key {
        super::key(RUN, event, source)
    }

    pub(crate) fn primary(&self, event: u64) -> Primary {
        self.schema().primary(&[RUN, event]).unwrap()
    }

    /// Puts under any key.
    pub(crate) fn try_put_key(&self, key: &Key) -> Result<PutOutcome> {
        self.put(key, b"x", &PutOptions::default())
    }

    pub(crate) fn try_put(&self, event: u64, source: u64, value: &[u8]) -> Result<PutOutcome> {
        self.put(&self.key(event, source), value, &PutOptions::default())
    }

    /// Puts what must be stored.
    #[track_caller]
    pub(crate) fn stored(&self, event: u64, source: u64, value: &[u8]) {
        assert_eq!(self.try_put(event, source, value).unwrap(), PutOutcome::Stored);
    }

    /// Puts what must come too late.
    #[track_caller]
    pub(crate) fn late(&self, event: u64, source: u64, value: &[u8]) {
        assert_eq!(self.try_put(event, source, value).unwrap(), PutOutcome::Late, "{event}/{source}");
    }

    /// Puts with attributes given as `name=value`.
    pub(crate) fn put_with(&self, event: u64, source: u64, value: &[u8], pairs: &[&str]) -> Result<PutOutcome> {
        let attributes = self.attributes(pairs);
        let options = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
        self.put(&self.key(event, source), value, &options)
    }

    /// Puts what must be stored, with attributes.
    #[track_caller]
    pub(crate) fn stored_with(&self, event: u64, source: u64, value: &[u8], pairs: &[&str]) {
        assert_eq!(self.put_with(event, source, value, pairs).unwrap(), PutOutcome::Stored);
    }

    pub(crate) fn attributes(&self, pairs: &[&str]) -> Attributes {
        Attributes::parse(&self.keyspace().attributes, pairs).unwrap()
    }

    /// The newest bytes under a key.
    #[track_caller]
    pub(crate) fn read(&self, event: u64, source: u64) -> Option<Vec<u8>> {
        let fragment = self.get(&self.key(event, source)).unwrap()?;
        fragment.verify().unwrap();
        Some(fragment.to_vec())
    }

    /// The state of a live event.
    #[track_caller]
    pub(crate) fn state(&self, event: u64) -> Option<LiveState> {
        self.get_event(&self.primary(event), &Sources::None).unwrap().map(|event| event.state)
    }

    #[track_caller]
    pub(crate) fn info(&self, event: u64) -> EventInfo {
        let bounds = Bounds::parse(self.schema(), &format!("{RUN}/{event}")).unwrap();
        let mut found = self.events(&bounds).unwrap();
        assert_eq!(found.len(), 1, "event {event}");
        found.remove(0)
    }

    /// Leases a named event that must be ready.
    #[track_caller]
    pub(crate) fn take(&self, event: u64) -> Lease {
        self.lease(&self.primary(event), None).unwrap().expect("a ready event")
    }

    /// Leases events until there are `n` or no more.
    #[track_caller]
    pub(crate) fn any(&self, n: usize) -> Vec<Lease> {
        let mut leases = Vec::new();
        while leases.len() < n {
            let more = self.get_any(&GetAny { n: n - leases.len(), ..GetAny::default() }).unwrap();
            if more.is_empty() {
                break;
            }
            leases.extend(more);
        }
        leases
    }

    /// Numbers of the events under these leases.
    pub(crate) fn numbers(&self, leases: &[Lease]) -> Vec<u64> {
        leases.iter().map(|lease| self.number(&lease.primary)).collect()
    }

    /// The live term of one state in the run's account.
    pub(crate) fn live(&self, state: LiveState) -> Tally {
        self.ledger(RUN).unwrap().live[state]
    }

    /// A packed source.
    pub(crate) fn source(&self, source: u64) -> Source {
        self.schema().source(&[source]).unwrap()
    }

    /// Announces an event with sources of its own.
    pub(crate) fn announce(&self, event: u64, sources: &[u64]) -> Result<PutOutcome> {
        let sources: Vec<Source> = sources.iter().map(|source| self.source(*source)).collect();
        self.open_event(&self.primary(event), &OpenEvent { sources: Some(&sources), attributes: None })
    }

    /// The states of the sources of a live event, by source.
    #[track_caller]
    pub(crate) fn states(&self, event: u64) -> Vec<(u64, SourceState)> {
        let found = self.get_event(&self.primary(event), &Sources::None).unwrap().expect("a live event");
        let number = |source: &[u8]| source.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let mut states: Vec<_> = found.sources.iter().map(|(source, state)| (number(source), state)).collect();
        states.sort_unstable_by_key(|one| one.0);
        states
    }

    /// Events of the run that are complete, incomplete, never seen, awaited.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let ledger = self.ledger(RUN).unwrap();
        [ledger.complete, ledger.incomplete, ledger.never_seen, ledger.awaited]
    }

    /// The event's number, from its primary key.
    pub(crate) fn number(&self, primary: &Primary) -> u64 {
        self.schema().values(primary.as_bytes())[1]
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(store) = &self.store
            && !std::thread::panicking()
            && store.get(&super::key(RUN, u64::MAX, 0)).is_ok()
        {
            assert_balanced(store);
        }
    }
}
