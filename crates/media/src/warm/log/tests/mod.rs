//! The log on a device that fails in every way that a device can.

mod bed;
mod faults;
mod rot;

use super::format::{FILE_HEAD_BYTES, FILE_NAMES, HEAD_BLOCKS};
use super::*;
use crate::bytes::{BlobChunk, DecisionKind, Slot};
use crate::sim::{Fault, Operation};
use crate::warm::{BLOCK_BYTES, DirectoryDevice, IoMethod};
use bed::Bed;
use forebay_core::{Kind, Token, crc32c};

const STORE: [u8; 16] = [5; 16];
const LOG_BYTES: u64 = 64 << 10;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn decision(number: u64) -> Decision {
    let token = Token { epoch: 1, boot: 1, counter: number };
    Decision { token, fragments: number as u32, ..Decision::about(DecisionKind::Reject, &number.to_be_bytes()) }
}

fn create(bed: &Bed) -> DeviceLog {
    DeviceLog::create(&[bed.device()], STORE, 16, LOG_BYTES).unwrap()
}

fn open(bed: &Bed) -> Result<OpenedLogs> {
    DeviceLog::open(&[bed.device()], STORE, 16, LOG_BYTES, false)
}

/// Appends a decision and waits for it.
fn decide(log: &DeviceLog, number: u64) -> Result<()> {
    log.wait(0, log.append_decision(&decision(number)), soon())
}

/// Appends decisions and waits for none.
fn append(log: &DeviceLog, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| _ = log.append_decision(&decision(number)));
}

/// Writes a snapshot of the first device's log.
fn take_snapshot(log: &DeviceLog, count: u64) -> Result<()> {
    log.replace(0, 1, || Ok(snapshot(count)), soon())
}

/// A snapshot that says which decisions it replaces: the numbers below `count`.
fn snapshot(count: u64) -> Vec<u8> {
    (0..count).flat_map(u64::to_le_bytes).collect()
}

/// The numbers of the decisions that a log tells of, its snapshot's included; other blobs are left out.
fn told(slots: &LogSlots) -> Vec<u64> {
    let mut numbers = Vec::new();
    slots
        .each(&mut |slot| {
            match slot {
                Slot::Decision(told) => {
                    assert_eq!(told, decision(told.token.counter));
                    numbers.push(told.token.counter);
                }
                Slot::Blob(BlobChunk { blob: Blob::Snapshot, first: true, last: true, data }) => {
                    assert!(numbers.is_empty(), "a snapshot comes first");
                    numbers.extend(data.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())));
                }
                Slot::Blob(chunk) => assert!(chunk.first && chunk.last && chunk.data.iter().all(|byte| *byte == 7)),
            }
            Ok(())
        })
        .unwrap();
    numbers
}

