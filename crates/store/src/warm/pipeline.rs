//! The bytes of one writer on their way to its devices: buffers, operations under way, commits in order.
//!
//! ```text
//! put ─▶ current buffer ─▶ write under way ─▶ complete ─┐ all writes of a commit ─▶ sync ─▶ durable, in order
//! closing: directory written and synced ─▶ header says full ─▶ synced ─▶ full       (while the next one is written)
//! ```
//!
//! *Invariants*: a sync is begun only after every write that it is to cover has completed; of one container only one
//! sync is under way; tickets become durable in the order in which they were given; the header says *full* only after
//! data and directory are durable. The writes under way, the buffers and the containers being closed are bounded.
//!
//! *On failure*: a write or a sync that fails poisons its container and ends the writer: `durable` says what stands, all
//! else is the caller's to write again. A failed sync is never repeated.

use super::buffer::Buffer;
use super::device::{BLOCK_BYTES, Done, FileId, Queue};
use super::plan::STALLS_MAX;
use super::space::{Filling, Warm};
use crate::hot::copy_checksum_append;
use forebay_core::{CONTAINER_BLOCK_BYTES, ContainerSeed, ContainerState, DirectoryPlace, Error, Result};
use std::collections::VecDeque;
use std::io;
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
/// A write that makes no progress so many times is given up.
const RETRIES_MAX: u32 = 3;
/// How long one queue is waited for while others are busy too.
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
        debug_assert!(self.active.is_none() && self.current.is_none());
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

    fn write_header(&mut self, serial: u64, role: Role, change: impl FnOnce(&mut forebay_core::ContainerHeader)) {
        let warm = self.warm.clone();
        let Some(work) = self.work(serial) else { return };
        let container = &warm.containers[work.filling.container as usize];
        let (offset, bytes) = container.next_header(&warm.store, change);
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

    /// Keeps what stands here in memory until [`Pipeline::release`], so that it can be patched.
    pub(super) fn hold(&mut self, range: Range<u64>) {
        self.hold = range;
    }

    /// Overwrites bytes within what is held.
    pub(super) fn patch(&mut self, position: u64, bytes: &[u8]) {
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
            let bytes = work.cursor - work.filling.position;
            work.filling.position = work.cursor;
            work.filling.touched = Instant::now();
            self.warm.used.fetch_add(bytes, Ordering::Relaxed);
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
        if self.buffers.is_empty() && self.made < self.warm.shape.depth + BUFFERS_BESIDE {
            self.made += 1;
            return Ok(Buffer::new(self.warm.shape.io_bytes));
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
        let lane = self.hear(lane);
        lane.writes += usize::from(role == Role::Data);
        lane.queue.write(tag, file, offset, buffer, length);
    }

    fn start_sync(&mut self, serial: u64, what: What) {
        let Some(work) = self.work(serial) else { return };
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

    /// Asks that all appended so far become durable; answers the ticket.
    pub(super) fn commit(&mut self) -> Result<u64> {
        self.check()?;
        self.end_part()?;
        self.asked += 1;
        let mut commit = Commit { ticket: self.asked, work: 0, sequence: 0, position: 0, done: true };
        if std::mem::take(&mut self.dirty)
            && let Some(work) = self.active.as_ref()
        {
            commit.work = work.serial;
            (commit.sequence, commit.position, commit.done) = (work.next_sequence, work.filling.position, false);
        }
        let serial = commit.work;
        self.commits.push_back(commit);
        self.settle_commits();
        self.advance(serial);
        Ok(self.asked)
    }

    /// Closes the container that is being filled: its directory follows the data, its header says so later.
    pub(super) fn close_active(&mut self) -> Result<()> {
        self.check()?;
        if self.active.as_ref().is_some_and(|work| work.filling.fresh) {
            if let Some(work) = self.active.take() {
                self.warm.park(work.filling);
            }
            return Ok(());
        }
        let Some(work) = self.active.as_mut() else { return Ok(()) };
        let data_end = work.filling.position;
        let (bytes, crc) = std::mem::take(&mut work.filling.directory).seal(work.seed, data_end);
        let place = DirectoryPlace { offset: data_end, bytes: bytes.len() as u64, crc };
        self.put(&bytes, Bytes::Directory)?;
        self.align(CONTAINER_BLOCK_BYTES, Bytes::Directory)?;
        self.end_part()?;
        let Some(mut work) = self.active.take() else { return Ok(()) };
        work.stage = Stage::Closing(place);
        self.warm.stop_filling(&work.filling);
        self.dirty = false;
        let (ticket, serial, sequence) = (self.asked, work.serial, work.next_sequence);
        self.commits.push_back(Commit { ticket, work: serial, sequence, position: work.cursor, done: false });
        self.closing.push(work);
        self.advance(serial);
        self.wait_for(None, |pipeline| pipeline.closing.len() <= CLOSING_MAX)?;
        Ok(())
    }

    /// Begins what has become possible for a container: the sync of its next commits, its last header.
    fn advance(&mut self, serial: u64) {
        let Some(work) = self.work(serial) else { return };
        if work.failed || work.syncing {
            return;
        }
        let complete = work.under_way.first().copied().unwrap_or(work.next_sequence);
        let mine = |commit: &&Commit| commit.work == serial && !commit.done;
        let due = self.commits.iter().rev().filter(mine).find(|commit| commit.sequence <= complete);
        if let Some(commit) = due {
            let what = What::Sync { sequence: commit.sequence, position: commit.position };
            return self.start_sync(serial, what);
        }
        let waits = self.commits.iter().any(|commit| mine(&commit));
        let Some(work) = self.work(serial) else { return };
        let Stage::Closing(place) = work.stage else { return };
        if waits {
            return;
        }
        work.stage = Stage::Header;
        let filling = &work.filling;
        let (extents, images, fragments) = (filling.extents, filling.images, filling.fragments);
        let payload_bytes = filling.payload_bytes;
        self.write_header(serial, Role::Close, |header| {
            header.state = ContainerState::Full;
            header.data_end = place.offset;
            header.directory = Some(place);
            (header.extents, header.images, header.fragments) = (extents, images, fragments);
            header.payload_bytes = payload_bytes;
        });
    }

    fn settle_commits(&mut self) {
        while let Some(commit) = self.commits.pop_front_if(|commit| commit.done) {
            self.durable = self.durable.max(commit.ticket);
        }
    }

    /// Takes in what has completed, without waiting.
    pub(super) fn reap(&mut self) {
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].queue.in_flight() > 0 {
                let Some(done) = self.lanes[lane].queue.complete(Duration::ZERO) else { break };
                self.completed(lane, done);
            }
        }
        self.find_stalls();
    }

    /// Waits until `ready`, at most to the deadline; `false` there. Without a deadline the stall limit ends it.
    pub(super) fn wait_for(&mut self, deadline: Option<Instant>, ready: impl Fn(&Pipeline) -> bool) -> Result<bool> {
        loop {
            self.reap();
            if ready(self) {
                return Ok(true);
            }
            self.check()?;
            if !self.wait_once(deadline) {
                return Ok(false);
            }
        }
    }

    /// Waits for one completion; `false` at the deadline, or where nothing is under way.
    fn wait_once(&mut self, deadline: Option<Instant>) -> bool {
        let busy = |lane: &&mut Lane| lane.queue.in_flight() > 0;
        let count = self.lanes.iter_mut().filter(busy).count();
        let mut turn = if count > 1 { TURN } else { self.warm.shape.stall / 4 };
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            turn = turn.min(left);
        }
        if count == 0 {
            return false;
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].queue.in_flight() > 0
                && let Some(done) = self.lanes[lane].queue.complete(turn)
            {
                self.completed(lane, done);
            }
        }
        true
    }

    /// Waits until nothing is under way any more, failed or not; `false` at the deadline.
    pub(super) fn wait_idle(&mut self, deadline: Instant) -> bool {
        loop {
            self.reap();
            if self.lanes.iter().all(|lane| lane.queue.in_flight() == 0) {
                return true;
            }
            if !self.wait_once(Some(deadline)) {
                return false;
            }
        }
    }

    fn find_stalls(&mut self) {
        for lane in 0..self.lanes.len() {
            let silent = match &self.lanes[lane] {
                idle if idle.queue.in_flight() == 0 => continue,
                busy => busy.heard.elapsed(),
            };
            let stall = self.warm.shape.stall;
            if silent < stall {
                continue;
            }
            self.warm.devices[self.lanes[lane].device as usize].stalled.store(true, Ordering::Relaxed);
            if silent >= stall * STALLS_MAX {
                let serials: Vec<u64> = self.works().filter(|work| work.lane == lane).map(|work| work.serial).collect();
                for serial in serials {
                    self.fail(serial, "the device does not answer", io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    fn works(&self) -> impl Iterator<Item = &Work> {
        self.active.iter().chain(self.closing.iter())
    }

    fn completed(&mut self, lane: usize, done: Done) {
        let slot = &self.warm.devices[self.lanes[lane].device as usize];
        slot.stalled.store(false, Ordering::Relaxed);
        self.lanes[lane].heard = Instant::now();
        let Some(op) = self.ops.get_mut(done.tag as usize).and_then(Option::take) else { return };
        match op.what {
            What::Write(write) => self.wrote(lane, op.work, write, done),
            What::Sync { sequence, position } => self.synced(op.work, sequence, position, done.result),
            What::CloseSync => self.closed(op.work, done.result),
        }
    }

    fn wrote(&mut self, lane: usize, serial: u64, mut write: Write, done: Done) {
        self.lanes[lane].writes -= usize::from(write.role == Role::Data);
        let written = match done.result {
            Ok(written) => written.min(write.length),
            Err(error) => {
                self.give(write.role, done.buffer);
                return self.fail(serial, "a write failed", error);
            }
        };
        if written < write.length {
            let Some(mut buffer) = done.buffer else {
                return self.fail(serial, "a short write lost its bytes", io::ErrorKind::WriteZero.into());
            };
            // Only whole blocks count; the rest is written again from where they end.
            let whole = written / BLOCK_BYTES * BLOCK_BYTES;
            write.idle = if whole == 0 { write.idle + 1 } else { 0 };
            if write.idle > RETRIES_MAX {
                self.give(write.role, Some(buffer));
                return self.fail(serial, "the device takes no more bytes", io::ErrorKind::WriteZero.into());
            }
            buffer.copy_within(whole..write.length, 0);
            write.offset += whole as u64;
            write.length -= whole;
            self.count(lane, write.role, whole as u64, 0, 0);
            return self.start_write(serial, write, buffer);
        }
        self.give(write.role, done.buffer);
        self.count(lane, write.role, write.length as u64, write.padding, write.directory);
        let Some(work) = self.work(serial) else { return };
        work.under_way.retain(|sequence| *sequence != write.sequence);
        if write.role == Role::Close {
            return self.start_sync(serial, What::CloseSync);
        }
        self.advance(serial);
    }

    fn count(&self, lane: usize, role: Role, bytes: u64, padding: u64, directory: u64) {
        let counters = &self.warm.devices[self.lanes[lane].device as usize].counters;
        match role {
            Role::Data => counters.wrote(bytes, padding, directory),
            Role::Begin | Role::Close => counters.wrote_header(bytes),
        }
    }

    fn give(&mut self, role: Role, buffer: Option<Buffer>) {
        match buffer {
            Some(buffer) if role == Role::Data => self.buffers.push(buffer),
            None if role == Role::Data => self.made -= 1,
            _ => {}
        }
    }

    fn synced(&mut self, serial: u64, sequence: u64, position: u64, result: io::Result<usize>) {
        if let Err(error) = result {
            return self.fail(serial, "a sync failed", error);
        }
        let Some(work) = self.work(serial) else { return };
        work.syncing = false;
        work.filling.durable = work.filling.durable.max(position);
        let device = work.filling.device;
        if work.failed {
            return;
        }
        self.warm.devices[device as usize].counters.committed();
        for commit in &mut self.commits {
            commit.done |= commit.work == serial && commit.sequence <= sequence;
        }
        self.settle_commits();
        self.advance(serial);
    }

    fn closed(&mut self, serial: u64, result: io::Result<usize>) {
        if let Err(error) = result {
            return self.fail(serial, "the sync of its header failed", error);
        }
        let Some(at) = self.closing.iter().position(|work| work.serial == serial) else { return };
        if self.closing[at].failed {
            return;
        }
        let work = self.closing.swap_remove(at);
        self.warm.containers[work.filling.container as usize].close();
    }

    /// Poisons the container; the writer ends with it, unless all of its data was durable already.
    fn fail(&mut self, serial: u64, what: &str, error: io::Error) {
        let Some(work) = self.work(serial).filter(|work| !work.failed) else { return };
        work.failed = true;
        let (number, durable, stage) = (work.filling.container, work.filling.durable, work.stage);
        let silent = error.kind() == io::ErrorKind::TimedOut;
        let warm = self.warm.clone();
        let container = &warm.containers[number as usize];
        warm.poison(container);
        if stage == Stage::Open
            && let Some(work) = self.work(serial)
        {
            warm.stop_filling(&work.filling);
        }
        if stage == Stage::Header {
            // Only the header failed: the extents say themselves that they are complete.
            self.closing.retain(|work| work.serial != serial);
            return;
        }
        let name = warm.describe(number);
        self.failed.get_or_insert_with(|| format!("{name}: {what} ({error})"));
        if !silent {
            warm.write_poisoned(container, durable);
        }
    }

    /// Ends the writer: what can still go out does, the container goes back.
    pub(super) fn shut_down(&mut self) {
        let deadline = Instant::now() + self.warm.shape.stall * STALLS_MAX;
        let whole = self.active.as_ref().is_none_or(|work| work.cursor == work.filling.position && !work.failed);
        let sent = whole && self.send_rest();
        let idle = self.wait_idle(deadline);
        if let Some(work) = self.active.take().filter(|work| !work.failed) {
            if sent && idle {
                self.warm.park(work.filling);
            } else {
                // Its last extents may be missing: what was durable stays readable.
                self.warm.stop_filling(&work.filling);
                self.warm.poison(&self.warm.containers[work.filling.container as usize]);
            }
        }
        for work in self.closing.drain(..).filter(|work| !work.failed) {
            self.warm.poison(&self.warm.containers[work.filling.container as usize]);
        }
    }

    /// Sends the current buffer, also where another container has failed.
    fn send_rest(&mut self) -> bool {
        let failed = self.failed.take();
        let sent = self.end_part().is_ok() && self.failed.is_none();
        self.failed = failed.or(self.failed.take());
        sent
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
    }
}
