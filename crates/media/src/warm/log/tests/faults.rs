//! Refusals, short writes, silence, and the power that goes at any operation.

use super::*;
use crate::sim::SimDevice;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far a log's user has come.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    appended: AtomicU64,
}

impl Progress {
    fn now(&self) -> (u64, u64) {
        (self.done.load(Ordering::SeqCst), self.appended.load(Ordering::SeqCst))
    }
}

/// Decisions one by one, in groups, blobs, snapshots, and an end in order.
fn live(log: &DeviceLog, progress: &Progress) {
    let mut next = 0;
    for round in 0..6_u64 {
        for group in [1, 3, 70] {
            progress.appended.store(next + group, Ordering::SeqCst);
            append(log, next..next + group);
            next += group;
            if round % 2 == 0 {
                log.append_blob(Blob::Run, &[7; 300]);
            }
            log.flush(0, soon()).unwrap();
            progress.done.store(next, Ordering::SeqCst);
        }
        if round % 3 != 1 {
            take_snapshot(log, next).unwrap();
        }
    }
    log.close(soon()).unwrap();
}

/// What the power left, by seed, and how far it had come.
type Left = (Vec<Arc<SimDevice>>, (u64, u64));

/// Lives until the end, and takes what is left where the power goes before change number `step`.
fn cut(step: u64, seeds: std::ops::Range<u64>) -> Left {
    let bed = Bed::new();
    let log = create(&bed);
    let progress = Arc::new(Progress::default());
    let left = Arc::new(Mutex::new(None));
    let (into, at) = (left.clone(), progress.clone());
    bed.sim.before_step(step, move |sim| {
        *into.lock() = Some((seeds.map(|seed| sim.power_off(seed)).collect(), at.now()));
    });
    live(&log, &progress);
    let left = left.lock().take();
    left.unwrap()
}

#[test]
fn a_cut_at_every_operation_leaves_one_log() {
    let whole = Bed::new();
    let log = create(&whole);
    let first = whole.sim.steps();
    let progress = Progress::default();
    live(&log, &progress);
    assert_eq!(progress.now(), (444, 444));
    let steps = whole.sim.steps();
    assert!(steps > 90, "{steps}");
    for step in first + 1..=steps {
        let (left, (done, appended)) = cut(step, step * 16..step * 16 + 16);
        for (seed, sim) in left.into_iter().enumerate() {
            again(Bed::over(sim), done, appended, &format!("cut before step {step} of {steps}, seed {seed}"));
        }
    }
}

/// Opens what a cut left, writes a snapshot, and cuts once more in the middle of the snapshot.
fn again(bed: Bed, done: u64, appended: u64, at: &str) {
    let second = bed.copy();
    let (log, slots, losses) = open(&bed).unwrap_or_else(|error| panic!("{at}: {error}"));
    let found = told(&slots[0]);
    let count = found.len() as u64;
    assert_eq!(found, numbers(count), "{at}");
    assert!((done..=appended).contains(&count), "{at}: {count} of {done} to {appended}");
    assert!(losses.is_empty(), "{at}");
    take_snapshot(&log, count).unwrap();
    decide(&log, count).unwrap();
    let (_, slots, _) = open(&bed).unwrap();
    assert_eq!(told(&slots[0]), numbers(count + 1), "{at}");

    let (log, _, _) = open(&second).unwrap();
    let step = 1 + (done * 7 + appended) % bed.sim.steps();
    let left = Arc::new(Mutex::new(None));
    let into = left.clone();
    second.sim.before_step(step, move |sim| *into.lock() = Some(sim.power_off(done + step)));
    take_snapshot(&log, count).unwrap();
    decide(&log, count).unwrap();
    let left = Bed::over(left.lock().take().unwrap());
    let (_, slots, _) = open(&left).unwrap_or_else(|error| panic!("{at}, then at {step}: {error}"));
    let found = told(&slots[0]);
    assert!(found == numbers(count) || found == numbers(count + 1), "{at}, then before step {step}: {found:?}");
}

