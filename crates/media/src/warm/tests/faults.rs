//! Devices that fail while they are written: what was committed stays, what was not is known.

use super::*;
use crate::sim::{Fault, FaultyDevice, Operation};
use forebay_core::ManualTime;

struct Rig {
    faulty: Arc<FaultyDevice>,
    devices: Vec<Arc<dyn Device>>,
    warm: Arc<Warm>,
}

fn rig() -> Rig {
    let faulty = FaultyDevice::new(sim("one"));
    let devices = vec![faulty.clone() as Arc<dyn Device>];
    let warm = create(&devices, 8);
    Rig { faulty, devices, warm }
}

/// A device that may stall for 50 ms, with this number of containers.
fn impatient(containers: u64) -> Rig {
    let faulty = FaultyDevice::new(sim("one"));
    let devices = vec![faulty.clone() as Arc<dyn Device>];
    let shape = WarmShape { stall: Duration::from_millis(50), ..SHAPE };
    let bytes = vec![bytes_for(containers)];
    let warm = Arc::new(Warm::create(devices.clone(), bytes, STORE, WIDTHS, shape).unwrap());
    Rig { faulty, devices, warm }
}

/// Writes events, each committed, until an error; answers the durable ones and where they are.
fn write_until_error(warm: &Arc<Warm>, count: u64) -> (BTreeMap<u64, ImagePlace>, Option<forebay_core::Error>) {
    let mut writer = warm.writer(&target(1)).unwrap();
    let mut asked = Vec::new();
    let mut failed = None;
    for number in 0..count {
        let event = Event::new(number, &[5000, 9000]);
        let written = append(&mut writer, &[event]).and_then(|placed| {
            let place = place_of(&placed[0]);
            asked.push((number, place, Ticket(u64::MAX)));
            let ticket = writer.commit()?;
            asked.last_mut().unwrap().2 = ticket;
            writer.poll()
        });
        if let Err(error) = written {
            failed = Some(error);
            break;
        }
    }
    if failed.is_none()
        && let Some((_, _, ticket)) = asked.last()
    {
        failed = writer.wait(*ticket, soon()).err();
    }
    let durable = writer.settle(soon());
    let (kept, given_up): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(_, _, ticket)| *ticket <= durable);
    for (_, place, _) in given_up {
        warm.ended(place, 2);
    }
    (kept.into_iter().map(|(number, place, _)| (number, place)).collect(), failed)
}

fn compare(warm: &Arc<Warm>, durable: &BTreeMap<u64, ImagePlace>) {
    for (number, place) in durable {
        assert_eq!(read(warm, *place, 0).unwrap(), Event::new(*number, &[5000, 9000]));
    }
}

#[test]
fn every_failed_write_or_sync_leaves_what_was_committed() {
    for operation in [Operation::Write, Operation::Sync] {
        for fault in [Fault::Fails, Fault::Full] {
            let mut failures = 0;
            for nth in 1..40 {
                let Rig { faulty, devices, warm } = rig();
                faulty.inject(Some(operation), faulty.count(operation) + nth, fault);
                let (durable, failed) = write_until_error(&warm, 30);
                failures += u64::from(failed.is_some());
                if let Some(error) = &failed {
                    assert_eq!(error.kind(), Kind::Unavailable);
                    assert!(error.message().contains("container "), "{error}");
                    assert_eq!(warm.devices()[0].poisoned, 1);
                } else {
                    assert_eq!(durable.len(), 30);
                }
                compare(&warm, &durable);
                faulty.heal();
                // The writer is gone; another one goes on elsewhere.
                let more = write_durably(&mut warm.writer(&target(1)).unwrap(), &[Event::new(1000, &[5000, 9000])]);
                assert_ne!(phase(&warm, more[0].container), Phase::Poisoned);
                let live: u32 = warm.containers().iter().map(|info| info.live_fragments).sum();
                assert_eq!(live as usize, 2 * durable.len() + 2);
                drop(warm);
                let (warm, mut found) = open(&devices, false).unwrap();
                let told = adopt_all(&warm, &mut found).unwrap();
                assert!(told.contains_key(&1000));
                for (number, place) in &durable {
                    assert_eq!(told.get(number), Some(place), "{operation:?} {fault:?} {nth}");
                }
                compare(&warm, &durable);
                // What was told beside it is whole, too.
                for (number, place) in &told {
                    assert_eq!(read(&warm, *place, 0).unwrap(), Event::new(*number, &[5000, 9000]));
                }
            }
            assert!(failures > 25, "{operation:?} {fault:?}: {failures}");
        }
    }
}

