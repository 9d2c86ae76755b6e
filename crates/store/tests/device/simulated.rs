//! The device that forgets what was not synced, and the one that shifts and shortens.

use crate::device::conformance::{pattern, read_all, suite, write_all};
use forebay_store::{BLOCK_BYTES, Device, FileId};
use forebay_testkit::media::{ShiftingDevice, SimDevice};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;
const SECTOR: usize = 512;
const WAIT: Duration = Duration::from_secs(20);

fn new() -> Arc<SimDevice> {
    SimDevice::new("simulated", 16 << 20)
}

#[test]
fn the_simulated_device_conforms() {
    suite(&(new() as Arc<dyn Device>));
}

#[test]
fn the_shifting_device_conforms() {
    for seed in 0..4 {
        suite(&(ShiftingDevice::new(new(), seed) as Arc<dyn Device>));
    }
}

#[test]
fn bytes_at_rest_are_shifted_and_transfers_short() {
    let inner = new();
    let device = ShiftingDevice::new(inner.clone(), 5);
    let file = device.create("shift.fb", 8 * BLOCK).unwrap();
    let bytes = pattern(8 * BLOCK_BYTES, 1);
    let moved: BTreeSet<usize> = (0..50).map(|_| device.write(file, 0, &bytes).unwrap()).collect();
    assert!(moved.len() > 3 && moved.iter().all(|&moved| moved < bytes.len()), "{moved:?}");
    write_all(device.as_ref(), file, 0, &bytes);
    let at_rest = read_all(inner.as_ref(), file, 0, bytes.len());
    assert!(at_rest.iter().zip(bytes.iter()).all(|(rest, byte)| *rest == byte.wrapping_add(1)));
}

/// A file of 4 blocks: the first block old and synced, then written again; the third new; neither synced.
fn half_synced(device: &dyn Device) -> FileId {
    let file = device.create("power.fb", 4 * BLOCK).unwrap();
    write_all(device, file, 0, &pattern(BLOCK_BYTES, 1));
    write_all(device, file, BLOCK, &pattern(BLOCK_BYTES, 2));
    device.sync(file).unwrap();
    device.sync_names().unwrap();
    write_all(device, file, 0, &pattern(BLOCK_BYTES, 3));
    write_all(device, file, 2 * BLOCK, &pattern(BLOCK_BYTES, 4));
    file
}

#[test]
fn a_power_loss_keeps_what_was_synced_and_some_sectors_of_the_rest() {
    let device = new();
    let file = half_synced(device.as_ref());
    let (mut kept, mut lost, mut mixed) = (0, 0, 0);
    for seed in 0..64 {
        let left = device.power_off(seed);
        let (found, length) = left.open("power.fb").unwrap();
        assert_eq!(length, 4 * BLOCK);
        let bytes = read_all(left.as_ref(), found, 0, 4 * BLOCK_BYTES);
        assert!(bytes[BLOCK_BYTES..2 * BLOCK_BYTES] == pattern(BLOCK_BYTES, 2)[..], "synced");
        assert!(bytes[3 * BLOCK_BYTES..].iter().all(|&byte| byte == 0), "never written");
        let (old, new) = (pattern(BLOCK_BYTES, 1), pattern(BLOCK_BYTES, 3));
        let sectors = bytes[..BLOCK_BYTES].chunks(SECTOR).zip(old.chunks(SECTOR).zip(new.chunks(SECTOR)));
        let landed = sectors
            .map(|(now, (old, new))| {
                assert!(now == old || now == new, "a sector is whole");
                usize::from(now == new)
            })
            .sum();
        match landed {
            0 => lost += 1,
            8 => kept += 1,
            _ => mixed += 1,
        }
    }
    assert!(lost >= 16 && kept >= 16 && mixed >= 16, "lost {lost}, kept {kept}, mixed {mixed}");
    let same = |seed| read_all(device.power_off(seed).as_ref(), FileId(0), 0, 4 * BLOCK_BYTES);
    assert!(same(7)[..] == same(7)[..], "a seed says all");

    device.sync(file).unwrap();
    for seed in 0..8 {
        let left = device.power_off(seed);
        assert!(read_all(left.as_ref(), FileId(0), 0, BLOCK_BYTES)[..] == pattern(BLOCK_BYTES, 3)[..], "synced now");
    }
}

