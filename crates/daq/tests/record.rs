//! Recording emulated and real frames, and playing them back.

use forebay_daq::Summary as _;
use forebay_daq::frames::FrameKind;
use forebay_daq::record::{PlayChoices, PlayWindow, RecordChoices, RecordDir, RecordSummary, Retroactive, play, run};
use forebay_recorder::GapReason;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-daq-record-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn dirs(&self, count: u32, bytes: Option<u64>) -> Vec<RecordDir> {
        (0..count).map(|at| RecordDir { path: self.0.join(at.to_string()), bytes }).collect()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn real_frames() -> PathBuf {
    let folder = std::env::var_os("FOREBAY_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = folder.join("protodune-wib1-frames.bin");
    assert!(path.is_file(), "this test needs {}; set FOREBAY_DATA to its folder", path.display());
    path
}

fn record(choices: &RecordChoices) -> RecordSummary {
    run(choices, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn paths(choices: &RecordChoices) -> PlayChoices {
    PlayChoices {
        dirs: choices.dirs.iter().map(|dir| dir.path.clone()).collect(),
        links: None,
        window: PlayWindow::Ticks(0, u64::MAX),
        verify: true,
        accept_loss: false,
    }
}

#[test]
fn links_at_their_rate_are_accounted_for_to_the_frame() {
    let temp = TempDir::new();
    let choices = RecordChoices { dirs: temp.dirs(1, None), seconds: 0.4, ..RecordChoices::default() };
    let mut reports = 0;
    let summary = run(&choices, &AtomicBool::new(false), &mut |_| reports += 1).unwrap();
    let manifest = &summary.manifest;
    // 0.4 s of 30.518 kHz, no matter how much this machine could take of it.
    assert!(manifest.links.iter().all(|link| link.produced == 12_208), "{:?}", manifest.totals);
    assert!(summary.seconds >= 0.4 && manifest.totals.recorded > 0);
    let played = play(&paths(&choices), &AtomicBool::new(false), None, &mut |_| {}).unwrap();
    assert!(played.problems().is_empty(), "{played:?}");
    assert_eq!((played.frames, played.bytes), (manifest.totals.recorded, manifest.totals.recorded_bytes));
}

#[test]
fn real_frames_as_fast_as_the_device_goes_come_back_as_they_were() {
    let temp = TempDir::new();
    let choices = RecordChoices {
        dirs: temp.dirs(2, Some(64 << 20)),
        input: Some(real_frames()),
        fast: true,
        links: 2,
        seconds: 0.15,
        ..RecordChoices::default()
    };
    let summary = record(&choices);
    assert!(matches!(summary.ended, None | Some(GapReason::DiskFull)), "{:?}", summary.ended);
    assert_eq!(summary.manifest.links[0].config.ticks_per_frame, 300);
    assert!(summary.manifest.totals.recorded > 1000, "{:?}", summary.manifest.totals);
    let mut bytes = Vec::new();
    let choices = PlayChoices { links: Some(vec![1]), ..paths(&choices) };
    let played = play(&choices, &AtomicBool::new(false), Some(&mut bytes), &mut |_| {}).unwrap();
    assert!(played.problems().is_empty(), "{played:?}");
    // Only timestamps were rewritten: the samples are those of the file, turned by the link's shift.
    let file = std::fs::read(real_frames()).unwrap();
    let count = file.len() / 464;
    for (at, frame) in bytes.chunks_exact(464).enumerate() {
        let original = &file[(at + 17) % count * 464..][..464];
        assert_eq!(frame[16..], original[16..], "frame {at}");
    }
    assert_eq!(bytes.len() as u64, played.bytes);
    let recording = forebay_daq::frames::detect(&bytes).unwrap();
    assert_eq!((recording.kind, recording.first_timestamp), (FrameKind::Wib1, 79_554_162_068_719_943));
}

#[test]
fn a_full_directory_ends_what_goes_as_fast_as_it_can() {
    let temp = TempDir::new();
    let choices = RecordChoices {
        dirs: temp.dirs(1, Some(8 << 20)),
        fast: true,
        seconds: 60.0,
        format: FrameKind::Wib1,
        ..RecordChoices::default()
    };
    let summary = record(&choices);
    assert_eq!(summary.ended, Some(GapReason::DiskFull));
    assert!(summary.seconds < 30.0 && !summary.manifest.is_complete());
    let filled = summary.manifest.totals.recorded_bytes as f64 / f64::from(8 << 20);
    assert!(filled > 0.75, "{filled} of the directory holds frames");
    assert!(play(&paths(&choices), &AtomicBool::new(false), None, &mut |_| {}).unwrap().problems().is_empty());
}

#[test]
fn a_full_directory_does_not_hold_links_at_their_rate_up() {
    let temp = TempDir::new();
    let choices =
        RecordChoices { dirs: temp.dirs(1, Some(8 << 20)), seconds: 0.3, links: 1, ..RecordChoices::default() };
    let summary = record(&choices);
    let link = &summary.manifest.links[0];
    assert_eq!((summary.ended, link.produced), (None, 9156));
    assert!(link.missed_by[&GapReason::DiskFull] > 5000, "{:?}", link.missed_by);
    // The last gap reaches to the last tick that the link produced.
    assert_eq!(link.gaps.last().unwrap().end, link.eras[0].end);
    assert_eq!(link.eras[0].end - link.eras[0].begin, 9156 * 2048);
    assert!(play(&paths(&choices), &AtomicBool::new(false), None, &mut |_| {}).unwrap().problems().is_empty());
}

#[test]
fn stopping_ends_with_a_manifest_and_windows_play_back() {
    let temp = TempDir::new();
    let choices = RecordChoices { dirs: temp.dirs(1, Some(2 << 30)), seconds: 600.0, ..RecordChoices::default() };
    let stop = AtomicBool::new(false);
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(400));
            stop.store(true, Ordering::Relaxed);
        });
        run(&choices, &stop, &mut |_| {}).unwrap()
    });
    assert!(summary.stopped && summary.seconds < 60.0);
    let whole = paths(&choices);
    let last = PlayChoices { window: PlayWindow::Last(Duration::from_millis(50)), ..whole.clone() };
    let played = play(&last, &AtomicBool::new(false), None, &mut |_| {}).unwrap();
    assert!(played.problems().is_empty());
    for (link, recorded) in played.links.iter().zip(&summary.manifest.links) {
        assert_eq!(link.end - link.begin, 3_125_000);
        let missing: u64 = link.gaps.iter().map(|gap| gap.end.min(link.end) - gap.begin.max(link.begin)).sum();
        // A busy machine has recorded less than the window before it is stopped.
        let ticks = link.end - link.begin.max(recorded.eras[0].begin) - missing;
        assert!(link.frames.abs_diff(ticks.div_ceil(2048)) <= 1, "{link:?}");
    }
    let wrong = PlayChoices { links: Some(vec![7]), ..whole };
    assert!(play(&wrong, &AtomicBool::new(false), None, &mut |_| {}).is_err());
}

