//! An adaptive radix tree over packed primary keys (V. Leis, A. Kemper, T. Neumann, "The Adaptive Radix Tree: ARTful
//! Indexing for Main-Memory Databases", ICDE 2013): node kinds 4, 16, 48 and 256, path compression, ordered.
//!
//! Keys of one tree all have the same length, so that no key is a prefix of another. Leaves are references to events;
//! their keys are asked for through [`Leaves`]. A node keeps the first bytes of its compressed path, longer paths are
//! read from a leaf.

use super::node::{Head, Kind, Node4, Node16, Node48, Node256, PREFIX_BYTES, Ref};
use super::slab::Slab;

/// The keys behind leaf references.
pub(crate) trait Leaves {
    fn key(&self, leaf: u32) -> &[u8];
}

/// The tree.
pub(crate) struct Art {
    pub(super) root: Ref,
    pub(super) nodes4: Slab<Node4>,
    pub(super) nodes16: Slab<Node16>,
    pub(super) nodes48: Slab<Node48>,
    pub(super) nodes256: Slab<Node256>,
    len: usize,
}

impl Art {
    pub(crate) fn new() -> Art {
        Art {
            root: Ref::NONE,
            nodes4: Slab::new(),
            nodes16: Slab::new(),
            nodes48: Slab::new(),
            nodes256: Slab::new(),
            len: 0,
        }
    }

    /// Heap bytes of all nodes, slack included.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.nodes4.heap_bytes() + self.nodes16.heap_bytes() + self.nodes48.heap_bytes() + self.nodes256.heap_bytes()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    /// The leaf with this key.
    #[inline]
    pub(crate) fn get(&self, leaves: &impl Leaves, key: &[u8]) -> Option<u32> {
        let (mut at, mut depth) = (self.root, 0);

        loop {
            let index = at.index();
            at = match at.kind() {
                Kind::None => return None,
                // Compared whole here: bytes of long paths were skipped on the way.
                Kind::Leaf => return (leaves.key(index) == key).then_some(index),
                Kind::Node4 => {
                    let node = &self.nodes4[index];
                    let (byte, below) = node.head.follow(key, depth)?;
                    depth = below;
                    node.child(byte)
                }
                Kind::Node16 => {
                    let node = &self.nodes16[index];
                    let (byte, below) = node.head.follow(key, depth)?;
                    depth = below;
                    node.child(byte)
                }
                Kind::Node48 => {
                    let node = &self.nodes48[index];
                    let (byte, below) = node.head.follow(key, depth)?;
                    depth = below;
                    node.child(byte)
                }
                Kind::Node256 => {
                    let node = &self.nodes256[index];
                    let (byte, below) = node.head.follow(key, depth)?;
                    depth = below;
                    *node.child(byte)
                }
            };
        }
    }

    /// Adds a leaf whose key is not in the tree.
    pub(crate) fn insert(&mut self, leaves: &impl Leaves, key: &[u8], leaf: u32) {
        self.len += 1;
        let leaf = Ref::new(Kind::Leaf, leaf);
        let (mut at, mut depth) = (self.root, 0);
        let mut parent: Option<(Ref, u8)> = None;
        loop {
            match at.kind() {
                Kind::None => {
                    self.attach(parent, leaf);
                    return;
                }
                Kind::Leaf => {
                    let other = leaves.key(at.index());
                    debug_assert!(key != other, "a key is in the tree once");
                    let common = common(&key[depth..], &other[depth..]);
                    // All keys have one length, so two of them differ before either ends.
                    let (byte, other_byte) = (key[depth + common], other[depth + common]);
                    let node = self.new_node4(&key[depth..depth + common]);
                    self.replace(parent, node);
                    self.add(node, None, byte, leaf);
                    self.add(node, None, other_byte, at);
                    return;
                }
                _ => {
                    let prefix_len = self.head(at).prefix_len as usize;
                    let kept = self.head(at).prefix;
                    // The part that the node does not keep is the same in every leaf below it.
                    let path = match kept.get(..prefix_len) {
                        Some(path) => path,
                        None => &leaves.key(self.first_leaf(at))[depth..depth + prefix_len],
                    };
                    let common = common(&key[depth..], path);
                    if common < prefix_len {
                        // The key leaves the compressed path: split it.
                        let rest_byte = path[common];
                        let rest = path[common + 1..].to_vec();
                        let node = self.new_node4(&key[depth..depth + common]);
                        self.head_mut(at).set_prefix(&rest);
                        self.replace(parent, node);
                        self.add(node, None, rest_byte, at);
                        self.add(node, None, key[depth + common], leaf);
                        return;
                    }
                    depth += prefix_len;
                    let byte = key[depth];
                    let next = self.child(at, byte);
                    // Only here can a full node grow: its parent is known.
                    if next.kind() == Kind::None {
                        self.add(at, parent, byte, leaf);
                        return;
                    }
                    parent = Some((at, byte));
                    at = next;
                    depth += 1;
                }
            }
        }
    }