#[test]
fn a_sync_covers_only_what_had_ended_before_it() {
    let device = new();
    let file = device.create("order.fb", 4 * BLOCK).unwrap();
    device.sync_names().unwrap();
    let mut queue = device.queue(4).unwrap();
    queue.write(1, file, 0, pattern(BLOCK_BYTES, 1), BLOCK_BYTES);
    assert!(queue.complete(WAIT).unwrap().result.is_ok());
    queue.write(2, file, BLOCK, pattern(BLOCK_BYTES, 2), BLOCK_BYTES);
    queue.sync(3, file);
    while let Some(done) = queue.complete(WAIT) {
        done.result.unwrap();
    }
    // Seed 0 keeps nothing that a sync has not covered.
    let left = device.power_off(0);
    assert!(read_all(left.as_ref(), FileId(0), 0, BLOCK_BYTES)[..] == pattern(BLOCK_BYTES, 1)[..]);
    assert!(read_all(left.as_ref(), FileId(0), BLOCK, BLOCK_BYTES).iter().all(|&byte| byte == 0));
    queue.sync(4, file);
    queue.complete(WAIT).unwrap().result.unwrap();
    let left = device.power_off(0);
    assert!(read_all(left.as_ref(), FileId(0), BLOCK, BLOCK_BYTES)[..] == pattern(BLOCK_BYTES, 2)[..]);
}

#[test]
fn operations_end_in_any_order() {
    let device = new();
    let file = device.create("order.fb", 64 * BLOCK).unwrap();
    let mut queue = device.queue(16).unwrap();
    for tag in 0..16 {
        queue.write(tag, file, tag * BLOCK, pattern(BLOCK_BYTES, tag), BLOCK_BYTES);
    }
    let order: Vec<u64> = std::iter::from_fn(|| queue.complete(WAIT)).map(|done| done.tag).collect();
    assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), (0..16).collect());
    assert!(!order.is_sorted(), "{order:?}");
}

#[test]
fn names_are_durable_after_their_sync() {
    let device = new();
    device.create("old.fb", BLOCK).unwrap();
    device.sync_names().unwrap();
    device.create("new.fb", BLOCK).unwrap();
    device.remove("old.fb").unwrap();
    let left: BTreeSet<Vec<String>> = (0..64).map(|seed| device.power_off(seed).list().unwrap()).collect();
    let all = [vec![], vec!["new.fb"], vec!["new.fb", "old.fb"], vec!["old.fb"]];
    assert_eq!(left, all.map(|names| names.into_iter().map(str::to_owned).collect()).into());
    device.sync_names().unwrap();
    assert!((0..64).all(|seed| device.power_off(seed).list().unwrap() == ["new.fb"]));
}

#[test]
fn the_power_goes_at_any_step() {
    let count = {
        let device = new();
        half_synced(device.as_ref());
        device.steps()
    };
    assert_eq!(count, 7, "one creation, four writes, two syncs");
    for step in 1..=count {
        let device = new();
        let left = Arc::new(Mutex::new(None));
        let keep = left.clone();
        device.before_step(step, move |device| *keep.lock() = Some(device.power_off(1)));
        half_synced(device.as_ref());
        let left = left.lock().take().expect("the step came");
        // Seed 1 keeps everything that was begun, so it shows how far it went.
        let Ok((file, _)) = left.open("power.fb") else {
            assert_eq!(step, 1);
            continue;
        };
        let block = |number: u64| read_all(left.as_ref(), file, number * BLOCK, BLOCK_BYTES)[..8].to_vec();
        let is = |number, seed| block(number) == pattern(BLOCK_BYTES, seed)[..8];
        assert_eq!((is(0, 1), is(0, 3)), ((3..=6).contains(&step), step > 6), "step {step}");
        assert_eq!(is(1, 2), step > 3, "step {step}");
        assert!(!is(2, 4), "the last write has not begun");
    }
}

#[test]
fn space_is_bounded() {
    let device = SimDevice::new("small", 4 * BLOCK);
    device.create("a.fb", 3 * BLOCK).unwrap();
    assert_eq!(device.free_bytes().unwrap(), BLOCK);
    let error = device.create("b.fb", 2 * BLOCK).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("wants 8192 bytes, 4096 are free"), "{error}");
    device.remove("a.fb").unwrap();
    device.sync_names().unwrap();
    device.create("b.fb", 4 * BLOCK).unwrap();
}