/// A window of 400 ms around a trigger, at a twentieth of the links' rate.
fn retroactive(dirs: Vec<RecordDir>, ring: PathBuf, after: Option<Duration>) -> RecordChoices {
    let half = Duration::from_millis(200);
    let window = Retroactive { last: half, next: half, after, ring: Some(ring) };
    RecordChoices { dirs, rate_scale: 0.05, retroactive: Some(window), ..RecordChoices::default() }
}

#[test]
fn the_last_and_the_next_are_accounted_for_to_the_frame() {
    let temp = TempDir::new();
    let choices = retroactive(temp.dirs(1, None), temp.0.join("ring"), None);
    let summary = record(&choices);
    let retro = summary.retroactive.as_ref().unwrap();
    // 0.4 s of 62.5 MHz / 20, the half of them before the trigger.
    assert_eq!((retro.trigger_tick - retro.begin, retro.end - retro.trigger_tick), (625_000, 625_000));
    assert_eq!((summary.manifest.totals.missed, retro.refused), (0, 0), "{:?}", summary.manifest.links);
    for link in &summary.manifest.links {
        let era = link.eras[0];
        assert!(link.eras.len() == 1 && era.begin <= retro.begin && era.end >= retro.end, "{era:?} in {retro:?}");
        // Where the machine stopped the links lost frames before the ring, and that is a gap.
        let absent: u64 = link.gaps.iter().map(|gap| gap.frames).sum();
        // A gap is a stretch of ticks: at its ends a frame may be half in it.
        let wanted = (era.end - era.begin) / 2048;
        assert!(
            (link.recorded + absent).abs_diff(wanted) <= link.gaps.len() as u64,
            "{} and {absent} of {wanted}",
            link.recorded
        );
        assert!(retro.not_taken > 0 || absent == 0, "{:?}", link.gaps);
    }
    let played = play(&paths(&choices), &AtomicBool::new(false), None, &mut |_| {}).unwrap();
    assert!(played.problems().is_empty() && played.frames == summary.manifest.totals.recorded, "{played:?}");
}

#[test]
fn a_trigger_before_the_ring_has_filled_says_what_was_before_it() {
    let temp = TempDir::new();
    let choices = retroactive(temp.dirs(2, None), temp.0.join("ring"), Some(Duration::from_millis(80)));
    let summary = record(&choices);
    let retro = summary.retroactive.as_ref().unwrap();
    for link in &summary.manifest.links {
        let first = &link.gaps[0];
        assert_eq!((first.begin, first.reason), (retro.begin, GapReason::RingBefore));
        assert!(link.recorded > 0 && first.frames > 50, "{link:?}");
    }
    assert!(summary.manifest.is_complete(), "what never came to the ring is not missed: {:?}", summary.manifest.totals);
    assert!(play(&paths(&choices), &AtomicBool::new(false), None, &mut |_| {}).unwrap().problems().is_empty());
}

#[test]
fn links_that_the_devices_cannot_follow_are_refused_before_the_first_frame() {
    let temp = TempDir::new();
    let small = retroactive(temp.dirs(1, Some(16 << 20)), temp.0.join("ring"), None);
    let mut choices = RecordChoices { rate_scale: 200.0, ..small.clone() };
    if let Some(window) = &mut choices.retroactive {
        (window.last, window.next) = (Duration::from_millis(1), Duration::ZERO);
    }
    choices.dirs[0].bytes = Some(256 << 20);
    let error = run(&choices, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.message().contains("2 links send 87890625000 bytes per second: the devices take"), "{error}");
    let left: Vec<String> = std::fs::read_dir(&choices.dirs[0].path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left, ["device.lock"]);
    let choices = RecordChoices { rate_scale: 0.2, ..small };
    let error = run(&choices, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.message().contains("are 35156250 bytes: the directories have room for"), "{error}");
}
