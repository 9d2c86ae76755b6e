//! Refusals, short writes, silence, and the power that goes at any operation.

use super::*;

/// Decisions one by one, in groups, blobs, folds: until it is done or the device dies. Answers how many decisions were
/// acknowledged and how many were appended.
fn live(log: &DeviceLog) -> (u64, u64) {
    let (mut done, mut next) = (0, 0);
    let mut step = || -> Result<()> {
        for round in 0..6_u64 {
            for group in [1, 3, 70] {
                let mut last = None;
                for _ in 0..group {
                    next += 1;
                    last = Some(log.append_decision(0, &decision(next - 1), soon())?);
                }
                if round % 2 == 0 {
                    let _ = log.append_blob(0, Blob::Run, &[7; 300], soon())?;
                }
                log.wait(last.unwrap(), soon())?;
                done = next;
            }
            if round % 3 != 1 {
                log.flush(0, soon())?;
                log.replace(0, &snapshot(next), soon())?;
            }
        }
        log.close(soon())
    };
    let _ = step();
    (done, next)
}

#[test]
fn a_cut_at_every_operation_leaves_one_log() {
    let whole = Medium::default();
    let log = create(&whole);
    let first = whole.steps();
    assert_eq!(live(&log), (444, 444));
    let steps = whole.steps();
    assert!(steps > 60, "{steps}");
    for step in first + 1..=steps {
        for seed in 1..=8 {
            let medium = Medium::default();
            let log = create(&medium);
            medium.cut(step, seed * 1000 + step);
            let (done, appended) = live(&log);
            assert!(medium.image().len() == 2 && medium.steps() == step);
            again(medium.image(), done, appended, &format!("cut at step {step} of {steps}, seed {seed}"));
        }
    }
}

/// Opens what a cut left, folds it, and cuts once more in the middle of the fold.
fn again(image: Image, done: u64, appended: u64, at: &str) {
    let medium = Medium::from_image(image.clone());
    let (log, slots, losses) = open(&medium).unwrap_or_else(|error| panic!("{at}: {error}"));
    let found = told(&slots[0]);
    let count = found.len() as u64;
    assert_eq!(found, numbers(count), "{at}");
    assert!((done..=appended).contains(&count), "{at}: {count} of {done} to {appended}");
    assert!(losses.is_empty(), "{at}");
    log.replace(0, &snapshot(count), soon()).unwrap();
    decide(&log, count).unwrap();
    let (_, slots, _) = open(&medium).unwrap();
    assert_eq!(told(&slots[0]), numbers(count + 1), "{at}");
    let fold_steps = medium.steps();
    let step = 1 + (done * 7 + appended) % fold_steps;
    let medium = Medium::from_image(image);
    let (log, _, _) = open(&medium).unwrap();
    medium.cut(step, done + 1);
    let folded = log.replace(0, &snapshot(count), soon()).and_then(|()| decide(&log, count)).is_ok();
    assert!(!folded || step == fold_steps, "{at}");
    let (_, slots, _) = open(&Medium::from_image(medium.image())).unwrap_or_else(|error| panic!("{at}: {error}"));
    let found = told(&slots[0]);
    assert!(found == numbers(count) || found == numbers(count + 1), "{at}, then at step {step} of the fold: {found:?}");
}

