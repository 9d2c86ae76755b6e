//! One state of the model: what three nodes, the map, clients and workers know, and the frames that are under way.
//!
//! A state is a plain value. `packed` makes the key under which the search remembers it; nothing else is remembered of it.
//!
//! *Not here*: what changes a state (`protocol`), and what must be true of it (`invariants`).

use std::fmt;

pub(super) const NODES: usize = 3;
/// Slot epochs that a map can have here. Epoch 0 is no epoch, as in the store.
pub(super) const EPOCHS_MAX: usize = 4;
pub(super) const PUTS_MAX: usize = 3;
pub(super) const WORKERS_MAX: usize = 2;
/// Frames under way on one link: a digest, and another frame that follows before it is read.
pub(super) const QUEUE_MAX: usize = 2;

pub(super) type NodeId = usize;
/// A set of nodes, one bit for each.
pub(super) type Nodes = u8;

pub(super) const fn bit(node: NodeId) -> Nodes {
    1 << node
}

pub(super) const fn has(nodes: Nodes, node: NodeId) -> bool {
    nodes & bit(node) != 0
}

/// The fragments of the event: for each of two sources nothing, or bytes 1, 2 or 3.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Content(pub(super) u8);

impl Content {
    pub(super) const fn bytes(self, source: u8) -> u8 {
        self.0 >> (2 * source) & 3
    }

    #[must_use]
    pub(super) const fn with(self, put: Put) -> Self {
        Self(self.0 & !(3 << (2 * put.source)) | put.bytes << (2 * put.source))
    }

    #[must_use]
    pub(super) const fn without(self, source: u8) -> Self {
        Self(self.0 & !(3 << (2 * source)))
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn covers(self, put: Put) -> bool {
        self.bytes(put.source) == put.bytes
    }

    /// Fragments of both; where both have bytes, those of `first`.
    #[must_use]
    pub(super) fn union(first: Self, second: Self) -> Self {
        (0..2).fold(first, |all, source| match first.bytes(source) {
            0 => Self(all.0 | second.bytes(source) << (2 * source)),
            _ => all,
        })
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |source| [".", "a", "b", "c"][usize::from(self.bytes(source))];
        write!(f, "{{{}{}}}", letter(0), letter(1))
    }
}

/// What a client wants to have stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Put {
    pub(super) source: u8,
    pub(super) bytes: u8,
}

/// What a client has been told, once it is final.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Answer {
    #[default]
    Pending,
    Acknowledged,
    Late,
    Conflict,
}

/// The slot in the map under one `since`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slot {
    pub(super) primary: u8,
    pub(super) members: Nodes,
    /// Members that were full when this `since` began. Later ones are in `State::full`.
    pub(super) full: Nodes,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Node {
    pub(super) up: bool,
    /// The latest `since` of the slot that this node has adopted. Durable.
    pub(super) since: u8,
    /// Durable, as are the next two.
    pub(super) content: Content,
    pub(super) mark: bool,
    /// The token (from 1) of the verdict that this node has recorded; 0: none.
    pub(super) decision: u8,
    /// Whether the log has that decision. Always, but in one mutant.
    pub(super) logged: bool,
    /// The token (from 1) that this node granted as primary, and whose lease it has in memory.
    pub(super) lease: u8,
    /// Members that have answered for the present content, or decision, under `since`. In the primary's memory.
    pub(super) answered: Nodes,
    /// Full members that a new primary of three copies has still to ask before it grants. In its memory.
    pub(super) to_ask: Nodes,
    /// A joining member that had the event answered by its primary under `since`, and has said so.
    pub(super) filled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Token {
    /// What the lease showed.
    pub(super) shown: Content,
    /// What the primary's record of the verdict covers.
    pub(super) decided: Content,
    pub(super) acknowledged: bool,
}

/// What one node tells another. All carry the `since` under which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Primary: is this what you have? Then write the ready mark.
    Digest,
    /// Primary: take these fragments. The event is open: keep what is not named.
    CopyOpen,
    /// Primary: this is the event, which is ready. End what is not named.
    CopyReady,
    /// Primary: record this verdict of what is named.
    Decide(u8),
    /// Member: marked, with this content.
    Equal,
    /// Member: not equal, this is what I have. Also a report of what nobody digested.
    Differ,
    /// Member: this decision is recorded here.
    Have(u8),
}

