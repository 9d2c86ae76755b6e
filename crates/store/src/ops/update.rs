//! New versions of fragments and of attributes: the highest valid version wins.
//!
//! ```text
//! slot busy ─▶ write version n+1 ─▶ flush, fence ─▶ supersede record ─▶ swap location ─▶ end version n
//! ```
//!
//! *On failure*: after a crash between the new version and the record, recovery finds both versions, keeps the higher
//! one and books what the record would have said; then the record is written (`recover/mod.rs`).

use super::put::Claimed;
use crate::Store;
use crate::engine::{Engine, closed, deadline_after};
use crate::home::{Flag, NIL, Shard, State};
use crate::hot::{Class, Location};
use forebay_core::{
    Attributes, Decision, DecisionKind, Entry, Error, Key, LiveState, Primary, Result, StateWord, Tally, Token,
};
use std::time::{Duration, Instant};

/// Why a claim must be tried again.
enum Again {
    NoSpace,
    /// Another write of this key is in flight.
    InFlight,
    /// The entry at this pinned place of the warm level has to be read first.
    Read(Location),
}

impl Store {
    /// Replaces a fragment's bytes by a new version; a leased event only under its lease.
    ///
    /// # Errors
    /// `Invalid` where there is no such fragment, `Fenced` where the event is leased under another token,
    /// `Conflict` where it is decided, `Full`, `Unavailable` while another update of the key does not end, `Closed`.
    pub fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16> {
        let engine = self.engine();
        let length = engine.check_put(key, value.len())?;
        engine.relieve_log();
        let deadline = deadline_after(engine.config.put_deadline);
        let mut known = None;
        let (claimed, version, old_length) = loop {
            match engine.claim_version(key, length, token, known)? {
                Ok(claimed) => break claimed,
                Err(Again::Read(location)) => {
                    // Its entry stands on a device: read without the lock, then looked at again.
                    let entry = engine.entry_of(location);
                    engine.unpin(location);
                    known = Some((location, entry?));
                }
                Err(again) => {
                    let full = matches!(again, Again::NoSpace);
                    let pause = Instant::now() + Duration::from_millis(1);
                    if full {
                        engine.hot.wait_for_space(Class::Existing, deadline);
                    } else {
                        std::thread::sleep(pause.saturating_duration_since(Instant::now()));
                    }
                    if Instant::now() >= deadline {
                        return Err(if full {
                            Error::full(format!("no space for a new version, fill {:.0} %", engine.hot.fill() * 100.0))
                        } else {
                            Error::unavailable("another write of this key is in flight and did not end in time")
                        });
                    }
                }
            }
        };
        let place = claimed.place;
        let crc = engine.hot.region.copy_in(engine.hot.payload_offset(place.location.segment, place.offset), value);
        engine.swap_version(&claimed, crc, (version, old_length), token)
    }

    /// Sets attributes of an event, over what they were; a leased event only under its lease.
    ///
    /// # Errors
    /// `Invalid` where there is no such event or attribute, `Fenced`, `Conflict` where it is decided, `Full`, `Closed`.
    pub fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let mut shard = engine.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let event = shard.find(primary.as_bytes()).ok_or_else(|| engine.no_event(primary))?;
        engine.check_may_change(&shard, event, token)?;
        engine.attach(&mut shard, event, attributes, false)
    }
}

impl Engine {
    pub(crate) fn no_event(&self, primary: &Primary) -> Error {
        Error::invalid(format!("{}: there is no such event", self.keyspace.schema.text(primary.as_bytes())))
    }

    /// An event may change while open or ready, or under its lease.
    fn check_may_change(&self, shard: &Shard, event: u32, token: Option<&Token>) -> Result<()> {
        let name = || self.keyspace.schema.text(shard.primary(event).as_bytes());
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
        let lease = shard.events[event].lease;
        let leased = shard.events[event].state == State::Live(LiveState::Leased) && lease != NIL;
        leased && *token == Token { epoch: 0, boot: self.boot, counter: shard.leases[lease].counter }
    }

