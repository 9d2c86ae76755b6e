//! Containers that the archive has: claimed, proved, and let go when their time has come or their space is needed.
//!
//! ```text
//! full ─▶ draining (claimed) ─▶ custody (proved) ─▶ custody_min is over, or the level is above custody_high ─▶ event after
//!   ▲          │                                    event is released ─▶ the last one reclaims the container
//!   └──────────┘ given back, or not heard of in time
//! ```
//!
//! *Invariants*: an event is released only if all of its fragments, and its record, lie in containers in custody as images that
//! say that it is decided: such images counted already when their containers were claimed, because nothing that is still on its
//! way into a container is claimed with it (tests/levels/custody.rs; every demo compares its archive with its ledger). What an update
//! brings lies elsewhere, and takes the event out of custody.

use crate::RunState;
use crate::engine::Engine;
use crate::events::{Flag, Word};
use crate::placement::{At, Claimed, Custody, Level, Open};
use crate::shards::Shard;
use forebay_core::{ClaimRequest, Error, Filling, Kind, Primary, Result, Token, Unit};
use forebay_media::bytes::DecisionKind;
use forebay_media::warm::Writer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a claim waits for a round of demotion: else a mover that comes once would leave what is just being closed.
const ROUND: Duration = Duration::from_millis(200);
/// Events that one round releases.
const RELEASED_MAX: usize = 4096;
/// How long a container is left alone in which something lives that cannot be released yet.
const AGAIN: Duration = Duration::from_secs(2);

impl Engine {
    /// Whether an event is decided and lies, whole, in images that say so.
    pub(crate) fn is_settled(&self, shard: &Shard, event: u32) -> bool {
        let leaf = &shard.events[event];
        leaf.state.is_kept() && leaf.is(Flag::Far) && shard.events.slab.at(event, At::SettledThere)
    }

    /// Whether all that lives of an event is in custody; `but` in these containers.
    fn is_in_custody(&self, level: &Level, shard: &Shard, event: u32, but: &BTreeSet<u32>) -> bool {
        let record = shard.events.attribute_word(event).map(Word::location);
        let mut all = shard.fragments(event, |_| true).map(|(_, at)| at).chain(record);
        let is_there = |container| level.warm.is_in_custody(container) && !but.contains(&container);
        self.is_settled(shard, event) && all.all(|at| at.is_warm() && is_there(at.container()))
    }

    /// Claims the oldest full container in which something is for the archive.
    pub(crate) fn claim_container(&self, request: &ClaimRequest) -> Result<Option<(Token, Unit, u64, u64)>> {
        let level =
            self.placement.level.as_ref().ok_or_else(|| Error::internal("a claim of a container without any"))?;
        if let Some(device) = request.device
            && !level.present().any(|present| present == device)
        {
            return Err(Error::invalid(format!("there is no device {device}: devices are numbered from 0")));
        }
        self.close_for_movers(level, request.move_after)?;
        let mut drainable = level.warm.drainable(request.device);
        {
            let claims = self.claims.lock();
            // Stable: among those that were tried as often the oldest goes first.
            drainable.sort_by_key(|(container, ..)| claims.unproved.get(container).copied().unwrap_or_default());
        }
        for (container, generation, filling) in drainable {
            let (events, bytes) = self.settled_in(level, container)?;
            // A shared one may have only what nobody has decided yet.
            if events.is_empty() {
                continue;
            }
            match level.warm.begin_drain(container) {
                Ok(()) => {}
                // Another mover was faster.
                Err(error) if error.kind() == Kind::Conflict => continue,
                Err(error) => return Err(error),
            }
            let unit = Unit::Container { container, generation, filling, device: level.warm.device_of(container) };
            let count = events.len() as u64;
            let until = self.deadline_after(request.duration);
            let mut claims = self.claims.lock();
            let token = claims.token(self.life.boot);
            let archive = request.archive;
            let held = Claimed { unit: unit.clone(), archive, events: Arc::new(events), until, seen: BTreeMap::new() };
            claims.held.insert(token, held);
            return Ok(Some((token, unit, count, bytes)));
        }
        Ok(None)
    }

    /// Closes containers that are still being filled, and whose run is over or that began this long ago.
    fn close_for_movers(&self, level: &Level, age: Duration) -> Result<()> {
        let over: BTreeSet<u64> = {
            let runs = self.runs.known.lock();
            let over = runs.iter().filter(|known| matches!(known.state, RunState::Stopped | RunState::Closed));
            over.map(|known| known.run).collect()
        };
        let is_over = |run: u64| over.contains(&run);
        // Writers have containers that they may need no more. A round that takes long keeps them: the next claim asks again.
        let mut ended = Vec::new();
        if let Some(mut demoter) = level.demoter.try_lock_for(ROUND) {
            let is_idle = |open: &mut Open| open.pending.is_empty() && open.writer.keeps_from_movers(age, &is_over);
            ended.extend(demoter.open.extract_if(.., is_idle).map(|open| open.writer));
        }
        if let Some(mut writers) = level.persisting.writer.try_lock_for(ROUND) {
            let keeps = |(_, writer): &mut (_, Writer)| writer.keeps_from_movers(age, &is_over);
            ended.extend(writers.extract_if(.., keeps).map(|(_, writer)| writer));
        }
        // Without these locks: what is being closed waits for its device.
        drop(ended);
        level.warm.close_begun(age, &is_over, level.deadline())
    }

