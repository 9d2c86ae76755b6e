//! The bytes of one writer on their way to its devices: buffers, operations under way, commits in order.
//!
//! ```text
//! put ─▶ current buffer ─▶ write under way ─▶ complete ─┐ all writes of a commit ─▶ sync ─▶ durable, in order
//! closing: directory written and synced ─▶ header says full ─▶ synced ─▶ full       (while the next one is written)
//! ```
//!
//! `progress.rs` has what happens on completion.
//!
//! *Invariants*: a sync is begun only after every write that it is to cover has completed; of one container only one
//! sync is under way; tickets become durable in the order in which they were given; the header says *full* only after
//! data and directory are durable. The writes under way, the buffers and the containers being closed are bounded.
//!
//! *On failure*: a write or a sync that fails poisons its container and ends the writer: `durable` says what is
//! durable, all else is the caller's to write again. A failed sync is never repeated.

mod progress;

use crate::bytes::{CONTAINER_BLOCK_BYTES, ContainerSeed, DirectoryPlace};
use crate::hot::copy_checksum_append;
use crate::warm::buffer::Buffer;
use crate::warm::device::{BLOCK_BYTES, FileId, Queue};
use crate::warm::space::{Filling, Warm};
use forebay_core::{Error, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Containers that may be on their way to being closed beside the one that is filled.
const CLOSING_MAX: usize = 2;
/// Operations beside the data of `WarmShape::depth`: a sync or a header for each container under way.
const CONTROL_MAX: usize = CLOSING_MAX + 2;
/// Buffers beside those under way: the current one, and two that hold the head of an image that is not complete.
const BUFFERS_BESIDE: usize = 3;
/// A write that makes no progress this many times in a row is given up.
const RETRIES_MAX: u32 = 3;
/// How long one queue is waited for while others are busy too. Queues have no common wait: with a longer turn a silent
/// device would hold up the containers that are being closed on another.
const TURN: Duration = Duration::from_millis(2);

/// What bytes are, for the counters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Data,
    Padding,
    Directory,
}

pub(super) struct Pipeline {
    pub(super) warm: Arc<Warm>,
    lanes: Vec<Lane>,
    active: Option<Work>,
    closing: Vec<Work>,
    ops: Vec<Option<Op>>,
    buffers: Vec<Buffer>,
    made: usize,
    current: Option<Part>,
    held: Vec<Part>,
    hold: Range<u64>,
    commits: VecDeque<Commit>,
    /// The last ticket that was given, and the last one that is durable.
    asked: u64,
    durable: u64,
    /// Something was appended since the last commit.
    dirty: bool,
    serials: u64,
    failed: Option<String>,
}

/// One device's queue.
struct Lane {
    device: u32,
    queue: Box<dyn Queue>,
    /// Data writes under way.
    writes: usize,
    /// When it last answered, or began to have something to answer.
    heard: Instant,
}

/// A container on its way.
struct Work {
    serial: u64,
    lane: usize,
    file: FileId,
    seed: ContainerSeed,
    filling: Filling,
    /// Where the next byte goes; beyond `filling.position` while an extent is not complete.
    cursor: u64,
    next_sequence: u64,
    /// Writes that have not completed, in order.
    under_way: Vec<u64>,
    syncing: bool,
    stage: Stage,
    failed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Waits until all of it, the directory included, is durable.
    Closing(DirectoryPlace),
    /// The header is being written or synced.
    Header,
}

struct Part {
    buffer: Buffer,
    position: u64,
    fill: usize,
    padding: u64,
    directory: u64,
}

struct Op {
    work: u64,
    what: What,
}

enum What {
    Write(Write),
    /// Covers all writes with lower sequence numbers, up to the position.
    Sync {
        sequence: u64,
        position: u64,
    },
    /// Makes the header durable that says that the container is full.
    CloseSync,
}

struct Write {
    role: Role,
    sequence: u64,
    offset: u64,
    length: usize,
    padding: u64,
    directory: u64,
    idle: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Data,
    /// The header that begins a filling.
    Begin,
    /// The header that says that a container is full.
    Close,
}

