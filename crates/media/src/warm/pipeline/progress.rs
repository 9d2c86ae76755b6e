//! Handles completions of the pipeline and what they make possible: commits, closing, waiting, failing.

use super::{Bytes, CLOSING_MAX, Commit, Lane, Pipeline, RETRIES_MAX, Role, Stage, TURN, What, Work, Write};
use crate::bytes::{CONTAINER_BLOCK_BYTES, CONTAINER_DATA_OFFSET, ContainerState, DirectoryPlace};
use crate::warm::buffer::Buffer;
use crate::warm::device::{BLOCK_BYTES, Done};
use crate::warm::request::STALLS_MAX;
use crate::warm::space::Filling;
use forebay_core::Result;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Pipeline {
    /// Asks that all appended so far become durable; answers the ticket.
    pub(in crate::warm) fn commit(&mut self) -> Result<u64> {
        self.check()?;
        self.end_part()?;
        // A ticket also where nothing was appended: it becomes durable with the one before, in order.
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
    pub(in crate::warm) fn close_active(&mut self) -> Result<()> {
        self.check()?;
        // Nothing was written into it, not even its header: it is as empty as before.
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
        // A commit of its own that covers data and directory, under the last ticket: what was appended and not asked for
        // becomes durable here at the latest.
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
        // Only what has completed: a sync that is begun beside a write says nothing about that write (decision 0011).
        let complete = work.under_way.first().copied().unwrap_or(work.next_sequence);
        let mine = |commit: &&Commit| commit.work == serial && !commit.done;
        // The latest commit that is due: one sync answers for all before it.
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
        // Last: a header that says *full* lets an opening read the directory instead of the extents.
        debug_assert!(work.under_way.is_empty(), "the header before a write of the container has completed");
        debug_assert!(work.filling.durable >= place.offset + place.bytes, "the header before the directory is durable");
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
        // From the front only: a ticket is an answer for everything before it, in any container.
        while let Some(commit) = self.commits.pop_front_if(|commit| commit.done) {
            debug_assert!(commit.ticket >= self.durable, "tickets become durable out of order");
            self.durable = self.durable.max(commit.ticket);
        }
    }

    /// Takes in what has completed, without waiting.
    pub(in crate::warm) fn reap(&mut self) {
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].queue.in_flight() > 0 {
                let Some(done) = self.lanes[lane].queue.complete(Duration::ZERO) else { break };
                self.completed(lane, done);
            }
        }
        self.find_stalls();
    }

    /// Waits until `ready`, at most to the deadline; `false` there. Without a deadline the stall limit ends it.
    pub(in crate::warm) fn wait_for(
        &mut self,
        deadline: Option<Instant>,
        ready: impl Fn(&Pipeline) -> bool,
    ) -> Result<bool> {
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
    pub(in crate::warm) fn wait_idle(&mut self, deadline: Instant) -> bool {
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
            // Avoided from now on by those who choose a device; given up only after several times that, because a disk that
            // recovers from an error may be silent for seconds.
            self.warm.devices[self.lanes[lane].device as usize].stalled.store(true, Ordering::Relaxed);
            if silent >= stall * STALLS_MAX {
                let serials: Vec<u64> = self.works().filter(|work| work.lane == lane).map(|work| work.serial).collect();
                for serial in serials {
                    self.fail(serial, "the device does not answer", io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Containers that are being filled or closed, with whether they are being closed.
    pub(in crate::warm) fn fillings(&self) -> impl Iterator<Item = (&Filling, bool)> {
        self.works().map(|work| (&work.filling, work.stage != Stage::Open))
    }

    fn works(&self) -> impl Iterator<Item = &Work> {
        self.active.iter().chain(self.closing.iter())
    }

    fn completed(&mut self, lane: usize, done: Done) {
        let slot = &self.warm.devices[self.lanes[lane].device as usize];
        slot.stalled.store(false, Ordering::Relaxed);
        self.lanes[lane].heard = Instant::now();
        // None for an operation of a container that failed meanwhile: its answer changes nothing any more.
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
        debug_assert!(position <= work.cursor, "more is durable than was put");
        work.filling.durable = work.filling.durable.max(position);
        let device = work.filling.device;
        // A sync that ends well after a write has failed proves nothing: the kernel reports a failed write-back once.
        if work.failed {
            return;
        }
        let slot = &self.warm.devices[device as usize];
        slot.counters.committed();
        slot.rest.lock().end();
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
        // To a device that does not answer nothing more is sent: the extents say how far the container was durable.
        let silent = error.kind() == io::ErrorKind::TimedOut;
        let warm = self.warm.clone();
        let container = &warm.containers[number as usize];
        warm.poison(container);
        // One that is silent costs one container in six stalls: it is given time already.
        if durable == CONTAINER_DATA_OFFSET && !silent {
            warm.devices[container.device as usize].rest.lock().begin(warm.clock.timer().now());
        }
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
    pub(in crate::warm) fn shut_down(&mut self) {
        let deadline = self.warm.deadline(STALLS_MAX);
        // A writer that is dropped in the middle of an extent leaves it without its end: the next extent could not follow.
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
        // Neither closed nor failed by the deadline: what it holds is readable by its extents, in this life and the next.
        for work in self.closing.drain(..).filter(|work| !work.failed) {
            self.warm.poison(&self.warm.containers[work.filling.container as usize]);
        }
    }

    /// Sends the current buffer, also where another container has failed.
    fn send_rest(&mut self) -> bool {
        // `end_part` refuses after a failure; the data of this container has nothing to do with that of the other.
        let failed = self.failed.take();
        let sent = self.end_part().is_ok() && self.failed.is_none();
        self.failed = failed.or(self.failed.take());
        sent
    }
}
