//! What is recorded is read back, over containers, devices, eras and restarts.

use super::{SPAN, TempDir, config, link_config, paths, payload, push, read_all, record, settle};
use forebay_core::Kind;
use forebay_media::warm::{Device, DirectoryDevice, IoMethod};
use forebay_recorder::{GapReason, Recording, RecordingConfig, WarmDir};
use forebay_testkit::media::ShiftingDevice;
use std::sync::Arc;

#[test]
fn frames_come_back_in_order_from_all_devices() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 2, 8 << 20);
    let recording = Recording::create(&dirs, config()).unwrap();
    let (produced, manifest) = record(&recording, 3, 3000);
    assert!(manifest.is_complete(), "{:?}", manifest.totals);
    assert!(manifest.devices.iter().all(|device| device.recorded > 0 && device.failure.is_none()));
    drop(recording);
    let playback = Recording::open(&paths(&dirs), false).unwrap();
    assert_eq!(playback.manifest(), &manifest);
    settle(&manifest, &produced, &read_all(&playback));
    assert_eq!(playback.ticks(&[0, 1, 2]).unwrap(), Some((5000, 5000 + 3000 * u64::from(SPAN))));
    // In time order, link after link.
    let frames: Vec<(u32, u64)> =
        playback.window(0, u64::MAX, &[2, 0]).unwrap().map(|frame| frame.map(|f| (f.link, f.tick)).unwrap()).collect();
    assert_eq!(frames.len(), 6000);
    assert!(frames[..3000].is_sorted() && frames[..3000].iter().all(|frame| frame.0 == 2) && frames[3000].0 == 0);
    assert_eq!(playback.link_of(&[9, 1]), Some(1));
    assert_eq!(playback.link_of(&[9]), None);
}

#[test]
fn a_window_gives_what_overlaps_it() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 1, 8 << 20);
    let recording = Recording::create(&dirs, config()).unwrap();
    record(&recording, 2, 2000);
    drop(recording);
    let playback = Recording::open(&paths(&dirs), false).unwrap();
    let ticks = |begin, end| -> Vec<u64> {
        playback.window(begin, end, &[1]).unwrap().map(|frame| frame.unwrap().tick).collect()
    };
    assert!(ticks(0, 5000).is_empty());
    assert_eq!(ticks(0, 5001), [5000]);
    assert_eq!(ticks(100_099, 100_201), [100_000, 100_100, 100_200]);
    assert_eq!(ticks(100_100, 100_200), [100_100]);
    assert!(ticks(100_150, 100_150).is_empty());
    assert!(ticks(205_000, u64::MAX).is_empty());
    assert_eq!(playback.window(5, 4, &[0]).err().unwrap().kind(), Kind::Invalid);
    assert_eq!(playback.window(0, 1, &[2]).err().unwrap().kind(), Kind::Invalid);
}

#[test]
fn gaps_are_those_that_were_made() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 1, 8 << 20);
    let recording = Recording::create(&dirs, config()).unwrap();
    let mut link = recording.link(link_config(0)).unwrap();
    let span = u64::from(SPAN);
    for at in 0..500 {
        match at {
            // The link is silent, its reader is late, then both in a row.
            100..120 => {}
            200..230 => link.missed(at * span, (at + 1) * span, 1, GapReason::NotTaken).unwrap(),
            300..310 => {}
            310..315 => link.missed(at * span, (at + 1) * span, 1, GapReason::NotTaken).unwrap(),
            _ => assert!(push(&mut link, at * span)),
        }
    }
    // The clock steps back.
    (0..50).for_each(|at| assert!(push(&mut link, 1000 + at * span)));
    drop(link);
    let manifest = recording.finish().unwrap();
    drop(recording);
    let told: Vec<_> = manifest.links[0].gaps.iter().map(|gap| (gap.begin / span, gap.frames, gap.reason)).collect();
    let (silent, late) = (GapReason::NotProduced, GapReason::NotTaken);
    assert_eq!(told, [(100, 20, silent), (200, 30, late), (300, 10, silent), (310, 5, late)]);
    let playback = Recording::open(&paths(&dirs), false).unwrap();
    assert_eq!(playback.continuity().gaps, 3, "neighbours are one stretch of ticks");
    let mut frames = 0;
    for frame in playback.window(0, u64::MAX, &[0]).unwrap() {
        let frame = frame.unwrap();
        assert_eq!(frame.bytes(), payload(0, frame.tick));
        assert_eq!(frame.era, u32::from(frames >= 435));
        frames += 1;
    }
    assert_eq!(frames, 485);
    assert!(playback.continuity().holds());

    // Without the manifest the frames after the gaps tell the same, as far as they can.
    drop(playback);
    for dir in &dirs {
        std::fs::remove_file(dir.path.join("manifest.json")).unwrap();
    }
    let playback = Recording::open(&paths(&dirs), false).unwrap();
    let rebuilt = playback.manifest();
    assert!(rebuilt.rebuilt && !rebuilt.is_complete() && playback.continuity().holds());
    rebuilt.check().unwrap();
    assert_eq!(rebuilt.links[0].eras, manifest.links[0].eras);
    let told: Vec<_> = rebuilt.links[0].gaps.iter().map(|gap| (gap.begin / span, gap.frames, gap.reason)).collect();
    assert_eq!(told, [(100, 20, silent), (200, 30, late), (300, 15, GapReason::Unknown)]);
    assert_eq!(rebuilt.links[0].unknown_from, Some(1000 + 50 * span));
}

