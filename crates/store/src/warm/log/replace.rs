//! Folding: a snapshot of everything decided goes to the other file, which then is the log.
//!
//! ```text
//! other file: head says begun ─▶ snapshot, sync, read back ─▶ head says in force ─▶ old file: head says replaced
//! ```
//!
//! *Invariants*: a generation is durable before the first block that carries it, so that no two attempts share one; the
//! snapshot is durable and compared before its head makes it count; the file in force is not touched before that. So a
//! crash at any step leaves exactly one log (test `a_cut_at_every_operation_leaves_one_log`).
//!
//! *On failure*: before the head that makes it count, the log is what it was. From there on it is not known which of the
//! two would be found: the log is poisoned until another snapshot has succeeded.

use super::commit::{Io, Step, Transfer};
use super::format::{BlockHead, FILE_NAMES, FileHead, FileState, HEAD_BLOCKS, Pages, block_offset};
use super::open::read_all;
use super::tail::{Health, Log, TAIL_BYTES};
use crate::warm::{BLOCK_BYTES, Buffer, FileId};
use forebay_core::{Blob, BlobChunk, Error, Result, crc32c};
use std::time::Instant;

/// One move to the other file.
struct Move {
    target: usize,
    file: Option<FileId>,
    old: Option<FileId>,
    generation: u64,
    pages: Pages,
    blocks: u32,
}

impl Log {
    /// Writes the snapshot into the other file and goes on there.
    pub(super) fn replace(&self, snapshot: &[u8], deadline: Instant) -> Result<()> {
        let layout = self.layout();
        let slots = snapshot.len().div_ceil(layout.blob_bytes()).max(1) as u64;
        let mut state = self.state.lock();
        while state.busy {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(self.late());
            }
        }
        let pending = state.appended - state.durable;
        if state.health == Health::Good && pending > 0 {
            return Err(Error::unavailable(format!(
                "{}: {pending} entries are not durable yet: flush before the snapshot is taken",
                self.name()
            )));
        }
        let blocks = slots.div_ceil(u64::from(state.pages.slots_per_block()));
        if blocks > u64::from(self.blocks) {
            return Err(Error::full(format!(
                "{}: a snapshot of {} bytes takes {blocks} blocks of {}",
                self.name(),
                snapshot.len(),
                self.blocks
            )));
        }
        let Some(mut io) = state.io.take() else {
            return Err(Error::internal(format!("{} has no queue", self.name())));
        };
        let (target, generation) = (1 - state.file, state.next_generation);
        state.next_generation += 1;
        (state.busy, state.moving) = (true, true);
        let mut to = Move {
            target,
            file: state.files[target],
            old: state.files[state.file].filter(|_| state.generation > 0),
            generation,
            pages: Pages::new(layout, &self.store, self.number, target as u32, generation),
            blocks: blocks as u32,
        };
        let (old_file, old_generation) = (state.file, state.generation);
        let (done, doubt) = parking_lot::MutexGuard::unlocked(&mut state, || {
            let mut counts = false;
            let done = self.fill_file(&mut to, snapshot, &mut io, deadline, &mut counts);
            if let (Ok(()), Some(old)) = (&done, to.old) {
                // Where this fails two heads say that they are in force, and the higher generation is.
                let head = self.head(old_file, old_generation, FileState::Replaced, 0);
                let _ = self.write_head(old, &head, &mut io, deadline);
            }
            (done, counts)
        });
        (state.busy, state.moving, state.io) = (false, false, Some(io));
        state.files[target] = to.file;
        match &done {
            Ok(()) => {
                state.give_up();
                (state.file, state.generation, state.pages) = (target, generation, to.pages);
                (state.block, state.commit, state.health) = (to.blocks, 1, Health::Good);
            }
            Err(error) if doubt => state.health = Health::Poisoned(error.message().to_owned()),
            Err(_) => {}
        }
        self.changed.notify_all();
        done
    }

    /// Everything up to the head that makes the snapshot count; `counts` is set once that may have been written.
    fn fill_file(
        &self,
        to: &mut Move,
        snapshot: &[u8],
        io: &mut Io,
        deadline: Instant,
        counts: &mut bool,
    ) -> Result<()> {
        if !io.settle(deadline) {
            return Err(self.late());
        }
        let file = match to.file {
            Some(file) => file,
            None => self.make_file(to)?,
        };
        self.write_head(file, &self.head(to.target, to.generation, FileState::Begun, 0), io, deadline)?;
        self.write_snapshot(file, to, snapshot, io, deadline)?;
        *counts = true;
        let head = self.head(to.target, to.generation, FileState::InForce, to.blocks);
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

    /// A file in place of one that is missing or too short.
    fn make_file(&self, to: &mut Move) -> Result<FileId> {
        let name = FILE_NAMES[to.target];
        let make = || {
            if self.device.list()?.iter().any(|known| known == name) {
                self.device.remove(name)?;
            }
            let file = self.device.create(name, self.file_bytes)?;
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

    pub(super) fn head(&self, file: usize, generation: u64, state: FileState, snapshot_blocks: u32) -> FileHead {
        FileHead {
            store: self.store,
            device: self.number,
            file: file as u32,
            state,
            key_bytes: self.key_bytes as u16,
            generation,
            file_bytes: self.file_bytes,
            snapshot_blocks,
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
