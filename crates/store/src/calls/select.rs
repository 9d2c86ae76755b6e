//! Leasing events to workers.
//!
//! ```text
//! get_any ─▶ ready events of a stage, in the order that the policy says ─▶ grant: delivery durable, token, timer
//!         ─▶ chosen fragments in the same call
//! ```
//!
//! *Invariants*: a delivery is durable before its grant, so that an event on which processes die reaches the debug stream
//! (tests/crash.rs); an event that a hold covers is never granted (tests/semantics/delivery.rs).
//!
//! *Not here*: what the holder decides (`verdict.rs`).

use crate::engine::{Engine, closed};
use crate::events::{Flag, LeaseState, List, Reason, State};
use crate::limits::SHARDS;
use crate::placement::Ticket;
use crate::shards::Shard;
use crate::{Fragment, GetAny, SourceStates, Sources, Store};
use forebay_core::limits::FAILURE_BYTES_MAX;
use forebay_core::nanoseconds;
use forebay_core::{
    Attributes, Error, Filter, Held, HeldTogether, Key, Level, LiveState, Order, Primary, Result, Token,
};
use forebay_media::bytes::{Decision, DecisionKind};
use forebay_media::hot::Location;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An event under lease. Dropping it without a verdict leaves it to its time-out, which counts as a worker's failure; while its
/// thread unwinds, or with the rest of a batch after an error, it is given back.
pub type Lease = forebay_core::Lease<Fragment, Held<Store>>;

forebay_core::implement_lease_holder!(Store, Fragment, |store| store);

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
    sources: SourceStates,
    stage: u8,
    delivery: u8,
    event_fragments: u32,
    event_bytes: u64,
}

impl Store {
    /// Leases up to `n` ready events of a stage, in the keyspace's order of delivery, and reads the chosen sources in the
    /// same call. Waits for a first one as long as asked; an empty answer says that there was none.
    ///
    /// # Errors
    /// `Invalid` for an unknown stage, `Full` past `leases_max`, `Corrupt`, `Closed`.
    pub fn get_any(&self, request: &GetAny) -> Result<Vec<Lease>> {
        let engine = self.engine();
        let stage = engine.stage_of(request.stage.as_deref())?;
        engine.make_room_for_marks();
        // The clock is read only where the call waits: most find something.
        let mut deadline = None;
        loop {
            engine.check_open()?;
            let grants = engine.grant_any(request, stage)?;
            if !grants.is_empty() {
                return self.leases(grants);
            }
            if request.wait.is_zero() || request.n == 0 {
                return Ok(Vec::new());
            }
            let deadline = *deadline.get_or_insert_with(|| engine.deadline_after(request.wait));
            let Some(most) = engine.timer().block_at_most(deadline) else { return Ok(Vec::new()) };
            // Ready events that do not match, or are too young, send no notice: look again now and then.
            let there = || request.filter.is_empty() && request.min_age.is_zero() && engine.has_ready(stage);
            engine.events.waiting.wait(most.min(Duration::from_millis(20)), there);
        }
    }

