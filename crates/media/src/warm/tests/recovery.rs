//! Openings: rot that is found and named, losses that are accepted, devices that are missing.

use super::*;
use crate::sim::FaultyDevice;

struct Rig {
    faulty: Arc<FaultyDevice>,
    devices: Vec<Arc<dyn Device>>,
    events: Vec<Event>,
    places: Vec<ImagePlace>,
}

const CONTAINER_0: &str = "container-000000.fb";

/// Events in extents of their own, each committed; closed in order or not.
fn rig(closed: bool) -> Rig {
    let faulty = FaultyDevice::new(sim("one"));
    let devices = vec![faulty.clone() as Arc<dyn Device>];
    let warm = create(&devices, 4);
    let events: Vec<Event> = (0..5).map(|number| Event::new(number, &[700, 3000])).collect();
    let mut writer = warm.writer(&target(1)).unwrap();
    let places = events.iter().flat_map(|event| write_durably(&mut writer, std::slice::from_ref(event))).collect();
    if closed {
        writer.finish(soon()).unwrap();
    }
    Rig { faulty, devices, events, places }
}

impl Rig {
    /// Numbers of the events that an opening tells, and what it names as lost.
    fn told(&self) -> (Vec<u64>, Vec<String>) {
        let (warm, mut found) = open(&self.devices, true).unwrap();
        let told = adopt_all(&warm, &mut found).unwrap();
        for (number, place) in &told {
            assert_eq!(read(&warm, *place, 0).unwrap(), self.events[*number as usize]);
        }
        (told.into_keys().collect(), found.losses)
    }

    fn refused(&self) -> String {
        let refused = open(&self.devices, false).and_then(|(warm, mut found)| adopt_all(&warm, &mut found));
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        error.message().to_owned()
    }
}

#[test]
fn a_head_that_rots_below_what_was_committed_is_a_loss_by_name() {
    let rig = rig(false);
    let extent = rig.places[1].position - 64;
    rig.faulty.rot(CONTAINER_0, extent + 20, 1).unwrap();
    let said = rig.refused();
    assert!(said.contains("container 0 of device 0 (one)") && said.contains(&extent.to_string()), "{said}");
    let (told, losses) = rig.told();
    assert_eq!(told, [0, 2, 3, 4]);
    assert_eq!(losses.len(), 1);
}

#[test]
fn the_last_extent_without_a_head_cannot_be_told_from_one_that_was_never_written() {
    let rig = rig(false);
    rig.faulty.rot(CONTAINER_0, rig.places[4].position - 64 + 20, 1).unwrap();
    assert_eq!(rig.told(), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn an_image_that_rots_in_an_unclosed_container_is_a_loss_by_name() {
    let rig = rig(false);
    rig.faulty.rot(CONTAINER_0, rig.places[2].position + 30, 4).unwrap();
    assert!(rig.refused().contains(&format!("an image that was committed at {}", rig.places[2].position)));
    let (told, losses) = rig.told();
    assert_eq!((told, losses.len()), (vec![0, 1, 3, 4], 1));
    // It was closed at that opening: the directory knows nothing of it.
    assert_eq!(rig.told(), (vec![0, 1, 3, 4], vec![]));
}

/// Five images in an extent, of which one rots; a later head knows of its commit, or not.
fn rot_one_of_five(known: bool) {
    let faulty = FaultyDevice::new(sim("one"));
    let devices = vec![faulty.clone() as Arc<dyn Device>];
    let warm = create(&devices, 4);
    let events: Vec<Event> = (0..5).map(|number| Event::new(number, &[700])).collect();
    let mut writer = warm.writer(&target(1)).unwrap();
    let places: Vec<ImagePlace> = append(&mut writer, &events).unwrap().iter().map(place_of).collect();
    let ticket = writer.commit().unwrap();
    if known {
        writer.wait(ticket, soon()).unwrap();
    }
    write_durably(&mut writer, &[Event::new(9, &[1])]);
    drop(writer);
    faulty.rot(CONTAINER_0, places[1].position + 8, 1).unwrap();
    let (warm, mut found) = open(&devices, true).unwrap();
    let told = adopt_all(&warm, &mut found).unwrap();
    assert_eq!(told.into_keys().collect::<Vec<_>>(), [0, 2, 3, 4, 9]);
    assert_eq!((found.losses.len(), found.unfinished.len()), if known { (1, 0) } else { (0, 1) });
}

#[test]
fn after_an_image_that_rots_the_next_one_of_its_extent_is_found() {
    rot_one_of_five(true);
}

#[test]
fn where_no_head_says_that_an_extent_was_committed_rot_in_it_is_noted() {
    rot_one_of_five(false);
}

#[test]
fn a_payload_that_rots_is_named_when_it_is_read() {
    for closed in [false, true] {
        let rig = rig(closed);
        let image = open(&rig.devices, false).unwrap().0.read(rig.places[1], 0).unwrap();
        let (_, range) = image.find(&rest(1)).unwrap();
        rig.faulty.rot(CONTAINER_0, rig.places[1].position + range.start as u64 + 5, 128).unwrap();
        let (warm, mut found) = open(&rig.devices, false).unwrap();
        assert_eq!(adopt_all(&warm, &mut found).unwrap().len(), 5, "no payload is read that was committed");
        let error = read(&warm, rig.places[1], 0).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().contains("container 0 of device 0"), "{error}");
        let image = warm.read(rig.places[1], 0).unwrap();
        let (entry, offset) = image.table().unwrap().next().unwrap();
        assert_eq!(image.payload(&entry, offset).unwrap(), rig.events[1].payloads[0]);
    }
}

#[test]
fn a_head_or_a_table_that_rots_is_named_when_it_is_read() {
    let rig = rig(true);
    let (warm, _) = open(&rig.devices, false).unwrap();
    for offset in [0, 10, 50, 66] {
        let at = rig.places[0].position + offset;
        rig.faulty.rot(CONTAINER_0, at, 2).unwrap();
        let error = warm.read(rig.places[0], 0).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().contains(&format!("image at {} of container 0", rig.places[0].position)));
        rig.faulty.rot(CONTAINER_0, at, 2).unwrap();
    }
    assert!(warm.read(rig.places[0], 0).is_ok());
}

