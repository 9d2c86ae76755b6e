//! Bytes that change by themselves, blocks that cannot be read, files that are missing or short.

use super::*;
use crate::sim::{ShiftingDevice, SimDevice};

/// Commits of one decision, of 70 and of one again, and the bytes of the file that they are in.
fn written(close: bool) -> (Bed, u64) {
    let bed = Bed::new();
    let log = create(&bed);
    take_snapshot(&log, 3).unwrap();
    decide(&log, 3).unwrap();
    append(&log, 4..74);
    log.flush(0, soon()).unwrap();
    decide(&log, 74).unwrap();
    if close {
        log.close(soon()).unwrap();
    }
    (bed, 75)
}

const FILE: &str = FILE_NAMES[1];
/// The snapshot's block, then one, two and one.
const BLOCKS: usize = 5;

fn at(block: usize) -> usize {
    (2 + block) * BLOCK_BYTES
}

#[test]
fn rot_in_front_of_a_commit_is_named() {
    let (bed, count) = written(true);

    for byte in (at(0)..at(BLOCKS)).step_by(13) {
        let bed = bed.copy();
        bed.alter(FILE, |bytes| bytes[byte] ^= 0x10);
        let (block, offset) = (byte / BLOCK_BYTES - 2, byte % BLOCK_BYTES);
        let slots = [1, 1, 63, 7, 1][block];
        let damaged = offset < 32 + slots * 64;
        match open(&bed) {
            Ok((_, slots, losses)) => {
                assert!(!damaged, "byte {offset} of block {block} has rotted unseen");
                assert!(losses.is_empty());
                assert_eq!(told(&slots[0]), numbers(count));
            }
            Err(error) => {
                assert!(damaged, "{error}");
                assert_eq!(error.kind(), Kind::Corrupt);
                assert!(error.message().contains(&format!("block {block}")), "{error}");
                let (log, slots, losses) = DeviceLog::open(&[bed.device()], STORE, 16, LOG_BYTES, true).unwrap();
                assert_eq!(losses.len(), 1, "{losses:?}");
                let left = told(&slots[0]);
                assert!(left.is_sorted() && left.len() as u64 >= count - 3, "{left:?}");
                take_snapshot(&log, 2).unwrap();
                assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(2));
            }
        }
    }
}

#[test]
fn rot_in_the_last_commit_is_told_from_a_torn_write_where_a_sector_shows_it() {
    let (bed, _) = written(false);

    // The last block: head and one slot in one sector.
    for byte in at(4)..at(4) + 32 + 64 {
        let bed = bed.copy();
        bed.alter(FILE, |bytes| bytes[byte] ^= 1);
        assert_eq!(open(&bed).err().unwrap().kind(), Kind::Corrupt, "byte {}", byte - at(4));
    }
    // The whole sector as it was before: a torn write, never acknowledged as far as anybody can tell.
    let bed = bed.copy();
    bed.alter(FILE, |bytes| bytes[at(4)..at(4) + 512].fill(0));
    assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(74));
    // With the end marked even that is seen.
    let (bed, _) = written(true);
    bed.alter(FILE, |bytes| bytes[at(4)..at(4) + 512].fill(0));
    assert_eq!(open(&bed).err().unwrap().kind(), Kind::Corrupt);
}

#[test]
fn a_lost_sector_in_front_of_a_commit_is_no_torn_write() {
    // Without the mark of the end; sectors of the commit of seventy, in front of the last commit of one.
    let (bed, _) = written(false);

    for sector in 0..9 {
        let bed = bed.copy();
        bed.alter(FILE, |bytes| bytes[at(2) + sector * 512..at(2) + (sector + 1) * 512].fill(0));
        assert_eq!(open(&bed).err().unwrap().kind(), Kind::Corrupt, "sector {sector}");
    }
    // The same sectors of the last commit that left anything: a torn write, which counts up to there.
    for sector in 1..8_u64 {
        let bed = bed.copy();
        bed.alter(FILE, |bytes| {
            bytes[at(4)..at(5)].fill(0);
            bytes[at(2) + sector as usize * 512..at(3)].fill(0);
        });
        let slots = (sector * 512 - 32) / 64;
        assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(4 + slots), "sector {sector}");
    }
}

#[test]
fn a_lost_piece_loses_its_blob_and_nothing_else() {
    let bed = Bed::new();
    let log = create(&bed);
    decide(&log, 0).unwrap();
    log.append_blob(Blob::Run, &[7; 5000]);
    log.flush(0, soon()).unwrap();
    decide(&log, 1).unwrap();
    bed.alter(FILE_NAMES[0], |bytes| bytes[at(1) + 1000] ^= 1);
    let (_, slots, losses) = DeviceLog::open(&[bed.device()], STORE, 16, LOG_BYTES, true).unwrap();
    assert_eq!(losses.len(), 1);
    let mut kinds = Vec::new();
    slots[0]
        .each(&mut |slot| {
            kinds.push(matches!(slot, Slot::Decision(_)));
            Ok(())
        })
        .unwrap();
    assert_eq!(kinds, [true, true]);
}

