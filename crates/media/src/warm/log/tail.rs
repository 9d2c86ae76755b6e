//! The end of one device's shadow: entries that are not durable yet, and the thread that makes them durable.
//!
//! ```text
//! append ─▶ entries (memory) ─▶ commit under way: write, sync ─▶ durable, waiters wake
//!              └ kept from a snapshot's boundary on, until the other file has them
//! ```
//!
//! *Invariants*: appending touches memory only; one commit is under way at a time (`busy`), begins and ends at a block, and
//! no block that it wrote is written again in this generation; a log that has refused an entry takes none before a snapshot,
//! so that it always holds all entries up to a position (`durable`), and none after a gap.
//!
//! *On failure*: the log is poisoned: what was not durable waits for the next snapshot, which has it.

use super::commit::{Io, Step, Transfer};
use super::format::{BlockHead, Pages, block_offset};
use crate::bytes::{Blob, Decision, SlotLayout};
use crate::warm::{BLOCK_BYTES, Buffer, Device, FileId};
use forebay_core::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of one commit, at most; a blob that is longer has one of its own.
pub(super) const TAIL_BYTES: usize = 1 << 20;
/// Entries that wait for one device, at most: past them it is poisoned, and its next snapshot has them.
pub(super) const ENTRIES_MAX: usize = 1 << 18;

/// An entry for the shadows.
#[derive(Debug)]
pub(super) enum Entry {
    Decision(Decision),
    Blob(Blob, Vec<u8>),
}

impl Entry {
    fn slots(&self, layout: SlotLayout) -> u32 {
        match self {
            Entry::Decision(_) => 1,
            Entry::Blob(_, data) => data.len().div_ceil(layout.blob_bytes()).max(1) as u32,
        }
    }
}

/// Whether the log takes anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It was opened and has no snapshot of this life yet: its end may be torn.
    NoSnapshot,
    Good,
    /// Why not.
    Poisoned(String),
}

/// Where the next commit of a file goes.
pub(super) struct Cursor {
    pub(super) pages: Pages,
    /// Blocks of the file that take slots.
    pub(super) blocks: u32,
    /// Block with which the next commit begins, and its number.
    pub(super) block: u32,
    pub(super) commit: u64,
}

impl Cursor {
    /// Lays entries side by side as one commit, up to what fits buffer and file; answers how many, and the commit's
    /// blocks, none where the file has no room for the first of them.
    pub(super) fn lay<'a>(
        &mut self,
        layout: SlotLayout,
        entries: impl Iterator<Item = &'a Arc<Entry>>,
        buffer: &mut Buffer,
    ) -> (u64, u32) {
        let per_block = self.pages.slots_per_block();
        let (mut slots, mut taken) = (0, 0);
        for entry in entries {
            let needed = (slots + entry.slots(layout)).div_ceil(per_block);
            let bytes = needed as usize * BLOCK_BYTES;
            if self.block + needed > self.blocks || bytes > buffer.len() && slots > 0 {
                break;
            }
            if bytes > buffer.len() {
                *buffer = Buffer::new(bytes);
            }
            // Only as many entries as fit whole: a blob that a torn commit cut in two would not come at all.
            let mut put = |encode: &dyn Fn(u32, &mut [u8])| {
                let (block, index) = (slots / per_block, slots % per_block);
                let start = block as usize * BLOCK_BYTES;
                let bytes = &mut buffer[start..start + BLOCK_BYTES];
                if index == 0 {
                    bytes.fill(0);
                }
                let number = (self.block + block) * per_block + index;
                encode(number, &mut bytes[self.pages.slot_range(index)]);
                slots += 1;
            };
            match &**entry {
                Entry::Decision(decision) => {
                    put(&|number, out| layout.encode(decision, self.pages.seed(), number, out));
                }
                Entry::Blob(blob, data) => {
                    for chunk in layout.chunks(*blob, data) {
                        put(&|number, out| layout.encode_blob(&chunk, self.pages.seed(), number, out));
                    }
                }
            }
            taken += 1;
        }
        // A commit without slots marks the end: a block of its own proves that all before it was durable.
        if slots == 0 {
            if self.block == self.blocks {
                return (0, 0);
            }
            buffer[..BLOCK_BYTES].fill(0);
        }
        let blocks = slots.div_ceil(per_block).max(1);
        for (index, bytes) in (0..blocks).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            let slots = (slots - index * per_block).min(per_block);
            let head = BlockHead { commit: self.commit, index, blocks, slots };
            self.pages.encode_head(head, self.block + index, bytes);
        }
        (taken, blocks)
    }

    /// A commit of `blocks` blocks is on its way.
    pub(super) fn moves_on(&mut self, blocks: u32) {
        debug_assert!(self.block + blocks <= self.blocks, "a commit past the end of its file");
        self.block += blocks;
        self.commit += 1;
    }
}

