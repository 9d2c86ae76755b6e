//! Fragments that this node holds for events of other nodes, and what the home of an event tells those that hold parts of it.
//!
//! ```text
//! holder:  put ─▶ foreign event, to be told ─▶ untold ── put of an `Elsewhere` at the home ──▶ told: known there, or ended
//! home:    event ends, fragment removed ─▶ departures ── another node ──▶ depart: the holder's records end
//! ```
//!
//! *Invariants*: only its home ends what a holder has: by a departure, or by the answer that a fragment is late; a run is not
//! closed while a home may not know what is held here (`Run::untold`).
//!
//! *On failure*: departures that nobody took, or that did not arrive, are found again: everything that is held is compared
//! with what its home knows (`compare_held`).
//!
//! *Not here*: which node holds what (`core::map`); the connections between nodes (crate `cluster`).

use crate::engine::Engine;
use crate::events::{DEPARTURES_MAX, Departed, Departures, Ended, Flag, PlaceBits, State, Word};
use crate::limits::SHARDS;
use crate::shards::Shard;
use crate::{PutOptions, Store};
use forebay_core::limits::SUB_KEYS_MAX;
use forebay_core::map::{Role, Seat};
use forebay_core::{Attributes, Elsewhere, Error, Key, Level, LiveState, Primary, Report, Result, Tally};
use forebay_media::bytes::{Decision, DecisionKind, Entry};
use forebay_media::hot::Location;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A part of an event that this node holds, and of which its home may not know.
#[derive(Clone, Debug)]
pub struct HeldPart {
    /// The event.
    pub primary: Primary,
    /// Attributes that came with its fragments.
    pub attributes: Attributes,
    /// Its fragments here that the home may not know.
    pub fragments: Vec<HeldFragment>,
}

/// A fragment that this node holds for another one.
#[derive(Clone, Copy, Debug)]
pub struct HeldFragment {
    /// Its key.
    pub key: Key,
    /// What its home has in place of its bytes.
    pub away: Elsewhere,
    /// The producer's status bits.
    pub status: u32,
    /// Its record: what is answered is about this one.
    location: Location,
}

/// Bytes of a put.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Of the record.
    pub(super) here: u32,
    /// Of the fragment, which the account counts: more than its record has, where another node has the bytes.
    pub(crate) counted: u32,
}

impl Size {
    /// Of a fragment whose bytes are put.
    pub(crate) fn of(length: u32) -> Size {
        Size { here: length, counted: length }
    }
}

/// Whether the holder of a fragment asks if its home knows it: what it knows, or has ended, is not counted again.
pub(super) fn is_asked(options: &PutOptions<'_>) -> bool {
    options.level == Some(Level::Elsewhere) && options.report == Report::Later
}

impl Store {
    /// Parts of events of a home that it may not know: those to be told at once, or those that clients tell (`Later`), once they
    /// have waited this long. Each is behind the others the next time, also where there are more than `most`.
    ///
    /// # Errors
    /// `Corrupt` where only parts are left of which an entry does not verify, `Closed`.
    pub fn untold(&self, home: u16, report: Report, age: Duration, most: usize) -> Result<Vec<HeldPart>> {
        let engine = self.engine();
        let before = engine.now_ns().saturating_sub(forebay_core::nanoseconds(age));
        let (mut parts, mut failed, mut ended) = (Vec::new(), None, Ended::new());
        let _effects = engine.decisions.effects.begin();
        // Behind the shard that filled the walk before: one with many that the home does not take would keep the others from it.
        let walk = (home, report == Report::Prompt);
        let first = engine.shards.untold_from.lock().get(&walk).copied().unwrap_or(0);
        let mut behind = first;
        for at in (first..first + SHARDS).map(|at| at % SHARDS) {
            if parts.len() == most {
                break;
            }
            behind = at + 1;
            let mut shard = engine.shards.cells[at].lock();
            if shard.closed {
                failed = Some(crate::engine::closed());
                break;
            }
            let mut next = shard.events.next_untold(home, report, None);
            let mut again = None;
            while let Some(event) = next.filter(|_| parts.len() < most) {
                // This walk has listed some events again, at the end of the list: it ends before them.
                let since = shard.events[event].arrival_ns;
                if since > before || again == Some(event) {
                    break;
                }
                next = shard.events.next_untold(home, report, Some(event));
                match engine.held_part(&shard, event) {
                    Ok(part) if !part.fragments.is_empty() => parts.push(part),
                    Ok(_) if shard.events[event].pending > 0 => continue,
                    Ok(_) if shard.events[event].present == 0 => {
                        engine.end_foreign(&mut shard, event, &mut ended);
                        continue;
                    }
                    // What was new is gone again, or never came.
                    Ok(_) => {
                        shard.events.set_told(event);
                        continue;
                    }
                    // The others are told all the same.
                    Err(error) => failed = Some(error),
                }
                shard.events.list_again(event, report, since);
                again = again.or(Some(event));
            }
        }
        engine.shards.untold_from.lock().insert(walk, behind);
        engine.finish(&ended);
        match failed {
            Some(error) if parts.is_empty() => Err(error),
            _ => Ok(parts),
        }
    }

