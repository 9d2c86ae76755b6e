//! Recordings: what goes in comes out, what does not is said, tick by tick.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod faults;
mod full_disk;
mod kill;
mod round_trip;

use forebay_recorder::{GapManifest, LinkConfig, Playback, Pushed, Recording, RecordingConfig, RecordingLink, WarmDir};
use forebay_testkit::TempDir;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Ticks of one frame.
pub(crate) const SPAN: u32 = 100;
/// Bytes of the containers of these tests.
pub(crate) const CONTAINER: u64 = 256 << 10;

/// Devices to be in a directory, each with this number of bytes.
pub(crate) fn dirs(temp: &TempDir, count: usize, bytes: u64) -> Vec<WarmDir> {
    (0..count).map(|at| WarmDir { path: temp.path().join(format!("device-{at}")), bytes }).collect()
}

pub(crate) fn paths(dirs: &[WarmDir]) -> Vec<PathBuf> {
    dirs.iter().map(|dir| dir.path.clone()).collect()
}

/// Small containers and extents, patient pushes.
pub(crate) fn config() -> RecordingConfig {
    RecordingConfig {
        name: "test".to_owned(),
        run: 7,
        container_bytes: CONTAINER,
        extent_bytes: 32 << 10,
        io_bytes: 16 << 10,
        commit_bytes: 128 << 10,
        push_deadline: Duration::from_secs(20),
        ..RecordingConfig::default()
    }
}

pub(crate) fn link_config(link: u8) -> LinkConfig {
    LinkConfig {
        source: vec![9, link],
        name: format!("link {link}"),
        format: "test".to_owned(),
        ticks_per_frame: SPAN,
        ticks_per_second: 1_000_000,
        device: None,
    }
}

/// The bytes of a frame: a function of link and tick, of a length that is one as well.
pub(crate) fn payload(link: u32, tick: u64) -> Vec<u8> {
    let mut state = tick ^ u64::from(link).rotate_left(40) ^ 0x9E37_79B9_7F4A_7C15;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
    };
    let length = next() as usize % 1500;
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

/// Pushes a frame and answers whether it was taken.
pub(crate) fn push(link: &mut RecordingLink, tick: u64) -> bool {
    let pushed = link.push(tick, SPAN, &payload(link.number(), tick)).unwrap();
    pushed == Pushed::Written
}

/// All frames of a recording by link and tick, each compared with what it must be, and the manifest compared with them.
#[track_caller]
pub(crate) fn read_all(playback: &Playback) -> BTreeMap<(u32, u64), u32> {
    let links: Vec<u32> = (0..playback.manifest().links.len() as u32).collect();
    let mut frames = BTreeMap::new();
    for frame in playback.window(0, u64::MAX, &links).unwrap() {
        let frame = frame.unwrap();
        assert_eq!(frame.bytes(), payload(frame.link, frame.tick), "{frame:?}");
        frames.insert((frame.link, frame.tick), frame.era);
    }
    let continuity = playback.continuity();
    assert!(continuity.holds(), "{continuity:?}");
    playback.manifest().check().unwrap();
    assert_eq!(playback.manifest().totals.recorded, frames.len() as u64);
    frames
}

/// Every frame that was produced is there, or the manifest says that it is missed; none is both.
#[track_caller]
pub(crate) fn settle(manifest: &GapManifest, produced: &[(u32, u64)], found: &BTreeMap<(u32, u64), u32>) {
    for &(link, tick) in produced {
        let gaps = &manifest.links[link as usize].gaps;
        let missed = gaps.iter().any(|gap| (gap.begin..gap.end).contains(&tick) && gap.reason.is_missed());
        assert_ne!(missed, found.contains_key(&(link, tick)), "link {link} tick {tick}");
    }
    assert_eq!(manifest.totals.produced, produced.len() as u64);
    assert_eq!(manifest.totals.recorded, found.len() as u64);
}

/// A recording of this many frames per link: what was produced, and its manifest.
pub(crate) fn record(recording: &Recording, links: u8, frames: u64) -> (Vec<(u32, u64)>, GapManifest) {
    let mut produced = Vec::new();
    let mut links = recording.links((0..links).map(link_config).collect()).unwrap();
    for tick in (0..frames).map(|at| 5000 + at * u64::from(SPAN)) {
        for link in &mut links {
            push(link, tick);
            produced.push((link.number(), tick));
        }
    }
    drop(links);
    let manifest = recording.finish().unwrap();
    manifest.check().unwrap();
    (produced, manifest)
}
