//! Every later version of the same formats reads what this version writes: a store of two levels, closed and killed, a
//! ring and a recording, as files of `made/`, each with what must be found in it.
//!
//! `FOREBAY_MAKE_FORMATS=1 cargo test -p forebay-testkit-tests formats` makes those that are not there: a new version of a format
//! gets files of its own. `store-closed` and `store-killed` have region format 3 and device log 2, `store-streams` 4 and 3,
//! `store-signed` 5 and 3.

mod pack;

use crate::common::{TempDir, eventually, put, refused};
use forebay_recorder::{GapReason, LinkConfig, Playback, Pushed, Recording, RecordingConfig, WarmDir};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut, RingSources};
use forebay_store::core::{
    AttributeSchema, Attributes, Bounds, Completeness, Keyspace, Kind, LIVE_STATES, ManualClock, PrescaleFactor,
    RingKeyspace, Signature, SourceSchema, crc32c,
};
use forebay_store::{Accept, Config, OpenEvent, PutOptions, PutOutcome, ResultFragment, Sources, Store, WarmDevice};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("formats/made").join(name)
}

/// Compares what is found in the unpacked files with what was found when they were made; makes both where that is asked.
fn check(name: &str, make: impl Fn(&Path, &Path), found: impl Fn(&Path) -> String) {
    let (packed, expected) = (made(&format!("{name}.pack")), made(&format!("{name}.txt")));
    let making = std::env::var_os("FOREBAY_MAKE_FORMATS").is_some() && !packed.exists();
    if making {
        let (live, taken) = (TempDir::new(), TempDir::new());
        make(live.path(), taken.path());
        std::fs::write(&packed, pack::pack(taken.path())).unwrap();
    }
    let dir = TempDir::new();
    pack::unpack(&std::fs::read(&packed).unwrap(), dir.path());
    let text = found(dir.path());
    if making {
        std::fs::write(&expected, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&expected).unwrap(), "{name}");
}

/// A copy of a directory, beside a store that has it open: what its death would leave.
fn copy(from: &Path, to: &Path) {
    pack::unpack(&pack::pack(from), to);
}

const OTHER_RUN: u64 = 2;

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("formats", 2).opening_runs();
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    keyspace.stages = vec!["fast".to_owned(), "final".to_owned()];
    keyspace.announced = true;
    keyspace.deliveries_max = 1;
    keyspace.run.completeness = Completeness::Count(2);
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace
}

fn config(dir: &Path) -> Config {
    Config {
        hot_bytes: 1 << 20,
        segment_bytes: Some(16 << 10),
        write_heads: 1,
        maintenance: false,
        put_deadline: Duration::ZERO,
        lease: Duration::from_secs(24 * 3600),
        clock: Arc::new(ManualClock::default()),
        warm: vec![WarmDevice::directory(dir.join("device"), 1 << 20)],
        container_bytes: 128 << 10,
        device_log_bytes: 64 << 10,
        ..Config::default()
    }
}

