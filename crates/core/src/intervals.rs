//! A compressed set of numbers: the memory of decided events. Dense decisions melt into intervals and cost next to
//! nothing; scattered ones cost about 13 bytes each (start 8, length 4, slack).
//!
//! ```text
//! chunks sorted by first start ─▶ [starts: u64 …][lengths: u32 …]   (at most CHUNK intervals each)
//! ```
//!
//! *Invariants*: intervals are sorted, disjoint and not adjacent (test `behaves_like_a_set`).

const CHUNK: usize = 256;
const GROW: usize = 16;

/// `length + 1` consecutive numbers from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First number.
    pub start: u64,
    /// Numbers after the first.
    pub length: u32,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    starts: Vec<u64>,
    lengths: Vec<u32>,
}

impl Chunk {
    fn insert(&mut self, at: usize, interval: Interval) {
        if self.starts.len() == self.starts.capacity() {
            self.starts.reserve_exact(GROW);
            self.lengths.reserve_exact(GROW);
        }
        self.starts.insert(at, interval.start);
        self.lengths.insert(at, interval.length);
    }

    /// The interval that begins last of those that begin at or before `value`, in a chunk that has one.
    fn at_or_before(&self, value: u64) -> usize {
        match self.starts.last() {
            Some(&start) if start <= value => self.starts.len() - 1,
            _ => self.starts.partition_point(|&start| start <= value) - 1,
        }
    }

    fn last_of(&self, at: usize) -> u64 {
        self.starts[at] + u64::from(self.lengths[at])
    }
}

/// A set of `u64`, small where its members are dense.
#[derive(Clone, Debug, Default)]
pub struct IntervalSet {
    chunks: Vec<Chunk>,
    members: u64,
}

impl IntervalSet {
    /// Numbers in the set.
    pub fn len(&self) -> u64 {
        self.members
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.members == 0
    }

