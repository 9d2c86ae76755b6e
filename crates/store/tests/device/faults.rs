//! Each fault does what it says, at once and through a queue, and nothing else.

use crate::device::conformance::{pattern, read_all, suite, write_all};
use forebay_store::{BLOCK_BYTES, Buffer, Device, FileId, Queue};
use forebay_testkit::media::{Fault, FaultyDevice, Operation, SimDevice};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCK: u64 = BLOCK_BYTES as u64;
const WAIT: Duration = Duration::from_secs(20);
const EIO: Option<i32> = Some(5);

struct Setup {
    device: Arc<FaultyDevice>,
    file: FileId,
    queue: Box<dyn Queue>,
}

/// A file of 16 blocks, of which the first eight are written and synced.
fn setup() -> Setup {
    let device = FaultyDevice::new(SimDevice::new("inside", 1 << 20));
    let file = device.create("faults.fb", 16 * BLOCK).unwrap();
    write_all(device.as_ref(), file, 0, &pattern(8 * BLOCK_BYTES, 1));
    device.sync(file).unwrap();
    let queue = device.queue(4).unwrap();
    Setup { device, file, queue }
}

impl Setup {
    /// Spoils the next operation of this kind.
    fn spoil(&self, operation: Operation, fault: Fault) {
        self.device.inject(Some(operation), self.device.count(operation) + 1, fault);
    }

    fn write(&mut self, queued: bool, offset: u64, bytes: Buffer) -> io::Result<usize> {
        if !queued {
            return self.device.write(self.file, offset, &bytes);
        }
        let length = bytes.len();
        let copy = bytes.to_vec();
        self.queue.write(9, self.file, offset, bytes, length);
        let done = self.queue.complete(WAIT).unwrap();
        assert_eq!(done.tag, 9);
        assert!(done.buffer.unwrap()[..] == copy[..], "the buffer comes back as it was");
        done.result
    }

    fn sync(&mut self, queued: bool) -> io::Result<()> {
        if !queued {
            return self.device.sync(self.file);
        }
        self.queue.sync(10, self.file);
        let done = self.queue.complete(WAIT).unwrap();
        assert!(done.tag == 10 && done.buffer.is_none());
        done.result.map(|_| ())
    }

    fn read(&self, block: u64, blocks: usize) -> Buffer {
        read_all(self.device.as_ref(), self.file, block * BLOCK, blocks * BLOCK_BYTES)
    }

    /// Sectors of the first `blocks` blocks from `block` on that are those of `pattern(.., seed)`.
    fn landed(&self, block: u64, blocks: usize, seed: u64) -> usize {
        let (now, new) = (self.read(block, blocks), pattern(blocks * BLOCK_BYTES, seed));
        now.chunks(512).zip(new.chunks(512)).filter(|(now, new)| now == new).count()
    }
}

#[test]
fn without_faults_it_conforms() {
    suite(&(FaultyDevice::new(SimDevice::new("inside", 16 << 20)) as Arc<dyn Device>));
}

#[test]
fn a_failed_write_leaves_some_sectors() {
    for queued in [false, true] {
        let mut setup = setup();
        setup.spoil(Operation::Write, Fault::Fails);
        let error = setup.write(queued, 8 * BLOCK, pattern(4 * BLOCK_BYTES, 2)).unwrap_err();
        assert_eq!(error.raw_os_error(), EIO);
        let landed = setup.landed(8, 4, 2);
        assert!((1..32).contains(&landed), "{landed} of 32");
        assert_eq!(setup.landed(0, 8, 1), 64, "nothing else");
        assert_eq!(setup.write(queued, 8 * BLOCK, pattern(4 * BLOCK_BYTES, 2)).unwrap(), 4 * BLOCK_BYTES, "once");
        assert_eq!(setup.landed(8, 4, 2), 32);
    }
}