/// A store with something of every kind: in each state, on each level, in each log.
fn fill(dir: &Path) -> Store {
    let keyspace = keyspace();
    let store = Store::create(&dir.join("store"), &keyspace, config(dir)).unwrap();
    let schema = store.schema();
    let key = |event: u64, source: u64| schema.key(&[1, event, source]).unwrap();
    let primary = |event: u64| schema.primary(&[1, event]).unwrap();
    let stored = |event: u64, source: u64, bytes: &[u8]| {
        assert_eq!(put(&store, &key(event, source), bytes).unwrap(), PutOutcome::Stored);
    };
    store.run_open(1, &keyspace.run).unwrap();
    store.run_open(OTHER_RUN, &keyspace.run).unwrap();
    let lumi = Attributes::parse(&keyspace.attributes, &["lumi=7"]).unwrap();
    // Open, with attributes; announced and not seen; persisted; ready.
    let named = PutOptions { attributes: Some(&lumi), ..PutOptions::default() };
    assert_eq!(store.put(&key(1, 0), b"one of two", &named).unwrap(), PutOutcome::Stored);
    let sources = [0_u64, 5].map(|source| schema.source_of(&key(2, source)));
    let _ = store.open_event(&primary(2), &OpenEvent { sources: Some(&sources), attributes: None }).unwrap();
    let persisted = PutOptions { persisted: true, ..PutOptions::default() };
    assert_eq!(store.put(&key(3, 0), &[3; 3000], &persisted).unwrap(), PutOutcome::Stored);
    (4..=12).for_each(|event| (0..2).for_each(|source| stored(event, source, &[event as u8; 700])));
    // An update, a removed fragment, a conflict, a duplicate.
    store.update(&key(4, 0), b"the second version", None).unwrap();
    assert!(store.remove(&key(4, 1)).unwrap());
    refused(put(&store, &key(5, 0), b"other bytes"), Kind::Conflict);
    assert_eq!(put(&store, &key(5, 1), &[5; 700]).unwrap(), PutOutcome::Duplicate);
    // One of each verdict; a pass with a result; an event in the debug stream.
    let lease = |event: u64| store.lease(&primary(event), None).unwrap().unwrap();
    lease(6).reject().unwrap();
    lease(7).accept(&["physics"]).unwrap();
    let result = schema.source_of(&key(8, 9));
    let chosen = [("express", Sources::Only(vec![schema.source_of(&key(8, 0))])), ("physics", Sources::All)];
    lease(8).accept_into(&Accept { streams: &chosen, results: &[ResultFragment::new(&result, b"a result")] }).unwrap();
    lease(9).pass("final", &[ResultFragment::new(&result, b"found")]).unwrap();
    store.remove_event(&primary(10)).unwrap();
    drop(lease(11));
    // What was accepted goes down.
    eventually(&store, "accepted events go down", || store.warm_stats().unwrap().demoted_events >= 2);
    assert!(store.release(&primary(7)).unwrap());
    // Masks, holds, producers, a closed run.
    store.mask(1, &result, None).unwrap();
    store.hold(Some(1), &["lumi=7"]).unwrap();
    store.producer(1, "link-0").unwrap().finish().unwrap();
    let event = schema.key(&[OTHER_RUN, 1, 0]).unwrap();
    assert_eq!(put(&store, &event, b"of a closed run").unwrap(), PutOutcome::Stored);
    store.run_stop(OTHER_RUN).unwrap();
    store.seal(&schema.primary(&[OTHER_RUN, 1]).unwrap()).unwrap();
    store.lease(&schema.primary(&[OTHER_RUN, 1]).unwrap(), None).unwrap().unwrap().reject().unwrap();
    store.run_close(OTHER_RUN).unwrap();
    store
}

/// Opens a store that was unpacked here.
fn opened(dir: &Path) -> Store {
    // The path of the device is the only thing that a copy changes.
    let list = dir.join("store/devices.toml");
    let text = std::fs::read_to_string(&list).unwrap();
    let path = format!("path = \"{}\"", dir.join("device").display());
    let moved: Vec<&str> = text.lines().map(|line| if line.starts_with("path") { &path } else { line }).collect();
    std::fs::write(&list, moved.join("\n")).unwrap();
    Store::open(&dir.join("store"), Config { accept_loss: true, warm: Vec::new(), ..config(dir) }).unwrap()
}

