//! Taking a snapshot: everything decided goes to the other file, which then is the log.
//!
//! ```text
//! boundary ─▶ other file: head says begun ─▶ snapshot, sync, read back ─▶ entries since the boundary ─▶ head says in force
//!                 └ meanwhile commits go on in the file in force            └ only here they wait
//! ```
//!
//! *Invariants*: a generation is durable before the first block that carries it, so that no two attempts share one; the
//! snapshot is durable and compared before its head makes it count; the file in force has every entry that was answered
//! for until then. So a crash at any step leaves exactly one log (test `a_cut_at_every_operation_leaves_one_log`).
//!
//! *On failure*: before the head that makes it count, the log is what it was. From there on it is not known which of the
//! two would be found: the log is poisoned until another snapshot has succeeded.

use super::commit::{Io, Step, Transfer};
use super::format::{BlockHead, FILE_NAMES, FileHead, FileState, HEAD_BLOCKS, LOG_BYTES_MAX, Pages, block_offset};
use super::open::read_all;
use super::tail::{Cursor, Health, Log, TAIL_BYTES, Tail};
use crate::bytes::{Blob, BlobChunk};
use crate::warm::{BLOCK_BYTES, Buffer, FileId};
use forebay_core::{Error, Result, crc32c};
use std::time::Instant;

/// One move to the other file.
struct Move {
    target: usize,
    file: Option<FileId>,
    file_bytes: u64,
    generation: u64,
    pages: Pages,
    blocks: u32,
    boot: u32,
    boundary: u64,
}

impl Tail {
    /// The other file is the log now: it has everything before `end`, and the next commit goes to `at`.
    fn moves_to(&mut self, to: &Move, at: Cursor, end: u64) {
        debug_assert!(to.generation > self.generation, "a generation that was used comes again");
        debug_assert!(to.target != self.file, "a snapshot over the file in force");
        debug_assert!(end >= to.boundary, "the snapshot has entries that were not appended");
        (self.file, self.generation, self.at) = (to.target, to.generation, at);
        self.durable = end.max(self.durable);
        self.give_up_commit();
        // Else too much came meanwhile, and was dropped: it takes nothing before the next snapshot.
        if self.boundary == Some(to.boundary) {
            (self.taken, self.health) = (end, Health::Good);
        }
    }
}

impl Log {
    /// The snapshot that comes has every entry before this position; those from it on are kept.
    pub(super) fn begin_snapshot(&self, boundary: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.boundary.is_some() {
            return Err(Error::unavailable(format!("{} has a snapshot under way", self.name())));
        }
        if state.health != Health::Good {
            (state.first, state.taken) = (boundary, boundary);
            debug_assert!(state.entries.is_empty(), "a log that takes nothing keeps nothing");
        }
        state.boundary = Some(boundary);
        Ok(())
    }

    /// The snapshot has ended, or will not take place.
    pub(super) fn end_snapshot(&self) {
        let mut state = self.state.lock();
        state.boundary = None;
        state.forget();
        self.changed.notify_all();
    }

    /// Writes the snapshot into the other file, and goes on there. Between `begin_snapshot` and `end_snapshot`.
    pub(super) fn replace(&self, snapshot: &[u8], boot: u32, deadline: Instant) -> Result<()> {
        let layout = self.layout();
        let slots = snapshot.len().div_ceil(layout.blob_bytes()).max(1) as u64;
        let mut to = {
            let mut state = self.state.lock();
            let Some(boundary) = state.boundary else {
                return Err(Error::unavailable(format!("{}: too much came beside the snapshot", self.name())));
            };
            // A commit that was given up may go to the file that is written next.
            if !state.busy && state.io.as_mut().is_some_and(|io| !io.settle(Instant::now())) {
                return Err(self.late());
            }
            let (target, generation) = (1 - state.file, state.next_generation);
            state.next_generation += 1;
            let pages = Pages::new(layout, &self.store, self.number, target as u32, generation);
            let blocks = slots.div_ceil(u64::from(pages.slots_per_block()));
            // A snapshot takes half of its file at most: there is room for what comes before the next one. A file that is too
            // small is replaced by a larger one.
            let file_bytes = self.file_bytes.max((2 * blocks + u64::from(HEAD_BLOCKS)) * BLOCK_BYTES as u64);
            if file_bytes > LOG_BYTES_MAX {
                return Err(Error::full(format!(
                    "{}: a snapshot of {} bytes takes {blocks} blocks; a file has at most {LOG_BYTES_MAX} bytes",
                    self.name(),
                    snapshot.len()
                )));
            }
            let known = state.files[target].filter(|(_, bytes)| *bytes >= file_bytes);
            let (file, file_bytes) = (known.map(|known| known.0), known.map_or(file_bytes, |known| known.1));
            Move { target, file, file_bytes, generation, pages, blocks: blocks as u32, boot, boundary }
        };
        let mut io = self.snapshot_io.lock();
        let io = match &mut *io {
            Some(io) => io,
            none => none.insert(Io::new(&*self.device).map_err(|error| self.refused("open a queue", &error))?),
        };
        if !io.settle(deadline) {
            return Err(self.late());
        }
        let filled = self.fill_file(&mut to, snapshot, io, deadline);
        if let Some(file) = to.file {
            self.state.lock().files[to.target] = Some((file, to.file_bytes));
        }
        filled?;
        self.switch(&to, io, deadline)
    }

