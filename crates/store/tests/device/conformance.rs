//! What every device does, no matter how it is made.

use forebay_store::{BLOCK_BYTES, Buffer, Device, Done, FileId, Queue};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
/// How long a queue that is dropped waits for what is in flight (`crates/media/src/warm`).
pub(crate) const DROP_WAIT: Duration = Duration::from_millis(100);
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Runs the whole suite on an empty device.
pub(crate) fn suite(device: &Arc<dyn Device>) {
    names(device.as_ref());
    round_trips(device.as_ref());
    refusals(device.as_ref());
    queue_writes(device.as_ref());
    queue_refusals(device.as_ref());
    queue_moves_between_threads(device);
    drop_in_flight(device.as_ref());
    assert_eq!(device.list().unwrap(), Vec::<String>::new(), "each part tidies up");
}

/// Blocks that are all different, from `seed`.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::new(bytes);
    for (at, word) in buffer.chunks_exact_mut(8).enumerate() {
        let value = (seed << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes());
    }
    buffer
}

/// Writes all of it, however few bytes the device moves at a time.
pub(crate) fn write_all(device: &dyn Device, file: FileId, mut offset: u64, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let moved = device.write(file, offset, bytes).unwrap();
        assert!(moved > 0 && moved.is_multiple_of(BLOCK_BYTES), "moved {moved}");
        bytes = &bytes[moved..];
        offset += moved as u64;
    }
}

/// Reads all of it, likewise.
pub(crate) fn read_all(device: &dyn Device, file: FileId, offset: u64, bytes: usize) -> Buffer {
    let mut into = Buffer::new(bytes);
    let mut have = 0;
    while have < bytes {
        let moved = device.read(file, offset + have as u64, &mut into[have..]).unwrap();
        assert!(moved > 0 && moved.is_multiple_of(BLOCK_BYTES), "moved {moved}");
        have += moved;
    }
    into
}

