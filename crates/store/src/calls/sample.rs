//! Looking at events without taking them: for monitoring and event displays; best effort, bounded, delays nobody.
//!
//! ```text
//! live:     the sampler walks the index by itself, one event at a time, at its rate
//! decided:  a verdict finds a sampler that waits ─▶ pins what it wants, hands it over ─▶ the sampler copies and unpins
//! ```
//!
//! *Invariants*: a sampler holds at most one event, and copies it: nothing of the store stays pinned under a monitor;
//! without a sampler that waits a verdict pays one atomic load.

use crate::engine::{Engine, closed};
use crate::events::{Flag, State};
use crate::limits::SHARDS;
use crate::runs::{Mailbox, Pinned};
use crate::shards::Shard;
use crate::time;
use crate::{Fragment, Sample, Sampling, Sources, Store};
use forebay_core::{Error, Primary, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most samplers of one store.
const SAMPLERS_MAX: usize = 64;
/// Events that a live sampler looks at in one call before it says that there was none.
const LOOKS_MAX: usize = 256;

/// Yields events at a bounded rate.
pub struct Sampler {
    store: Store,
    mailbox: Arc<Mailbox>,
    next: Instant,
    pause: Duration,
    /// Where the walk over live events goes on, by shard.
    after: Vec<Option<Primary>>,
    shard: usize,
}

impl Store {
    /// Starts to sample events.
    ///
    /// # Errors
    /// `Invalid` for an unknown stage or a rate that is not positive, `Full` for too many samplers, `Closed`.
    pub fn sampler(&self, sampling: &Sampling) -> Result<Sampler> {
        let engine = self.engine();
        engine.check_open()?;
        if !sampling.rate_hz.is_finite() || sampling.rate_hz <= 0.0 {
            return Err(Error::invalid(format!("rate_hz: more than 0, not {}", sampling.rate_hz)));
        }
        let stage = sampling.stage.as_deref().map(|name| engine.keyspace.stage(name)).transpose()?;
        let (slot, filled) = (Mutex::default(), Condvar::new());
        let mailbox = Arc::new(Mailbox { sampling: sampling.clone(), stage, slot, filled });
        let mut all = engine.runs.samplers.all.lock();
        all.retain(|mailbox| mailbox.strong_count() > 0);
        if all.len() >= SAMPLERS_MAX {
            return Err(Error::full_of("samplers", "operator", format!("{SAMPLERS_MAX} samplers, the limit")));
        }
        if sampling.decided {
            all.push(Arc::downgrade(&mailbox));
        }
        drop(all);
        let pause = Duration::from_secs_f64((1.0 / sampling.rate_hz).min(1e6));
        Ok(Sampler {
            store: self.clone(),
            mailbox,
            next: engine.timer().now(),
            pause,
            after: vec![None; SHARDS],
            shard: 0,
        })
    }
}

impl Sampler {
    /// The next event, not before its time by the rate; `None` where `wait` is over without one.
    ///
    /// # Errors
    /// `Corrupt` for a record that does not verify, `Closed`.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        let store = self.store.clone();
        let engine = store.engine();
        let deadline = engine.deadline_after(wait);
        let due = self.next;
        time::sleep(engine.timer(), due.min(deadline));
        if due > deadline {
            return Ok(None);
        }
        let found = loop {
            engine.check_open()?;
            let found = if self.mailbox.sampling.decided { self.await_decided(deadline) } else { self.look(engine)? };
            if found.is_some() {
                break found;
            }
            // One that waits for decided events has waited to the deadline, or the store is closed.
            let pause = if self.mailbox.sampling.decided { Duration::ZERO } else { Duration::from_millis(5) };
            if !engine.poll(pause, deadline) {
                return Ok(None);
            }
        };
        // A sampler that was slow does not catch up: its rate is a bound on what the store does for it.
        self.next = engine.timer().now().max(due + self.pause);
        found.map(|pinned| self.copy(pinned)).transpose()
    }

    /// Waits for a verdict to leave an event.
    fn await_decided(&self, deadline: Instant) -> Option<Pinned> {
        let engine = self.store.engine();
        let mut slot = self.mailbox.slot.lock();
        debug_assert!(!slot.wanted && slot.event.is_none(), "a sampler waits for one event at a time");
        slot.wanted = true;
        // Counted while it waits only: verdicts ask this figure, and look for mailboxes where it is not 0.
        engine.runs.samplers.wanting.fetch_add(1, Ordering::SeqCst);
        while slot.event.is_none()
            && !engine.is_closed()
            && let Some(most) = engine.timer().block_at_most(deadline)
        {
            time::block(&self.mailbox.filled, &mut slot, most.min(Duration::from_millis(50)));
        }
        slot.wanted = false;
        let before = engine.runs.samplers.wanting.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a sampler that waits is counted");
        slot.event.take()
    }

    /// Walks on over live events to the next that is asked for.
    fn look(&mut self, engine: &Engine) -> Result<Option<Pinned>> {
        let (mut looks, mut shards) = (0, 0);
        while looks < LOOKS_MAX && shards <= SHARDS {
            let shard = engine.shards.cells[self.shard].lock();
            if shard.closed {
                return Err(closed());
            }
            let from = match self.after[self.shard].as_ref().map(Primary::successor) {
                None => engine.first_primary(),
                Some(next) => next,
            };
            let Some(event) = from.and_then(|from| shard.events.seek(from.as_bytes())) else {
                // Round the shard; on to the next one.
                self.after[self.shard] = None;
                self.shard = (self.shard + 1) % SHARDS;
                shards += 1;
                continue;
            };
            looks += 1;
            self.after[self.shard] = Some(shard.events.primary(event));
            let State::Live(state) = shard.events[event].state else { continue };
            if shard.events[event].is(Flag::Counted) && engine.wants(&self.mailbox, &shard, event) {
                let pinned = engine.pin_sample(&shard, event, state.name(), &self.mailbox.sampling.sources);
                drop(shard);
                // Shards in turn, so that a sample is of all of them.
                self.shard = (self.shard + 1) % SHARDS;
                return Ok(Some(pinned));
            }
        }
        Ok(None)
    }

    /// Copies the chosen fragments within the limit; no pin is left behind.
    fn copy(&self, pinned: Pinned) -> Result<Sample> {
        let engine = self.store.engine();
        let (mut fragments, mut left_out, mut bytes) = (Vec::new(), 0, 0);
        let mut failed = None;
        // One reader for all, so that an image of several fragments is read once.
        let mut reading = crate::levels::Reading::new(&self.store, pinned.event_bytes);
        for location in pinned.locations {
            if location.is_warm() {
                // What comes from a device is a copy already.
                if bytes < self.mailbox.sampling.bytes_max {
                    match reading.guard(location) {
                        Ok(fragment) if bytes + fragment.len() as u64 <= self.mailbox.sampling.bytes_max => {
                            bytes += fragment.len() as u64;
                            fragments.push(fragment);
                        }
                        Ok(_) => left_out += 1,
                        Err(error) => failed = Some(error),
                    }
                } else {
                    engine.unpin(location);
                    left_out += 1;
                }
                continue;
            }
            let Some(entry) = engine.placement.hot.read_entry(location) else {
                engine.placement.hot.unpin(location.segment);
                failed = Some(crate::levels::not_verified(location));
                continue;
            };
            bytes += u64::from(entry.length);
            if bytes <= self.mailbox.sampling.bytes_max {
                fragments.push(Fragment::copied(engine, location.segment, entry));
            } else {
                left_out += 1;
            }
            engine.placement.hot.unpin(location.segment);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(Sample {
            primary: pinned.primary,
            state: pinned.state.into(),
            stage: engine.stage_name(pinned.stage),
            attributes: pinned.attributes,
            fragments,
            sources: pinned.sources,
            left_out,
            event_fragments: pinned.event_fragments,
            event_bytes: pinned.event_bytes,
        })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // A verdict may have left a sample that nobody fetched: its pins would keep segments forever.
        if let Some(pinned) = self.mailbox.slot.lock().event.take() {
            let engine = self.store.engine();
            pinned.locations.iter().for_each(|&location| engine.unpin(location));
        }
    }
}

impl Engine {
    fn wants(&self, mailbox: &Mailbox, shard: &Shard, event: u32) -> bool {
        let leaf = &shard.events[event];
        let run = shard.events.runs[leaf.run as usize].run;
        mailbox.stage.is_none_or(|stage| stage == leaf.stage())
            && mailbox.sampling.run.is_none_or(|wanted| wanted == run)
            && self.matches(shard, event, &mailbox.sampling.filter)
    }

    /// A verdict is about to be carried out, under the event's lock: a sampler that waits may have the event.
    #[inline]
    pub(crate) fn offer_decided(&self, shard: &Shard, event: u32, state: &'static str) {
        // Relaxed: an event that is missed is one of many.
        if self.runs.samplers.wanting.load(Ordering::Relaxed) > 0 {
            self.hand_over(shard, event, state);
        }
    }

    #[cold]
    fn hand_over(&self, shard: &Shard, event: u32, state: &'static str) {
        // Tried, under the event's lock: a verdict never waits for a monitor.
        let Some(all) = self.runs.samplers.all.try_lock() else { return };
        for mailbox in all.iter().filter_map(Weak::upgrade) {
            let Some(mut slot) = mailbox.slot.try_lock() else { continue };
            if slot.wanted && slot.event.is_none() && self.wants(&mailbox, shard, event) {
                slot.event = Some(self.pin_sample(shard, event, state, &mailbox.sampling.sources));
                mailbox.filled.notify_one();
            }
        }
    }

    fn pin_sample(&self, shard: &Shard, event: u32, state: &'static str, sources: &Sources) -> Pinned {
        let leaf = &shard.events[event];
        Pinned {
            primary: shard.events.primary(event),
            state,
            stage: leaf.stage(),
            attributes: self.attributes_or_none(shard, event),
            locations: self.pin_fragments(shard, event, sources),
            sources: self.source_states(shard, event),
            event_fragments: u32::from(leaf.present),
            event_bytes: leaf.bytes,
        }
    }

    fn first_primary(&self) -> Option<Primary> {
        let schema = &self.keyspace.schema;
        schema.primary(&vec![0; schema.primary_len()]).ok()
    }
}
