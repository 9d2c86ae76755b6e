//! What is written is read back: images of all sizes, across buffers and containers, in this life and the next.

use super::*;
use crate::sim::ShiftingDevice;

/// Events of all sizes: none at all, empty, a byte, around blocks and buffers, many fragments.
fn all_sizes() -> Vec<Event> {
    let lengths: Vec<Vec<usize>> = vec![
        vec![],
        vec![0],
        vec![1],
        vec![0, 1, 0],
        vec![7, 8, 9, 511, 512, 513],
        vec![4095, 4096, 4097],
        vec![SHAPE.io_bytes - 1, SHAPE.io_bytes, SHAPE.io_bytes + 1],
        vec![100_000],
        vec![10; 900],
        vec![3, 60_000, 5, 40_000],
        vec![200_000],
    ];
    lengths.iter().enumerate().map(|(number, lengths)| Event::new(number as u64, lengths)).collect()
}

#[test]
fn all_sizes_come_back_on_every_device() {
    let shifting: Arc<dyn Device> = ShiftingDevice::new(sim("inner"), 3);
    for device in [sim("plain") as Arc<dyn Device>, shifting] {
        let devices = [device];
        let warm = create(&devices, 8);
        let events = all_sizes();
        let mut writer = warm.writer(&target(1)).unwrap();
        let places = write_durably(&mut writer, &events);
        for (place, event) in places.iter().zip(&events) {
            for hint in [0, 1, 4096, 20_000, 1 << 30] {
                assert_eq!(read(&warm, *place, hint).unwrap(), *event);
            }
            let image = warm.read(*place, 0).unwrap();
            for (at, payload) in event.payloads.iter().enumerate() {
                let (meta, range) = image.find(&rest(at)).unwrap();
                assert_eq!((meta.length as usize, &image.bytes()[range]), (payload.len(), &payload[..]));
            }
            assert!(image.find(&[255; 3]).is_none());
        }
        assert!(places.iter().any(|place| place.container != places[0].container), "one container is not enough");
        drop(writer);
        drop(warm);
        // Nothing was closed in order: the filling one is scanned, the others have directories.
        let warm = reopen_and_compare(&devices, &events);
        drop(warm);
        // It was closed at that opening.
        let warm = reopen_and_compare(&devices, &events);
        assert!(warm.containers().iter().all(|container| matches!(container.phase, Phase::Full | Phase::Empty)));
    }
}

#[test]
fn one_read_is_enough_where_the_size_is_known() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 4);
    let event = Event::new(3, &[1000; 100]);
    let place = write_durably(&mut warm.writer(&target(1)).unwrap(), std::slice::from_ref(&event))[0];
    let before = warm.devices()[0].counts.reads;
    let hint = 100 * 1000 + 100 * (3 + 18) + 64;
    assert_eq!(read(&warm, place, hint).unwrap(), event);
    assert_eq!(warm.devices()[0].counts.reads, before + 1);
    assert_eq!(read(&warm, place, 0).unwrap(), event);
    assert_eq!(warm.devices()[0].counts.reads, before + 3);
}

#[test]
fn a_batch_goes_over_as_many_containers_as_it_needs() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 12);
    let events: Vec<Event> = (0..40).map(|number| Event::new(number, &[30_000])).collect();
    let mut writer = warm.writer(&target(1)).unwrap();
    let places: Vec<ImagePlace> = append(&mut writer, &events).unwrap().iter().map(place_of).collect();
    let ticket = writer.commit().unwrap();
    writer.wait(ticket, soon()).unwrap();
    assert_eq!(places.last().unwrap().container, 4, "8 events fit a container");
    for (place, event) in places.iter().zip(&events) {
        assert_eq!(read(&warm, *place, 0).unwrap(), *event);
    }
    writer.finish(soon()).unwrap();
    let infos = warm.containers();
    let closed: Vec<_> = infos.iter().filter(|container| container.phase == Phase::Full).collect();
    assert_eq!(closed.len(), 5);
    assert_eq!(closed.iter().map(|container| container.header.images).sum::<u64>(), 40);
    assert_eq!(closed.iter().map(|container| container.live_fragments).sum::<u32>(), 40);
    let orders: Vec<u64> = closed.iter().map(|container| container.header.order).collect();
    assert!(orders.is_sorted());
    reopen_and_compare(&devices, &events);
}

#[test]
fn closing_makes_a_directory_that_says_what_the_scan_says() {
    let devices = [sim("one") as Arc<dyn Device>];
    let events: Vec<Event> = (0..6).map(|number| Event::new(number, &[500, 0, 9000])).collect();
    let warm = create(&devices, 4);
    write_durably(&mut warm.writer(&target(1)).unwrap(), &events);
    assert_eq!(phase(&warm, 0), Phase::Filling);
    let scanned = {
        let (warm, mut found) = open(&devices, false).unwrap();
        adopt_all(&warm, &mut found).unwrap()
    };
    let (warm, mut found) = open(&devices, false).unwrap();
    assert!(warm.containers()[0].header.directory.is_some());
    assert_eq!(adopt_all(&warm, &mut found).unwrap(), scanned);
    assert_eq!(warm.containers()[0].header.fragments, 18);
    assert_eq!(warm.containers()[0].header.payload_bytes, 6 * 9500);
}

#[test]
fn write_amplification_is_within_its_bounds() {
    for (fragment, most) in [(10 << 10, 1.02), (1 << 10, 1.06)] {
        let devices = [sim("one") as Arc<dyn Device>];
        let shape = WarmShape { container_bytes: 16 << 20, io_bytes: 1 << 20, ..SHAPE };
        let sizes = vec![3 * shape.container_bytes + 2 * shape.log_bytes + 8192];
        let warm = Arc::new(Warm::create(devices.to_vec(), sizes, STORE, WIDTHS, shape).unwrap());
        let mut writer = warm.writer(&Target { moving: true, ..target(1) }).unwrap();
        // Batches of about 2 MiB, an eighth of a container.
        for batch in 0..7 {
            let events: Vec<Event> = (0..(2 << 20) / (16 * fragment))
                .map(|at| Event::new(batch * 1000 + at as u64, &[fragment; 16]))
                .collect();
            append(&mut writer, &events).unwrap();
            writer.commit().unwrap();
        }
        writer.finish(soon()).unwrap();
        let counts = warm.devices()[0].counts;
        let amplification = counts.written() as f64 / counts.payload as f64;
        assert!(amplification <= most, "{fragment}: {amplification} {counts:?}");
        assert!(amplification >= 1.0 && counts.directory > 0 && counts.padding > 0 && counts.commits > 0);
    }
}
