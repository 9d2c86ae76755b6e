//! Clients of a process: the blocking one of a server, that of a cluster, or the async one of a server; called alike.

use crate::net::{OUTSIDE, Place};
use crate::node::WINDOW_BYTES;
use crate::process::{Host, address_of, wait};
use crate::world::{CALL, World};
use forebay_client::{AsyncClient, Client, ClusterClient, Lease, Options, PlainLease, Verdict, WireJudgement};
use forebay_core::{
    Error, GetAny, Key, OperatedStore, PutOptions, PutOutcome, Report, Result, RunConfig, Source, Sources,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Between two tries to connect.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) enum Clients {
    /// Of one server; calls share a connection.
    Shared(AsyncClient),
    /// Of one server.
    One(Client),
    /// Of all nodes.
    All(ClusterClient),
}

/// What the operator has nodes do.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Open(u64, RunConfig),
    Mask {
        run: u64,
        source: Source,
        set: bool,
    },
    Pause(u64),
    Resume(u64),
    Hold(u64),
    /// Of all holds.
    LetGo,
    Stop(u64),
    Close(u64),
}

impl Order {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Order::Open(..) => "open",
            Order::Mask { set: true, .. } => "mask",
            Order::Mask { set: false, .. } => "unmask",
            Order::Pause(_) => "pause",
            Order::Resume(_) => "resume",
            Order::Hold(_) => "hold",
            Order::LetGo => "let go",
            Order::Stop(_) => "stop",
            Order::Close(_) => "close",
        }
    }
}

/// An event under lease.
pub(crate) enum Leased {
    Plain(PlainLease),
    Kept(Lease),
}

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Accept,
    Reject,
    Requeue,
}

/// The stream of what is accepted.
const STREAM: &str = "main";

impl World {
    /// Connects, as soon as that is possible; nothing once the simulation is over.
    pub(crate) fn connect(&self, name: &str, is_shared: bool) -> Option<Clients> {
        if is_shared && self.members.len() == 1 && !self.is_over() {
            let name = name.to_owned();
            let options = Options { name, deadline: CALL, window_bytes: WINDOW_BYTES, ..Options::default() };
            return Some(Clients::Shared(self.ways.client(None, 1, options)));
        }
        let machine = Arc::new(Host { ways: self.ways.clone(), random: self.ways.random(name, OUTSIDE) });
        let options = Options {
            name: name.to_owned(),
            deadline: CALL,
            extend_leases: false,
            window_bytes: WINDOW_BYTES,
            machine,
            ..Options::default()
        };
        let addresses: Vec<String> = self.members.iter().map(|member| address_of(member.place)).collect();
        while !self.is_over() {
            let made = match &addresses[..] {
                [one] => Client::connect(one, options.clone()).map(Clients::One),
                all => ClusterClient::connect(all, options.clone()).map(Clients::All),
            };
            match made {
                Ok(clients) => return Some(clients),
                Err(error) => self.note(format_args!("{name}: {:?}", error.kind())),
            }
            wait(sleep(AGAIN));
        }
        None
    }
}

impl Clients {
    /// Puts a fragment; `by_holder` leaves it to the holder to tell the home.
    pub(crate) fn put(&self, holder: Place, key: &Key, value: &[u8], by_holder: bool) -> Result<PutOutcome> {
        let options = PutOptions::default();
        match self {
            Clients::Shared(client) => wait(client.put(key, value, &options)),
            Clients::One(client) => client.put(key, value, &options),
            Clients::All(cluster) if by_holder => {
                cluster.node(holder as u16)?.put(key, value, &PutOptions { report: Report::Prompt, ..options })
            }
            Clients::All(cluster) => cluster.put(key, value, &options),
        }
    }

    pub(crate) fn get_any(&self, request: &GetAny) -> Result<Vec<Leased>> {
        let kept = |leases: Vec<Lease>| leases.into_iter().map(Leased::Kept).collect();
        match self {
            Clients::Shared(client) => Ok(wait(client.get_any(request))?.into_iter().map(Leased::Plain).collect()),
            Clients::One(client) => client.get_any(request).map(kept),
            Clients::All(cluster) => cluster.get_any(request).map(kept),
        }
    }

    /// Decides about an event under lease.
    pub(crate) fn decide(&self, lease: &Leased, decision: Decision) -> Result<()> {
        match (self, lease) {
            (_, Leased::Kept(lease)) => match decision {
                Decision::Accept => lease.accept(&[STREAM]),
                Decision::Reject => lease.reject(),
                Decision::Requeue => lease.requeue(),
            },
            (Clients::Shared(client), Leased::Plain(lease)) => {
                let judgement = match decision {
                    Decision::Accept => WireJudgement::Accept(vec![(STREAM.to_owned(), Sources::All)]),
                    Decision::Reject => WireJudgement::Reject,
                    Decision::Requeue => WireJudgement::Requeue,
                };
                let outcome = wait(client.decide(&[Verdict::about(lease, judgement)]))?.pop();
                outcome.unwrap_or_else(|| Err(Error::internal("no outcome")))
            }
            (_, Leased::Plain(_)) => Err(Error::internal("a lease of another client")),
        }
    }

    /// Has nodes do something about a run.
    pub(crate) fn order(&self, order: &Order) -> Result<()> {
        match self {
            Clients::Shared(_) => Err(Error::internal("the operator has a client that blocks")),
            Clients::One(client) => about_run(client, order),
            Clients::All(cluster) => about_run(cluster, order),
        }
    }
}

fn about_run<S: OperatedStore>(store: &S, order: &Order) -> Result<()> {
    match order {
        Order::Open(run, config) => store.run_open(*run, config),
        Order::Mask { run, source, set: true } => store.mask(*run, source, None),
        Order::Mask { run, source, set: false } => store.unmask(*run, source, None),
        Order::Pause(run) => store.run_pause(*run),
        Order::Resume(run) => store.run_resume(*run),
        Order::Hold(run) => store.hold(Some(*run), &[]).map(drop),
        Order::LetGo => store.holds()?.iter().try_for_each(|hold| store.release_hold(hold.id).map(drop)),
        Order::Stop(run) => store.run_stop(*run),
        Order::Close(run) => store.run_close(*run).map(drop),
    }
}