    /// Marks the slot busy and reserves a place; answers the new version and the length of the old one.
    fn claim_version(
        &self,
        key: &Key,
        length: u32,
        token: Option<&Token>,
        known: Option<(Location, Entry)>,
    ) -> Result<std::result::Result<(Claimed, u16, u32), Again>> {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut shard = self.cell_of(primary).lock();
        if shard.closed {
            return Err(closed());
        }
        let text = || self.keyspace.schema.text(key.as_bytes());
        let absent = || Error::invalid(format!("{}: there is no such fragment to update", text()));
        let event = shard.find(primary).ok_or_else(absent)?;
        let (slot, word) = shard.slot(event, rest).map_err(|_| absent())?;
        if word.is_removed() {
            return Err(absent());
        }
        self.check_may_change(&shard, event, token)?;
        if word.is_busy() || word.is_pending() {
            return Ok(Err(Again::InFlight));
        }
        let location = word.location();
        let entry = match known.filter(|known| known.0 == location) {
            Some((_, entry)) => Some(entry),
            None if location.is_warm() => {
                self.pin(location);
                return Ok(Err(Again::Read(location)));
            }
            None => self.hot.read_entry(location),
        };
        let entry = entry.ok_or_else(|| Error::corrupt(format!("{}: its entry does not verify", text())))?;
        let version = entry
            .version
            .checked_add(1)
            .ok_or_else(|| Error::invalid(format!("{}: has its last version, {}", text(), entry.version)))?;
        let Some(place) = self.hot.reserve_place(Class::Existing, length) else {
            return Ok(Err(Again::NoSpace));
        };
        shard.set_word(event, slot, word.busy());
        shard.events[event].pending += 1;
        Ok(Ok((Claimed::version(*key, event, place, length, entry.status, word), version, entry.length)))
    }

    fn swap_version(
        &self,
        claimed: &Claimed,
        crc: u32,
        (version, old_length): (u16, u32),
        token: Option<&Token>,
    ) -> Result<u16> {
        let _effects = self.quiesce.read();
        let place = &claimed.place;
        self.hot.write_entry(place, &self.fragment_entry(claimed, crc, version), StateWord::FRESH);
        self.hot.region.fence();
        let (primary, rest) = claimed.key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let cell = self.cell_of(primary);
        let mut shard = cell.lock();
        let event = claimed.event;
        let settled = (|| {
            if shard.closed {
                return Err(closed());
            }
            let gone = || Error::conflict("the fragment was removed or its event decided meanwhile");
            let (slot, word) = shard.slot(event, rest).map_err(|_| gone())?;
            if shard.events[event].state == State::Gone || word.is_removed() {
                return Err(gone());
            }
            shard.set_word(event, slot, word.settled());
            self.check_may_change(&shard, event, token)?;
            let old = word.location();
            // Marks of the event travel with its first fragment: durable in the new version before the old one ends.
            let marks = shard.events[event].marks();
            if marks != StateWord::FRESH && shard.events[event].is(Flag::Warm) {
                self.log_marks(&mut shard, event);
            } else if marks != StateWord::FRESH {
                self.hot.mark(place.location, marks);
                self.hot.region.fence();
            }
            self.record_now(
                &shard,
                event,
                &Decision {
                    token: token.copied().unwrap_or(Token::NONE),
                    fragments: 1,
                    bytes: u64::from(old_length),
                    detail: u32::from(version - 1),
                    ..Decision::about(DecisionKind::Supersede, claimed.key.as_bytes())
                },
            )?;
            if self.level.is_some() {
                // A container may have it, or get it just now, where no mark says that it ended; and a device's log may
                // say it beside this one's.
                shard.note_superseded(event, claimed.key, version - 1);
            }
            if shard.leave_warm(event) {
                cell.publish_ready(&shard);
            }
            shard.set_word(
                event,
                slot,
                word.of_fragment(word.is_late(), claimed.length).not_persisted().moved_to(place.location),
            );
            let (old_tally, new_tally) =
                (Tally::fragment(u64::from(old_length)), Tally::fragment(u64::from(claimed.length)));
            let leaf = &mut shard.events[event];
            leaf.bytes = leaf.bytes - u64::from(old_length) + u64::from(claimed.length);
            let (run, state) = (leaf.run as usize, leaf.state);
            let count = shard.runs[run].sources.of(rest);
            count.fragments += 1;
            count.bytes += u64::from(claimed.length);
            let ledger = &mut shard.runs[run].ledger;
            ledger.offered += new_tally;
            ledger.stored += new_tally;
            ledger.superseded += old_tally;
            if let State::Live(state) = state {
                *ledger.live(state) += new_tally;
                *ledger.live(state) -= old_tally;
            }
            Ok(old)
        })();
        shard.settle(event);
        // Letting go of the new version is the last that this call does to the region.
        match settled {
            Ok(old) => {
                self.end_record(old, old_length);
                self.hot.region.fence();
                self.hot.written(place.location.segment);
                Ok(version)
            }
            Err(error) => {
                self.hot.abandon(place.location, claimed.length);
                Err(error)
            }
        }
    }
}