fn names(device: &dyn Device) {
    assert!(!device.name().is_empty() && !device.method().is_empty());
    assert_eq!(device.list().unwrap(), Vec::<String>::new());
    assert!(device.free_bytes().unwrap() > 0);
    let first = device.create("b.fb", 8 * BLOCK).unwrap();
    let second = device.create("a.fb", 2 * BLOCK).unwrap();
    assert_ne!(first, second);
    device.sync_names().unwrap();
    assert_eq!(device.list().unwrap(), ["a.fb", "b.fb"]);
    assert_eq!(device.open("b.fb").unwrap().1, 8 * BLOCK);
    assert!(read_all(device, first, 0, 8 * BLOCK_BYTES).iter().all(|&byte| byte == 0), "a new file reads as zeros");

    assert_eq!(device.create("b.fb", BLOCK).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(device.open("c.fb").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(device.remove("c.fb").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(device.create("", BLOCK).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(device.create("../c.fb", BLOCK).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(device.create("c.fb", BLOCK + 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(device.create("c.fb", 0).unwrap_err().kind(), ErrorKind::InvalidInput);

    device.remove("b.fb").unwrap();
    assert_eq!(device.list().unwrap(), ["a.fb"]);
    let stale = device.read(first, 0, &mut Buffer::new(BLOCK_BYTES)).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::NotFound, "a removed file is none");
    let again = device.create("b.fb", BLOCK).unwrap();
    assert_eq!(device.open("b.fb").unwrap().1, BLOCK);
    assert!(read_all(device, again, 0, BLOCK_BYTES).iter().all(|&byte| byte == 0));
    device.remove("b.fb").unwrap();
    device.remove("a.fb").unwrap();
    device.sync_names().unwrap();
}

fn round_trips(device: &dyn Device) {
    let file = device.create("round.fb", 64 * BLOCK).unwrap();
    let bytes = pattern(24 * BLOCK_BYTES, 1);
    write_all(device, file, 8 * BLOCK, &bytes);
    device.sync(file).unwrap();
    assert!(read_all(device, file, 8 * BLOCK, bytes.len())[..] == bytes[..]);
    assert!(read_all(device, file, 0, 8 * BLOCK_BYTES).iter().all(|&byte| byte == 0), "nothing before it");
    assert!(read_all(device, file, 32 * BLOCK, 32 * BLOCK_BYTES).iter().all(|&byte| byte == 0), "nothing behind it");

    let other = pattern(BLOCK_BYTES, 2);
    write_all(device, file, 9 * BLOCK, &other);
    let read = read_all(device, file, 8 * BLOCK, 3 * BLOCK_BYTES);
    assert!(read[..BLOCK_BYTES] == bytes[..BLOCK_BYTES]);
    assert!(read[BLOCK_BYTES..2 * BLOCK_BYTES] == other[..]);
    assert!(read[2 * BLOCK_BYTES..] == bytes[2 * BLOCK_BYTES..3 * BLOCK_BYTES]);

    let (same, length) = device.open("round.fb").unwrap();
    assert_eq!(length, 64 * BLOCK);
    assert!(read_all(device, same, 9 * BLOCK, BLOCK_BYTES)[..] == other[..]);
    device.remove("round.fb").unwrap();
}

fn refusals(device: &dyn Device) {
    let file = device.create("refusals.fb", 2 * BLOCK).unwrap();
    let mut buffer = Buffer::new(4 * BLOCK_BYTES);
    let kind = |result: std::io::Result<usize>| result.unwrap_err().kind();
    assert_eq!(kind(device.write(file, 512, &buffer[..BLOCK_BYTES])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(file, 0, &buffer[..512])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(file, 0, &buffer[512..512 + BLOCK_BYTES])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.read(file, 512, &mut buffer[..BLOCK_BYTES])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.read(file, 0, &mut buffer[..512])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(file, 2 * BLOCK, &buffer[..BLOCK_BYTES])), ErrorKind::InvalidInput, "past the end");
    let over_the_end = device.write(file, BLOCK, &buffer[..2 * BLOCK_BYTES]);
    assert!(over_the_end.is_err() || over_the_end.is_ok_and(|moved| moved == BLOCK_BYTES), "refused, or short of it");
    assert_eq!(kind(device.write(file, !4095, &buffer[..BLOCK_BYTES])), ErrorKind::InvalidInput);
    assert_eq!(device.read(file, 2 * BLOCK, &mut buffer).unwrap(), 0, "there is nothing at the end");
    assert_eq!(device.open("refusals.fb").unwrap().1, 2 * BLOCK);
    assert_eq!(kind(device.write(FileId(u32::MAX), 0, &buffer[..BLOCK_BYTES])), ErrorKind::NotFound);
    assert_eq!(device.sync(FileId(u32::MAX)).unwrap_err().kind(), ErrorKind::NotFound);
    device.remove("refusals.fb").unwrap();
}

/// Writes through a queue at full depth, finishing short ones, then syncs.
fn queue_writes(device: &dyn Device) {
    const PIECES: u64 = 40;
    const DEPTH: usize = 5;
    let piece_bytes = 4 * BLOCK_BYTES;
    let file = device.create("queue.fb", PIECES * piece_bytes as u64).unwrap();
    let mut queue = device.queue(DEPTH).unwrap();
    assert!(queue.complete(WAIT).is_none(), "nothing is in flight, so nothing is waited for");
    let mut next = 0;
    let mut open = BTreeSet::new();
    let mut left: Vec<(u64, usize)> = Vec::new();
    while next < PIECES || !open.is_empty() || !left.is_empty() {
        while queue.in_flight() < DEPTH && (next < PIECES || !left.is_empty()) {
            let (piece, have) = left.pop().unwrap_or_else(|| {
                next += 1;
                (next - 1, 0)
            });
            let whole = pattern(piece_bytes, piece);
            let mut rest = Buffer::new(piece_bytes - have);
            rest.copy_from_slice(&whole[have..]);
            let length = rest.len();
            // The tag says which bytes these are, in any order they come back.
            queue.write(piece << 32 | have as u64, file, piece * piece_bytes as u64 + have as u64, rest, length);
            assert!(open.insert(piece << 32 | have as u64));
        }
        let done = queue.complete(WAIT).expect("a write ends in time");
        assert!(open.remove(&done.tag), "tag {:#x} comes back once", done.tag);
        let (piece, have) = (done.tag >> 32, done.tag as u32 as usize);
        let buffer = done.buffer.expect("the buffer comes back");
        assert_eq!(buffer.len(), piece_bytes - have);
        assert!(buffer[..] == pattern(piece_bytes, piece)[have..], "as it was");
        let moved = done.result.unwrap();
        assert!(moved > 0 && moved.is_multiple_of(BLOCK_BYTES) && moved <= piece_bytes - have, "moved {moved}");
        if have + moved < piece_bytes {
            left.push((piece, have + moved));
        }
    }
    queue.sync(7, file);
    assert_eq!(queue.in_flight(), 1);
    let Done { tag, buffer, result } = queue.complete(WAIT).unwrap();
    assert_eq!((tag, buffer.is_none(), result.unwrap()), (7, true, 0));
    assert_eq!(queue.in_flight(), 0);
    for piece in 0..PIECES {
        let read = read_all(device, file, piece * piece_bytes as u64, piece_bytes);
        assert!(read[..] == pattern(piece_bytes, piece)[..], "piece {piece}");
    }
    drop(queue);
    device.remove("queue.fb").unwrap();
}

fn queue_refusals(device: &dyn Device) {
    let file = device.create("refused.fb", 4 * BLOCK).unwrap();
    assert!(device.queue(0).is_err());
    let mut queue = device.queue(2).unwrap();
    let expect = |queue: &mut Box<dyn Queue>, tag: u64, kind: ErrorKind, what: &str| {
        let done = queue.complete(WAIT).expect(what);
        assert_eq!((done.tag, done.result.unwrap_err().kind()), (tag, kind), "{what}");
        assert_eq!(queue.in_flight(), 0);
        done.buffer
    };
    queue.write(1, file, 100, Buffer::new(BLOCK_BYTES), BLOCK_BYTES);
    assert!(expect(&mut queue, 1, ErrorKind::InvalidInput, "offset").is_some());
    queue.write(2, file, 0, Buffer::new(BLOCK_BYTES), BLOCK_BYTES - 8);
    assert!(expect(&mut queue, 2, ErrorKind::InvalidInput, "length").is_some());
    queue.write(3, file, 0, Buffer::new(BLOCK_BYTES), 2 * BLOCK_BYTES);
    assert!(expect(&mut queue, 3, ErrorKind::InvalidInput, "more than the buffer").is_some());
    queue.write(4, file, 4 * BLOCK, Buffer::new(BLOCK_BYTES), BLOCK_BYTES);
    assert!(expect(&mut queue, 4, ErrorKind::InvalidInput, "past the end").is_some());
    queue.write(5, FileId(u32::MAX), 0, Buffer::new(BLOCK_BYTES), BLOCK_BYTES);
    assert!(expect(&mut queue, 5, ErrorKind::NotFound, "no such file").is_some());
    queue.sync(6, FileId(u32::MAX));
    assert!(expect(&mut queue, 6, ErrorKind::NotFound, "no such file to sync").is_none());
    drop(queue);
    device.remove("refused.fb").unwrap();
}

/// A queue goes with its container from thread to thread, also with operations in flight, and also when the thread that
/// began them is gone.
fn queue_moves_between_threads(device: &Arc<dyn Device>) {
    let file = device.create("moves.fb", 64 * BLOCK).unwrap();
    let mut queue = device.queue(8).unwrap();
    for round in 0..8u64 {
        let device = device.clone();
        queue = std::thread::spawn(move || {
            let mut queue = queue;
            while let Some(done) = queue.complete(WAIT) {
                assert!(done.result.is_ok(), "{done:?}");
            }
            assert_eq!(queue.in_flight(), 0);
            let _ = device.free_bytes().unwrap();
            for piece in 0..6 {
                queue.write(piece, file, (round * 8 + piece) * BLOCK, pattern(BLOCK_BYTES, round), BLOCK_BYTES);
            }
            queue.sync(6, file);
            queue
        })
        .join()
        .unwrap();
    }
    while let Some(done) = queue.complete(WAIT) {
        assert!(done.result.is_ok(), "{done:?}");
    }
    for round in 0..8 {
        let read = read_all(device.as_ref(), file, round * 8 * BLOCK, 6 * BLOCK_BYTES);
        assert!(read.chunks(BLOCK_BYTES).all(|block| block == &pattern(BLOCK_BYTES, round)[..]), "round {round}");
    }
    drop(queue);
    device.remove("moves.fb").unwrap();
}

/// What was begun when a queue is dropped has ended when the drop returns, or ends after it: a drop waits a bounded time for a
/// device that takes longer.
pub(crate) fn drop_in_flight(device: &dyn Device) {
    let file = device.create("drop.fb", 64 * BLOCK).unwrap();
    for round in 1..5 {
        let mut queue = device.queue(8).unwrap();
        for piece in 0..8 {
            queue.write(piece, file, piece * BLOCK, pattern(BLOCK_BYTES, round), BLOCK_BYTES);
        }
        assert_eq!(queue.in_flight(), 8);
        let begun = Instant::now();
        drop(queue);
        let gave_up = begun.elapsed() >= DROP_WAIT;
        let has_all = || {
            let read = read_all(device, file, 0, 8 * BLOCK_BYTES);
            read.chunks(BLOCK_BYTES).all(|block| block == &pattern(BLOCK_BYTES, round)[..])
        };
        // Looked at until it is there: the writes of the next round must not meet those of this one.
        while !has_all() {
            assert!(gave_up && begun.elapsed() < WAIT, "round {round}, after {:?}", begun.elapsed());
            std::thread::yield_now();
        }
    }
    device.remove("drop.fb").unwrap();
}
