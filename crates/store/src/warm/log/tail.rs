//! The end of one device's log: what is appended and not yet durable, and who makes it so.
//!
//! ```text
//! append ─▶ tail (memory) ─▶ commit under way: write, sync ─▶ durable, waiters wake
//! ```
//!
//! *Invariants*: one commit is under way at a time (`busy`); it takes all that is buffered, begins and ends at a block,
//! and no block that it wrote is written again in this generation; tickets count slots' owners in the order of the log.
//!
//! *On failure*: the log is poisoned. Whatever was not durable answers `Unavailable` for good, also after the log has
//! moved to its other file; nothing is written until it has.

use super::commit::{Io, Step, Transfer};
use super::format::{BlockHead, Pages, block_offset};
use crate::warm::{BLOCK_BYTES, Buffer, Device, FileId};
use forebay_core::{Blob, Decision, DecisionKind, Error, RecordSeed, Result, SlotLayout};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that wait for a commit, at most; a blob that is longer stands alone.
pub(super) const TAIL_BYTES: usize = 1 << 20;
/// Failed stretches of tickets that are remembered; older ones answer `Unavailable` whole.
const LIVES_REMEMBERED: usize = 64;
/// One part of the file in so many is kept for decisions that end events.
const RESERVE_PART: u32 = 16;

/// What was appended, to wait for: durable as soon as any later one of the same device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing is decided until it is durable"]
pub(crate) struct LogTicket {
    pub(super) device: u32,
    pub(super) life: u32,
    pub(super) number: u64,
}

/// Whether the log takes anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It was opened and not folded yet: its end may be torn.
    Unfolded,
    Good,
    /// Why not.
    Poisoned(String),
}

/// The end of a log. Guarded by its mutex.
pub(super) struct State {
    pub(super) health: Health,
    /// Which of the two files is the log.
    pub(super) file: usize,
    pub(super) files: [Option<FileId>; 2],
    pub(super) generation: u64,
    /// The generation of the next move.
    pub(super) next_generation: u64,
    pub(super) pages: Pages,
    /// Block with which the next commit begins, and its number.
    pub(super) block: u32,
    pub(super) commit: u64,
    /// Slots in the buffer.
    pub(super) slots: u32,
    pub(super) buffer: Buffer,
    spare: Option<Buffer>,
    /// Raised when what was not durable is given up.
    pub(super) life: u32,
    pub(super) appended: u64,
    pub(super) durable: u64,
    /// How far each earlier life came.
    lives: VecDeque<(u32, u64)>,
    under_way: Option<(Transfer, u64)>,
    /// Somebody does I/O and has taken `io` along.
    pub(super) busy: bool,
    pub(super) moving: bool,
    pub(super) io: Option<Io>,
    pub(super) commits: u64,
}

/// One device's log.
pub(super) struct Log {
    pub(super) device: Arc<dyn Device>,
    pub(super) number: u32,
    pub(super) store: [u8; 16],
    pub(super) key_bytes: usize,
    pub(super) file_bytes: u64,
    /// Blocks of a file that take slots.
    pub(super) blocks: u32,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl State {
    pub(super) fn new(io: Io, pages: Pages, files: [Option<FileId>; 2], file: usize, generation: u64) -> State {
        State {
            health: Health::Unfolded,
            file,
            files,
            generation,
            next_generation: generation + 1,
            pages,
            block: 0,
            commit: 1,
            slots: 0,
            buffer: Buffer::new(TAIL_BYTES),
            spare: None,
            life: 0,
            appended: 0,
            durable: 0,
            lives: VecDeque::new(),
            under_way: None,
            busy: false,
            moving: false,
            io: Some(io),
            commits: 0,
        }
    }

    /// What was appended and is not durable is given up for good.
    pub(super) fn give_up(&mut self) {
        if self.durable < self.appended {
            if self.lives.len() == LIVES_REMEMBERED {
                self.lives.pop_front();
            }
            self.lives.push_back((self.life, self.durable));
            self.life = self.life.wrapping_add(1);
            self.durable = self.appended;
        }
        (self.slots, self.under_way) = (0, None);
    }

    /// Whether a ticket is durable; `None` where it never will be.
    fn answer(&self, ticket: LogTicket) -> Option<bool> {
        if ticket.life == self.life {
            let durable = ticket.number <= self.durable;
            return if durable || !matches!(self.health, Health::Poisoned(_)) { Some(durable) } else { None };
        }
        let end = self.lives.iter().find(|(life, _)| *life == ticket.life)?.1;
        (ticket.number <= end).then_some(true)
    }
}

impl Log {
    pub(super) fn layout(&self) -> SlotLayout {
        SlotLayout::for_key_bytes(self.key_bytes)
    }

