//! The life of an event in its shard: arrivals, readiness, states and their booking, the end.
//!
//! *Invariants*: an event is counted as complete or incomplete once, when it stops waiting; a fragment that comes later
//! and completes it moves it from one count to the other (checked by `Ledger::imbalance`); ready is monotone.

use super::event::{Event, Flag, NIL, RULE_OWN, State};
use super::list::List;
use super::rule::{Mask, Rule};
use super::run::{Ending, Run};
use super::shard::{Ended, Keys, ShardEvents};
use super::slot::Word;
use crate::SourceState;
use forebay_core::{Completeness, LiveState, Source, Tally};
use forebay_media::bytes::{Decision, DecisionKind};
use std::sync::Arc;

impl ShardEvents {
    /// The event's part of the ledger.
    pub(crate) fn tally(&self, event: u32) -> Tally {
        let event = &self.slab[event];
        debug_assert!(
            event.present == 0 || event.is(Flag::Counted) || event.state == State::Foreign,
            "fragments belong to an event that is counted"
        );
        Tally { events: u64::from(event.is(Flag::Counted)), fragments: u64::from(event.present), bytes: event.bytes }
    }

    /// The completeness rule of the event.
    #[inline]
    pub(crate) fn rule(&self, event: u32) -> &Rule {
        let leaf = &self.slab[event];
        // A missing rule would fall back to the run's, silently: the event would wait for other sources than it announced.
        debug_assert!(leaf.rule != RULE_OWN || self.own_rules.contains_key(&event), "event {event} lost its own rule");
        if leaf.rule == RULE_OWN
            && let Some(own) = self.own_rules.get(&event)
        {
            return own;
        }
        let rules = &self.runs[leaf.run as usize].plan.rules;
        rules.get(leaf.rule as usize).unwrap_or(&rules[0])
    }

    /// A fragment became readable: it is booked, and may complete the event.
    #[inline]
    pub(crate) fn arrived(&mut self, event: u32, key: (&[u8], &[u8]), length: u32) {
        // Fields apart, so that the event's line is found once: this is the path of every put.
        let ShardEvents { slab: events, runs, own_rules, .. } = self;
        let leaf = &mut events[event];
        let run = &mut runs[leaf.run as usize];
        let rule = match leaf.rule {
            0 => &run.plan.rules[0],
            RULE_OWN => own_rules.get(&event).map_or(&run.plan.rules[0], |own| &**own),
            class => run.plan.rules.get(class as usize).unwrap_or(&run.plan.rules[0]),
        };
        leaf.arrived += u16::from(rule.counts(key.1));
        let State::Live(state) = leaf.state else {
            // Booked where its home is, its source too.
            leaf.keep(length);
            run.foreign += Tally::fragment(u64::from(length));
            return;
        };
        // Most fragments leave their event waiting for more: nothing else is looked at for those.
        let reached = rule.wanted().is_some_and(|wanted| usize::from(leaf.arrived) + run.masks.len() >= wanted)
            || state == LiveState::Open && leaf.is_marked_ready();
        run.add(leaf, state, key, length);
        let slots = self.slots(event);
        debug_assert!(usize::from(self.slab[event].arrived) <= slots, "each slot arrives once");
        if reached && !self.recovering {
            self.consider(event);
        }
    }

    /// Recovery found another version of a fragment that it had counted: it is counted with its own length.
    pub(crate) fn change_length(&mut self, event: u32, from: u32, to: u32) {
        let leaf = &mut self.slab[event];
        let State::Live(state) = leaf.state else { return };
        leaf.bytes = leaf.bytes + u64::from(to) - u64::from(from);
        let ledger = &mut self.runs[leaf.run as usize].ledger;
        let (new, old) = (Tally::fragment(u64::from(to)), Tally::fragment(u64::from(from)));
        // Both sides of the account, so that it balances whichever version was found first.
        for term in [&mut ledger.offered, &mut ledger.stored] {
            *term += new;
            *term -= old;
        }
        ledger.live[state] += new;
        ledger.live[state] -= old;
    }

