//! Short MiniDAQs against the real ring and store: every frame and every trigger record is accounted for, and what goes
//! wrong is said with the right words.

use forebay_core::GapCause;
use forebay_daq::Progress;
use forebay_daq::frames::{FrameKind, Link, wib1};
use forebay_daq::minidaq::{Faults, MiniDaqConfig, MiniDaqSummary, Pause, Reach, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Two links at a fifth of their rate: 88 MB/s, which every machine carries.
fn small() -> MiniDaqConfig {
    MiniDaqConfig {
        seconds: 0.6,
        links: 2,
        rate_scale: 0.2,
        readout_threads: 1,
        filter_threads: 1,
        triggers_per_second: 50.0,
        trigger_delay: Reach::Ticks(0),
        request_timeout: ms(1000),
        record_timeout: ms(20_000),
        busy_at: 16,
        free_below: 8,
        ..MiniDaqConfig::default()
    }
}

fn completed(config: &MiniDaqConfig) -> MiniDaqSummary {
    let summary = run(config, &AtomicBool::new(false), &mut |_| ()).expect("the MiniDAQ runs");
    assert!(summary.balanced && summary.ring.balanced, "{:?}", summary.problems);
    assert!(config.dir.is_some() || !Path::new(&summary.directory).exists(), "{} is left", summary.directory);
    summary
}

/// The same until the machine has left one alone: no frame lost at a link, and as much as the test needs. A busy machine may
/// stop threads for a second, which is loss as at a real receiver, accounted for but not what the test is about.
fn undisturbed(config: &MiniDaqConfig, enough: impl Fn(&MiniDaqSummary) -> bool) -> MiniDaqSummary {
    const TRIES: usize = 20;
    let mut last = String::new();
    for _ in 0..TRIES {
        let summary = completed(config);
        let lost: u64 = summary.links.iter().map(|link| link.lost).sum();
        if lost == 0 && summary.records.announced >= 3 && enough(&summary) {
            return summary;
        }
        last = format!("{summary:?}");
    }
    panic!("none of {TRIES} runs was undisturbed; the last one:\n{last}");
}

/// A directory of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("forebay-minidaq-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a scratch directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn two_links_balance() {
    let summary = undisturbed(&small(), |summary| summary.records.accepted > 0 && summary.records.rejected > 0);
    let (windows, records) = (&summary.windows, &summary.records);
    assert_eq!((windows.asked, summary.links.len()), (2 * records.announced, 2));
    assert_eq!((windows.complete, records.complete), (windows.asked, records.announced), "{:?}", summary.problems);
    assert_eq!((records.missing, windows.invalid, windows.unanswered), (0, 0, 0));
    // 93 frames of 7200 bytes and a header, from two links, and the record's header, at most.
    let most = 2 * (94 * 7200 + 72) + 128;
    assert!(summary.record_bytes <= most * records.announced && summary.record_bytes > 0);
    assert!(
        summary.frames_per_second.is_some_and(|rate| (rate - 6103.5).abs() < 0.1),
        "{:?}",
        summary.frames_per_second
    );
}

#[test]
fn before_the_first_frame_there_is_nothing() {
    let faults = Faults { early: true, ..Faults::default() };
    let config = MiniDaqConfig { faults, trigger_delay: Reach::Time(Duration::from_secs(10)), ..small() };
    let summary = undisturbed(&config, |_| true);
    assert_eq!((summary.windows.empty, summary.windows.gone), (summary.windows.asked, summary.windows.asked));
    assert_eq!(summary.records.incomplete, summary.records.announced);
    assert_eq!(summary.records.missing, 0, "empty fragments are fragments");
}

#[test]
fn what_comes_after_the_time_out_is_missing() {
    // 4 ms of the detector take 2 s here; requests wait for a twentieth of that.
    let config = MiniDaqConfig {
        rate_scale: 0.002,
        window_after: Reach::Time(ms(4)),
        request_timeout: ms(100),
        triggers_per_second: 10.0,
        seconds: 1.0,
        ..small()
    };
    let summary = undisturbed(&config, |_| true);
    let windows = &summary.windows;
    assert_eq!((windows.incomplete, windows.timed_out), (windows.asked, windows.asked), "{:?}", summary.problems);
    assert_eq!(summary.records.complete, 0);
}

