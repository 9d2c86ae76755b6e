//! What movers call: claims of what the archive is to have, their events, their proof.
//!
//! ```text
//! claim ─▶ listed without a lock ─▶ container says that it drains, durably ─▶ … prove ─▶ container is in custody, durably
//!                                   batch: in memory                                     batch: event after event is released
//! ```
//!
//! *Invariants*: the store says durably which archive its proofs are in; a container is closed when it is claimed: nothing that was not listed can come into it. Nothing of a batch is
//! released that does not have the content of when its mover asked for it.
//!
//! *Not here*: releases from custody (`levels/custody.rs`).

use super::range::Walk;
use crate::archive_file;
use crate::engine::Engine;
use crate::events::State;
use crate::placement::{CLAIMS_MAX, Claimed};
use crate::shards::Shard;
use crate::{RunState, Store};
use forebay_core::map::Hex128;
use forebay_core::mutants::is_planted;
use forebay_core::{
    Bounds, Claim, ClaimRequest, ClaimedEvent, Error, LiveState, MovedStore, Primary, Result, Source, Token, Unit,
    crc32c_append,
};
use forebay_media::bytes::DecisionKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Payload bytes, and events, of a batch.
const BATCH_BYTES: u64 = 64 << 20;
const BATCH_EVENTS_MAX: usize = 16 << 10;
/// Events that one search for a batch looks at.
const LOOKED_AT_MAX: usize = 1 << 20;
/// Events, and sources of all of them, in one answer.
const PAGE_EVENTS_MAX: usize = 1024;
const PAGE_SOURCES_MAX: usize = 32 << 10;
/// Longest time of a claim without a heartbeat.
const CLAIM_MAX: Duration = Duration::from_secs(3600);

impl MovedStore for Store {
    fn claim(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        let engine = self.engine();
        engine.check_open()?;
        if request.duration.is_zero() || request.duration > CLAIM_MAX {
            return Err(Error::invalid(format!("a claim lasts up to {CLAIM_MAX:?}, not {:?}", request.duration)));
        }
        engine.check_archive(request)?;
        engine.end_old_claims();
        if engine.claims.lock().held.len() >= CLAIMS_MAX {
            return Err(Error::unavailable(format!("{CLAIMS_MAX} movers have claims already")));
        }
        let claimed = match engine.placement.level {
            Some(_) => engine.claim_container(request)?,
            None if request.device.is_some() => {
                return Err(Error::invalid("a store without a warm level has no devices"));
            }
            None => engine.claim_batch(request)?,
        };
        let store = engine.placement.hot.store.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(claimed.map(|(token, unit, events, bytes)| Claim { token, store, unit, events, bytes }))
    }

    fn claimed(&self, token: &Token, after: u64) -> Result<Vec<ClaimedEvent>> {
        let engine = self.engine();
        engine.check_open()?;
        let (events, unit) = {
            let claims = engine.claims.lock();
            let claimed = claims.held.get(token).ok_or_else(|| fenced(token))?;
            (claimed.events.clone(), claimed.unit.clone())
        };
        let mut page = Vec::new();
        let mut sources = 0;
        for primary in events.iter().skip(usize::try_from(after).unwrap_or(usize::MAX)) {
            if page.len() == PAGE_EVENTS_MAX || sources >= PAGE_SOURCES_MAX {
                break;
            }
            let (event, seen) = engine.claimed_event(primary, &unit);
            sources += event.sources.as_ref().map_or(1, Vec::len);
            page.push(event);
            if let (Some(seen), Some(claimed)) = (seen, engine.claims.lock().held.get_mut(token)) {
                // What was seen first: the mover may have read it by then.
                claimed.seen.entry(*primary).or_insert(seen);
            }
        }
        Ok(page)
    }

    fn extend_claim(&self, token: &Token, duration: Duration) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        let until = engine.deadline_after(duration.min(CLAIM_MAX));
        engine.claims.lock().held.get_mut(token).ok_or_else(|| fenced(token))?.until = until;
        Ok(())
    }

    fn prove(&self, token: &Token) -> Result<u64> {
        let engine = self.engine();
        engine.check_open()?;
        // Out of the claims while its device is written: it can neither end by time nor be proved twice.
        let mut claimed = {
            let mut claims = engine.claims.lock();
            if let Some(events) = claims.proved(token) {
                return Ok(events);
            }
            claims.held.remove(token).ok_or_else(|| fenced(token))?
        };
        let proved = engine.remember_archive(claimed.archive).and_then(|()| match &claimed.unit {
            Unit::Container { container, filling, .. } => engine.begin_custody(*container, *filling),
            Unit::Batch => engine.release_batch(&claimed.events, &claimed.seen),
        });
        let mut claims = engine.claims.lock();
        match proved {
            Ok(events) => {
                claims.note_proved(*token, events);
                match &claimed.unit {
                    Unit::Container { container, .. } => _ = claims.unproved.remove(container),
                    Unit::Batch => claimed.events.iter().for_each(|primary| _ = claims.in_batches.remove(primary)),
                }
                Ok(events)
            }
            Err(error) => {
                // The same proof may be tried again.
                claimed.until = claimed.until.max(engine.deadline_after(engine.config.lease));
                claims.held.insert(*token, claimed);
                Err(error)
            }
        }
    }

    fn give_back(&self, token: &Token) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        let claimed = engine.claims.lock().end(token).ok_or_else(|| fenced(token))?;
        engine.let_go(&claimed);
        Ok(())
    }
}

