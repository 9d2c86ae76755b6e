//! A put of a key that is taken: the same bytes are a duplicate and succeed; others are a conflict, and are kept within a
//! quota for a person to look at.

use super::holder::Size;
use crate::engine::{Engine, closed};
use crate::events::IncidentKind;
use crate::placement::{Kept, RecordHead};
use crate::{PutOutcome, RunState};
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Key, Result, Tally};
use forebay_media::bytes::{EntryFlags, StateWord};
use forebay_media::hot::{Class, Location, checksum};
use std::sync::atomic::Ordering;

impl Engine {
    /// There is a fragment: the same bytes are a duplicate, others a conflict.
    #[cold]
    pub(crate) fn compare(
        &self,
        key: &Key,
        location: Location,
        (value, size): (&[u8], Size),
        is_asked: bool,
    ) -> Result<PutOutcome> {
        // By length and checksum, not byte by byte: of a record on the warm level only its entry is read.
        let stored = self.entry_of(location);
        self.unpin(location);
        let stored = stored.map_err(|error| {
            Error::corrupt(format!("{}: its entry cannot be read", self.keyspace.schema.text(key.as_bytes())))
                .with_source(error)
        })?;
        let crc = checksum(value);
        let same = stored.length as usize == value.len() && stored.payload_crc == crc;
        let primary = self.keyspace.schema.primary_of(key);
        if is_asked {
            let name = || self.keyspace.schema.text(key.as_bytes());
            let differs =
                || Error::conflict(format!("{}: its holder has other bytes than those that are counted", name()));
            return if same { Ok(PutOutcome::Duplicate) } else { Err(differs()) };
        }
        let offered = Tally::fragment(u64::from(size.counted));
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let Some(run) = shard.events.run_index(self.keyspace.schema.run_of(key.as_bytes())) else {
            return Err(Error::internal("a fragment of an unknown run"));
        };
        // Under a look-up table the node that has the bytes answers a conflict alone: their home is not told.
        if self.books(&shard, key) || !same && self.has_table(&shard, primary.as_bytes()) {
            let ledger = &mut shard.events.runs[run as usize].ledger;
            ledger.offered += offered;
            match same {
                true if is_planted("duplicate-uncounted") => {}
                false if !is_planted("conflict-is-duplicate") => ledger.conflict += offered,
                _ => ledger.duplicate += offered,
            }
        }
        if same {
            return Ok(PutOutcome::Duplicate);
        }
        shard.events.runs[run as usize].sources.of(self.keyspace.schema.rest_of(key)).conflicts += 1;
        self.note_incident(&mut shard, key, IncidentKind::Conflict, size.counted);
        // A producer that repeats the same wrong bytes must not use the quota up.
        let known = shard.places.kept.iter().any(|kept| kept.key == *key && kept.checksum == crc);
        drop(shard);
        // What says that another node has the bytes is of no use to a person.
        let is_here = size.counted as usize == value.len();
        let kept = known || is_here && self.keep_conflict(key, value);
        Err(Error::conflict(format!(
            "{}: {} bytes (checksum {crc:08x}) differ from the {} (checksum {:08x}) that are there; the new ones are {}",
            self.keyspace.schema.text(key.as_bytes()),
            value.len(),
            stored.length,
            stored.payload_crc,
            if kept {
                "kept in the debug stream"
            } else {
                "not kept: the debug stream's quota for conflicts is used up"
            }
        )))
    }

    /// Keeps conflicting bytes for a person, within the quota; `false` where there is no room.
    fn keep_conflict(&self, key: &Key, value: &[u8]) -> bool {
        let length = value.len() as u32;
        let size = self.placement.hot.record_bytes(length);
        let quota = (self.config.conflict_share * self.placement.hot.geometry.region_bytes() as f64) as u64;
        // Taken first, given back where it is too much: two that look at the same time would both fit.
        if self.events.conflict_bytes.fetch_add(size, Ordering::Relaxed) + size > quota {
            self.events.forget_conflict(size);
            return false;
        }
        let primary = self.keyspace.schema.primary_of(key);
        let cell = self.shards.cell_of(primary.as_bytes());
        let place = {
            let shard = cell.lock();
            // Only from what new events may use: copies for a person never take what live events reserve.
            let may = !shard.closed && self.placement.hot.admits(Class::NewEvent);
            if may { self.placement.hot.reserve_place(Class::NewEvent, length) } else { None }
        };
        let Some(place) = place else {
            self.events.forget_conflict(size);
            return false;
        };
        let head = RecordHead { key: *key, status: 0, version: 0, flags: EntryFlags::CONFLICT };
        let checksum = self.placement.write_record(&place, &head, value, StateWord::FRESH);
        self.placement.hot.region.fence();
        let mut shard = cell.lock();
        let run = shard.events.run_index(self.keyspace.schema.run_of(key.as_bytes()));
        // Asked again under the lock: a close of the run in between has dropped its copies.
        let over = run.is_none_or(|run| shard.events.runs[run as usize].state == RunState::Closed);
        if over || shard.closed {
            self.events.forget_conflict(size);
            self.placement.hot.abandon(place.location, length);
            return false;
        }
        shard.places.kept.push(Kept { key: *key, location: place.location, length, checksum });
        // Last: until here the record keeps the region.
        self.placement.hot.written(place.location.segment);
        true
    }
}
