//! Leases over all nodes, and verdicts at the home of each event.

use super::ClusterClient;
use crate::fragment::Fragment;
use crate::put::NO_WAIT;
use crate::retry::Limit;
use crate::select::{Lease, NoLease, Verdict};
use forebay_core::{Accept, Error, GetAny, HeldTogether, Kind, Primary, Result, ResultFragment, Sources, Token};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Nodes that are asked without a wait before one of them waits.
const HOPS: usize = 4;
/// How long one node waits for a ready event before the next one does: an event that becomes ready elsewhere is found within this
/// time for each node of the cluster.
pub(super) const TURN: Duration = Duration::from_millis(50);
/// How long a node is not asked that did not answer, for each millisecond for which it has kept a call.
const REST: Duration = Duration::from_millis(4);
/// Longest such time: later it may be well again.
const REST_MAX: Duration = Duration::from_secs(20);
/// How long one is asked by who has leases of others.
const IN_HAND: Duration = Duration::from_secs(1);

impl ClusterClient {
    /// Leases up to `n` ready events, of as many nodes as it takes; waits for a first one as long as asked. The order of delivery is
    /// that of each node.
    ///
    /// # Errors
    /// As [`crate::Client::get_any`], with the name of the node, where no other one had any.
    pub fn get_any(&self, request: &GetAny) -> Result<Vec<Lease>> {
        let now = self.inner.nodes.now();
        let (call_end, end) = (self.begin_at(now, request.wait), now + request.wait);
        self.inner.nodes.catch_up(call_end);
        let (mut leases, together) = (Vec::<Lease>::new(), HeldTogether::default());
        let mut batches = BTreeMap::<u16, HeldTogether>::new();
        let (mut failed, mut hops) = (BTreeMap::<u16, Error>::new(), 0);
        // Also where one of them is found to be away.
        let all_hops = HOPS.min(self.placed().nodes().count());
        let resting = loop {
            let (nodes, resting) = self.awake();
            // From another one each time: all nodes are emptied alike.
            let node = nodes[self.inner.turn.fetch_add(1, Ordering::Relaxed) % nodes.len()];
            let is_hop = hops < all_hops;
            let began = self.inner.nodes.now();
            let left = end.saturating_duration_since(began);
            let wait = if is_hop { Duration::ZERO } else { left.min(TURN) };
            let asked = GetAny { n: request.n - leases.len(), wait, ..request.clone() };
            // A node that says nothing leaves time for the others, and until each was asked one that is not reached takes none.
            let limit = self.inner.nodes.half(call_end.min(self.inner.nodes.options.end(wait)));
            let limit = match nodes.len() {
                1 => limit,
                _ if is_hop => Limit::once(began, limit.reach),
                _ => limit.whole(),
            };
            // Nor does it keep what others gave.
            let limit = if leases.is_empty() { limit } else { limit.and(Limit::new(began + IN_HAND)) };
            let client = self.inner.nodes.node_within(node, limit).map_err(NoLease::Away);
            match client.and_then(|client| {
                client.get_any_of(&asked, batches.entry(node).or_insert_with(|| together.elsewhere()))
            }) {
                Ok(found) => {
                    failed.remove(&node);
                    leases.extend(found);
                }
                Err(none) => {
                    if let NoLease::Away(error) = &none {
                        self.rests(node, began, error);
                    }
                    failed.insert(node, none.error());
                    // One that is away answers at once: not asked again and again.
                    self.inner.nodes.options.machine.sleep(wait);
                }
            }
            hops += 1;
            let has_hopped = hops >= all_hops;
            if leases.len() >= request.n || has_hopped && (!leases.is_empty() || left.is_zero()) {
                break resting;
            }
        };
        match failed.into_values().next().or(resting) {
            Some(error) if leases.is_empty() => Err(error),
            _ => Ok(leases),
        }
    }