    /// A worker's result became a fragment: booked, but nothing that completeness counts.
    pub(crate) fn add_result(&mut self, event: u32, key: (&[u8], &[u8]), length: u32) {
        let leaf = &mut self.slab[event];
        if let State::Live(state) = leaf.state {
            self.runs[leaf.run as usize].add(leaf, state, key, length);
        }
    }

    /// Looks whether the event has all that it waits for; an open one is ready then.
    #[inline]
    pub(crate) fn consider(&mut self, event: u32) {
        // An event of which every source is masked, or all that came was removed, has nothing to process: it waits for
        // its time.
        let leaf = &self.slab[event];
        if leaf.present > 0 && !leaf.is(Flag::Complete) && self.is_complete(event) {
            let all = self.has_all(event);
            let leaf = &mut self.slab[event];
            leaf.set(Flag::Complete);
            if !all {
                leaf.set(Flag::LacksMasked);
            }
            // It stopped waiting as incomplete, and a late fragment completes it. Wrapping: after a restart the counts of all
            // shards are in the first one, so that a single shard's may pass below zero; their sum does not.
            if leaf.is(Flag::Booked) {
                let ledger = &mut self.runs[leaf.run as usize].ledger;
                ledger.complete += 1;
                ledger.incomplete = ledger.incomplete.wrapping_sub(1);
            }
        }
        // Marked: it was ready before a kill that left nothing of it but its marks.
        let leaf = &self.slab[event];
        let ready = leaf.is(Flag::Complete) || leaf.present > 0 && leaf.is_marked_ready();
        if ready && leaf.state == State::Live(LiveState::Open) {
            self.move_to(event, LiveState::Ready);
        }
    }

    /// Whether every source that it waits for has arrived, masks or not.
    #[inline]
    fn has_all(&self, event: u32) -> bool {
        self.rule(event).wanted().is_some_and(|wanted| usize::from(self.slab[event].arrived) >= wanted)
    }

    #[inline]
    fn is_complete(&self, event: u32) -> bool {
        let leaf = &self.slab[event];
        let Some(wanted) = self.rule(event).wanted() else { return false };
        let arrived = usize::from(leaf.arrived);
        let masks = &self.runs[leaf.run as usize].masks;
        arrived >= wanted || !masks.is_empty() && arrived + masks.len() >= wanted && self.complete_with_masks(event)
    }

    fn complete_with_masks(&self, event: u32) -> bool {
        let leaf = &self.slab[event];
        let rule = self.rule(event);
        let arrived = |word: Word| !word.is_pending() && !word.is_result();
        let there = |source: &[u8]| self.slot(event, source).is_ok_and(|(_, word)| arrived(word));
        match &rule.completeness {
            Completeness::Sources(sources) => {
                sources.iter().all(|source| there(source) || self.masked(event, source).is_some())
            }
            Completeness::Count(count) => {
                let masks = &self.runs[leaf.run as usize].masks;
                let mut absent: Vec<&[u8]> = self.covering(event, masks).map(|mask| mask.source.as_slice()).collect();
                absent.retain(|source| !there(source));
                absent.sort_unstable();
                absent.dedup();
                usize::from(leaf.arrived) + absent.len() >= *count as usize
            }
            Completeness::Seal => false,
        }
    }

