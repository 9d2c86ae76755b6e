//! Reads the blocks of a log file: which slots count, and what is surely lost.
//!
//! ```text
//! snapshot (commit 0) | commit 1 | commit 2 | … | commit n | anything
//! └────────────── were durable before commit n began ─────┘ └ whole, torn, or rotten
//! ```
//!
//! *Invariants*: one commit begins only when the one before it is durable, so that in front of the last commit that
//! left anything, every slot must verify (test `rot_in_front_of_a_commit_is_named`). The last one may be torn: the medium
//! kept some of its sectors. Where a sector of it surely came through and a slot in it does not verify, that is rot.
//!
//! *Not here*: I/O (`open.rs`), what the slots mean (`recover`).

use super::format::{BLOCK_HEAD_BYTES, BlockHead, Pages, SECTOR_BYTES};
use crate::bytes::{Blob, BlobChunk, Slot};
use crate::warm::BLOCK_BYTES;
use forebay_core::Result;

/// What one device's log says, in order, from its snapshot on.
#[derive(Debug)]
pub struct LogSlots {
    pages: Pages,
    blocks: Vec<u8>,
    /// Slots of each block.
    slots: Vec<u32>,
    /// Block and slot from which nothing counts.
    end: (u32, u32),
    /// Life of the store that wrote the snapshot, and entries of all shadows before the first one here.
    boot: u32,
    position: u64,
}

impl LogSlots {
    pub(super) fn none(pages: Pages) -> LogSlots {
        LogSlots { pages, blocks: Vec::new(), slots: Vec::new(), end: (0, 0), boot: 0, position: 0 }
    }

    pub(super) fn from(self, boot: u32, position: u64) -> LogSlots {
        LogSlots { boot, position, ..self }
    }

    /// Life of the store that wrote the snapshot.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Position of the first entry behind the snapshot.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Position behind the last entry: of the shadows of one life the longest has all that the others have.
    pub fn end(&self) -> u64 {
        let mut end = self.position;
        let counted = self.each(&mut |slot| {
            end += u64::from(!matches!(slot, Slot::Blob(BlobChunk { blob: Blob::Snapshot, .. })));
            Ok(())
        });
        debug_assert!(counted.is_ok());
        end
    }

