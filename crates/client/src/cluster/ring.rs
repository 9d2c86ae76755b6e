//! The client of a ring on the nodes of a cluster: each source on the node that the look-up table says, windows from all of them.
//!
//! ```text
//! put    ─▶ table of its run ─▶ the node of its source;  Fenced, or not reached: the map is fetched again
//! window ─▶ for each source the nodes that any table has for it ── beside each other ──▶ one window
//! ```
//!
//! *Invariants*: a window is of all nodes that may have something of its sources, or an error that names the one that does not answer.
//!
//! *Not here*: rings themselves (`forebay-ring`), who refuses what is another node's (`forebay-cluster`).

use super::nodes::{BESIDE_BYTES, Nodes, OfNode, Placed, first_that_answers, may_be_elsewhere, named};
use crate::options::Options;
use crate::pool::Pool;
use crate::put::{NO_WAIT, Outcome, too_few};
use crate::retry::Limit;
use crate::ring::{RingClient, RingFrame, RingPin, SourceWindow, WAIT_MAX, Window};
use forebay_core::map::{ClusterMap, Node};
use forebay_core::{
    Coverage, Error, KeepsTicks, Kind, Ledger, Result, RingChunkInfo, RingKeyspace, RingOutcome, RingPinStatus,
    RingPut, RingSourceStatus, RingSources, RingStats, RingStore, SourceId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one node is waited for before all that may have something of a source are looked at again.
const SLICE: Duration = Duration::from_millis(100);
/// Numbers of pins in a cluster have that of their node above these bits.
const PIN_BITS: u32 = 48;

/// A ring on the nodes of a cluster: a cheap handle, cloned freely, used from any number of threads.
#[derive(Clone)]
pub struct ClusterRing {
    inner: Arc<Inner>,
}

struct Inner {
    keyspace: RingKeyspace,
    nodes: Nodes<RingClient>,
}

impl OfNode for RingClient {
    fn pool(&self) -> &Pool {
        RingClient::pool(self)
    }

    fn within(&self, limit: Limit) -> RingClient {
        RingClient::within(self, limit)
    }
}

impl ClusterRing {
    /// Connects to a cluster by the addresses of some of its nodes: the first one that answers says where all are.
    ///
    /// # Errors
    /// `Invalid` for an empty list, an ill-formed address, a server that is in no cluster, a keyspace that is no ring or is not in the
    /// cluster's map; `Unavailable` where no address answers, with the reason of each.
    pub fn connect<A: AsRef<str>>(addresses: &[A], options: Options) -> Result<ClusterRing> {
        let one = first_that_answers(addresses, &options, RingClient::of_pool)?;
        ClusterRing::of(&one, options)
    }

    /// The cluster that a server is a node of.
    ///
    /// # Errors
    /// `Invalid` for a server that is in none, or a ring that is not in its map; `Unavailable`.
    pub(crate) fn of(one: &RingClient, options: Options) -> Result<ClusterRing> {
        let keyspace = one.keyspace().clone();
        let placed = Placed::of(ClusterMap::from_json(&one.map_text()?)?, &keyspace.name)?;
        // Nodes may have rings of different sizes.
        let nodes = Nodes::new((&keyspace.name, "".into()), placed, options, None, RingClient::of_pool);
        Ok(ClusterRing { inner: Arc::new(Inner { keyspace, nodes }) })
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &RingKeyspace {
        &self.inner.keyspace
    }

    /// The map that the client goes by.
    pub fn map(&self) -> ClusterMap {
        self.inner.nodes.placed().map.clone()
    }

    /// The nodes to which a look-up table gives something of the ring.
    pub fn nodes(&self) -> Vec<Node> {
        let placed = self.inner.nodes.placed();
        placed.nodes().filter(|node| placed.has_ring(node)).cloned().collect()
    }

    /// The client of one node.
    ///
    /// # Errors
    /// `Invalid` for a node that is not in the map, `Unavailable` where it does not answer.
    pub fn node(&self, id: u16) -> Result<RingClient> {
        self.inner.nodes.node(id)
    }

    /// Ends: free connections are closed, further calls answer `Closed`.
    pub fn close(&self) {
        self.inner.nodes.close();
    }

    /// Puts a fragment at the node of its source.
    ///
    /// # Errors
    /// As [`RingClient::put`]; `Invalid` for a source that no look-up table names.
    pub fn put(
        &self,
        source: &SourceId,
        timestamp: u64,
        span: u32,
        value: &[u8],
        options: &RingPut,
    ) -> Result<RingOutcome> {
        let frame = RingFrame { source: *source, timestamp, span, value, options: *options };
        self.put_many(&[frame]).pop().ok_or_else(too_few)?
    }

    /// Puts many fragments, those of each node in one call and the nodes beside each other; outcomes in the same order. Where a node
    /// does not answer, the outcomes of its fragments say so.
    pub fn put_many(&self, frames: &[RingFrame<'_>]) -> Vec<Result<RingOutcome>> {
        let mut outcomes: Vec<Result<RingOutcome>> = frames.iter().map(|_| Err(too_few())).collect();
        let (nodes, end, began) = (&self.inner.nodes, self.begin(NO_WAIT), self.inner.nodes.now());
        // By which each node went before its answer.
        let mut epochs = vec![0; frames.len()];
        let mut places: Vec<usize> = (0..frames.len()).collect();
        loop {
            let (placed, limit) = (nodes.placed(), nodes.half(end));
            self.put_by(&placed, limit, frames, places.drain(..), (&mut outcomes, &mut epochs));
            let holder =
                |placed: &Placed, at: usize| placed.ring_holder(&frames[at].source, frames[at].options.run).ok();
            let (mut is_refused, mut is_unknown) = (false, false);
            for (at, outcome) in outcomes.iter().enumerate() {
                if let Err(error) = outcome {
                    is_refused |= may_be_elsewhere(error);
                    is_unknown |= holder(&placed, at).is_none();
                    nodes.ended_with(error);
                }
            }
            let since = placed.map.epoch();
            // A source that no table names is mostly a mistake, which is made again and again.
            let is_later = is_refused && nodes.learn(since, end) || is_unknown && nodes.learn_rarely(since, end);
            let (later, now) = (nodes.placed(), nodes.now());
            // The node that refuses it goes by an earlier map than this client.
            let is_behind = |at: usize| {
                outcomes[at].as_ref().is_err_and(|error| error.kind() == Kind::Fenced) && epochs[at] < later.map.epoch()
            };
            let waits = (0..frames.len()).any(is_behind) && nodes.let_catch_up(began, end);
            let goes_again = |at: &usize| {
                let Err(error) = &outcomes[*at] else { return false };
                let has_moved = is_later && holder(&placed, *at) != holder(&later, *at);
                let may_move = may_be_elsewhere(error) || holder(&placed, *at).is_none();
                has_moved && may_move || limit.leaves_time(now, error) || waits && is_behind(*at)
            };
            places = (0..frames.len()).filter(goes_again).collect();
            if places.is_empty() {
                return outcomes;
            }
        }
    }

    fn put_by(
        &self,
        placed: &Placed,
        limit: Limit,
        frames: &[RingFrame<'_>],
        places: impl IntoIterator<Item = usize>,
        (outcomes, epochs): (&mut [Result<RingOutcome>], &mut [u32]),
    ) {
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for at in places {
            match placed.ring_holder(&frames[at].source, frames[at].options.run) {
                Ok(node) => parts.entry(node).or_default().push(at),
                Err(error) => outcomes[at] = Err(error),
            }
        }
        let put = |node: u16, places: &[usize]| {
            let of_node: Vec<RingFrame<'_>> = places.iter().map(|at| frames[*at]).collect();
            let ring = self.inner.nodes.node_within(node, limit)?;
            // Another thread's answer may bring a later one than that of this call.
            let epoch = ring.pool().epoch();
            Ok((ring.put_many(&of_node)?, epoch))
        };
        let bytes: usize = frames.iter().map(|frame| frame.value.len()).sum();
        let mut seen = |at: usize, outcome: Result<RingOutcome>| {
            let was_lost = outcomes[at].as_ref().is_err_and(Error::earlier_try_unknown);
            outcomes[at] =
                if was_lost { outcome.map_err(Error::of_repeat).and_then(Outcome::of_repeat) } else { outcome };
        };
        for (places, answer) in self.inner.nodes.parts(parts, bytes >= BESIDE_BYTES, put) {
            match answer {
                Ok((part, epoch)) => places.into_iter().zip(part).for_each(|(at, outcome)| {
                    epochs[at] = epoch;
                    seen(at, outcome);
                }),
                Err(error) => places.into_iter().for_each(|at| seen(at, Err(error.again()))),
            }
        }
    }

    /// Makes a call at some nodes beside each other, each in this time; the error of one has its name.
    fn at<P: Send, T: Send>(
        &self,
        limit: Limit,
        parts: impl IntoIterator<Item = (u16, P)>,
        call: impl Fn(&RingClient, P) -> Result<T> + Sync,
    ) -> Result<Vec<(u16, T)>> {
        let (nodes, placed) = (&self.inner.nodes, self.inner.nodes.placed());
        let one = |(id, part): (u16, P)| {
            let answer = call(&nodes.node_within(id, limit)?, part);
            let node = placed.map.node(id);
            let answer = answer.map_err(|error| node.map_or_else(|| error.again(), |node| named(node, &error)));
            Ok((id, answer?))
        };
        self.inner.nodes.beside(parts, true, one).into_iter().collect()
    }

    /// When a call must be over that begins now and itself waits so long.
    fn begin(&self, wait: Duration) -> Instant {
        self.inner.nodes.begin(self.inner.nodes.now(), wait)
    }

    /// Makes a call at every node that has the ring, also at those of a map that is later than the client's.
    fn everywhere<T: Send>(&self, call: impl Fn(&RingClient) -> Result<T> + Sync) -> Result<Vec<(u16, T)>> {
        self.everywhere_until(self.begin(NO_WAIT), call)
    }

    /// The same as parts of a call that must be over by then.
    fn everywhere_until<T: Send>(
        &self,
        end: Instant,
        call: impl Fn(&RingClient) -> Result<T> + Sync,
    ) -> Result<Vec<(u16, T)>> {
        let answers = self.inner.nodes.at_all(end, Placed::has_ring, |_, _| false, call)?;
        Ok(answers.into_iter().map(|((node, _), answer)| (node, answer)).collect())
    }

    /// Each source with the nodes that may have something of it: the last one is that of the latest table.
    fn readers(&self, end: Instant, sources: &RingSources) -> Result<Vec<(SourceId, Vec<u16>)>> {
        let list = match sources {
            RingSources::Only(list) => list.clone(),
            RingSources::All => {
                let seen = self.everywhere_until(end, RingClient::sources)?;
                let names: BTreeSet<SourceId> = seen.iter().flat_map(|(_, all)| all).map(|row| row.source).collect();
                names.into_iter().collect()
            }
        };
        // After the sources: a later map may have come with them.
        let placed = self.inner.nodes.placed();
        if !placed.nodes().any(|node| placed.has_ring(node)) {
            return Err(Error::invalid("no look-up table of the map gives any source of this ring to a node"));
        }
        Ok(list.into_iter().map(|source| (source, placed.ring_readers(&source))).collect())
    }
}

/// A number of a node's pin as the cluster says it.
fn number(node: u16, id: u64) -> u64 {
    u64::from(node) << PIN_BITS | id
}

impl RingStore for ClusterRing {
    type Window = Window;
    type Pin = ClusterPin;

    fn keyspace(&self) -> &RingKeyspace {
        ClusterRing::keyspace(self)
    }

    fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Window> {
        let call_end = self.begin(wait);
        let until = self.inner.nodes.now() + wait.min(WAIT_MAX);
        let names: Vec<SourceId> = self.readers(call_end, sources)?.into_iter().map(|(source, _)| source).collect();
        let mut whole: BTreeMap<SourceId, SourceWindow> = BTreeMap::new();
        loop {
            let (left, since) = (until.saturating_duration_since(self.inner.nodes.now()), self.inner.nodes.epoch());
            let lacks = names.iter().filter(|name| !whole.contains_key(name)).copied().collect();
            let limit = self.inner.nodes.half(call_end);
            let found = self.look(limit, begin..end, lacks, left.min(SLICE));
            let found = match (self.inner.nodes.renew(since, call_end), found) {
                // What was found by the earlier map may lack what other nodes have.
                (Ok(true), _) => {
                    whole.clear();
                    continue;
                }
                (_, Err(error)) if limit.leaves_time(self.inner.nodes.now(), &error) => continue,
                (_, Err(error)) => return Err(error),
                (renewed, Ok(found)) => renewed.map(|_| found)?,
            };
            let is_over = left.is_zero();
            let ends = |window: &SourceWindow| window.coverage.iter().all(|stretch| stretch.state != Coverage::NotYet);
            whole.extend(found.into_iter().filter(|(_, window)| is_over || ends(window)));
            if names.iter().all(|name| whole.contains_key(name)) {
                let sources = names.iter().filter_map(|name| whole.remove(name)).collect();
                return Ok(Window { begin, end, sources });
            }
            if is_over {
                return Err(Error::internal("a node answers to other sources than it was asked for"));
            }
        }
    }

    fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<ClusterPin> {
        let call_end = self.begin(NO_WAIT);
        loop {
            let (since, at) = (self.inner.nodes.epoch(), self.pinned_at(sources));
            let limit = self.inner.nodes.half(call_end);
            let pins = self.at(limit, at.clone(), |ring, list| ring.pin(begin, end, &list, duration));
            let goes_on = pins.as_ref().is_err_and(|error| limit.leaves_time(self.inner.nodes.now(), error));
            // Those of an earlier map end here.
            if !goes_on && !self.has_moved(call_end, since, &at, sources, &pins)? {
                return Ok(ClusterPin {
                    ring: self.clone(),
                    at,
                    pins: pins?,
                    sources: sources.clone(),
                    ticks: (begin, end),
                });
            }
        }
    }

    fn keep(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Vec<RingPinStatus>> {
        let call_end = self.begin(NO_WAIT);
        loop {
            let (since, at) = (self.inner.nodes.epoch(), self.pinned_at(sources));
            let (mut kept, mut all) = (Vec::new(), Ok(()));
            for (node, list) in at.clone() {
                match self.at(Limit::new(call_end), [(node, list)], |ring, list| ring.keep(begin, end, &list, duration))
                {
                    Ok(one) => {
                        kept.extend(one.into_iter().map(|(_, pin)| RingPinStatus { id: number(node, pin.id), ..pin }));
                    }
                    Err(error) => {
                        all = Err(error);
                        break;
                    }
                }
            }
            let moved = self.has_moved(call_end, since, &at, sources, &all);
            if matches!((&all, &moved), (Ok(()), Ok(false))) {
                return Ok(kept);
            }
            // All or none: nobody holds those that there are.
            kept.iter().for_each(|pin| _ = self.unpin(pin.id));
            if !moved? {
                all?;
            }
        }
    }

    fn unpin(&self, id: u64) -> Result<bool> {
        let node = (id >> PIN_BITS) as u16;
        let ended =
            self.at(Limit::new(self.begin(NO_WAIT)), [(node, ())], |ring, ()| ring.unpin(id & ((1 << PIN_BITS) - 1)))?;
        Ok(ended.iter().any(|(_, ended)| *ended))
    }

    fn sources(&self) -> Result<Vec<RingSourceStatus>> {
        let mut all: BTreeMap<SourceId, RingSourceStatus> = BTreeMap::new();
        for row in self.everywhere(RingClient::sources)?.into_iter().flat_map(|(_, rows)| rows) {
            let row = match all.remove(&row.source) {
                None => row,
                Some(known) => known.joined(row),
            };
            all.insert(row.source, row);
        }
        Ok(all.into_values().collect())
    }

    fn chunks(&self) -> Result<Vec<RingChunkInfo>> {
        let mut all: Vec<RingChunkInfo> =
            self.everywhere(RingClient::chunks)?.into_iter().flat_map(|(_, chunks)| chunks).collect();
        all.sort_by_key(|chunk| chunk.source);
        Ok(all)
    }

    fn stats(&self) -> Result<RingStats> {
        let of_node = |(node, mut stats): (u16, RingStats)| {
            stats.pins.iter_mut().for_each(|pin| pin.id = number(node, pin.id));
            stats
        };
        let all = self.everywhere(RingClient::stats)?.into_iter().map(of_node);
        all.reduce(RingStats::joined).ok_or_else(too_few)
    }

    fn ledger_of(&self, run: u32) -> Result<Ledger> {
        let mut sum = Ledger::default();
        self.everywhere(|ring| ring.ledger_of(run))?.iter().for_each(|(_, ledger)| sum.add(ledger));
        Ok(sum)
    }

    fn losses(&self) -> Result<Vec<String>> {
        let named = |(node, all): (u16, Vec<String>)| all.into_iter().map(move |loss| format!("node {node}: {loss}"));
        Ok(self.everywhere(RingClient::losses)?.into_iter().flat_map(named).collect())
    }

    fn now(&self) -> Result<Option<u64>> {
        Ok(self.everywhere(RingClient::now)?.into_iter().filter_map(|(_, now)| now).max())
    }
}

impl ClusterRing {
    /// Whether the map has become a later one since pins were made of some sources, and has these elsewhere, or a node that failed.
    ///
    /// # Errors
    /// `Unavailable` for a later map that no node gives, unless the pins have failed already.
    fn has_moved<T>(
        &self,
        call_end: Instant,
        since: u32,
        at: &[(u16, RingSources)],
        sources: &RingSources,
        pins: &Result<T>,
    ) -> Result<bool> {
        match (self.inner.nodes.renew(since, call_end), pins) {
            (Ok(is_later), Err(_)) => Ok(is_later),
            (Ok(is_later), Ok(_)) => Ok(is_later && self.pinned_at(sources) != at),
            (Err(_), Err(_)) => Ok(false),
            (Err(error), Ok(_)) => Err(error),
        }
    }

    /// What the nodes have of some sources now, or after a short wait.
    fn look(
        &self,
        limit: Limit,
        ticks: Range<u64>,
        sources: Vec<SourceId>,
        wait: Duration,
    ) -> Result<BTreeMap<SourceId, SourceWindow>> {
        // What a source puts goes to one node, mostly that of the latest table: the others are not waited for.
        let mut parts: BTreeMap<(u16, bool), Vec<SourceId>> = BTreeMap::new();
        for (source, nodes) in self.readers(limit.end, &RingSources::Only(sources))? {
            for (at, node) in nodes.iter().enumerate() {
                parts.entry((*node, at + 1 == nodes.len())).or_default().push(source);
            }
        }
        let parts = parts.into_iter().map(|((node, comes), list)| (node, (comes, list)));
        // Each part of a long one has a deadline of its own, as on one server.
        let found = self.at(limit.open_ended(), parts, |ring, (comes, list)| {
            ring.window(ticks.start, ticks.end, &RingSources::Only(list), if comes { wait } else { Duration::ZERO })
        })?;
        let mut by_source: BTreeMap<SourceId, SourceWindow> = BTreeMap::new();
        for part in found.into_iter().flat_map(|(_, window)| window.sources) {
            let part = match by_source.remove(&part.source) {
                None => part,
                Some(known) => known.joined(part),
            };
            by_source.insert(part.source, part);
        }
        Ok(by_source)
    }

    /// Where a pin of these sources is to be made, and of which of them. A pin of all is one of all on every node, also of those that come.
    fn pinned_at(&self, sources: &RingSources) -> Vec<(u16, RingSources)> {
        let placed = self.inner.nodes.placed();
        let RingSources::Only(list) = sources else {
            let all = placed.nodes().filter(|node| placed.has_ring(node));
            return all.map(|node| (node.id, RingSources::All)).collect();
        };
        let mut parts: BTreeMap<u16, Vec<SourceId>> = BTreeMap::new();
        for source in list {
            placed.ring_readers(source).into_iter().for_each(|node| parts.entry(node).or_default().push(*source));
        }
        parts.into_iter().map(|(node, list)| (node, RingSources::Only(list))).collect()
    }
}

/// Stretches of ticks that the nodes of a cluster keep until this is dropped.
pub struct ClusterPin {
    ring: ClusterRing,
    /// Of what, by the map as it was.
    sources: RingSources,
    at: Vec<(u16, RingSources)>,
    pins: Vec<(u16, RingPin)>,
    ticks: (u64, u64),
}

impl KeepsTicks for ClusterPin {
    /// That of the first node's.
    fn id(&self) -> u64 {
        self.pins.first().map_or(0, |(node, pin)| number(*node, pin.id()))
    }

    fn move_to(&mut self, begin: u64, end: u64, duration: Duration) -> Result<()> {
        let over = |why: &str| Error::fenced(format!("{why}, and the pin has ended: make a new one"));
        if self.pins.is_empty() && !self.at.is_empty() {
            return Err(over("it was fenced before"));
        }
        let nodes = &self.ring.inner.nodes;
        for at in 0..self.pins.len() {
            let Err(error) = self.pins[at].1.move_to(begin, end, duration) else { continue };
            if error.kind() == Kind::Fenced {
                // A new one must not be refused for the rest of this one.
                self.pins.clear();
            }
            let (from, to) = self.ticks;
            // Those that have moved go back. One that cannot ends at its deadline, and says so when it is moved the next time.
            self.pins.iter_mut().take(at).for_each(|(_, pin)| _ = pin.move_to(from, to, duration));
            return Err(error);
        }
        self.ticks = (begin, end);
        // By a later map ticks that are still to come may be another node's. Its clients are others than those of this pin.
        let heard = self.pins.iter().map(|(_, pin)| pin.epoch()).max().unwrap_or_default();
        if heard > nodes.epoch() {
            nodes.learn(heard - 1, self.ring.begin(NO_WAIT));
        }
        if self.ring.pinned_at(&self.sources) == self.at {
            return Ok(());
        }
        self.pins.clear();
        Err(over("a source of this pin has moved to another node"))
    }
}

impl std::fmt::Debug for ClusterRing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cluster = self.inner.nodes.placed().map.cluster();
        write!(out, "ClusterRing({cluster:?}, keyspace {})", self.keyspace().name)
    }
}