    fn covering<'a>(&'a self, event: u32, masks: &'a [Mask]) -> impl Iterator<Item = &'a Mask> + 'a {
        let leaf = &self.slab[event];
        let primary = self.shape.form.primary_of(&self.tables, self.slab.table(event));
        masks.iter().filter(move |mask| mask.covers(primary, leaf.arrival_ns))
    }

    /// The mask that covers a source of this event.
    pub(crate) fn masked(&self, event: u32, source: &[u8]) -> Option<&Mask> {
        let masks = &self.runs[self.slab[event].run as usize].masks;
        self.covering(event, masks).find(|mask| mask.source == source)
    }

    /// As [`ShardEvents::consider`] for an event that was just found. One that was ready before says itself whether masks
    /// made it complete: those of now may be others.
    pub(crate) fn consider_recovered(&mut self, event: u32) {
        if self.slab[event].rule != 0 {
            self.count_again(event);
        }
        if !self.slab[event].is_marked_ready() {
            self.consider(event);
        } else if self.has_all(event) {
            self.slab[event].set(Flag::Complete);
        }
    }

    /// The event has another rule now: what it has is counted again. One that waits no more stays ready, and is complete
    /// or not by its new rule.
    pub(crate) fn reconsider(&mut self, event: u32) {
        // Complete by the old rule is not complete by the new one: the count changes its side, the state stays.
        self.count_again(event);
        if self.slab[event].is(Flag::Complete) {
            let (complete, all) = (self.is_complete(event), self.has_all(event));
            let leaf = &mut self.slab[event];
            leaf.clear(Flag::LacksMasked);
            if complete && !all {
                leaf.set(Flag::LacksMasked);
            } else if !complete {
                leaf.clear(Flag::Complete);
                if leaf.is(Flag::Booked) {
                    let ledger = &mut self.runs[leaf.run as usize].ledger;
                    ledger.complete = ledger.complete.wrapping_sub(1);
                    ledger.incomplete += 1;
                }
            }
        }
        self.consider(event);
    }

    /// Whether masks complete the event by this rule: as [`ShardEvents::reconsider`] will find it. Nothing of it changes.
    pub(crate) fn is_masked_by(&mut self, event: u32, rule: u8) -> bool {
        let leaf = &mut self.slab[event];
        let before = (leaf.rule, leaf.arrived);
        leaf.rule = rule;
        self.count_again(event);
        let leaf = &self.slab[event];
        let judged = leaf.present > 0 || leaf.is(Flag::Complete);
        let masked = judged && self.is_complete(event) && !self.has_all(event);
        let leaf = &mut self.slab[event];
        (leaf.rule, leaf.arrived) = before;
        masked
    }

    fn count_again(&mut self, event: u32) {
        let table = self.table(event);
        let rule = self.rule(event);
        let slots = 0..self.slots(event);
        let counted = slots.filter(|&slot| {
            let word = self.shape.form.word_of(table, slot);
            !word.is_pending() && !word.is_result() && rule.counts(self.shape.form.rest_of(table, slot))
        });
        self.slab[event].arrived = counted.count() as u16;
    }

    /// Moves a live event to another state, with its list and its booking.
    pub(crate) fn move_to(&mut self, event: u32, to: LiveState) {
        let State::Live(from) = self.slab[event].state else { return };
        debug_assert!(to != LiveState::Open || from == LiveState::Open, "ready is monotone: {} to open", from.name());
        debug_assert!(to != LiveState::Leased || from == LiveState::Ready, "{} to leased", from.name());
        self.unlink(event, from);
        let tally = self.tally(event);
        let leaf = &mut self.slab[event];
        debug_assert!(!leaf.is(Flag::LacksMasked) || leaf.is(Flag::Complete), "masks are counted in what is complete");
        debug_assert!(to != LiveState::Open || !leaf.is(Flag::Booked), "an open event is not counted yet");
        let ledger = &mut self.runs[leaf.run as usize].ledger;
        // Subtraction wraps, so that a wrong booking is seen as an imbalance and not as a crash: here it is seen at once.
        debug_assert!(holds(&ledger.live[from], &tally), "{}: {tally:?} was never booked", from.name());
        ledger.live[from] -= tally;
        ledger.live[to] += tally;
        // Once, when it stops waiting: an event that is leased again and again is one event of the account.
        if to != LiveState::Open && !leaf.is(Flag::Booked) {
            leaf.set(Flag::Booked);
            let count = if leaf.is(Flag::Complete) { &mut ledger.complete } else { &mut ledger.incomplete };
            *count += 1;
        }
        // The state comes before the list: lists ask it (`events/ready.rs`).
        leaf.state = State::Live(to);
        match to {
            LiveState::Open => {
                let run = self.slab[event].run as usize;
                self.runs[run].open.push_back(&mut self.slab, event);
            }
            // One that comes back from a worker goes out before younger ones: it has waited longest.
            LiveState::Ready => self.push_ready(event, from == LiveState::Leased),
            LiveState::Leased => {}
            LiveState::Debug => {
                self.lists.debug_bytes += self.slab[event].bytes;
                self.lists.debug.push_back(&mut self.slab, event);
            }
            LiveState::Accepted => self.lists.accepted.push_back(&mut self.slab, event),
        }
    }

    fn push_ready(&mut self, event: u32, given_back: bool) {
        let rank = self.rank(event);
        // A stage that a later configuration no longer has: its events go to the last one there is.
        let last = self.lists.ready.len() - 1;
        let stage = usize::from(self.slab[event].stage()).min(last);
        self.lists.ready[stage].push(&mut self.slab, event, rank, given_back);
    }

    /// Place in the order of delivery, where an attribute gives it: lower goes first.
    pub(crate) fn rank(&self, event: u32) -> u128 {
        self.ranks.get(&event).copied().unwrap_or(u128::MAX)
    }

    pub(super) fn unlink(&mut self, event: u32, state: LiveState) {
        // Held and listed exclude each other: a held event is in the list of the held alone.
        debug_assert!(
            !self.slab[event].is(Flag::Held) || state == LiveState::Ready && !self.slab[event].is(Flag::ListedFar),
            "a {} event is held",
            state.name()
        );
        match state {
            LiveState::Open => self.runs[self.slab[event].run as usize].open.unlink(&mut self.slab, event),
            LiveState::Ready if self.slab[event].is(Flag::Held) => {
                self.slab[event].clear(Flag::Held);
                self.lists.held.unlink(&mut self.slab, event);
            }
            LiveState::Ready => self.unlink_ready(event),
            LiveState::Leased => self.end_lease(event),
            LiveState::Debug => {
                self.lists.debug_bytes -= self.slab[event].bytes;
                self.lists.reasons.remove(&event);
                self.lists.debug.unlink(&mut self.slab, event);
            }
            LiveState::Accepted => self.lists.accepted.unlink(&mut self.slab, event),
        }
    }

    /// Takes a ready event out of its list, to be listed again at once.
    pub(crate) fn unlist_ready(&mut self, event: u32) {
        self.unlink_ready(event);
    }

    /// Lists a ready event that was taken out.
    pub(crate) fn list_ready(&mut self, event: u32) {
        self.push_ready(event, false);
    }

    fn unlink_ready(&mut self, event: u32) {
        let rank = self.rank(event);
        let last = self.lists.ready.len() - 1;
        let stage = usize::from(self.slab[event].stage()).min(last);
        self.lists.ready[stage].unlink(&mut self.slab, event, rank);
    }

    /// A ready event is kept from delivery.
    pub(crate) fn hold_back(&mut self, event: u32) {
        debug_assert!(!self.slab[event].is(Flag::Held), "event {event} is held already");
        self.unlink_ready(event);
        self.slab[event].set(Flag::Held);
        self.lists.held.push_back(&mut self.slab, event);
    }

    /// An event that was kept back may go out again.
    pub(crate) fn let_go(&mut self, event: u32) {
        debug_assert!(self.slab[event].is(Flag::Held), "event {event} is not held");
        self.slab[event].clear(Flag::Held);
        self.lists.held.unlink(&mut self.slab, event);
        self.push_ready(event, true);
    }

    fn end_lease(&mut self, event: u32) {
        let lease = self.slab[event].lease();
        self.slab[event].set_lease(NIL);
        if lease != NIL {
            let ended = self.leases.out.remove(lease);
            // The number of a lease is used again: a stale one would end somebody else's.
            debug_assert_eq!(ended.event, event, "lease {lease} is that of another event");
            self.leases.timers.remove(ended.deadline_ns, lease);
        }
    }

    /// Takes a live event out for good, books how it ended and remembers that. Its records' locations go to `ended`.
    /// Records in flight keep the leaf until they report.
    pub(crate) fn end(&mut self, event: u32, kind: DecisionKind, group: u64, ended: &mut Ended) {
        let State::Live(state) = self.slab[event].state else { return };
        debug_assert_eq!(
            self.fragments(event, |_| true).count(),
            usize::from(self.slab[event].present),
            "an event ends with the fragments that it is booked with"
        );
        self.unlink(event, state);
        let tally = self.tally(event);
        let primary = self.primary(event);
        let leaf = &self.slab[event];
        let complete = leaf.is(Flag::Complete);
        let (counted, booked) = (leaf.is(Flag::Counted), leaf.is(Flag::Booked));
        debug_assert!(counted || leaf.is(Flag::Announced), "an event that nobody knows of is withdrawn, not ended");
        let run = &mut self.runs[leaf.run as usize];
        debug_assert!(holds(&run.ledger.live[state], &tally), "{}: {tally:?} was never booked", state.name());
        run.ledger.live[state] -= tally;
        if counted {
            let ledger = &mut run.ledger;
            let (now, ever) = if complete {
                (&mut ledger.complete, &mut run.ended.0)
            } else {
                (&mut ledger.incomplete, &mut run.ended.1)
            };
            *now += u64::from(!booked);
            *ever += 1;
        } else {
            run.ledger.awaited = run.ledger.awaited.wrapping_sub(1);
            run.ledger.never_seen += 1;
        }
        run.book_end(kind, tally, group, complete, counted);
        // A closed run needs no memory: it answers for all its events.
        if run.state != crate::RunState::Closed || run.keeps_decided {
            run.decided.insert(self.shape.decided_form, primary.as_bytes());
            if let Some(ending) = Ending::of(kind) {
                run.endings[ending as usize].insert_within(
                    self.shape.endings_bytes,
                    self.shape.decided_form,
                    primary.as_bytes(),
                );
            }
        }
        self.take_out(event, primary.as_bytes(), ended);
    }

    /// Takes an event out that is booked nowhere any more. Its records' locations go to `ended`; records in flight keep the leaf until
    /// they report.
    pub(super) fn take_out(&mut self, event: u32, primary: &[u8], ended: &mut Ended) {
        self.leave(event, primary);
        let table = self.table(event);
        // Collected for the caller, who marks them without the lock: nobody finds them any more.
        let mut removed = 0;
        for slot in 0..self.slots(event) {
            let word = self.shape.form.word_of(table, slot);
            if word.is_present() {
                ended.push(word.place());
            }
            removed += u64::from(word.is_removed());
        }
        self.removed_slots -= removed;
        ended.extend(self.attribute_word(event).map(Word::place));
        // A record in flight still names this event by its number: given to another one, that record would arrive there.
        if self.slab[event].pending == 0 {
            self.forget(event);
        } else {
            self.slab[event].state = State::Gone;
        }
    }

    /// Takes the event out of the tree and of what is kept beside it.
    fn leave(&mut self, event: u32, primary: &[u8]) {
        let keys = Keys { form: self.shape.form, events: &self.slab, tables: &self.tables };
        let left = self.art.remove(&keys, primary);
        debug_assert_eq!(left, Some(event), "an event is in the tree exactly while it is live");
        // Kept by number, which the next event may get.
        if self.slab[event].rule == RULE_OWN {
            self.own_rules.remove(&event);
        }
        if !self.ranks.is_empty() {
            self.ranks.remove(&event);
        }
        if !self.lists.failures.is_empty() {
            self.lists.failures.remove(&event);
        }
    }

    /// A record in flight has reported; the last one of an event that is gone frees its place.
    pub(crate) fn settle(&mut self, event: u32) {
        self.slab[event].pending -= 1;
        if self.slab[event].pending == 0 && self.slab[event].state == State::Gone {
            self.forget(event);
        }
    }

    /// Takes out an open event of which nothing was ever acknowledged.
    pub(crate) fn withdraw(&mut self, event: u32) {
        let leaf = &self.slab[event];
        debug_assert!(leaf.present == 0 && !leaf.is(Flag::Counted), "something of event {event} was acknowledged");
        match self.slab[event].state {
            State::Foreign => self.leave_foreign(event),
            _ => self.unlink(event, LiveState::Open),
        }
        let primary = self.primary(event);
        self.leave(event, primary.as_bytes());
        self.forget(event);
    }

    fn forget(&mut self, event: u32) {
        debug_assert_eq!(self.slab[event].pending, 0, "records in flight report to event {event}");
        let table = self.slab.remove(event);
        self.tables.free(table.block);
    }

    /// The event waits for these sources, regardless of its class and run.
    pub(crate) fn set_own_rule(&mut self, event: u32, sources: Vec<Source>) {
        debug_assert!(!self.own_rules.contains_key(&event), "an event is announced with its sources once");
        self.own_rules.insert(event, Arc::new(Rule::new(&Completeness::Sources(sources))));
        self.slab[event].rule = RULE_OWN;
    }

    /// Expected sources that are not there: neither readable, nor removed, nor masked. What a complete event lacks was
    /// masked when it was ready.
    pub(crate) fn missing(&self, event: u32) -> Vec<Source> {
        let rule = self.rule(event);
        let leaf = &self.slab[event];
        if leaf.is(Flag::Complete) || usize::from(leaf.arrived) >= rule.sources().len() {
            return Vec::new();
        }
        let there = |source: &[u8]| self.slot(event, source).is_ok_and(|(_, word)| !word.is_pending());
        let missing = rule.sources().iter().filter(|source| !there(source) && self.masked(event, source).is_none());
        missing.cloned().collect()
    }

    /// Every source of the event that is there or waited for, packed, with its state.
    pub(crate) fn source_states(&self, event: u32) -> Vec<u8> {
        let table = self.table(event);
        let rule = self.rule(event);
        let leaf = &self.slab[event];
        let width = self.shape.form.rest;
        // One allocation of the right size: this is asked for with every grant, of events with hundreds of sources.
        let mut packed = vec![0; (width + 1) * self.slots(event)];
        let mut places = packed.chunks_exact_mut(width + 1);
        let mut left = 0;
        for slot in 0..self.slots(event) {
            let word = self.shape.form.word_of(table, slot);
            let state = if word.is_plain() { SourceState::Present } else { word.source_state() };
            if word.is_pending() {
                left += 1;
            } else if let Some(place) = places.next() {
                place[..width].copy_from_slice(self.shape.form.rest_of(table, slot));
                place[width] = state as u8;
            }
        }
        packed.truncate(packed.len() - left * (width + 1));
        let masks = &self.runs[leaf.run as usize].masks;
        if usize::from(leaf.arrived) < rule.sources().len() || !masks.is_empty() {
            let there = |source: &[u8]| self.slot(event, source).is_ok_and(|(_, word)| !word.is_pending());
            let named = rule.sources().iter().map(Source::as_bytes);
            let by_mask = self.covering(event, masks).map(|mask| mask.source.as_slice());
            for source in
                named.chain(by_mask.filter(|source| !rule.sources().iter().any(|named| named.as_bytes() == *source)))
            {
                if !there(source) {
                    packed.extend_from_slice(source);
                    packed.push(
                        rule.absent(source, leaf.is(Flag::Complete) || self.masked(event, source).is_some()) as u8
                    );
                }
            }
        }
        packed
    }

    /// A decision about the event as it is now, under no lease.
    pub(crate) fn decision(&self, event: u32, kind: DecisionKind, group: u64) -> Decision {
        let leaf = &self.slab[event];
        let tally = self.tally(event);
        Decision {
            fragments: tally.fragments as u32,
            bytes: tally.bytes,
            incomplete: !leaf.is(Flag::Complete),
            stage: leaf.stage(),
            group,
            ..Decision::about(kind, self.shape.form.primary_of(&self.tables, self.slab.table(event)))
        }
    }

    /// The events that wait, of one run, oldest first.
    pub(crate) fn open_events(&self, run: usize) -> Vec<u32> {
        let first = self.runs[run].open.first();
        std::iter::successors(first, |&event| List::after(&self.slab, event)).collect()
    }

    /// Ready events of all stages, held ones too.
    pub(crate) fn ready_events(&self) -> Vec<u32> {
        let held = std::iter::successors(self.lists.held.first(), |&at| List::after(&self.slab, at));
        self.lists.ready.iter().flat_map(|ready| ready.all(&self.slab)).chain(held).collect()
    }

    /// The ready event of a stage (of those on the warm level, if `far`) after this one; the first where that one
    /// is no longer listed there.
    pub(crate) fn next_ready(&self, stage: u8, far: bool, after: Option<u32>) -> Option<u32> {
        // The lock was released in between: the event may have gone, or its number may be that of another one.
        let listed_there = |&event: &u32| {
            let leaf = &self.slab[event];
            let listed = leaf.state == State::Live(LiveState::Ready) && !leaf.is(Flag::Held);
            listed && leaf.stage() == stage && leaf.is(Flag::ListedFar) == far
        };
        let ready = &self.lists.ready[usize::from(stage)];
        match after.filter(listed_there) {
            Some(event) => List::after(&self.slab, event),
            None => if far { &ready.far } else { &ready.list }.first(),
        }
    }

    /// Every live event, in no order that matters.
    pub(crate) fn all_events(&self) -> impl Iterator<Item = u32> + '_ {
        let first = self.seek(&vec![0; self.shape.form.primary]);
        let all = std::iter::successors(first, |&event| {
            self.primary(event).successor().and_then(|from| self.seek(from.as_bytes()))
        });
        all.filter(|&event| self.slab[event].state != State::Foreign)
    }

    /// An event stops waiting: the sources that it lacks are noted as missed. One of which nothing came says that the
    /// readout is down, not that a source is: no reason to mask any.
    pub(crate) fn note_misses(&mut self, event: u32) {
        debug_assert_eq!(self.slab[event].state, State::Live(LiveState::Open), "it stops waiting now");
        let missing = self.missing(event);
        let seen = self.slab[event].is(Flag::Counted);
        let run = &mut self.runs[self.slab[event].run as usize];
        for source in missing {
            let count = run.sources.of(&source);
            count.missing = count.missing.saturating_add(1);
            let fragments = count.fragments;
            if seen && run.plan.config.auto_mask.is_some() {
                let (row, before) = run.missed.entry(source.to_vec()).or_default();
                *row = if *before == fragments { row.saturating_add(1) } else { 1 };
                *before = fragments;
            }
        }
    }
}

