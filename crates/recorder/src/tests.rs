//! Links and device threads over devices that are only told what to do: slow, failing, full, silent.

use super::books::Contents;
use super::cause::GapReason;
use super::config::{LinkConfig, RecordingConfig};
use super::image::{Image, names};
use super::lane::Sink;
use super::link::Pushed;
use super::manifest::GapManifest;
use super::recording::{LaneStart, Recording};
use forebay_core::{Error, Kind, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const EXTENT: usize = 16 << 10;
const SPAN: u32 = 10;

/// What a device of these tests does, and what became durable on it: frames by link and tick.
#[derive(Default)]
struct Script {
    /// Appends and commits that fail, counted over both: which.
    fails: Mutex<Vec<u64>>,
    calls: AtomicU64,
    /// Images that fit.
    room: AtomicU64,
    /// Time of one append.
    append: Mutex<Duration>,
    durable: Mutex<BTreeMap<(u8, u64), Vec<u8>>>,
}

struct Fake {
    script: Arc<Script>,
    appended: Vec<((u8, u64), Vec<u8>)>,
    tickets: u64,
    renewed: bool,
}

impl Fake {
    fn call(&self) -> Result<()> {
        let call = self.script.calls.fetch_add(1, Ordering::SeqCst);
        if !self.renewed || self.script.fails.lock().contains(&call) {
            return Err(Error::unavailable(format!("call {call} fails")));
        }
        Ok(())
    }
}

impl Sink for Fake {
    fn append(&mut self, image: &Image) -> Result<()> {
        std::thread::sleep(*self.script.append.lock());
        self.call().inspect_err(|_| self.renewed = false)?;
        if self.script.room.load(Ordering::SeqCst) == 0 {
            return Err(Error::full("no empty container"));
        }
        self.script.room.fetch_sub(1, Ordering::SeqCst);
        let source = names(&image.primary).unwrap().0[0];
        for frame in &image.frames {
            self.appended.push(((source, u64::from_be_bytes(frame.tick)), image.payload(frame).to_vec()));
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<u64> {
        self.call().inspect_err(|_| self.renewed = false)?;
        self.script.durable.lock().extend(self.appended.drain(..));
        self.tickets += 1;
        Ok(self.tickets)
    }

    fn poll(&mut self) -> Result<u64> {
        Ok(self.tickets)
    }

    fn durable(&self) -> u64 {
        self.tickets
    }

    fn renew(&mut self) {
        self.appended.clear();
        self.renewed = true;
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Rig {
    dir: PathBuf,
    scripts: Vec<Arc<Script>>,
    recording: Recording,
}

impl Rig {
    fn new(devices: usize, change: impl FnOnce(&mut RecordingConfig)) -> Rig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-record-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let mut config = RecordingConfig {
            extent_bytes: EXTENT,
            container_bytes: 1 << 20,
            commit_bytes: 64 << 10,
            push_deadline: Duration::from_secs(20),
            ..RecordingConfig::default()
        };
        change(&mut config);
        config.check().unwrap();
        let scripts: Vec<Arc<Script>> = (0..devices).map(|_| Arc::new(Script::default())).collect();
        scripts.iter().for_each(|script| script.room.store(u64::MAX, Ordering::SeqCst));
        let lane = |script: &Arc<Script>| {
            let mut fake = Fake { script: script.clone(), appended: Vec::new(), tickets: 0, renewed: true };
            LaneStart {
                directory: "fake".into(),
                method: "told".into(),
                containers: 1,
                bytes: 1,
                run: Box::new(move |body| body(&mut fake)),
            }
        };
        let lanes = scripts.iter().map(lane).collect();
        let recording = Recording::start([7; 16], vec![dir.clone()], config, lanes, None).unwrap();
        Rig { dir, scripts, recording }
    }

    /// The manifest, checked against what is durable: every frame there or missed, none both.
    fn finish(&self, produced: &BTreeMap<(u8, u64), Vec<u8>>) -> GapManifest {
        let manifest = self.recording.finish().unwrap();
        let mut durable = BTreeMap::new();
        self.scripts.iter().for_each(|script| durable.extend(script.durable.lock().clone()));
        for link in &manifest.links {
            let source = link.config.source[0];
            let missing =
                |tick: u64| link.gaps.iter().any(|gap| (gap.begin..gap.end).contains(&tick) && gap.reason.is_missed());
            let of_link = produced.iter().filter(|((of, _), _)| *of == source);
            for (key, bytes) in of_link {
                match durable.get(key) {
                    Some(found) => assert!(found == bytes && !missing(key.1), "{key:?} is there and reported missing"),
                    None => assert!(missing(key.1), "{key:?} is neither there nor missed"),
                }
            }
        }
        assert_eq!(manifest.totals.produced, produced.len() as u64);
        assert_eq!(manifest.totals.recorded, durable.len() as u64);
        assert!(self.dir.join("manifest.json").is_file());
        manifest
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

fn link_config(source: u8) -> LinkConfig {
    LinkConfig {
        source: vec![source],
        name: format!("link {source}"),
        format: String::new(),
        ticks_per_frame: SPAN,
        ticks_per_second: 0,
        device: None,
    }
}

fn bytes(source: u8, tick: u64) -> Vec<u8> {
    (0..100 + tick % 900).map(|at| (at * 7 + tick + u64::from(source)) as u8).collect()
}

/// Pushes `frames` frames into each link; answers what they were.
fn push_all(rig: &Rig, links: u8, frames: u64) -> BTreeMap<(u8, u64), Vec<u8>> {
    let mut produced = BTreeMap::new();
    let mut links = rig.recording.links((1..=links).map(link_config).collect()).unwrap();
    for tick in (0..frames).map(|at| at * u64::from(SPAN)) {
        for link in &mut links {
            let source = link.number() as u8 + 1;
            let payload = bytes(source, tick);
            link.push(tick, SPAN, &payload).unwrap();
            produced.insert((source, tick), payload);
        }
    }
    produced
}

#[test]
fn all_that_is_pushed_is_recorded() {
    let rig = Rig::new(2, |_| {});
    let produced = push_all(&rig, 3, 2000);
    let manifest = rig.finish(&produced);
    assert!(manifest.is_complete() && manifest.links.iter().all(|link| link.gaps.is_empty()));
    assert!(manifest.devices.iter().all(|device| device.recorded > 0));
    assert_eq!(rig.recording.finish().unwrap(), manifest);
    assert_eq!(rig.recording.link(link_config(9)).unwrap_err().kind(), Kind::Closed);
}

#[test]
fn what_a_failed_commit_held_is_written_again() {
    // Later calls fail as well: appends and commits of what is tried again.
    let rig = Rig::new(1, |_| {});
    *rig.scripts[0].fails.lock() = vec![5, 30, 31, 60];
    let produced = push_all(&rig, 2, 2000);
    let manifest = rig.finish(&produced);
    assert!(manifest.is_complete(), "{:?}", manifest.totals);
    assert_eq!(manifest.devices[0].failure, None);
}

#[test]
fn a_device_that_fails_again_and_again_misses_what_it_has() {
    let rig = Rig::new(1, |_| {});
    *rig.scripts[0].fails.lock() = (40..1_000_000).collect();
    let produced = push_all(&rig, 2, 2000);
    let manifest = rig.finish(&produced);
    assert!(manifest.totals.recorded > 0 && manifest.totals.missed > 0, "{:?}", manifest.totals);
    for link in &manifest.links {
        assert_eq!(link.missed_by.keys().collect::<Vec<_>>(), [&GapReason::DeviceError]);
    }
    assert!(manifest.devices[0].failure.as_ref().unwrap().contains("fails"));
}

#[test]
fn links_of_a_device_that_fails_go_to_another() {
    let rig = Rig::new(2, |_| {});
    *rig.scripts[1].fails.lock() = (10..1_000_000).collect();
    let produced = push_all(&rig, 4, 1000);
    let manifest = rig.finish(&produced);
    assert!(manifest.is_complete(), "{:?}", manifest.totals);
    assert!(manifest.devices[1].failure.is_some());
}

#[test]
fn a_full_disk_is_named_and_what_fitted_is_kept() {
    let rig = Rig::new(1, |_| {});
    rig.scripts[0].room.store(10, Ordering::SeqCst);
    let produced = push_all(&rig, 1, 2000);
    let manifest = rig.finish(&produced);
    assert_eq!(manifest.links[0].missed_by.keys().collect::<Vec<_>>(), [&GapReason::DiskFull]);
    assert_eq!(manifest.links[0].gaps.len(), 1, "one stretch, to the end");
    assert!(manifest.totals.recorded > 100);
}

#[test]
fn a_slow_device_misses_frames_after_one_deadline() {
    let rig = Rig::new(1, |config| {
        config.push_deadline = Duration::from_millis(5);
        config.buffers_per_link = 2;
    });
    *rig.scripts[0].append.lock() = Duration::from_millis(40);
    let start = std::time::Instant::now();
    let produced = push_all(&rig, 1, 5000);
    assert!(start.elapsed() < Duration::from_secs(15), "a push that is missed waits once");
    let manifest = rig.finish(&produced);
    assert!(manifest.totals.missed > 0 && manifest.totals.recorded > 0, "{:?}", manifest.totals);
    assert!(manifest.links[0].missed_by.contains_key(&GapReason::DeviceSlow));
}

#[test]
fn a_device_that_stands_still_is_given_up_at_the_deadline() {
    let rig = Rig::new(1, |config| {
        config.push_deadline = Duration::from_millis(1);
        config.stall = Duration::from_millis(20);
        config.finish_deadline = Duration::from_millis(100);
    });
    *rig.scripts[0].append.lock() = Duration::from_secs(30);
    let mut link = rig.recording.link(link_config(1)).unwrap();
    let mut missed = Vec::new();
    for at in 0..500 {
        let tick = at * 10;
        if let Pushed::Missed(reason) = link.push(tick, SPAN, &[1; 1000]).unwrap() {
            missed.push(reason);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(missed.contains(&GapReason::DeviceSlow) && missed.contains(&GapReason::DeviceStalled));
    assert!(rig.recording.progress().devices[0].stalled);
    assert!(rig.recording.finish().unwrap_err().message().contains("1 links are still held"));
    drop(link);
    let start = std::time::Instant::now();
    let manifest = rig.recording.finish().unwrap();
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!((manifest.totals.produced, manifest.totals.recorded), (500, 0));
}

#[test]
fn every_tick_is_covered_or_a_gap() {
    let rig = Rig::new(1, |_| {});
    let mut link = rig.recording.link(link_config(1)).unwrap();
    let push = |link: &mut super::RecordingLink, tick: u64| {
        assert_eq!(link.push(tick, SPAN, b"frame").unwrap(), Pushed::Written);
    };
    push(&mut link, 100);
    push(&mut link, 150);
    link.missed(160, 200, 4, GapReason::NotTaken).unwrap();
    push(&mut link, 205);
    // The clock steps back, then goes on.
    push(&mut link, 100);
    link.silent(110, 150).unwrap();
    for (begin, span) in [(u64::MAX, 1), (0, 0)] {
        assert_eq!(link.push(begin, span, b"").unwrap_err().kind(), Kind::Invalid);
    }
    let longest = link.payload_bytes_max();
    assert_eq!(link.push(1000, 1, &vec![0; longest + 1]).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(link.missed(1000, 1001, 1, GapReason::NotProduced).unwrap_err().kind(), Kind::Invalid);
    drop(link);
    let manifest = rig.recording.finish().unwrap();
    let link = &manifest.links[0];
    let gaps: Vec<_> = link.gaps.iter().map(|gap| (gap.era, gap.begin, gap.end, gap.reason, gap.frames)).collect();
    assert_eq!(
        gaps,
        [
            (0, 110, 150, GapReason::NotProduced, 4),
            (0, 160, 200, GapReason::NotTaken, 4),
            (0, 200, 205, GapReason::NotProduced, 1),
            (1, 110, 150, GapReason::NotProduced, 4),
        ]
    );
    assert_eq!(link.eras.iter().map(|era| (era.begin, era.end)).collect::<Vec<_>>(), [(100, 215), (100, 150)]);
    assert_eq!((link.produced, link.recorded, link.missed), (8, 4, 4));
}

#[test]
fn two_links_of_one_source_and_sources_that_cannot_be_are_refused() {
    let rig = Rig::new(1, |_| {});
    let _first = rig.recording.link(link_config(1)).unwrap();
    assert!(
        rig.recording
            .links(vec![link_config(2), link_config(1)])
            .unwrap_err()
            .message()
            .contains("that of another link")
    );
    // On the medium sources are padded with zeros.
    let padded = LinkConfig { source: [&link_config(1).source[..], &[0]].concat(), ..link_config(1) };
    let refused = rig.recording.link(padded).unwrap_err();
    assert_eq!(refused.kind(), forebay_core::Kind::Invalid, "{refused}");
    // Nothing of the refused call is left.
    let second = rig.recording.link(link_config(2)).unwrap();
    assert_eq!(second.number(), 1);
    assert!(rig.recording.link(LinkConfig { device: Some(1), ..link_config(3) }).is_err());
}

#[test]
fn contents_are_runs() {
    let mut contents = Contents::default();
    contents.add(0, 10, 5);
    contents.add(10, 20, 5);
    contents.add(30, 40, 5);
    assert_eq!((contents.runs.len(), contents.frames(), contents.bytes), (2, 3, 15));
}
