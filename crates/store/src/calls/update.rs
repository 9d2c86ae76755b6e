//! New versions of fragments and of attributes: the highest valid version wins.
//!
//! ```text
//! slot busy ─▶ write version n+1 ─▶ flush, fence ─▶ supersede record ─▶ swap location ─▶ end version n
//!     where a device has version n: ─▶ n+1 persisted as well ─▶ the shadows are told that n has ended
//! ```
//!
//! *On failure*: after a crash between the new version and the record, recovery finds both versions, keeps the higher
//! one and books what the record would have said; then the record is written (`recover/mod.rs`).

use super::put::Claimed;
use crate::Store;
use crate::decisions::ON_HOT_ONLY;
use crate::engine::{Engine, closed};
use crate::events::{LeaseState, NIL, State};
use crate::placement::Ticket;
use crate::shards::Shard;
use forebay_core::mutants::is_planted;
use forebay_core::{Attributes, Error, Key, LiveState, Primary, Result, Tally, Token};
use forebay_media::bytes::{Decision, DecisionKind, Entry, StateWord};
use forebay_media::hot::{Class, Location, checksum};
use forebay_media::sync::{deadline_after, is_over};
use std::time::Duration;

/// Why a claim must be tried again.
enum Again {
    NoSpace,
    /// Another write of this key is in flight.
    InFlight,
    /// The entry at this pinned place of the warm level has to be read first.
    Read(Location),
}

impl Store {
    /// Replaces a fragment's bytes by a new version; a leased event only under its lease. In a store with devices,
    /// an update may be repeated after its outcome was unknown, also after a kill: while the version in force may not be
    /// acknowledged, the same bytes make no new version. The answer is then the number of that version, and no lease is
    /// needed. Without devices, and after an acknowledgement that was lost on its way, a repeat makes another version.
    ///
    /// # Errors
    /// `Invalid` where there is no such fragment, `Fenced` where the event is leased under another token,
    /// `Conflict` where it is decided, `Full`, `Unavailable` while another update of the key does not end, `OutcomeUnknown`
    /// where it is in force, and not known to survive the loss of the hot level, `Closed`.
    pub fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16> {
        let engine = self.engine();
        let length = engine.check_put(key, value.len())?;
        engine.relieve_log();
        if let Some(version) = engine.repeat_update(key, value)? {
            return Ok(version);
        }
        let deadline = engine.deadline_after(engine.config.put_deadline);
        let mut known = None;
        let (claimed, old_length) = loop {
            match engine.claim_version(key, length, token, known)? {
                Ok(claimed) => break claimed,
                Err(Again::Read(location)) => {
                    // Its entry is on a device: read without the lock, then looked at again.
                    let entry = engine.entry_of(location);
                    engine.unpin(location);
                    known = Some((location, entry?));
                }
                Err(again) => {
                    let full = matches!(again, Again::NoSpace);
                    if full {
                        engine.wait_for_space(Class::Existing, deadline);
                    } else {
                        engine.poll(Duration::from_millis(1), deadline);
                    }
                    if engine.timer().now() >= deadline {
                        return engine.explained(Err(if full {
                            Error::full(format!(
                                "no space for a new version, fill {:.0} %",
                                engine.placement.hot.fill() * 100.0
                            ))
                        } else {
                            Error::unavailable("another write of this key is in flight and did not end in time")
                        }));
                    }
                }
            }
        };
        let version = claimed.version;
        engine.placement.write_record(&claimed.place, &claimed.head(), value, StateWord::FRESH);
        engine.placement.hot.region.fence();
        let (ticket, on_device) = engine.swap_version(&claimed, old_length, token)?;
        if on_device {
            let told = engine.tell_version(key, version);
            if told.is_err() {
                engine.answered(key, false);
            }
            return told;
        }
        engine.settle(ticket).map(|()| version)
    }

    /// Sets attributes of an event, over what they were; a leased event only under its lease.
    ///
    /// # Errors
    /// `Invalid` where there is no such event or attribute, `Fenced`, `Conflict` where it is decided, `Full`, `Closed`.
    pub fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let mut shard = engine.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let event = engine.find(&shard, primary.as_bytes())?.ok_or_else(|| engine.no_event(primary))?;
        engine.check_may_change(&shard, event, token)?;
        let attached = engine.attach(&mut shard, event, attributes, false);
        drop(shard);
        engine.explained(attached)
    }
}

