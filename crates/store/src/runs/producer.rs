//! A producer as its run knows it.

use forebay_core::ProducerStatus;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of a producer at work.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) announced: AtomicU64,
    pub(crate) fragments: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// A producer as its run knows it.
#[derive(Clone, Debug)]
pub(crate) struct KnownProducer {
    pub(crate) status: ProducerStatus,
    pub(crate) counts: Weak<Counts>,
}

impl KnownProducer {
    /// One that the log tells of.
    pub(crate) fn recovered(status: ProducerStatus) -> KnownProducer {
        KnownProducer { status, counts: Weak::new() }
    }

    /// Its figures now.
    pub(crate) fn now(&self) -> ProducerStatus {
        // Weak: a producer that is dropped without its last report is known to be gone, regardless of its thread.
        match self.counts.upgrade() {
            Some(counts) if !self.status.finished => ProducerStatus {
                announced: counts.announced.load(Ordering::Relaxed),
                fragments: counts.fragments.load(Ordering::Relaxed),
                bytes: counts.bytes.load(Ordering::Relaxed),
                ..self.status.clone()
            },
            Some(_) => self.status.clone(),
            None => ProducerStatus { unknown: !self.status.finished, ..self.status.clone() },
        }
    }
}