    /// The home of an event has answered for a part: it has these fragments no more, or never will, and knows the others.
    ///
    /// # Errors
    /// `Closed`.
    pub fn told(&self, part: &HeldPart, gone: &[Key]) -> Result<()> {
        let engine = self.engine();
        let schema = &engine.keyspace.schema;
        engine.end_held(&part.primary, |shard, event, ended| {
            // Only what is still the record that was told of: it may have ended, and another one have come.
            for fragment in &part.fragments {
                let rest = schema.rest_of(&fragment.key);
                let here = shard.events.slot(event, rest).ok().filter(|(_, word)| word.is_present());
                if here.is_none_or(|(_, word)| word.location() != fragment.location) {
                    continue;
                }
                // What an event had that has departed since has ended as well.
                if !gone.contains(&fragment.key) && !shard.events[event].is(Flag::Held) {
                    if !shard.events.is_told(event) {
                        shard.events.is_known(event, rest);
                    }
                } else if engine.end_held_fragment(shard, event, &fragment.key, ended) {
                    return;
                }
            }
            let all_known = || shard.events.fragments(event, |rest| !shard.events.is_known_at_home(event, rest));
            if !shard.events.is_told(event) && shard.events[event].pending == 0 && all_known().next().is_none() {
                shard.events.set_told(event);
            }
        })
    }

    /// The home of an event has not answered for a part: it is behind the others the next time.
    ///
    /// # Errors
    /// `Closed`.
    pub fn untaken(&self, part: &HeldPart) -> Result<()> {
        let engine = self.engine();
        engine.end_held(&part.primary, |shard, event, _| {
            let report = if shard.events.is_told_at_once(event) { Report::Prompt } else { Report::Later };
            shard.events.list_again(event, report, engine.now_ns());
        })
    }

    /// What ended at this home ends here. Of an event with fragments that the home is to be told of at once, those stay until it has
    /// answered: they are late, and in its account.
    ///
    /// # Errors
    /// `Closed`.
    pub fn depart(&self, home: u16, names: &[Departed]) -> Result<()> {
        let engine = self.engine();
        let schema = &engine.keyspace.schema;
        names.iter().try_for_each(|name| match name {
            Departed::Event(primary) => engine.end_held(primary, |shard, event, ended| {
                if shard.events[event].home() != home {
                    return;
                }
                if !shard.events.is_told_at_once(event) {
                    return engine.end_foreign(shard, event, ended);
                }
                let known = shard.events.fragments(event, |rest| shard.events.is_known_at_home(event, rest));
                let known: Vec<Key> = known.map(|(rest, _)| schema.join(primary, rest)).collect();
                shard.events[event].set(Flag::Held);
                for key in &known {
                    engine.end_held_fragment(shard, event, key, ended);
                }
            }),
            Departed::Fragment(key) => engine.end_held(&schema.primary_of(key), |shard, event, ended| {
                if shard.events[event].home() == home {
                    engine.end_held_fragment(shard, event, key, ended);
                }
            }),
        })
    }

    /// Everything that is held for a home is to be told again: it may have ended without a word.
    pub fn compare_held(&self, home: u16) {
        for cell in &self.engine().shards.cells {
            let mut shard = cell.lock();
            debug_assert!(shard.events.foreign_adds_up(), "what is here of foreign events is in their runs' sums");
            for event in shard.events.every_event() {
                if shard.events[event].state == State::Foreign && shard.events[event].home() == home {
                    shard.events.is_to_be_compared(event, self.engine().now_ns());
                }
            }
        }
    }

    /// Takes what ended here and may be held by other nodes.
    pub fn take_departures(&self) -> Departures {
        let mut all = Departures::default();
        for cell in &self.engine().shards.cells {
            let Departures { names, missed } = std::mem::take(&mut cell.lock().departures);
            all.names.extend(names);
            all.missed |= missed;
        }
        all
    }
}

