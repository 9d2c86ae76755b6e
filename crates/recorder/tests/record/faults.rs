//! Devices that fail, lie, stall and vanish while a recording is made: what the manifest says is what is there.

use super::{SPAN, TempDir, config, link_config, paths, payload, push, read_all, record, settle};
use forebay_media::warm::Device;
use forebay_recorder::{GapReason, Recording, RecordingConfig, WarmDir};
use forebay_testkit::media::{Fault, FaultyDevice, Operation, SimDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BYTES: u64 = 6 << 20;

struct Rig {
    temp: TempDir,
    dirs: Vec<WarmDir>,
    inner: Vec<Arc<SimDevice>>,
    devices: Vec<Arc<FaultyDevice>>,
}

impl Rig {
    fn new(count: usize) -> Rig {
        let temp = TempDir::new();
        let dirs = super::dirs(&temp, count, BYTES);
        dirs.iter().for_each(|dir| std::fs::create_dir_all(&dir.path).unwrap());
        let inner: Vec<_> = (0..count).map(|at| SimDevice::new(&format!("simulated {at}"), 2 * BYTES)).collect();
        let devices = inner.iter().map(|inner| FaultyDevice::new(inner.clone())).collect();
        Rig { temp, dirs, inner, devices }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    fn create(&self, config: RecordingConfig) -> Recording {
        Recording::create_on(self.devices(), &self.dirs, config).unwrap()
    }

    /// Reads everything back, on devices that are well again.
    #[track_caller]
    fn check(&self, produced: &[(u32, u64)], manifest: &forebay_recorder::GapManifest) {
        let devices = self.inner.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
        let playback = Recording::open_on(devices, &paths(&self.dirs), false).unwrap();
        assert_eq!(playback.manifest(), manifest);
        settle(manifest, produced, &read_all(&playback));
        assert!(self.temp.path().exists());
    }
}

#[test]
fn one_write_or_sync_that_fails_costs_nothing() {
    let (writes, syncs) = {
        let rig = Rig::new(1);
        let recording = rig.create(config());
        let before = [Operation::Write, Operation::Sync].map(|operation| rig.devices[0].count(operation));
        record(&recording, 2, 1500);
        let after = [Operation::Write, Operation::Sync].map(|operation| rig.devices[0].count(operation));
        (before[0]..after[0], before[1]..after[1])
    };
    assert!(writes.end - writes.start > 40 && syncs.end - syncs.start > 8, "{writes:?} {syncs:?}");
    let of = |operation: Operation, range: std::ops::Range<u64>, step: usize| {
        range.step_by(step).map(move |nth| (operation, nth)).collect::<Vec<_>>()
    };
    for (operation, nth) in [of(Operation::Write, writes, 9), of(Operation::Sync, syncs, 3)].concat() {
        for fault in [Fault::Fails, Fault::Short] {
            let rig = Rig::new(1);
            let recording = rig.create(config());
            rig.devices[0].inject(Some(operation), nth, fault);
            let (produced, manifest) = record(&recording, 2, 1500);
            assert!(manifest.is_complete(), "{operation:?} {nth} {fault:?}: {manifest:?}");
            drop(recording);
            rig.check(&produced, &manifest);
        }
    }
}

#[test]
fn a_device_whose_every_write_fails_is_given_up_and_named() {
    let rig = Rig::new(1);
    let recording = rig.create(config());
    let from = rig.devices[0].count(Operation::Write) + 60;
    (from..from + 3000).for_each(|nth| rig.devices[0].inject(Some(Operation::Write), nth, Fault::Fails));
    let (produced, manifest) = record(&recording, 2, 2000);
    drop(recording);
    assert!(manifest.totals.missed > 0 && manifest.totals.recorded > 0, "{:?}", manifest.totals);
    let link = &manifest.links[0];
    assert!(link.missed_by.keys().all(|reason| *reason == GapReason::DeviceError), "{:?}", link.missed_by);
    assert!(manifest.devices[0].failure.is_some());
    rig.check(&produced, &manifest);
}

#[test]
fn a_device_that_vanishes_leaves_its_links_to_another() {
    let rig = Rig::new(2);
    let recording = rig.create(config());
    let nth = rig.devices[1].count(Operation::Write) + 20;
    rig.devices[1].inject(Some(Operation::Write), nth, Fault::Vanishes);
    let (produced, manifest) = record(&recording, 2, 1500);
    drop(recording);
    assert!(manifest.devices[1].failure.is_some());
    assert!(manifest.is_complete(), "{:?}", manifest.totals);
    rig.check(&produced, &manifest);

    // Where it does not come back, what is on the other one is served to who accepts the loss, and the rest is named.
    let one = || vec![rig.inner[0].clone() as Arc<dyn Device>];
    assert!(Recording::open_on(one(), &paths(&rig.dirs), false).is_err());
    let left = Recording::open_on(one(), &paths(&rig.dirs), true).unwrap();
    assert!(left.losses().iter().any(|loss| loss.contains("device 1")), "{:?}", left.losses());
    let continuity = left.continuity();
    assert_eq!(continuity.frames, manifest.devices[0].recorded);
    assert!(!continuity.holds() && continuity.differences[0].contains("link"), "{continuity:?}");
}

#[test]
fn a_device_that_stalls_costs_frames_and_says_so() {
    let rig = Rig::new(1);
    let config = RecordingConfig {
        stall: Duration::from_millis(60),
        push_deadline: Duration::from_millis(5),
        buffers_per_link: 2,
        ..config()
    };
    let recording = rig.create(config);
    let nth = rig.devices[0].count(Operation::Write) + 20;
    rig.devices[0].inject(Some(Operation::Write), nth, Fault::Stalls(Duration::from_millis(250)));
    let mut link = recording.link(link_config(0)).unwrap();
    let mut produced = Vec::new();
    let mut recovered = false;
    for at in 0..100_000 {
        let tick = at * u64::from(SPAN);
        produced.push((0, tick));
        if !push(&mut link, tick) {
            std::thread::sleep(Duration::from_millis(1));
        } else if recording.progress().missed > 0 {
            recovered = true;
            if at > 2000 {
                break;
            }
        }
    }
    drop(link);
    let manifest = recording.finish().unwrap();
    drop(recording);
    assert!(recovered, "frames are taken again after the stall");
    let reasons: Vec<GapReason> = manifest.links[0].missed_by.keys().copied().collect();
    assert!(reasons.contains(&GapReason::DeviceStalled), "{:?}", manifest.links[0].missed_by);
    rig.check(&produced, &manifest);
}

#[test]
fn writes_that_lie_never_give_wrong_bytes() {
    let mut found = 0;
    let faults = (1..5).map(Fault::Torn).chain([Fault::Misdirected(3)]);
    for (fault, at) in faults.flat_map(|fault| [5, 17, 30].map(|at| (fault, at))) {
        let rig = Rig::new(1);
        let recording = rig.create(config());
        let nth = rig.devices[0].count(Operation::Write) + at;
        rig.devices[0].inject(Some(Operation::Write), nth, fault);
        record(&recording, 1, 1000);
        drop(recording);
        // Opening fails closed, or the frames that were hit are errors in their place. A directory that was hit is made
        // good from the extents.
        match Recording::open_on(rig.devices(), &paths(&rig.dirs), false) {
            Err(error) => {
                assert_eq!(error.kind(), forebay_core::Kind::Corrupt, "{error}");
                let left = Recording::open_on(rig.devices(), &paths(&rig.dirs), true).unwrap();
                assert!(!left.losses().is_empty() && !left.continuity().holds(), "{fault:?}");
                found += 1;
            }
            Ok(playback) => {
                for frame in playback.window(0, u64::MAX, &[0]).unwrap() {
                    match frame {
                        Ok(frame) => assert_eq!(frame.bytes(), payload(0, frame.tick), "{fault:?}"),
                        Err(_) => found += 1,
                    }
                }
            }
        }
    }
    assert!(found > 5, "writes that lied are found: {found}");
}

#[test]
fn after_a_power_loss_all_that_was_durable_is_there() {
    for seed in 0..25 {
        let temp = TempDir::new();
        let dirs = super::dirs(&temp, 1, BYTES);
        std::fs::create_dir_all(&dirs[0].path).unwrap();
        let device = SimDevice::new("simulated", 2 * BYTES);
        let recording = Recording::create_on(vec![device.clone()], &dirs, config()).unwrap();
        let mut links = recording.links(vec![link_config(0), link_config(1)]).unwrap();
        for at in 0..200 + seed * 37 {
            links.iter_mut().for_each(|link| assert!(push(link, at * u64::from(SPAN))));
        }
        // Read before the power goes: what is durable then stays.
        let durable = recording.progress().recorded;
        let survivor = device.power_off(seed);
        drop(links);
        drop(recording);
        let playback = Recording::open_on(vec![survivor], &paths(&dirs), false).unwrap();
        let manifest = playback.manifest();
        assert!(manifest.rebuilt && !manifest.is_complete());
        let found = read_all(&playback);
        assert!(found.len() as u64 >= durable, "seed {seed}: {} of {durable} durable frames are there", found.len());
        for link in &manifest.links {
            let number = u32::from(link.config.source[1]);
            let last = found.range((number, 0)..=(number, u64::MAX)).next_back();
            assert_eq!(link.unknown_from, Some(last.map_or(0, |((_, tick), _)| tick + u64::from(SPAN))));
        }
    }
}

#[test]
fn a_recording_that_is_stopped_from_elsewhere_adds_up() {
    let rig = Rig::new(2);
    let recording = rig.create(config());
    let links = recording.links((0..4).map(link_config).collect()).unwrap();
    let stop = AtomicBool::new(false);
    let produced = std::thread::scope(|scope| {
        let readers: Vec<_> = links
            .into_iter()
            .map(|mut link| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut produced = Vec::new();
                    while !stop.load(Ordering::Relaxed) && produced.len() < 2500 {
                        let tick = produced.len() as u64 * u64::from(SPAN);
                        push(&mut link, tick);
                        produced.push((link.number(), tick));
                    }
                    produced
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30));
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    let manifest = recording.finish().unwrap();
    drop(recording);
    rig.check(&produced, &manifest);
}