/// What a store has, in words.
fn found_in_store(dir: &Path) -> String {
    let store = opened(dir);
    let schema = store.schema();
    let mut out = String::new();
    for status in store.runs() {
        let ledger = status.ledger;
        writeln!(out, "run {} {:?}, masked {:?}", status.run, status.state, status.masked).unwrap();
        let terms = [
            ("offered", ledger.offered),
            ("stored", ledger.stored),
            ("duplicate", ledger.duplicate),
            ("conflict", ledger.conflict),
        ];
        for (name, tally) in terms.into_iter().chain(ledger.stored_terms()) {
            writeln!(out, "  {name} {} {} {}", tally.events, tally.fragments, tally.bytes).unwrap();
        }
        writeln!(out, "  complete {} incomplete {}", ledger.complete, ledger.incomplete).unwrap();
        writeln!(out, "  never seen {} awaited {}", ledger.never_seen, ledger.awaited).unwrap();
        for producer in &status.producers {
            writeln!(out, "  producer {} finished {}", producer.name, producer.finished).unwrap();
        }
    }
    for info in store.events(&Bounds::all(schema)).unwrap() {
        let name = schema.text(info.primary.as_bytes());
        writeln!(out, "event {name} {:?} stage {} deliveries {}", info.state, info.stage, info.deliveries).unwrap();
        writeln!(out, "  outputs {:?}", store.outputs(&info.primary).unwrap()).unwrap();
        let event = store.get_event(&info.primary, &Sources::All).unwrap().unwrap();
        writeln!(out, "  attributes {:?}", event.attributes).unwrap();
        for fragment in &event.fragments {
            fragment.verify().unwrap();
            let key = schema.text(fragment.key().as_bytes());
            let (level, version) = (fragment.level(), fragment.version());
            writeln!(out, "  {key} {level:?} version {version} {} B {:08x}", fragment.len(), crc32c(fragment)).unwrap();
        }
    }
    for conflict in store.conflicts() {
        let key = schema.text(conflict.key.as_bytes());
        writeln!(out, "conflict {key} {} B {:08x}", conflict.bytes, conflict.checksum).unwrap();
    }
    for hold in store.holds() {
        writeln!(out, "hold {} {:?} {:?}", hold.id, hold.run, hold.conditions).unwrap();
    }
    LIVE_STATES.iter().for_each(|state| write!(out, "{} ", state.name()).unwrap());
    writeln!(out, "losses {:?}", store.losses()).unwrap();
    store.close().unwrap();
    out
}

#[test]
fn a_store_that_was_closed() {
    let make = |live: &Path, taken: &Path| {
        let store = fill(live);
        store.close().unwrap();
        drop(store);
        copy(live, taken);
    };
    check("store-closed", make, found_in_store);
}

#[test]
fn a_store_that_was_killed() {
    let make = |live: &Path, taken: &Path| {
        let _store = fill(live);
        copy(live, taken);
    };
    check("store-killed", make, found_in_store);
}

/// Declared streams, and accepts of every form: a mask, a list of numbers, an output.
#[test]
fn a_store_of_many_streams() {
    let make = |live: &Path, taken: &Path| {
        let streams = (0..240).map(|stream| format!("stream-{stream}")).collect();
        let keyspace = Keyspace { streams, ..keyspace() };
        let store = Store::create(&live.join("store"), &keyspace, config(live)).unwrap();
        store.run_open(1, &keyspace.run).unwrap();
        let sets: [&[&str]; 4] = [
            &["stream-30", "stream-0"],
            &["stream-200"],
            &["stream-31", "stream-5", "stream-239"],
            &["stream-1", "stream-2", "stream-3", "stream-100"],
        ];
        for (event, streams) in (1..).zip(sets) {
            let key = |source: u64| store.schema().key(&[1, event, source]).unwrap();
            (0..2).for_each(|source| assert_eq!(put(&store, &key(source), b"bytes").unwrap(), PutOutcome::Stored));
            let primary = store.schema().primary(&[1, event]).unwrap();
            store.lease(&primary, None).unwrap().unwrap().accept(streams).unwrap();
            // The first two go down, the others stay in the log alone.
            if event == 2 {
                eventually(&store, "accepted events go down", || store.warm_stats().unwrap().demoted_events >= 2);
            }
        }
        copy(live, taken);
    };
    check("store-streams", make, found_in_store);
}