#[test]
fn a_short_write_says_so() {
    for queued in [false, true] {
        let mut setup = setup();
        setup.spoil(Operation::Write, Fault::Short);
        assert_eq!(setup.write(queued, 8 * BLOCK, pattern(5 * BLOCK_BYTES, 2)).unwrap(), 2 * BLOCK_BYTES);
        assert_eq!(setup.landed(8, 5, 2), 16, "two blocks");
        setup.spoil(Operation::Write, Fault::Short);
        assert_eq!(setup.write(queued, 8 * BLOCK, pattern(BLOCK_BYTES, 3)).unwrap(), 0, "half of a block is none");
    }
}

#[test]
fn a_torn_write_lies() {
    for queued in [false, true] {
        let mut setup = setup();
        setup.spoil(Operation::Write, Fault::Torn(3));
        assert_eq!(setup.write(queued, 8 * BLOCK, pattern(4 * BLOCK_BYTES, 2)).unwrap(), 4 * BLOCK_BYTES);
        let landed = setup.landed(8, 4, 2);
        assert!((1..32).contains(&landed), "{landed} of 32");
    }
}

#[test]
fn a_misdirected_write_lands_elsewhere() {
    for queued in [false, true] {
        let mut setup = setup();
        setup.spoil(Operation::Write, Fault::Misdirected(3));
        assert_eq!(setup.write(queued, 8 * BLOCK, pattern(2 * BLOCK_BYTES, 2)).unwrap(), 2 * BLOCK_BYTES);
        assert_eq!((setup.landed(8, 2, 2), setup.landed(11, 2, 2)), (0, 16));
        setup.spoil(Operation::Write, Fault::Misdirected(9));
        setup.write(queued, 8 * BLOCK, pattern(2 * BLOCK_BYTES, 3)).unwrap();
        assert_eq!(setup.landed(2, 2, 3), 16, "17 of 15 places: place 2");
    }
}

#[test]
fn a_failed_sync_loses_what_was_not_synced_and_the_next_one_succeeds() {
    for queued in [false, true] {
        let mut setup = setup();
        setup.write(queued, 6 * BLOCK, pattern(4 * BLOCK_BYTES, 2)).unwrap();
        assert_eq!(setup.landed(6, 4, 2), 32, "it can be read");
        setup.spoil(Operation::Sync, Fault::Fails);
        assert_eq!(setup.sync(queued).unwrap_err().raw_os_error(), EIO);
        setup.sync(queued).unwrap();
        assert_eq!(setup.landed(0, 8, 1), 64, "the bytes that were there before");
        assert!(setup.read(8, 8).iter().all(|&byte| byte == 0));
        setup.write(queued, 6 * BLOCK, pattern(4 * BLOCK_BYTES, 4)).unwrap();
        setup.sync(queued).unwrap();
        setup.spoil(Operation::Sync, Fault::Fails);
        assert!(setup.sync(queued).is_err());
        assert_eq!(setup.landed(6, 4, 4), 32, "what was synced before stays");
    }
}