    /// Takes out the leaf with this key.
    pub(crate) fn remove(&mut self, leaves: &impl Leaves, key: &[u8]) -> Option<u32> {
        let (mut at, mut depth) = (self.root, 0);
        let mut parent: Option<(Ref, u8)> = None;
        let mut grandparent: Option<(Ref, u8)> = None;
        while at.kind() != Kind::Leaf {
            if at.kind() == Kind::None {
                return None;
            }
            depth += self.head(at).prefix_len as usize;
            let byte = *key.get(depth)?;
            grandparent = parent;
            parent = Some((at, byte));
            at = self.child(at, byte);
            depth += 1;
        }
        // Paths were skipped on the way down, so that any leaf may be reached with a key that is not in the tree.
        if leaves.key(at.index()) != key {
            return None;
        }
        self.len -= 1;
        match parent {
            None => self.root = Ref::NONE,
            Some((node, byte)) => self.detach(node, byte, grandparent, leaves, key, depth),
        }
        Some(at.index())
    }

    /// The first leaf whose key is not below `key`.
    pub(crate) fn seek(&self, leaves: &impl Leaves, key: &[u8]) -> Option<u32> {
        self.seek_in(self.root, 0, leaves, key)
    }

    // Recursive: no deeper than a key has bytes.
    fn seek_in(&self, at: Ref, depth: usize, leaves: &impl Leaves, key: &[u8]) -> Option<u32> {
        match at.kind() {
            Kind::None => None,
            Kind::Leaf => (leaves.key(at.index()) >= key).then_some(at.index()),
            _ => {
                let head = self.head(at);
                let length = head.prefix_len as usize;
                let order = if length <= PREFIX_BYTES {
                    head.prefix[..length].cmp(&key[depth..depth + length])
                } else {
                    leaves.key(self.first_leaf(at))[depth..depth + length].cmp(&key[depth..depth + length])
                };
                match order {
                    std::cmp::Ordering::Greater => Some(self.first_leaf(at)),
                    std::cmp::Ordering::Less => None,
                    std::cmp::Ordering::Equal => {
                        let depth = depth + length;
                        let byte = key[depth];
                        let exact = self.child(at, byte);
                        let found = self.seek_in(exact, depth + 1, leaves, key);
                        found.or_else(|| self.next_child(at, byte).map(|next| self.first_leaf(next)))
                    }
                }
            }
        }
    }

    fn first_leaf(&self, mut at: Ref) -> u32 {
        while at.kind() != Kind::Leaf {
            let zero = self.child(at, 0);
            at = if zero.kind() == Kind::None { self.next_child(at, 0).unwrap_or(Ref::NONE) } else { zero };
            debug_assert!(at.kind() != Kind::None, "an inner node has children");
        }
        at.index()
    }

    fn new_node4(&mut self, prefix: &[u8]) -> Ref {
        let mut node = Node4::default();
        node.head.set_prefix(prefix);
        Ref::new(Kind::Node4, self.nodes4.insert(node))
    }

    fn replace(&mut self, parent: Option<(Ref, u8)>, child: Ref) {
        match parent {
            None => self.root = child,
            Some((node, byte)) => self.set_child(node, byte, child),
        }
    }

    /// Hangs a child where there was none, below an empty root only.
    fn attach(&mut self, parent: Option<(Ref, u8)>, child: Ref) {
        debug_assert!(parent.is_none(), "inner nodes get children through `add`");
        self.root = child;
    }

    /// Adds a child under a byte that has none; a full node grows, and its parent learns the new reference.
    fn add(&mut self, node: Ref, parent: Option<(Ref, u8)>, byte: u8, child: Ref) {
        if !self.is_full(node) {
            self.add_child(node, byte, child);
            return;
        }
        let larger = self.grow(node);
        self.add_child(larger, byte, child);
        self.replace(parent, larger);
    }