impl Engine {
    /// An update with the bytes that are in force already, of which it is not known whether a device has them: asked again
    /// after an unknown outcome, it makes no other version. `None` where this is no such repeat.
    fn repeat_update(&self, key: &Key, value: &[u8]) -> Result<Option<u16>> {
        if self.placement.level.is_none() {
            return Ok(None);
        }
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let entry = {
            let shard = self.shards.cell_of(primary).lock();
            if shard.closed {
                return Err(closed());
            }
            let Some(event) = self.find(&shard, primary)? else { return Ok(None) };
            let Ok((_, word)) = shard.events.slot(event, rest) else { return Ok(None) };
            if !word.is_present() || word.is_busy() {
                return Ok(None);
            }
            // Unanswered also where the version has gone down meanwhile, and all are told.
            let ended = shard.places.superseded.get(key);
            let is_open = ended.is_some_and(|ended| ended.on_hot_only || ended.is_unanswered);
            if !is_open && !self.is_unsettled(key.as_bytes()) {
                return Ok(None);
            }
            let location = word.location();
            if location.is_warm() {
                // It went down meanwhile. Pinned before the lock is released: the container stays while its device is read.
                self.pin(location);
                drop(shard);
                let entry = self.entry_of(location);
                self.unpin(location);
                entry.map_err(|error| {
                    Error::unknown(format!("the version in force cannot be read: {}", error.message()))
                        .with_source(error)
                })?
            } else {
                // Under the lock: the record may end as soon as it is released.
                let Some(entry) = self.placement.hot.read_entry(location) else { return Ok(None) };
                entry
            }
        };
        if entry.length as usize != value.len() || entry.payload_crc != checksum(value) {
            return Ok(None);
        }
        let version = self.tell_version(key, entry.version)?;
        self.answered(key, true);
        Ok(Some(version))
    }

    /// Whoever made the version in force has its answer, or was told that the outcome is unknown and may ask again.
    fn answered(&self, key: &Key, is_answered: bool) {
        let primary = self.keyspace.schema.primary_of(key);
        if let Some(ended) = self.shards.cell_of(primary.as_bytes()).lock().places.superseded.get_mut(key) {
            ended.is_unanswered = !is_answered;
        }
    }

    /// Has the version in force persisted where a device has one before it, and then tells the shadows that this one ended:
    /// a device must not be the only one to hear that. Telling them of a later version covers this one as well.
    fn tell_version(&self, key: &Key, version: u16) -> Result<u16> {
        let deadline =
            self.placement.level.as_ref().map_or_else(|| deadline_after(Duration::ZERO), |level| level.deadline());
        let (primary, _) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let unknown = |why: &str| {
            Error::unknown(format!(
                "version {version} is in force and survives this process, but only the hot level has it; if that is lost, \
                 the previous version is back: {why}"
            ))
        };
        // The last version of which a device may be without the one after it.
        let kept_back = |shard: &Shard| shard.places.superseded.get(key).filter(|e| e.on_hot_only).map(|e| e.version);
        let mut persisted = None;
        let ticket = loop {
            let last = {
                let mut shard = self.shards.cell_of(primary).lock();
                let (Some(event), Some(last)) = (shard.events.find(primary), kept_back(&shard)) else {
                    break self.ticket_again(key.as_bytes());
                };
                if shard.closed {
                    return Err(unknown("the store was closed meanwhile"));
                }
                if persisted == Some(last) {
                    shard.superseded_is_told(event, key, last.saturating_add(1));
                    let about = Decision::about(DecisionKind::Supersede, key.as_bytes());
                    break self.shadow(&shard, event, &Decision { detail: u32::from(last), ..about });
                }
                last
            };
            if persisted.is_some() && is_over(deadline) {
                return Err(unknown("one update follows another"));
            }
            // Without the lock: this waits for a device, and another update may come in between.
            self.persist(key).map_err(|error| unknown(error.message()).with_source(error))?;
            persisted = Some(last);
        };
        self.settle(ticket).map(|()| version)
    }

    pub(crate) fn no_event(&self, primary: &Primary) -> Error {
        Error::invalid(format!("{}: there is no such event", self.keyspace.schema.text(primary.as_bytes())))
    }

    /// An event may change while open or ready, or under its lease.
    fn check_may_change(&self, shard: &Shard, event: u32, token: Option<&Token>) -> Result<()> {
        let name = || self.keyspace.schema.text(shard.events.primary(event).as_bytes());
        match shard.events[event].state {
            State::Live(LiveState::Open | LiveState::Ready) if token.is_none() => Ok(()),
            State::Live(LiveState::Leased) if token.is_some_and(|token| self.holds(shard, event, token)) => Ok(()),
            State::Live(LiveState::Open | LiveState::Ready | LiveState::Leased) => {
                Err(Error::fenced(format!("{}: the event is not leased under this token", name())))
            }
            _ => Err(Error::conflict(format!("{}: the event is decided", name()))),
        }
    }