#[test]
fn no_space_at_any_operation() {
    let mut setup = setup();
    for operation in [Operation::Create, Operation::Open, Operation::Remove, Operation::List, Operation::SyncNames] {
        setup.spoil(operation, Fault::Full);
        let device = &setup.device;
        let failed = match operation {
            Operation::Create => device.create("more.fb", BLOCK).map(|_| ()),
            Operation::Open => device.open("faults.fb").map(|_| ()),
            Operation::Remove => device.remove("faults.fb"),
            Operation::List => device.list().map(|_| ()),
            _ => device.sync_names(),
        };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull, "{operation:?}");
    }
    assert_eq!(setup.device.list().unwrap(), ["faults.fb"], "nothing was done");
    for queued in [false, true] {
        setup.spoil(Operation::Write, Fault::Full);
        let error = setup.write(queued, 0, pattern(BLOCK_BYTES, 2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        setup.spoil(Operation::Sync, Fault::Full);
        assert_eq!(setup.sync(queued).unwrap_err().kind(), ErrorKind::StorageFull);
    }
    assert_eq!(setup.landed(0, 8, 1), 64);
}

#[test]
fn any_operation_by_its_number_in_all() {
    let setup = setup();
    let total = setup.device.total();
    assert!(total >= 3 && setup.device.count(Operation::Create) == 1);
    setup.device.inject(None, total + 2, Fault::Fails);
    setup.device.list().unwrap();
    assert_eq!(setup.device.open("faults.fb").unwrap_err().raw_os_error(), EIO);
    setup.device.open("faults.fb").unwrap();
    assert_eq!(setup.device.total(), total + 3, "failed ones count");
    setup.device.inject(None, total + 4, Fault::Fails);
    setup.device.heal();
    setup.device.list().unwrap();
}

#[test]
fn reads_fail_rot_and_shorten() {
    let setup = setup();
    let mut into = Buffer::new(2 * BLOCK_BYTES);
    setup.device.refuse_reads("faults.fb", 5 * BLOCK + 100..5 * BLOCK + 101);
    for (block, fails) in [(3, false), (4, true), (5, true), (6, false)] {
        let read = setup.device.read(setup.file, block * BLOCK, &mut into);
        assert_eq!(read.is_err_and(|error| error.raw_os_error() == EIO), fails, "block {block}");
    }
    setup.device.heal();
    setup.device.rot("faults.fb", 2 * BLOCK + 77, 0x10).unwrap();
    let (now, was) = (setup.read(0, 8), pattern(8 * BLOCK_BYTES, 1));
    let differing: Vec<usize> = (0..was.len()).filter(|&at| now[at] != was[at]).collect();
    assert_eq!(differing, [2 * BLOCK_BYTES + 77]);
    assert_eq!(now[differing[0]] ^ was[differing[0]], 0x10);
    assert_eq!(setup.device.rot("faults.fb", 16 * BLOCK, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    setup.spoil(Operation::Read, Fault::Short);
    assert_eq!(setup.device.read(setup.file, 0, &mut into).unwrap(), BLOCK_BYTES);
}

#[test]
fn a_stalled_device_answers_later() {
    let mut setup = setup();
    let stall = Duration::from_millis(150);
    setup.spoil(Operation::Write, Fault::Stalls(stall));
    let begun = Instant::now();
    setup.queue.write(1, setup.file, 0, pattern(BLOCK_BYTES, 2), BLOCK_BYTES);
    assert!(setup.queue.complete(Duration::from_millis(20)).is_none());
    assert!(begun.elapsed() >= Duration::from_millis(20) && setup.queue.in_flight() == 1);
    let done = setup.queue.complete(WAIT).unwrap();
    assert!(done.result.is_ok() && begun.elapsed() >= stall);

    setup.device.stall(Duration::MAX);
    let device = setup.device.clone();
    let waker = std::thread::spawn(move || {
        std::thread::sleep(stall);
        device.stall(Duration::ZERO);
    });
    let begun = Instant::now();
    setup.device.list().unwrap();
    assert!(begun.elapsed() >= stall && begun.elapsed() < WAIT);
    waker.join().unwrap();
}

#[test]
fn a_device_that_vanishes_answers_nothing_but_errors() {
    let mut setup = setup();
    setup.queue.write(1, setup.file, 0, pattern(BLOCK_BYTES, 2), BLOCK_BYTES);
    setup.spoil(Operation::List, Fault::Vanishes);
    assert_eq!(setup.device.list().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(setup.queue.complete(WAIT).unwrap().result.is_err(), "also what was under way");
    for queued in [false, true] {
        assert!(setup.write(queued, 0, pattern(BLOCK_BYTES, 2)).is_err());
        assert!(setup.sync(queued).is_err());
    }
    let device = &setup.device;
    assert!(device.read(setup.file, 0, &mut Buffer::new(BLOCK_BYTES)).is_err());
    assert!(device.open("faults.fb").is_err() && device.create("more.fb", BLOCK).is_err());
    assert!(device.remove("faults.fb").is_err() && device.sync_names().is_err());
    assert!(device.free_bytes().is_err() && device.queue(1).is_err());
}
