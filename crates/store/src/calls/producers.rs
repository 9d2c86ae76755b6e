//! Producers: the clients that put into a run, and what each reports as offered and announced; a check that does not
//! come from the store's own counting.
//!
//! *On failure*: a producer that goes without its last report is listed as unknown, with its last figures.

use crate::decisions::encode_producer;
use crate::engine::Engine;
use crate::runs::{Counts, KnownProducer};
use crate::{ProducerStatus, Store};
use forebay_core::limits::NAME_BYTES_MAX;
use forebay_core::{Error, Result};
use forebay_media::bytes::Blob;
use forebay_media::hot::Class;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most producers of one run.
const PRODUCERS_MAX: usize = 20_000;

/// A client that puts into a run and counts what it offers. Dropped without [`Producer::finish`] it is listed as unknown.
#[derive(Debug)]
pub struct Producer {
    store: Store,
    run: u64,
    name: String,
    counts: Arc<Counts>,
}

impl Store {
    /// Enters a producer in the books of a run, under a name of its own.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, an ill-formed name or too many producers, `Conflict` where one of this name is at
    /// work, `Closed` for a closed run, `Full` without space to journal it.
    pub fn producer(&self, run: u64, name: &str) -> Result<Producer> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!("producer name `{name}`: 1 to {NAME_BYTES_MAX} bytes")));
        }
        let engine = self.engine();
        engine.relieve_log_for_words();
        let _effects = engine.decisions.effects.begin();
        engine.check_open()?;
        let mut runs = engine.runs.known.lock();
        let known = engine.not_closed(&mut runs, run)?;
        let earlier = known.producers.iter().position(|producer| producer.status.name == name);
        if earlier.is_some_and(|at| known.producers[at].counts.strong_count() > 0) {
            return Err(Error::conflict(format!("run {run}: a producer `{name}` is at work")));
        }
        if earlier.is_none() && known.producers.len() >= PRODUCERS_MAX {
            return Err(Error::invalid(format!("run {run}: more than {PRODUCERS_MAX} producers")));
        }
        // One that comes back goes on from its last figures.
        let before = earlier.map(|at| known.producers[at].now());
        let status = ProducerStatus {
            name: name.to_owned(),
            finished: false,
            unknown: false,
            announced: before.as_ref().map_or(0, |before| before.announced),
            fragments: before.as_ref().map_or(0, |before| before.fragments),
            bytes: before.as_ref().map_or(0, |before| before.bytes),
        };
        let ticket = engine.journal_blob(
            Class::Evacuation,
            Blob::Producer,
            &encode_producer(run, &status),
            &name_of_producer(run, name),
        )?;
        let counts = Arc::new(Counts {
            announced: status.announced.into(),
            fragments: status.fragments.into(),
            bytes: status.bytes.into(),
        });
        let producer = KnownProducer { status, counts: Arc::downgrade(&counts) };
        match earlier {
            Some(at) => known.producers[at] = producer,
            None => known.producers.push(producer),
        }
        drop(runs);
        // Not waited for: a device that lacks this record gets the producer with its next report.
        ticket.unanswered();
        Ok(Producer { store: self.clone(), run, name: name.to_owned(), counts })
    }
}

impl Producer {
    /// It offered a fragment of this many bytes, regardless of the answer.
    #[inline]
    pub fn offered(&self, bytes: u64) {
        // Relaxed: figures of one producer, compared with the ledger after its last put.
        self.counts.fragments.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It offered `fragments` fragments, of `bytes` bytes together.
    pub fn offered_many(&self, fragments: u64, bytes: u64) {
        self.counts.fragments.fetch_add(fragments, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It announced `events` events.
    #[inline]
    pub fn announced(&self, events: u64) {
        self.counts.announced.fetch_add(events, Ordering::Relaxed);
    }

    /// Reports its figures durably: after a crash they are the last known ones.
    ///
    /// # Errors
    /// `Closed` also where the run is closed, `Full` without space to journal it, `OutcomeUnknown` where a device does not
    /// make it durable.
    pub fn report(&self) -> Result<()> {
        let engine = self.store.engine();
        engine.explained(engine.report(self, false))
    }

    /// The last report: its figures are final.
    ///
    /// # Errors
    /// As [`Producer::report`].
    pub fn finish(self) -> Result<()> {
        let engine = self.store.engine();
        engine.explained(engine.report(&self, true))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Its last figures stay with the run, no matter how it ended.
        let engine = self.store.engine();
        let mut runs = engine.runs.known.lock();
        let Some(known) = runs.iter_mut().find(|known| known.run == self.run) else { return };
        if let Some(entry) = known.producers.iter_mut().find(|producer| producer.status.name == self.name) {
            entry.status = entry.now();
        }
    }
}

impl Engine {
    fn report(&self, producer: &Producer, finished: bool) -> Result<()> {
        self.relieve_log_for_words();
        let effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut runs = self.runs.known.lock();
        // A closed run has given its producers to its summary.
        let known = self.not_closed(&mut runs, producer.run)?;
        let at = known.producers.iter().position(|entry| entry.status.name == producer.name);
        let at = at.ok_or_else(|| Error::internal("a producer that its run does not know"))?;
        // The journal first: what is shown as finished stays finished after a restart.
        let status = ProducerStatus { finished, ..known.producers[at].now() };
        let bytes = encode_producer(producer.run, &status);
        let class = if finished { Class::Decision } else { Class::Evacuation };
        let ticket =
            self.journal_blob(class, Blob::Producer, &bytes, &name_of_producer(producer.run, &producer.name))?;
        known.producers[at].status = status;
        drop((runs, effects));
        self.settle(ticket)
    }
}

/// What a call of a producer is known by where it waits for devices. With a word before it: a person may name a producer as
/// other calls are known.
fn name_of_producer(run: u64, name: &str) -> Vec<u8> {
    [&b"producer"[..], &run.to_le_bytes(), name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::name_of_producer;

    #[test]
    fn a_producer_is_known_apart_from_other_calls_and_runs() {
        for other in ["output", "stream", "mask"] {
            assert_ne!(name_of_producer(1, other), other.as_bytes());
        }
        assert_ne!(name_of_producer(1, "readout"), name_of_producer(2, "readout"));
    }
}
