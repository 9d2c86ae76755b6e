//! Counts of what each source of a run has put, in one shard: a few words that every arrival touches.

use super::rule::code;
use std::collections::BTreeMap;

// Detectors number their sources from zero: an index costs less than a search on every arrival. The bound keeps one source
// with a large number from taking a table of that size.
/// Sources whose code is below this have a place in a plain table.
const DENSE: u64 = 1 << 14;

/// One source's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceCount {
    pub(crate) fragments: u64,
    pub(crate) bytes: u64,
    /// The last 8 bytes of its last event's primary key.
    pub(crate) last: [u8; 8],
    /// Events that became ready without it, fragments after their event was ready, and conflicts.
    pub(crate) missing: u32,
    pub(crate) late: u32,
    pub(crate) conflicts: u32,
}

/// All sources of a run in one shard.
#[derive(Debug, Default)]
pub(crate) struct SourceCounts {
    dense: Vec<SourceCount>,
    sparse: BTreeMap<Vec<u8>, SourceCount>,
}

impl SourceCounts {
    #[inline]
    pub(crate) fn of(&mut self, source: &[u8]) -> &mut SourceCount {
        match code(source) {
            Some(code) if code < DENSE => {
                let at = code as usize;
                if at >= self.dense.len() {
                    self.grow(at);
                }
                &mut self.dense[at]
            }
            _ => self.sparse.entry(source.to_vec()).or_default(),
        }
    }

    /// Fragments of a source; asking leaves nothing behind.
    pub(crate) fn fragments(&self, source: &[u8]) -> u64 {
        let count = match code(source) {
            Some(code) if code < DENSE => self.dense.get(code as usize),
            _ => self.sparse.get(source),
        };
        count.map_or(0, |count| count.fragments)
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        debug_assert!((at as u64) < DENSE, "source {at} belongs to the sparse ones");
        self.dense.resize((at + 1).next_power_of_two().max(16), SourceCount::default());
    }

    /// A fragment of it became readable.
    #[inline]
    pub(crate) fn arrived(&mut self, source: &[u8], length: u32, primary: &[u8]) {
        let count = self.of(source);
        count.fragments += 1;
        count.bytes += u64::from(length);
        if let Some(last) = primary.last_chunk::<8>() {
            count.last = *last;
        } else {
            count.last = [0; 8];
            count.last[8 - primary.len()..].copy_from_slice(primary);
        }
    }

    /// A fragment that arrived is in the figures already.
    pub(crate) fn take_back(&mut self, source: &[u8], length: u32) {
        let count = self.of(source);
        // Saturating: figures that a crash took are smaller than what is counted again.
        count.fragments = count.fragments.saturating_sub(1);
        count.bytes = count.bytes.saturating_sub(u64::from(length));
    }

    /// A fragment that arrived is in another node's figures.
    pub(crate) fn left(&mut self, source: &[u8], length: u32) {
        self.take_back(source, length);
        let count = self.of(source);
        if count.fragments == 0 {
            // Else a source of which nothing is counted here would have a row of its own.
            count.last = [0; 8];
        }
    }

    /// Those of which anything is known, with packed sources of this width.
    pub(crate) fn known(&self, width: usize) -> impl Iterator<Item = (Vec<u8>, SourceCount)> + '_ {
        let dense = self.dense.iter().enumerate().filter(|(_, count)| **count != SourceCount::default());
        let packed = move |at: usize| {
            let bytes = (at as u64).to_be_bytes();
            let mut source = vec![0; width];
            let n = width.min(8);
            source[width - n..].copy_from_slice(&bytes[8 - n..]);
            source
        };
        let dense = dense.map(move |(at, count)| (packed(at), *count));
        dense.chain(self.sparse.iter().map(|(source, count)| (source.clone(), *count)))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.dense.capacity() * size_of::<SourceCount>() + self.sparse.len() * (size_of::<SourceCount>() + 96)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_and_sparse_sources_are_known_by_their_packed_form() {
        let mut counts = SourceCounts::default();
        for source in [3_u32, 70_000, 3, 4_000_000_000] {
            counts.arrived(&source.to_be_bytes(), 10, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
        }
        counts.of(&5_u32.to_be_bytes()).missing += 1;
        let known: Vec<(Vec<u8>, u64)> = counts.known(4).map(|(source, count)| (source, count.fragments)).collect();
        let expected = [(3_u32, 2), (5, 0), (70_000, 1), (4_000_000_000, 1)];
        assert_eq!(known, expected.map(|(source, n)| (source.to_be_bytes().to_vec(), n)));
        let fragments = [3_u32, 70_000, 9, 80_000].map(|source| counts.fragments(&source.to_be_bytes()));
        assert_eq!((fragments, counts.known(4).count()), ([2, 1, 0, 0], 4));
        assert_eq!(counts.of(&3_u32.to_be_bytes()).last, [0, 0, 0, 0, 0, 0, 0, 9]);
    }
}
