//! Lookups that go on side by side: each step asks for the memory of the next one, and meanwhile others have their turn.
//!
//! A hint: what changes in between makes a lookup miss, never wrong, because nobody relies on where it went.

use super::art::Art;
use super::node::{Kind, Ref};
use forebay_media::hot::will_look;

/// A lookup on its way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Path {
    at: Option<Ref>,
    depth: usize,
}

/// Where a step has led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// A node, whose memory is asked for.
    Node,
    /// A leaf.
    Leaf(u32),
    /// Nothing.
    End,
}

impl Art {
    /// One node further. A node that went away since the last step is another one now, or empty: places of the index are
    /// reused and never given back.
    #[inline]
    pub(crate) fn step(&self, path: &mut Path, key: &[u8]) -> Reached {
        let at = match path.at {
            None => self.root,
            Some(end) if matches!(end.kind(), Kind::None | Kind::Leaf) => end,
            // Not checked against the path: a wrong turn costs a line of the cache, nothing else.
            Some(node) => {
                path.depth += self.head(node).prefix_len as usize;
                let child = key.get(path.depth).map_or(Ref::NONE, |&byte| self.child(node, byte));
                path.depth += 1;
                child
            }
        };
        path.at = Some(at);
        match at.kind() {
            Kind::None => Reached::End,
            Kind::Leaf => Reached::Leaf(at.index()),
            _ => {
                self.will_step(at, key.get(path.depth).copied().unwrap_or_default());
                Reached::Node
            }
        }
    }

    /// Asks for a node's head and for what is under a byte of it.
    #[inline]
    fn will_step(&self, node: Ref, byte: u8) {
        match node.kind() {
            Kind::Node4 => will_look(&self.nodes4[node.index()]),
            Kind::Node16 => {
                let node = &self.nodes16[node.index()];
                will_look(node);
                will_look(node.last());
            }
            Kind::Node48 => {
                let node = &self.nodes48[node.index()];
                will_look(&node.head);
                will_look(node.place(byte));
            }
            Kind::Node256 => {
                let node = &self.nodes256[node.index()];
                will_look(&node.head);
                will_look(node.child(byte));
            }
            Kind::None | Kind::Leaf => {}
        }
    }
}
