//! Verdicts of lease holders: keep, drop, or hand to a later stage; with results of their own.
//!
//! ```text
//! results written (not in force) ─▶ token checked ─▶ decision record ─▶ effects ─▶ shadows durable ─▶ answer
//! ```
//!
//! *Invariants*: one verdict per grant: the token decides, not the clock (tests/semantics/verdicts.rs); results count
//! exactly when the verdict that wrote them is recorded (tests/semantics/stages.rs, tests/power_loss.rs).
//!
//! *On failure*: results whose verdict is not recorded are dead; recovery finds and ends them.

use crate::engine::{Engine, closed};
use crate::events::{Code, Ended, Given, Verdict, Word};
use crate::limits::SHARDS;
use crate::placement::{RecordHead, Ticket};
use crate::shards::Shard;
use crate::{Accept, ResultFragment, Sources, Store};
use forebay_core::{Error, Key, LiveState, Primary, Result, Source, Tally, Token};
use forebay_media::bytes::{Decision, DecisionKind, EntryFlags, StateWord};
use forebay_media::hot::{Class, Location};
use std::time::Duration;

/// A result on the medium that is not in force yet.
struct Written {
    rest: Vec<u8>,
    location: Location,
    length: u32,
}

/// A verdict, with the data that its record needs.
struct Judgement<'a> {
    verdict: Verdict,
    /// Output of an accept, next stage of a pass.
    detail: u32,
    /// What ties its memory to the detail, over restarts.
    check: u32,
    results: &'a [ResultFragment<'a>],
}

impl Store {
    /// Keeps a leased event, in these streams, whole. Repeating it with the same token gives the same answer.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force and did not accept before, `Invalid` for too many or wrongly named
    /// streams, `Closed`, `OutcomeUnknown` where a device does not make it durable.
    pub fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.accept(primary, token, &[], || engine.whole(streams, || engine.check_held(primary, token)))
    }

    /// Keeps a leased event in streams with chosen sources, and adds results to it: fragments of sources that it does
    /// not have yet. Repeating it with the same token gives the same answer.
    ///
    /// # Errors
    /// As [`Store::accept`]; `Conflict` for a result whose source the event has, `Full` where results or choices find no
    /// space: nothing is decided then.
    pub fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.check_results(primary, accept.results)?;
        let results: Vec<&Source> = accept.results.iter().map(|result| result.source).collect();
        engine.accept(primary, token, accept.results, || {
            engine.output(accept.streams, &results, || engine.check_held(primary, token))
        })
    }

    /// Drops a leased event. Repeating it with the same token gives the same answer.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force and did not reject before, `Closed`, `OutcomeUnknown` where a
    /// device does not make it durable.
    pub fn reject(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.engine().decide(
            primary,
            token,
            &Judgement { verdict: Verdict::Rejected, detail: 0, check: 0, results: &[] },
        )
    }

    /// Hands a leased event to a later stage, with results for it. It counts no failure there yet. Repeating it with the
    /// same token gives the same answer.
    ///
    /// # Errors
    /// As [`Store::accept_into`]; `Invalid` for an unknown stage, or one that is not after the event's.
    pub fn pass(
        &self,
        primary: &Primary,
        token: &Token,
        next_stage: &str,
        results: &[ResultFragment<'_>],
    ) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.check_results(primary, results)?;
        let detail = u32::from(engine.keyspace.stage(next_stage)?);
        let judgement = Judgement { verdict: Verdict::Passed, detail, check: detail, results };
        engine.explained(engine.decide(primary, token, &judgement))
    }
}

impl Engine {
    fn check_held(&self, primary: &Primary, token: &Token) -> Result<()> {
        let shard = self.shards.cell_of(primary.as_bytes()).lock();
        // A look ahead, not the check: that is made again under the lock under which the verdict is recorded.
        let held = self.find(&shard, primary.as_bytes())?.is_some_and(|event| self.holds(&shard, event, token));
        if held { Ok(()) } else { Err(self.fenced(primary, token)) }
    }

