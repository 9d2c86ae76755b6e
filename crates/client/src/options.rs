//! Options of a client.

use crate::machine::Machine;
use crate::retry::Failure;
use forebay_core::{Error, Keyspace, MachineTimer};
use forebay_wire::{Hello, Member, Welcome};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer waits are cut to it: an instant behind it may be none that the system has.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Files of certificates for `tls://` addresses, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA that made the server's certificate.
    pub ca: Option<PathBuf>,
    /// The client's own certificate, where the server wants one.
    pub certificate: Option<PathBuf>,
    /// The key of the client's certificate.
    pub key: Option<PathBuf>,
}

/// The node of a cluster that a server has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Cluster and number.
    pub member: Member,
    /// The keyspace of events that all nodes have, as TOML; any where it is empty.
    pub keyspace: Arc<str>,
}

/// Identity, deadlines and limits of a client.
#[derive(Clone)]
pub struct Options {
    /// The keyspace; empty where the server has one.
    pub keyspace: String,
    /// The token, where the server wants one.
    pub token: Vec<u8>,
    /// Certificates, for a `tls://` address.
    pub tls: Tls,
    /// The node that the server has to be; `None` for any server.
    pub node: Option<Expected>,
    /// What it calls itself, for the server's logs and lists of holders.
    pub name: String,
    /// Time for a call, with its repeats and all nodes of a cluster that it goes to. What a call itself asks to wait comes on top. Each
    /// part of many frames that are read has it (`get_many`, ranges, windows of a ring), each node where a pin of a ring is moved, each
    /// address of a cluster that is connected to, and taking back what was done in part (leases whose bytes cannot be read, pins).
    pub deadline: Duration,
    /// Time for one connection to be made.
    pub connect_deadline: Duration,
    /// Pause before the first repeat; it doubles, and is drawn at random up to that.
    pub backoff: Duration,
    /// Longest pause between repeats.
    pub backoff_max: Duration,
    /// Connections at once; a call that finds none free waits for one.
    pub connections_max: usize,
    /// Bytes of answers that may be under way on one connection.
    pub window_bytes: u32,
    /// Extend leases while they are held, at a third of their time.
    pub extend_leases: bool,
    /// Time, chance, connections and threads; a simulator's own. Leases are extended by a thread of the system.
    pub machine: Arc<dyn Machine>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keyspace: String::new(),
            token: Vec::new(),
            tls: Tls::default(),
            node: None,
            name: format!("client {}", std::process::id()),
            deadline: Duration::from_secs(10),
            connect_deadline: Duration::from_secs(2),
            backoff: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            connections_max: 64,
            window_bytes: 16 << 20,
            extend_leases: true,
            machine: Arc::new(MachineTimer),
        }
    }
}

impl Options {
    /// When a call must be over that begins now and itself waits so long.
    pub(crate) fn end(&self, wait: Duration) -> Instant {
        self.end_after(self.machine.now(), wait)
    }

    /// The same for a call that begins at `now`.
    pub(crate) fn end_after(&self, now: Instant, wait: Duration) -> Instant {
        now + self.deadline.saturating_add(wait).min(FAR)
    }

    /// The client's hello.
    pub(crate) fn hello(&self) -> Hello {
        let Options { window_bytes, token, keyspace, name, .. } = self.clone();
        Hello { features: 0, window_bytes, token, keyspace, name }
    }

    /// Whether the server at an address is the one that it has to be. Another one counts as none: it may be there for a while, in the
    /// place of the node.
    pub(crate) fn takes(&self, address: &dyn Display, welcome: &Welcome) -> std::result::Result<(), Failure> {
        let Some(Expected { member, keyspace }) = &self.node else { return Ok(()) };
        if welcome.member != Some(*member) {
            let who = match welcome.member {
                Some(other) if other.cluster == member.cluster => format!("node {}", other.node),
                Some(other) => format!("node {} of another cluster", other.node),
                None => "a server that is no node of a cluster, or one of an earlier version".to_owned(),
            };
            let wanted = member.node;
            return Err(Failure::Unsent(Error::unavailable(format!(
                "at {address} is {who}, where the map has node {wanted}: start that one there, or give its address in a later map"
            ))));
        }
        // A text that cannot be read here may be a later version's.
        let (ours, theirs) = (Keyspace::from_toml(keyspace), Keyspace::from_toml(&welcome.keyspace));
        if ours.is_ok_and(|ours| theirs.is_ok_and(|theirs| theirs != ours)) {
            return Err(Failure::Barred(Error::invalid(format!(
                "node {} at {address} has a keyspace of this name with other contents than the node that was asked first: find out which node \
                 has the wrong one (`forebay keyspace`) before a store is made again",
                member.node
            ))));
        }
        Ok(())
    }
}

/// Without the token: it is a secret.
impl std::fmt::Debug for Options {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Options")
            .field("keyspace", &self.keyspace)
            .field("name", &self.name)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
