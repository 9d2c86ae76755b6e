//! Bins of a numeric stream: a binary tree over the range of its values, whose leaves are the bins.
//!
//! ```text
//! all values < 2^r, share 2^L ─┬─ lower half, its share ─┬─ leaf: share, bits that follow raw
//!                              │                         └─ narrow: the values have these leading bits in common
//!                              └─ upper half, the rest of the share ── …
//! ```
//!
//! The tree is finer where values are dense. How exactly a share is divided depends on its size: a precise share
//! costs more bits than it saves where few values decide it. So a tree of 20 leaves takes about 15 bytes.
//!
//! *Invariants*: the shares of the leaves are positive and their sum is `2^L` (`Leaves::read` fills the table with them).

use super::Damaged;
use super::bits::{BitReader, BitWriter, bits_of};
use std::sync::LazyLock;

/// Shares of a table are at most 2 to this.
pub(super) const LOG_MAX: u32 = 12;

/// Values of a stream as unsigned words.
pub(super) trait Word: Copy + Ord + Default {
    /// As the widest one.
    fn wide(self) -> u64;
    /// The lowest bits of the widest one.
    fn narrow(wide: u64) -> Self;
}

impl Word for u32 {
    #[inline]
    fn wide(self) -> u64 {
        u64::from(self)
    }

    #[inline]
    fn narrow(wide: u64) -> u32 {
        wide as u32
    }
}

impl Word for u64 {
    #[inline]
    fn wide(self) -> u64 {
        self
    }

    #[inline]
    fn narrow(wide: u64) -> u64 {
        wide
    }
}

/// A bin: the values from `lower` on that differ from it in the last `bits` bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) lower: u64,
    pub(super) bits: u32,
    /// Its part of `2^L`.
    pub(super) share: u32,
}

/// A node of the tree, in the order of its bits.
#[derive(Clone, Copy, Debug)]
enum Node {
    Leaf(Leaf),
    /// Share that is divided, and how.
    Split {
        share: u32,
        level: u32,
    },
    /// `levels` further leading bits are `path`.
    Narrow {
        bits: u32,
        levels: u32,
        path: u64,
    },
    /// A single value of a share: no bits say so.
    Point(Leaf),
}

/// A tree, as an encoder made it.
pub(super) struct Tree {
    nodes: Vec<Node>,
    precision: Precision,
    /// Bits of the values, entropy coded, and of the tree.
    pub(super) cost: f32,
}

/// How exactly shares are divided.
#[derive(Clone, Copy)]
struct Precision {
    /// Values of the stream.
    count: u64,
    /// Logarithm of all shares.
    log: u32,
}

impl Precision {
    /// The division of a share is rounded to levels, 2 to this: about the square root of the values that decide it.
    #[inline]
    fn level_bits(self, share: u32) -> u32 {
        let values = (u64::from(share) * self.count) >> self.log;
        let known = values.min(u64::from(share));
        if known <= 2 { 0 } else { known.ilog2() / 2 + 1 }
    }

    /// The left part of a share, by the smooth step `3t² - 2t³`, which is finest near both ends.
    #[inline]
    fn left_of(self, share: u32, level: u32) -> u32 {
        let log = self.level_bits(share) + 1;
        let at = u64::from(2 * level + 1);
        let step = at * at * ((3 << log) - 2 * at);
        let left = (u64::from(share) * step + (1 << (3 * log - 1))) >> (3 * log);
        (left as u32).clamp(1, share - 1)
    }

    /// The level whose division is nearest to this one.
    fn nearest_level(self, share: u32, wanted: f32) -> u32 {
        let levels = 1 << self.level_bits(share);
        let at = INVERSE[(wanted * INVERSES as f32) as usize % INVERSES];
        ((at * levels as f32) as u32).min(levels - 1)
    }
}

/// A split is likelier than a leaf from this share on, so it has the shorter code.
const SPLIT_FIRST: u32 = 64;

/// What a node is.
#[derive(Clone, Copy)]
enum Kind {
    Leaf,
    Split,
    Narrow,
}

impl Kind {
    /// Its code and the bits of that.
    #[inline]
    fn code(self, share: u32) -> (u64, u32) {
        match (self, share >= SPLIT_FIRST) {
            (Kind::Leaf, false) | (Kind::Split, true) => (0b0, 1),
            (Kind::Leaf, true) | (Kind::Split, false) => (0b01, 2),
            (Kind::Narrow, _) => (0b11, 2),
        }
    }