#[test]
fn a_link_that_pauses_leaves_gaps_of_its_own() {
    let pause = Pause { link: 1, from: ms(60), length: ms(30) };
    let faults = Faults { pauses: vec![pause], ..Faults::default() };
    let config = MiniDaqConfig { faults, seconds: 1.2, history: ms(2000), ..small() };
    // A trigger whose windows reach into the pause.
    let summary = undisturbed(&config, |summary| !summary.windows.gaps.is_empty());
    let (windows, links) = (&summary.windows, &summary.links);
    // 30 ms of 32.768 µs each.
    assert_eq!((links[0].paused, links[1].paused), (0, 915), "{:?}", summary.problems);
    assert!(windows.incomplete + windows.empty > 0, "{:?}", summary.problems);
    assert!(windows.gaps.iter().any(|gap| gap.cause == GapCause::NeverArrived && gap.ticks > 0));
    let gap = summary.ring.gaps.iter().find(|gap| gap.cause == GapCause::NeverArrived).expect("the ring has it");
    assert_eq!((gap.gaps, gap.ticks), (1, links[1].paused * 2048), "{:?}", summary.problems);
    // 30 ms of the detector are 150 ms here, which requests wait for: only gaps make windows incomplete.
    assert_eq!(windows.timed_out, 0, "{:?}", summary.problems);
}

#[test]
fn evicted_data_is_gone() {
    // The ring keeps some tens of milliseconds; triggers are half a second old.
    let config = MiniDaqConfig {
        history: ms(20),
        trigger_delay: Reach::Time(ms(100)),
        window_before: Reach::Ticks(0),
        window_after: Reach::Ticks(4096),
        seconds: 1.5,
        ..small()
    };
    let summary = undisturbed(&config, |summary| summary.ring.evicted_chunks > 0);
    let windows = &summary.windows;
    assert_eq!((windows.empty, windows.gone), (windows.asked, windows.asked), "{:?}", summary.problems);
}

#[test]
fn busy_and_free_have_a_distance() {
    let config = MiniDaqConfig {
        seconds: 1.0,
        triggers_per_second: 200.0,
        filter_time: ms(30),
        busy_at: 4,
        free_below: 2,
        ..small()
    };
    let summary = undisturbed(&config, |summary| summary.dead_time.iter().any(|dead| dead.times >= 2));
    let (records, dead) = (&summary.records, &summary.dead_time);
    assert_eq!(records.in_flight_most, 4, "{:?}", summary.problems);
    let busy = dead.iter().find(|dead| dead.cause == "records in flight").expect("it was busy");
    assert!(busy.seconds > 0.0 && busy.triggers_lost > 0, "{:?}", summary.problems);
    // Between two busy times the count falls to 1 and comes back to 4: without hysteresis one record would do.
    assert!(records.announced > 3 * busy.times, "{:?}", summary.problems);
    assert_eq!(records.announced + records.lost + records.late, records.due);
}

#[test]
fn bursts_overlap() {
    let config = MiniDaqConfig { burst: 5, triggers_per_second: 10.0, window_after: Reach::Time(ms(10)), ..small() };
    // The windows of a burst end 50 ms later at the earliest: all five are open together.
    let summary = undisturbed(&config, |summary| summary.records.in_flight_most >= 5);
    let records = &summary.records;
    assert_eq!((records.due % 5, records.complete), (0, records.announced), "{:?}", summary.problems);
}

#[test]
fn a_dead_handler_makes_records_incomplete_at_their_time_out() {
    let config = MiniDaqConfig {
        faults: Faults { unanswered: vec![1], ..Faults::default() },
        request_timeout: ms(50),
        record_timeout: ms(1500),
        ..small()
    };
    // A handler that is stopped for longer than the record waits is late, which is not what is looked at here.
    let summary = undisturbed(&config, |summary| summary.windows.late == 0);
    let (records, windows) = (&summary.records, &summary.windows);
    assert_eq!((windows.unanswered, records.short), (records.announced, records.announced), "{:?}", summary.problems);
    assert_eq!((records.missing, records.incomplete), (records.announced, records.announced));
    assert_eq!(summary.ledger.superseded.fragments, records.announced, "each header was marked");
}

