//! Counters of the server itself; those of its stores are in the stores.
//!
//! ```text
//! sessions ──count──▶ slices, one for each thread ─┐
//! listeners ────────▶ counts of connections ───────┼──▶ page ──▶ /metrics
//! stores, rings ──stats, runs, containers, sources─┘
//! ```
//!
//! *Invariants*: counting takes no lock, waits for nobody and allocates nothing. What is counted never falls.
//!
//! *Not here*: the page that shows it (`page/`), what stores count (`forebay-store`).

mod histogram;
mod listeners;

pub(crate) use histogram::Sums;
pub(crate) use listeners::{ENDED, REFUSED};

use forebay_core::{Call, Kind};
use histogram::Histogram;
use listeners::Listeners;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Slices that threads count in: enough that event loops, of which there are few, have one each.
const SLICES: usize = 16;

/// Counters of a server, beside those of its stores.
#[derive(Debug)]
pub(crate) struct Metrics {
    slices: Box<[Slice]>,
    /// Times that tokens and certificates were read again, and that this was refused.
    pub(crate) reloads: [AtomicU64; 2],
    pub(crate) listeners: Listeners,
}

/// Counts of some of the threads, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Slice {
    calls: [CallCounts; Call::COUNT],
    received: AtomicU64,
    sent: AtomicU64,
}

#[derive(Debug)]
struct CallCounts {
    things: AtomicU64,
    errors: [AtomicU64; Kind::COUNT],
    took: Histogram,
}

/// One call, summed over all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CallSums {
    pub(crate) things: u64,
    pub(crate) errors: [u64; Kind::COUNT],
    pub(crate) took: Sums,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let zero = |_| AtomicU64::new(0);
        let call =
            |_| CallCounts { things: AtomicU64::new(0), errors: std::array::from_fn(zero), took: Histogram::default() };
        let slice = || Slice { calls: std::array::from_fn(call), received: 0.into(), sent: 0.into() };
        Metrics {
            slices: (0..SLICES).map(|_| slice()).collect(),
            reloads: Default::default(),
            listeners: Listeners::default(),
        }
    }
}

impl Metrics {
    /// A call was answered: the number of things that it asked for, the kind of error if it failed as a whole, its time.
    pub(crate) fn answered(&self, call: Call, things: u64, failed: Option<Kind>, took: Duration) {
        let counts = &self.slice().calls[call as usize];
        // Relaxed: no count says anything about another. A page may see a call counted and its time not yet.
        counts.things.fetch_add(things, Relaxed);
        counts.took.add(took);
        if let Some(kind) = failed {
            counts.errors[kind as usize].fetch_add(1, Relaxed);
        }
    }

    /// Tokens and certificates were read again.
    pub(crate) fn reloaded(&self) {
        self.reloads[0].fetch_add(1, Relaxed);
    }

    /// What was read was refused.
    pub(crate) fn reload_failed(&self) {
        self.reloads[1].fetch_add(1, Relaxed);
    }

    /// One thing of a call failed.
    pub(crate) fn failed(&self, call: Call, kind: Kind) {
        self.slice().calls[call as usize].errors[kind as usize].fetch_add(1, Relaxed);
    }

    /// Payload that came in or went out.
    pub(crate) fn bytes(&self, received: u64, sent: u64) {
        let slice = self.slice();
        slice.received.fetch_add(received, Relaxed);
        slice.sent.fetch_add(sent, Relaxed);
    }

    /// A connection was taken by a listener of this name (`native`, `resp`, `http`), or refused for a reason.
    pub(crate) fn connected(&self, listener: &'static str) {
        self.listeners.connected(listener);
    }

    /// A connection ended, for this reason (`goodbye`, `closed`, `error`, `deadline`, `stopping`, `limit`, `token`).
    pub(crate) fn disconnected(&self, listener: &'static str, reason: &'static str) {
        self.listeners.disconnected(listener, reason);
    }

    /// A connection or a login was refused, for this reason (`limit`, `token`, `certificate`, `right`, `handshake`).
    pub(crate) fn refused(&self, listener: &'static str, reason: &'static str) {
        self.listeners.refused(listener, reason);
    }

    fn slice(&self) -> &Slice {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static MINE: usize = NEXT.fetch_add(1, Relaxed) % SLICES);
        // Dealt out to threads as they come: two threads may share a slice, so counts are atomic; they rarely meet.
        &self.slices[MINE.with(|mine| *mine)]
    }

    /// One call as all threads counted it.
    pub(crate) fn sums(&self, call: Call) -> CallSums {
        let mut sums = CallSums::default();
        for counts in self.slices.iter().map(|slice| &slice.calls[call as usize]) {
            sums.things += counts.things.load(Relaxed);
            counts.took.add_to(&mut sums.took);
            sums.errors.iter_mut().zip(&counts.errors).for_each(|(sum, count)| *sum += count.load(Relaxed));
        }
        sums
    }

    /// Payload bytes received and sent.
    pub(crate) fn sum_bytes(&self) -> (u64, u64) {
        self.slices.iter().fold((0, 0), |(received, sent), slice| {
            (received + slice.received.load(Relaxed), sent + slice.sent.load(Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart_and_sum_together() {
        let metrics = Metrics::default();
        std::thread::scope(|scope| {
            for _ in 0..SLICES + 3 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        metrics.answered(Call::Put, 3, None, Duration::from_micros(5));
                        metrics.failed(Call::Put, Kind::Conflict);
                        metrics.bytes(10, 1);
                    }
                    metrics.answered(Call::Put, 0, Some(Kind::Full), Duration::from_secs(1));
                });
            }
        });
        let threads = SLICES as u64 + 3;
        let sums = metrics.sums(Call::Put);
        assert_eq!(sums.things, threads * 3000);
        assert_eq!(sums.took.count(), threads * 1001);
        assert_eq!(sums.errors[Kind::Conflict as usize], threads * 1000);
        assert_eq!(sums.errors[Kind::Full as usize], threads);
        assert_eq!(metrics.sum_bytes(), (threads * 10_000, threads * 1000));
        assert_eq!(metrics.sums(Call::Get), CallSums::default());
    }
}