    /// Events with images in a container, each once, in the order of their first ones, with the bytes of all these images; none
    /// where no event is settled there, or where one is still on its way.
    fn settled_in(&self, level: &Level, container: u32) -> Result<(Vec<Primary>, u64)> {
        let (mut events, mut bytes, mut any, mut all_arrived) = (Vec::new(), 0, false, true);
        let mut known = BTreeSet::new();
        level.warm.images_of(container, &mut |_, image| {
            let primary = Primary::from_packed(image.primary);
            bytes += image.table().map(|(entry, _)| u64::from(entry.length)).sum::<u64>();
            if known.insert(primary) {
                let shard = self.shards.cell_of(image.primary).lock();
                if let Some(event) = shard.events.find(image.primary) {
                    any |= self.is_settled(&shard, event);
                    // A container may be full before its last images count. A mover that came between would pass over such an
                    // event, and its proof would cover it.
                    all_arrived &= !shard.events.slab.at(event, At::Moving);
                }
                events.push(primary);
            }
            Ok(())
        })?;
        // All of them, whatever became of some: the place of an event in its container is the same for every claim.
        if any && all_arrived { Ok((events, bytes)) } else { Ok((Vec::new(), 0)) }
    }

    /// The archive has what a claimed container holds: durably in custody. Answers how many events are, whole.
    /// None where nothing of this filling lives any more: what was in it ended, or went elsewhere and is archived from there.
    pub(crate) fn begin_custody(&self, container: u32, filling: Filling) -> Result<u64> {
        let level = self.placement.level.as_ref().ok_or_else(|| Error::internal("custody without a warm level"))?;
        let now = self.config.clock.wall_ms();
        {
            let mut custody = level.custody.lock();
            custody.proved.insert(container, self.timer().now());
            custody.counted.insert(container);
        }
        let answer = level.warm.begin_custody(container, filling, now).and_then(|lives| match lives {
            true => {
                level.proved_ms.store(now, Ordering::Relaxed);
                self.mark_custody(level, container)
            }
            false => Ok(0),
        });
        level.custody.lock().counted.remove(&container);
        answer
    }