impl What {
    pub(super) fn is_from_primary(self) -> bool {
        matches!(self, Self::Digest | Self::CopyOpen | Self::CopyReady | Self::Decide(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) what: What,
    pub(super) since: u8,
    pub(super) content: Content,
}

impl Frame {
    fn packed(self) -> u64 {
        let (kind, token) = match self.what {
            What::Digest => (1, 0),
            What::CopyOpen => (2, 0),
            What::CopyReady => (3, 0),
            What::Decide(token) => (4, token),
            What::Equal => (5, 0),
            What::Differ => (6, 0),
            What::Have(token) => (7, token),
        };
        kind | u64::from(self.since) << 3 | u64::from(self.content.0) << 6 | u64::from(token) << 10
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} since {}", self.what, self.content, self.since)
    }
}

/// Frames of one link, in order.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Queue([Option<Frame>; QUEUE_MAX]);

impl Queue {
    pub(super) fn first(&self) -> Option<Frame> {
        self.0[0]
    }

    pub(super) fn last(&self) -> Option<Frame> {
        self.0.iter().rev().find_map(|frame| *frame)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Without room the frame is not sent: a primary compares again as long as an answer lacks.
    pub(super) fn push(&mut self, frame: Frame) {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(frame);
        }
    }

    pub(super) fn pop(&mut self) {
        self.0.rotate_left(1);
        self.0[QUEUE_MAX - 1] = None;
    }

    /// Without the frames that were sent before this `since`.
    pub(super) fn retain_since(&mut self, since: u8) {
        if self.0.iter().flatten().any(|frame| frame.since < since) {
            let frames = std::mem::take(&mut self.0);
            frames.into_iter().flatten().filter(|frame| frame.since >= since).for_each(|frame| self.push(frame));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A frame of a link that a newer one has replaced, and that is delivered all the same. In one mutant only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) frame: Frame,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) nodes: [Node; NODES],
    /// The slot under each `since`, from 1; the map in etcd is the last one.
    pub(super) slots: [Slot; EPOCHS_MAX],
    pub(super) latest: u8,
    /// Full members in the map in etcd.
    pub(super) full: Nodes,
    pub(super) tokens: [Token; WORKERS_MAX],
    pub(super) granted: u8,
    pub(super) answers: [Answer; PUTS_MAX],
    /// Members whose `Stored` or `Duplicate` the client has, by put and `since`.
    pub(super) acks: [[Nodes; EPOCHS_MAX]; PUTS_MAX],
    /// A withdrawal is under way, by put. In one mutant only.
    pub(super) withdrawn: [bool; PUTS_MAX],
    pub(super) links: [[Queue; NODES]; NODES],
    pub(super) stray: Option<Stray>,
    /// A primary has said that the event is ready.
    pub(super) was_ready: bool,
    pub(super) crashes: u8,
}

/// The key of a state.
pub(super) type Packed = [u64; 6];

impl State {
    pub(super) fn slot(&self, since: u8) -> Slot {
        self.slots[usize::from(since) - 1]
    }

    /// The slot in the map in etcd.
    pub(super) fn current(&self) -> Slot {
        self.slot(self.latest)
    }

    /// Whether the node is primary in the map that it has adopted.
    pub(super) fn leads(&self, node: NodeId) -> bool {
        usize::from(self.slot(self.nodes[node].since).primary) == node
    }