    /// Hands out decisions and blobs in order. A blob comes as one chunk, first and last at once; one of which a piece
    /// is missing does not come.
    ///
    /// # Errors
    /// Those of `each`, which end it.
    pub fn each(&self, each: &mut dyn FnMut(Slot) -> Result<()>) -> Result<()> {
        let mut pending: Option<BlobChunk> = None;
        for (block, (bytes, &slots)) in (0_u32..).zip(self.blocks.chunks_exact(BLOCK_BYTES).zip(&self.slots)) {
            for index in (0..slots).take_while(|&index| (block, index) < self.end) {
                match self.pages.decode_slot(bytes, block, index) {
                    // A piece is missing: half of a blob says something else than the whole.
                    None => pending = None,
                    Some(Slot::Decision(decision)) => {
                        pending = None;
                        each(Slot::Decision(decision))?;
                    }
                    Some(Slot::Blob(chunk)) => {
                        let last = chunk.last;
                        pending = join(pending, chunk);
                        if let Some(whole) = pending.take_if(|_| last) {
                            each(Slot::Blob(BlobChunk { last, ..whole }))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The next piece of a blob behind those before it; `None` where its beginning is missing.
fn join(before: Option<BlobChunk>, next: BlobChunk) -> Option<BlobChunk> {
    if next.first {
        return Some(next);
    }
    let mut blob = before.filter(|before| before.blob == next.blob)?;
    blob.data.extend_from_slice(&next.data);
    Some(blob)
}

/// Reads a file's blocks; answers what counts, and what is lost, by name. `unreadable` lists blocks that the medium
/// did not give, which are zeros in `image`.
pub(super) fn scan(
    pages: Pages,
    snapshot_blocks: u32,
    mut image: Vec<u8>,
    unreadable: &[u32],
) -> (LogSlots, Vec<String>) {
    let blocks: Vec<&[u8]> = image.chunks_exact(BLOCK_BYTES).collect();
    let mut walk = Walk { pages, blocks: &blocks, unreadable, losses: Vec::new(), slots: Vec::new() };
    let heads: Vec<Option<BlockHead>> = (0_u32..).zip(&blocks).map(|(n, bytes)| pages.decode_head(bytes, n)).collect();
    let last = (0_u32..).zip(&heads).filter_map(|(n, head)| head.map(|head| (n, head))).max_by_key(|(_, h)| h.commit);
    let (sure, end) = match last {
        Some((n, head)) if head.commit > 0 => (n - head.index, (n - head.index).saturating_add(head.blocks)),
        _ => (snapshot_blocks, snapshot_blocks),
    };
    // What lies before the last commit that left anything was durable when that one began: there nothing may be missing.
    let sure = sure.max(snapshot_blocks);
    let end = end.max(sure);
    // A torn commit ends the log at its first slot that did not come through: what follows was never acknowledged.
    let torn = walk.run(&heads, sure, end);
    let Walk { mut losses, slots, .. } = walk;
    let counted = slots.len();
    let end = torn.unwrap_or((counted as u32, 0));
    let beyond = unreadable.iter().filter(|&&n| n as usize >= counted);
    losses.extend(beyond.map(|n| format!("block {n} cannot be read; its content is unknown")));
    // The rest of the file is given back: shadows of all devices are in memory until one of them was chosen.
    image.truncate(counted * BLOCK_BYTES);
    image.shrink_to_fit();
    (LogSlots { pages, blocks: image, slots, end, boot: 0, position: 0 }, losses)
}

struct Walk<'a> {
    pages: Pages,
    blocks: &'a [&'a [u8]],
    unreadable: &'a [u32],
    losses: Vec<String>,
    slots: Vec<u32>,
}

impl Walk<'_> {
    /// From the first block to `end`; answers where a torn commit ends the log before that.
    fn run(&mut self, heads: &[Option<BlockHead>], sure: u32, end: u32) -> Option<(u32, u32)> {
        let mut before = None;
        for n in 0..end {
            let Some(&bytes) = self.blocks.get(n as usize) else {
                self.losses.push(format!("blocks {n} to {} are past the end of the file", end - 1));
                return None;
            };
            let head = heads[n as usize].filter(|head| follows(before, head, n));
            before = head;
            let torn = self.block(n, bytes, head, n < sure);
            if torn.is_some() {
                return torn;
            }
        }
        // One more block whose head has rotted: its first slot came through with it.
        let next = self.blocks.get(end as usize).filter(|_| heads[end as usize].is_none());
        match next {
            Some(&bytes) if self.verifies(bytes, end, 0) => self.block(end, bytes, None, false),
            _ => None,
        }
    }

    /// One block; answers where it is torn.
    fn block(&mut self, n: u32, bytes: &[u8], head: Option<BlockHead>, sure: bool) -> Option<(u32, u32)> {
        let all = self.pages.slots_per_block();
        let good: Vec<bool> = (0..all).map(|index| self.verifies(bytes, n, index)).collect();
        // Slots verify by themselves, so a block whose head has rotted still gives what is in it.
        // Without a head, slots after the last good one may never have been.
        let written = good.iter().rposition(|good| *good).map_or(0, |last| last as u32 + 1);
        let slots = head.map_or(written, |head| head.slots);
        self.slots.push(slots);
        if self.unreadable.contains(&n) {
            self.losses.push(format!("block {n} cannot be read"));
            return None;
        }
        let whole = self.sectors(head.is_some(), &good);
        let mut lost: Vec<String> = Vec::new();
        if head.is_none() {
            if !sure && !whole[0] {
                self.slots.pop();
                return Some((n, 0));
            }
            lost.push("its head".to_owned());
        }
        let mut torn = None;
        for index in (0..slots).filter(|&index| !good[index as usize]) {
            let place = self.pages.slot_range(index);
            let kept = (place.start / SECTOR_BYTES..=(place.end - 1) / SECTOR_BYTES).all(|sector| whole[sector]);
            if !sure && !kept {
                torn = Some((n, index));
                break;
            }
            lost.push(format!("slot {index}"));
        }
        if !lost.is_empty() {
            let why = if sure { "the log goes on after it" } else { "the same sectors came through" };
            self.losses.push(format!("block {n}: {} not verify although {why}", listed(&lost)));
        }
        torn
    }

    /// Which sectors of a block surely hold what was written last: something in them verifies.
    fn sectors(&self, head: bool, good: &[bool]) -> [bool; BLOCK_BYTES / SECTOR_BYTES] {
        let mut whole = [false; BLOCK_BYTES / SECTOR_BYTES];
        whole[(BLOCK_HEAD_BYTES - 1) / SECTOR_BYTES] = head;
        for (index, _) in (0_u32..).zip(good).filter(|(_, good)| **good) {
            let place = self.pages.slot_range(index);
            whole[place.start / SECTOR_BYTES] = true;
            whole[(place.end - 1) / SECTOR_BYTES] = true;
        }
        whole
    }

    fn verifies(&self, bytes: &[u8], block: u32, index: u32) -> bool {
        self.pages.decode_slot(bytes, block, index).is_some()
    }
}

/// Whether a block may follow the one before it; any block may follow one that does not verify.
fn follows(before: Option<BlockHead>, head: &BlockHead, n: u32) -> bool {
    match before {
        Some(before) if before.index + 1 < before.blocks => {
            (head.commit, head.index, head.blocks) == (before.commit, before.index + 1, before.blocks)
        }
        Some(before) => head.commit == before.commit + 1 && head.index == 0,
        None => n > 0 || head.index == 0,
    }
}

/// At most eight of them by name.
fn listed(lost: &[String]) -> String {
    match lost {
        [one] => format!("{one} does"),
        few if few.len() <= 8 => format!("{} do", few.join(", ")),
        many => format!("{} and {} more do", many[..8].join(", "), many.len() - 8),
    }
}