fn numbers(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[test]
fn what_was_appended_comes_back_in_order_from_every_device() {
    let (first, second) = (Bed::new(), Bed::new());
    let devices = [first.device(), second.device()];
    let log = DeviceLog::create(&devices, STORE, 16, 1 << 20).unwrap();
    let blob = vec![7; 10_000];
    for number in 0..500 {
        let position = log.append_decision(&decision(number));
        if number % 100 == 0 {
            log.wait((number / 100 % 2) as u32, position, soon()).unwrap();
            log.append_blob(Blob::Run, &blob);
        }
    }
    log.append_blob(Blob::Stream, &[]);
    log.close(soon()).unwrap();
    let (again, slots, losses) = DeviceLog::open(&devices, STORE, 16, 1 << 20, false).unwrap();
    assert_eq!(losses, Vec::<String>::new());
    for slots in &slots {
        assert_eq!(told(slots), numbers(500));
        assert_eq!((slots.position(), slots.end(), slots.boot()), (0, 506, 0));
        let mut blobs = Vec::new();
        let of_runs = |slot: &Slot| matches!(slot, Slot::Blob(chunk) if chunk.blob == Blob::Run);
        slots
            .each(&mut |slot| {
                blobs.extend(of_runs(&slot).then_some(slot));
                Ok(())
            })
            .unwrap();
        let whole = BlobChunk { blob: Blob::Run, first: true, last: true, data: blob.clone() };
        assert_eq!(blobs, vec![Slot::Blob(whole); 5]);
    }
    // Its end could be torn, so it takes nothing before a snapshot has replaced it.
    let refused = decide(&again, 1).unwrap_err();
    assert_eq!((refused.kind(), refused.message().contains("no snapshot")), (Kind::Unavailable, true));
    again.replace(0, 7, || Ok(snapshot(3)), soon()).unwrap();
    decide(&again, 3).unwrap();
    let (_, slots, _) = DeviceLog::open(&devices, STORE, 16, 1 << 20, false).unwrap();
    assert_eq!((told(&slots[0]), slots[0].boot()), (numbers(4), 7));
    // What the other one refused is in no gap of it: it stays where it was.
    assert_eq!(told(&slots[1]), numbers(500));
    assert!(slots[0].end() > slots[1].end());
}

#[test]
fn a_directory_of_the_file_system_holds_it() {
    let path = std::env::temp_dir().join(format!("forebay-device-log-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let device = || -> Arc<dyn Device> { Arc::new(DirectoryDevice::open(&path, IoMethod::Auto, true).unwrap()) };
    {
        let log = DeviceLog::create(&[device()], STORE, 16, 1 << 20).unwrap();
        append(&log, 0..1000);
        log.flush(0, soon()).unwrap();
        take_snapshot(&log, 1000).unwrap();
        decide(&log, 1000).unwrap();
        log.close(soon()).unwrap();
    }
    for count in [1001, 1002] {
        let (log, slots, losses) = DeviceLog::open(&[device()], STORE, 16, 1 << 20, false).unwrap();
        assert_eq!((told(&slots[0]), losses.len()), (numbers(count), 0));
        take_snapshot(&log, count).unwrap();
        decide(&log, count).unwrap();
    }
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn threads_share_commits() {
    let bed = Bed::slow(Duration::from_millis(2));
    let log = DeviceLog::create(&[bed.device()], STORE, 16, 1 << 20).unwrap();
    let before = bed.count(Operation::Sync);
    const THREADS: u64 = 8;
    const EACH: u64 = 40;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || (0..EACH).for_each(|n| decide(log, thread * EACH + n).unwrap()));
        }
    });
    let syncs = bed.count(Operation::Sync) - before;
    assert!(syncs < THREADS * EACH * 3 / 4, "{syncs} syncs for {} decisions", THREADS * EACH);
    assert_eq!(log.info(0).unwrap().commits, syncs);
    let (_, slots, _) = DeviceLog::open(&[bed.device()], STORE, 16, 1 << 20, false).unwrap();
    let mut found = told(&slots[0]);
    for thread in 0..THREADS {
        let of_thread = found.iter().filter(|n| **n / EACH == thread).copied().collect::<Vec<_>>();
        assert!(of_thread.is_sorted(), "a thread's decisions keep their order");
    }
    found.sort_unstable();
    assert_eq!(found, numbers(THREADS * EACH));
}

#[test]
fn a_full_log_takes_nothing_until_its_snapshot() {
    let bed = Bed::new();
    let log = create(&bed);
    let blocks = u64::from(log.info(0).unwrap().blocks);
    assert_eq!((blocks, log.fill(0)), (14, 0.0));
    for number in 0..blocks {
        decide(&log, number).unwrap();
    }
    assert_eq!(log.fill(0), 1.0);
    let position = log.append_decision(&decision(blocks));
    let late = log.wait(0, position, Instant::now() + Duration::from_millis(20)).unwrap_err();
    assert_eq!((late.kind(), log.is_poisoned(0)), (Kind::Unavailable, false));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.wait(0, position, soon()));
        take_snapshot(&log, blocks + 1).unwrap();
        waits.join().unwrap().unwrap();
    });
    for more in 1..6 {
        take_snapshot(&log, blocks + more).unwrap();
        assert!(log.fill(0) < 0.1);
        decide(&log, blocks + more).unwrap();
    }
    let (_, slots, _) = open(&bed).unwrap();
    assert_eq!(told(&slots[0]), numbers(blocks + 6));
}

#[test]
fn a_snapshot_that_its_file_cannot_hold_gets_a_larger_one() {
    let bed = Bed::new();
    let log = create(&bed);
    decide(&log, 0).unwrap();
    let many = LOG_BYTES / 4;
    for round in 0..3 {
        take_snapshot(&log, many + round).unwrap();
        decide(&log, many + round).unwrap();
        let info = log.info(0).unwrap();
        assert!(info.file_bytes >= 2 * 8 * many && log.fill(0) < 0.6, "{info:?}");
    }
    let (log, slots, losses) = open(&bed).unwrap();
    assert_eq!((told(&slots[0]), losses.len()), (numbers(many + 3), 0));
    take_snapshot(&log, 5).unwrap();
    decide(&log, 5).unwrap();
    assert_eq!(told(&open(&bed).unwrap().1[0]), numbers(6));
}

