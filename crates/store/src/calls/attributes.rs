//! The event's own record: attributes and, where it was announced with them, its sources; versioned like a fragment,
//! located by the event.
//!
//! ```text
//! packed attributes (of the schema's length) | packed sources, one after the other        status: 1 own sources, 2 announced
//! ```

use crate::engine::{Engine, closed};
use crate::events::{Flag, State, Word};
use crate::placement::{RecordHead, WarmRecord};
use crate::shards::Shard;
use forebay_core::{Attributes, Error, LiveState, Order, Result, Source};
use forebay_media::bytes::{EntryFlags, StateWord};
use forebay_media::hot::{Class, Location, checksum};

/// Status bits of an event's record.
const OWN_SOURCES: u32 = 1;
const ANNOUNCED: u32 = 2;

/// The content of an event record.
pub(crate) struct EventRecord {
    pub(crate) attributes: Attributes,
    pub(crate) own: Option<Vec<Source>>,
    pub(crate) announced: bool,
}

impl Engine {
    /// Adds attributes to an event, under its lock: new ones only, or over what they were.
    pub(crate) fn attach(&self, shard: &mut Shard, event: u32, attributes: &Attributes, only_new: bool) -> Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        if self.keyspace.attributes.is_empty() {
            return Err(Error::invalid("this keyspace has no attributes"));
        }
        // Many sources send the same attributes with each fragment: a record is written only for what is new.
        let earlier = self.attributes(shard, event)?;
        let merged = self.merged(shard, event, attributes, &earlier, only_new)?;
        if merged == earlier {
            return Ok(());
        }
        self.write_event_record(shard, event, &merged, false)?;
        self.follow_attributes(shard, event, &merged);
        Ok(())
    }

    pub(crate) fn merged(
        &self,
        shard: &Shard,
        event: u32,
        attributes: &Attributes,
        earlier: &Attributes,
        only_new: bool,
    ) -> Result<Attributes> {
        attributes.merged(earlier, only_new).ok_or_else(|| {
            let name = self.keyspace.schema.text(shard.events.primary(event).as_bytes());
            Error::conflict(format!("{name}: an attribute is already set to another value"))
        })
    }

    /// Writes a new version of the event's record: these attributes, and what the shard knows of its sources. `announces`:
    /// these sources are new, and what the event has is counted by them after this.
    pub(crate) fn write_event_record(
        &self,
        shard: &mut Shard,
        event: u32,
        attributes: &Attributes,
        announces: bool,
    ) -> Result<()> {
        let leaf = &shard.events[event];
        if leaf.is(Flag::Booked) && !leaf.is_marked_ready() {
            // Ready by another rule than the one that this record may bring: it stays ready, even if the new rule would
            // still wait.
            shard.events[event].mark_ready();
            self.mark_event(shard, event);
            self.placement.hot.region.fence();
        }
        let schema = &self.keyspace.attributes;
        let current = shard.events.attribute_word(event).map(Word::location);
        let mut packed = vec![0; if schema.is_empty() { 0 } else { schema.packed_bytes() }];
        if !schema.is_empty() {
            attributes.pack(schema, &mut packed);
        }
        let mut status = if shard.events[event].is(Flag::Announced) { ANNOUNCED } else { 0 };
        if let Some(own) = shard.events.own_rules.get(&event) {
            own.sources().iter().for_each(|source| packed.extend_from_slice(source));
            status |= OWN_SOURCES;
        }
        let warm = shard.places.warm_records.get(&event).map(|record| record.version);
        // Above the version of either level: recovery may find both records.
        let version = warm.or_else(|| {
            current.and_then(|location| self.placement.hot.read_entry(location)).map(|entry| entry.version)
        });
        let version = version.map_or(Some(0), |version| version.checked_add(1));
        let version = version.ok_or_else(|| Error::invalid("no more versions"))?;
        let name = || self.keyspace.schema.text(shard.events.primary(event).as_bytes());
        if packed.len() as u64 > self.placement.hot.payload_bytes_max() {
            return Err(Error::invalid(format!(
                "{}: its record takes {} bytes, a segment holds {}",
                name(),
                packed.len(),
                self.placement.hot.payload_bytes_max()
            )));
        }
        let place = self.placement.hot.reserve_place(Class::Existing, packed.len() as u32).ok_or_else(|| {
            Error::full(format!(
                "{}: no space for its attributes, fill {:.0} %",
                name(),
                self.placement.hot.fill() * 100.0
            ))
        })?;
        // Under the key of source 0, even if that source has a fragment: the flags say that it is no fragment.
        let zeros = [0; forebay_core::limits::KEY_BYTES_MAX];
        let key = self.keyspace.schema.join(&shard.events.primary(event), &zeros[..self.keyspace.schema.rest_bytes()]);
        let head = RecordHead { key, status, version, flags: EntryFlags::ATTRIBUTES };
        let state = self.record_state(shard, event, attributes, announces);
        self.placement.write_record(&place, &head, &packed, state);
        self.placement.hot.region.fence();
        shard.events.set_attribute_word(event, Word::of(place.location));
        debug_assert!(current != Some(place.location), "a version has a place of its own");
        // The copy in memory is that of the record on the warm level.
        shard.places.warm_records.remove(&event);
        if shard.leave_warm(event) {
            self.shards.cell_of(shard.events.primary(event).as_bytes()).publish_ready(shard);
        }
        // The old version ends after the new one is durable: a crash in between leaves two, and the higher one counts.
        if let Some(location) = current {
            self.end_attributes(location);
            self.placement.hot.region.fence();
        }
        self.placement.hot.written(place.location.segment);
        Ok(())
    }

    /// The word of a new record. Of an event that waits no more it says that it is ready, and whether masks complete it by the
    /// rule that this record brings: the marks beside its fragments follow later, and a crash in between leaves those of the
    /// rule before.
    fn record_state(&self, shard: &mut Shard, event: u32, attributes: &Attributes, announces: bool) -> StateWord {
        let leaf = &shard.events[event];
        if !leaf.is(Flag::Booked) {
            return StateWord::FRESH;
        }
        let rule = self.rule_by(shard, event, attributes);
        let masked = match announces || rule != leaf.rule {
            true => shard.events.is_masked_by(event, rule),
            // Also by masks that were lifted since.
            false => leaf.is(Flag::LacksMasked),
        };
        StateWord { ready: true, masked, ..StateWord::FRESH }
    }

    /// Masks complete the event since its record was written: where the record says that it is ready, it is believed before
    /// the marks beside fragments. Flushed, not fenced.
    pub(crate) fn mark_record(&self, shard: &Shard, event: u32) {
        let hot = &self.placement.hot;
        let record = shard.events.attribute_word(event).map(Word::location).filter(|location| !location.is_warm());
        let marks = shard.events[event].marks();
        if let Some((location, state)) = record.and_then(|location| Some((location, hot.state_of(location)?)))
            && state.ready
            && state.masked != marks.masked
        {
            hot.mark(location, StateWord { masked: marks.masked, ..state });
        }
    }

    /// The rule of an event with these attributes. Sources of its own, where it was announced with some, are more than its
    /// class says: those stay.
    fn rule_by(&self, shard: &Shard, event: u32, attributes: &Attributes) -> u8 {
        let leaf = &shard.events[event];
        let plan = &shard.events.runs[leaf.run as usize].plan;
        if !plan.has_classes() || shard.events.own_rules.contains_key(&event) {
            return leaf.rule;
        }
        plan.rule_of_class(self.roles.class.and_then(|at| attributes.get(at)))
    }

    /// What follows from an event's attributes: the rule of its class, its rank in delivery, whether a hold covers it.
    pub(crate) fn follow_attributes(&self, shard: &mut Shard, event: u32, attributes: &Attributes) {
        let rule = self.rule_by(shard, event, attributes);
        if rule != shard.events[event].rule {
            shard.events[event].rule = rule;
            self.reconsider(shard, event);
        }
        if let Some(rank) = self.rank_of(attributes) {
            let before = shard.events.rank(event);
            // The last rank is what an event without one has: it takes no memory.
            if rank != u128::MAX {
                shard.events.ranks.insert(event, rank);
            }
            let leaf = &shard.events[event];
            if leaf.state == State::Live(LiveState::Ready) && !leaf.is(Flag::Held) && rank != before {
                let stage = usize::from(leaf.stage()).min(shard.events.lists.ready.len() - 1);
                let events = &mut shard.events;
                events.lists.ready[stage].rerank(&events.slab, event, before, rank);
            }
        }
        if shard.events[event].is(Flag::Held) {
            // Delivery looks again whether a hold covers it.
            shard.events.let_go(event);
            self.shards.cell_of(shard.events.primary(event).as_bytes()).publish_ready(shard);
        }
    }

    /// Counts again what an event has; where that makes it ready, this is durable and published. While records are
    /// still being found nothing becomes ready.
    pub(crate) fn reconsider(&self, shard: &mut Shard, event: u32) {
        if shard.events.recovering {
            return;
        }
        let before = shard.events[event].state;
        shard.events.reconsider(event);
        let leaf = &shard.events[event];
        if leaf.state == before && leaf.is_marked_ready() {
            self.mark_event(shard, event);
            self.lower_marks(shard, event);
            self.placement.hot.region.fence();
        }
        if shard.events[event].state != before {
            self.keep_ready(shard, event);
            self.shards.cell_of(shard.events.primary(event).as_bytes()).publish_ready(shard);
            self.events.waiting.notify();
        }
    }

    /// Place in the order of delivery by attribute: lower goes first. `None` where no attribute gives the order.
    pub(crate) fn rank_of(&self, attributes: &Attributes) -> Option<u128> {
        let at = self.roles.order?;
        let value = attributes.get(at);
        // The last rank is that of events without the attribute.
        const LAST: u128 = u128::MAX - 1;
        Some(match self.keyspace.delivery.order {
            Order::Highest(_) => value.map_or(u128::MAX, |value| LAST.saturating_sub(value)),
            _ => value.map_or(u128::MAX, |value| value.min(LAST)),
        })
    }

    /// The attributes of an event, under its lock.
    pub(crate) fn attributes(&self, shard: &Shard, event: u32) -> Result<Attributes> {
        if shard.closed {
            // The region may be another process's.
            return Err(closed());
        }
        Ok(match shard.events.attribute_word(event) {
            Some(word) if !self.keyspace.attributes.is_empty() => self.event_record(shard, event, word)?.attributes,
            _ => Attributes::new(),
        })
    }

    /// Ends an event's record, on any level.
    pub(crate) fn end_attributes(&self, location: Location) {
        let length = if location.is_warm() { 0 } else { self.placement.hot.length_of(location) };
        self.end_record(location, length);
    }

    /// Reads an event's record.
    pub(crate) fn event_record(&self, shard: &Shard, event: u32, word: Word) -> Result<EventRecord> {
        let location = word.location();
        // In memory, because filters ask for attributes under the event's lock, where no device is read.
        if location.is_warm() {
            let record = shard.places.warm_records.get(&event);
            let record =
                record.ok_or_else(|| Error::internal("the record of an event on the warm level is not known"))?;
            return self.decode_record(record.status, &record.bytes);
        }
        let entry = self
            .placement
            .hot
            .read_entry(location)
            .ok_or_else(|| Error::corrupt("an event's record does not verify"))?;
        let bytes = self
            .placement
            .hot
            .region
            .bytes(self.placement.hot.payload_offset(location.segment, entry.offset), entry.length as usize);
        // Always, unlike payloads: a rotten attribute would send an event to the wrong class or stream, for good.
        if checksum(bytes) != entry.payload_crc {
            return Err(Error::corrupt("an event's record does not match its checksum"));
        }
        self.decode_record(entry.status, bytes)
    }

    /// An event's record, whole, to be written with its image; `None` where it has none, or none that can be read.
    pub(crate) fn record_bytes_of(&self, shard: &Shard, event: u32) -> Option<WarmRecord> {
        let location = shard.events.attribute_word(event)?.location();
        if location.is_warm() {
            return shard.places.warm_records.get(&event).cloned();
        }
        let entry = self.placement.hot.read_entry(location)?;
        let offset = self.placement.hot.payload_offset(location.segment, entry.offset);
        let bytes = self.placement.hot.region.bytes(offset, entry.length as usize);
        let good = checksum(bytes) == entry.payload_crc;
        good.then(|| WarmRecord { status: entry.status, version: entry.version, bytes: bytes.into() })
    }

    /// The version of an event's record.
    pub(crate) fn record_version(&self, shard: &Shard, event: u32, word: Word) -> Option<u16> {
        if word.is_warm() {
            return shard.places.warm_records.get(&event).map(|record| record.version);
        }
        self.placement.hot.read_entry(word.location()).map(|entry| entry.version)
    }

    fn decode_record(&self, status: u32, bytes: &[u8]) -> Result<EventRecord> {
        let schema = &self.keyspace.attributes;
        let length = if schema.is_empty() { 0 } else { schema.packed_bytes() };
        let (packed, sources) =
            bytes.split_at_checked(length).ok_or_else(|| Error::corrupt("an event's record is too short"))?;
        let attributes = if schema.is_empty() { Attributes::new() } else { Attributes::unpack(schema, packed)? };
        let width = self.keyspace.schema.rest_bytes();
        let own = (status & OWN_SOURCES != 0).then(|| sources.chunks_exact(width).map(Source::from_packed).collect());
        Ok(EventRecord { attributes, own, announced: status & ANNOUNCED != 0 })
    }
}