    /// The log's name in messages.
    pub(super) fn name(&self) -> String {
        format!("the decision log of device {} ({})", self.number, self.device.name())
    }

    pub(super) fn decision(&self, decision: &Decision, deadline: Instant) -> Result<LogTicket> {
        if decision.key.len() > self.key_bytes {
            let (key, room) = (decision.key.len(), self.key_bytes);
            return Err(Error::invalid(format!("{}: a key of {key} bytes, which has {room}", self.name())));
        }
        let extra = matches!(decision.kind, DecisionKind::RemoveKey | DecisionKind::Supersede);
        let layout = self.layout();
        self.append(1, extra, deadline, |_, seed, number, out| layout.encode(decision, seed, number, out))
    }

    pub(super) fn blob(&self, blob: Blob, data: &[u8], deadline: Instant) -> Result<LogTicket> {
        let layout = self.layout();
        let chunks = layout.chunks(blob, data);
        let encode = |at: usize, seed, number, out: &mut [u8]| layout.encode_blob(&chunks[at], seed, number, out);
        self.append(chunks.len() as u64, true, deadline, encode)
    }

    /// Puts slots into the tail, side by side. `extra` ones stop short of the reserve.
    fn append(
        &self,
        slots: u64,
        extra: bool,
        deadline: Instant,
        mut encode: impl FnMut(usize, RecordSeed, u32, &mut [u8]),
    ) -> Result<LogTicket> {
        let mut state = self.state.lock();
        loop {
            self.check(&state)?;
            if !state.moving {
                let per_block = u64::from(state.pages.slots_per_block());
                let needed = (u64::from(state.slots) + slots).div_ceil(per_block);
                let reserve = if extra { (self.blocks / RESERVE_PART).max(1) } else { 0 };
                if u64::from(state.block) + needed > u64::from(self.blocks - reserve) {
                    return Err(Error::full(format!(
                        "{}: {slots} slots do not fit: {} of {} blocks are taken, {reserve} kept; a fold makes room",
                        self.name(),
                        state.block,
                        self.blocks
                    )));
                }
                let bytes = needed as usize * BLOCK_BYTES;
                if bytes > state.buffer.len() && state.slots == 0 {
                    state.buffer = Buffer::new(bytes);
                }
                if bytes <= state.buffer.len() {
                    break;
                }
            }
            self.turn(&mut state, deadline)?;
        }
        let state = &mut *state;
        let per_block = state.pages.slots_per_block();
        for at in 0..slots as usize {
            let (block, index) = (state.slots / per_block, state.slots % per_block);
            let start = block as usize * BLOCK_BYTES;
            let bytes = &mut state.buffer[start..start + BLOCK_BYTES];
            if index == 0 {
                bytes.fill(0);
            }
            let number = (state.block + block) * per_block + index;
            encode(at, state.pages.seed(), number, &mut bytes[state.pages.slot_range(index)]);
            state.slots += 1;
        }
        state.appended += 1;
        Ok(LogTicket { device: self.number, life: state.life, number: state.appended })
    }

