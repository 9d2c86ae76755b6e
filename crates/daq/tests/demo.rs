//! Short demos against the real store: every fragment is accounted for, nothing stays behind.

use forebay_daq::Progress;
use forebay_daq::demo::{DemoConfig, Duty, Profile, Summary, run};
use forebay_daq::frames::FrameKind;
use forebay_daq::{emulator, frames};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn small() -> DemoConfig {
    DemoConfig {
        seconds: 0.5,
        sources: 12,
        readout_threads: 2,
        filter_threads: 2,
        hot_bytes: 64 << 20,
        warm_bytes: 32 << 20,
        ..DemoConfig::default()
    }
}

/// At a rate that leaves room for every result, also on a busy machine.
fn unhurried() -> DemoConfig {
    DemoConfig { seconds: 2.0, events_per_second: 400, accept: 0.5, ..small() }
}

fn completed(config: &DemoConfig) -> Summary {
    let summary = run(config, &AtomicBool::new(false), &mut |_| ()).expect("the demo runs");
    assert!(summary.balanced, "{:?}", summary.problems);
    let events = &summary.events;
    assert!(events.produced > 0);
    assert_eq!(events.accepted + events.rejected, events.produced);
    // Each accepted event has a result of eight bytes beside its fragments, if there was room for it.
    let results = events.accepted - summary.results_left_out;
    assert_eq!(summary.ledger.stored.fragments, events.produced * u64::from(config.sources) + results);
    assert_eq!(summary.ledger.stored.bytes, events.produced * summary.event_bytes + 8 * results);
    assert_eq!((summary.ledger.complete, summary.ledger.announced()), (events.produced, events.produced));
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
    let summary = completed(&unhurried());
    assert_eq!((summary.frames, summary.fragment_bytes), (FrameKind::WibEth, 7200));
    for latency in &summary.latencies {
        assert!(latency.p50_us <= latency.p99_us && latency.p999_us <= latency.max_us * 1.01, "{latency:?}");
    }
    assert_eq!(summary.results_left_out, 0);
    assert_eq!(summary.latencies[0].count + summary.events.accepted, summary.ledger.stored.fragments);
    let [fast, last] = &summary.stages[..] else { panic!("{:?}", summary.stages) };
    assert_eq!((fast.events, fast.fragments), (summary.events.produced, 2 * summary.events.produced));
    assert_eq!((fast.passed, last.events, last.rejected), (last.accepted, last.accepted, 0));
    let [physics, calib] = &summary.streams[..] else { panic!("{:?}", summary.streams) };
    assert_eq!((physics.events, physics.fragments), (last.accepted, 13 * last.accepted));
    assert_eq!((calib.fragments, calib.bytes), (4 * calib.events, calib.events * (3 * 7200 + 8)));
    assert!(calib.events < physics.events, "{calib:?}");
    assert!(summary.producers.iter().all(|producer| producer.finished), "{:?}", summary.producers);
}

#[test]
fn accepted_events_go_down_and_are_released_from_there() {
    let summary = completed(&unhurried());
    let warm = summary.warm.as_ref().expect("a warm level");
    assert_eq!(warm.notes, Vec::<String>::new());
    // All that was accepted long enough before the end.
    assert!(warm.demoted_events > summary.events.accepted / 2, "{warm:?}");
    assert!(warm.demoted_bytes >= warm.demoted_events * summary.event_bytes, "{warm:?}");
    // A real mover: what was released is what objects hold, each of them verified twice.
    let archive = &summary.archive;
    assert!(archive.objects > 1 && archive.object_bytes > archive.contents.payload_bytes, "{archive:?}");
    assert_eq!(archive.contents.fragments, 13 * summary.events.accepted);
    assert!(warm.containers_filled > 0 && (1.0..1.1).contains(&warm.write_amplification), "{warm:?}");
    assert_eq!(summary.ledger.released.events, summary.events.accepted);
    assert_eq!(warm.devices.len(), 1, "{warm:?}");
}

#[test]
fn a_store_of_one_level_balances_as_well() {
    let summary = completed(&DemoConfig { warm_bytes: 0, ..unhurried() });
    assert_eq!(summary.warm, None);
    assert_eq!(summary.archive.contents.events, summary.events.accepted);
}

