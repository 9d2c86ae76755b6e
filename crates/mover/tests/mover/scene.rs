//! A store with accepted events and a place for them.

use forebay_core::{AttributeSchema, Attributes, Completeness, Keyspace, Primary};
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, Mover, MoverOptions};
use forebay_store::{Config, PutOptions, Sources, Store, WarmDevice};
use forebay_testkit::TempDir;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub(crate) const SOURCES: u64 = 4;
pub(crate) const RUN: u64 = 7;

pub(crate) struct Scene {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

pub(crate) fn keyspace() -> Keyspace {
    let attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    let mut keyspace = Keyspace { attributes, ..Keyspace::events("events", SOURCES as u32).opening_runs() };
    keyspace.run.completeness = Completeness::Count(SOURCES as u32);
    keyspace.stages = vec!["first".to_owned(), "second".to_owned()];
    keyspace.deliveries_max = 1;
    keyspace
}

pub(crate) fn config(dir: &TempDir, warm: bool) -> Config {
    let device = WarmDevice::directory(dir.path().join("warm"), 24 << 20);
    Config {
        hot_bytes: 32 << 20,
        warm: if warm { vec![device] } else { Vec::new() },
        container_bytes: 1 << 20,
        device_log_bytes: 1 << 20,
        ..Config::default()
    }
}

/// The payload of a fragment: nobody else's.
pub(crate) fn payload(event: u64, source: u64) -> Vec<u8> {
    let length = 200 + (event * 131 + source * 17) % 3000;
    (0..length).map(|at| (at * 7 + event * 31 + source) as u8).collect()
}

/// A new archive in a directory.
pub(crate) fn archive_in(dir: &Path) -> Archive {
    let archive = Archive::open(&format!("dir:{}", dir.display()), &Options::default()).unwrap();
    archive.create("").unwrap();
    archive
}

impl Scene {
    pub(crate) fn new(warm: bool) -> Scene {
        let dir = TempDir::new();
        let store = Store::create(&dir.path().join("store"), &keyspace(), config(&dir, warm)).unwrap();
        Scene { dir, store }
    }

    pub(crate) fn primary(&self, event: u64) -> Primary {
        self.store.schema().primary(&[RUN, event]).unwrap()
    }

    /// Events that are put, and accepted into these streams.
    pub(crate) fn accept(&self, events: std::ops::Range<u64>, streams: &[&str]) {
        for event in events {
            let lumi = format!("lumi={}", event / 10);
            let attributes = Attributes::parse(&self.store.keyspace().attributes, &[lumi]).unwrap();
            for source in 0..SOURCES {
                let key = self.store.schema().key(&[RUN, event, source]).unwrap();
                let options =
                    PutOptions { status: source as u32, attributes: Some(&attributes), ..PutOptions::default() };
                let _ = self.store.put(&key, &payload(event, source), &options).unwrap();
            }
            let lease = self.store.lease(&self.primary(event), None).unwrap().expect("a ready event");
            lease.accept(streams).unwrap();
        }
    }

    /// All decided events are on the warm level.
    pub(crate) fn settle(&self) {
        self.until("all is on the warm level", || {
            let of_run = self.store.ledger(RUN).unwrap();
            let kept = of_run.live.accepted.events + of_run.live.debug.events;
            let stats = self.store.warm_stats().unwrap();
            stats.demoted_events >= kept && stats.in_flight_bytes == 0
        });
    }

    pub(crate) fn until(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.store.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn archive(&self) -> Archive {
        archive_in(&self.dir.path().join("archive"))
    }

    pub(crate) fn mover(&self, archive: &Archive, options: MoverOptions) -> Mover<Store> {
        Mover::new(self.store.clone(), archive.clone(), options, Arc::new(AtomicBool::new(false)))
    }

    /// Everything of the archive's run is as it was put, once, and balances with the store's account.
    pub(crate) fn check(&self, archive: &Archive, events: std::ops::Range<u64>) {
        let manifest = archive.manifest_there(RUN).unwrap();
        for object in &manifest.objects {
            archive.verify(RUN, object).unwrap();
        }
        for event in events.clone() {
            let whole = archive.event(&manifest, &self.primary(event)).unwrap().unwrap_or_else(|| panic!("{event}"));
            assert_eq!(whole.payloads.len() as u64, SOURCES, "event {event}");
            for (source, (fragment, bytes)) in (0..).zip(whole.event.fragments.iter().zip(&whole.payloads)) {
                assert_eq!(*bytes, payload(event, source), "event {event}, source {source}");
                assert_eq!((fragment.status, fragment.version), (source as u32, 0));
            }
            assert_eq!(whole.attributes.get(0), Some(u128::from(event / 10)));
        }
        let inventory = archive.inventory(&manifest).unwrap();
        let count = events.end - events.start;
        assert_eq!((inventory.events, inventory.fragments, inventory.repeated), (count, count * SOURCES, 0));
        assert_eq!((inventory.partial, inventory.faults.len()), (0, 0));
        let ledger = self.store.ledger(RUN).unwrap();
        assert_eq!(ledger.imbalance(), None);
        let gone = ledger.released.fragments + ledger.in_custody.fragments;
        assert_eq!(gone, inventory.fragments, "{ledger:?}");
    }
}

/// A mover that takes everything at once and does not wait long.
pub(crate) fn options() -> MoverOptions {
    MoverOptions {
        move_after: Duration::ZERO,
        claim: Duration::from_secs(30),
        object_bytes: 300 << 10,
        patience: Duration::from_secs(30),
        ..MoverOptions::default()
    }
}

pub(crate) fn all(store: &Store, primary: &Primary) -> Vec<Vec<u8>> {
    let event = store.get_event(primary, &Sources::All).unwrap().expect("an event");
    event.fragments.iter().map(|fragment| fragment.to_vec()).collect()
}