    /// Returns once the ticket is durable.
    pub(super) fn wait(&self, ticket: LogTicket, deadline: Instant) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            match state.answer(ticket) {
                Some(true) => return Ok(()),
                Some(false) => self.turn(&mut state, deadline)?,
                None => return Err(self.given_up(&state)),
            }
        }
    }

    /// Makes all that was appended durable.
    pub(super) fn flush(&self, deadline: Instant) -> Result<()> {
        let mut state = self.state.lock();
        let (life, number) = (state.life, state.appended);
        while state.answer(LogTicket { device: self.number, life, number }) == Some(false) {
            self.turn(&mut state, deadline)?;
        }
        match state.answer(LogTicket { device: self.number, life, number }) {
            Some(_) => Ok(()),
            None => Err(self.given_up(&state)),
        }
    }

    /// Writes a commit without slots, which proves that everything in front of it was durable.
    pub(super) fn mark_end(&self, deadline: Instant) -> Result<()> {
        self.flush(deadline)?;
        let mut state = self.state.lock();
        self.check(&state)?;
        if state.commit == 1 || state.block == self.blocks {
            return Ok(());
        }
        let commits = state.commits;
        while state.commits == commits {
            self.check(&state)?;
            self.turn(&mut state, deadline)?;
        }
        Ok(())
    }

    /// Waits for the one who does I/O, or does it: until something has changed.
    pub(super) fn turn(&self, state: &mut MutexGuard<'_, State>, deadline: Instant) -> Result<()> {
        if state.busy {
            if self.changed.wait_until(state, deadline).timed_out() {
                return Err(self.late());
            }
            return Ok(());
        }
        self.check(state)?;
        let Some(mut io) = state.io.take() else {
            return Err(Error::internal(format!("{} has no queue", self.name())));
        };
        let (mut transfer, end) = match state.under_way.take() {
            Some(begun) => begun,
            None => match self.begin(state) {
                Ok(begun) => begun,
                Err(error) => {
                    state.io = Some(io);
                    return Err(error);
                }
            },
        };
        state.busy = true;
        let step = MutexGuard::unlocked(state, || transfer.drive(&mut io, deadline));
        (state.busy, state.io) = (false, Some(io));
        self.changed.notify_all();
        match step {
            Step::Done => {
                state.durable = end;
                state.commits += 1;
                state.spare = transfer.into_buffer().filter(|buffer| buffer.len() == TAIL_BYTES);
                Ok(())
            }
            Step::Late => {
                state.under_way = Some((transfer, end));
                Err(self.late())
            }
            Step::Failed(why) => {
                state.health = Health::Poisoned(why);
                Ok(())
            }
        }
    }

    /// Takes all that is buffered, as one commit.
    fn begin(&self, state: &mut State) -> Result<(Transfer, u64)> {
        let Some(file) = state.files[state.file] else {
            return Err(Error::internal(format!("{} has no file", self.name())));
        };
        let per_block = state.pages.slots_per_block();
        let blocks = state.slots.div_ceil(per_block).max(1);
        if state.slots == 0 {
            state.buffer[..BLOCK_BYTES].fill(0);
        }
        for (index, bytes) in (0..blocks).zip(state.buffer.chunks_exact_mut(BLOCK_BYTES)) {
            let slots = (state.slots - index * per_block).min(per_block);
            let head = BlockHead { commit: state.commit, index, blocks, slots };
            state.pages.encode_head(head, state.block + index, bytes);
        }
        let next = state.spare.take().unwrap_or_else(|| Buffer::new(TAIL_BYTES));
        let buffer = std::mem::replace(&mut state.buffer, next);
        let length = blocks as usize * BLOCK_BYTES;
        let transfer = Transfer::new(file, block_offset(state.block), buffer, length, true);
        state.block += blocks;
        state.commit += 1;
        state.slots = 0;
        Ok((transfer, state.appended))
    }

    /// # Errors
    /// `Unavailable` where the log takes nothing.
    pub(super) fn check(&self, state: &State) -> Result<()> {
        match &state.health {
            Health::Good => Ok(()),
            Health::Unfolded => Err(Error::unavailable(format!("{} was opened and not folded yet", self.name()))),
            Health::Poisoned(_) => Err(self.given_up(state)),
        }
    }

    fn given_up(&self, state: &State) -> Error {
        let why = match &state.health {
            Health::Poisoned(why) => format!("poisoned: {why}"),
            _ => "it moved to another file after a failure".to_owned(),
        };
        Error::unavailable(format!("{} did not make it durable: {why}", self.name()))
    }

    pub(super) fn late(&self) -> Error {
        Error::unavailable(format!(
            "{} did not answer by the deadline; what was appended may still become durable",
            self.name()
        ))
    }
}