    fn detach(
        &mut self,
        node: Ref,
        byte: u8,
        grandparent: Option<(Ref, u8)>,
        leaves: &impl Leaves,
        key: &[u8],
        depth: usize,
    ) {
        self.remove_child(node, byte);
        debug_assert!(self.head(node).count > 0, "an inner node has two children or more");
        if self.head(node).count == 1 {
            // One child left: its path takes over this node's.
            let (last_byte, last) = self.only_child(node);
            if last.kind() != Kind::Leaf {
                let own = self.head(node).prefix_len as usize;
                let start = depth - 1 - own;
                let below = self.head(last).prefix_len as usize;
                let mut path = key[start..start + own].to_vec();
                path.push(last_byte);
                // The kept prefix may be cut: read the whole path from a leaf.
                let leaf = leaves.key(self.first_leaf(last));
                path.extend_from_slice(&leaf[depth..depth + below]);
                self.head_mut(last).set_prefix(&path);
            }
            self.free_node(node);
            self.replace(grandparent, last);
        } else if let Some(smaller) = self.shrink(node) {
            self.replace(grandparent, smaller);
        }
    }

    pub(super) fn head(&self, node: Ref) -> &Head {
        match node.kind() {
            Kind::Node4 => &self.nodes4[node.index()].head,
            Kind::Node16 => &self.nodes16[node.index()].head,
            Kind::Node48 => &self.nodes48[node.index()].head,
            _ => &self.nodes256[node.index()].head,
        }
    }

    fn head_mut(&mut self, node: Ref) -> &mut Head {
        match node.kind() {
            Kind::Node4 => &mut self.nodes4[node.index()].head,
            Kind::Node16 => &mut self.nodes16[node.index()].head,
            Kind::Node48 => &mut self.nodes48[node.index()].head,
            _ => &mut self.nodes256[node.index()].head,
        }
    }
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct Keys(Vec<Vec<u8>>);
    impl Leaves for Keys {
        fn key(&self, leaf: u32) -> &[u8] {
            &self.0[leaf as usize]
        }
    }

    fn check(keys: Vec<Vec<u8>>, removals: &[usize], probes: &[Vec<u8>]) {
        let mut art = Art::new();
        let mut model = BTreeMap::new();
        let mut distinct = keys.clone();
        distinct.sort();
        distinct.dedup();
        let leaves = Keys(keys.clone());
        for (leaf, key) in keys.iter().enumerate() {
            if model.contains_key(key) {
                continue;
            }
            art.insert(&leaves, key, leaf as u32);
            model.insert(key.clone(), leaf as u32);
        }
        let verify = |art: &Art, model: &BTreeMap<Vec<u8>, u32>| {
            assert_eq!(art.len(), model.len());
            for key in distinct.iter().chain(probes) {
                assert_eq!(art.get(&leaves, key), model.get(key).copied());
                let next = model.range(key.clone()..).next().map(|(_, leaf)| *leaf);
                assert_eq!(art.seek(&leaves, key), next, "seek {key:?}");
            }
        };
        verify(&art, &model);
        for &at in removals {
            let key = &keys[at % keys.len()];
            assert_eq!(art.remove(&leaves, key), model.remove(key));
        }
        verify(&art, &model);
        for key in &distinct {
            assert_eq!(art.remove(&leaves, key), model.remove(key));
        }
        assert_eq!(art.len(), 0);
        assert!(art.seek(&leaves, &probes[0]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn behaves_like_an_ordered_map(
            keys in prop::collection::vec(prop::collection::vec(prop_oneof![0_u8..3, any::<u8>()], 12), 1..400),
            removals in prop::collection::vec(any::<usize>(), 0..300),
            probes in prop::collection::vec(prop::collection::vec(0_u8..4, 12), 1..50),
        ) {
            check(keys, &removals, &probes);
        }
    }

    #[test]
    fn long_common_paths_and_all_node_sizes() {
        // 28 equal bytes exceed the kept prefix; the last bytes fill nodes of every kind.
        let key = |a: u8, b: u8| [vec![7; 28], vec![a, 1, 1, b]].concat();
        let keys: Vec<Vec<u8>> = (0..=255).flat_map(|a| (0..3).map(move |b| key(a, b))).collect();
        let removals: Vec<usize> = (0..keys.len()).filter(|at| at % 7 != 0).collect();
        let probes = vec![vec![7; 32], vec![6; 32], vec![8; 32], key(9, 77)];
        check(keys, &removals, &probes);
    }
}