    #[inline]
    fn read(reader: &mut BitReader<'_>, share: u32) -> Result<Kind, Damaged> {
        let split_first = share >= SPLIT_FIRST;
        Ok(match (reader.get(1)? == 1, split_first) {
            (false, false) => Kind::Leaf,
            (false, true) => Kind::Split,
            (true, _) if reader.get(1)? == 1 => Kind::Narrow,
            (true, true) => Kind::Leaf,
            (true, false) => Kind::Split,
        })
    }
}

/// Bits that a number of levels takes; there are at most as many as bits are left.
fn levels_width(bits: u32) -> u32 {
    bits_of(u64::from(bits - 1))
}

/// Where the smooth step reaches a share, in steps of it.
static INVERSE: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let share = |at: usize| (at as f32 + 0.5) / INVERSES as f32;
    (0..INVERSES).map(|at| 0.5 - ((1.0 - 2.0 * share(at)).asin() / 3.0).sin()).collect()
});
const INVERSES: usize = 4096;

static LOG2: LazyLock<Vec<f32>> = LazyLock::new(|| (0..=1 << LOG_MAX).map(|n| (n.max(1) as f32).log2()).collect());

impl Tree {
    /// The tree that encodes these sorted values, below `2^range_bits`, in the fewest bits with shares of `2^log`.
    pub(super) fn of<W: Word>(sorted: &[W], range_bits: u32, log: u32) -> Tree {
        let precision = Precision { count: sorted.len() as u64, log };
        let mut build = Build { nodes: Vec::new(), precision, log2: &LOG2 };
        let cost = build.node(sorted, 0, range_bits, 1 << log);
        Tree { nodes: build.nodes, precision, cost }
    }

    /// The bins in the order of their values.
    pub(super) fn leaves(&self) -> Vec<Leaf> {
        let leaf = |node: &Node| match node {
            Node::Leaf(leaf) | Node::Point(leaf) => Some(*leaf),
            _ => None,
        };
        self.nodes.iter().filter_map(leaf).collect()
    }

    /// Whether there is one bin, so that a table would be of no use.
    pub(super) fn is_leaf(&self) -> bool {
        self.nodes.iter().all(|node| !matches!(node, Node::Split { .. }))
    }

    /// Writes the tree.
    pub(super) fn write(&self, bits: &mut BitWriter) {
        for node in &self.nodes {
            match *node {
                Node::Point(_) => {}
                Node::Leaf(leaf) => {
                    let (code, width) = Kind::Leaf.code(leaf.share);
                    bits.put(code, width);
                }
                Node::Split { share, level } => {
                    let (code, width) = Kind::Split.code(share);
                    bits.put(code, width);
                    bits.put(u64::from(level), self.precision.level_bits(share));
                }
                Node::Narrow { bits: left, levels, path } => {
                    bits.put(0b11, 2);
                    bits.put(u64::from(levels - 1), levels_width(left));
                    bits.put(path, levels);
                }
            }
        }
    }
}

/// A tree that grows.
struct Build<'a> {
    nodes: Vec<Node>,
    precision: Precision,
    log2: &'a [f32],
}

impl Build<'_> {
    /// Appends the best node for these values, which have `share` and leave `bits` bits open above `lower`; returns its cost.
    fn node<W: Word>(&mut self, sorted: &[W], lower: u64, bits: u32, share: u32) -> f32 {
        let count = sorted.len() as f32;
        let symbol = count * (self.precision.log as f32 - self.log2[share as usize]);
        let leaf = Leaf { lower, bits, share };
        if bits == 0 {
            self.nodes.push(Node::Point(leaf));
            return symbol;
        }
        let leaf_cost = Kind::Leaf.code(share).1 as f32 + symbol + count * bits as f32;
        let start = self.nodes.len();
        let cost = self.parts(sorted, leaf);
        if leaf_cost <= cost {
            self.nodes.truncate(start);
            self.nodes.push(Node::Leaf(leaf));
            return leaf_cost;
        }
        cost
    }

    /// Appends the node divided or narrowed; returns its cost.
    fn parts<W: Word>(&mut self, sorted: &[W], Leaf { lower, bits, share }: Leaf) -> f32 {
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return f32::INFINITY };
        let open = bits_of(first.wide() ^ last.wide());
        if open < bits {
            let (levels, path) = (bits - open, (first.wide() - lower) >> open);
            // Few values save less than the node takes.
            let own = 2 + levels_width(bits) + levels;
            if sorted.len() as u32 * levels <= own {
                return f32::INFINITY;
            }
            self.nodes.push(Node::Narrow { bits, levels, path });
            return own as f32 + self.node(sorted, lower + (path << open), open, share);
        }
        if share < 2 || sorted.len() < 3 {
            return f32::INFINITY;
        }
        let half = lower + (1 << (bits - 1));
        let middle = sorted.partition_point(|value| value.wide() < half);
        let (left, right) = sorted.split_at(middle);
        let level = self.precision.nearest_level(share, left.len() as f32 / sorted.len() as f32);
        let left_share = self.precision.left_of(share, level);
        self.nodes.push(Node::Split { share, level });
        let own = (Kind::Split.code(share).1 + self.precision.level_bits(share)) as f32;
        own + self.node(left, lower, bits - 1, left_share) + self.node(right, half, bits - 1, share - left_share)
    }
}

