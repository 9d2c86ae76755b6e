//! Retroactive recordings: what a ring has and what comes to it, in containers, with every tick accounted for.

use super::{TempDir, refused};
use forebay_core::{Kind, RingKeyspace, SourceSchema};
use forebay_media::warm::Device;
use forebay_recorder::{GapManifest, GapReason, Recording, RecordingConfig, WarmDir};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut, RingRecordingOptions};
use forebay_testkit::media::{FaultyDevice, Operation, SimDevice, SimMedium};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A tick is a microsecond; a frame of 1000 bytes covers a millisecond: a megabyte per second and source.
const SPAN: u64 = 1000;
const FIRST: u64 = 1 << 40;
const SOURCES: u64 = 2;

fn keyspace(pin_percent: u8) -> RingKeyspace {
    RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["link:u32"]).unwrap(),
        ticks_per_second: 1_000_000,
        sources_max: SOURCES as u32,
        history: Duration::from_secs(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(10),
        fragment_bytes_max: 1000,
        pin_percent,
    }
}

fn ring(pin_percent: u8) -> Ring {
    ring_of(8 << 20, &keyspace(pin_percent))
}

fn ring_of(hot_bytes: u64, keyspace: &RingKeyspace) -> Ring {
    let config = RingConfig { hot_bytes, segment_bytes: Some(32 << 10), ..RingConfig::default() };
    Ring::create_on(SimMedium::new(config.hot_bytes), keyspace, config).unwrap()
}

fn payload(link: u64, tick: u64) -> Vec<u8> {
    (0..1000).map(|at| (at * 31 + tick / SPAN * 7 + link) as u8).collect()
}

/// Puts frames in real time until it is told to stop; one of `skips` of them never comes. Answers what was stored.
struct Producer<'a> {
    ring: &'a Ring,
    stop: &'a AtomicBool,
    now: &'a AtomicU64,
    skips: &'a dyn Fn(u64, u64) -> bool,
}

impl Producer<'_> {
    fn run(&self) -> BTreeSet<(u64, u64)> {
        let start = Instant::now();
        let (mut stored, mut next) = (BTreeSet::new(), 0);
        while !self.stop.load(Ordering::Acquire) {
            let due = start.elapsed().as_millis() as u64;
            while next < due {
                let tick = FIRST + next * SPAN;
                for link in (0..SOURCES).filter(|&link| !(self.skips)(link, next)) {
                    let source = self.ring.keyspace().source(&[link]).unwrap();
                    let put = self.ring.put(&source, tick, SPAN as u32, &payload(link, tick), &RingPut::default());
                    match put.unwrap() {
                        RingOutcome::Stored => stored.insert((link, tick)),
                        other => panic!("link {link} tick {tick}: {other:?}"),
                    };
                }
                next += 1;
                self.now.store(tick, Ordering::Release);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stored
    }
}

struct Rig {
    _temp: TempDir,
    dirs: Vec<WarmDir>,
    simulated: Arc<SimDevice>,
    device: Arc<FaultyDevice>,
}

impl Rig {
    fn new(bytes: u64) -> Rig {
        let temp = TempDir::new();
        let dirs = vec![WarmDir { path: temp.path().join("device"), bytes }];
        std::fs::create_dir_all(&dirs[0].path).unwrap();
        let simulated = SimDevice::new("simulated", 2 * bytes);
        let device = FaultyDevice::new(simulated.clone());
        Rig { _temp: temp, dirs, simulated, device }
    }

    fn recording(&self) -> Recording {
        let config = RecordingConfig {
            container_bytes: 256 << 10,
            extent_bytes: 32 << 10,
            io_bytes: 32 << 10,
            buffers_per_link: 4,
            ..RecordingConfig::default()
        };
        Recording::create_on(vec![self.device.clone() as Arc<dyn Device>], &self.dirs, config).unwrap()
    }

    /// Every stored frame of the window is recorded, with its bytes, or missing for a reason; nothing else is.
    #[track_caller]
    fn check(&self, manifest: &GapManifest, stored: &BTreeSet<(u64, u64)>, begin: u64, end: u64) -> u64 {
        manifest.check().unwrap();
        let paths: Vec<PathBuf> = self.dirs.iter().map(|dir| dir.path.clone()).collect();
        let device = self.simulated.clone() as Arc<dyn Device>;
        let playback = Recording::open_on(vec![device], &paths, false).unwrap();
        assert_eq!(playback.manifest(), manifest);
        let continuity = playback.continuity();
        assert!(continuity.holds(), "{continuity:?}");
        let mut found = BTreeSet::new();
        for frame in playback.window(0, u64::MAX, &[0, 1]).unwrap() {
            let frame = frame.unwrap();
            assert_eq!(frame.bytes(), payload(frame.link.into(), frame.tick));
            assert!(frame.tick + SPAN > begin && frame.tick < end, "{frame:?} overlaps the window");
            found.insert((u64::from(frame.link), frame.tick));
        }
        assert!(found.is_subset(stored));
        for &(link, tick) in stored.iter().filter(|(_, tick)| tick + SPAN > begin && *tick < end) {
            let gaps = &manifest.links[link as usize].gaps;
            let missing = gaps.iter().any(|gap| gap.begin <= tick && tick < gap.end);
            assert_ne!(missing, found.contains(&(link, tick)), "link {link} tick {tick}");
        }
        found.len() as u64
    }
}

/// Stops the producer, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a producer beside `body`, which gets the newest tick.
fn produce<T>(
    ring: &Ring,
    skips: &(dyn Fn(u64, u64) -> bool + Sync),
    body: impl FnOnce(&dyn Fn() -> u64) -> T,
) -> (BTreeSet<(u64, u64)>, T) {
    let (stop, now) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| Producer { ring, stop: &stop, now: &now, skips }.run());
        let ends = Ends(&stop);
        let answer = body(&|| now.load(Ordering::Acquire));
        drop(ends);
        (thread.join().unwrap(), answer)
    })
}