    /// Heap bytes that the set occupies, slack included.
    pub fn heap_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|c| c.starts.capacity() * 8 + c.lengths.capacity() * 4).sum();
        chunks + self.chunks.capacity() * size_of::<Chunk>()
    }

    fn chunk_of(&self, value: u64) -> Option<usize> {
        // Events are decided about in order: mostly the last chunk.
        let last = self.chunks.len().checked_sub(1)?;
        if self.chunks[last].starts[0] <= value {
            return Some(last);
        }
        self.chunks.partition_point(|chunk| chunk.starts[0] <= value).checked_sub(1)
    }

    /// Whether `value` is a member.
    pub fn contains(&self, value: u64) -> bool {
        let Some(chunk) = self.chunk_of(value).map(|at| &self.chunks[at]) else { return false };
        let at = chunk.at_or_before(value);
        value <= chunk.last_of(at)
    }

    /// Adds `value`; `false` where it was a member.
    pub fn insert(&mut self, value: u64) -> bool {
        if self.contains(value) {
            return false;
        }
        self.members += 1;
        let Some(chunk_at) = self.chunk_of(value) else {
            // Before everything: goes to the front of the first chunk, or makes the first one.
            if self.chunks.is_empty() {
                self.chunks.push(Chunk::default());
            }
            let first = &mut self.chunks[0];
            if first.starts.first().is_some_and(|&start| start == value + 1) && first.lengths[0] < u32::MAX {
                first.starts[0] = value;
                first.lengths[0] += 1;
            } else {
                first.insert(0, Interval { start: value, length: 0 });
                self.split(0);
            }
            return true;
        };
        let chunk = &mut self.chunks[chunk_at];
        let at = chunk.at_or_before(value);
        let extends = chunk.last_of(at) + 1 == value && chunk.lengths[at] < u32::MAX;
        // The right neighbour may be at the head of the next chunk.
        let (next_chunk, next_at) = if at + 1 < chunk.starts.len() { (chunk_at, at + 1) } else { (chunk_at + 1, 0) };
        let next = self.chunks.get(next_chunk).map(|chunk| (chunk.starts[next_at], chunk.lengths[next_at]));
        let joins = next.filter(|&(start, length)| value.checked_add(1) == Some(start) && length < u32::MAX);
        match (extends, joins) {
            (true, Some((_, length)))
                if u64::from(self.chunks[chunk_at].lengths[at]) + u64::from(length) + 2 <= u64::from(u32::MAX) =>
            {
                self.chunks[chunk_at].lengths[at] += length + 2;
                self.delete(next_chunk, next_at);
            }
            (true, _) => self.chunks[chunk_at].lengths[at] += 1,
            (false, Some(_)) => {
                let right = &mut self.chunks[next_chunk];
                right.starts[next_at] = value;
                right.lengths[next_at] += 1;
            }
            (false, None) => {
                self.chunks[chunk_at].insert(at + 1, Interval { start: value, length: 0 });
                self.split(chunk_at);
            }
        }
        true
    }

    fn delete(&mut self, chunk_at: usize, at: usize) {
        let chunk = &mut self.chunks[chunk_at];
        chunk.starts.remove(at);
        chunk.lengths.remove(at);
        if chunk.starts.is_empty() {
            self.chunks.remove(chunk_at);
        } else if chunk.starts.capacity() - chunk.starts.len() > 2 * GROW {
            chunk.starts.shrink_to(chunk.starts.len() + GROW);
            chunk.lengths.shrink_to(chunk.lengths.len() + GROW);
        }
    }

    fn split(&mut self, chunk_at: usize) {
        let chunk = &mut self.chunks[chunk_at];
        if chunk.starts.len() < CHUNK {
            return;
        }
        // Numbers mostly grow: a full last chunk keeps its fill, others split in the middle.
        let keep = if chunk_at + 1 == self.chunks.len() { CHUNK - GROW } else { CHUNK / 2 };
        let chunk = &mut self.chunks[chunk_at];
        let right = Chunk { starts: chunk.starts.split_off(keep), lengths: chunk.lengths.split_off(keep) };
        chunk.starts.shrink_to_fit();
        chunk.lengths.shrink_to_fit();
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact(self.chunks.len() / 8 + 4);
        }
        self.chunks.insert(chunk_at + 1, right);
    }

    /// All intervals in order.
    pub fn intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        self.chunks.iter().flat_map(|chunk| {
            chunk.starts.iter().zip(&chunk.lengths).map(|(&start, &length)| Interval { start, length })
        })
    }

    /// Adds intervals in ascending order, as [`IntervalSet::intervals`] gives them.
    ///
    /// # Errors
    /// `Corrupt` where they are not sorted, disjoint and within 64 bits.
    pub fn from_intervals(intervals: impl Iterator<Item = Interval>) -> crate::Result<IntervalSet> {
        let mut set = IntervalSet::default();
        let mut last: Option<u64> = None;
        for interval in intervals {
            let end = interval.start.checked_add(u64::from(interval.length));
            let (Some(end), true) = (end, last.is_none_or(|last| last < interval.start)) else {
                return Err(crate::Error::corrupt("decided events: intervals out of order"));
            };
            last = Some(end);
            set.members += u64::from(interval.length) + 1;
            match set.chunks.last_mut() {
                Some(chunk) if chunk.starts.len() < CHUNK - GROW => chunk.insert(chunk.starts.len(), interval),
                _ => {
                    let mut chunk = Chunk::default();
                    chunk.insert(0, interval);
                    set.chunks.push(chunk);
                }
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(values in prop::collection::vec(prop_oneof![0_u64..3000, any::<u64>(), Just(u64::MAX)], 0..3000)) {
            let (mut set, mut model) = (IntervalSet::default(), BTreeSet::new());
            for &value in &values {
                prop_assert_eq!(set.insert(value), model.insert(value));
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            for probe in values.iter().flat_map(|&v| [v, v.wrapping_add(1), v.wrapping_sub(1)]) {
                prop_assert_eq!(set.contains(probe), model.contains(&probe));
            }
            let all: Vec<Interval> = set.intervals().collect();
            prop_assert!(all.windows(2).all(|w| w[0].start + u64::from(w[0].length) + 1 < w[1].start));
            let again = IntervalSet::from_intervals(all.iter().copied()).unwrap();
            prop_assert_eq!(again.len(), set.len());
            prop_assert_eq!(again.intervals().collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn memory_per_member_dense_and_random() {
        let (mut dense, mut random) = (IntervalSet::default(), IntervalSet::default());
        let mut x = 1_u64;
        for i in 0..1_000_000 {
            // Neighbours swap: the disorder that a farm of filters makes.
            dense.insert(i ^ 5);
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            random.insert(x);
        }
        assert!(dense.heap_bytes() < 1_000_000 / 100);
        assert!(random.heap_bytes() as f64 / 1e6 <= 16.0, "{}", random.heap_bytes());
    }

    #[test]
    fn refuses_disordered_intervals() {
        for list in [[(5, 0), (5, 0)], [(5, 3), (7, 0)], [(u64::MAX, 1), (0, 0)]] {
            let list = list.map(|(start, length)| Interval { start, length });
            assert!(IntervalSet::from_intervals(list.into_iter()).is_err());
        }
    }
}