#[test]
fn appending_touches_memory_only_and_is_bounded() {
    let bed = Bed::new();
    let log = DeviceLog::create(&[bed.device()], STORE, 16, 8 << 20).unwrap();
    let writes = bed.count(Operation::Write);
    let count = 3 * (super::tail::TAIL_BYTES as u64 / 64);
    append(&log, 0..count);
    // Longer than a commit: it has one of its own.
    log.append_blob(Blob::Run, &vec![7; 2 << 20]);
    assert_eq!(bed.count(Operation::Write), writes);
    log.flush(0, soon()).unwrap();
    assert!(log.info(0).unwrap().commits >= 4);
    let (_, slots, _) = DeviceLog::open(&[bed.device()], STORE, 16, 8 << 20, false).unwrap();
    assert_eq!(told(&slots[0]), numbers(count));
    let position = log.append_decision(&decision(0));
    append(&log, 0..super::tail::ENTRIES_MAX as u64);
    assert!(log.is_poisoned(0), "its next snapshot has them");
    assert_eq!(log.wait(0, position, soon()).unwrap_err().kind(), Kind::Unavailable);
    take_snapshot(&log, 9).unwrap();
    log.wait(0, position, soon()).unwrap();
}

#[test]
fn a_snapshot_has_what_came_before_it_and_keeps_what_comes_beside_it() {
    let bed = Bed::new();
    let log = create(&bed);
    decide(&log, 0).unwrap();
    let pending = log.append_decision(&decision(1));
    let mut beside = 0;
    let capture = || {
        // Durable in the file in force as well as in the next one.
        log.wait(0, log.append_decision(&decision(2)), soon()).unwrap();
        beside = log.append_decision(&decision(3));
        Ok(snapshot(2))
    };
    log.replace(0, 1, capture, soon()).unwrap();
    log.wait(0, pending, soon()).unwrap();
    log.wait(0, beside, soon()).unwrap();
    decide(&log, 4).unwrap();
    let (_, slots, _) = open(&bed).unwrap();
    assert_eq!((told(&slots[0]), slots[0].position(), slots[0].end()), (numbers(5), 2, 5));
    assert_eq!(log.info(0).unwrap().generation, 2);
}

#[test]
fn another_stores_log_and_a_swapped_directory_are_refused() {
    let (first, second) = (Bed::new(), Bed::new());
    drop(DeviceLog::create(&[first.device(), second.device()], STORE, 16, LOG_BYTES).unwrap());
    let of = |devices: &[Arc<dyn Device>], store, key_bytes| {
        DeviceLog::open(devices, store, key_bytes, LOG_BYTES, true).err().unwrap()
    };
    let both = [first.device(), second.device()];
    let foreign = of(&both, [6; 16], 16);
    assert_eq!(foreign.kind(), Kind::Invalid);
    assert!(foreign.message().contains("0505") && foreign.message().contains("0606"), "{foreign}");
    let swapped = of(&[second.device(), first.device()], STORE, 16);
    assert_eq!(swapped.kind(), Kind::Invalid);
    assert!(swapped.message().contains("file 0 of device 1"), "{swapped}");
    assert_eq!(of(&both, STORE, 20).kind(), Kind::Invalid);
    let again = DeviceLog::create(&both, STORE, 16, LOG_BYTES).err().unwrap();
    assert_eq!(again.kind(), Kind::Invalid);
}

#[test]
fn a_log_of_an_earlier_build_is_refused_with_words() {
    let bed = Bed::new();
    drop(create(&bed));
    for name in FILE_NAMES {
        bed.alter(name, |bytes| {
            for head in bytes.chunks_mut(BLOCK_BYTES).take(HEAD_BLOCKS as usize) {
                head[8..12].copy_from_slice(&1_u32.to_le_bytes());
                let crc = crc32c(&head[..FILE_HEAD_BYTES - 4]);
                head[FILE_HEAD_BYTES - 4..FILE_HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
            }
        });
    }
    let refused = open(&bed).err().unwrap();
    assert_eq!(refused.kind(), Kind::Invalid);
    assert!(refused.message().contains("version 1") && refused.message().contains("reads 2 to 3"), "{refused}");
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let bed = Bed::new();
    for (key_bytes, log_bytes) in [(16, 4096), (16, LOG_BYTES + 1), (16, 8 << 30), (0, LOG_BYTES), (33, LOG_BYTES)] {
        let refused = DeviceLog::create(&[bed.device()], STORE, key_bytes, log_bytes).err().unwrap();
        assert_eq!(refused.kind(), Kind::Invalid, "{key_bytes} {log_bytes}");
    }
    assert_eq!(DeviceLog::create(&[], STORE, 16, LOG_BYTES).err().unwrap().kind(), Kind::Invalid);
}
