//! Decisions: the hot log records them first and alone decides; they are appended to the devices' shadows under the same
//! hold of the event's lock, and the answer waits for the devices that matter, after every ranked lock is released.
//!
//! ```text
//! under the event's lock:  hot log (durable) ─▶ shadows (memory) ─▶ effects
//! without a ranked lock:   each device with anything of the event, or where some of it is on its way ─▶ answer
//! ```
//!
//! *Invariants*: what the hot log has is decided, no matter what a device does; a decision about an event is in the
//! shadows before an image of it that was on its way counts; no thread waits for a device while it holds a ranked lock
//! (`locks::Owner::assert_free`).
//!
//! *On failure*: a device that fails or stalls leaves the decision in force and its durability unknown there:
//! `OutcomeUnknown`. The same call again waits again (`Unsettled`); the device's next snapshot has the decision.

use crate::engine::Engine;
use crate::events::Verdict;
use crate::placement::{At, Awaited, Keeper, Level, Ticket};
use crate::shards::Shard;
use forebay_core::{Error, Result, Token};
use forebay_media::bytes::{Blob, Decision, DecisionKind};
use forebay_media::hot::Class;

/// What repeats of a verdict are known by.
fn name_of_token(token: &Token) -> Vec<u8> {
    [&token.boot.to_le_bytes()[..], &token.counter.to_le_bytes()].concat()
}

impl Engine {
    /// Records a decision about an event whose lock is held: from here on it is decided.
    ///
    /// # Errors
    /// `Full` where the hot log has no room: nothing is decided.
    pub(crate) fn record(&self, shard: &Shard, event: u32, decision: &Decision) -> Result<Ticket> {
        // The hot log first, and it alone: shadows that were told of a decision that it refused would bring the decision into
        // force after a loss of the hot level.
        self.decisions.log.append(&self.placement.hot, decision)?;
        Ok(self.shadow(shard, event, decision))
    }

    /// Tells the shadows of a decision about an event whose lock is held, if a device has or gets anything of it.
    pub(crate) fn shadow(&self, shard: &Shard, event: u32, decision: &Decision) -> Ticket {
        let Some(level) = &self.placement.level else { return Ticket::default() };
        let devices = self.devices_of(level, shard, event);
        if devices.is_empty() {
            return Ticket::default();
        }
        let position = level.log.append_decision(decision);
        // 0 says that the shadows were not told (`Ticket::position`).
        debug_assert!(position > 0, "a position is behind what was appended");
        // Known before the answer: a repeat that comes first would be answered for a decision that a device may lack.
        let by_token = Verdict::of(decision.kind).is_some() && decision.token != Token::NONE;
        let name = if by_token { name_of_token(&decision.token) } else { decision.key.clone() };
        let awaited = Awaited { position, devices, name };
        level.unsettled.note(level, &awaited);
        Ticket(Some(Box::new(awaited)))
    }

    /// Tells the shadows which fragments of an event were removed before anything of it set out, as it does now: no image
    /// says that they were there. They count nothing: accounts that a shadow has are whole.
    pub(crate) fn shadow_removed(&self, shard: &Shard, event: u32) {
        // With something on a device already, each removal was told when it was decided.
        if shard.events.removed_slots == 0 || shard.events.slab.at(event, At::Warm) {
            return;
        }
        let primary = shard.events.primary(event);
        for (rest, is_result) in shard.events.removed_of(event) {
            let key = [primary.as_bytes(), rest].concat();
            let detail = u32::from(is_result);
            self.shadow(shard, event, &Decision { detail, ..Decision::about(DecisionKind::RemoveKey, &key) })
                .unanswered();
        }
    }

    /// Devices that have or may have anything of an event. All present devices if some of it is on its way to one, or if a
    /// device is missing that may have some.
    fn devices_of(&self, level: &Level, shard: &Shard, event: u32) -> Vec<u32> {
        // The missing one hears of it from the snapshot, when it comes back; until then any of the others may be asked.
        if self.lacks_devices() {
            return level.present().collect();
        }
        let mut devices = Vec::new();
        if !shard.places.on_the_way.is_empty()
            && let Some(way) = shard.places.on_the_way.get(&shard.events.primary(event))
        {
            // Which device its image reaches is known only when it arrives.
            if way.carriers > 0 {
                return level.present().collect();
            }
            // Images that were given up there may be found by an opening: it must find the decision beside them.
            devices.extend(&way.doubted);
        }
        // Every shadow's snapshot has the removed and superseded fragments, even of an event that is not on a device.
        let named = shard.events.slab.at(event, At::Superseded)
            || shard.events.removed_slots > 0 && shard.events.removed_of(event).next().is_some();
        if !shard.events.slab.at(event, At::Warm) && !named {
            return devices;
        }
        let current = shard.fragments(event, |_| true).map(|(_, location)| location);
        let record = shard.events.attribute_word(event).map(crate::events::Word::location);
        let copies = shard.places.copies.get(&event).into_iter().flatten().map(|copy| copy.0);
        let mut last = None;
        for location in current.chain(record).chain(copies).filter(|location| location.is_warm()) {
            // Fragments of one image follow each other: most are of the container that was asked for last.
            let container = location.container();
            if last.replace(container) != Some(container) {
                let device = level.warm.device_of(container);
                if !devices.contains(&device) {
                    devices.push(device);
                }
            }
        }
        if devices.is_empty() {
            // What a device had of it was removed: the shadows know the event by that.
            devices.extend(level.present());
        }
        devices
    }