/// Whether a term has at least this much.
fn holds(term: &Tally, part: &Tally) -> bool {
    term.events >= part.events && term.fragments >= part.fragments && term.bytes >= part.bytes
}

impl Run {
    /// Books a fragment of one of its events; the key comes in its two parts.
    #[inline]
    fn add(&mut self, leaf: &mut Event, state: LiveState, (primary, rest): (&[u8], &[u8]), length: u32) {
        let fragment = Tally::fragment(u64::from(length));
        self.ledger.stored += fragment;
        // The first fragment makes it an event of the account: until then it was awaited at most.
        let first = !leaf.is(Flag::Counted);
        leaf.set(Flag::Counted);
        self.ledger.live[state] += Tally { events: u64::from(first), ..fragment };
        if first && leaf.is(Flag::Announced) {
            self.ledger.awaited = self.ledger.awaited.wrapping_sub(1);
        }
        leaf.keep(length);
        self.sources.arrived(rest, length, primary);
    }
}

impl Event {
    /// A fragment of it can be read.
    #[inline]
    fn keep(&mut self, length: u32) {
        self.present += 1;
        self.bytes += u64::from(length);
    }

    /// Whether it takes fragments: it waits in the store for more, or for a worker, or its home is another node.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Live(LiveState::Open | LiveState::Ready) | State::Foreign)
    }
}