/// The end of a log. Guarded by its mutex.
pub(super) struct Tail {
    pub(super) health: Health,
    /// Which of the two files is the log.
    pub(super) file: usize,
    /// With their sizes in bytes.
    pub(super) files: [Option<(FileId, u64)>; 2],
    pub(super) generation: u64,
    /// The generation of the next snapshot.
    pub(super) next_generation: u64,
    pub(super) at: Cursor,
    /// Entries from position `first` on.
    pub(super) entries: VecDeque<Arc<Entry>>,
    pub(super) first: u64,
    /// Up to where commits have taken entries, and up to where they are durable.
    pub(super) taken: u64,
    pub(super) durable: u64,
    /// Boundary of the snapshot under way: entries from it on are kept for the other file.
    pub(super) boundary: Option<u64>,
    spare: Option<Buffer>,
    under_way: Option<(Transfer, u64)>,
    /// Somebody does I/O and has taken `io` along.
    pub(super) busy: bool,
    pub(super) io: Option<Io>,
    pub(super) commits: u64,
    pub(super) appended: u64,
}

/// One device's log.
pub(super) struct Log {
    pub(super) device: Arc<dyn Device>,
    pub(super) number: u32,
    pub(super) store: [u8; 16],
    pub(super) key_bytes: usize,
    /// Bytes of a file, where its snapshot needs no more.
    pub(super) file_bytes: u64,
    pub(super) state: Mutex<Tail>,
    pub(super) changed: Condvar,
    /// Queue of the snapshots, made with the first: commits go on beside it. What a snapshot gave up ends before the next begins.
    pub(super) snapshot_io: Mutex<Option<Io>>,
}

impl Tail {
    pub(super) fn new(
        io: Io,
        at: Cursor,
        files: [Option<(FileId, u64)>; 2],
        file: usize,
        generation: u64,
        position: u64,
    ) -> Tail {
        Tail {
            health: Health::NoSnapshot,
            file,
            files,
            generation,
            next_generation: generation + 1,
            at,
            entries: VecDeque::new(),
            first: position,
            taken: position,
            durable: position,
            boundary: None,
            spare: None,
            under_way: None,
            busy: false,
            io: Some(io),
            commits: 0,
            appended: 0,
        }
    }

    /// The log takes nothing more before its next snapshot; what a snapshot under way needs is kept.
    pub(super) fn poison(&mut self, why: String) {
        self.health = Health::Poisoned(why);
        self.under_way = None;
        self.forget();
    }

    /// The other file is the log now: a commit of the one before does not matter any more.
    pub(super) fn give_up_commit(&mut self) {
        self.under_way = None;
    }

    /// Drops entries that neither a commit nor a snapshot needs.
    pub(super) fn forget(&mut self) {
        // A log that takes nothing needs no entry itself: the next snapshot has all of them. A snapshot under way does, from its
        // boundary on, because the snapshot that it writes ends there.
        let good = if self.health == Health::Good { self.taken } else { u64::MAX };
        let needed = good.min(self.boundary.unwrap_or(u64::MAX)).min(self.end());
        debug_assert!(needed >= self.first, "entries that were dropped are needed again");
        self.entries.drain(..(needed - self.first) as usize);
        self.first = needed;
    }

    /// Position behind the last entry that is kept.
    pub(super) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Whether the file has room for all that waits.
    pub(super) fn has_room(&self, layout: SlotLayout) -> bool {
        let slots: u32 = self.from(self.taken.max(self.first)).map(|entry| entry.slots(layout)).sum();
        self.at.block + slots.div_ceil(self.at.pages.slots_per_block()) <= self.at.blocks
    }