/// Who changed a run and when, prescales, the time of a run: from a snapshot and from the log behind it.
#[test]
fn a_store_whose_runs_are_signed() {
    let make = |live: &Path, taken: &Path| {
        let clock = Arc::new(ManualClock::default());
        let config = || Config { clock: clock.clone(), ..config(live) };
        let factor = |text: &str| PrescaleFactor::parse(text).unwrap();
        let mut keyspace = keyspace();
        keyspace.run.prescales = [("jet-40".to_owned(), factor("2.5"))].into();
        let store = Store::create(&live.join("store"), &keyspace, config()).unwrap();
        let source = |number: u64| store.schema().source(&[number]).unwrap();
        let from = store.schema().primary(&[1, 9]).unwrap();
        store.named("shift").run_open(1, &keyspace.run).unwrap();
        store.named("shift").mask(1, &source(5), Some(&from)).unwrap();
        clock.advance_ns(5_000_000_000);
        store.close().unwrap();
        drop(store);
        let store = Store::open(&live.join("store"), Config { warm: Vec::new(), ..config() }).unwrap();
        store.named("expert").unmask(1, &store.schema().source(&[5]).unwrap(), None).unwrap();
        store.named("expert").prescale(1, "jet-40", factor("off"), Some(&from)).unwrap();
        clock.advance_ns(2_000_000_000);
        store.run_pause(1).unwrap();
        copy(live, taken);
    };
    let found = |dir: &Path| {
        let store = opened(dir);
        let summary = store.run_summary(1).unwrap();
        // Texts have seconds, what is kept has milliseconds.
        let ms = |signature: &Signature| signature.at_ms.unwrap();
        let mut out =
            format!("opened by {} ({} ms), open for {} ns\n", summary.opened, ms(&summary.opened), summary.ran_ns);
        summary.masks.iter().for_each(|mask| writeln!(out, "{mask} ({} ms)", ms(&mask.signature)).unwrap());
        summary.prescales.iter().for_each(|of| writeln!(out, "{of} ({} ms)", ms(&of.signature)).unwrap());
        store.close().unwrap();
        out
    };
    check("store-signed", make, found);
}

/// A region of an earlier format is one of the newest once it was opened, in both copies of its superblock: a build that knows the
/// earlier one alone must not go on with the copy that it can read. What earlier formats do not say is unknown.
#[test]
fn a_store_of_the_format_before_is_converted() {
    for (name, format) in [("store-closed", 3), ("store-killed", 3), ("store-streams", 4)] {
        let dir = TempDir::new();
        pack::unpack(&std::fs::read(made(&format!("{name}.pack"))).unwrap(), dir.path());
        let formats = || {
            let region = std::fs::read(dir.path().join("store/hot.fb")).unwrap();
            [region[8], region[4096 + 8]]
        };
        assert!(formats().contains(&format) && !formats().contains(&5), "{name}: {:?}", formats());
        let store = opened(dir.path());
        assert_eq!(formats(), [5, 5], "{name}");
        let summary = store.run_summary(1).unwrap();
        assert_eq!(summary.opened, Signature::default(), "{name}");
        // One mask, by hand: in the log of the killed one, in the snapshot of the closed one.
        let masks: Vec<_> = summary.masks.iter().map(|mask| (&*mask.source, &mask.signature)).collect();
        let expected: &[_] = if format == 3 { &[("9", &Signature { by: None, at_ms: None })] } else { &[] };
        assert_eq!(masks, expected, "{name}");
        store.close().unwrap();
    }
}

