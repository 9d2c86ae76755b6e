//! Leasing events to workers, and what they decide.
//!
//! ```text
//! get_any ─▶ ready events, oldest first ─▶ grant: delivery durable, token, timer ─▶ chosen fragments in the same call
//! verdict ─▶ token checked ─▶ decision record durable ─▶ effects ─▶ answer
//! ```
//!
//! *Invariants*: one verdict per grant: the token decides, not the clock (tests/semantics/); a delivery is durable
//! before its grant, so that an event on which processes die reaches the debug stream (tests/crash.rs).

use crate::engine::{Engine, closed, deadline_after};
use crate::home::{Code, Ended, Given, LeaseState, List, Shard, State, Verdict};
use crate::hot::Location;
use crate::limits::SHARDS;
use crate::{Fragment, GetAny, Sources, Store};
use forebay_core::{
    Attributes, Decision, DecisionKind, Error, Filter, Key, LiveState, Mark, Primary, Result, StateWord, Token,
};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An event under lease. Dropping it without a verdict leaves it to its time-out, which counts as a worker's failure.
#[derive(Debug)]
pub struct Lease {
    store: Store,
    /// The event's name.
    pub primary: Primary,
    /// The fence: no other grant, in this life or another, has the same.
    pub token: Token,
    /// Attributes set so far.
    pub attributes: Attributes,
    /// Fragments of the sources that were asked for, in key order.
    pub fragments: Vec<Fragment>,
    /// Expected sources that are not there.
    pub missing: Vec<Key>,
    /// 1 for the first worker; counts failures of earlier ones.
    pub delivery: u8,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
}

impl Lease {
    /// Reads more sources of the event.
    ///
    /// # Errors
    /// `Fenced` where the lease is no longer in force, `Corrupt`, `Closed`.
    pub fn get(&self, sources: &Sources) -> Result<Vec<Fragment>> {
        let engine = self.store.engine();
        let locations = {
            let shard = engine.cell_of(self.primary.as_bytes()).lock();
            if shard.closed {
                return Err(closed());
            }
            let event = shard.find(self.primary.as_bytes()).filter(|&event| engine.holds(&shard, event, &self.token));
            let event = event.ok_or_else(|| engine.fenced(&self.primary, &self.token))?;
            engine.pin_fragments(&shard, event, sources)
        };
        self.store.guards(locations)
    }

    /// Extends the lease: a heartbeat.
    ///
    /// # Errors
    /// As [`Store::extend`].
    pub fn extend(&self, duration: Duration) -> Result<()> {
        self.store.extend(&self.primary, &self.token, duration)
    }

    /// Keeps the event, in these streams.
    ///
    /// # Errors
    /// As [`Store::accept`].
    pub fn accept(&self, streams: &[&str]) -> Result<()> {
        self.store.accept(&self.primary, &self.token, streams)
    }

    /// Drops the event.
    ///
    /// # Errors
    /// As [`Store::reject`].
    pub fn reject(&self) -> Result<()> {
        self.store.reject(&self.primary, &self.token)
    }

    /// Gives the event back unharmed.
    ///
    /// # Errors
    /// As [`Store::requeue`].
    pub fn requeue(&self) -> Result<()> {
        self.store.requeue(&self.primary, &self.token)
    }
}

/// How much younger than another shard's oldest event one may be and still go out before it, in nanoseconds: batches
/// stay in one shard, order stays about that of arrival.
const TURN_NS: u64 = 1_000_000;

/// A grant under the lock, before its fragments are read.
struct Grant {
    primary: Primary,
    token: Token,
    attributes: Attributes,
    locations: Vec<Location>,
    missing: Vec<Key>,
    delivery: u8,
    event_fragments: u32,
    event_bytes: u64,
}

impl Store {
    /// Leases up to `n` ready events, about oldest first, and reads the chosen sources in the same call. Waits for a
    /// first one as long as asked; an empty answer says that there was none.
    ///
    /// # Errors
    /// `Full` past `leases_max`, `Corrupt`, `Closed`.
    pub fn get_any(&self, request: &GetAny) -> Result<Vec<Lease>> {
        let engine = self.engine();
        let mut deadline = None;
        loop {
            engine.check_open()?;
            let grants = engine.grant_any(request)?;
            if !grants.is_empty() {
                return self.leases(grants);
            }
            if request.wait.is_zero() || request.n == 0 {
                return Ok(Vec::new());
            }
            let deadline = *deadline.get_or_insert_with(|| deadline_after(request.wait));
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            // Ready events that do not match, or are too young, send no notice: look again now and then.
            let there = || request.filter.is_empty() && request.min_age.is_zero() && engine.has_ready();
            engine.wait_ready(left.min(Duration::from_millis(20)), there);
        }
    }