impl Engine {
    /// A put as it is offered: of what another node has, the account counts the bytes there.
    #[inline]
    pub(super) fn check_offer(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<Size> {
        let here = self.check_put(key, value.len())?;
        if options.level != Some(Level::Elsewhere) {
            return Ok(Size::of(here));
        }
        let away = Elsewhere::from_bytes(value).ok_or_else(|| {
            Error::invalid(format!(
                "{here} bytes that say of no fragment that another node has it: give {}",
                Elsewhere::BYTES
            ))
        })?;
        Ok(Size { here, counted: self.check_put(key, away.length as usize)? })
    }

    pub(super) fn check_reserved(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Size> {
        if options.level == Some(Level::Elsewhere) {
            return Err(Error::invalid("what another node has is put, and not filled in place"));
        }
        self.check_persisted(options)?;
        self.check_put(key, length).map(Size::of)
    }

    /// What another node has comes late: its key is closed as long as the event lives, also over a restart. Its holder may ask after
    /// the event's lease, or its client tell after the holder has let it go, and both get the same answer.
    ///
    /// # Errors
    /// `Full` where the log has no room, `Invalid` where the event has none: the key stays open then.
    #[cold]
    pub(super) fn refuse_held(&self, shard: &mut Shard, event: u32, key: &Key) -> Result<()> {
        let rest = self.keyspace.schema.rest_of(key);
        // What is accepted takes nothing ever again.
        let may_wait_again = matches!(shard.events[event].state, State::Live(LiveState::Leased | LiveState::Debug));
        let (Err(slot), true) = (shard.events.slot(event, rest), may_wait_again) else { return Ok(()) };
        self.check_room(shard, event)?;
        let _effects = self.decisions.effects.begin();
        // As of a result that was removed: completeness does not count it.
        let closed = Decision { detail: 1, ..Decision::about(DecisionKind::RemoveKey, key.as_bytes()) };
        // Settled: a store with a look-up table has no devices.
        let _ = self.record(shard, event, &closed)?;
        shard.insert_slot(event, slot, rest, Word::REMOVED_KEY.of_result());
        shard.events.remove_slot_for_good(event, slot);
        self.placement.hot.removed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The node that leads an event.
    #[cold]
    pub(crate) fn home_of(&self, shard: &Shard, primary: &[u8]) -> u16 {
        shard.seat.as_ref().map_or(0, |seat| seat.home(self.keyspace.schema.run_of(primary), primary))
    }

    /// Whether a look-up table says where the bytes of a run are: what passed [`Engine::check_holder`] is on this node then.
    #[inline]
    pub(crate) fn has_table(&self, shard: &Shard, primary: &[u8]) -> bool {
        shard.seat.as_ref().is_some_and(|seat| seat.has_table(self.keyspace.schema.run_of(primary)))
    }

    /// A fragment that this node holds for another one.
    #[inline]
    pub(crate) fn find_held(&self, shard: &Shard, primary: &[u8], rest: &[u8]) -> Option<Word> {
        let seat = shard.seat.as_ref()?;
        if !seat.has_table(self.keyspace.schema.run_of(primary)) {
            return None;
        }
        let event = shard.events.find(primary).filter(|&event| shard.events[event].state == State::Foreign)?;
        shard.events.slot(event, rest).ok().map(|(_, word)| word).filter(|word| word.is_present())
    }

    /// Whether this node holds the bytes of a put by the run's look-up table. Where it does not, the put is for the event's home:
    /// without a table, and where it says that another node has the bytes.
    ///
    /// # Errors
    /// `Fenced` for bytes that another node holds; `Invalid` for a source that the table does not have, and for a fragment that
    /// is said to be elsewhere and is not.
    #[inline]
    pub(crate) fn check_holder(&self, shard: &Shard, key: &Key, options: &PutOptions<'_>) -> Result<bool> {
        let (schema, away) = (&self.keyspace.schema, options.level == Some(Level::Elsewhere));
        let run = || schema.run_of(key.as_bytes());
        let known = shard.seat.as_ref().and_then(|seat| Some((seat, seat.keyspace().table_for(run())?)));
        let Some((seat, table)) = known else {
            if away {
                return Err(Error::invalid(format!(
                    "run {} has no look-up table: its bytes are with its events",
                    run()
                )));
            }
            return Ok(false);
        };
        let holders = table.holders(schema.unpack_source(schema.rest_of(key), &mut [0; SUB_KEYS_MAX]));
        match holders.and_then(|holders| holders.first()) {
            Some(&holder) if (holder == seat.node()) != away => Ok(!away),
            holder => Err(self.refuse_source(seat, run(), key, holder.copied())),
        }
    }

    #[cold]
    fn refuse_source(&self, seat: &Seat, run: u64, key: &Key, holder: Option<u16>) -> Error {
        let (name, node, epoch) = (self.keyspace.schema.text(key.as_bytes()), seat.node(), seat.map().epoch());
        match holder {
            None => Error::invalid(format!("{name}: the look-up table of run {run} does not have this source")),
            Some(holder) if holder == node => Error::invalid(format!("{name}: this node holds this source itself")),
            Some(holder) => Error::fenced(format!(
                "{name}: node {holder} holds this source, and this is node {node} (epoch {epoch})"
            )),
        }
    }

    /// Bytes of a fragment on the hot level, as the account counts them.
    #[inline]
    pub(crate) fn counted(&self, location: Location, entry: &Entry) -> u32 {
        if !entry.flags.is_elsewhere() {
            return entry.length;
        }
        let hot = &self.placement.hot;
        let bytes = hot.region.bytes(hot.payload_offset(location.segment, entry.offset), entry.length as usize);
        Elsewhere::from_bytes(bytes).map_or(entry.length, |away| away.length)
    }

    /// The same, of a record that is not read yet.
    pub(crate) fn counted_at(&self, location: Location) -> u32 {
        let hot = &self.placement.hot;
        if self.life.epoch.load(Ordering::Relaxed) == 0 {
            return hot.length_of(location);
        }
        hot.read_entry(location).map_or_else(|| hot.length_of(location), |entry| self.counted(location, &entry))
    }

    /// What counts as the length of a fragment on the hot level; `None` for one on the warm level.
    pub(crate) fn hot_length(&self, place: PlaceBits) -> Option<u32> {
        let location = place.location();
        (!location.is_warm()).then(|| self.counted_at(location))
    }

    /// Other nodes are to be told something.
    pub(crate) fn stir(&self) {
        if let Some(home) = self.runs.home.get() {
            home.stirred();
        }
    }

    /// Something that may be held by other nodes ends here.
    pub(crate) fn note_departure(&self, shard: &mut Shard, run: u64, departed: impl FnOnce(&Shard) -> Departed) {
        if !shard.seat.as_ref().is_some_and(|seat| seat.has_table(run)) {
            return;
        }
        let departed = departed(shard);
        let Departures { names, missed } = &mut shard.departures;
        if names.len() == DEPARTURES_MAX {
            names.clear();
            *missed = true;
        }
        names.push(departed);
        if names.len() == 1 {
            self.stir();
        }
    }

    fn held_part(&self, shard: &Shard, event: u32) -> Result<HeldPart> {
        let primary = shard.events.primary(event);
        let mut fragments = Vec::new();
        for (rest, location) in shard.fragments(event, |rest| !shard.events.is_known_at_home(event, rest)) {
            let key = self.keyspace.schema.join(&primary, rest);
            let entry = self.placement.hot.read_entry(location);
            let entry = entry.ok_or_else(|| Error::corrupt(format!("{key:?}: its entry does not verify")))?;
            let away = Elsewhere { length: entry.length, checksum: entry.payload_crc };
            // What another node has was counted here while this one led the event.
            if !entry.flags.is_elsewhere() {
                fragments.push(HeldFragment { key, away, status: entry.status, location });
            }
        }
        Ok(HeldPart { primary, attributes: self.attributes(shard, event)?, fragments })
    }

    /// Ends something of a foreign event, if it is there, and marks its records.
    fn end_held(&self, primary: &Primary, end: impl FnOnce(&mut Shard, u32, &mut Ended)) -> Result<()> {
        let mut ended = Ended::new();
        // A snapshot waits until the marks are made, as for what is decided here.
        let _effects = self.decisions.effects.begin();
        {
            let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
            if shard.closed {
                return Err(crate::engine::closed());
            }
            let found = shard.events.find(primary.as_bytes());
            let Some(event) = found.filter(|&event| shard.events[event].state == State::Foreign) else { return Ok(()) };
            end(&mut shard, event, &mut ended);
        }
        self.finish(&ended);
        Ok(())
    }

    /// Answers whether that was the last one, so that the event has ended.
    fn end_held_fragment(&self, shard: &mut Shard, event: u32, key: &Key, ended: &mut Ended) -> bool {
        let rest = self.keyspace.schema.rest_of(key);
        let Some((slot, word)) = shard.events.slot(event, rest).ok().filter(|(_, word)| word.is_present()) else {
            return false;
        };
        debug_assert!(self.role(shard, self.keyspace.schema.primary_of(key).as_bytes()) != Role::Home);
        ended.push(word.place());
        // Closed as long as its event is held: a repeat of its put is late.
        shard.events.remove_slot_for_good(event, slot);
        self.placement.hot.removed.fetch_add(1, Ordering::Relaxed);
        let length = self.counted_at(word.location());
        let leaf = &mut shard.events[event];
        leaf.present -= 1;
        leaf.bytes -= u64::from(length);
        let (is_last, run) = (leaf.present == 0 && leaf.pending == 0, leaf.run as usize);
        shard.events.runs[run].foreign -= Tally::fragment(u64::from(length));
        if is_last {
            self.end_foreign(shard, event, ended);
        }
        is_last
    }
}
