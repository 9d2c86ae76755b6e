//! Which container a writer gets, and when one is empty again.

use super::*;
use crate::sim::{Fault, FaultyDevice, Operation};

fn small(number: u64) -> Event {
    Event::new(number, &[1000, 2000])
}

#[test]
fn a_writer_goes_on_with_a_parked_container_of_its_target() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 8);
    let first = write_durably(&mut warm.writer(&target(1)).unwrap(), &[small(1)])[0];
    let other = write_durably(&mut warm.writer(&target(2)).unwrap(), &[small(2)])[0];
    let again = write_durably(&mut warm.writer(&target(1)).unwrap(), &[small(3)])[0];
    assert_eq!(first.container, again.container);
    assert!(again.position > first.position);
    assert_ne!(first.container, other.container);
    let stream = Target { stream: Stream::Accepted(1), ..target(1) };
    assert_ne!(write_durably(&mut warm.writer(&stream).unwrap(), &[small(4)])[0].container, first.container);
}

#[test]
fn an_untouched_container_is_free_again_without_a_write() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 8);
    drop(warm.writer(&target(1)).unwrap());
    assert_eq!((warm.free_containers(), warm.fill()), (8, 0.0));
    assert_eq!(phase(&warm, 0), Phase::Empty);
    let mut writer = warm.writer(&target(1)).unwrap();
    assert_eq!(warm.free_containers(), 7);
    write_durably(&mut writer, &[small(1)]);
    assert!(warm.fill() > 0.0 && warm.fill() < 0.02);
    writer.finish(soon()).unwrap();
    assert_eq!(warm.fill(), 1.0 / 8.0);
}

#[test]
fn streams_share_a_container_when_too_many_are_open() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 10);
    let mut writers = Vec::new();
    for run in 0..5 {
        let mut writer = warm.writer(&target(run)).unwrap();
        write_durably(&mut writer, &[small(run)]);
        writers.push(writer);
    }
    let shared = |warm: &Warm| {
        warm.containers()
            .iter()
            .filter(|info| info.header.stream == Stream::Shared && info.phase == Phase::Filling)
            .count()
    };
    assert_eq!(shared(&warm), 2, "three alone, then shared ones, one for each writer at the same time");
    drop(writers);
    let place = write_durably(&mut warm.writer(&target(77)).unwrap(), &[small(77)])[0];
    let info = &warm.containers()[place.container as usize];
    assert_eq!((info.header.stream, info.header.run), (Stream::Shared, u64::MAX));
    assert_eq!(warm.free_containers(), 5);
    // It comes to whoever writes next, also of events that nobody has decided: movers wait for it all the same.
    let mut undecided = warm.writer(&Target { stream: Stream::Undecided, ..target(78) }).unwrap();
    let taken = write_durably(&mut undecided, &[small(78)])[0].container;
    assert_eq!(warm.containers()[taken as usize].header.stream, Stream::Shared);
    assert!(undecided.keeps_from_movers(Duration::ZERO, &|_| false));
    assert!(!undecided.keeps_from_movers(Duration::from_secs(3600), &|_| false));
    drop(undecided);
    warm.close_begun(Duration::ZERO, &|_| false, soon()).unwrap();
    assert_eq!(phase(&warm, taken), Phase::Full);
}

#[test]
fn the_last_container_is_for_moves() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 4);
    let fill = |run, moving| {
        let mut writer = warm.writer(&Target { moving, ..target(run) })?;
        let events: Vec<Event> = (0..8).map(|number| Event::new(run * 100 + number, &[30_000])).collect();
        append(&mut writer, &events)?;
        writer.finish(soon())
    };
    for run in 0..3 {
        fill(run, false).unwrap();
    }
    let error = fill(3, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Full);
    assert!(error.message().contains("1 of 4"), "{error}");
    fill(3, true).unwrap();
    assert_eq!(warm.writer(&Target { moving: true, ..target(9) }).err().map(|error| error.kind()), Some(Kind::Full));
    assert_eq!(warm.fill(), 1.0);
}

