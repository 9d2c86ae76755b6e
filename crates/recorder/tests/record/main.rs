//! Recordings: what goes in comes out, what does not is said, tick by tick.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod faults;
mod full_disk;
mod kill;
mod round_trip;

use forebay_recorder::{GapManifest, LinkPlan, Playback, Pushed, RecordConfig, RecordLink, Recording, WarmDir};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Ticks of one frame.
pub(crate) const SPAN: u32 = 100;
/// Bytes of the containers of these tests.
pub(crate) const CONTAINER: u64 = 256 << 10;

/// A new directory under the system's temporary one, removed with everything in it on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-recording-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Devices to be, each with so many bytes.
    pub(crate) fn dirs(&self, count: usize, bytes: u64) -> Vec<WarmDir> {
        (0..count).map(|at| WarmDir { path: self.0.join(format!("device-{at}")), bytes }).collect()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn paths(dirs: &[WarmDir]) -> Vec<PathBuf> {
    dirs.iter().map(|dir| dir.path.clone()).collect()
}

/// Small containers and extents, patient pushes.
pub(crate) fn config() -> RecordConfig {
    RecordConfig {
        name: "test".to_owned(),
        run: 7,
        container_bytes: CONTAINER,
        extent_bytes: 32 << 10,
        io_bytes: 16 << 10,
        commit_bytes: 128 << 10,
        push_deadline: Duration::from_secs(20),
        ..RecordConfig::default()
    }
}

pub(crate) fn plan(link: u8) -> LinkPlan {
    LinkPlan {
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
pub(crate) fn push(link: &mut RecordLink, tick: u64) -> bool {
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

/// A recording of so many frames per link: what was produced, and its manifest.
pub(crate) fn record(recording: &Recording, links: u8, frames: u64) -> (Vec<(u32, u64)>, GapManifest) {
    let mut produced = Vec::new();
    let mut links = recording.links((0..links).map(plan).collect()).unwrap();
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