    /// The nodes that are asked for ready events, and why others are not now: all of them where none answers.
    fn awake(&self) -> (Vec<u16>, Option<Error>) {
        let placed = self.placed();
        let (now, mut resting) = (self.inner.nodes.now(), self.inner.resting.lock());
        resting.retain(|node, (until, _)| *until > now && placed.nodes().any(|known| known.id == *node));
        let all = placed.nodes().map(|node| node.id);
        let awake: Vec<u16> = all.filter(|node| !resting.contains_key(node)).collect();
        match awake.is_empty() {
            true => (placed.nodes().map(|node| node.id).collect(), None),
            false => (awake, resting.values().next().map(|(_, error)| error.again())),
        }
    }

    /// A node that has kept a call in vain is not asked for some time, so that it does not take most of the time of those who ask.
    fn rests(&self, node: u16, began: Instant, error: &Error) {
        let now = self.inner.nodes.now();
        let rest = REST_MAX.min(REST * now.saturating_duration_since(began).as_millis() as u32);
        if matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown) {
            self.inner.resting.lock().insert(node, (now + rest, error.again()));
        }
    }

    /// Leases a named event.
    ///
    /// # Errors
    /// As [`crate::Client::lease`].
    pub fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease>> {
        self.at_home(primary.as_bytes(), |client| client.lease(primary, duration))
    }

    /// Decides about many events, with one request to each of their homes; outcomes in the same order.
    ///
    /// # Errors
    /// Those of single verdicts are in their outcomes, also where a home does not answer.
    pub fn decide(&self, verdicts: &[Verdict]) -> Result<Vec<Result<()>>> {
        let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, verdict) in verdicts.iter().enumerate() {
            parts.entry(self.home(verdict.primary.as_bytes())).or_default().push(at);
        }
        let mut outcomes: Vec<Result<()>> = verdicts.iter().map(|_| Ok(())).collect();
        let (nodes, end) = (&self.inner.nodes, self.begin(NO_WAIT));
        let last = parts.keys().next_back().copied();
        let decide = |home: u16, places: &[usize]| {
            let part: Vec<Verdict> = places.iter().map(|&at| verdicts[at].clone()).collect();
            // One after another, each leaves time for the others.
            let limit = if Some(home) == last { Limit::new(end) } else { nodes.half(end) };
            nodes.node_within(home, limit)?.decide(&part)
        };
        for (places, answer) in self.inner.nodes.parts(parts, false, decide) {
            match answer {
                Ok(part) => places.into_iter().zip(part).for_each(|(at, outcome)| outcomes[at] = outcome),
                Err(error) => {
                    self.inner.nodes.ended_with(&error);
                    places.into_iter().for_each(|at| outcomes[at] = Err(error.again()));
                }
            }
        }
        Ok(outcomes)
    }
}

macro_rules! under_lease {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// Calls for the holder of a token.
        impl ClusterClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// As the client's method of the same name.
                pub fn $name(&self, primary: &Primary, token: &Token, $($argument: $type),*) -> Result<$answer> {
                    self.at_home(primary.as_bytes(), |client| client.$name(primary, token, $($argument),*))
                }
            )*
        }
    };
}

under_lease! {
    /// Reads sources of an event under lease.
    lease_get(sources: &Sources) -> Vec<Fragment>;
    /// Extends a lease by `duration` from now.
    extend(duration: Duration) -> ();
    /// Keeps a leased event, in these streams.
    accept(streams: &[&str]) -> ();
    /// Keeps a leased event in streams with chosen sources, and adds results to it.
    accept_into(accept: &Accept<'_>) -> ();
    /// Drops a leased event.
    reject() -> ();
    /// Hands a leased event to a later stage, with results for it.
    pass(stage: &str, results: &[ResultFragment<'_>]) -> ();
    /// Gives a leased event back unharmed.
    requeue() -> ();
    /// Gives a leased event back because processing it failed.
    fail(reason: &str) -> ();
}