    /// The first `since` of the membership that this node has under `since`; 0 for no member.
    pub(super) fn member_since(&self, node: NodeId, since: u8) -> u8 {
        (1..=since).rev().take_while(|&earlier| has(self.slot(earlier).members, node)).last().unwrap_or_default()
    }

    pub(super) fn token(&self, token: u8) -> Token {
        self.tokens[usize::from(token) - 1]
    }

    /// Whether some frame asks for, or confirms, the verdict of this token.
    pub(super) fn is_under_way(&self, token: u8) -> bool {
        let names = |frame: &Frame| matches!(frame.what, What::Decide(of) | What::Have(of) if of == token);
        let queued = self.links.iter().flatten().flat_map(|queue| queue.0.iter().flatten()).any(names);
        queued || self.stray.is_some_and(|stray| names(&stray.frame))
    }

    pub(super) fn packed(&self) -> Packed {
        let mut bits = Bits::default();
        for node in &self.nodes {
            bits.add(u64::from(node.up) | u64::from(node.mark) << 1 | u64::from(node.logged) << 2, 3);
            bits.add(u64::from(node.filled), 1);
            bits.add(u64::from(node.since), 3);
            bits.add(u64::from(node.content.0), 4);
            bits.add(u64::from(node.decision), 2);
            bits.add(u64::from(node.lease), 2);
            bits.add(u64::from(node.answered) | u64::from(node.to_ask) << 3, 6);
        }
        for slot in &self.slots {
            bits.add(u64::from(slot.primary) | u64::from(slot.members) << 2 | u64::from(slot.full) << 5, 8);
        }
        bits.add(u64::from(self.latest) | u64::from(self.full) << 3 | u64::from(self.granted) << 6, 8);
        for token in &self.tokens {
            bits.add(
                u64::from(token.shown.0) | u64::from(token.decided.0) << 4 | u64::from(token.acknowledged) << 8,
                9,
            );
        }
        for put in 0..PUTS_MAX {
            bits.add(self.answers[put] as u64 | u64::from(self.withdrawn[put]) << 2, 3);
            for acks in self.acks[put] {
                bits.add(u64::from(acks), 3);
            }
        }
        for (from, links) in self.links.iter().enumerate() {
            for queue in links.iter().enumerate().filter(|(to, _)| *to != from).map(|(_, queue)| queue) {
                for frame in queue.0 {
                    bits.add(frame.map_or(0, Frame::packed), 12);
                }
            }
        }
        let stray =
            self.stray.map_or(0, |stray| stray.frame.packed() | (stray.from as u64) << 12 | (stray.to as u64) << 14);
        bits.add(stray, 16);
        bits.add(u64::from(self.was_ready) | u64::from(self.crashes) << 1, 3);
        bits.words
    }
}

/// Values of some bits one after the other.
#[derive(Default)]
struct Bits {
    words: Packed,
    used: usize,
}

impl Bits {
    fn add(&mut self, value: u64, width: usize) {
        debug_assert!(value >> width == 0, "{value} has more than {width} bits");
        let (word, shift) = (self.used / 64, self.used % 64);
        self.words[word] |= value << shift;
        if shift + width > 64 {
            self.words[word + 1] |= value >> (64 - shift);
        }
        self.used += width;
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.current();
        write!(f, "map {} primary {} members {:03b} full {:03b}", self.latest, slot.primary, slot.members, self.full)?;
        for (id, node) in self.nodes.iter().enumerate() {
            write!(f, " | {id}: since {} {}", node.since, node.content)?;
            for (word, there) in [("down", !node.up), ("ready", node.mark), ("filled", node.filled)] {
                if there {
                    write!(f, " {word}")?;
                }
            }
            for (word, token) in [("lease", node.lease), ("decided", node.decision)] {
                if token != 0 {
                    write!(f, " {word} {token}")?;
                }
            }
        }
        write!(f, " | {:?}", self.answers)
    }
}
