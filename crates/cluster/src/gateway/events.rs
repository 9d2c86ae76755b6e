//! Events and fragments: at their homes, or at all nodes.

use super::{Both, Gateway, SPACE};
use forebay_client::Client;
use forebay_core::{
    Accept, Bounds, Claim, ClaimRequest, ClaimedEvent, Either, Event, EventStore, GetAny, Key, Keyspace, Lease,
    LeaseHolder, Ledger, MovedStore, OpenEvent, OperatedStore, Primary, PutOptions, PutOutcome, Result, ResultFragment,
    RunConfig, RunStatus, RunSummary, Sources, Stats, Token,
};
use forebay_store::Store;
use forebay_wire::Control;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Nodes that one look for ready events asks, this one among them.
const HOPS: usize = 4;

/// A fragment here, or one that came from another node.
pub(super) type Fragment = <Both as EventStore>::Fragment;
type Holder = <Both as EventStore>::Holder;
/// An error alone, or a walk.
type Range = std::iter::Chain<
    std::option::IntoIter<Result<Fragment>>,
    std::iter::Flatten<std::option::IntoIter<<Both as EventStore>::Range>>,
>;

impl Gateway {
    pub(super) fn primary_of<'a>(&self, key: &'a Key) -> &'a [u8] {
        let bytes = key.as_bytes();
        &bytes[..self.own.schema().primary_bytes().min(bytes.len())]
    }

    /// The nodes of a fragment, where one of them is another one: that of the bytes, and the home.
    pub(super) fn fragment_elsewhere(&self, key: &Key) -> Option<(&super::Others, u16, u16)> {
        let others = self.others()?;
        let (holder, home) = others.cluster.route_of(key);
        (holder != others.number || home != others.number).then_some((others, holder, home))
    }
}

/// What a put there is asked with: it waits for space less long than its answer is waited for.
pub(super) fn there<'a>(options: &PutOptions<'a>) -> PutOptions<'a> {
    PutOptions { deadline: options.deadline.or(Some(SPACE)), ..*options }
}

impl EventStore for Gateway {
    type Fragment = Fragment;
    type Holder = Holder;
    type Producer = <Store as EventStore>::Producer;
    type Range = Range;

    fn keyspace(&self) -> &Keyspace {
        self.own.keyspace()
    }

    fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        let Some((others, holder, home)) = self.fragment_elsewhere(key) else {
            return self.own.put(key, value, options);
        };
        others.at_both(holder, home, || others.cluster.put(key, value, &there(options)))
    }
    fn get(&self, key: &Key) -> Result<Option<Fragment>> {
        match self.fragment_elsewhere(key) {
            None => self.here.get(key),
            Some((others, holder, home)) => others.at_both(holder, home, || others.there.get(key)),
        }
    }
    fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event<Fragment>>> {
        self.with_bytes(primary.as_bytes(), |at| at.get_event(primary, sources))
    }
    fn range(&self, bounds: &Bounds) -> Range {
        let (failed, walk) = match self.everywhere(|all| Ok(all.range(bounds))) {
            Ok(walk) => (None, Some(walk)),
            Err(error) => (Some(Err(error)), None),
        };
        failed.into_iter().chain(walk.into_iter().flatten())
    }
    fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16> {
        self.at_home(self.primary_of(key), |at| at.update(key, value, token))
    }
    fn remove(&self, key: &Key) -> Result<bool> {
        self.at_home(self.primary_of(key), |at| at.remove(key))
    }
    fn remove_event(&self, primary: &Primary) -> Result<bool> {
        self.at_home(primary.as_bytes(), |at| at.remove_event(primary))
    }
    fn remove_range(&self, bounds: &Bounds) -> Result<u64> {
        self.everywhere(|all| all.remove_range(bounds))
    }
    fn open_event(&self, primary: &Primary, how: &OpenEvent<'_>) -> Result<PutOutcome> {
        self.at_home(primary.as_bytes(), |at| at.open_event(primary, how))
    }
    fn seal(&self, primary: &Primary) -> Result<bool> {
        self.at_home(primary.as_bytes(), |at| at.seal(primary))
    }
    fn release(&self, primary: &Primary) -> Result<bool> {
        self.at_home(primary.as_bytes(), |at| at.release(primary))
    }

    /// Of this node and of some others, another one first each time. Nobody waits at another node for events that it has not.
    fn get_any(&self, request: &GetAny) -> Result<Vec<Lease<Fragment, Holder>>> {
        let Some(others) = self.others() else { return self.here.get_any(request) };
        let mut nodes = others.cluster.node_numbers();
        nodes.retain(|&node| node != others.number);
        let turn = others.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn % nodes.len().max(1);
        nodes.rotate_left(first);
        nodes.truncate(HOPS - 1);
        // This node is always asked: its events wake the session.
        nodes.push(others.number);
        let first = turn % nodes.len();
        nodes.rotate_left(first);
        let (mut leases, mut failed) = (Vec::new(), None);
        for node in nodes {
            let asked = GetAny { n: request.n - leases.len(), wait: Duration::ZERO, ..request.clone() };
            // Bytes of an event of this node may be on others.
            let is_here = node == others.number && !others.cluster.has_tables();
            let found = match is_here {
                true => self.here.get_any(&asked),
                false => others.at(node, || {
                    // With the time of a call: what it leases must come here, or no worker has it.
                    let client: Either<Store, Client> = Either::There(others.cluster.node(node)?);
                    client.get_any(&asked)
                }),
            };
            match found {
                Ok(found) => leases.extend(found),
                Err(error) => failed = Some(error),
            }
            if leases.len() >= request.n {
                break;
            }
        }
        match failed {
            Some(error) if leases.is_empty() => Err(error),
            _ => Ok(leases),
        }
    }
    fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease<Fragment, Holder>>> {
        self.with_bytes(primary.as_bytes(), |at| at.lease(primary, duration))
    }

    fn run_open(&self, run: u64, config: &RunConfig) -> Result<()> {
        let text = config.to_toml(self.own.schema())?;
        self.order(Control::RunOpen { run, config: text }, |own| own.run_open(run, config))
    }
    fn run_stop(&self, run: u64) -> Result<()> {
        self.order(Control::RunStop { run }, |own| own.run_stop(run))
    }
    fn run_close(&self, run: u64) -> Result<RunSummary> {
        let here: RunSummary = self.order(Control::RunClose { run }, |own| own.run_close(run))?;
        match self.others {
            // What it leaves behind on all nodes.
            Some(_) => OperatedStore::run_summary(self, run),
            None => Ok(here),
        }
    }
    fn runs(&self) -> Result<Vec<RunStatus>> {
        self.everywhere(EventStore::runs)
    }
    fn ledger(&self, run: u64) -> Result<Ledger> {
        self.everywhere(|all| all.ledger(run))
    }
    fn stats(&self) -> Result<Stats> {
        self.everywhere(EventStore::stats)
    }
    /// Producers are of the node that they speak to.
    fn producer(&self, run: u64, name: &str) -> Result<Self::Producer> {
        self.own.producer(run, name)
    }
}