    /// Leases a named event in any stage; `None` where it is not there, not ready, held back, or leased.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Full`, `Corrupt`, `Closed`.
    pub fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease>> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.make_room_for_marks();
        let index = engine.shards.shard_of(primary.as_bytes());
        let grant = {
            let mut shard = engine.shards.cells[index].lock();
            if shard.closed {
                return Err(closed());
            }
            engine.check_leases()?;
            let ready = |event: &u32| shard.events[*event].state == State::Live(LiveState::Ready);
            let Some(event) = engine.find(&shard, primary.as_bytes())?.filter(ready) else { return Ok(None) };
            if shard.events[event].is(Flag::Held) || engine.keep_back(&mut shard, event) {
                return Ok(None);
            }
            let grant = engine.grant(&mut shard, index, event, &Sources::All, duration, engine.now_ns());
            engine.shards.cells[index].publish_ready(&shard);
            grant
        };
        // Without the lock, and before the worker has it: the delivery is durable.
        engine.placement.hot.region.fence();
        Ok(self.leases(vec![grant])?.pop())
    }

    /// Reads sources of an event under lease, for the holder of its token.
    ///
    /// # Errors
    /// `Fenced` where the lease is no longer in force, `Corrupt`, `Closed`.
    pub fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Fragment>> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let (bytes, locations) = {
            let shard = engine.shards.cell_of(primary.as_bytes()).lock();
            if shard.closed {
                return Err(closed());
            }
            let event = engine.find(&shard, primary.as_bytes())?.filter(|&event| engine.holds(&shard, event, token));
            let event = event.ok_or_else(|| engine.fenced(primary, token))?;
            (shard.events[event].bytes, engine.pin_fragments(&shard, event, sources))
        };
        self.guards(locations, bytes)
    }

    fn leases(&self, grants: Vec<Grant>) -> Result<Vec<Lease>> {
        let mut leases = Vec::with_capacity(grants.len());
        let together = HeldTogether::default();
        let mut failed = None;
        for grant in grants {
            // On an error the other grants still release their pins, and all run out or are given back.
            match self.guards(grant.locations, grant.event_bytes) {
                Ok(fragments) => leases.push(Lease {
                    holder: together.hold(self.clone(), grant.primary, grant.token),
                    primary: grant.primary,
                    token: grant.token,
                    attributes: grant.attributes,
                    fragments,
                    missing: grant.missing,
                    sources: grant.sources,
                    stage: grant.stage,
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
        let mut shard = engine.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let event = engine.find(&shard, primary.as_bytes())?.filter(|&event| engine.holds(&shard, event, token));
        let event = event.ok_or_else(|| engine.fenced(primary, token))?;
        let number = shard.events[event].lease();
        let last = shard.events.leases.out[number].granted_ns.saturating_add(nanoseconds(engine.config.max_hold));
        let now = engine.now_ns();
        if now >= last {
            return Err(Error::fenced(format!("the lease is held for longer than {:?}", engine.config.max_hold)));
        }
        // Never past `max_hold`: a worker that hangs with a living heartbeat gives its event up in the end.
        let deadline = now.saturating_add(nanoseconds(duration)).min(last);
        let leases = &mut shard.events.leases;
        // The old entry is found by the old deadline: both change in one hold.
        let before = std::mem::replace(&mut leases.out[number].deadline_ns, deadline);
        leases.timers.remove(before, number);
        leases.timers.insert(&leases.out, number);
        engine.upkeep.due_at(deadline);
        Ok(())
    }

    /// Gives a leased event back unharmed: another worker gets it, and it does not count as a failure. Nothing is
    /// decided, so a repeat is fenced.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force, `Closed`.
    pub fn requeue(&self, primary: &Primary, token: &Token) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.make_room_for_marks();
        let cell = engine.shards.cell_of(primary.as_bytes());
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let event = engine.find(&shard, primary.as_bytes())?.filter(|&event| engine.holds(&shard, event, token));
        let event = event.ok_or_else(|| engine.fenced(primary, token))?;
        let leaf = &mut shard.events[event];
        debug_assert!(leaf.deliveries() > 0, "a grant is counted as a delivery");
        // Lowered durably before it is ready again: the worker did not fail.
        leaf.set_deliveries(leaf.deliveries().saturating_sub(1));
        engine.lower_marks(&mut shard, event);
        engine.placement.hot.region.fence();
        shard.events.move_to(event, LiveState::Ready);
        engine.events.lease_ends();
        cell.publish_ready(&shard);
        drop(shard);
        engine.events.waiting.notify();
        Ok(())
    }

    /// Gives a leased event back because processing it failed. It becomes ready again at once and the delivery counts: after
    /// the last one that the keyspace allows it is in the debug stream, with this reason. Nothing is decided, so a repeat is fenced.
    ///
    /// # Errors
    /// `Fenced` where the token is not the lease in force, `Full` without space in the log, `Closed`, `OutcomeUnknown` where
    /// a device does not make it durable.
    pub fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.relieve_log();
        let effects = engine.decisions.effects.begin();
        let cell = engine.shards.cell_of(primary.as_bytes());
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let event = engine.find(&shard, primary.as_bytes())?.filter(|&event| engine.holds(&shard, event, token));
        let event = event.ok_or_else(|| engine.fenced(primary, token))?;
        let ticket = engine.fail_lease(&mut shard, event, Reason::WorkerFailed);
        if ticket.is_ok() {
            let kept = &reason[..reason.floor_char_boundary(FAILURE_BYTES_MAX)];
            shard.events.lists.failures.insert(event, kept.into());
        }
        cell.publish_ready(&shard);
        // Locks and guard go before a wait for devices.
        drop((shard, effects));
        engine.events.waiting.notify();
        engine.explained(ticket).and_then(|ticket| engine.settle(ticket))
    }
}

impl Engine {
    fn has_ready(&self, stage: u8) -> bool {
        self.shards
            .cells
            .iter()
            .any(|cell| [false, true].iter().any(|&cold| cell.oldest_ready_ns(stage, cold) != u64::MAX))
    }

    /// Grants of events of the warm level are logged.
    fn make_room_for_marks(&self) {
        if self.placement.level.is_some() {
            self.relieve_log();
        }
    }

    fn has_cold(&self, stage: u8) -> bool {
        self.placement.level.is_some()
            && self.shards.cells.iter().any(|cell| cell.oldest_ready_ns(stage, true) != u64::MAX)
    }

    /// The position of a stage by name; the first without one.
    pub(crate) fn stage_of(&self, name: Option<&str>) -> Result<u8> {
        name.map_or(Ok(0), |name| self.keyspace.stage(name))
    }

    fn check_leases(&self) -> Result<()> {
        if self.events.leases.load(Ordering::Relaxed) < self.config.leases_max as u64 {
            return Ok(());
        }
        let cause = format!("{} leases are out, the limit (leases_max)", self.config.leases_max);
        Err(Error::full_of("leases", "selection", cause))
    }

    fn grant_any(&self, request: &GetAny, stage: u8) -> Result<Vec<Grant>> {
        match self.keyspace.delivery.order {
            Order::HotFirst => self.grant_hot_first(request, stage),
            Order::OldestFirst => {
                let mut round = Round::new(self, request);
                if self.grant_by_age(&mut round, stage, false, 0, u64::MAX)? {
                    Ok(round.end())
                } else {
                    round.end_closed()
                }
            }
            Order::Lowest(_) | Order::Highest(_) => self.grant_by_rank(request, stage),
        }
    }

    /// Events of the warm level that have waited for too long, then those of the hot level, then the others of the warm.
    fn grant_hot_first(&self, request: &GetAny, stage: u8) -> Result<Vec<Grant>> {
        let mut round = Round::new(self, request);
        let too_old = round.now_ns.checked_sub(nanoseconds(self.keyspace.delivery.max_wait));
        let all = Some(u64::MAX);
        // An event that comes back to the hot level meanwhile is missed by both looks: a call that got nothing looks there
        // once more.
        for (cold, latest, again) in
            [(true, too_old, false), (false, all, false), (true, all, false), (false, all, true)]
        {
            // Asked for each part: what is demoted after one was looked at is found by the next.
            let may_be = !cold || self.has_cold(stage);
            let wanted = may_be && request.level.is_none_or(|level| (level == Level::Warm) == cold);
            let needed = !again || self.placement.level.is_some() && round.grants.is_empty();
            if let Some(latest) = latest.filter(|_| wanted && needed)
                && !self.grant_by_age(&mut round, stage, cold, TURN_NS, latest)?
            {
                return round.end_closed();
            }
        }
        Ok(round.end())
    }

    /// Those that arrived up to `latest`, oldest first, but for a turn's length; `false` where the store is closed.
    fn grant_by_age(&self, round: &mut Round<'_>, stage: u8, cold: bool, turn_ns: u64, latest: u64) -> Result<bool> {
        // Age of the next event of each shard that was not looked at yet, and the last one that was not given.
        let mut ages: [u64; SHARDS] = std::array::from_fn(|at| self.shards.cells[at].oldest_ready_ns(stage, cold));
        let mut passed_over: [Option<u32>; SHARDS] = [None; SHARDS];
        while round.goes_on() {
            // The shard with the oldest one gives what is not much younger than the next shard's.
            let (mut oldest, mut second) = ((u64::MAX, 0), u64::MAX);
            for (at, &age) in ages.iter().enumerate() {
                if age < oldest.0 {
                    (oldest, second) = ((age, at), oldest.0);
                } else {
                    second = second.min(age);
                }
            }
            let (age, at) = oldest;
            if age == u64::MAX || age > latest {
                break;
            }
            // A whole batch from one shard costs one lock; a turn's length bounds how far that departs from order.
            let turn_ends = second.saturating_add(turn_ns).min(latest);
            let mut shard = self.shards.cells[at].lock();
            if shard.closed {
                return Ok(false);
            }
            let mut next = shard.events.next_ready(stage, cold, passed_over[at]);
            let mut looked = false;
            ages[at] = u64::MAX;
            while let (Some(event), true) = (next, round.goes_on()) {
                let arrival = shard.events[event].arrival_ns;
                if looked && arrival > turn_ends {
                    ages[at] = arrival;
                    break;
                }
                looked = true;
                next = List::after(&shard.events.slab, event);
                if !round.offer(&mut shard, at, event)? && !shard.events[event].is(Flag::Held) {
                    passed_over[at] = Some(event);
                }
            }
            self.shards.cells[at].publish_ready(&shard);
        }
        Ok(true)
    }

    /// By attribute: events that wait for too long first, then the lowest rank of all shards. All shards are searched for
    /// each event: this order costs more than the others.
    fn grant_by_rank(&self, request: &GetAny, stage: u8) -> Result<Vec<Grant>> {
        let mut round = Round::new(self, request);
        let too_old = self.now_ns().checked_sub(nanoseconds(self.keyspace.delivery.max_wait));
        // Where each shard was left: what did not match is not looked at again in this round.
        let mut places = [None; SHARDS];
        let mut starved = [None; SHARDS];
        while round.goes_on() {
            let mut best: Option<((u8, u128, u64), usize, u32)> = None;
            for at in 0..SHARDS {
                if self.shards.cells[at].oldest_ready_ns(stage, false) == u64::MAX {
                    continue;
                }
                let shard = self.shards.cells[at].lock();
                if shard.closed {
                    return round.end_closed();
                }
                let ready = &shard.events.lists.ready[stage as usize];
                let oldest = shard.events.next_ready(stage, false, starved[at]);
                let waits = |event: &u32| too_old.is_some_and(|limit| shard.events[*event].arrival_ns <= limit);
                if let Some(event) = oldest.filter(waits) {
                    let key = (0, 0, shard.events[event].arrival_ns);
                    if best.is_none_or(|best| key < best.0) {
                        best = Some((key, at, event));
                    }
                } else if let Some((rank, arrival, event)) = ready.ranked_after(places[at]) {
                    let key = (1, rank, arrival);
                    if best.is_none_or(|best| key < best.0) {
                        best = Some((key, at, event));
                    }
                }
            }
            let Some(((late, rank, arrival), at, event)) = best else { break };
            let mut shard = self.shards.cells[at].lock();
            if shard.closed {
                return round.end_closed();
            }
            // Another worker may have been faster: then this one looks again.
            let leaf = &shard.events[event];
            let still = leaf.state == State::Live(LiveState::Ready)
                && !leaf.is(Flag::Held)
                && (leaf.stage(), leaf.arrival_ns) == (stage, arrival);
            let given = still && round.offer(&mut shard, at, event)?;
            if late == 0 {
                starved[at] = if given || !still { None } else { Some(event) };
            } else if !given {
                places[at] = Some((rank, arrival, event));
            }
            self.shards.cells[at].publish_ready(&shard);
        }
        Ok(round.end())
    }

    pub(crate) fn matches(&self, shard: &Shard, event: u32, filter: &Filter) -> bool {
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
        now: u64,
    ) -> Grant {
        debug_assert!(!shard.events[event].is(Flag::Held), "an event that a hold covers is never granted");
        // The shard is in the number: a repeat of a verdict finds the memory of its grant without the event, which is gone.
        shard.events.leases.granted += 1;
        let counter = shard.events.leases.granted * SHARDS as u64 + index as u64;
        let primary = shard.events.primary(event);
        let epoch = self.slot_epoch(shard, primary.as_bytes());
        // A lease ends by `max_hold`, even if a worker asks for more.
        let most = self.config.max_hold.min(duration.unwrap_or(self.config.lease));
        let deadline_ns = now.saturating_add(nanoseconds(most));
        shard.events.move_to(event, LiveState::Leased);
        let lease = shard.events.leases.out.insert(LeaseState { event, epoch, counter, granted_ns: now, deadline_ns });
        shard.events.leases.timers.insert(&shard.events.leases.out, lease);
        self.upkeep.due_at(deadline_ns);
        self.events.leases.fetch_add(1, Ordering::Relaxed);
        let leaf = &mut shard.events[event];
        leaf.set_lease(lease);
        // Counted before the worker has it: a process that dies with the event must leave a trace of that.
        leaf.set_deliveries(leaf.deliveries() + 1);
        leaf.mark_ready();
        self.mark_event(shard, event);
        Grant {
            primary,
            token: Token { epoch, boot: self.life.boot, counter },
            attributes: self.attributes_or_none(shard, event),
            locations: self.pin_fragments(shard, event, sources),
            missing: self.missing_keys(shard, event),
            sources: self.source_states(shard, event),
            stage: shard.events[event].stage(),
            delivery: shard.events[event].deliveries(),
            event_fragments: u32::from(shard.events[event].present),
            event_bytes: shard.events[event].bytes,
        }
    }

    /// Ends a lease whose delivery counts: the event is ready again, or, after the last delivery that is allowed, in the debug
    /// stream. On an error it stays leased.
    pub(crate) fn fail_lease(&self, shard: &mut Shard, event: u32, reason: Reason) -> Result<Ticket> {
        let mut ticket = Ticket::default();
        if shard.events[event].deliveries() >= self.keyspace.deliveries_max {
            let group = self.group_of(shard, event);
            let record = Decision { detail: reason as u32, ..shard.events.decision(event, DecisionKind::Debug, group) };
            ticket = self.record(shard, event, &record)?;
            shard.events.move_to(event, LiveState::Debug);
            shard.events.lists.reasons.insert(event, reason as u8);
            self.queue_demotion(shard, event);
        } else {
            shard.events.move_to(event, LiveState::Ready);
        }
        let counter = match reason {
            Reason::WorkerFailed => &self.events.workers_failed,
            Reason::HeldTooLong => &self.events.held_too_long,
            Reason::WorkerSilent | Reason::ProcessDied => &self.events.workers_silent,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.events.lease_ends();
        Ok(ticket)
    }

    #[cold]
    pub(crate) fn fenced(&self, primary: &Primary, token: &Token) -> Error {
        let name = self.keyspace.schema.text(primary.as_bytes());
        Error::fenced(format!("{name}: token {token} is not the lease in force"))
    }
}

/// One call of `get_any` under way.
struct Round<'a> {
    engine: &'a Engine,
    request: &'a GetAny,
    /// The time of the call: leases of one call begin together.
    now_ns: u64,
    /// Events that arrived later are too young.
    latest_ns: Option<u64>,
    grants: Vec<Grant>,
    room: bool,
}

impl<'a> Round<'a> {
    fn new(engine: &'a Engine, request: &'a GetAny) -> Round<'a> {
        let now_ns = engine.now_ns();
        let latest_ns = now_ns.checked_sub(nanoseconds(request.min_age));
        Round { engine, request, now_ns, latest_ns, grants: Vec::new(), room: true }
    }

    fn goes_on(&self) -> bool {
        self.room && self.grants.len() < self.request.n
    }

    /// Grants an event, if it is what was asked for and nothing holds it back.
    fn offer(&mut self, shard: &mut Shard, index: usize, event: u32) -> Result<bool> {
        let old_enough = self.latest_ns.is_some_and(|latest| shard.events[event].arrival_ns <= latest);
        let all_warm = shard.events[event].is(Flag::Far);
        let wrong_level = self.request.level.is_some_and(|level| (level == Level::Warm) != all_warm);
        if !old_enough || wrong_level || !self.engine.matches(shard, event, &self.request.filter) {
            return Ok(false);
        }
        if self.engine.keep_back(shard, event) {
            return Ok(false);
        }
        // Those that were granted before the limit go to the worker: an error would leave them to their time-outs.
        if let Err(full) = self.engine.check_leases() {
            self.room = false;
            return if self.grants.is_empty() { Err(full) } else { Ok(false) };
        }
        let grant = self.engine.grant(shard, index, event, &self.request.sources, self.request.lease, self.now_ns);
        self.grants.push(grant);
        Ok(true)
    }

    /// The store closed in between: what was granted goes back by recovery, what was pinned is let go here.
    fn end_closed(self) -> Result<Vec<Grant>> {
        let pinned = self.grants.iter().flat_map(|grant| &grant.locations);
        pinned.for_each(|&location| self.engine.unpin(location));
        Err(closed())
    }

    fn end(self) -> Vec<Grant> {
        debug_assert!(self.grants.len() <= self.request.n, "{} grants of {}", self.grants.len(), self.request.n);
        // One fence for all grants, before any of them is handed out.
        if !self.grants.is_empty() {
            self.engine.placement.hot.region.fence();
        }
        self.grants
    }
}
