//! The nodes of the radix tree, and what differs from kind to kind.

use super::art::Art;
use forebay_core::limits::KEY_BYTES_MAX;

/// Path bytes that a node keeps itself: a run of 4 bytes and the upper ones of an event number.
pub(crate) const PREFIX_BYTES: usize = 9;

// A node counts the bytes of its path in 8 bits.
const _: () = assert!(KEY_BYTES_MAX <= u8::MAX as usize);
// A reference has 3 bits for the kind.
const _: () = assert!((Kind::Node256 as u32) < 1 << 3);

/// The target of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    Leaf,
    Node4,
    Node16,
    Node48,
    Node256,
}

/// A reference: kind in the upper 3 bits, index in the lower 29.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref(u32);

impl Ref {
    pub(crate) const NONE: Ref = Ref(0);

    #[inline]
    pub(crate) fn new(kind: Kind, index: u32) -> Ref {
        debug_assert!(index < 1 << 29);
        Ref((kind as u32) << 29 | index)
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 >> 29 {
            0 => Kind::None,
            1 => Kind::Leaf,
            2 => Kind::Node4,
            3 => Kind::Node16,
            4 => Kind::Node48,
            _ => Kind::Node256,
        }
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0 & ((1 << 29) - 1)
    }
}

impl Default for Ref {
    fn default() -> Self {
        Ref::NONE
    }
}

/// The fields of every node: number of children, compressed path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) count: u16,
    pub(crate) prefix_len: u8,
    pub(crate) prefix: [u8; PREFIX_BYTES],
}

impl Head {
    /// Follows the kept part of the path from a depth on: the byte behind the whole path, and the depth behind that.
    /// `None` where the key leaves the kept part.
    #[inline]
    pub(super) fn follow(&self, key: &[u8], depth: usize) -> Option<(u8, usize)> {
        let length = self.prefix_len as usize;
        if length > 0 {
            // Bytes of the path beyond the kept ones are compared at the leaf.
            let kept = length.min(PREFIX_BYTES);
            if key.get(depth..depth + kept)? != &self.prefix[..kept] {
                return None;
            }
        }
        let depth = depth + length;
        Some((*key.get(depth)?, depth + 1))
    }