#[test]
fn one_copy_of_a_head_is_enough_and_none_is_a_loss() {
    let (bed, count) = written(true);

    for copy in 0..2 {
        let bed = bed.copy();
        bed.alter(FILE, |bytes| bytes[copy * BLOCK_BYTES + 20] ^= 1);
        assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(count));
    }
    // The older file says itself that it does not count any more.
    bed.alter(FILE, |bytes| bytes[..2 * BLOCK_BYTES].fill(0));
    let error = open(&bed).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains("neither file is in force"), "{error}");
    let (log, slots, losses) = DeviceLog::open(&[bed.device()], STORE, 16, LOG_BYTES, true).unwrap();
    assert_eq!((told(&slots[0]), losses.len()), (Vec::new(), 1));
    take_snapshot(&log, 1).unwrap();
    decide(&log, 1).unwrap();
    // One snapshot is enough, although the other file says that it was replaced.
    let (_, slots, losses) = open(&bed).unwrap();
    assert_eq!((told(&slots[0]), losses.len()), (numbers(2), 0));
}

#[test]
fn what_cannot_be_read_is_a_loss_and_what_reads_short_is_not() {
    let (bed, count) = written(true);
    let short = bed.copy();
    (0..400).step_by(2).for_each(|skip| short.fault(Operation::Read, skip, Fault::Short));
    assert_eq!(told(&open(&short).unwrap().1[0]), numbers(count));
    let shifting = ShiftingDevice::new(SimDevice::new("/dev/shifting", 1 << 20), 5);
    let device: Arc<dyn Device> = shifting;
    let log = DeviceLog::create(std::slice::from_ref(&device), STORE, 16, LOG_BYTES).unwrap();
    append(&log, 0..200);
    log.flush(0, soon()).unwrap();
    take_snapshot(&log, 200).unwrap();
    decide(&log, 200).unwrap();
    let (_, slots, _) = DeviceLog::open(&[device], STORE, 16, LOG_BYTES, false).unwrap();
    assert_eq!(told(&slots[0]), numbers(201));
    // One block cannot be read; those beside it can.
    for block in [2, 9] {
        let bed = bed.copy();
        bed.faulty.refuse_reads(FILE, at(block) as u64..at(block) as u64 + 1);
        let error = open(&bed).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().contains(&format!("block {block} cannot be read")), "{error}");
        let (_, slots, losses) = DeviceLog::open(&[bed.device()], STORE, 16, LOG_BYTES, true).unwrap();
        assert_eq!(losses.len(), 1, "{losses:?}");
        let left = told(&slots[0]).len() as u64;
        assert_eq!(left, if block == 2 { count - 63 } else { count });
    }
}

#[test]
fn missing_and_short_files_are_losses() {
    let (whole, count) = written(true);

    // The file in force ends early.
    let bed = whole.copy();
    bed.alter(FILE, |bytes| bytes.truncate(at(2)));
    let error = open(&bed).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains("of 65536"), "{error}");
    let (log, slots, _) = DeviceLog::open(&[bed.device()], STORE, 16, LOG_BYTES, true).unwrap();
    assert_eq!(told(&slots[0]), numbers(4));
    for snapshot in 0..3 {
        take_snapshot(&log, 4 + snapshot).unwrap();
        decide(&log, 4 + snapshot).unwrap();
    }
    assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(7));
    // The other one is missing: it is made again.
    let bed = whole.copy();
    bed.sim.remove(FILE_NAMES[0]).unwrap();
    bed.sim.sync_names().unwrap();
    let (log, slots, _) = open(&bed).unwrap();
    assert_eq!(told(&slots[0]), numbers(count));
    take_snapshot(&log, count).unwrap();
    assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(count));
    // Both are missing.
    let bed = Bed::new();
    assert_eq!(open(&bed).err().unwrap().kind(), Kind::Corrupt);
}

#[test]
fn any_image_of_a_file_is_read_without_panic() {
    let (bed, _) = written(true);
    let bytes = bed.bytes(FILE);
    let mut random = 88172645463325252_u64;
    for _ in 0..2000 {
        let mut bytes = bytes.clone();
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = (random >> 20) as usize % (7 * BLOCK_BYTES);
            bytes[place] ^= 1 << (random & 7);
        }
        bytes.truncate((random >> 11) as usize % bytes.len());
        super::super::decode(&bytes, STORE, 16);
    }
}