    /// What came since the boundary goes behind the snapshot, and its head makes it count: meanwhile commits wait.
    fn switch(&self, to: &Move, io: &mut Io, deadline: Instant) -> Result<()> {
        let Some(file) = to.file else { return Err(Error::internal("a snapshot without a file")) };
        let mut state = self.state.lock();
        // A commit under way is waited for: its entries are durable in the old file, and go to the other one as well.
        while state.busy {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(self.late());
            }
        }
        self.check_counts(&state, to)?;
        // From here to the end only this thread writes: entries that came since the boundary go to the other file, and none may
        // go to the old one any more, or it would be durable in a file that is about to be replaced.
        state.busy = true;
        let blocks = (to.file_bytes / BLOCK_BYTES as u64) as u32 - HEAD_BLOCKS;
        let mut at = Cursor { pages: to.pages, blocks, block: to.blocks, commit: 1 };
        let end = state.end();
        let (mut taken, mut counts) = (to.boundary, false);
        let mut carry = || -> Result<()> {
            while taken < end {
                let mut buffer = Buffer::new(TAIL_BYTES);
                let (count, blocks) =
                    at.lay(self.layout(), state.from(taken).take((end - taken) as usize), &mut buffer);
                if count == 0 {
                    return Err(Error::full(format!("{}: what came beside the snapshot does not fit", self.name())));
                }
                let (offset, length) = (block_offset(at.block), blocks as usize * BLOCK_BYTES);
                at.moves_on(blocks);
                taken += count;
                let last = taken == end;
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    self.carry(Transfer::new(file, offset, buffer, length, last), io, deadline)
                })?;
                self.check_counts(&state, to)?;
            }
            // From here on, no matter what happens, an opening may find either file in force.
            counts = true;
            parking_lot::MutexGuard::unlocked(&mut state, || self.make_it_count(file, to, io, deadline))
        };
        let done = carry();
        state.busy = false;
        match &done {
            Ok(()) => {
                let old = state.files[state.file].filter(|_| state.generation > 0);
                let old_head = self.head(state.file, state.generation, FileState::Replaced, to);
                let old_head = FileHead { file_bytes: old.map_or(0, |old| old.1), ..old_head };
                state.moves_to(to, at, end);
                self.changed.notify_all();
                drop(state);
                if let Some((old, _)) = old {
                    // Where this fails two heads say that they are in force, and the higher generation is.
                    let _ = self.write_head(old, &old_head, io, deadline);
                }
                return Ok(());
            }
            Err(error) if counts => state.poison(error.message().to_owned()),
            Err(_) => {}
        }
        self.changed.notify_all();
        done
    }

    /// # Errors
    /// `Unavailable` where entries that the snapshot lacks were dropped: more came beside it than is kept.
    fn check_counts(&self, state: &Tail, to: &Move) -> Result<()> {
        if state.boundary == Some(to.boundary) {
            return Ok(());
        }
        Err(Error::unavailable(format!("{}: too much came beside the snapshot", self.name())))
    }

    /// Both copies of the head that makes the file count, read back.
    fn make_it_count(&self, file: FileId, to: &Move, io: &mut Io, deadline: Instant) -> Result<()> {
        let head = self.head(to.target, to.generation, FileState::InForce, to);
        self.write_head(file, &head, io, deadline)?;
        let mut found = Buffer::new(HEAD_BLOCKS as usize * BLOCK_BYTES);
        read_all(&*self.device, file, 0, &mut found).map_err(|error| self.refused("read", &error))?;
        let both =
            found.chunks_exact(BLOCK_BYTES).all(|copy| FileHead::decode(copy).ok().flatten().as_ref() == Some(&head));
        if both {
            Ok(())
        } else {
            Err(Error::corrupt(format!("{}: the head reads back other than written", self.name())))
        }
    }

    /// The snapshot in the other file, whole, durable and compared; it does not count yet.
    fn fill_file(&self, to: &mut Move, snapshot: &[u8], io: &mut Io, deadline: Instant) -> Result<()> {
        let file = match to.file {
            Some(file) => file,
            None => self.make_file(to)?,
        };
        // Durable before the first block of this generation: an attempt that is cut off must not share its generation with the
        // next one, whose blocks would then verify among its remains.
        self.write_head(file, &self.head(to.target, to.generation, FileState::Begun, to), io, deadline)?;
        self.write_snapshot(file, to, snapshot, io, deadline)
    }

    /// A file in place of one that is missing or too short.
    fn make_file(&self, to: &mut Move) -> Result<FileId> {
        let name = FILE_NAMES[to.target];
        let make = || {
            if self.device.list()?.iter().any(|known| known == name) {
                self.device.remove(name)?;
            }
            let file = self.device.create(name, to.file_bytes)?;
            self.device.sync_names()?;
            Ok(file)
        };
        let file = make().map_err(|error: std::io::Error| self.refused("create", &error))?;
        to.file = Some(file);
        Ok(file)
    }

    fn write_snapshot(&self, file: FileId, to: &Move, data: &[u8], io: &mut Io, deadline: Instant) -> Result<()> {
        let (layout, per_block) = (self.layout(), to.pages.slots_per_block());
        let slots = data.len().div_ceil(layout.blob_bytes()).max(1);
        let mut pieces = data.chunks(layout.blob_bytes());
        let piece_blocks = (TAIL_BYTES / BLOCK_BYTES) as u32;
        let mut sums = Vec::new();
        for first in (0..to.blocks).step_by(piece_blocks as usize) {
            let count = piece_blocks.min(to.blocks - first);
            let mut buffer = Buffer::new(count as usize * BLOCK_BYTES);
            for (block, bytes) in (first..).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
                let begin = block * per_block;
                let here = (slots as u32 - begin).min(per_block);
                let head = BlockHead { commit: 0, index: block, blocks: to.blocks, slots: here };
                to.pages.encode_head(head, block, bytes);
                for index in 0..here {
                    let number = begin + index;
                    let chunk = BlobChunk {
                        blob: Blob::Snapshot,
                        first: number == 0,
                        last: number as usize + 1 == slots,
                        data: pieces.next().unwrap_or_default().to_vec(),
                    };
                    layout.encode_blob(&chunk, to.pages.seed(), number, &mut bytes[to.pages.slot_range(index)]);
                }
            }
            sums.push((first, buffer.len(), crc32c(&buffer)));
            let (length, last) = (buffer.len(), first + count == to.blocks);
            self.carry(Transfer::new(file, block_offset(first), buffer, length, last), io, deadline)?;
        }
        // Read back: once its head counts, the log before it is gone. A snapshot that a disk has mangled would be found when the
        // hot level is lost, and then it is the only account.
        for (first, length, sum) in sums {
            let mut found = Buffer::new(length);
            read_all(&*self.device, file, block_offset(first), &mut found)
                .map_err(|error| self.refused("read", &error))?;
            if crc32c(&found) != sum {
                return Err(Error::corrupt(format!(
                    "{}: blocks {first} and following of the snapshot read back other than written",
                    self.name()
                )));
            }
        }
        Ok(())
    }

    /// Both copies, one after the other, so that no crash finds both of them half written.
    pub(super) fn write_head(&self, file: FileId, head: &FileHead, io: &mut Io, deadline: Instant) -> Result<()> {
        for copy in 0..u64::from(HEAD_BLOCKS) {
            let mut block = Buffer::new(BLOCK_BYTES);
            head.encode(&mut block);
            self.carry(Transfer::new(file, copy * BLOCK_BYTES as u64, block, BLOCK_BYTES, true), io, deadline)?;
        }
        Ok(())
    }

    fn head(&self, file: usize, generation: u64, state: FileState, to: &Move) -> FileHead {
        FileHead {
            store: self.store,
            device: self.number,
            file: file as u32,
            state,
            key_bytes: self.key_bytes as u16,
            generation,
            file_bytes: to.file_bytes,
            snapshot_blocks: if state == FileState::InForce { to.blocks } else { 0 },
            boot: to.boot,
            position: to.boundary,
        }
    }

    fn carry(&self, mut transfer: Transfer, io: &mut Io, deadline: Instant) -> Result<()> {
        match transfer.drive(io, deadline) {
            Step::Done => Ok(()),
            Step::Late => Err(self.late()),
            Step::Failed(why) => Err(Error::unavailable(format!("{}: {why}", self.name()))),
        }
    }

    pub(super) fn refused(&self, what: &str, error: &std::io::Error) -> Error {
        Error::unavailable(format!("{}: cannot {what}: {error}", self.name()))
    }
}