struct Commit {
    ticket: u64,
    work: u64,
    /// Writes below it must be durable.
    sequence: u64,
    position: u64,
    done: bool,
}

impl Pipeline {
    pub(super) fn new(warm: Arc<Warm>) -> Pipeline {
        Pipeline {
            warm,
            lanes: Vec::new(),
            active: None,
            closing: Vec::new(),
            ops: Vec::new(),
            buffers: Vec::new(),
            made: 0,
            current: None,
            held: Vec::new(),
            hold: 0..0,
            commits: VecDeque::new(),
            asked: 0,
            durable: 0,
            dirty: false,
            serials: 0,
            failed: None,
        }
    }

    /// The container that is being filled.
    pub(super) fn filling(&mut self) -> Option<&mut Filling> {
        self.active.as_mut().map(|work| &mut work.filling)
    }

    /// Whether a container that is being filled or closed is on a device that leaves.
    pub(super) fn is_on_leaving(&self) -> bool {
        self.active.iter().chain(&self.closing).any(|work| self.warm.is_leaving(work.filling.device))
    }

    /// Seed of the container that is being filled, and where the next byte goes.
    pub(super) fn place(&self) -> Option<(ContainerSeed, u64)> {
        self.active.as_ref().map(|work| (work.seed, work.cursor))
    }

