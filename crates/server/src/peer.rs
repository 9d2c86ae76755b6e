//! The other end of a connection: its identity, the limit of connections per address, and the log of refused peers.
//!
//! *Invariants*: an address counts while it has connections, so that the table is never larger than all connections; a
//! refusal is always counted, and logged while there are not too many of them (test `a_flood_is_not_a_flood_of_lines`).

use crate::shared::Shared;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Refusals that get a line of their own in each second.
const LINES_PER_SECOND: u32 = 20;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Over TCP.
    Address(SocketAddr),
    /// Over a Unix socket: user and process, where the system says.
    Local(Option<(u32, i32)>),
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => write!(out, "{address}"),
            Peer::Local(Some((user, process))) => write!(out, "unix user {user} process {process}"),
            Peer::Local(None) => out.write_str("unix"),
        }
    }
}

tokio::task_local! {
    /// The other end of the connection that this task serves.
    pub(crate) static PEER: Peer;
}

/// Connections by address.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection among those that are counted, until it is dropped.
pub(crate) struct Admitted {
    shared: Arc<Shared>,
    address: Option<IpAddr>,
}

impl Admitted {
    /// Counts a connection in. `None` if the limit is reached, in total or for this address. Called by one
    /// thread, that of the listeners.
    pub(crate) fn new(shared: &Arc<Shared>, peer: Peer) -> Option<Admitted> {
        // Read and added apart: the listeners' thread is the only one that adds.
        if shared.connections.load(Ordering::Acquire) >= shared.limits.connections_max {
            return None;
        }
        let address = match peer {
            // An IPv4 client of an IPv6 listener counts under its IPv4 address, as it does at an IPv4 listener.
            Peer::Address(address) => Some(address.ip().to_canonical()),
            Peer::Local(_) => None,
        };
        if let Some(address) = address {
            let mut counts = shared.peers.counts.lock();
            let count = counts.entry(address).or_default();
            if *count >= shared.limits.connections_per_peer_max {
                return None;
            }
            *count += 1;
        }
        shared.connections.fetch_add(1, Ordering::AcqRel);
        Some(Admitted { shared: shared.clone(), address })
    }

    /// State that it shares with all others.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            let mut counts = self.shared.peers.counts.lock();
            if let Some(count) = counts.get_mut(&address) {
                debug_assert!(*count > 0, "each connection is counted out once");
                *count -= 1;
                if *count == 0 {
                    // Entries with 0 would stay forever: the table would grow with every address that ever connected.
                    counts.remove(&address);
                }
            }
        }
        // Last: once the total is 0, `Server::stop` ends the threads.
        let before = self.shared.connections.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "each connection is counted out once");
    }
}

/// How many lines about refusals there were in this second.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    second: Mutex<Second>,
}

#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    lines: u32,
    silent: u64,
}

impl Refusals {
    /// Whether a refusal gets a line now, and how many before it got none.
    fn line(&self, now: Instant) -> Option<u64> {
        let mut second = self.second.lock();
        if second.began.is_none_or(|began| now.saturating_duration_since(began) >= Duration::from_secs(1)) {
            second.began = Some(now);
            second.lines = 0;
        }
        // A flood of refusals must not become a flood of lines; the next line that is written says how many were left
        // out.
        if second.lines >= LINES_PER_SECOND {
            second.silent += 1;
            return None;
        }
        second.lines += 1;
        Some(std::mem::take(&mut second.silent))
    }
}

impl Shared {
    /// Counts and logs that the connection of this task, or its login, was refused: for `limit`, `token`, `certificate`,
    /// `right` or `handshake`. `why` is in words that hold no secret.
    pub(crate) fn refuse(&self, listener: &'static str, reason: &'static str, why: impl fmt::Display) {
        self.refuse_peer(listener, reason, PEER.try_get().ok(), why);
    }

    /// As [`Shared::refuse`], where the connection has no task yet.
    pub(crate) fn refuse_peer(
        &self,
        listener: &'static str,
        reason: &'static str,
        peer: Option<Peer>,
        why: impl fmt::Display,
    ) {
        // Always counted, also where no line is written.
        self.metrics.refused(listener, reason);
        let Some(silent) = self.refusals.line(Instant::now()) else { return };
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        tracing::warn!(listener, peer, reason, why = %why, "refused");
        if silent > 0 {
            tracing::warn!(silent, "more were refused than there are lines for: metrics count them all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_not_a_flood_of_lines() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let lines = (0..1000).filter(|_| refusals.line(start).is_some()).count();
        assert_eq!(lines, LINES_PER_SECOND as usize);
        let later = start + Duration::from_secs(1);
        assert_eq!(refusals.line(later), Some(1000 - u64::from(LINES_PER_SECOND)));
        assert_eq!(refusals.line(later), Some(0));
    }
}