#[test]
fn an_append_without_room_writes_nothing() {
    let device = sim("one");
    let warm = create(&[device.clone() as Arc<dyn Device>], 2);
    let mut writer = warm.writer(&Target { moving: true, ..target(1) }).unwrap();
    let events: Vec<Event> = (0..60).map(|number| Event::new(number, &[30_000])).collect();
    let steps = device.steps();
    assert_eq!(append(&mut writer, &events).unwrap_err().kind(), Kind::Full);
    assert_eq!(device.steps(), steps);
    assert_eq!(warm.free_containers(), 1, "what was taken for it is back");
    let placed = append(&mut writer, &events[..16]).unwrap();
    assert_eq!(place_of(&placed[15]).container, 1);
    let ticket = writer.commit().unwrap();
    writer.wait(ticket, soon()).unwrap();
}

#[test]
fn a_container_is_reclaimed_once_nothing_lives_in_it_and_nobody_reads() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 4);
    let events = [small(1), small(2)];
    let mut writer = warm.writer(&target(1)).unwrap();
    let places = write_durably(&mut writer, &events);
    assert!(!warm.reclaim_if_empty(0, None).unwrap());
    warm.pin(0);
    assert!(!end(&warm, places[0], &events[0]));
    writer.finish(soon()).unwrap();
    assert!(!end(&warm, places[1], &events[1]), "somebody reads");
    assert!(!warm.reclaim_if_empty(0, None).unwrap());
    assert!(warm.unpin(0));
    assert!(warm.reclaim_if_empty(0, None).unwrap());
    assert_eq!((warm.free_containers(), warm.fill(), phase(&warm, 0)), (4, 0.0, Phase::Empty));
    assert_eq!(warm.reclaim_empty(None).unwrap(), 0);
    reopen_and_compare(&devices, &[]);
}

#[test]
fn an_extent_of_an_earlier_filling_is_never_taken_for_a_new_one() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 1);
    let only = Target { moving: true, ..target(1) };
    let old: Vec<Event> = (0..20).map(|number| Event::new(number, &[4000])).collect();
    let mut writer = warm.writer(&only).unwrap();
    let places = write_durably(&mut writer, &old);
    writer.finish(soon()).unwrap();
    for (place, event) in places.iter().zip(&old) {
        end(&warm, *place, event);
    }
    assert!(warm.reclaim_if_empty(0, None).unwrap());
    assert_eq!(warm.read(places[3], 0).err().map(|error| error.kind()), Some(Kind::Corrupt));
    // Extents of the same sizes at the same places, but fewer of them.
    let new: Vec<Event> = (100..103).map(|number| Event::new(number, &[4000])).collect();
    let mut writer = warm.writer(&only).unwrap();
    assert_eq!(write_durably(&mut writer, &new), places[..3]);
    assert_eq!(warm.read(places[5], 0).err().map(|error| error.kind()), Some(Kind::Corrupt));
    drop(writer);
    reopen_and_compare(&devices, &new);
}

#[test]
fn drains_are_durable_and_can_be_given_up() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 4);
    let events = [small(1)];
    let mut writer = warm.writer(&target(1)).unwrap();
    let place = write_durably(&mut writer, &events)[0];
    assert_eq!(warm.begin_drain(0).unwrap_err().kind(), Kind::Conflict, "it is being filled");
    writer.finish(soon()).unwrap();
    warm.begin_drain(0).unwrap();
    assert_eq!(warm.begin_drain(0).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(warm.devices()[0].draining, 1);
    let again = reopen_and_compare(&devices, &events);
    // The medium says so; but who drained it is gone.
    assert_eq!(again.containers()[0].header.state, crate::bytes::ContainerState::Draining);
    assert_eq!((phase(&again, 0), again.devices()[0].draining), (Phase::Full, 0));
    warm.end_drain(0, None).unwrap();
    assert_eq!((phase(&warm, 0), warm.devices()[0].draining), (Phase::Full, 0));
    assert_eq!(phase(&reopen_and_compare(&devices, &events), 0), Phase::Full);
    warm.begin_drain(0).unwrap();
    assert!(end(&warm, place, &events[0]));
    warm.end_drain(0, None).unwrap();
    assert_eq!((phase(&warm, 0), warm.devices()[0].draining), (Phase::Empty, 0));
}