#[cold]
fn fenced(token: &Token) -> Error {
    Error::fenced(format!("claim {token} is not in force: another mover may have what it was for"))
}

impl Engine {
    /// A mover of another archive than that of the last proof has the wrong one, or says that it is meant.
    fn check_archive(&self, request: &ClaimRequest) -> Result<()> {
        let claims = self.claims.lock();
        match (&claims.archive, &request.archive) {
            (Some(known), Some(asked)) if known != asked && !request.another => Err(Error::conflict(format!(
                "what this store had archived is in archive {known:?}, and this mover writes to archive {asked:?}: bring the first one \
                 back, or say that the other one is meant (`forebay move --another-archive`)"
            ))),
            _ => Ok(()),
        }
    }

    /// The next proof is in this archive: durable before anything is released for it.
    fn remember_archive(&self, archive: Option<Hex128>) -> Result<()> {
        let known = self.claims.lock().archive;
        let Some(archive) = archive.filter(|&archive| known != Some(archive)) else { return Ok(()) };
        if let Some(dir) = &self.life.dir {
            archive_file::write(dir, archive)?;
        }
        self.claims.lock().archive = Some(archive);
        Ok(())
    }

    /// Claims whose movers were not heard of in time can be claimed by others.
    pub(crate) fn end_old_claims(&self) {
        let now = self.timer().now();
        let mut ended = Vec::new();
        {
            let mut claims = self.claims.lock();
            for token in claims.over(now) {
                ended.extend(claims.end(&token));
            }
        }
        ended.iter().for_each(|claimed| self.let_go(claimed));
    }

    /// A claim has ended without a proof.
    fn let_go(&self, claimed: &Claimed) {
        let (Unit::Container { container, filling, .. }, Some(level)) = (&claimed.unit, &self.placement.level) else {
            return;
        };
        if is_planted("claim-is-proof") {
            _ = self.begin_custody(*container, *filling);
        }
        *self.claims.lock().unproved.entry(*container).or_default() += 1;
        level.unproved_claims.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = level.warm.end_drain(*container, Some(&level.log)) {
            level.note(error.to_string());
        }
    }