    /// Waits until a decision is durable where it is to be. Never under a ranked lock.
    ///
    /// # Errors
    /// `OutcomeUnknown` where a device fails or does not answer: the decision is in force all the same.
    pub(crate) fn settle(&self, ticket: Ticket) -> Result<()> {
        let (Some(awaited), Some(level)) = (ticket.0, &self.placement.level) else { return Ok(()) };
        self.await_devices(level, &awaited)
    }

    fn await_devices(&self, level: &Level, awaited: &Awaited) -> Result<()> {
        self.locks.assert_free();
        debug_assert!(awaited.position <= level.log.end(), "nothing that was not appended is waited for");
        debug_assert!(
            awaited.devices.iter().enumerate().all(|(at, device)| !awaited.devices[..at].contains(device)),
            "each device is waited for once: {:?}",
            awaited.devices
        );
        let deadline = level.deadline();
        // Other devices write beside the first.
        let others = awaited.devices.iter().skip(1);
        others.filter_map(|&device| level.keepers.get(device as usize)).for_each(Keeper::wake);
        for &device in &awaited.devices {
            // Without threads nobody else makes room in a log that is full, and the wait would end at its deadline.
            if !self.config.maintenance {
                self.make_room(level, device);
            }
            if let Err(error) = level.log.wait(device, awaited.position, deadline) {
                level.note(error.to_string());
                return Err(Error::unknown(format!(
                    "it is in force and survives this process; whether it survives the loss of the hot level is unknown: \
                     {}; repeat the same call, which succeeds once it does",
                    error.message()
                ))
                .with_source(error));
            }
        }
        level.unsettled.forget(awaited);
        Ok(())
    }

    /// A call that was carried out before: waits for what its first answer waited for.
    ///
    /// # Errors
    /// As [`Engine::settle`].
    pub(crate) fn settle_again(&self, name: &[u8]) -> Result<()> {
        let ticket = self.ticket_again(name);
        self.settle(ticket)
    }

    /// Whether a call of this name has no answer yet that devices vouch for.
    pub(crate) fn is_unsettled(&self, name: &[u8]) -> bool {
        self.placement.level.as_ref().is_some_and(|level| level.unsettled.get(level, name).is_some())
    }

    /// What the first answer of a call waited for, to be waited for again.
    pub(crate) fn ticket_again(&self, name: &[u8]) -> Ticket {
        Ticket(self.placement.level.as_ref().and_then(|level| level.unsettled.get(level, name)).map(Box::new))
    }

    /// The same for a verdict.
    ///
    /// # Errors
    /// As [`Engine::settle`].
    pub(crate) fn settle_verdict_again(&self, token: &Token) -> Result<()> {
        if self.placement.level.is_none() { Ok(()) } else { self.settle_again(&name_of_token(token)) }
    }

    /// Writes what the log says in words of its own; all shadows are told, so that they can be understood alone. Under the
    /// lock of what it is about; a repeat of the call is known by `name`. What ends something, and what accepts name, is of class
    /// `Decision`: a full store is emptied with it, and there is no more of it than of what began.
    ///
    /// # Errors
    /// `Full` where the hot log has no room: nothing is said.
    pub(crate) fn journal_blob(&self, class: Class, blob: Blob, data: &[u8], name: &[u8]) -> Result<Ticket> {
        // As with decisions: the hot log first, and it alone may refuse.
        self.decisions.log.append_blob(&self.placement.hot, class, blob, data)?;
        let Some(level) = &self.placement.level else { return Ok(Ticket::default()) };
        let position = level.log.append_blob(blob, data);
        let awaited = Awaited { position, devices: level.present().collect(), name: name.to_vec() };
        level.unsettled.note(level, &awaited);
        Ok(Ticket(Some(Box::new(awaited))))
    }
}