#[test]
fn writers_spread_over_devices_and_avoid_what_is_drained_or_failed() {
    let faulty = FaultyDevice::new(sim("two"));
    let devices = [sim("one") as Arc<dyn Device>, faulty.clone()];
    let warm = create(&devices, 6);
    let device_of = |place: &ImagePlace| warm.containers()[place.container as usize].header.device;
    let (mut one, mut two) = (warm.writer(&target(1)).unwrap(), warm.writer(&target(2)).unwrap());
    let (a, b) = (write_durably(&mut one, &[small(1)]), write_durably(&mut two, &[small(2)]));
    assert_ne!(device_of(&a[0]), device_of(&b[0]));
    // Affinity.
    for wanted in [0, 1, 1, 0] {
        let mut writer = warm.writer(&Target { device: Some(wanted), ..target(10 + u64::from(wanted)) }).unwrap();
        assert_eq!(device_of(&write_durably(&mut writer, &[small(50)])[0]), wanted);
    }
    one.finish(soon()).unwrap();
    two.finish(soon()).unwrap();
    // A drained device is avoided; so is one where a write failed, even more.
    warm.begin_drain(a[0].container).unwrap();
    let mut third = warm.writer(&target(3)).unwrap();
    let place = write_durably(&mut third, &[small(3)])[0];
    assert_eq!(device_of(&place), 1);
    faulty.inject(Some(Operation::Write), faulty.count(Operation::Write) + 1, Fault::Fails);
    append(&mut third, &[small(4)]).unwrap();
    let ticket = third.commit();
    assert!(ticket.and_then(|ticket| third.wait(ticket, soon())).is_err());
    drop(third);
    for run in 20..23 {
        let mut writer = warm.writer(&target(run)).unwrap();
        assert_eq!(device_of(&write_durably(&mut writer, &[small(run)])[0]), 0);
    }
}

#[test]
fn idle_containers_are_closed_with_a_directory() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 6);
    let events = [small(1), small(2)];
    let places: Vec<ImagePlace> = events
        .iter()
        .map(|event| write_durably(&mut warm.writer(&target(event.number)).unwrap(), std::slice::from_ref(event))[0])
        .collect();
    warm.close_filling(Duration::from_secs(3600), soon()).unwrap();
    assert_eq!(phase(&warm, places[0].container), Phase::Filling);
    warm.close_filling(Duration::ZERO, soon()).unwrap();
    for place in &places {
        assert_eq!(phase(&warm, place.container), Phase::Full);
        assert!(warm.containers()[place.container as usize].header.directory.is_some());
    }
    reopen_and_compare(&devices, &events);
}

#[test]
fn a_device_that_leaves_is_given_to_nobody() {
    let warm = create(&["one", "two"].map(|name| sim(name) as Arc<dyn Device>), 4);
    let mut writer = warm.writer(&target(1)).unwrap();
    let device = |place: ImagePlace| warm.device_of(place.container);
    let first = write_durably(&mut writer, &[small(1)])[0];
    let (leaves, stays) = (device(first), 1 - device(first));
    warm.check_leaving(leaves).unwrap();
    warm.set_leaving(leaves, true);
    assert!(warm.is_leaving(leaves) && warm.check_leaving(stays).is_err(), "one must take data");
    assert_eq!((warm.free_containers(), warm.fill()), (4, 0.0), "of the device that stays");
    // The writer goes on elsewhere, and so does a new one.
    let second = write_durably(&mut writer, &[small(2)])[0];
    assert_eq!(device(second), stays);
    drop(writer);
    assert_eq!(device(write_durably(&mut warm.writer(&target(2)).unwrap(), &[small(3)])[0]), stays);
    assert_eq!(phase(&warm, first.container), Phase::Full);
    let none = warm.writer(&Target { device: Some(leaves), ..target(1) });
    assert_eq!(none.err().unwrap().kind(), Kind::Unavailable);
    // What lives there is what keeps it from being drained.
    assert!(!warm.is_drained(leaves));
    warm.ended(first, 2);
    warm.reclaim_empty(None).unwrap();
    assert!(warm.is_drained(leaves) && !warm.is_drained(stays));
    assert_eq!(warm.free_containers(), 2, "an empty container of it is not free");
    warm.set_leaving(leaves, false);
    assert_eq!(warm.free_containers(), 6);
}
