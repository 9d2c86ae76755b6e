//! Requests that cannot be met, and their errors.

use super::*;
use forebay_core::crc32c;

#[test]
fn what_fits_no_container_is_answered_so() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 4);
    let most = warm.payload_bytes_max() as usize;
    let mut writer = warm.writer(&target(1)).unwrap();
    let events =
        [Event::new(1, &[most]), Event::new(2, &[most + 1]), Event::new(3, &[10]), Event::new(4, &[most / 2; 3])];
    let placed = append(&mut writer, &events).unwrap();
    assert_eq!((&placed[1], &placed[3]), (&Placed::TooLarge, &Placed::TooLarge));
    let ticket = writer.commit().unwrap();
    writer.wait(ticket, soon()).unwrap();
    for at in [0, 2] {
        assert_eq!(read(&warm, place_of(&placed[at]), 0).unwrap(), events[at]);
    }
    assert_eq!(append(&mut writer, &events[1..2]).unwrap(), [Placed::TooLarge]);
    assert_eq!(append(&mut writer, &[]).unwrap(), []);
}

#[test]
fn keys_of_other_lengths_are_refused() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 4);
    let mut writer = warm.writer(&target(1)).unwrap();
    let entry = EntryDraft { rest: &[1, 2], payload: b"x", crc: 0, status: 0, version: 0, flags: EntryFlags::FRAGMENT };
    for (primary, entries) in [(&[0; 8][..], vec![]), (&[0; 9][..], vec![entry])] {
        let plan = ImageDraft { primary, marks: ImageMarks::default(), entries, record: None };
        assert_eq!(writer.append(&[plan], ExtentKind::Demoted).unwrap_err().kind(), Kind::Invalid);
    }
    let group = Target { stream: Stream::Recording(0x8000), kind: ContainerKind::Recording, ..target(1) };
    assert_eq!(warm.writer(&group).err().map(|error| error.kind()), Some(Kind::Invalid));
}

#[test]
fn bytes_that_do_not_have_their_checksum_are_not_placed() {
    let devices = [sim("one") as Arc<dyn Device>];
    let warm = create(&devices, 6);
    let mut writer = warm.writer(&target(1)).unwrap();
    let good: Vec<Event> = [1, 3, 5].iter().map(|number| Event::new(*number, &[500, 600])).collect();
    // One image of a few bytes, one over several buffers: its head is held back until the last byte was seen.
    for (small, large) in [(100, 70_000), (5000, 100_000)] {
        let payloads = [vec![1; small], vec![2; large], vec![3; small], vec![4; large]];
        let rests: Vec<[u8; 3]> = (0..4).map(rest).collect();
        let entries = payloads.iter().zip(&rests).enumerate().map(|(at, (payload, rest))| EntryDraft {
            rest,
            payload,
            crc: crc32c(payload) ^ u32::from(at == 1 || at == 2),
            status: 5,
            version: 0,
            flags: EntryFlags::FRAGMENT,
        });
        let plan =
            ImageDraft { primary: &[9; 9], marks: ImageMarks::default(), entries: entries.collect(), record: None };
        let live = warm.containers().iter().map(|info| info.live_fragments).sum::<u32>();
        assert_eq!(writer.append(&[plan], ExtentKind::Demoted).unwrap(), [Placed::Rotten(vec![1, 2])]);
        assert_eq!(warm.containers().iter().map(|info| info.live_fragments).sum::<u32>(), live);
    }
    write_durably(&mut writer, &good);
    drop(writer);
    // Once by the scan, once by the directory that it left.
    reopen_and_compare(&devices, &good);
    reopen_and_compare(&devices, &good);
}

#[test]
fn devices_that_are_in_use_too_small_or_foreign_are_refused() {
    let device: Arc<dyn Device> = sim("one");
    let kind = |result: Result<Warm>| result.err().map(|error| error.kind());
    let make = |devices: &[&Arc<dyn Device>], bytes: u64| {
        let devices: Vec<Arc<dyn Device>> = devices.iter().map(|device| (*device).clone()).collect();
        let sizes = vec![bytes; devices.len()];
        Warm::create(devices, sizes, STORE, WIDTHS, SHAPE)
    };
    assert_eq!(kind(make(&[&device], bytes_for(1) - 1)), Some(Kind::Invalid));
    assert_eq!(kind(make(&[], 0)), Some(Kind::Invalid));
    let not_warm = Warm::open(vec![device.clone()], STORE, WIDTHS, SHAPE, false).map(|(warm, _)| warm);
    assert_eq!(kind(not_warm), Some(Kind::Invalid));
    make(&[&device], bytes_for(2)).unwrap();
    assert_eq!(kind(make(&[&device], bytes_for(2))), Some(Kind::Conflict));
    let opened = |store, widths| Warm::open(vec![device.clone()], store, widths, SHAPE, true).map(|(warm, _)| warm);
    assert_eq!(kind(opened([1; 16], WIDTHS)), Some(Kind::Invalid));
    assert_eq!(kind(opened(STORE, (8, 4))), Some(Kind::Invalid));
    let twice = Warm::open(vec![device.clone(), device.clone()], STORE, WIDTHS, SHAPE, true).map(|(warm, _)| warm);
    assert_eq!(kind(twice), Some(Kind::Invalid));
    // What was made before the space ran out is removed again, also on the device that had it.
    let (large, little) = (sim("large") as Arc<dyn Device>, SimDevice::new("little", bytes_for(2)) as Arc<dyn Device>);
    assert_eq!(kind(make(&[&large, &little], bytes_for(3))), Some(Kind::Full));
    assert_eq!((large.list().unwrap().len(), little.list().unwrap().len()), (0, 0));
    assert!(make(&[&large], bytes_for(3)).is_ok());
}

#[test]
fn a_wait_ends_at_its_deadline_and_a_late_ticket_is_no_error() {
    let warm = create(&[sim("one") as Arc<dyn Device>], 4);
    let mut writer = warm.writer(&target(1)).unwrap();
    assert_eq!(writer.wait(Ticket(5), Instant::now()).unwrap_err().kind(), Kind::Unavailable);
    let nothing = writer.commit().unwrap();
    assert_eq!(writer.poll().unwrap(), nothing);
    append(&mut writer, &[Event::new(1, &[10])]).unwrap();
    let first = writer.commit().unwrap();
    let second = writer.commit().unwrap();
    assert!(first < second);
    writer.wait(second, soon()).unwrap();
    assert_eq!(writer.durable(), second);
    writer.wait(first, Instant::now()).unwrap();
}