    /// Leases a named event; `None` where it is not there, not ready, or leased.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Full`, `Corrupt`, `Closed`.
    pub fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease>> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let index = engine.shard_of(primary.as_bytes());
        let grant = {
            let mut shard = engine.cells[index].lock();
            if shard.closed {
                return Err(closed());
            }
            engine.check_leases()?;
            let ready = |event: &u32| shard.events[*event].state == State::Live(LiveState::Ready);
            let Some(event) = shard.find(primary.as_bytes()).filter(ready) else { return Ok(None) };
            let grant = engine.grant(&mut shard, index, event, &Sources::All, duration);
            engine.cells[index].publish_ready(&shard);
            grant
        };
        engine.hot.region.fence();
        Ok(self.leases(vec![grant])?.pop())
    }

    fn leases(&self, grants: Vec<Grant>) -> Result<Vec<Lease>> {
        let mut leases = Vec::with_capacity(grants.len());
        let mut failed = None;
        for grant in grants {
            // On an error the other grants still release their pins, and all run out or are given back.
            match self.guards(grant.locations) {
                Ok(fragments) => leases.push(Lease {
                    store: self.clone(),
                    primary: grant.primary,
                    token: grant.token,
                    attributes: grant.attributes,
                    fragments,
                    missing: grant.missing,
                    delivery: grant.delivery,
                    event_fragments: grant.event_fragments,
                    event_bytes: grant.event_bytes,
                }),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // One bad event must not take the good ones with it: they go to the worker, the bad one to its time-out.
            Some(error) if leases.is_empty() => Err(error),
            _ => Ok(leases),
        }
    }

    /// Extends a lease by `duration` from now, within `max_hold` from its grant: a heartbeat.
    ///
    /// # Errors
    /// `Fenced` where the lease is no longer in force or held for too long, `Closed`.
    pub fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let mut shard = engine.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let event = shard.find(primary.as_bytes()).filter(|&event| engine.holds(&shard, event, token));
        let event = event.ok_or_else(|| engine.fenced(primary, token))?;
        let number = shard.events[event].lease;
        let last = shard.leases[number].granted_ns.saturating_add(nanoseconds(engine.config.max_hold));
        let now = engine.now_ns();
        if now >= last {
            return Err(Error::fenced(format!("the lease is held for longer than {:?}", engine.config.max_hold)));
        }
        let deadline = now.saturating_add(nanoseconds(duration)).min(last);
        let before = std::mem::replace(&mut shard.leases[number].deadline_ns, deadline);
        shard.timers.remove(&(before, number));
        shard.timers.insert((deadline, number));
        Ok(())
    }

    /// Keeps a leased event, in these streams. Repeating it with the same token gives the same answer.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force and did not accept before, `Invalid` for too many or ill-named
    /// streams, `Closed`.
    pub fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        // Only a lease in force brings new streams into being.
        let mask = engine.stream_mask(streams, || {
            let shard = engine.cell_of(primary.as_bytes()).lock();
            let held = shard.find(primary.as_bytes()).is_some_and(|event| engine.holds(&shard, event, token));
            if held { Ok(()) } else { Err(engine.fenced(primary, token)) }
        })?;
        engine.decide(primary, token, Verdict::Accepted, mask)
    }

    /// Drops a leased event. Repeating it with the same token gives the same answer.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force and did not reject before, `Closed`.
    pub fn reject(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.engine().decide(primary, token, Verdict::Rejected, 0)
    }

    /// Gives a leased event back unharmed: another worker gets it, and it does not count as a failure. Nothing is
    /// decided, so a repeat is fenced.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force, `Closed`.
    pub fn requeue(&self, primary: &Primary, token: &Token) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let cell = engine.cell_of(primary.as_bytes());
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let event = shard.find(primary.as_bytes()).filter(|&event| engine.holds(&shard, event, token));
        let event = event.ok_or_else(|| engine.fenced(primary, token))?;
        shard.events[event].deliveries -= 1;
        engine.lower_marks(&shard, event);
        engine.hot.region.fence();
        shard.move_to(event, LiveState::Ready);
        engine.leases.fetch_sub(1, Ordering::Relaxed);
        cell.publish_ready(&shard);
        drop(shard);
        engine.notify_ready();
        Ok(())
    }

    /// The archive has taken over an accepted or debug event: its space is freed. `false` where there is none.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`.
    pub fn release(&self, primary: &Primary) -> Result<bool> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.relieve_log();
        let held = |state| matches!(state, LiveState::Accepted | LiveState::Debug);
        Ok(engine.end_event(primary, DecisionKind::Release, held)?.is_some())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    fn has_ready(&self) -> bool {
        self.cells.iter().any(|cell| cell.oldest_ready_ns.load(Ordering::Acquire) != u64::MAX)
    }

    fn check_leases(&self) -> Result<()> {
        if self.leases.load(Ordering::Relaxed) < self.config.leases_max as u64 {
            return Ok(());
        }
        Err(Error::full(format!("{} leases are out, the limit (leases_max)", self.config.leases_max)))
    }

    fn grant_any(&self, request: &GetAny) -> Result<Vec<Grant>> {
        let latest = self.now_ns().checked_sub(nanoseconds(request.min_age));
        let mut grants = Vec::new();
        let mut done = [false; SHARDS];
        let mut room = true;
        while grants.len() < request.n && room {
            // The shard with the oldest head gives what is not much younger than the next shard's head.
            let age = |at: usize| self.cells[at].oldest_ready_ns.load(Ordering::Acquire);
            let (mut oldest, mut second) = ((u64::MAX, 0), u64::MAX);
            for at in (0..SHARDS).filter(|&at| !done[at]) {
                let age = age(at);
                if age < oldest.0 {
                    (oldest, second) = ((age, at), oldest.0);
                } else {
                    second = second.min(age);
                }
            }
            let (age, at) = oldest;
            if age == u64::MAX {
                break;
            }
            let turn_ends = second.saturating_add(TURN_NS);
            let mut shard = self.cells[at].lock();
            if shard.closed {
                return Err(closed());
            }
            let mut next = shard.ready.first();
            // Done with a shard whose list is used up, or held nothing that was asked for up to the turn's end.
            done[at] = true;
            while let (Some(event), true) = (next, grants.len() < request.n) {
                next = List::after(&shard.events, event);
                let arrival = shard.events[event].arrival_ns;
                if arrival > turn_ends && !done[at] {
                    break;
                }
                let old_enough = latest.is_some_and(|latest| arrival <= latest);
                if !old_enough || !self.matches(&shard, event, &request.filter) {
                    continue;
                }
                if let Err(full) = self.check_leases() {
                    if grants.is_empty() {
                        return Err(full);
                    }
                    room = false;
                    break;
                }
                grants.push(self.grant(&mut shard, at, event, &request.sources, request.lease));
                done[at] = false;
            }
            self.cells[at].publish_ready(&shard);
        }
        if !grants.is_empty() {
            self.hot.region.fence();
        }
        Ok(grants)
    }

    fn matches(&self, shard: &Shard, event: u32, filter: &Filter) -> bool {
        filter.is_empty() || filter.matches(&self.attributes_or_none(shard, event))
    }

    /// Leases a ready event, under its lock. The caller fences before it hands the grant out.
    fn grant(
        &self,
        shard: &mut Shard,
        index: usize,
        event: u32,
        sources: &Sources,
        duration: Option<Duration>,
    ) -> Grant {
        let now = self.now_ns();
        shard.grants += 1;
        let counter = shard.grants * SHARDS as u64 + index as u64;
        let most = self.config.max_hold.min(duration.unwrap_or(self.config.lease));
        let deadline_ns = now.saturating_add(nanoseconds(most));
        shard.move_to(event, LiveState::Leased);
        let lease = shard.leases.insert(LeaseState { event, counter, granted_ns: now, deadline_ns });
        shard.timers.insert((deadline_ns, lease));
        self.leases.fetch_add(1, Ordering::Relaxed);
        let leaf = &mut shard.events[event];
        leaf.lease = lease;
        leaf.deliveries += 1;
        leaf.ready_marked = true;
        self.mark_event(shard, event);
        Grant {
            primary: shard.primary(event),
            token: Token { epoch: 0, boot: self.boot, counter },
            attributes: self.attributes_or_none(shard, event),
            locations: self.pin_fragments(shard, event, sources),
            missing: self.missing_keys(shard, event),
            delivery: shard.events[event].deliveries,
            event_fragments: u32::from(shard.events[event].present),
            event_bytes: shard.events[event].bytes,
        }
    }

    /// Writes readiness and deliveries beside the event's first fragment. Flushed, not fenced.
    pub(crate) fn mark_event(&self, shard: &Shard, event: u32) {
        let leaf = &shard.events[event];
        if let Some(anchor) = shard.anchor(event) {
            self.hot
                .mark(anchor, StateWord { mark: Mark::Live, deliveries: leaf.deliveries, ready: leaf.ready_marked });
        }
    }

    /// Writes a lower count of deliveries beside every fragment that shows a higher one: the first fragment may be
    /// another than it was at the grant, and recovery believes the highest. Flushed, not fenced.
    fn lower_marks(&self, shard: &Shard, event: u32) {
        let leaf = &shard.events[event];
        let marks = StateWord { mark: Mark::Live, deliveries: leaf.deliveries, ready: leaf.ready_marked };
        for (_, location) in shard.fragments(event, |_| true) {
            let word = self.hot.region.load_word(self.hot.state_word_offset(location));
            let stands = StateWord::decode(word, self.hot.seed(location.segment), location.entry);
            if stands.is_none_or(|stands| stands.deliveries > marks.deliveries) {
                self.hot.mark(location, marks);
            }
        }
    }

    #[cold]
    fn fenced(&self, primary: &Primary, token: &Token) -> Error {
        let name = self.keyspace.schema.text(primary.as_bytes());
        Error::fenced(format!("{name}: token {token} is not the lease in force"))
    }

    /// A token that is not in force: its recorded verdict again, or the fence.
    #[cold]
    fn repeat(&self, shard: &Shard, primary: &Primary, token: &Token, verdict: Verdict, streams: u32) -> Result<()> {
        let index = self.shard_of(primary.as_bytes());
        let here = token.epoch == 0 && token.counter as usize % SHARDS == index;
        let this_life = || shard.verdicts.get(token.counter / SHARDS as u64).filter(|_| token.boot == self.boot);
        let recorded = if here { this_life().or_else(|| self.recent.lock().get(*token)) } else { None };
        let again = Code::new(verdict, primary.as_bytes(), streams);
        if recorded == Some(again) { Ok(()) } else { Err(self.fenced(primary, token)) }
    }

    /// Lets puts that began before the event was leased end first (late), so that a verdict covers exactly what the
    /// event has. Bounded: a reservation that somebody keeps does not hold a verdict up for ever.
    fn await_records_in_flight(&self, primary: &Primary) {
        let in_flight = || {
            let shard = self.cell_of(primary.as_bytes()).lock();
            shard.find(primary.as_bytes()).is_some_and(|event| shard.events[event].pending > 0)
        };
        let mut deadline = None;
        while in_flight() {
            let deadline = *deadline.get_or_insert_with(|| deadline_after(self.config.put_deadline));
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// A verdict: checked, recorded, then carried out.
    fn decide(&self, primary: &Primary, token: &Token, verdict: Verdict, streams: u32) -> Result<()> {
        self.check_primary(primary)?;
        self.relieve_log();
        self.await_records_in_flight(primary);
        let _effects = self.quiesce.read();
        let index = self.shard_of(primary.as_bytes());
        let cell = &self.cells[index];
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let event = shard.find(primary.as_bytes()).filter(|&event| self.holds(&shard, event, token));
        let Some(event) = event else { return self.repeat(&shard, primary, token, verdict, streams) };
        let tally = shard.tally(event);
        let record = |kind, detail| Decision {
            kind,
            token: *token,
            fragments: tally.fragments as u32,
            bytes: tally.bytes,
            detail,
            key: primary.as_bytes().to_vec(),
        };
        let mut ended = Ended::new();
        match verdict {
            Verdict::Accepted => {
                self.log.append(&self.hot, &record(DecisionKind::Accept, streams))?;
                shard.move_to(event, LiveState::Accepted);
                shard.events[event].lease = streams;
            }
            Verdict::Rejected => {
                self.log.append(&self.hot, &record(DecisionKind::Reject, 0))?;
                let run = shard.events[event].run as usize;
                let tally = self.end(&mut shard, event, &mut ended);
                shard.runs[run].ledger.rejected += tally;
            }
        }
        let code = Code::new(verdict, primary.as_bytes(), streams);
        let by_number = shard.verdicts.note(token.counter / SHARDS as u64, code);
        let given = Given { boot: self.boot, code, counter: token.counter };
        self.recent.lock().keep(given, !by_number, self.verdicts_kept());
        self.leases.fetch_sub(1, Ordering::Relaxed);
        drop(shard);
        self.finish(&ended);
        Ok(())
    }
}