    fn check_results(&self, primary: &Primary, results: &[ResultFragment<'_>]) -> Result<()> {
        let width = self.keyspace.schema.rest_bytes();
        for (at, ResultFragment { source, bytes }) in results.iter().enumerate() {
            if source.len() != width {
                return Err(Error::invalid(format!("a result's source has {} bytes, not {width}", source.len())));
            }
            // A result is a fragment: one per source.
            if results[..at].iter().any(|before| before.source == *source) {
                return Err(Error::invalid(format!(
                    "two results of source {}",
                    self.keyspace.schema.source_text(source)
                )));
            }
            self.check_put(&self.keyspace.schema.join(primary, source), bytes.len())?;
        }
        Ok(())
    }

    /// A token that is not in force: its recorded verdict again, or the fence.
    #[cold]
    fn repeat(&self, shard: &Shard, primary: &Primary, token: &Token, judgement: &Judgement<'_>) -> Result<()> {
        let index = self.shards.shard_of(primary.as_bytes());
        // Grants carry their shard: a token that is offered for an event of another one is nobody's.
        let here = token.counter as usize % SHARDS == index;
        let this_life = token.boot == self.life.boot;
        let current = token.epoch == self.slot_epoch(shard, primary.as_bytes());
        let by_number = || shard.events.leases.verdicts.get(token.counter / SHARDS as u64);
        let recorded = match (here, this_life, current) {
            (false, ..) => None,
            (true, true, true) => by_number().or_else(|| self.events.recent.lock().get(*token)),
            (true, true, false) => self.events.recent.lock().find(*token),
            (true, false, _) => self.events.recent.lock().get(*token),
        };
        let again = Code::new(judgement.verdict, primary.as_bytes(), judgement.check);
        if recorded == Some(again) { Ok(()) } else { Err(self.fenced(primary, token)) }
    }

    /// A verdict as it is remembered.
    pub(crate) fn code(&self, primary: &[u8], verdict: Verdict, detail: u32) -> Code {
        // Numbers of outputs are given again after a restart: what is remembered is tied to the content instead.
        let detail = if verdict == Verdict::Accepted { self.output_check(detail) } else { detail };
        Code::new(verdict, primary, detail)
    }

    /// Lets puts that began before the event was leased end first (late), so that a verdict covers exactly what the
    /// event has. Bounded: a reservation that somebody keeps does not hold a verdict up forever. A token that is not in
    /// force has nothing to wait for: while one is, nothing more begins.
    fn await_records_in_flight(&self, primary: &Primary, token: &Token) {
        let in_flight = || {
            let shard = self.shards.cell_of(primary.as_bytes()).lock();
            let event = shard.events.find(primary.as_bytes()).filter(|&event| self.holds(&shard, event, token));
            event.is_some_and(|event| shard.events[event].pending > 0)
        };
        let mut deadline = None;
        while in_flight() {
            let deadline = *deadline.get_or_insert_with(|| self.deadline_after(self.config.put_deadline));
            // Polled: copies of a fragment end within microseconds, and this is the rare case.
            if !self.poll(Duration::from_micros(50), deadline) {
                return;
            }
        }
    }

    /// An accept; `output` answers its detail and what ties its memory to it.
    fn accept(
        &self,
        primary: &Primary,
        token: &Token,
        results: &[ResultFragment<'_>],
        output: impl FnOnce() -> Result<(u32, u32)>,
    ) -> Result<()> {
        self.relieve_log();
        self.await_records_in_flight(primary, token);
        let decide = || {
            // Until the accept is recorded: a snapshot would forget an output that no accepted event has.
            let _effects = self.decisions.effects.begin();
            let (detail, check) = output()?;
            let judgement = Judgement { verdict: Verdict::Accepted, detail, check, results };
            self.decide_now(primary, token, &judgement)
        };
        let ticket = self.explained(decide())?;
        self.answer(token, ticket)
    }

    /// A verdict: checked, recorded, then carried out.
    fn decide(&self, primary: &Primary, token: &Token, judgement: &Judgement<'_>) -> Result<()> {
        self.check_primary(primary)?;
        self.relieve_log();
        self.await_records_in_flight(primary, token);
        // The guard ends before the wait for devices: a snapshot waits for effects, and must not wait for a disk.
        let ticket = {
            let _effects = self.decisions.effects.begin();
            self.decide_now(primary, token, judgement)?
        };
        self.answer(token, ticket)
    }

    /// Answers for a verdict, or for the repetition of one, once it is durable where its event is.
    fn answer(&self, token: &Token, ticket: Option<Ticket>) -> Result<()> {
        match ticket {
            Some(ticket) => self.settle(ticket),
            None => self.settle_verdict_again(token),
        }
    }

    /// The verdict is recorded and carried out; `None` where it was before. Within an effects guard.
    fn decide_now(&self, primary: &Primary, token: &Token, judgement: &Judgement<'_>) -> Result<Option<Ticket>> {
        let mut keys = Vec::new();
        if !judgement.results.is_empty() {
            // A repetition writes nothing, and needs no space.
            let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
            if shard.closed {
                return Err(closed());
            }
            let Some(event) = self.find(&shard, primary.as_bytes())?.filter(|&event| self.holds(&shard, event, token))
            else {
                return self.repeat(&shard, primary, token, judgement).map(|()| None);
            };
            keys.extend(judgement.results.iter().map(|ResultFragment { source, .. }| {
                let key = self.keyspace.schema.join(primary, source);
                (key, self.first_version(&mut shard, event, &key))
            }));
        }
        // Before the record, without the lock: a verdict must not be in force while its results may still find no space.
        let written = self.write_results(&keys, token, judgement.results)?;
        let mut ended = Ended::new();
        let decided = self.decide_locked(primary, token, judgement, &written, &mut ended);
        if !matches!(decided, Ok(Some(_))) {
            // A repeat has its results from the first time; others are not in force.
            self.abandon_results(&written);
        }
        self.finish(&ended);
        decided
    }

    /// The decision in force; `None` where the same verdict was recorded before.
    fn decide_locked(
        &self,
        primary: &Primary,
        token: &Token,
        judgement: &Judgement<'_>,
        written: &[Written],
        ended: &mut Ended,
    ) -> Result<Option<Ticket>> {
        let index = self.shards.shard_of(primary.as_bytes());
        let cell = &self.shards.cells[index];
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let event = self.find(&shard, primary.as_bytes())?.filter(|&event| self.holds(&shard, event, token));
        let Some(event) = event else {
            return self.repeat(&shard, primary, token, judgement).map(|()| None);
        };
        self.check_judgement(&shard, event, judgement, written)?;
        let group = self.group_of(&shard, event);
        let record = |shard: &Shard, kind, detail| Decision {
            token: *token,
            detail,
            ..shard.events.decision(event, kind, group)
        };
        let ticket;
        match judgement.verdict {
            Verdict::Accepted => {
                let decision = record(&shard, DecisionKind::Accept, judgement.detail);
                ticket = self.record(&shard, event, &with_results(decision, written))?;
                self.adopt_results(&mut shard, event, written);
                self.offer_decided(&shard, event, "accepted");
                // The lease ends first: lease and output share a word.
                shard.events.move_to(event, LiveState::Accepted);
                shard.events[event].set_output(judgement.detail);
                self.queue_demotion(&mut shard, event);
            }
            Verdict::Rejected => {
                ticket = self.record(&shard, event, &record(&shard, DecisionKind::Reject, 0))?;
                // Now or never: its records are dead after this.
                self.offer_decided(&shard, event, "rejected");
                self.end(&mut shard, event, DecisionKind::Reject, group, ended);
            }
            Verdict::Passed => {
                let stage = judgement.detail as u8;
                let decision = Decision { stage, ..record(&shard, DecisionKind::Pass, 0) };
                ticket = self.record(&shard, event, &with_results(decision, written))?;
                self.adopt_results(&mut shard, event, written);
                self.offer_decided(&shard, event, "passed");
                let leaf = &mut shard.events[event];
                leaf.set_progress(stage, 0);
                shard.events.lists.failures.remove(&event);
                // Recovery believes the latest stage and its deliveries, wherever they are noted.
                self.mark_event(&mut shard, event);
                self.placement.hot.region.fence();
                shard.events.move_to(event, LiveState::Ready);
                cell.publish_ready(&shard);
            }
        }
        // In the same hold as the effects: the repeat of this verdict finds either the lease in force or its memory.
        let code = Code::new(judgement.verdict, primary.as_bytes(), judgement.check);
        let by_number = shard.events.leases.verdicts.note(token.counter / SHARDS as u64, code);
        let given = Given { token: *token, code };
        self.events.recent.lock().keep(given, !by_number, self.verdicts_kept());
        self.events.lease_ends();
        debug_assert!(
            shard.events.find(primary.as_bytes()).is_none_or(|event| !self.holds(&shard, event, token)),
            "one verdict per grant: its token is no longer in force"
        );
        drop(shard);
        if judgement.verdict == Verdict::Passed {
            self.events.waiting.notify();
        }
        Ok(Some(ticket))
    }

    /// Checks that a verdict is possible, before anything is recorded.
    fn check_judgement(&self, shard: &Shard, event: u32, judgement: &Judgement<'_>, written: &[Written]) -> Result<()> {
        // An event that could pass back would be selected forever.
        let stage = shard.events[event].stage();
        if judgement.verdict == Verdict::Passed && judgement.detail <= u32::from(stage) {
            return Err(Error::invalid(format!(
                "an event in stage `{}` cannot pass to `{}`: only to a later one",
                self.stage_name(stage),
                self.stage_name(judgement.detail as u8)
            )));
        }
        if let Some(taken) = written.iter().find(|result| shard.events.slot(event, &result.rest).is_ok()) {
            return Err(Error::conflict(format!(
                "{}: the event has a fragment of source {}; a result needs one of its own",
                self.keyspace.schema.text(shard.events.primary(event).as_bytes()),
                self.keyspace.schema.source_text(&taken.rest)
            )));
        }
        let most = forebay_core::limits::FRAGMENTS_PER_EVENT_MAX as usize;
        if shard.events.slots(event) + written.len() > most {
            return Err(Error::invalid(format!("an event has at most {most} fragments")));
        }
        Ok(())
    }

    /// Writes results to the medium, not in force yet: in flight until the verdict is recorded, or not.
    fn write_results(
        &self,
        keys: &[(Key, u16)],
        token: &Token,
        results: &[ResultFragment<'_>],
    ) -> Result<Vec<Written>> {
        debug_assert_eq!(keys.len(), results.len(), "each result has its key");
        let mut written: Vec<Written> = Vec::with_capacity(results.len());
        for (&(key, version), ResultFragment { source, bytes }) in keys.iter().zip(results) {
            let length = bytes.len() as u32;
            let Some(place) = self.placement.hot.reserve_place(Class::Existing, length) else {
                // Durably ended before the answer: the same token may yet decide with others.
                self.abandon_results(&written);
                return Err(Error::full(format!(
                    "no space for a result of {length} bytes, fill {:.0} %: nothing is decided",
                    self.placement.hot.fill() * 100.0
                )));
            };
            // The token is in the record: recovery finds the verdict that brings it into force, or ends it.
            let head = RecordHead { key, status: token.counter as u32, version, flags: EntryFlags::RESULT };
            self.placement.write_record(&place, &head, bytes, StateWord::FRESH);
            written.push(Written { rest: source.to_vec(), location: place.location, length });
        }
        if !written.is_empty() {
            self.placement.hot.region.fence();
        }
        Ok(written)
    }

    /// Results that no verdict brought into force.
    fn abandon_results(&self, written: &[Written]) {
        written.iter().for_each(|result| self.placement.hot.abandon(result.location, result.length));
    }

    /// The verdict is recorded: its results are fragments of the event from now on.
    fn adopt_results(&self, shard: &mut Shard, event: u32, written: &[Written]) {
        for Written { rest, location, length } in written {
            debug_assert!(shard.events.slot(event, rest).is_err(), "checked before the verdict was recorded");
            let Err(slot) = shard.events.slot(event, rest) else { continue };
            shard.insert_slot(event, slot, rest, Word::of(*location).of_fragment(false, *length).of_result());
            let run = shard.events[event].run as usize;
            shard.events.runs[run].ledger.offered += Tally::fragment(u64::from(*length));
            let primary = shard.events.primary(event);
            shard.events.add_result(event, (primary.as_bytes(), rest), *length);
            // Also once a snapshot has replaced the record the result says of itself that it counts.
            let marks = shard.events[event].marks();
            self.placement.hot.mark(*location, StateWord { ready: true, ..marks });
        }
        if !written.is_empty() {
            self.placement.hot.region.fence();
            written.iter().for_each(|result| self.placement.hot.written(result.location.segment));
        }
    }

    /// The value by which the ledger is kept as well.
    pub(crate) fn group_of(&self, shard: &Shard, event: u32) -> u64 {
        let Some(at) = self.roles.ledger else { return Decision::NO_GROUP };
        let value = self.attributes_or_none(shard, event).get(at);
        value.map_or(Decision::NO_GROUP, |value| value as u64)
    }
}

/// A decision covers the results that it brings.
fn with_results(mut decision: Decision, written: &[Written]) -> Decision {
    decision.fragments += written.len() as u32;
    decision.bytes += written.iter().map(|result| u64::from(result.length)).sum::<u64>();
    decision
}

/// Sources of one stream of an accept, with the results added.
pub(crate) fn with_sources(sources: &Sources, results: &[&Source]) -> Option<Vec<Source>> {
    let chosen = match sources {
        Sources::All => return None,
        Sources::None => Vec::new(),
        Sources::Only(list) => list.clone(),
    };
    let mut all: Vec<Source> = chosen.into_iter().chain(results.iter().map(|source| (*source).clone())).collect();
    all.sort_unstable();
    all.dedup();
    Some(all)
}