#[test]
fn a_refused_write_or_sync_poisons_until_the_log_has_moved() {
    for operation in [Operation::Write, Operation::Sync] {
        let medium = Medium::default();
        let log = create(&medium);
        decide(&log, 0).unwrap();
        medium.fault(operation, 0, Fault::Error);
        let ticket = log.append_decision(0, &decision(1), soon()).unwrap();
        let refused = log.wait(ticket, soon()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.message().contains("device 0 (/dev/memory)"), "{refused}");
        assert!(log.is_poisoned(0) && log.info(0).unwrap().poisoned.is_some());
        let writes = medium.count(Operation::Write);
        assert_eq!(decide(&log, 2).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(log.flush(0, soon()).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(medium.count(Operation::Write), writes, "nothing is tried again");
        log.replace(0, &snapshot(1), soon()).unwrap();
        assert!(!log.is_poisoned(0));
        // What was refused stays refused; what comes now counts.
        assert_eq!(log.wait(ticket, soon()).unwrap_err().kind(), Kind::Unavailable);
        decide(&log, 1).unwrap();
        let (_, slots, _) = open(&medium).unwrap();
        assert_eq!(told(&slots[0]), numbers(2));
    }
}

#[test]
fn everybody_who_waits_learns_of_a_refused_sync() {
    let medium = Medium::slow(Duration::from_millis(5));
    let log = create(&medium);
    medium.fault(Operation::Sync, 3, Fault::Error);
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
    let (_, slots, _) = open(&medium).unwrap();
    let found = told(&slots[0]);
    for (number, done) in answers {
        assert!(!done || found.contains(&number), "decision {number} was acknowledged");
    }
}

#[test]
fn a_short_write_is_completed_and_one_that_fails_then_is_not_counted() {
    let medium = Medium::default();
    let log = create(&medium);
    let group = |from: u64| {
        append(&log, from..from + 200);
        log.flush(0, soon())
    };
    for (skip, short) in [(0, 4096), (1, 5000), (2, 100)] {
        medium.fault(Operation::Write, skip, Fault::Short(short));
    }
    group(0).unwrap();
    medium.fault(Operation::Write, 0, Fault::Short(4096));
    medium.fault(Operation::Write, 1, Fault::Error);
    assert_eq!(group(200).unwrap_err().kind(), Kind::Unavailable);
    let (_, slots, _) = open(&medium).unwrap();
    let found = told(&slots[0]);
    assert_eq!(found, numbers(found.len() as u64));
    assert!((200..400).contains(&found.len()), "{}", found.len());
    log.replace(0, &snapshot(200), soon()).unwrap();
    let (_, slots, _) = open(&medium).unwrap();
    assert_eq!(told(&slots[0]), numbers(200));
}

#[test]
fn a_device_that_writes_nothing_forever_is_a_failure() {
    let medium = Medium::default();
    let log = create(&medium);
    for skip in 0..40 {
        medium.fault(Operation::Write, skip, Fault::Short(0));
    }
    assert_eq!(decide(&log, 0).unwrap_err().kind(), Kind::Unavailable);
    assert!(log.is_poisoned(0));
}

#[test]
fn a_stalled_device_ends_waits_at_their_deadline_and_goes_on_later() {
    for operation in [Operation::Write, Operation::Sync] {
        let medium = Medium::default();
        let log = create(&medium);
        medium.fault(operation, 0, Fault::Stall);
        let ticket = log.append_decision(0, &decision(0), soon()).unwrap();
        let begun = Instant::now();
        let late = log.wait(ticket, begun + Duration::from_millis(30)).unwrap_err();
        assert_eq!(late.kind(), Kind::Unavailable);
        assert!(late.message().contains("may still become durable"), "{late}");
        assert!(begun.elapsed() >= Duration::from_millis(30) && begun.elapsed() < Duration::from_secs(5));
        assert!(!log.is_poisoned(0));
        let next = log.append_decision(0, &decision(1), soon()).unwrap();
        medium.release();
        log.wait(next, soon()).unwrap();
        log.wait(ticket, soon()).unwrap();
        let (_, slots, _) = open(&medium).unwrap();
        assert_eq!(told(&slots[0]), numbers(2));
    }
}

#[test]
fn a_fold_that_fails_before_it_counts_leaves_the_log_as_it_was() {
    let whole = Medium::default();
    let log = create(&whole);
    decide(&log, 0).unwrap();
    let before = [whole.count(Operation::Write), whole.count(Operation::Sync)];
    log.replace(0, &snapshot(1), soon()).unwrap();
    let after = [whole.count(Operation::Write) - before[0], whole.count(Operation::Sync) - before[1]];
    for (operation, count) in [(Operation::Write, after[0]), (Operation::Sync, after[1])] {
        let mut refusals = 0;
        for skip in 0..count {
            let medium = Medium::default();
            let log = create(&medium);
            decide(&log, 0).unwrap();
            medium.fault(operation, skip, Fault::Error);
            let folded = log.replace(0, &snapshot(1), soon());
            let mut next = 1;
            match (&folded, log.is_poisoned(0)) {
                // The head that retires the old file is only for the case that two copies rot.
                (Ok(()), poisoned) => assert!(!poisoned && skip + 2 >= count),
                (Err(_), false) => {
                    refusals += 1;
                    decide(&log, next).unwrap();
                    next += 1;
                }
                // Which of the two files counts is open: it takes nothing until another fold has settled it.
                (Err(_), true) => assert_eq!(decide(&log, next).unwrap_err().kind(), Kind::Unavailable),
            }
            let (_, slots, _) = open(&medium).unwrap();
            assert_eq!(told(&slots[0]), numbers(next), "{operation:?} {skip}");
            log.replace(0, &snapshot(next), soon()).unwrap();
            decide(&log, next).unwrap();
            let (_, slots, _) = open(&medium).unwrap();
            assert_eq!(told(&slots[0]), numbers(next + 1), "{operation:?} {skip}");
        }
        assert!(refusals >= 2, "{operation:?}: {refusals}");
    }
}

#[test]
fn a_snapshot_that_reads_back_other_than_written_does_not_count() {
    let medium = Medium::default();
    let log = create(&medium);
    decide(&log, 0).unwrap();
    // Two copies of the head that says begun, then the snapshot.
    medium.fault(Operation::Write, 2, Fault::Lost);
    assert_eq!(log.replace(0, &snapshot(1), soon()).unwrap_err().kind(), Kind::Corrupt);
    decide(&log, 1).unwrap();
    assert_eq!(told(&open(&medium).unwrap().1[0]), numbers(2));
    // The second copy of the head that makes it count.
    medium.fault(Operation::Write, 4, Fault::Lost);
    assert_eq!(log.replace(0, &snapshot(2), soon()).unwrap_err().kind(), Kind::Corrupt);
    assert!(log.is_poisoned(0));
    assert_eq!(told(&open(&medium).unwrap().1[0]), numbers(2));
    log.replace(0, &snapshot(2), soon()).unwrap();
    decide(&log, 2).unwrap();
    assert_eq!(told(&open(&medium).unwrap().1[0]), numbers(3));
}

#[test]
fn what_is_appended_during_a_fold_waits_for_the_new_file() {
    let medium = Medium::slow(Duration::from_millis(10));
    let log = create(&medium);
    decide(&log, 0).unwrap();
    let syncs = medium.count(Operation::Sync);
    std::thread::scope(|scope| {
        let folding = scope.spawn(|| log.replace(0, &snapshot(1), soon()));
        while medium.count(Operation::Sync) == syncs {
            std::thread::sleep(Duration::from_millis(1));
        }
        let late = log.append_decision(0, &decision(1), Instant::now() + Duration::from_millis(5));
        assert_eq!(late.unwrap_err().kind(), Kind::Unavailable);
        decide(&log, 1).unwrap();
        folding.join().unwrap().unwrap();
    });
    let (_, slots, _) = open(&medium).unwrap();
    assert_eq!(told(&slots[0]), numbers(2));
    assert_eq!(log.info(0).unwrap().generation, 2);
}
