//! The attributes of an event: a record of its own in the hot level, versioned like a fragment, located by the event.

use crate::engine::Engine;
use crate::home::{Shard, Word};
use crate::hot::{Class, checksum};
use forebay_core::{Attributes, Entry, EntryFlags, Error, Result, StateWord};

impl Engine {
    /// Writes the attributes of an event as a record of its own, under the event's lock.
    pub(crate) fn attach(&self, shard: &mut Shard, event: u32, attributes: &Attributes, only_new: bool) -> Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        let schema = &self.keyspace.attributes;
        if schema.is_empty() {
            return Err(Error::invalid("this keyspace has no attributes"));
        }
        let standing = shard.attribute_word(event).map(Word::location);
        let earlier = self.attributes(shard, event)?;
        let name = || self.keyspace.schema.text(shard.primary(event).as_bytes());
        let Some(merged) = attributes.merged(&earlier, only_new) else {
            return Err(Error::conflict(format!("{}: an attribute is already set to another value", name())));
        };
        if merged == earlier {
            return Ok(());
        }
        let mut packed = vec![0; schema.packed_bytes()];
        merged.pack(schema, &mut packed);
        let version = match standing.and_then(|location| self.hot.read_entry(location)) {
            None => 0,
            Some(entry) => entry.version.checked_add(1).ok_or_else(|| Error::invalid("no more versions"))?,
        };
        let place = self.hot.reserve_place(Class::Existing, packed.len() as u32).ok_or_else(|| {
            Error::full(format!("{}: no space for its attributes, fill {:.0} %", name(), self.hot.fill() * 100.0))
        })?;
        let offset = self.hot.payload_offset(place.location.segment, place.offset);
        let payload_crc = self.hot.region.copy_in(offset, &packed);
        let zeros = [0; forebay_core::limits::KEY_BYTES_MAX];
        let key = self.keyspace.schema.join(&shard.primary(event), &zeros[..self.keyspace.schema.rest_bytes()]);
        let (length, flags) = (packed.len() as u32, EntryFlags::ATTRIBUTES);
        let entry = Entry { key, offset: place.offset, length, payload_crc, status: 0, version, flags };
        self.hot.write_entry(&place, &entry, StateWord::FRESH);
        self.hot.region.fence();
        self.hot.segment(place.location.segment).written();
        shard.set_attribute_word(event, Word::at(place.location));
        if let Some(location) = standing {
            self.hot.end_record(location, length);
            self.hot.region.fence();
        }
        Ok(())
    }

    /// The attributes of an event, under its lock.
    pub(crate) fn attributes(&self, shard: &Shard, event: u32) -> Result<Attributes> {
        let Some(word) = shard.attribute_word(event) else { return Ok(Attributes::new()) };
        let location = word.location();
        let entry =
            self.hot.read_entry(location).ok_or_else(|| Error::corrupt("an attribute record does not verify"))?;
        let bytes =
            self.hot.region.bytes(self.hot.payload_offset(location.segment, entry.offset), entry.length as usize);
        if checksum(bytes) != entry.payload_crc {
            return Err(Error::corrupt("an attribute block does not match its checksum"));
        }
        Attributes::unpack(&self.keyspace.attributes, bytes)
    }
}