#[test]
fn a_directory_that_rots_costs_reads_but_no_event() {
    let rig = rig(true);
    let directory = open(&rig.devices, false).unwrap().0.containers()[0].header.directory.unwrap();
    rig.faulty.rot(CONTAINER_0, directory.offset + 40, 1).unwrap();
    assert_eq!(rig.told(), (vec![0, 1, 2, 3, 4], vec![]));
    // With an extent gone as well, what it held is lost by name.
    rig.faulty.rot(CONTAINER_0, rig.places[4].position - 64 + 20, 1).unwrap();
    assert!(rig.refused().contains("neither its directory nor an extent"));
    let (told, losses) = rig.told();
    assert_eq!((told, losses.len()), (vec![0, 1, 2, 3], 1));
}

#[test]
fn one_copy_of_a_header_is_enough_and_none_is_a_loss_by_name() {
    for revision in [0_u64, 1] {
        for closed in [false, true] {
            let rig = rig(closed);
            rig.faulty.rot(CONTAINER_0, revision * 4096 + 100, 1).unwrap();
            assert_eq!(rig.told(), (vec![0, 1, 2, 3, 4], vec![]), "copy {revision}, closed {closed}");
        }
    }
    let rig = rig(true);
    rig.faulty.rot(CONTAINER_0, 100, 1).unwrap();
    rig.faulty.rot(CONTAINER_0, 4196, 1).unwrap();
    assert!(rig.refused().contains("neither copy of its header verifies"));
    let (told, losses) = rig.told();
    assert_eq!((told, losses.len()), (vec![], 1));
}

#[test]
fn devices_come_in_any_order_and_a_missing_one_is_a_loss_by_name() {
    let names = ["one", "two", "three"];
    let devices: Vec<Arc<dyn Device>> = names.iter().map(|name| sim(name) as Arc<dyn Device>).collect();
    let warm = create(&devices, 3);
    let mut places = Vec::new();
    for device in 0..3 {
        let mut writer = warm.writer(&Target { device: Some(device), ..target(1) }).unwrap();
        places.extend(write_durably(&mut writer, &[Event::new(u64::from(device), &[100])]));
    }
    let other_order = [devices[2].clone(), devices[0].clone(), devices[1].clone()];
    let (warm, mut found) = open(&other_order, false).unwrap();
    assert_eq!(adopt_all(&warm, &mut found).unwrap().len(), 3);
    let without = [devices[2].clone(), devices[0].clone()];
    let error = open(&without, false).err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().contains("warm device 1 of 3 is not there"), "{error}");
    let (warm, mut found) = open(&without, true).unwrap();
    let told = adopt_all(&warm, &mut found).unwrap();
    assert_eq!((told.into_keys().collect::<Vec<_>>(), found.losses.len()), (vec![0, 2], 1));
    assert_eq!(warm.read(places[1], 0).err().map(|error| error.kind()), Some(Kind::Unavailable));
    assert_eq!(warm.devices()[1].method, "missing");
    assert!(warm.writer(&Target { device: Some(1), ..target(1) }).is_err());
}

#[test]
fn a_file_that_is_missing_or_short_is_a_loss_by_name() {
    let rig = rig(true);
    rig.devices[0].remove(CONTAINER_0).unwrap();
    assert!(rig.refused().contains("container 0 of device 0 (one): cannot be opened"));
    rig.devices[0].create(CONTAINER_0, 4096).unwrap();
    let (told, losses) = rig.told();
    assert_eq!((told, losses.len()), (vec![], 1));
}