    /// The next events of a store without a warm level: those that follow in key order, and once around.
    fn claim_batch(&self, request: &ClaimRequest) -> Result<Option<(Token, Unit, u64, u64)>> {
        let (first, others) = {
            let claims = self.claims.lock();
            (claims.after, claims.in_batches.clone())
        };
        let (mut events, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        let (mut all_over, mut last) = (true, first);
        let bounds = Bounds::all(&self.keyspace.schema);
        // To the end, then from the beginning to where the first walk began.
        for (after, end) in [(first, None), (None, first)] {
            if after.is_none() && end.is_none() && looked_at > 0 {
                break;
            }
            let mut walk = Walk::after(self, &bounds, after.as_ref())?;
            while bytes < BATCH_BYTES && events.len() < BATCH_EVENTS_MAX && looked_at < LOOKED_AT_MAX {
                let Some(primary) = walk.next(self).filter(|primary| end.is_none_or(|end| *primary <= end)) else {
                    break;
                };
                looked_at += 1;
                last = Some(primary);
                if others.contains(&primary) {
                    continue;
                }
                let shard = self.shards.cell_of(primary.as_bytes()).lock();
                let Some(event) = shard.events.find(primary.as_bytes()) else { continue };
                let leaf = &shard.events[event];
                if leaf.state.is_kept() && leaf.pending == 0 {
                    let of_run = &shard.events.runs[leaf.run as usize];
                    all_over &= matches!(of_run.state, RunState::Stopped | RunState::Closed);
                    bytes += leaf.bytes;
                    events.push(primary);
                }
            }
        }
        let now = self.timer().now();
        let mut claims = self.claims.lock();
        events.retain(|primary| !claims.in_batches.contains(primary));
        if events.is_empty() {
            (claims.few_since, claims.after) = (None, last);
            return Ok(None);
        }
        let few = bytes < BATCH_BYTES && events.len() < BATCH_EVENTS_MAX && !all_over;
        if few && now.saturating_duration_since(*claims.few_since.get_or_insert(now)) < request.move_after {
            return Ok(None);
        }
        let token = claims.token(self.life.boot);
        claims.in_batches.extend(events.iter().copied());
        (claims.few_since, claims.after) = (None, last);
        let until = self.deadline_after(request.duration);
        let count = events.len() as u64;
        let archive = request.archive;
        let held = Claimed { unit: Unit::Batch, archive, events: Arc::new(events), until, seen: BTreeMap::new() };
        claims.held.insert(token, held);
        Ok(Some((token, Unit::Batch, count, bytes)))
    }

    /// A claimed event as it is now, and of a batch what its content is known by; without fragments where it has ended or is
    /// elsewhere now.
    fn claimed_event(&self, primary: &Primary, unit: &Unit) -> (ClaimedEvent, Option<u32>) {
        let mut answer = ClaimedEvent {
            primary: *primary,
            state: LiveState::Accepted,
            streams: Vec::new(),
            sources: None,
            event_fragments: 0,
        };
        let shard = self.shards.cell_of(primary.as_bytes()).lock();
        let Some(event) = shard.events.find(primary.as_bytes()) else { return (answer, None) };
        let State::Live(state) = shard.events[event].state else { return (answer, None) };
        let there = match unit {
            Unit::Container { .. } => self.is_settled(&shard, event),
            Unit::Batch => shard.events[event].state.is_kept() && shard.events[event].pending == 0,
        };
        if !there {
            return (answer, None);
        }
        let mut fragments = 0;
        let mut here = Vec::new();
        for (rest, at) in shard.fragments(event, |_| true) {
            fragments += 1;
            let in_unit = match unit {
                Unit::Container { container, .. } => at.is_warm() && at.container() == *container,
                Unit::Batch => true,
            };
            if in_unit {
                here.push(Source::from_packed(rest));
            }
        }
        if here.is_empty() {
            return (answer, None);
        }
        answer.state = state;
        answer.event_fragments = fragments;
        answer.sources = (here.len() < fragments as usize).then_some(here);
        let seen = (*unit == Unit::Batch).then(|| self.content_of(&shard, event));
        let output = if state == LiveState::Accepted { shard.events[event].output() } else { 0 };
        drop(shard);
        let numbers = self.streams_of(output);
        let names = self.decisions.streams.read();
        let name = |stream: u8| names.name(stream).cloned().unwrap_or_default();
        answer.streams = numbers.into_iter().map(|(stream, kept)| (name(stream), kept)).collect();
        (answer, seen)
    }

    /// What the content of an event on the hot level is known by: its decision, its fragments, their versions and checksums, its
    /// record.
    fn content_of(&self, shard: &Shard, event: u32) -> u32 {
        let leaf = &shard.events[event];
        // An event of the debug stream that was replayed and accepted has the same fragments.
        let decision = match leaf.state {
            State::Live(LiveState::Accepted) => leaf.output().wrapping_add(1),
            _ => 0,
        };
        let decided = crc32c_append(0, &decision.to_le_bytes());
        let record = shard.events.attribute_word(event).map(crate::events::Word::location);
        let all = shard.fragments(event, |_| true).map(|(_, at)| at).chain(record);
        all.fold(decided, |known, at| match self.placement.hot.read_entry(at) {
            Some(entry) => {
                let known = crc32c_append(known, entry.key.as_bytes());
                let facts = [entry.payload_crc, entry.length, entry.status, u32::from(entry.version)];
                facts.iter().fold(known, |known, fact| crc32c_append(known, &fact.to_le_bytes()))
            }
            // Never the content of anything.
            None => crc32c_append(known, b"unreadable"),
        })
    }

    /// Releases the events of a batch that have the content that their mover saw.
    fn release_batch(&self, events: &[Primary], seen: &BTreeMap<Primary, u32>) -> Result<u64> {
        let mut released = 0;
        for primary in events {
            let Some(content) = seen.get(primary) else { continue };
            let same = |shard: &Shard, event: u32| {
                let leaf = &shard.events[event];
                leaf.state.is_kept() && leaf.pending == 0 && self.content_of(shard, event) == *content
            };
            released += u64::from(self.end_event(primary, DecisionKind::Release, same)?.is_some());
        }
        Ok(released)
    }
}