fn fast() -> RingRecordingOptions {
    RingRecordingOptions {
        device_bytes_per_second: Some(1 << 30),
        patience: Duration::from_millis(200),
        ..RingRecordingOptions::default()
    }
}

#[test]
fn the_last_and_the_next_are_recorded_as_one() {
    let (ring, rig) = (ring(50), Rig::new(8 << 20));
    // Every hundredth frame of link 1 never comes.
    let skips = |link: u64, number: u64| link == 1 && number % 100 == 42;
    let (stored, (manifest, begin, end)) = produce(&ring, &skips, |now| {
        std::thread::sleep(Duration::from_millis(500));
        let (begin, end) = (now() - 300 * SPAN, now() + 900 * SPAN);
        let running =
            ring.record(rig.recording(), begin, end, &RingRecordingOptions { device_bytes_per_second: None, ..fast() });
        let running = running.unwrap();
        let progress = loop {
            let (pinned, progress) = (ring.stats().pinned_bytes, running.progress());
            // Asked for before: it was there as long as there was something to record.
            assert!(pinned > 0 || progress.tick == end, "{progress:?}");
            if progress.tick > begin {
                break progress;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(progress.tick <= end && progress.trouble.is_none(), "{progress:?}");
        assert!(progress.device_bytes_per_second > Some(0), "{progress:?}");
        (running.wait().unwrap(), begin, end)
    });
    let recorded = rig.check(&manifest, &stored, begin, end);
    assert!((2380..=2402).contains(&recorded), "{recorded}");
    assert_eq!(manifest.totals.missed, 0, "{:?}", manifest.links);
    let silent: Vec<u64> = manifest.links[1].gaps.iter().map(|gap| gap.frames).collect();
    assert!(silent.len() >= 11 && silent.iter().all(|frames| *frames == 1), "{silent:?}");
    assert!(manifest.links[0].gaps.is_empty());
    assert_eq!(ring.stats().pinned_bytes, 0, "the pin is gone with the recording");
}

#[test]
fn what_the_ring_has_not_is_a_gap_with_its_cause() {
    let (ring, rig) = (ring(50), Rig::new(8 << 20));
    // Link 1 falls silent for good after 400 frames.
    let skips = |link: u64, number: u64| link == 1 && number >= 400;
    let (stored, (manifest, end)) = produce(&ring, &skips, |now| {
        std::thread::sleep(Duration::from_millis(450));
        let end = now() + 100 * SPAN;
        let running = ring.record(rig.recording(), FIRST - 50 * SPAN, end, &fast()).unwrap();
        (running.wait().unwrap(), end)
    });
    rig.check(&manifest, &stored, FIRST - 50 * SPAN, end);
    for link in &manifest.links {
        let first = &link.gaps[0];
        assert_eq!((first.begin, first.end), (FIRST - 50 * SPAN, FIRST));
        assert_eq!((first.reason, first.frames), (GapReason::RingBefore, 50));
    }
    assert_eq!(manifest.totals.missed, 0, "nobody had anything that is not there: {:?}", manifest.totals);
    let last = manifest.links[1].gaps.last().unwrap();
    assert_eq!((last.begin, last.end, last.reason), (FIRST + 400 * SPAN, end, GapReason::RingNotYet));
}

#[test]
fn what_cannot_be_kept_is_refused_with_figures() {
    let (ring, no_pins) = (ring(50), ring(0));
    let (_, ()) = produce(&ring, &|_, _| false, |now| {
        std::thread::sleep(Duration::from_millis(300));
        let (rig, begin, end) = (Rig::new(1 << 20), now() - 100 * SPAN, now() + 100 * SPAN);
        let message = refused(ring.record(rig.recording(), begin, end + 2000 * SPAN, &fast()), Kind::Full);
        assert!(message.contains("the recording has room for"), "{message}");
        // What was refused leaves nothing: the same directory takes the next one.
        assert_eq!(rig.simulated.list().unwrap(), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(&rig.dirs[0].path).unwrap().count(), 0);
        assert_eq!(ring.stats().pinned_bytes, 0, "a refused recording keeps no pin");
        let rig = Rig::new(8 << 20);
        assert_eq!(ring.record(rig.recording(), end, begin, &fast()).unwrap_err().kind(), Kind::Invalid);
        let slow = RingRecordingOptions { device_bytes_per_second: Some(1_999_999), ..fast() };
        let message = refused(ring.record(rig.recording(), begin, end, &slow), Kind::Full);
        assert!(message.contains("2000000 together: the devices take 1999999"), "{message}");
    });
    let rig = Rig::new(8 << 20);
    let message = refused(no_pins.record(rig.recording(), 1, 2, &fast()), Kind::Invalid);
    assert!(message.contains("seen none yet"), "{message}");
    let source = no_pins.keyspace().source(&[0]).unwrap();
    no_pins.put(&source, FIRST, SPAN as u32, &payload(0, FIRST), &RingPut::default()).unwrap();
    let message = refused(no_pins.record(rig.recording(), FIRST, FIRST + SPAN, &fast()), Kind::Full);
    assert!(message.contains("the quota is 0 bytes"), "{message}");
}

#[test]
fn a_device_that_does_not_keep_up_costs_what_the_ring_took_back() {
    let (ring, rig) = (ring(20), Rig::new(32 << 20));
    let (stored, (manifest, begin, end)) = produce(&ring, &|_, _| false, |now| {
        std::thread::sleep(Duration::from_millis(300));
        let (begin, end) = (now() - 100 * SPAN, now() + 6000 * SPAN);
        let recording = rig.recording();
        let running = ring.record(recording, begin, end, &fast()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        // It stops for longer than the ring's memory lasts.
        rig.device.stall(Duration::from_millis(4500));
        (running.wait().unwrap(), begin, end)
    });
    rig.check(&manifest, &stored, begin, end);
    assert!(rig.device.count(Operation::Write) > 10);
    let gone: u64 = manifest.links.iter().filter_map(|link| link.missed_by.get(&GapReason::RingGone)).sum();
    assert!(gone > 0 && manifest.totals.recorded > 1000, "{:?}", manifest.totals);
}

#[test]
fn a_recording_that_is_stopped_or_whose_ring_closes_ends_with_its_manifest() {
    for closes in [false, true] {
        let (ring, rig) = (ring(50), Rig::new(8 << 20));
        let mut handle = None;
        let (stored, (begin, running)) = produce(&ring, &|_, _| false, |now| {
            std::thread::sleep(Duration::from_millis(200));
            let begin = now() - 100 * SPAN;
            let running = ring.record(rig.recording(), begin, now() + 3000 * SPAN, &fast()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            (begin, running)
        });
        if closes {
            ring.close().unwrap();
        } else {
            running.stop();
        }
        handle = handle.or(Some(running));
        let start = Instant::now();
        let manifest = handle.take().unwrap().wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(30));
        let end = manifest.links.iter().filter_map(|link| link.eras.last()).map(|era| era.end).min().unwrap();
        assert!(end > begin + 100 * SPAN);
        rig.check(&manifest, &stored, begin, end);
    }
}

#[test]
fn what_the_ring_gave_away_before_the_trigger_is_counted() {
    let (ring, rig) = (ring_of(4 << 20, &keyspace(90)), Rig::new(8 << 20));
    let (stored, (manifest, end)) = produce(&ring, &|_, _| false, |now| {
        std::thread::sleep(Duration::from_millis(2500));
        let end = now() + 200 * SPAN;
        (ring.record(rig.recording(), FIRST, end, &fast()).unwrap().wait().unwrap(), end)
    });
    rig.check(&manifest, &stored, FIRST, end);
    let in_window = stored.iter().filter(|(_, tick)| *tick < end).count() as u64;
    assert_eq!(manifest.totals.produced, in_window, "what the ring had at any time is recorded or missed");
    for link in &manifest.links {
        let first = &link.gaps[0];
        assert_eq!((first.begin, first.reason, link.gaps.len()), (FIRST, GapReason::RingGone, 1));
        assert!(first.frames > 500 && link.recorded > 500, "{link:?}");
    }
}

#[test]
fn containers_that_are_full_are_told_to_the_tick() {
    // The links send twice what was declared, and what was declared is what the containers were made for.
    let slow = RingKeyspace { source_bytes_per_second: 500_000, ..keyspace(60) };
    let (ring, rig) = (ring_of(8 << 20, &slow), Rig::new(1 << 20));
    let how = RingRecordingOptions { ticks_per_fragment: Some(SPAN as u32), ..fast() };
    let (stored, (manifest, begin, end)) = produce(&ring, &|_, _| false, |now| {
        std::thread::sleep(Duration::from_millis(300));
        let (begin, end) = (now() - 100 * SPAN, now() + 550 * SPAN);
        let running = ring.record(rig.recording(), begin, end, &how).unwrap();
        (running.wait().unwrap(), begin, end)
    });
    rig.check(&manifest, &stored, begin, end);
    let in_window = stored.iter().filter(|(_, tick)| tick + SPAN > begin && *tick < end).count() as u64;
    assert_eq!(manifest.totals.produced, in_window, "what the ring had is recorded or missed");
    assert!(manifest.totals.recorded > 500, "{:?}", manifest.totals);
    let reasons: BTreeSet<GapReason> = manifest.links.iter().flat_map(|link| link.missed_by.keys().copied()).collect();
    assert_eq!(reasons, BTreeSet::from([GapReason::DiskFull]));
    assert!(manifest.devices[0].failure.as_ref().unwrap().starts_with("disk full"));
}

#[test]
fn a_device_that_never_answers_again_ends_the_recording_with_its_account() {
    let (ring, rig) = (ring(50), Rig::new(8 << 20));
    let how = RingRecordingOptions { grace: Duration::from_millis(500), ..fast() };
    let (stored, (manifest, begin, end)) = produce(&ring, &|_, _| false, |now| {
        std::thread::sleep(Duration::from_millis(300));
        let (begin, end) = (now() - 100 * SPAN, now() + 1000 * SPAN);
        let running = ring.record(rig.recording(), begin, end, &how).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        rig.device.stall(Duration::from_secs(14));
        (running.wait().unwrap(), begin, end)
    });
    rig.check(&manifest, &stored, begin, end);
    for link in &manifest.links {
        assert_eq!(link.eras.last().unwrap().end, end, "the account reaches to the end");
    }
    let stalled: u64 = manifest.links.iter().filter_map(|link| link.missed_by.get(&GapReason::DeviceStalled)).sum();
    assert!(stalled > 0 && manifest.totals.recorded > 100, "{:?}", manifest.totals);
}

#[test]
fn after_a_power_loss_in_the_middle_what_was_durable_plays() {
    for seed in 0..6 {
        // Room for what a busy machine is late: the recording begins with the ring's first tick.
        let (ring, rig) = (ring(50), Rig::new(64 << 20));
        let (stored, (survivor, durable)) = produce(&ring, &|_, _| false, |now| {
            std::thread::sleep(Duration::from_millis(200));
            let running = ring.record(rig.recording(), FIRST, now() + 2000 * SPAN, &fast()).unwrap();
            let start = Instant::now();
            while running.progress().recording.recorded < 100 + 50 * seed {
                assert!(start.elapsed() < Duration::from_secs(20), "{:?}", running.progress());
                std::thread::sleep(Duration::from_millis(1));
            }
            // Read before the power goes: what is durable then stays.
            let durable = running.progress().recording.recorded;
            let survivor = rig.simulated.power_off(seed);
            (survivor, durable)
        });
        let paths: Vec<PathBuf> = rig.dirs.iter().map(|dir| dir.path.clone()).collect();
        std::fs::remove_file(paths[0].join("manifest.json")).ok();
        let playback = Recording::open_on(vec![survivor], &paths, false).unwrap();
        let manifest = playback.manifest();
        assert!(manifest.rebuilt && manifest.totals.recorded >= durable, "{:?} of {durable}", manifest.totals);
        assert!(playback.continuity().holds());
        for frame in playback.window(0, u64::MAX, &[0, 1]).unwrap() {
            let frame = frame.unwrap();
            assert!(stored.contains(&(frame.link.into(), frame.tick)));
            assert_eq!(frame.bytes(), payload(frame.link.into(), frame.tick));
        }
    }
}