    /// Books what is in custody with a container; answers how many of its events are.
    fn mark_custody(&self, level: &Level, container: u32) -> Result<u64> {
        let mut events = 0;
        let mut last = None;
        level.warm.images_of(container, &mut |_, image| {
            let primary = Primary::from_packed(image.primary);
            if last.replace(primary) == Some(primary) {
                return Ok(());
            }
            let mut shard = self.shards.cell_of(image.primary).lock();
            if let Some(event) = shard.events.find(image.primary)
                && self.is_in_custody(level, &shard, event, &BTreeSet::new())
            {
                shard.enter_custody(event);
                events += 1;
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// One round of releases from custody; `true` where something was released.
    pub(crate) fn release_custody(&self, level: &Level) -> bool {
        let mut custody = level.custody.lock();
        let now = self.timer().now();
        if custody.releasing.is_empty() {
            if custody.again.is_some_and(|again| now < again) {
                return false;
            }
            let Some(container) = self.next_to_release(level, &mut custody) else {
                custody.again = Some(self.deadline_after(Duration::from_millis(100)));
                return false;
            };
            custody.later.insert(container, self.deadline_after(AGAIN));
            let mut events = Vec::new();
            let listed = level.warm.images_of(container, &mut |_, image| {
                events.push(Primary::from_packed(image.primary));
                Ok(())
            });
            if let Err(error) = listed {
                level.note(error.to_string());
            }
            events.dedup();
            custody.releasing = events.into();
        }
        let mut released = false;
        let Custody { releasing, counted, .. } = &mut *custody;
        for _ in 0..RELEASED_MAX {
            let Some(primary) = releasing.pop_front() else { break };
            let wanted = |shard: &Shard, event: u32| self.is_in_custody(level, shard, event, counted);
            match self.end_event_now(&primary, DecisionKind::Release, wanted) {
                // Nobody is answered: the container is reclaimed only once its device knows of all these releases.
                Ok(Some((_, ticket))) => {
                    ticket.unanswered();
                    released = true;
                }
                Ok(None) => {}
                Err(error) => level.note(error.to_string()),
            }
        }
        released
    }

    /// A container in custody on a device that leaves, of which events stay although their turn has come: what belongs to them
    /// elsewhere is not in custody. With what lives in it.
    pub(crate) fn stays_in_custody(&self, level: &Level, spared: &BTreeMap<u32, u32>) -> Option<(u32, u32)> {
        let custody = level.custody.lock();
        if !custody.releasing.is_empty() {
            return None;
        }
        let leaves = |container: &u32| level.warm.is_leaving(level.warm.device_of(*container));
        let live = |container: u32| {
            let live = level.warm.live_in(container).filter(|live| *live > 0)?;
            (spared.get(&container) != Some(&live)).then_some((container, live))
        };
        let tried = custody.later.keys().filter(|container| leaves(container) && level.warm.is_in_custody(**container));
        tried.copied().find_map(live)
    }

    /// Books what earlier lives left in custody: at the end of an opening.
    pub(crate) fn book_custody(&self) {
        let Some(level) = &self.placement.level else { return };
        for (_, container) in level.warm.in_custody() {
            // One that cannot be read now is still released in time, event by event.
            if let Err(error) = self.mark_custody(level, container) {
                level.note(error.to_string());
            }
        }
    }

    /// The container whose events are released next: the one that is longest in custody, if its time has come or the level is
    /// too full.
    fn next_to_release(&self, level: &Level, custody: &mut Custody) -> Option<u32> {
        let all = level.warm.in_custody();
        let now = self.timer().now();
        let is_there = |container: &u32| all.iter().any(|(_, known)| known == container);
        custody.later.retain(|container, again| *again > now && is_there(container));
        // One whose proof is under way is not there yet.
        let min = self.config.custody_min;
        custody.proved.retain(|container, since| is_there(container) || now.saturating_duration_since(*since) < min);
        let (min_ms, now_ms) = (min.as_millis() as u64, self.config.clock.wall_ms());
        let leaves = |container: u32| level.warm.is_leaving(level.warm.device_of(container));
        let is_tried = |container: &u32| !custody.later.contains_key(container) && !custody.counted.contains(container);
        let mut tried = all.into_iter().filter(|(_, container)| is_tried(container)).peekable();
        let first = tried.peek().copied();
        // The archive has it, and its device is to be taken out: that is not the time to write it once more.
        let (since, container) = tried.find(|(_, container)| leaves(*container)).or(first)?;
        // A wall clock that was set back makes custody longer. One that was set forward makes only that of earlier lives shorter.
        let rested = custody.proved.get(&container).is_none_or(|since| now.saturating_duration_since(*since) >= min);
        let over = rested && now_ms >= since && now_ms - since >= min_ms;
        let short = leaves(container) || level.warm.fill() > self.config.custody_high.unwrap_or(self.config.warm_low);
        if short && !over {
            level.custody_shortened.fetch_add(1, Ordering::Relaxed);
        }
        (over || short).then_some(container)
    }
}

#[cfg(test)]
mod tests {
    use crate::placement::{At, Custody};
    use crate::{Config, PutOptions, PutOutcome, Store, WarmDevice};
    use forebay_core::{ClaimRequest, Keyspace, MovedStore};
    use forebay_testkit::media::{SimDevice, SimMedium};
    use std::time::Duration;

    /// A container is full before its last images count. A mover that claimed it then would pass over their events, and its
    /// proof would cover them.
    #[test]
    fn what_is_on_its_way_is_not_claimed_and_what_is_counted_is_not_released() {
        let config = Config {
            hot_bytes: 16 << 20,
            maintenance: false,
            container_bytes: 256 << 10,
            device_log_bytes: 256 << 10,
            custody_min: Duration::ZERO,
            warm: vec![WarmDevice::device(SimDevice::new("warm", 16 << 20), 5 << 20)],
            ..Config::default()
        };
        let store =
            Store::create_on(SimMedium::new(config.hot_bytes), &Keyspace::events("moving", 1).opening_runs(), config)
                .unwrap();
        for event in 0..3 {
            let key = store.schema().key(&[1, event, 0]).unwrap();
            assert_eq!(store.put(&key, &[7; 3000], &PutOptions::default()).unwrap(), PutOutcome::Stored);
            let primary = store.schema().primary_of(&key);
            store.lease(&primary, None).unwrap().expect("a ready event").accept(&["physics"]).unwrap();
        }
        store.tick();
        let last = store.schema().primary(&[1, 2]).unwrap();
        let on_its_way = |is: bool| {
            let mut shard = store.engine().shards.cell_of(last.as_bytes()).lock();
            let event = shard.events.find(last.as_bytes()).unwrap();
            assert!(store.engine().is_settled(&shard, event), "the tick has moved it");
            match is {
                true => shard.events.slab.set_at(event, At::Moving),
                false => shard.events.slab.clear_at(event, At::Moving),
            }
        };
        let request =
            ClaimRequest { move_after: Duration::ZERO, duration: Duration::from_secs(60), ..ClaimRequest::default() };
        on_its_way(true);
        assert!(store.claim(&request).unwrap().is_none());
        on_its_way(false);
        let claim = store.claim(&request).unwrap().unwrap();
        assert_eq!(claim.events, 3);

        // The answer to a proof counts its events: none is released while that is under way.
        let level = store.engine().placement.level.as_ref().unwrap();
        assert_eq!(store.prove(&claim.token).unwrap(), 3);
        level.custody.lock().counted.insert(0);
        assert!(!store.engine().release_custody(level));
        *level.custody.lock() = Custody::default();
        assert!(store.engine().release_custody(level));
        assert_eq!(store.ledger(1).unwrap().released.events, 3);
    }
}