#[test]
fn a_hot_level_that_is_too_small_for_the_backlog_gets_room_below() {
    // One beam leaves more undecided than the hot level holds: it goes down, and comes up again to be decided.
    let duty = Some(Duty { share: 0.5, period_s: 4.0 });
    let config = DemoConfig {
        duty,
        events_per_second: 800,
        farm_events_per_second: 460.0,
        seconds: 4.0,
        hot_bytes: 16 << 20,
        warm_bytes: 256 << 20,
        sources: 4,
        fragment_bytes: 12 << 10,
        accept: 0.05,
        ..small()
    };
    let alone = run(&DemoConfig { warm_bytes: 0, ..config.clone() }, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(alone.dead_time_s > 0.0 && !alone.balanced, "up to 33 MB of backlog do not fit: {alone:?}");
    let both = run(&config, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(both.ledger.imbalance(), None, "{both:?}");
    assert_eq!(both.ledger.offered, both.ledger.stored, "{both:?}");
    let warm = both.warm.as_ref().unwrap();
    assert!(warm.demoted_events > both.events.accepted, "undecided events went down as well: {warm:?}");
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
    assert!(summary.input.as_ref().is_some_and(|input| input.ends_with("frames.bin")), "{:?}", summary.input);
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
        assert!(progress.figures.iter().any(|(name, _)| *name == "fill"), "{progress:?}");
        stop.store(true, Ordering::Relaxed);
    };
    let summary = run(&DemoConfig { seconds: 600.0, ..small() }, &stop, &mut progress).unwrap();
    assert!(summary.interrupted && summary.balanced, "{:?}", summary.problems);
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

/// A beam of small events, that a busy machine keeps up with.
fn beam(events_per_second: u64) -> DemoConfig {
    let duty = Some(Duty { share: 0.5, period_s: 1.0 });
    DemoConfig { duty, events_per_second, seconds: 3.0, sources: 4, fragment_bytes: 2048, ..small() }
}

#[test]
fn a_farm_that_is_sized_for_the_mean_keeps_up_in_the_gaps() {
    let summary = completed(&beam(400));
    assert_eq!((summary.dead_time_s, summary.full_answers, summary.inhibit.total()), (0.0, 0, Duration::ZERO));
    let duty = summary.duty.as_ref().expect("a beam");
    assert_eq!((duty.beam_events_per_second, duty.mean_events_per_second), (400, 200.0));
    assert_eq!((duty.periods, duty.gaps.len()), (3, 3), "{duty:?}");
    // 400 a second come in, 230 go out, for half a second.
    assert!((40..=200).contains(&duty.backlog_most_events), "{duty:?}");
    assert!(duty.gaps.iter().all(|gap| gap.left_events <= duty.left_allowed), "{duty:?}");
    let produced = summary.events.produced + summary.lost_triggers;
    assert!((580..=660).contains(&produced), "{produced} in 1.5 s of beam");
    assert!((duty.farm_events_per_second - 230.0).abs() < 0.01, "{duty:?}");
}

#[test]
fn a_farm_that_is_too_small_for_the_mean_fails_the_demo() {
    let config = DemoConfig { farm_events_per_second: 100.0, ..beam(400) };
    let summary = run(&config, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(!summary.balanced);
    let problem = &summary.problems[0];
    assert!(problem.starts_with("the gap until 1.0 s left ") && problem.contains("the mean is 200"), "{problem}");
    let left: Vec<u64> = summary.duty.unwrap().gaps.iter().map(|gap| gap.left_events).collect();
    assert!(left.windows(2).all(|two| two[0] < two[1]), "it grows: {left:?}");
    // Nothing else is wrong: what is left is decided after the run.
    assert_eq!(summary.ledger.imbalance(), None);
    assert_eq!(summary.events.accepted + summary.events.rejected, summary.events.produced);
}

/// The backlog of one beam does not fit: the trigger is held, each instant by one cause, and the demo says so.
#[test]
fn a_backlog_that_does_not_fit_is_dead_time_by_cause() {
    let duty = Some(Duty { share: 0.5, period_s: 1.0 });
    let config = DemoConfig {
        duty,
        events_per_second: 1500,
        farm_events_per_second: 100.0,
        seconds: 2.0,
        hot_bytes: 16 << 20,
        warm_bytes: 0,
        sources: 4,
        ..small()
    };
    let summary = run(&config, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(!summary.balanced && summary.dead_time_s > 0.05, "{:?}", summary.problems);
    assert!(summary.problems.iter().any(|problem| problem.starts_with("dead time ")), "{:?}", summary.problems);
    assert!(!summary.problems.iter().any(|problem| problem.contains("sums to")), "{:?}", summary.problems);
    let sum: f64 = summary.dead_time.iter().map(|dead| dead.seconds).sum();
    assert!((sum - summary.dead_time_s).abs() < 1e-9, "{sum} of {}", summary.dead_time_s);
    // No more than there was beam, nothing of it in the gaps.
    assert!(summary.dead_time_s <= 1.01, "{}", summary.dead_time_s);
    let held = summary.dead_time.iter().find(|dead| dead.cause == "hot full" || dead.cause == "reserves");
    assert!(held.is_some_and(|dead| dead.detail.starts_with("hot fill ")), "{:?}", summary.dead_time);
    assert!(summary.inhibit.total().as_secs_f64() >= held.unwrap().seconds * 0.9, "{:?}", summary.problems);
    assert_eq!(summary.ledger.imbalance(), None);
}

#[test]
fn a_profile_runs() {
    let mut config = DemoConfig::for_profile(Profile::Atlas);
    (config.seconds, config.hot_bytes) = (0.5, 128 << 20);
    let summary = completed(&config);
    assert_eq!((summary.profile, summary.event_bytes), (Some("atlas"), 5_120_000));
}