#[test]
fn a_refused_write_or_sync_poisons_until_the_log_has_moved() {
    for operation in [Operation::Write, Operation::Sync] {
        let bed = Bed::new();
        let log = create(&bed);
        decide(&log, 0).unwrap();
        bed.fault(operation, 0, Fault::Fails);
        let position = log.append_decision(&decision(1));
        let refused = log.wait(0, position, soon()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.message().contains("device 0 (/dev/simulated)"), "{refused}");
        assert!(log.is_poisoned(0) && log.info(0).unwrap().poisoned.is_some());
        let writes = bed.count(Operation::Write);
        assert_eq!(decide(&log, 2).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(log.flush(0, soon()).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(bed.count(Operation::Write), writes, "nothing is tried again");
        take_snapshot(&log, 3).unwrap();
        assert!(!log.is_poisoned(0));
        // The snapshot has what was refused.
        log.wait(0, position, soon()).unwrap();
        decide(&log, 3).unwrap();
        let (_, slots, _) = open(&bed).unwrap();
        assert_eq!(told(&slots[0]), numbers(4));
    }
}

#[test]
fn everybody_who_waits_learns_of_a_refused_sync() {
    let bed = Bed::new();
    let log = create(&bed);
    for skip in 0..40 {
        let pause = Fault::Stalls(Duration::from_millis(5));
        bed.fault(Operation::Sync, skip, if skip == 3 { Fault::Fails } else { pause });
    }
    let answers: Vec<(u64, bool)> = std::thread::scope(|scope| {
        let one = |number| {
            let log = &log;
            scope.spawn(move || (number, decide(log, number).is_ok()))
        };
        (0..24)
            .map(|round| {
                std::thread::sleep(Duration::from_millis(1));
                one(round)
            })
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(answers.iter().any(|(_, done)| *done) && answers.iter().any(|(_, done)| !done));
    let (_, slots, _) = open(&bed).unwrap();
    let found = told(&slots[0]);
    for (number, done) in answers {
        assert!(!done || found.contains(&number), "decision {number} was acknowledged");
    }
}

#[test]
fn a_short_write_is_completed_and_one_that_fails_then_is_not_counted() {
    let bed = Bed::new();
    let log = create(&bed);
    let group = |from: u64| {
        append(&log, from..from + 200);
        log.flush(0, soon())
    };
    // Four blocks: two of them, one, one half of one, which is none, and one.
    (0..3).for_each(|skip| bed.fault(Operation::Write, skip, Fault::Short));
    group(0).unwrap();
    assert_eq!(bed.count(Operation::Write), 2 + 4);
    bed.fault(Operation::Write, 0, Fault::Short);
    bed.fault(Operation::Write, 1, Fault::Fails);
    assert_eq!(group(200).unwrap_err().kind(), Kind::Unavailable);
    let (_, slots, _) = open(&bed).unwrap();
    let found = told(&slots[0]);
    assert_eq!(found, numbers(found.len() as u64));
    assert!((200..400).contains(&found.len()), "{}", found.len());
    take_snapshot(&log, 200).unwrap();
    let (_, slots, _) = open(&bed).unwrap();
    assert_eq!(told(&slots[0]), numbers(200));
}

#[test]
fn a_device_that_writes_nothing_forever_is_a_failure() {
    let bed = Bed::new();
    let log = create(&bed);
    (0..40).for_each(|skip| bed.fault(Operation::Write, skip, Fault::Short));
    assert_eq!(decide(&log, 0).unwrap_err().kind(), Kind::Unavailable);
    assert!(log.is_poisoned(0));
}

#[test]
fn a_device_that_vanishes_is_a_failure_of_its_own_log_only() {
    let (bed, other) = (Bed::new(), Bed::new());
    let log = DeviceLog::create(&[bed.device(), other.device()], STORE, 16, LOG_BYTES).unwrap();
    bed.fault(Operation::Write, 0, Fault::Vanishes);
    assert_eq!(decide(&log, 0).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(take_snapshot(&log, 0).unwrap_err().kind(), Kind::Unavailable);
    assert!(log.is_poisoned(0) && !log.is_poisoned(1));
    log.wait(1, log.append_decision(&decision(1)), soon()).unwrap();
    log.close(soon()).unwrap();
}

#[test]
fn a_stalled_device_ends_waits_at_their_deadline_and_goes_on_later() {
    for operation in [Operation::Write, Operation::Sync] {
        let bed = Bed::new();
        let log = create(&bed);
        bed.fault(operation, 0, Fault::Stalls(Duration::from_secs(60)));
        let position = log.append_decision(&decision(0));
        let begun = Instant::now();
        let late = log.wait(0, position, begun + Duration::from_millis(30)).unwrap_err();
        assert_eq!(late.kind(), Kind::Unavailable);
        assert!(late.message().contains("may still become durable"), "{late}");
        assert!(begun.elapsed() >= Duration::from_millis(30) && begun.elapsed() < Duration::from_secs(30));
        assert!(!log.is_poisoned(0));
        bed.faulty.stall(Duration::ZERO);
        log.wait(0, log.append_decision(&decision(1)), soon()).unwrap();
        log.wait(0, position, soon()).unwrap();
        let (_, slots, _) = open(&bed).unwrap();
        assert_eq!(told(&slots[0]), numbers(2));
    }
}

#[test]
fn a_snapshot_that_fails_before_it_counts_leaves_the_log_as_it_was() {
    let whole = Bed::new();
    let log = create(&whole);
    decide(&log, 0).unwrap();
    let before = [whole.count(Operation::Write), whole.count(Operation::Sync)];
    take_snapshot(&log, 1).unwrap();
    let after = [whole.count(Operation::Write) - before[0], whole.count(Operation::Sync) - before[1]];
    for (operation, count) in [(Operation::Write, after[0]), (Operation::Sync, after[1])] {
        let mut refusals = 0;
        for skip in 0..count {
            let bed = Bed::new();
            let log = create(&bed);
            decide(&log, 0).unwrap();
            bed.fault(operation, skip, Fault::Fails);
            let written = take_snapshot(&log, 1);
            let mut next = 1;
            match (&written, log.is_poisoned(0)) {
                // The head that retires the old file is only for the case that two copies rot.
                (Ok(()), poisoned) => assert!(!poisoned && skip + 2 >= count),
                (Err(_), false) => {
                    refusals += 1;
                    decide(&log, next).unwrap();
                    next += 1;
                }
                // Which of the two files counts is open: it takes nothing until another snapshot has settled it.
                (Err(_), true) => assert_eq!(decide(&log, next).unwrap_err().kind(), Kind::Unavailable),
            }
            let (_, slots, _) = open(&bed).unwrap();
            assert_eq!(told(&slots[0]), numbers(next), "{operation:?} {skip}");
            take_snapshot(&log, next).unwrap();
            decide(&log, next).unwrap();
            let (_, slots, _) = open(&bed).unwrap();
            assert_eq!(told(&slots[0]), numbers(next + 1), "{operation:?} {skip}");
        }
        assert!(refusals >= 2, "{operation:?}: {refusals}");
    }
}

#[test]
fn what_reads_back_other_than_written_does_not_count() {
    let mut found_out = [0; 2];
    for seed in 0..16 {
        // Two copies of the head that says begun, the snapshot, two copies of the head that makes it count.
        for (at, skip) in [2, 4].into_iter().enumerate() {
            let bed = Bed::new();
            let log = create(&bed);
            decide(&log, 0).unwrap();
            bed.fault(Operation::Write, skip, Fault::Torn(seed));
            let Err(error) = take_snapshot(&log, 1) else { continue };
            assert_eq!(error.kind(), Kind::Corrupt);
            found_out[at] += 1;
            // Before the head that counts the log is what it was, from there on it takes nothing.
            assert_eq!(log.is_poisoned(0), skip == 4);
            let count = if skip == 4 { 1 } else { 2 };
            assert_eq!(decide(&log, 1).is_ok(), count == 2);
            assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(count));
            take_snapshot(&log, count).unwrap();
            decide(&log, count).unwrap();
            assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(count + 1));
        }
    }
    assert!(found_out.iter().all(|count| *count > 0), "{found_out:?}");
}

#[test]
fn commits_go_on_while_the_other_file_is_written() {
    let bed = Bed::slow(Duration::from_millis(5));
    // Room for hundreds of commits: with the usual fourteen they would wait for a fourth snapshot on a machine that is late to say stop.
    let bytes = 1 << 20;
    let log = DeviceLog::create(&[bed.device()], STORE, 16, bytes).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let deciding = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::SeqCst) {
                decide(&log, count).unwrap();
                count += 1;
            }
            count
        });
        for _ in 0..3 {
            log.replace(0, 1, || Ok(snapshot(log.end())), soon()).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        deciding.join().unwrap()
    });
    let (_, slots, _) = DeviceLog::open(&[bed.device()], STORE, 16, bytes, false).unwrap();
    let mut found = told(&slots[0]);
    // The snapshot has what came while it was taken, and so has what goes on from its boundary.
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, numbers(count));
}