/// WIB1 frames of one link, 25 ticks apart.
fn wib1_file(path: &Path, frames: usize) {
    let link = Link { detector: 0, crate_number: 4, slot: 4, stream: 1 };
    let mut bytes = vec![0; frames * wib1::FRAME_BYTES];
    for (at, frame) in bytes.chunks_exact_mut(wib1::FRAME_BYTES).enumerate() {
        wib1::set_header(frame, 1, link, 79_554_162_068_719_943 + at as u64 * wib1::TICKS);
        let values = std::array::from_fn(|channel| (at * 31 + channel * 7) as u16 & wib1::ADC_MAX);
        assert!(wib1::pack(frame, &values));
    }
    std::fs::write(path, bytes).expect("the file is written");
}

fn replayed(input: PathBuf) {
    let config = MiniDaqConfig { input: Some(input), links: 1, rate_scale: 0.05, ..small() };
    let summary = undisturbed(&config, |_| true);
    assert_eq!(summary.frames, FrameKind::Wib1);
    assert_eq!(summary.frames_per_second, Some(100_000.0));
    let (link, windows) = (&summary.links[0], &summary.windows);
    assert!(link.frames > 12 && link.frames.is_multiple_of(12) && link.bytes == link.frames * 464);
    assert_eq!(windows.complete, windows.asked, "{:?}", summary.problems);
}

#[test]
fn recorded_frames_are_replayed_with_timestamps_going_on() {
    let scratch = Scratch::new();
    let file = scratch.0.join("frames.bin");
    // No multiple of a superchunk: turns of the file end anywhere in one.
    wib1_file(&file, 37);
    replayed(file.clone());
    std::fs::write(&file, [0x5A; 1000]).expect("the file is written");
    let config = MiniDaqConfig { input: Some(file), ..small() };
    let error = run(&config, &AtomicBool::new(false), &mut |_| ()).expect_err("no recording");
    assert!(error.message().contains("frames.bin"), "{error}");
}

#[test]
fn real_frames_are_replayed() {
    let folder = std::env::var_os("FOREBAY_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let file = folder.join("protodune-wib1-frames.bin");
    assert!(file.is_file(), "this test needs {}; set FOREBAY_DATA to its folder", file.display());
    replayed(file);
}

#[test]
fn without_a_rate_it_goes_as_fast_as_it_can() {
    let summary = completed(&MiniDaqConfig { rate_scale: 0.0, ..small() });
    assert_eq!(summary.frames_per_second, None);
    let frames: Vec<u64> = summary.links.iter().map(|link| link.frames).collect();
    assert_eq!(frames[0], frames[1]);
    assert!(summary.links.iter().all(|link| link.lost == 0));
}

#[test]
fn stop_ends_it_with_an_account_and_without_remains() {
    let stop = AtomicBool::new(false);
    let mut reports = 0;
    let mut progress = |progress: &Progress| {
        reports += 1;
        assert_eq!(progress.figures[0].0, "ring", "{progress:?}");
        stop.store(true, Ordering::Relaxed);
    };
    let summary = run(&MiniDaqConfig { seconds: 600.0, ..small() }, &stop, &mut progress).expect("it ends");
    assert!(summary.interrupted && summary.balanced, "{:?}", summary.problems);
    assert!(reports > 0 && summary.taking_s < 300.0);
    assert!(!Path::new(&summary.directory).exists());
}

#[test]
fn a_given_directory_keeps_ring_and_store() {
    let scratch = Scratch::new();
    let config = MiniDaqConfig { dir: Some(scratch.0.join("daq")), seconds: 0.3, ..small() };
    let summary = completed(&config);
    for name in ["keyspace.toml", "hot.fb", "ring/ring.toml", "ring/ring.fb"] {
        assert!(Path::new(&summary.directory).join(name).is_file(), "{name}");
    }
    run(&config, &AtomicBool::new(false), &mut |_| ()).expect_err("both are there already");
}