    pub(crate) fn set_prefix(&mut self, path: &[u8]) {
        // Longer paths keep their beginning: a lookup checks that and leaves the rest to the comparison at the leaf.
        let kept = path.len().min(PREFIX_BYTES);
        self.prefix[..kept].copy_from_slice(&path[..kept]);
        self.prefix_len = path.len() as u8;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Node4 {
    pub(crate) head: Head,
    keys: [u8; 4],
    children: [Ref; 4],
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Node16 {
    pub(crate) head: Head,
    keys: [u8; 16],
    children: [Ref; 16],
}

// A byte per key and a short list of children: 256 references would be four times as large for a node that is not full.
#[derive(Clone, Debug)]
pub(crate) struct Node48 {
    pub(crate) head: Head,
    /// Place of each byte's child, 1-based; 0 is none.
    places: [u8; 256],
    children: [Ref; 48],
}

#[derive(Clone, Debug)]
pub(crate) struct Node256 {
    pub(crate) head: Head,
    children: [Ref; 256],
}

impl Node4 {
    #[inline]
    pub(super) fn child(&self, byte: u8) -> Ref {
        let differs = u32::from_le_bytes(self.keys) ^ (LOWS as u32).wrapping_mul(u32::from(byte));
        let equal = differs.wrapping_sub(LOWS as u32) & !differs & (LOWS as u32) << 7;
        let at = equal.trailing_zeros() as usize / 8;
        if at < self.head.count as usize { self.children[at] } else { Ref::NONE }
    }
}

impl Node16 {
    #[inline]
    pub(super) fn child(&self, byte: u8) -> Ref {
        let differs = u128::from_le_bytes(self.keys) ^ LOWS.wrapping_mul(u128::from(byte));
        let equal = differs.wrapping_sub(LOWS) & !differs & LOWS << 7;
        let at = equal.trailing_zeros() as usize / 8;
        if at < self.head.count as usize { self.children[at] } else { Ref::NONE }
    }

    /// The end of its children, in another line than its head.
    pub(super) fn last(&self) -> &Ref {
        &self.children[15]
    }
}

/// The lowest bit of each byte. A byte that is 0 is the lowest one for which `x - LOWS & !x` has its top bit set: all keys
/// are compared at once, and bytes behind the last key are not reached before it.
const LOWS: u128 = u128::MAX / 255;

impl Node48 {
    #[inline]
    pub(super) fn child(&self, byte: u8) -> Ref {
        match self.places[byte as usize] {
            0 => Ref::NONE,
            place => self.children[place as usize - 1],
        }
    }

    /// The byte that has the place of a byte's child.
    pub(super) fn place(&self, byte: u8) -> &u8 {
        &self.places[byte as usize]
    }
}

impl Node256 {
    /// The child under a byte, in place.
    #[inline]
    pub(super) fn child(&self, byte: u8) -> &Ref {
        &self.children[byte as usize]
    }
}

impl Default for Node48 {
    fn default() -> Self {
        Node48 { head: Head::default(), places: [0; 256], children: [Ref::NONE; 48] }
    }
}

impl Default for Node256 {
    fn default() -> Self {
        Node256 { head: Head::default(), children: [Ref::NONE; 256] }
    }
}

/// Sorted keys with children beside them, as nodes 4 and 16 have them.
macro_rules! sorted {
    ($node:expr) => {{
        let node = $node;
        let count = node.head.count as usize;
        (&node.keys[..count], &node.children[..count])
    }};
}

fn insert_sorted(head: &mut Head, keys: &mut [u8], children: &mut [Ref], byte: u8, child: Ref) {
    let count = head.count as usize;
    debug_assert!(count < keys.len(), "a full node grows first");
    let at = keys[..count].partition_point(|&key| key < byte);
    debug_assert!(at == count || keys[at] != byte, "byte {byte} has a child already");
    keys.copy_within(at..count, at + 1);
    children.copy_within(at..count, at + 1);
    keys[at] = byte;
    children[at] = child;
    head.count += 1;
}

fn remove_sorted(head: &mut Head, keys: &mut [u8], children: &mut [Ref], byte: u8) {
    let count = head.count as usize;
    debug_assert!(keys[..count].contains(&byte), "byte {byte} has no child");
    if let Some(at) = keys[..count].iter().position(|&key| key == byte) {
        keys.copy_within(at + 1..count, at);
        children.copy_within(at + 1..count, at);
        head.count -= 1;
    }
}

impl Art {
    #[inline]
    pub(super) fn child(&self, node: Ref, byte: u8) -> Ref {
        match node.kind() {
            Kind::Node4 => self.nodes4[node.index()].child(byte),
            Kind::Node16 => self.nodes16[node.index()].child(byte),
            Kind::Node48 => self.nodes48[node.index()].child(byte),
            Kind::Node256 => *self.nodes256[node.index()].child(byte),
            Kind::None | Kind::Leaf => Ref::NONE,
        }
    }

    /// The child under the lowest byte above `byte`.
    pub(super) fn next_child(&self, node: Ref, byte: u8) -> Option<Ref> {
        match node.kind() {
            Kind::Node4 => {
                let (keys, children) = sorted!(&self.nodes4[node.index()]);
                children.get(keys.partition_point(|&key| key <= byte)).copied()
            }
            Kind::Node16 => {
                let (keys, children) = sorted!(&self.nodes16[node.index()]);
                children.get(keys.partition_point(|&key| key <= byte)).copied()
            }
            Kind::Node48 => {
                let node = &self.nodes48[node.index()];
                let place = node.places[byte as usize + 1..].iter().copied().find(|&place| place != 0)?;
                Some(node.children[place as usize - 1])
            }
            Kind::Node256 => {
                let children = &self.nodes256[node.index()].children;
                children[byte as usize + 1..].iter().copied().find(|child| *child != Ref::NONE)
            }
            Kind::None | Kind::Leaf => None,
        }
    }

    /// Replaces an existing child.
    pub(super) fn set_child(&mut self, node: Ref, byte: u8, child: Ref) {
        debug_assert!(self.child(node, byte) != Ref::NONE, "byte {byte} has no child to replace");
        let position = |keys: &[u8], count: u16| keys[..count as usize].iter().position(|&key| key == byte);
        match node.kind() {
            Kind::Node4 => {
                let node = &mut self.nodes4[node.index()];
                if let Some(at) = position(&node.keys, node.head.count) {
                    node.children[at] = child;
                }
            }
            Kind::Node16 => {
                let node = &mut self.nodes16[node.index()];
                if let Some(at) = position(&node.keys, node.head.count) {
                    node.children[at] = child;
                }
            }
            Kind::Node48 => {
                let node = &mut self.nodes48[node.index()];
                if let Some(at) = (node.places[byte as usize] as usize).checked_sub(1) {
                    node.children[at] = child;
                }
            }
            Kind::Node256 => self.nodes256[node.index()].children[byte as usize] = child,
            Kind::None | Kind::Leaf => {}
        }
    }

    pub(super) fn is_full(&self, node: Ref) -> bool {
        match node.kind() {
            Kind::Node4 => self.nodes4[node.index()].head.count == 4,
            Kind::Node16 => self.nodes16[node.index()].head.count == 16,
            Kind::Node48 => self.nodes48[node.index()].head.count == 48,
            _ => false,
        }
    }

    /// Adds a child to a node that has room.
    pub(super) fn add_child(&mut self, node: Ref, byte: u8, child: Ref) {
        match node.kind() {
            Kind::Node4 => {
                let node = &mut self.nodes4[node.index()];
                insert_sorted(&mut node.head, &mut node.keys, &mut node.children, byte, child);
            }
            Kind::Node16 => {
                let node = &mut self.nodes16[node.index()];
                insert_sorted(&mut node.head, &mut node.keys, &mut node.children, byte, child);
            }
            Kind::Node48 => {
                let node = &mut self.nodes48[node.index()];
                let place = node.children.iter().position(|child| *child == Ref::NONE).unwrap_or(0);
                debug_assert!(node.children[place] == Ref::NONE, "a full node grows first");
                debug_assert_eq!(node.places[byte as usize], 0, "byte {byte} has a child already");
                node.children[place] = child;
                node.places[byte as usize] = place as u8 + 1;
                node.head.count += 1;
            }
            Kind::Node256 => {
                let node = &mut self.nodes256[node.index()];
                debug_assert!(node.children[byte as usize] == Ref::NONE, "byte {byte} has a child already");
                node.children[byte as usize] = child;
                node.head.count += 1;
            }
            Kind::None | Kind::Leaf => {}
        }
    }

    pub(super) fn remove_child(&mut self, node: Ref, byte: u8) {
        match node.kind() {
            Kind::Node4 => {
                let node = &mut self.nodes4[node.index()];
                remove_sorted(&mut node.head, &mut node.keys, &mut node.children, byte);
            }
            Kind::Node16 => {
                let node = &mut self.nodes16[node.index()];
                remove_sorted(&mut node.head, &mut node.keys, &mut node.children, byte);
            }
            Kind::Node48 => {
                let node = &mut self.nodes48[node.index()];
                if let Some(at) = (node.places[byte as usize] as usize).checked_sub(1) {
                    node.children[at] = Ref::NONE;
                    node.places[byte as usize] = 0;
                    node.head.count -= 1;
                }
            }
            Kind::Node256 => {
                let node = &mut self.nodes256[node.index()];
                debug_assert!(node.children[byte as usize] != Ref::NONE, "byte {byte} has no child");
                node.children[byte as usize] = Ref::NONE;
                node.head.count -= 1;
            }
            Kind::None | Kind::Leaf => {}
        }
    }

    /// Byte and reference of a node's only child.
    pub(super) fn only_child(&self, node: Ref) -> (u8, Ref) {
        match node.kind() {
            Kind::Node4 => (self.nodes4[node.index()].keys[0], self.nodes4[node.index()].children[0]),
            _ => {
                let all = self.children(node);
                all.first().copied().unwrap_or((0, Ref::NONE))
            }
        }
    }

    fn children(&self, node: Ref) -> Vec<(u8, Ref)> {
        (0..=255).map(|byte| (byte, self.child(node, byte))).filter(|(_, child)| *child != Ref::NONE).collect()
    }

    /// The next larger kind with the same children; the old node is freed.
    pub(super) fn grow(&mut self, node: Ref) -> Ref {
        self.convert(
            node,
            match node.kind() {
                Kind::Node4 => Kind::Node16,
                Kind::Node16 => Kind::Node48,
                _ => Kind::Node256,
            },
        )
    }

    /// The next smaller kind where the children fit with room to spare, so that nodes do not flap.
    pub(super) fn shrink(&mut self, node: Ref) -> Option<Ref> {
        let count = match node.kind() {
            Kind::Node16 => self.nodes16[node.index()].head.count,
            Kind::Node48 => self.nodes48[node.index()].head.count,
            Kind::Node256 => self.nodes256[node.index()].head.count,
            _ => return None,
        };
        // Each bound is well below the smaller kind's room: at the border itself every other put and removal would convert.
        match (node.kind(), count) {
            (Kind::Node16, ..=3) => Some(self.convert(node, Kind::Node4)),
            (Kind::Node48, ..=12) => Some(self.convert(node, Kind::Node16)),
            (Kind::Node256, ..=40) => Some(self.convert(node, Kind::Node48)),
            _ => None,
        }
    }

    fn convert(&mut self, node: Ref, to: Kind) -> Ref {
        let children = self.children(node);
        let count = children.len();
        let mut head = match node.kind() {
            Kind::Node4 => self.nodes4[node.index()].head.clone(),
            Kind::Node16 => self.nodes16[node.index()].head.clone(),
            Kind::Node48 => self.nodes48[node.index()].head.clone(),
            _ => self.nodes256[node.index()].head.clone(),
        };
        // The path goes over, the children are added one by one: each kind has them in its own order.
        head.count = 0;
        let other = match to {
            Kind::Node4 => self.nodes4.insert(Node4 { head, ..Node4::default() }),
            Kind::Node16 => self.nodes16.insert(Node16 { head, ..Node16::default() }),
            Kind::Node48 => self.nodes48.insert(Node48 { head, ..Node48::default() }),
            _ => self.nodes256.insert(Node256 { head, ..Node256::default() }),
        };
        let other = Ref::new(to, other);
        for (byte, child) in children {
            self.add_child(other, byte, child);
        }
        debug_assert_eq!(self.head(other).count as usize, count, "a node changes its kind with all its children");
        self.free_node(node);
        other
    }

    pub(super) fn free_node(&mut self, node: Ref) {
        match node.kind() {
            Kind::Node4 => drop(self.nodes4.remove(node.index())),
            Kind::Node16 => drop(self.nodes16.remove(node.index())),
            Kind::Node48 => drop(self.nodes48.remove(node.index())),
            Kind::Node256 => drop(self.nodes256.remove(node.index())),
            Kind::None | Kind::Leaf => {}
        }
    }
}
