//! One chunk in memory: which fragments it holds, in time order.
//!
//! *Invariants*: items are sorted by timestamp, no timestamp occurs twice in a source (`put`); 16 bytes per fragment,
//! without slack once the chunk is closed (tests/ring/memory.rs).

use forebay_core::{RingStamp, Tally};

/// One fragment: where its entry is, and what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) timestamp: u64,
    pub(super) span: u32,
    pub(super) entry: u32,
}

// What a ring pays in memory for each fragment (decision 0007): offset, length and status are read from the entry.
const _: () = assert!(size_of::<Item>() == 16);

impl Item {
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.timestamp + u64::from(self.span)
    }
}

/// Fragments of one run in a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunTally {
    pub(super) run: u32,
    pub(super) tally: Tally,
}

/// One chunk: a segment that one source writes or has written.
pub(super) struct Chunk {
    pub(super) segment: u32,
    pub(super) generation: u32,
    /// First tick.
    pub(super) begin: u64,
    /// Tick after the last one.
    pub(super) end: u64,
    /// At least the highest end of all chunks before it: where that lies before a window, none of them matters.
    pub(super) end_before: u64,
    /// Longest span.
    span_max: u32,
    /// Of the source's eras, the one that it was begun in.
    pub(super) era: u32,
    pub(super) items: Vec<Item>,
    pub(super) runs: Vec<RunTally>,
}

impl Chunk {
    pub(super) fn new(segment: u32, generation: u32, era: u32, fragments: usize) -> Chunk {
        let items = Vec::with_capacity(fragments);
        let (begin, end) = (u64::MAX, 0);
        Chunk { segment, generation, begin, end, end_before: 0, span_max: 0, era, items, runs: Vec::new() }
    }

    /// Takes a fragment into the index.
    #[inline]
    pub(super) fn insert(&mut self, stamp: &RingStamp, entry: u32, length: u32) {
        let item = Item { timestamp: stamp.timestamp, span: stamp.span, entry };
        self.begin = self.begin.min(item.timestamp);
        self.end = self.end.max(item.end());
        self.span_max = self.span_max.max(item.span);
        match self.items.last() {
            // Rare: a link is in order except for a few frames at a restart or a reordered packet.
            Some(last) if last.timestamp > item.timestamp => {
                let at = self.items.partition_point(|other| other.timestamp < item.timestamp);
                let taken = self.items.get(at).is_some_and(|other| other.timestamp == item.timestamp);
                debug_assert!(!taken, "timestamp {} occurs twice in a chunk", item.timestamp);
                self.items.insert(at, item);
            }
            last => {
                debug_assert!(last.is_none_or(|last| last.timestamp < item.timestamp), "a timestamp occurs twice");
                self.items.push(item);
            }
        }
        let tally = Tally::fragment(u64::from(length));
        match self.runs.iter_mut().find(|of_run| of_run.run == stamp.run) {
            Some(of_run) => of_run.tally += tally,
            None => self.runs.push(RunTally { run: stamp.run, tally }),
        }
    }

    /// Nothing is added in order any more: gives slack back.
    pub(super) fn shrink(&mut self) {
        // A ring has thousands of chunks, and a late reservation is the only thing that may still come.
        self.items.shrink_to_fit();
        self.runs.shrink_to_fit();
    }

    #[inline]
    pub(super) fn overlaps(&self, begin: u64, end: u64) -> bool {
        self.begin < end && self.end > begin
    }

    /// Fragments that overlap `[begin, end)`, in time order: how many at most, and which.
    #[inline]
    pub(super) fn overlapping(&self, begin: u64, end: u64) -> (usize, impl Iterator<Item = &Item>) {
        // Sorted by begin, searched by end: nothing that begins more than the longest span before the window reaches into it.
        let span_max = u64::from(self.span_max);
        let from = self.items.partition_point(|item| item.timestamp.saturating_add(span_max) <= begin);
        let rest = &self.items[from..];
        let to = rest.partition_point(|item| item.timestamp < end);
        (to, rest[..to].iter().filter(move |item| item.end() > begin))
    }

    /// The stretches of ticks that its fragments cover, in order; they neither meet nor overlap.
    pub(super) fn covered(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut items = self.items.iter().peekable();
        std::iter::from_fn(move || {
            let first = items.next()?;
            let mut end = first.end();
            while let Some(next) = items.next_if(|next| next.timestamp <= end) {
                end = end.max(next.end());
            }
            Some((first.timestamp, end))
        })
    }

    /// The fragment with this very timestamp.
    pub(super) fn find(&self, timestamp: u64) -> Option<&Item> {
        let at = self.items.binary_search_by_key(&timestamp, |item| item.timestamp).ok()?;
        self.items.get(at)
    }

    pub(super) fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.runs.iter().for_each(|of_run| sum += of_run.tally);
        sum
    }

    /// Bytes of memory behind the struct itself, slack included.
    pub(super) fn heap_bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.runs.capacity() * size_of::<RunTally>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_is_exact_at_every_tick() {
        let mut chunk = Chunk::new(0, 1, 0, 0);
        // Out of order, with a hole, one long fragment over others.
        for (entry, (timestamp, span)) in [(10, 5), (30, 5), (15, 5), (12, 20), (50, 1)].into_iter().enumerate() {
            chunk.insert(&RingStamp { timestamp, span, run: 1 }, entry as u32, 3);
        }
        assert!(chunk.items.is_sorted_by_key(|item| item.timestamp));
        for begin in 0..60 {
            for end in begin + 1..61 {
                let found: Vec<u64> = chunk.overlapping(begin, end).1.map(|item| item.timestamp).collect();
                let expected: Vec<u64> = [(10, 5), (12, 20), (15, 5), (30, 5), (50, 1)]
                    .into_iter()
                    .filter(|&(timestamp, span)| timestamp < end && timestamp + span > begin)
                    .map(|(timestamp, _)| timestamp)
                    .collect();
                assert_eq!(found, expected, "[{begin}, {end})");
            }
        }
        assert_eq!(chunk.tally(), Tally { events: 0, fragments: 5, bytes: 15 });
        assert_eq!(chunk.find(15).map(|item| item.entry), Some(2));
        assert_eq!(chunk.find(16), None);
    }
}