    /// Whether the token is the event's lease in force.
    pub(crate) fn holds(&self, shard: &Shard, event: u32, token: &Token) -> bool {
        let leaf = &shard.events[event];
        if leaf.state != State::Live(LiveState::Leased) || leaf.lease() == NIL {
            return false;
        }
        let lease = leaf.lease();
        debug_assert_eq!(shard.events.leases.out[lease].event, event, "lease {lease} is that of another event");
        let LeaseState { epoch, counter, .. } = shard.events.leases.out[lease];
        // By its number, not by the clock: a lease that has run out is in force until the store takes it back.
        is_planted("stale-token") || *token == Token { epoch, boot: self.life.boot, counter }
    }

    /// Marks the slot busy and reserves a place; answers the length of the old version.
    fn claim_version(
        &self,
        key: &Key,
        length: u32,
        token: Option<&Token>,
        known: Option<(Location, Entry)>,
    ) -> Result<std::result::Result<(Claimed, u32), Again>> {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.shards.cell_of(primary).lock();
        if shard.closed {
            return Err(closed());
        }
        let text = || self.keyspace.schema.text(key.as_bytes());
        let absent = || Error::invalid(format!("{}: there is no such fragment to update", text()));
        let event = self.find(&shard, primary)?.ok_or_else(absent)?;
        let (slot, word) = shard.events.slot(event, rest).map_err(|_| absent())?;
        if word.is_removed() {
            return Err(absent());
        }
        self.check_may_change(&shard, event, token)?;
        if word.is_busy() || word.is_pending() {
            return Ok(Err(Again::InFlight));
        }
        let location = word.location();
        // Used only while the slot names the same place: the entry was read without the lock.
        let entry = match known.filter(|known| known.0 == location) {
            Some((_, entry)) => Some(entry),
            None if location.is_warm() => {
                self.pin(location);
                return Ok(Err(Again::Read(location)));
            }
            None => self.placement.hot.read_entry(location),
        };
        let entry = entry.ok_or_else(|| Error::corrupt(format!("{}: its entry does not verify", text())))?;
        if entry.flags.is_elsewhere() {
            return Err(Error::invalid(format!("{}: another node has its bytes, which are not updated", text())));
        }
        // Later ones may have gone with the hot level: the next one is above those as well.
        let last = shard.places.superseded.get(key).map_or(0, |ended| ended.version).max(entry.version);
        let version =
            last.checked_add(1).ok_or_else(|| Error::invalid(format!("{}: has its last version, {last}", text())))?;
        let Some(place) = self.placement.hot.reserve_place(Class::Existing, length) else {
            return Ok(Err(Again::NoSpace));
        };
        debug_assert!(word.is_present(), "a version replaces a fragment that can be read");
        // Busy, so that nobody moves the old version, and no second update is numbered after it.
        shard.events.set_word(event, slot, word.busy());
        shard.events[event].pending += 1;
        let claimed = Claimed::version(&entry, word, event, place, length, version);
        Ok(Ok((claimed, entry.length)))
    }