/// Reads a tree of a stream of `count` values below `2^range_bits`; every bin is handed to `leaf` in the order of the
/// values, with the sum of the shares before it.
pub(super) fn read(
    bits: &mut BitReader<'_>,
    count: usize,
    range_bits: u32,
    log: u32,
    leaf: &mut impl FnMut(Leaf, u32),
) -> Result<(), Damaged> {
    let precision = Precision { count: count as u64, log };
    read_node(bits, precision, Leaf { lower: 0, bits: range_bits, share: 1 << log }, &mut 0, leaf)
}

/// One node and all below it. The depth is bounded: a node below has fewer bits.
fn read_node(
    reader: &mut BitReader<'_>,
    precision: Precision,
    node: Leaf,
    before: &mut u32,
    leaf: &mut impl FnMut(Leaf, u32),
) -> Result<(), Damaged> {
    let Leaf { lower, bits, share } = node;
    let kind = if bits == 0 { Kind::Leaf } else { Kind::read(reader, share)? };
    match kind {
        Kind::Leaf => {
            leaf(node, *before);
            *before += share;
            Ok(())
        }
        Kind::Split => {
            if share < 2 {
                return Err(Damaged("a share cannot be divided"));
            }
            let left = precision.left_of(share, reader.get(precision.level_bits(share))? as u32);
            read_node(reader, precision, Leaf { lower, bits: bits - 1, share: left }, before, leaf)?;
            let half = lower + (1 << (bits - 1));
            read_node(reader, precision, Leaf { lower: half, bits: bits - 1, share: share - left }, before, leaf)
        }
        Kind::Narrow => {
            let levels = reader.get(levels_width(bits))? as u32 + 1;
            if levels > bits {
                return Err(Damaged("a bin is too narrow"));
            }
            let open = bits - levels;
            let lower = lower + (reader.get(levels)? << open);
            read_node(reader, precision, Leaf { lower, bits: open, share }, before, leaf)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written is read, and the bins tile the shares and the words.
    #[test]
    fn trees_come_back_with_all_shares() {
        let squares: Vec<u32> = (0..3000).map(|at| at * at).collect();
        let spikes: Vec<u32> = (0..3000).map(|at| if at < 1000 { 77 } else { (1 << 20) + at / 500 }).collect();
        for values in [squares, spikes] {
            for log in 1..=LOG_MAX {
                let tree = Tree::of(&values, 24, log);
                let mut bits = BitWriter::after(Vec::new());
                tree.write(&mut bits);
                let bytes = bits.finish();
                let mut leaves = Vec::new();
                let mut sum = 0;
                let result = read(&mut BitReader::new(&bytes), values.len(), 24, log, &mut |leaf, before| {
                    assert_eq!(before, sum);
                    sum += leaf.share;
                    leaves.push((leaf.lower, leaf.bits, leaf.share));
                });
                assert_eq!((result, sum), (Ok(()), 1 << log));
                let written: Vec<_> = tree.leaves().iter().map(|leaf| (leaf.lower, leaf.bits, leaf.share)).collect();
                assert_eq!(leaves, written);
                assert!(leaves.is_sorted());
            }
        }
    }

    #[test]
    fn a_tree_of_a_thousand_values_is_small() {
        let values: Vec<u32> = (0..1000).map(|at| at * at).collect();
        let tree = Tree::of(&values, 20, 10);
        let mut bits = BitWriter::after(Vec::new());
        tree.write(&mut bits);
        assert!(tree.leaves().len() > 4);
        assert!(bits.finish().len() < 20);
    }
}
