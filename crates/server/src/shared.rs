//! What every session of a server has in common, beside what is served (`keyspaces.rs`).

use crate::access::Access;
use crate::audit::{Actor, Audit, Audited, audited};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::orders::Orders;
use crate::peer::{Peers, Refusals};
use crate::tls::Certificates;
use forebay_core::{Call, Error, Result};
use parking_lot::RwLock;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// An event loop that has not gone round for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// The state of a server between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet at its listeners.
    Starting,
    /// Serves.
    Ready,
    /// Takes nothing new, and ends what is under way.
    Stopping,
}

impl Phase {
    /// Name, for probes.
    pub fn name(self) -> &'static str {
        ["starting", "ready", "stopping"][self as usize]
    }
}

/// Now, for sessions: tokio's time, which a simulator moves.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Time since then.
pub(crate) fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Rules and counters, shared by all threads.
pub(crate) struct Shared {
    /// Who may do what; replaced as a whole.
    access: RwLock<Arc<Access>>,
    /// Where changes are noted, if anywhere.
    pub(crate) audit: Option<Audit>,
    /// Those of `tls://` listeners.
    certificates: OnceLock<Arc<Certificates>>,
    /// Limits of a connection.
    pub(crate) limits: Limits,
    /// The counters.
    pub(crate) metrics: Metrics,
    /// Clients of Redis's protocol since the start: each has a number.
    resp_clients: AtomicU64,
    /// Set once the server takes no new requests.
    pub(crate) stopping: AtomicBool,
    /// Told when `stopping` is set.
    pub(crate) stop_notice: Notify,
    /// Who does what is the matter of a whole cluster; told once before it serves, where there is one.
    pub(crate) orders: OnceLock<Arc<dyn Orders>>,
    /// On a node of a cluster: sessions of Redis's protocol that may be on threads at once, where they wait for other nodes. Requests
    /// of those nodes need threads too: if all threads waited, nodes could wait for each other until their deadlines.
    pub(crate) waiting_for_others: OnceLock<Semaphore>,
    /// Puts that may be on threads at once, where they wait for space or for their run: threads are left for what ends that.
    pub(crate) waiting_puts: Arc<Semaphore>,
    /// Calls that may wait are made at once, on the thread of their session: in a simulator nothing waits.
    pub(crate) at_once: bool,
    /// Requests on threads now.
    pub(crate) on_threads: AtomicUsize,
    /// Bytes of requests in the server's memory now, beyond a buffer for each connection.
    memory: AtomicU64,
    /// Connections now.
    pub(crate) connections: AtomicUsize,
    /// The same by address.
    pub(crate) peers: Peers,
    /// How much is logged of refusals.
    pub(crate) refusals: Refusals,
    phase: AtomicU8,
    /// When each event loop went round last, in milliseconds since `began`; 0 before its first round.
    beats: Vec<AtomicU64>,
    began: Instant,
}

impl Shared {
    /// What sessions on this many threads share.
    pub(crate) fn new(access: Access, audit: Option<Audit>, limits: Limits, threads: usize) -> Shared {
        Shared {
            access: RwLock::new(Arc::new(access)),
            audit,
            certificates: OnceLock::new(),
            waiting_puts: Arc::new(Semaphore::new((limits.waiting_threads_max / 2).max(1))),
            limits,
            metrics: Metrics::default(),
            resp_clients: 0.into(),
            stopping: false.into(),
            stop_notice: Notify::new(),
            orders: OnceLock::new(),
            waiting_for_others: OnceLock::new(),
            at_once: false,
            on_threads: 0.into(),
            memory: 0.into(),
            connections: 0.into(),
            peers: Peers::default(),
            refusals: Refusals::default(),
            phase: AtomicU8::new(Phase::Starting as u8),
            beats: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            began: Instant::now(),
        }
    }

    /// Serves a node of a cluster.
    pub(crate) fn set_node(&self, node: Arc<dyn Orders>) {
        let places = Semaphore::new(self.limits.waiting_threads_max / 4);
        let told = self.orders.set(node).is_ok() && self.waiting_for_others.set(places).is_ok();
        debug_assert!(told, "a server is told once of which node it is");
    }

    /// Epoch of the map that this node goes by for a keyspace; 0 outside of a cluster.
    #[inline]
    pub(crate) fn epoch(&self, keyspace: &str) -> u32 {
        self.orders.get().map_or(0, |node| node.epoch(keyspace))
    }

    /// Whether this is a node of a cluster.
    pub(crate) fn is_node(&self) -> bool {
        self.waiting_for_others.get().is_some()
    }

    /// A place on a thread for a session that may wait for other nodes; `None` outside of a cluster, where it needs none.
    pub(crate) async fn place_to_wait(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting_for_others.get()?.acquire().await.ok()
    }

    /// Who may do what.
    pub(crate) fn access(&self) -> Arc<Access> {
        self.access.read().clone()
    }

    /// The certificates of its listeners, told once before it serves.
    pub(crate) fn set_certificates(&self, certificates: Option<Arc<Certificates>>) {
        if let Some(certificates) = certificates {
            let told = self.certificates.set(certificates);
            debug_assert!(told.is_ok(), "a server has one set of certificates");
        }
    }