#[test]
fn all_bytes_go_through_the_seam() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 1, 4 << 20);
    std::fs::create_dir_all(&dirs[0].path).unwrap();
    let device = || -> Vec<Arc<dyn Device>> {
        let inner = Arc::new(DirectoryDevice::open(&dirs[0].path, IoMethod::Auto, true).unwrap());
        vec![ShiftingDevice::new(inner, 7) as Arc<dyn Device>]
    };
    let recording = Recording::create_on(device(), &dirs, config()).unwrap();
    let (produced, manifest) = record(&recording, 2, 500);
    drop(recording);
    let playback = Recording::open_on(device(), &paths(&dirs), false).unwrap();
    settle(&manifest, &produced, &read_all(&playback));
}

#[test]
fn directories_that_cannot_be_are_refused() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 1, 4 << 20);
    let refused = |dirs: &[WarmDir], config: RecordingConfig, kind: Kind, expected: &str| {
        let error = Recording::create(dirs, config).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(expected), "{error}");
    };
    refused(&[], config(), Kind::Invalid, "at least one");
    refused(&super::dirs(&temp, 1, 100 << 10), config(), Kind::Invalid, "containers");
    let error = Recording::open(&paths(&dirs), false).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.message().contains("no recording there"), "{error}");
    // What a refused creation left is not in the way.
    let recording = Recording::create(&dirs, config()).unwrap();
    refused(&dirs, config(), Kind::Unavailable, "in use");
    let (_, manifest) = record(&recording, 1, 10);
    drop(recording);
    refused(&dirs, config(), Kind::Invalid, "holds a recording already");
    assert_eq!(Recording::open(&paths(&dirs), false).unwrap().manifest(), &manifest);
}

#[test]
fn one_directory_of_two_is_not_a_recording() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 2, 4 << 20);
    let recording = Recording::create(&dirs, config()).unwrap();
    record(&recording, 2, 100);
    drop(recording);
    let error = Recording::open(&paths(&dirs[..1]), false).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.message().contains("2 devices, 1 are given"), "{error}");
    // In any order they are given.
    let mut turned = paths(&dirs);
    turned.reverse();
    read_all(&Recording::open(&turned, false).unwrap());
}

#[test]
fn a_changed_manifest_and_rotten_bytes_are_found() {
    let temp = TempDir::new();
    let dirs = super::dirs(&temp, 1, 4 << 20);
    let recording = Recording::create(&dirs, config()).unwrap();
    let (produced, _) = record(&recording, 1, 500);
    drop(recording);
    let manifest = dirs[0].path.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"recorded\": 500", "\"recorded\": 499")).unwrap();
    assert_eq!(Recording::open(&paths(&dirs), false).unwrap_err().kind(), Kind::Corrupt);
    std::fs::write(&manifest, text).unwrap();

    // One bit of one frame.
    let needle = payload(0, produced[200].1);
    let container = dirs[0].path.join("container-000000.fb");
    let mut bytes = std::fs::read(&container).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).expect("the frame is in the container");
    bytes[at + 1] ^= 1;
    std::fs::write(&container, bytes).unwrap();
    let playback = Recording::open(&paths(&dirs), false).unwrap();
    let frames: Vec<_> = playback.window(0, u64::MAX, &[0]).unwrap().collect();
    let wrong: Vec<_> = frames.iter().filter_map(|frame| frame.as_ref().err()).collect();
    assert_eq!((frames.len(), wrong.len()), (500, 1));
    assert_eq!(wrong[0].kind(), Kind::Corrupt);
}