    /// # Errors
    /// What ended the writer.
    pub(super) fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |failed| Err(Error::unavailable(failed.clone())))
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// Goes on with this container.
    pub(super) fn begin(&mut self, filling: Filling) -> Result<()> {
        debug_assert!(self.active.is_none() && self.current.is_none(), "two containers are filled at once");
        let lane = match self.lanes.iter().position(|lane| lane.device == filling.device) {
            Some(lane) => lane,
            None => match self.new_lane(&filling) {
                Ok(lane) => lane,
                Err(error) => {
                    self.warm.park(filling);
                    return Err(error);
                }
            },
        };
        let (container, _, file) = self.warm.container(filling.container)?;
        let seed = container.seed(&self.warm.store);
        // A serial, not the container's number: the writer may fill the same container again while an operation of the
        // filling before is still under way.
        self.serials += 1;
        self.active = Some(Work {
            serial: self.serials,
            lane,
            file,
            seed,
            cursor: filling.position,
            filling,
            next_sequence: 0,
            under_way: Vec::new(),
            syncing: false,
            stage: Stage::Open,
            failed: false,
        });
        Ok(())
    }

    fn new_lane(&mut self, filling: &Filling) -> Result<usize> {
        let (_, device, _) = self.warm.container(filling.container)?;
        let queue = device.queue(self.warm.shape.depth + CONTROL_MAX).map_err(|error| {
            let name = self.warm.describe(filling.container);
            Error::unavailable(format!("{name}: no queue for writing")).with_source(error)
        })?;
        self.lanes.push(Lane { device: filling.device, queue, writes: 0, heard: Instant::now() });
        Ok(self.lanes.len() - 1)
    }

    /// The header of a filling that has none yet goes out before its first extent, and is durable with it.
    pub(super) fn announce(&mut self) {
        let Some(work) = self.active.as_mut().filter(|work| work.filling.fresh) else { return };
        work.filling.fresh = false;
        let serial = work.serial;
        self.write_header(serial, Role::Begin, |_| {});
    }

    fn write_header(&mut self, serial: u64, role: Role, change: impl FnOnce(&mut crate::bytes::ContainerHeader)) {
        let warm = self.warm.clone();
        let Some(work) = self.work(serial) else { return };
        let container = &warm.containers[work.filling.container as usize];
        let (offset, bytes) = container.next_header(&warm.store, change);
        // A buffer of its own: headers are rare, and one from the writer's stock could wait for data that waits for this.
        let mut buffer = Buffer::new(BLOCK_BYTES);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let sequence = work.begin_write();
        let write = Write { role, sequence, offset, length: BLOCK_BYTES, padding: 0, directory: 0, idle: 0 };
        self.start_write(serial, write, buffer);
    }

    /// Appends bytes to the container.
    pub(super) fn put(&mut self, mut bytes: &[u8], what: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let part = self.part()?;
            let room = &mut part.buffer[part.fill..];
            let length = bytes.len().min(room.len());
            room[..length].copy_from_slice(&bytes[..length]);
            self.filled(length, what)?;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    /// Appends a payload; answers its checksum, made in the same pass.
    pub(super) fn put_payload(&mut self, mut bytes: &[u8]) -> Result<u32> {
        let mut crc = 0;
        while !bytes.is_empty() {
            let part = self.part()?;
            let room = &mut part.buffer[part.fill..];
            let length = bytes.len().min(room.len());
            crc = copy_checksum_append(crc, &mut room[..length], &bytes[..length]);
            self.filled(length, Bytes::Data)?;
            bytes = &bytes[length..];
        }
        Ok(crc)
    }

    /// Appends zeros up to a multiple of `align`.
    pub(super) fn align(&mut self, align: u64, what: Bytes) -> Result<()> {
        let Some((_, cursor)) = self.place() else { return Ok(()) };
        let mut left = (cursor.next_multiple_of(align) - cursor) as usize;
        while left > 0 {
            let part = self.part()?;
            let room = &mut part.buffer[part.fill..];
            let length = left.min(room.len());
            room[..length].fill(0);
            self.filled(length, what)?;
            left -= length;
        }
        Ok(())
    }

    /// Keeps this extent in memory until [`Pipeline::release`], so that it can be patched.
    pub(super) fn hold(&mut self, range: Range<u64>) {
        self.hold = range;
    }

    /// Overwrites bytes within what is held.
    pub(super) fn patch(&mut self, position: u64, bytes: &[u8]) {
        debug_assert!(
            self.hold.start <= position && position + bytes.len() as u64 <= self.hold.end,
            "a patch of bytes that may have left already"
        );
        for part in self.held.iter_mut().chain(self.current.as_mut()) {
            let (first, end) = (position.max(part.position), part.position + part.fill as u64);
            let end = end.min(position + bytes.len() as u64);
            if first < end {
                let target = (first - part.position) as usize..(end - part.position) as usize;
                let source = (first - position) as usize..(end - position) as usize;
                part.buffer[target].copy_from_slice(&bytes[source]);
            }
        }
    }

    /// Ends [`Pipeline::hold`].
    pub(super) fn release(&mut self) -> Result<()> {
        self.hold = 0..0;
        for part in std::mem::take(&mut self.held) {
            self.submit(part)?;
        }
        Ok(())
    }

    /// An extent is complete: what was put belongs to the container.
    pub(super) fn end_extent(&mut self) {
        if let Some(work) = self.active.as_mut() {
            debug_assert!(work.cursor.is_multiple_of(CONTAINER_BLOCK_BYTES), "an extent that ends inside of a block");
            let bytes = work.cursor - work.filling.position;
            work.filling.position = work.cursor;
            work.filling.touched = self.warm.clock.timer().now();
            self.warm.devices[work.filling.device as usize].used.fetch_add(bytes, Ordering::Relaxed);
            self.dirty = true;
        }
    }

    fn part(&mut self) -> Result<&mut Part> {
        if self.current.is_none() {
            let Some((_, position)) = self.place() else { return Err(Error::internal("no container is being filled")) };
            let buffer = self.buffer()?;
            self.current = Some(Part { buffer, position, fill: 0, padding: 0, directory: 0 });
        }
        self.current.as_mut().ok_or_else(|| Error::internal("no buffer"))
    }

    fn buffer(&mut self) -> Result<Buffer> {
        // Bounded, so that a slow device makes its writer wait instead of the process grow.
        if self.buffers.is_empty() && self.made < self.warm.shape.depth + BUFFERS_BESIDE {
            self.made += 1;
            return Ok(self.warm.pool.take_exact(self.warm.shape.io_bytes));
        }
        self.wait_for(None, |pipeline| !pipeline.buffers.is_empty())?;
        self.buffers.pop().ok_or_else(|| Error::internal("no buffer"))
    }

    fn filled(&mut self, length: usize, what: Bytes) -> Result<()> {
        if let Some(work) = self.active.as_mut() {
            work.cursor += length as u64;
        }
        let Some(part) = self.current.as_mut() else { return Ok(()) };
        part.fill += length;
        match what {
            Bytes::Data => {}
            Bytes::Padding => part.padding += length as u64,
            Bytes::Directory => part.directory += length as u64,
        }
        if part.fill == part.buffer.len() { self.end_part() } else { Ok(()) }
    }

    /// The current buffer goes out as it is: whole blocks.
    fn end_part(&mut self) -> Result<()> {
        let Some(part) = self.current.take() else { return Ok(()) };
        if part.fill == 0 {
            self.buffers.push(part.buffer);
            return Ok(());
        }
        if part.position < self.hold.end && part.position + part.fill as u64 > self.hold.start {
            self.held.push(part);
            return Ok(());
        }
        self.submit(part)
    }

    fn submit(&mut self, part: Part) -> Result<()> {
        // Direct I/O refuses anything else, and a later write of the same block could tear what was acknowledged.
        debug_assert!(part.fill.is_multiple_of(BLOCK_BYTES) && part.position.is_multiple_of(CONTAINER_BLOCK_BYTES));
        let Some(lane) = self.active.as_ref().map(|work| work.lane) else { return Ok(()) };
        let depth = self.warm.shape.depth;
        self.wait_for(None, |pipeline| pipeline.lanes[lane].writes < depth)?;
        let Some(work) = self.active.as_mut() else { return Ok(()) };
        let (serial, sequence) = (work.serial, work.begin_write());
        let Part { buffer, position, fill, padding, directory } = part;
        let write = Write { role: Role::Data, sequence, offset: position, length: fill, padding, directory, idle: 0 };
        self.start_write(serial, write, buffer);
        Ok(())
    }

    fn start_write(&mut self, serial: u64, write: Write, buffer: Buffer) {
        let Some(work) = self.work(serial) else { return };
        let (lane, file) = (work.lane, work.file);
        let (offset, length, role) = (write.offset, write.length, write.role);
        let tag = self.op(serial, What::Write(write));
        let depth = self.warm.shape.depth;
        let lane = self.hear(lane);
        debug_assert!(role != Role::Data || lane.writes < depth, "more writes under way than the queue was made for");
        lane.writes += usize::from(role == Role::Data);
        lane.queue.write(tag, file, offset, buffer, length);
    }

    fn start_sync(&mut self, serial: u64, what: What) {
        let Some(work) = self.work(serial) else { return };
        debug_assert!(
            !work.syncing,
            "two syncs of one container: the later one could answer for the earlier one's writes"
        );
        if let What::Sync { sequence, .. } = &what {
            let open = work.under_way.first();
            debug_assert!(open.is_none_or(|open| open >= sequence), "a sync before a write that it is to cover");
        }
        work.syncing = true;
        let (lane, file) = (work.lane, work.file);
        let tag = self.op(serial, what);
        self.hear(lane).queue.sync(tag, file);
    }

    /// The lane; its silence is counted from now on where nothing was under way.
    fn hear(&mut self, lane: usize) -> &mut Lane {
        let lane = &mut self.lanes[lane];
        if lane.queue.in_flight() == 0 {
            lane.heard = Instant::now();
        }
        lane
    }

    fn op(&mut self, work: u64, what: What) -> u64 {
        let op = Some(Op { work, what });
        match self.ops.iter().position(Option::is_none) {
            Some(free) => {
                self.ops[free] = op;
                free as u64
            }
            None => {
                self.ops.push(op);
                self.ops.len() as u64 - 1
            }
        }
    }

    fn work(&mut self, serial: u64) -> Option<&mut Work> {
        self.active.iter_mut().chain(self.closing.iter_mut()).find(|work| work.serial == serial)
    }
}

impl Work {
    fn begin_write(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.under_way.push(sequence);
        sequence
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.shut_down();
        // The next writer finds them mapped.
        self.buffers.drain(..).for_each(|buffer| self.warm.pool.give(buffer));
    }
}