    /// The new version takes the place of the old one. Answers whether a device has the old one, and the new one is to be
    /// persisted before the shadows are told.
    fn swap_version(&self, claimed: &Claimed, old_length: u32, token: Option<&Token>) -> Result<(Ticket, bool)> {
        let _effects = self.decisions.effects.begin();
        let (place, version) = (&claimed.place, claimed.version);
        let (primary, rest) = claimed.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let cell = self.shards.cell_of(primary);
        let mut shard = cell.lock();
        let event = claimed.event;
        let settled = (|| {
            if shard.closed {
                return Err(closed());
            }
            let gone = || Error::conflict("the fragment was removed or its event decided meanwhile");
            let (slot, word) = shard.events.slot(event, rest).map_err(|_| gone())?;
            if shard.events[event].state == State::Gone || word.is_removed() {
                return Err(gone());
            }
            debug_assert!(word.is_busy(), "the slot waits for this version");
            // Before what may refuse: the old version stays in force, and is for others to change.
            shard.events.set_word(event, slot, word.settled());
            self.check_may_change(&shard, event, token)?;
            let old = word.location();
            // Also one that is on its way there: its put may be answered at any moment; and one that took the place of such a
            // one without a device.
            let kept_back = shard.places.superseded.get(&claimed.key).is_some_and(|ended| ended.on_hot_only);
            let is_there = old.is_warm() || word.is_persisted() || self.lacks_devices();
            let on_device = is_there || shard.is_being_persisted(event) || kept_back;
            // Marks of the event travel with its first fragment: durable in the new version before the old one ends.
            self.keep_marks(&mut shard, event, Some(place.location));
            self.placement.hot.region.fence();
            let decision = Decision {
                token: token.copied().unwrap_or(Token::NONE),
                fragments: 1,
                bytes: u64::from(old_length),
                detail: u32::from(version - 1) | if on_device { ON_HOT_ONLY } else { 0 },
                ..Decision::about(DecisionKind::Supersede, claimed.key.as_bytes())
            };
            // The shadows do not hear that the version before has ended, until a device has this one.
            let ticket = if on_device {
                self.decisions.log.append(&self.placement.hot, &decision).map(|()| Ticket::default())?
            } else {
                self.record(&shard, event, &decision)?
            };
            if self.placement.level.is_some() || on_device {
                // A container may have it, or get it just now, where no mark says that it ended; and a device's log may
                // say it beside this one's.
                shard.note_superseded(event, claimed.key, version - 1);
                if on_device {
                    shard.places.keep_superseded_back(&claimed.key);
                }
            }
            if shard.leave_warm(event) {
                cell.publish_ready(&shard);
            }
            let here = word.of_fragment(word.is_late(), claimed.length).not_persisted().carried_to(place.location);
            shard.events.set_word(event, slot, here);
            if old.is_warm() {
                // With the hot level lost it is the only one: it ends with its event, or when that goes down.
                shard.places.copies.entry(event).or_default().push((old, 1));
            }
            let (old_tally, new_tally) =
                (Tally::fragment(u64::from(old_length)), Tally::fragment(u64::from(claimed.length)));
            let leaf = &mut shard.events[event];
            leaf.bytes = leaf.bytes - u64::from(old_length) + u64::from(claimed.length);
            let (run, state) = (leaf.run as usize, leaf.state);
            let count = shard.events.runs[run].sources.of(rest);
            count.fragments += 1;
            count.bytes += u64::from(claimed.length);
            let run = &mut shard.events.runs[run];
            run.ledger.offered += new_tally;
            run.ledger.stored += new_tally;
            run.ledger.superseded += old_tally;
            if let Some(here) = run.here(state) {
                *here += new_tally;
                *here -= old_tally;
            }
            debug_assert!(self.marks_have_a_home(&shard, event), "marks of event {event} went with a version");
            Ok((old, ticket, on_device))
        })();
        // Also where it failed: the version reports once.
        shard.events.settle(event);
        // Letting go of the new version is the last that this call does to the region.
        match settled {
            Ok((old, ticket, on_device)) => {
                if !old.is_warm() {
                    self.end_record(old, old_length);
                }
                self.placement.hot.region.fence();
                self.placement.hot.written(place.location.segment);
                Ok((ticket, on_device && self.placement.level.is_some()))
            }
            Err(error) => {
                self.placement.hot.abandon(place.location, claimed.length);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PutOptions, WarmDevice};
    use forebay_core::{Keyspace, Kind};
    use forebay_testkit::media::{FaultyDevice, SimDevice, SimMedium};

    /// Between the step of an update with which it is in force and the one with which devices hear of it, a later one takes
    /// its place, and no device takes that: the first is not answered for either.
    #[test]
    fn an_update_that_another_one_overtakes_is_told_with_it() {
        let device = FaultyDevice::new(SimDevice::new("device", 16 << 20));
        let config = Config {
            hot_bytes: 16 << 20,
            maintenance: false,
            container_bytes: 64 << 10,
            device_log_bytes: 256 << 10,
            persist_delay: Duration::ZERO,
            warm: vec![WarmDevice::device(device.clone(), 3 << 19)],
            ..Config::default()
        };
        let medium = SimMedium::new(config.hot_bytes);
        let store = Store::create_on(medium, &Keyspace::events("updates", 2).opening_runs(), config).unwrap();
        let key = store.schema().key(&[1, 1, 0]).unwrap();
        let persisted = PutOptions { persisted: true, ..PutOptions::default() };
        assert_eq!(store.put(&key, b"first", &persisted).unwrap(), crate::PutOutcome::Stored);

        let engine = store.engine();
        let Ok(Ok((claimed, old_length))) = engine.claim_version(&key, 6, None, None) else {
            panic!("nobody else updates it");
        };
        engine.placement.write_record(&claimed.place, &claimed.head(), b"second", StateWord::FRESH);
        let (ticket, on_device) = engine.swap_version(&claimed, old_length, None).unwrap();
        assert!(on_device);
        ticket.unanswered();
        device.refuse_writes("container-");
        assert_eq!(store.update(&key, b"third", None).unwrap_err().kind(), Kind::OutcomeUnknown);
        assert_eq!(engine.tell_version(&key, 1).unwrap_err().kind(), Kind::OutcomeUnknown);
        device.heal();
        assert_eq!(engine.tell_version(&key, 1).unwrap(), 1);
    }
}