impl super::Others {
    /// Makes a call about a fragment, which goes to one node, or to two of them: to none if one is not in contact.
    pub(super) fn at_both<T>(&self, holder: u16, home: u16, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.keyspace.answers(holder)?;
        self.keyspace.answers(home)?;
        self.at(home, call)
    }
}

/// Who executes verdicts: the home of the event, whichever node gave the lease away.
impl LeaseHolder for Gateway {
    type Fragment = Fragment;

    fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Fragment>> {
        self.with_bytes(primary.as_bytes(), |at| {
            Ok(match at {
                Either::Here(own) => own.lease_get(primary, token, sources)?.into_iter().map(Either::Here).collect(),
                Either::There(all) => all.lease_get(primary, token, sources)?.into_iter().map(Either::There).collect(),
            })
        })
    }
    fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::extend(own, primary, token, duration),
            Either::There(all) => all.extend(primary, token, duration),
        })
    }
    fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::accept(own, primary, token, streams),
            Either::There(all) => all.accept(primary, token, streams),
        })
    }
    fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::accept_into(own, primary, token, accept),
            Either::There(all) => all.accept_into(primary, token, accept),
        })
    }
    fn reject(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::reject(own, primary, token),
            Either::There(all) => all.reject(primary, token),
        })
    }
    fn pass(&self, primary: &Primary, token: &Token, stage: &str, results: &[ResultFragment<'_>]) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::pass(own, primary, token, stage, results),
            Either::There(all) => all.pass(primary, token, stage, results),
        })
    }
    fn requeue(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::requeue(own, primary, token),
            Either::There(all) => all.requeue(primary, token),
        })
    }
    fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| match at {
            Either::Here(own) => LeaseHolder::fail(own, primary, token, reason),
            Either::There(all) => all.fail(primary, token, reason),
        })
    }
}

/// Movers work at the node that has the events.
impl MovedStore for Gateway {
    fn claim(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        self.own.claim(request)
    }
    fn claimed(&self, token: &Token, after: u64) -> Result<Vec<ClaimedEvent>> {
        self.own.claimed(token, after)
    }
    fn extend_claim(&self, token: &Token, duration: Duration) -> Result<()> {
        self.own.extend_claim(token, duration)
    }
    fn prove(&self, token: &Token) -> Result<u64> {
        self.own.prove(token)
    }
    fn give_back(&self, token: &Token) -> Result<()> {
        self.own.give_back(token)
    }
}
