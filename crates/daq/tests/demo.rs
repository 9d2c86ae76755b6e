//! Short demos against the real store: every fragment is accounted for, nothing stays behind.

use forebay_daq::demo::{DemoConfig, Profile, Progress, Summary, run};
use forebay_daq::frames::FrameKind;
use forebay_daq::{emulator, frames};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn small() -> DemoConfig {
    DemoConfig {
        seconds: 0.5,
        sources: 12,
        readout_threads: 2,
        filter_threads: 2,
        hot_bytes: 64 << 20,
        ..DemoConfig::default()
    }
}

fn completed(config: &DemoConfig) -> Summary {
    let summary = run(config, &AtomicBool::new(false), &mut |_| ()).expect("the demo runs");
    assert!(summary.balanced, "{}", summary.text());
    let events = &summary.events;
    assert!(events.produced > 0);
    assert_eq!(events.accepted + events.rejected, events.produced);
    assert_eq!(summary.ledger.stored.fragments, events.produced * u64::from(config.sources));
    assert_eq!(summary.ledger.stored.bytes, events.produced * summary.event_bytes);
    assert!(config.dir.is_some() || !Path::new(&summary.directory).exists(), "{} is left", summary.directory);
    summary
}

/// A directory of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("forebay-daq-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
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
fn a_short_demo_balances() {
    let summary = completed(&small());
    assert_eq!((summary.frames, summary.fragment_bytes), (FrameKind::WibEth, 7200));
    for latency in &summary.latencies {
        assert!(latency.p50_us <= latency.p99_us && latency.p999_us <= latency.max_us * 1.01, "{latency:?}");
    }
    assert_eq!(summary.latencies[0].count, summary.ledger.stored.fragments);
    let text = summary.text();
    for word in ["readout", "selection", "get_any", "event read", "verdict", "dead time", "released", "balanced:"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn everything_or_nothing_may_be_accepted() {
    let all = completed(&DemoConfig { accept: 1.0, seconds: 0.2, ..small() });
    assert_eq!((all.events.rejected, all.ledger.released.events), (0, all.events.produced));
    let nothing = completed(&DemoConfig { accept: 0.0, seconds: 0.2, ..small() });
    assert_eq!((nothing.events.accepted, nothing.ledger.rejected.events), (0, nothing.events.produced));
}

#[test]
fn the_accepted_part_is_near_what_was_asked() {
    let events = completed(&DemoConfig { accept: 0.3, sources: 2, fragment_bytes: 512, ..small() }).events;
    let part = events.accepted as f64 / events.produced as f64;
    // Five standard deviations of a binomial.
    let slack = 5.0 * (0.3 * 0.7 / events.produced as f64).sqrt();
    assert!((part - 0.3).abs() < slack, "{part} of {}", events.produced);
}

#[test]
fn recorded_frames_are_replayed() {
    let scratch = Scratch::new();
    let file = scratch.0.join("frames.bin");
    let mut recorded = vec![0; 37 * FrameKind::WibEth.frame_bytes()];
    emulator::frames(11).fill(0, 5, &mut recorded);
    std::fs::write(&file, &recorded).unwrap();
    assert_eq!(frames::detect(&recorded).unwrap().frames, 37);
    let summary = completed(&DemoConfig { input: Some(file.clone()), fragment_bytes: 10 << 10, ..small() });
    assert_eq!((summary.frames, summary.fragment_bytes), (FrameKind::WibEth, 10 << 10));
    assert!(summary.text().contains("frames.bin"));
    std::fs::write(&file, &recorded[..7200 * 37 - 1]).unwrap();
    let config = DemoConfig { input: Some(file), ..small() };
    let error = run(&config, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(error.message().contains("frame 36 at byte offset 259200"), "{error}");
}

#[test]
fn a_rate_is_kept() {
    let summary = completed(&DemoConfig { events_per_second: 200, seconds: 1.0, ..small() });
    // A busy machine may lose triggers, never add any.
    let due = summary.events.produced + summary.lost_triggers;
    assert!(summary.events.produced <= 205, "{}", summary.events.produced);
    assert!((150..=220).contains(&due) || summary.taking_s > 1.1, "{due} in {} s", summary.taking_s);
}

#[test]
fn stop_ends_it_with_an_account_and_without_remains() {
    let stop = AtomicBool::new(false);
    let mut reports = 0;
    let mut progress = |progress: &Progress| {
        reports += 1;
        assert!(!progress.line().is_empty());
        stop.store(true, Ordering::Relaxed);
    };
    let summary = run(&DemoConfig { seconds: 600.0, ..small() }, &stop, &mut progress).unwrap();
    assert!(summary.interrupted && summary.balanced, "{}", summary.text());
    assert!(reports > 0 && summary.taking_s < 300.0);
    assert!(!Path::new(&summary.directory).exists());
}

#[test]
fn a_given_directory_keeps_its_store() {
    let scratch = Scratch::new();
    let config = DemoConfig { dir: Some(scratch.0.join("store")), seconds: 0.2, ..small() };
    let summary = completed(&config);
    assert!(Path::new(&summary.directory).join("keyspace.toml").is_file());
    let size = |summary: &Summary| std::fs::metadata(Path::new(&summary.directory).join("hot.fb")).unwrap().len();
    let before = size(&summary);
    run(&config, &AtomicBool::new(false), &mut |_| ()).expect_err("a store is there already");
    assert_eq!(size(&summary), before);
}

#[test]
fn a_slow_selection_inhibits_and_loses_nothing() {
    // Everything is read whole by one filter while two threads produce into a small level.
    let config = DemoConfig { accept: 1.0, fast_fraction: 1.0, filter_threads: 1, hot_bytes: 16 << 20, ..small() };
    completed(&config);
}

#[test]
fn a_profile_runs() {
    let mut config = DemoConfig::for_profile(Profile::Atlas);
    (config.seconds, config.hot_bytes) = (0.5, 128 << 20);
    let summary = completed(&config);
    assert_eq!((summary.profile, summary.event_bytes), (Some("atlas"), 5_120_000));
}
