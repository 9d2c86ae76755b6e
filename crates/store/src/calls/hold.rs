//! Holding events back from delivery: a run, or a range of an attribute, that waits for its calibration.
//!
//! *Invariants*: holds are journaled before they are answered; a held event is ready, counted as such, and given to
//! nobody. Delivery sorts held events out when it meets them, so that a hold costs nothing for events that it does not
//! cover (tests/semantics/delivery.rs).

use crate::decisions::encode_hold;
use crate::engine::Engine;
use crate::events::List;
use crate::runs::Hold;
use crate::shards::Shard;
use crate::{HoldInfo, Store};
use forebay_core::{Error, Filter, Result};
use forebay_media::bytes::Blob;
use forebay_media::hot::Class;
use std::sync::atomic::Ordering;

/// Most holds at once.
const HOLDS_MAX: usize = 1024;

impl Store {
    /// Holds back every event of a run (`None`: of all runs) whose attributes meet these conditions, such as
    /// `lumi=5..9`; without conditions all. Events that are leased already are not taken back. Answers the hold's number.
    ///
    /// # Errors
    /// `Invalid` for a condition that cannot be, `Full` for too many holds or without space to journal it, `Closed`,
    /// `OutcomeUnknown` where it is in force and a device does not make it durable.
    pub fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        self.engine().explained(self.hold_now(None, run, conditions))
    }

    /// The hold that another node of the cluster has under this number. Again with the same number it is a success.
    ///
    /// # Errors
    /// As [`Store::hold`]; `Conflict` where the number is that of another hold.
    pub fn hold_as(&self, id: u32, run: Option<u64>, conditions: &[&str]) -> Result<()> {
        self.engine().explained(self.hold_now(Some(id), run, conditions)).map(drop)
    }

    fn hold_now(&self, id: Option<u32>, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        let engine = self.engine();
        engine.relieve_log_for_words();
        let effects = engine.decisions.effects.begin();
        engine.check_open()?;
        let conditions: Vec<String> = conditions.iter().map(|&condition| condition.to_owned()).collect();
        let filter = Filter::parse(&engine.keyspace.attributes, &conditions)?;
        // Over journal and list: delivery takes this lock for readers, and finds a hold exactly where the log has it.
        let mut holds = engine.runs.holds.write();
        if holds.len() >= HOLDS_MAX {
            return Err(Error::full_of("holds", "operator", format!("{HOLDS_MAX} holds, the limit; release some")));
        }
        if let Some(known) = id.and_then(|id| holds.iter().find(|hold| hold.id == id)) {
            return match (known.run, &known.conditions) == (run, &conditions) {
                true => {
                    let (id, ticket) = (known.id, engine.ticket_again(&name_of_hold(known.id, true)));
                    drop((holds, effects));
                    engine.settle(ticket).map(|()| id)
                }
                false => Err(Error::conflict(format!("hold {} is another one on this node", known.id))),
            };
        }
        // A number is used up even where the journal refuses: it is never that of two holds.
        let id = match id {
            Some(id) => {
                engine.runs.next_hold.fetch_max(id.saturating_add(1), Ordering::Relaxed);
                id
            }
            None => engine.runs.next_hold.fetch_add(1, Ordering::Relaxed),
        };
        let hold = Hold { id, run, conditions, filter };
        let ticket =
            engine.journal_blob(Class::Evacuation, Blob::Hold, &encode_hold(&hold, true), &name_of_hold(id, true))?;
        holds.push(hold);
        engine.runs.holds_set.store(holds.len() as u32, Ordering::Release);
        // Nothing is held while devices are waited for.
        drop((holds, effects));
        let settled = engine.settle(ticket);
        settled.map(|()| id).map_err(|error| {
            let what = format!(
                "hold {id} is in force, and survives this process; whether it survives the loss of the hot level is \
                 unknown. Do not repeat the call: that makes another hold"
            );
            Error::new(error.kind(), what).with_source(error)
        })
    }

    /// Ends a hold: its events go out again, unless another hold covers them. `false` where there is no such hold.
    ///
    /// # Errors
    /// `Full` without space to journal it, `Closed`, `OutcomeUnknown` where a device does not make it durable.
    pub fn release_hold(&self, id: u32) -> Result<bool> {
        let engine = self.engine();
        engine.relieve_log_for_words();
        let name = name_of_hold(id, false);
        let ended = {
            let _effects = engine.decisions.effects.begin();
            engine.check_open()?;
            let mut holds = engine.runs.holds.write();
            match holds.iter().position(|hold| hold.id == id) {
                Some(at) => {
                    let bytes = encode_hold(&holds[at], false);
                    let ticket = engine.journal_blob(Class::Decision, Blob::Hold, &bytes, &name)?;
                    holds.remove(at);
                    engine.runs.holds_set.store(holds.len() as u32, Ordering::Release);
                    Some(ticket)
                }
                None => None,
            }
        };
        // After the list has changed and its lock is released: cells come before it in the order of locks. What delivery sorts
        // out in between was covered by another hold.
        let Some(ticket) = ended else { return engine.settle_again(&name).map(|()| false) };
        for cell in &engine.shards.cells {
            let mut shard = cell.lock();
            // The youngest first: each goes back to the front.
            let held: Vec<u32> = {
                let first = shard.events.lists.held.first();
                std::iter::successors(first, |&event| List::after(&shard.events.slab, event)).collect()
            };
            held.into_iter().rev().for_each(|event| shard.events.let_go(event));
            cell.publish_ready(&shard);
        }
        engine.events.waiting.notify();
        engine.settle(ticket).map(|()| true)
    }

    /// All holds.
    pub fn holds(&self) -> Vec<HoldInfo> {
        let engine = self.engine();
        let holds = engine.runs.holds.read().clone();
        let mut infos: Vec<HoldInfo> = holds
            .iter()
            .map(|hold| HoldInfo { id: hold.id, run: hold.run, conditions: hold.conditions.clone(), events: 0 })
            .collect();
        for cell in &engine.shards.cells {
            let shard = cell.lock();
            let mut next = shard.events.lists.held.first();
            while let Some(event) = next {
                next = List::after(&shard.events.slab, event);
                for (hold, info) in holds.iter().zip(&mut infos) {
                    info.events += u64::from(engine.covers(hold, &shard, event));
                }
            }
        }
        infos
    }
}

fn name_of_hold(id: u32, set: bool) -> Vec<u8> {
    [&b"hold"[..], &id.to_le_bytes(), &[u8::from(set)]].concat()
}

impl Engine {
    fn covers(&self, hold: &Hold, shard: &Shard, event: u32) -> bool {
        let run = shard.events.runs[shard.events[event].run as usize].run;
        hold.run.is_none_or(|held| held == run) && self.matches(shard, event, &hold.filter)
    }

    /// Keeps a ready event from delivery where a hold covers it; says whether one does.
    #[inline]
    pub(crate) fn keep_back(&self, shard: &mut Shard, event: u32) -> bool {
        // Without the lock where there is no hold. Acquire pairs with the release in `hold`: a hold that was answered is seen.
        if self.runs.holds_set.load(Ordering::Acquire) == 0 {
            return false;
        }
        let holds = self.runs.holds.read();
        debug_assert_eq!(holds.len(), self.runs.holds_set.load(Ordering::Acquire) as usize, "each hold is counted");
        let covered = holds.iter().any(|hold| self.covers(hold, shard, event));
        drop(holds);
        if covered {
            shard.events.hold_back(event);
        }
        covered
    }
}