    pub(crate) fn certificates(&self) -> Option<&Arc<Certificates>> {
        self.certificates.get()
    }

    /// A line of the audit log about the server itself.
    pub(crate) fn note(&self, call: &str, about: &str, answer: &str) {
        if let Some(audit) = &self.audit {
            audit.note(call, about, answer);
        }
    }

    /// Others may do something from now on.
    pub(crate) fn replace_access(&self, mut access: Access) {
        let mut now = self.access.write();
        access.succeed(&now);
        *now = Arc::new(access);
    }

    /// Makes a call, which is audited if it changes what operators answer for.
    ///
    /// # Errors
    /// `Unavailable` where the audit log cannot be written: the call is not made. Else those of the call.
    pub(crate) fn audited<T>(
        &self,
        actor: &Actor,
        call: Call,
        about: impl FnOnce() -> String,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match &self.audit {
            Some(audit) if audited(call) != Audited::No => audit.around(actor, call, &about(), make),
            _ => make(),
        }
    }

    /// The first line about a call that is made by other nodes too: its number, where the audit log wants it.
    ///
    /// # Errors
    /// `Unavailable` where it cannot be written: the call is not to be made.
    pub(crate) fn audit_asked(&self, actor: &Actor, call: Call, about: &str) -> Result<Option<u64>> {
        let audit = self.audit.as_ref().filter(|_| audited(call) != Audited::No);
        audit.map(|audit| audit.asked(actor, call, about)).transpose()
    }

    /// The second line about it.
    pub(crate) fn audit_answered<T>(
        &self,
        asked: Option<u64>,
        actor: &Actor,
        call: Call,
        about: &str,
        answer: &Result<T>,
    ) {
        if let (Some(audit), Some(number)) = (&self.audit, asked) {
            audit.answered(number, actor, call, about, answer);
        }
    }

    /// Whether a frame may be served that was sent under this epoch. A server of one node goes by no cluster map, which is
    /// epoch 0: a sender with any other one is mistaken about who serves these events.
    ///
    /// # Errors
    /// `Fenced` for another epoch.
    pub(crate) fn check_epoch(&self, epoch: u32) -> Result<()> {
        match epoch {
            0 => Ok(()),
            other => Err(Error::fenced(format!(
                "the sender goes by epoch {other} of a cluster map, and this server by none: is the address right?"
            ))),
        }
    }

    /// A session had `before` bytes of requests in memory and has `now`.
    pub(crate) fn account(&self, before: u64, now: u64) {
        if now >= before {
            self.memory.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let all = self.memory.fetch_sub(before - now, Ordering::Relaxed);
            debug_assert!(all >= before - now, "a session gives back memory that it had not counted");
        }
    }

    /// Whether requests may take this many more bytes of memory.
    pub(crate) fn has_memory(&self, bytes: u64) -> bool {
        // Relaxed, and checked apart from the taking: two connections may both see room. The bound is for the machine's
        // memory, where one window more or less does not matter.
        self.memory.load(Ordering::Relaxed).saturating_add(bytes) <= self.limits.memory_bytes_max
    }

    /// A number for a new client of Redis's protocol.
    pub(crate) fn next_client(&self) -> u64 {
        self.resp_clients.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The state of the server.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }

    /// The next phase: none comes again.
    pub(crate) fn enter(&self, phase: Phase) {
        // `fetch_max`: the thread that starts the server may enter `Ready` after a signal has entered `Stopping`.
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        if phase == Phase::Stopping {
            // The flag before the notice: a session that registers too late for the notice finds the flag set
            // (`until_stopping`).
            self.stopping.store(true, Ordering::Release);
            self.stop_notice.notify_waiters();
        }
    }

    /// Waits until the server takes no new connections and requests.
    pub(crate) async fn until_stopping(&self) {
        let mut notice = pin!(self.stop_notice.notified());
        // Registered before the flag is read: a stop in between is seen by one of them.
        notice.as_mut().enable();
        if !self.stopping.load(Ordering::Acquire) {
            notice.await;
        }
    }

    /// An event loop went round.
    pub(crate) fn beat(&self, thread: usize) {
        if let Some(beat) = self.beats.get(thread) {
            // Relaxed: only the age of the number is looked at.
            beat.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// Whether every event loop went round lately.
    pub(crate) fn alive(&self) -> bool {
        let oldest = self.now_ms().saturating_sub(HANGS_AFTER.as_millis() as u64);
        self.beats.iter().all(|beat| beat.load(Ordering::Relaxed) >= oldest)
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_go_one_way() {
        let shared = Shared::new(Access::default(), None, Limits::default(), 1);
        assert_eq!(shared.phase(), Phase::Starting);
        shared.enter(Phase::Ready);
        shared.enter(Phase::Stopping);
        shared.enter(Phase::Ready);
        assert_eq!((shared.phase().name(), shared.stopping.load(Ordering::Acquire)), ("stopping", true));
    }
}