/// A device that is away for some seconds would cost all of its containers until the next life.
#[test]
fn a_device_that_fails_all_that_is_begun_on_it_rests() {
    let faulty = FaultyDevice::new(sim("one"));
    let time = Arc::new(ManualTime::default());
    let warm = Warm::create(vec![faulty.clone() as Arc<dyn Device>], vec![bytes_for(8)], STORE, WIDTHS, SHAPE);
    let warm = Arc::new(warm.unwrap().with(time.clone(), Arc::new(forebay_core::SystemRandom)));
    let poisoned = || warm.devices()[0].poisoned;
    let fails = |containers: u32| {
        for _ in 0..3 {
            let written = warm.writer(&target(1)).and_then(|mut writer| {
                append(&mut writer, &[Event::new(1, &[5000])])?;
                let ticket = writer.commit()?;
                writer.wait(ticket, soon())
            });
            assert_eq!(written.unwrap_err().kind(), Kind::Unavailable);
        }
        assert_eq!(poisoned(), containers);
    };
    faulty.refuse_writes("");
    // The first one may be a bad place on a good device.
    fails(2);
    time.advance(Duration::from_secs(1));
    fails(3);
    faulty.heal();
    time.advance(Duration::from_secs(1));
    fails(3);
    time.advance(Duration::from_secs(1));
    write_durably(&mut warm.writer(&target(1)).unwrap(), &[Event::new(2, &[5000])]);
    // What had taken something fails alone: the next one is begun at once.
    faulty.inject(Some(Operation::Sync), faulty.count(Operation::Sync) + 1, Fault::Fails);
    let mut writer = warm.writer(&target(1)).unwrap();
    append(&mut writer, &[Event::new(3, &[5000])]).unwrap();
    let ticket = writer.commit().unwrap();
    assert_eq!(writer.wait(ticket, soon()).unwrap_err().kind(), Kind::Unavailable);
    drop(writer);
    assert_eq!(poisoned(), 4);
    write_durably(&mut warm.writer(&target(1)).unwrap(), &[Event::new(4, &[5000])]);
}

#[test]
fn short_writes_and_reads_cost_nothing_but_time() {
    let Rig { faulty, devices, warm } = rig();
    for nth in (1..60).step_by(2) {
        faulty.inject(Some(Operation::Write), faulty.count(Operation::Write) + nth, Fault::Short);
    }
    let (durable, failed) = write_until_error(&warm, 30);
    assert!(failed.is_none() && durable.len() == 30, "{failed:?}");
    for nth in (1..60).step_by(2) {
        faulty.inject(Some(Operation::Read), faulty.count(Operation::Read) + nth, Fault::Short);
    }
    compare(&warm, &durable);
    drop(warm);
    let (warm, mut found) = open(&devices, false).unwrap();
    assert_eq!(adopt_all(&warm, &mut found).unwrap(), durable);
}

#[test]
fn a_poisoned_container_is_used_again_only_in_another_life_and_after_a_check() {
    let Rig { faulty, devices, warm } = rig();
    faulty.inject(Some(Operation::Sync), faulty.count(Operation::Sync) + 3, Fault::Fails);
    let (durable, failed) = write_until_error(&warm, 10);
    assert!(failed.is_some());
    for place in durable.values() {
        warm.ended(*place, 2);
    }
    assert_eq!(warm.reclaim_empty(None).unwrap(), 0, "not in this life");
    assert_eq!(phase(&warm, 0), Phase::Poisoned);
    drop(warm);
    let (warm, mut found) = open(&devices, false).unwrap();
    assert_eq!(phase(&warm, 0), Phase::Poisoned);
    let told = adopt_all(&warm, &mut found).unwrap();
    assert_eq!(told, durable);
    for place in told.values() {
        warm.ended(*place, 2);
    }
    // Still broken: it stays poisoned.
    faulty.inject(Some(Operation::Sync), faulty.count(Operation::Sync) + 1, Fault::Fails);
    assert_eq!(warm.reclaim_if_empty(0, None).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!((phase(&warm, 0), warm.devices()[0].poisoned), (Phase::Poisoned, 1));
    drop(warm);
    let (warm, mut found) = open(&devices, false).unwrap();
    warm.images(&mut found, &mut |_, _| Ok(())).unwrap();
    assert!(warm.reclaim_if_empty(0, None).unwrap());
    assert_eq!((phase(&warm, 0), warm.devices()[0].poisoned), (Phase::Empty, 0));
}

#[test]
fn a_device_that_stalls_is_reported_and_given_up_in_time() {
    let Rig { faulty, warm, .. } = impatient(8);
    let mut writer = warm.writer(&target(1)).unwrap();
    let place = write_durably(&mut writer, &[Event::new(0, &[5000, 9000])])[0];
    // A short stall is only reported.
    faulty.stall(Duration::from_millis(120));
    append(&mut writer, &[Event::new(1, &[100])]).unwrap();
    let ticket = writer.commit().unwrap();
    assert!(writer.wait(ticket, Instant::now() + Duration::from_millis(80)).is_err());
    assert!(warm.devices()[0].stalled);
    writer.wait(ticket, soon()).unwrap();
    assert!(!warm.devices()[0].stalled);
    // A long one ends the writer, though nobody gave a deadline.
    faulty.stall(Duration::from_secs(60));
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = append(&mut writer, &[Event::new(2, &[20_000])]) {
            break error;
        }
    };
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.message().contains("does not answer"), "{error}");
    assert!((Duration::from_millis(250)..Duration::from_secs(30)).contains(&begun.elapsed()));
    faulty.stall(Duration::ZERO);
    drop(writer);
    assert_eq!(read(&warm, place, 0).unwrap(), Event::new(0, &[5000, 9000]));
}