#[test]
fn a_ring() {
    let keyspace = RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["crate:u16", "link:u32"]).unwrap(),
        ticks_per_second: 1_000_000,
        sources_max: 2,
        history: Duration::from_millis(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(3600),
        fragment_bytes_max: 1000,
        pin_percent: 50,
    };
    let config = || RingConfig {
        hot_bytes: 8192 + 20 * (16 << 10),
        segment_bytes: Some(16 << 10),
        clock: Arc::new(ManualClock::default()),
        maintenance: false,
        ..RingConfig::default()
    };
    let make = |live: &Path, taken: &Path| {
        let ring = Ring::create(live, &keyspace, config()).unwrap();
        for number in (0..100_u64).filter(|number| number % 10 != 3) {
            for link in 0..2 {
                let source = ring.keyspace().source(&[3, link]).unwrap();
                let put = RingPut { run: 1, status: number as u32 };
                let bytes = vec![number as u8; 100 + 7 * number as usize];
                assert_eq!(ring.put(&source, 1000 + number * 100, 100, &bytes, &put).unwrap(), RingOutcome::Stored);
            }
        }
        ring.close().unwrap();
        drop(ring);
        copy(live, taken);
    };
    let found = |dir: &Path| {
        let ring = Ring::open(dir, config()).unwrap();
        let mut out = String::new();
        let window = ring.window(0, 20_000, &RingSources::All, Duration::ZERO).unwrap();
        for source in &window.sources {
            writeln!(out, "{:?} {:?}", source.source, source.coverage).unwrap();
            for fragment in source.fragments() {
                fragment.verify().unwrap();
                let (run, status, crc) = (fragment.run, fragment.status, crc32c(fragment.bytes));
                writeln!(out, "  {} {} run {run} status {status} {crc:08x}", fragment.timestamp, fragment.span)
                    .unwrap();
            }
        }
        let ledger = ring.ledger_of(1);
        writeln!(out, "stored {} expired {}", ledger.stored.fragments, ledger.expired.fragments).unwrap();
        drop(window);
        ring.close().unwrap();
        out
    };
    check("ring", make, found);
}

#[test]
fn a_recording() {
    let dirs = |dir: &Path| vec![WarmDir { path: dir.join("device"), bytes: 2 << 20 }];
    let make = |live: &Path, taken: &Path| {
        let config = RecordingConfig {
            name: "formats".to_owned(),
            run: 7,
            container_bytes: 256 << 10,
            extent_bytes: 32 << 10,
            io_bytes: 16 << 10,
            commit_bytes: 128 << 10,
            push_deadline: Duration::from_secs(20),
            ..RecordingConfig::default()
        };
        let recording = Recording::create(&dirs(live), config).unwrap();
        for number in 0..2_u8 {
            let plan = LinkConfig {
                source: vec![9, number],
                name: format!("link {number}"),
                format: "test".to_owned(),
                ticks_per_frame: 100,
                ticks_per_second: 1_000_000,
                device: None,
            };
            let mut link = recording.link(plan).unwrap();
            for frame in (0..200_u64).filter(|frame| frame % 50 != 49) {
                let bytes = vec![frame as u8; 50 + frame as usize];
                assert_eq!(link.push(5000 + frame * 100, 100, &bytes).unwrap(), Pushed::Written);
            }
            link.missed(25_000, 25_100, 1, GapReason::NotTaken).unwrap();
        }
        recording.finish().unwrap();
        drop(recording);
        copy(live, taken);
    };
    let found = |dir: &Path| {
        let paths = || vec![dir.join("device")];
        let told = |playback: &Playback| {
            let mut out = String::new();
            let manifest = playback.manifest();
            writeln!(out, "{} run {} recorded {}", manifest.name, manifest.run, manifest.totals.recorded).unwrap();
            for link in &manifest.links {
                link.gaps.iter().for_each(|gap| writeln!(out, "  gap {} {}", gap.begin, gap.end).unwrap());
            }
            for frame in playback.window(0, u64::MAX, &[0, 1]).unwrap() {
                let frame = frame.unwrap();
                let crc = crc32c(frame.bytes());
                writeln!(out, "  {} {} era {} {crc:08x}", frame.link, frame.tick, frame.era).unwrap();
            }
            out
        };
        let mut out = told(&Recording::open(&paths(), false).unwrap());
        // The same from the containers alone.
        std::fs::remove_file(dir.join("device/manifest.json")).unwrap();
        out += &told(&Recording::open(&paths(), false).unwrap());
        out
    };
    check("recording", make, found);
}