    /// Entries from a position on.
    pub(super) fn from(&self, position: u64) -> impl Iterator<Item = &Arc<Entry>> {
        debug_assert!(position >= self.first, "entries before {} were dropped", self.first);
        self.entries.range((position - self.first) as usize..)
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

    /// Takes the entry at this position, in memory, unless the log takes nothing.
    pub(super) fn append(&self, entry: &Arc<Entry>, position: u64) {
        // Memory only, never longer than a push: the caller holds the lock of an event.
        let mut state = self.state.lock();
        // Without a gap: once an entry is refused, all later ones are, until a snapshot has them.
        if state.health != Health::Good && state.boundary.is_none() {
            return;
        }
        // Bounded: a device that stays silent for hours would otherwise fill the memory of the process with decisions.
        if state.entries.len() >= ENTRIES_MAX {
            // A snapshot under way lacks it as well: it will not count.
            state.boundary = None;
            state.poison(format!("{ENTRIES_MAX} entries wait for it"));
            self.changed.notify_all();
            return;
        }
        debug_assert_eq!(state.end(), position, "a shadow holds every entry up to its end");
        state.entries.push_back(entry.clone());
        state.appended += 1;
    }

    /// Returns once everything before the position is durable.
    pub(super) fn wait(&self, position: u64, deadline: Instant) -> Result<()> {
        let mut state = self.state.lock();
        while state.durable < position {
            // A snapshot of a log that takes nothing settles what waits for it.
            if state.health != Health::Good && state.boundary.is_some() {
                if self.changed.wait_until(&mut state, deadline).timed_out() {
                    return Err(self.late());
                }
                continue;
            }
            self.turn(&mut state, deadline)?;
        }
        Ok(())
    }

    /// Writes a commit without slots, which proves that everything in front of it was durable.
    pub(super) fn mark_end(&self, deadline: Instant) -> Result<()> {
        let end = self.state.lock().end();
        self.wait(end, deadline)?;
        let mut state = self.state.lock();
        self.check(&state)?;
        // Nothing to mark in a file that has only its snapshot, and no room in one that is full: there the last commit may be
        // taken for a torn one where it rots, which costs durability nothing while the hot level is there.
        if state.at.commit == 1 || state.at.block == state.at.blocks {
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
    pub(super) fn turn(&self, state: &mut MutexGuard<'_, Tail>, deadline: Instant) -> Result<()> {
        if state.busy {
            if self.changed.wait_until(state, deadline).timed_out() {
                return Err(self.late());
            }
            return Ok(());
        }
        self.check(state)?;
        // The first thread that waits does the work for all, with the queue taken along; no thread of its own, so that
        // a decision is durable one sync after it was made and not one wake-up later.
        let Some(mut io) = state.io.take() else {
            return Err(Error::internal(format!("{} has no queue", self.name())));
        };
        let (mut transfer, end) = match state.under_way.take() {
            Some(begun) => begun,
            None => match self.begin(state) {
                Ok(Some(begun)) => begun,
                Ok(None) => {
                    state.io = Some(io);
                    // The file is full: a snapshot makes room.
                    if self.changed.wait_until(state, deadline).timed_out() {
                        return Err(self.late());
                    }
                    return Ok(());
                }
                Err(error) => {
                    state.io = Some(io);
                    return Err(error);
                }
            },
        };
        // Unlocked meanwhile: decisions are appended while the device works.
        state.busy = true;
        let step = MutexGuard::unlocked(state, || transfer.drive(&mut io, deadline));
        (state.busy, state.io) = (false, Some(io));
        self.changed.notify_all();
        match step {
            Step::Done => {
                debug_assert!(state.durable <= end && end <= state.taken, "a commit outside of what was taken");
                state.durable = end;
                state.commits += 1;
                state.spare = transfer.into_buffer().filter(|buffer| buffer.len() == TAIL_BYTES);
                Ok(())
            }
            // Kept as it is: the next thread that waits continues the same operation. Another one could put two commits
            // into one block.
            Step::Late => {
                state.under_way = Some((transfer, end));
                Err(self.late())
            }
            Step::Failed(why) => {
                state.poison(why);
                Ok(())
            }
        }
    }

    /// Takes what waits, as one commit; `None` where the file has no room for it.
    fn begin(&self, state: &mut Tail) -> Result<Option<(Transfer, u64)>> {
        let Some((file, _)) = state.files[state.file] else {
            return Err(Error::internal(format!("{} has no file", self.name())));
        };
        let mut buffer = state.spare.take().unwrap_or_else(|| Buffer::new(TAIL_BYTES));
        let Tail { at, entries, first, taken, .. } = state;
        let waiting = entries.range((*taken - *first) as usize..);
        let (count, blocks) = at.lay(self.layout(), waiting, &mut buffer);
        if blocks == 0 || count == 0 && state.end() > state.taken {
            state.spare = Some(buffer).filter(|buffer| buffer.len() == TAIL_BYTES);
            return Ok(None);
        }
        // Counted before it is written: even if this commit fails, its blocks are never written again in this generation.
        let offset = block_offset(state.at.block);
        state.at.moves_on(blocks);
        state.taken += count;
        state.forget();
        Ok(Some((Transfer::new(file, offset, buffer, blocks as usize * BLOCK_BYTES, true), state.taken)))
    }

    /// # Errors
    /// `Unavailable` where the log takes nothing.
    pub(super) fn check(&self, state: &Tail) -> Result<()> {
        if state.health == Health::Good { Ok(()) } else { Err(self.given_up(state)) }
    }

    fn given_up(&self, state: &Tail) -> Error {
        match &state.health {
            Health::Poisoned(why) => {
                Error::unavailable(format!("{} did not make it durable: poisoned: {why}", self.name()))
            }
            _ => Error::unavailable(format!("{} was opened and has no snapshot of this life yet", self.name())),
        }
    }

    pub(super) fn late(&self) -> Error {
        Error::unavailable(format!(
            "{} did not answer by the deadline; what was appended may still become durable",
            self.name()
        ))
    }
}