#[test]
fn a_header_that_gets_no_answer_changes_nothing_and_never_lands_over_a_newer_one() {
    let Rig { faulty, devices, warm } = impatient(2);
    let mut ended = Vec::new();
    for number in 0..2 {
        let mut writer = warm.writer(&target(1)).unwrap();
        ended.push((number, write_durably(&mut writer, &[Event::new(number, &[5000, 9000])])[0]));
        writer.finish(soon()).unwrap();
    }
    assert!(ended[0].1.container == 0 && ended[1].1.container == 1);
    warm.ended(ended[0].1, 2);
    faulty.stall_writes("", Duration::from_secs(60));
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(warm.reclaim_if_empty(0, None).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(warm.begin_drain(1).unwrap_err().kind(), Kind::Unavailable);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    let device = &warm.devices()[0];
    assert!(device.stalled && device.poisoned == 0 && device.draining == 0);
    assert_eq!((phase(&warm, 0), phase(&warm, 1)), (Phase::Full, Phase::Full));
    faulty.stall_writes("", Duration::ZERO);
    assert!(warm.reclaim_if_empty(0, None).unwrap());
    // What was given up has landed before; the container is filled again, and that is what an opening finds.
    let mut writer = warm.writer(&target(1)).unwrap();
    let again = write_durably(&mut writer, &[Event::new(2, &[5000, 9000])])[0];
    assert_eq!(again.container, 0);
    drop((writer, warm));
    let (warm, mut found) = open(&devices, false).unwrap();
    let told = adopt_all(&warm, &mut found).unwrap();
    assert_eq!(told, [ended[1], (2, again)].into());
}

#[test]
fn a_container_whose_given_up_header_was_refused_is_not_filled_again_unless_a_later_one_is_taken() {
    let Rig { faulty, warm, .. } = impatient(2);
    let mut writer = warm.writer(&target(1)).unwrap();
    let place = write_durably(&mut writer, &[Event::new(0, &[5000])])[0];
    writer.finish(soon()).unwrap();
    warm.ended(place, 1);
    faulty.stall_writes("", Duration::from_secs(60));
    assert_eq!(warm.reclaim_if_empty(place.container, None).unwrap_err().kind(), Kind::Unavailable);
    faulty.refuse_writes("");
    faulty.stall_writes("", Duration::ZERO);
    assert_eq!(warm.reclaim_if_empty(place.container, None).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!((phase(&warm, place.container), warm.free_containers()), (Phase::Poisoned, 1));
    assert_eq!((warm.reclaim_empty(None).unwrap(), warm.devices()[0].poisoned), (0, 1));
}

#[test]
fn a_directory_that_vanishes_ends_the_writer_and_says_so() {
    let Rig { faulty, warm, .. } = rig();
    let mut writer = warm.writer(&target(1)).unwrap();
    let place = write_durably(&mut writer, &[Event::new(0, &[10])])[0];
    faulty.vanish();
    append(&mut writer, &[Event::new(1, &[10])]).unwrap();
    let failed = writer.commit().and_then(|ticket| writer.wait(ticket, soon()));
    assert_eq!(failed.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(append(&mut writer, &[]).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(warm.read(place, 0).err().map(|error| error.kind()), Some(Kind::Unavailable));
}

#[test]
fn torn_and_misdirected_writes_are_found_when_they_are_read() {
    for fault in [Fault::Torn(7), Fault::Misdirected(5)] {
        let Rig { faulty, warm, .. } = rig();
        let mut writer = warm.writer(&target(1)).unwrap();
        write_durably(&mut writer, &[Event::new(0, &[10])]);
        faulty.inject(Some(Operation::Write), faulty.count(Operation::Write) + 1, fault);
        let place = write_durably(&mut writer, &[Event::new(1, &[9000])])[0];
        assert_eq!(read(&warm, place, 0).unwrap_err().kind(), Kind::Corrupt, "{fault:?}");
    }
}
