//! Keeping a stretch of ticks from being evicted.
//!
//! A pin is granted a number of chunks: those that overlap its ticks now, and for ticks that are still to come what its
//! sources write at their declared rate (a *recording*). Chunks that two pins name count for both. A source that is
//! faster than declared outgrows the grant: then the oldest chunks stay, the newest ones are evicted as others are.
//!
//! *On failure*: pins are in memory only: after a restart they are void.

use super::engine::RingEngine;
use super::space::Pin;
use super::{Ring, RingPinStatus, RingSources};
use forebay_core::{Error, Result, SourceId};
use forebay_media::limits::SEGMENT_HEADER_BYTES;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

impl Ring {
    /// Keeps `[begin, end)` from being evicted for `duration`. It may lie, in part or whole, in the future: a recording.
    /// `RingSources::All` also names sources that come.
    ///
    /// # Errors
    /// `Full` beyond the quota, naming who holds it; `Invalid` as for [`Ring::window`], or for no duration; `Closed`.
    pub fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPin> {
        let engine = &self.holder.engine;
        engine.check_window(begin, end)?;
        let deadline_ns = engine.pin_deadline(duration)?;
        let mut names = engine.names(sources)?;
        engine.check_open()?;
        names.sort_unstable();
        let all = *sources == RingSources::All;
        let mut pin = Pin {
            id: 0,
            holder: self.holder.name.clone(),
            begin,
            end,
            sources: (!all).then(|| names.clone()),
            deadline_ns,
            granted: 0,
            kept: false,
        };
        // Nothing is evicted between counting and entering: the caller learns that what it saw in the ring is kept.
        let _taking = engine.taking.lock();
        // Fixed for the life of the pin: a grant that grew with its sources could pass the quota without anybody being asked.
        pin.granted = engine.chunks_wanted(begin, end, &names, all);
        let granted = pin.granted;
        let mut space = engine.space.lock();
        space.expire(engine.now_ns());
        let id = space.pin(pin, engine.pin_quota(), engine.hot.geometry.segment_bytes)?;
        drop(space);
        Ok(RingPin { engine: engine.clone(), id, granted })
    }
}

impl Ring {
    /// Ends a pin that nobody holds ([`RingPin::keep`]); answers whether there was one.
    ///
    /// # Errors
    /// `Conflict` for a pin that somebody holds, who ends it; `Closed`.
    pub fn unpin(&self, id: u64) -> Result<bool> {
        let engine = self.engine();
        engine.check_open()?;
        let mut space = engine.space.lock();
        space.expire(engine.now_ns());
        let Some(at) = space.pins.iter().position(|pin| pin.id == id) else { return Ok(false) };
        if let Some(pin) = space.pins.get(at).filter(|pin| !pin.kept) {
            let holder = &pin.holder;
            return Err(Error::conflict(format!(
                "pin {id} is held by {holder}: it ends with its holder, or at its deadline"
            )));
        }
        space.pins.remove(at);
        Ok(true)
    }
}

impl RingEngine {
    /// Chunks that a pin on these ticks of these sources asks for.
    fn chunks_wanted(&self, begin: u64, end: u64, names: &[SourceId], all: bool) -> u32 {
        // Every source that can come is reckoned with where none has been seen yet.
        let unseen = if all && names.is_empty() { u64::from(self.keyspace.sources_max) } else { 0 };
        let of_unseen = self.chunks_to_come(begin, end, 0).saturating_mul(unseen);
        let of_named = |sum: u64, source| sum.saturating_add(self.chunks_named(source, begin, end));
        u32::try_from(names.iter().fold(of_unseen, of_named)).unwrap_or(u32::MAX)
    }

    fn pin_deadline(&self, duration: Duration) -> Result<u64> {
        if duration.is_zero() {
            return Err(Error::invalid("a pin lasts longer than nothing"));
        }
        Ok(self.now_ns().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Chunks of a source that overlap the ticks now, and those that will.
    fn chunks_named(&self, source: &SourceId, begin: u64, end: u64) -> u64 {
        let Some(cell) = self.table.find(source) else { return self.chunks_to_come(begin, end, 0) };
        let source = cell.source.lock();
        let held = source.chunks.iter().filter(|chunk| chunk.overlaps(begin, end)).count() as u64;
        held.saturating_add(self.chunks_to_come(begin, end, source.known.head.unwrap_or(0)))
    }

    /// Chunks that a source with this head begins, at its declared rate, in the ticks that are still to come.
    fn chunks_to_come(&self, begin: u64, end: u64, head: u64) -> u64 {
        let now = self.relations.expected(self.now_ns()).unwrap_or(0);
        // What has come already is in chunks that are counted; what lies between head and now will not come any more.
        let ticks = end.saturating_sub(begin.max(now).max(head));
        if ticks == 0 {
            return 0;
        }
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.keyspace.ticks_per_second);
        // One more: it begins in the middle of a chunk.
        self.chunks_for(u64::try_from(ns).unwrap_or(u64::MAX)).saturating_add(1)
    }

    /// Chunks that one source fills in a time at its declared rate, in fragments of the greatest length.
    pub(super) fn chunks_for(&self, ns: u64) -> u64 {
        let fragment = self.length_max.max(1) as u64;
        let bytes = u128::from(ns) * u128::from(self.keyspace.source_bytes_per_second) / 1_000_000_000;
        let fragments = u64::try_from(bytes.div_ceil(u128::from(fragment))).unwrap_or(u64::MAX);
        // In fragments of the greatest length, of which the fewest fit a chunk: the grant is rather too large than too small.
        let room = self.hot.geometry.segment_bytes - SEGMENT_HEADER_BYTES as u64;
        fragments.div_ceil((room / self.hot.record_bytes(fragment as u32)).max(1))
    }
}

/// A stretch of ticks that is kept from being evicted until the pin is dropped, released or over.
pub struct RingPin {
    engine: Arc<RingEngine>,
    id: u64,
    granted: u32,
}

impl RingPin {
    /// Number of the pin, as `stats` lists it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Bytes of the region that it holds or has reserved, whole chunks.
    pub fn bytes(&self) -> u64 {
        u64::from(self.granted) * self.engine.hot.geometry.segment_bytes
    }

    /// Whether its deadline has passed: what it kept may be gone.
    pub fn expired(&self) -> bool {
        let mut space = self.engine.space.lock();
        space.expire(self.engine.now_ns());
        !space.pins.iter().any(|pin| pin.id == self.id)
    }

    /// Moves the deadline to `duration` from now.
    ///
    /// # Errors
    /// `Fenced` where it has expired: what it kept may be gone. `Invalid` for no duration, `Closed`.
    pub fn extend(&self, duration: Duration) -> Result<()> {
        self.engine.check_open()?;
        let deadline_ns = self.engine.pin_deadline(duration)?;
        let mut space = self.engine.space.lock();
        space.expire(self.engine.now_ns());
        match space.pins.iter_mut().find(|pin| pin.id == self.id) {
            Some(pin) => {
                pin.deadline_ns = deadline_ns;
                Ok(())
            }
            None => Err(Error::fenced(format!("pin {}: its deadline has passed", self.id))),
        }
    }

    /// Moves the pin to other ticks of its sources, and its deadline to `duration` from now, in one step: what both ticks
    /// name is kept all the time.
    ///
    /// # Errors
    /// `Full` beyond the quota; then the pin keeps what it did. `Fenced` where it has expired; `Invalid` as for
    /// [`Ring::pin`]; `Closed`.
    pub fn move_to(&mut self, begin: u64, end: u64, duration: Duration) -> Result<()> {
        let engine = &self.engine;
        engine.check_window(begin, end)?;
        engine.check_open()?;
        let deadline_ns = engine.pin_deadline(duration)?;
        let named = engine.space.lock().pins.iter().find(|pin| pin.id == self.id).map(|pin| pin.sources.clone());
        let all = named.as_ref().is_some_and(Option::is_none);
        let names = match named.flatten() {
            Some(names) => names,
            None => engine.names(&RingSources::All)?,
        };
        // Nothing is evicted between counting and entering.
        let _taking = engine.taking.lock();
        let granted = engine.chunks_wanted(begin, end, &names, all);
        let mut space = engine.space.lock();
        space.expire(engine.now_ns());
        space.move_pin(self.id, (begin, end), deadline_ns, granted, engine.pin_quota())?;
        self.granted = granted;
        Ok(())
    }

    /// Leaves the pin to itself: it ends at its deadline, or by [`Ring::unpin`].
    ///
    /// # Errors
    /// `Fenced` where it has expired.
    pub fn keep(self) -> Result<RingPinStatus> {
        let mut space = self.engine.space.lock();
        let now_ns = self.engine.now_ns();
        space.expire(now_ns);
        // Under the lock: the drop of this handle, which follows, finds a pin that is not its own any more.
        space.pins.iter_mut().filter(|pin| pin.id == self.id).for_each(|pin| pin.kept = true);
        let statuses = space.pin_statuses(now_ns, self.engine.hot.geometry.segment_bytes);
        let status = statuses.into_iter().find(|status| status.id == self.id);
        status.ok_or_else(|| Error::fenced(format!("pin {}: its deadline has passed", self.id)))
    }

    /// Gives the pin up.
    pub fn release(self) {}
}

impl Drop for RingPin {
    fn drop(&mut self) {
        self.engine.space.lock().pins.retain(|pin| pin.id != self.id || pin.kept);
    }
}

impl fmt::Debug for RingPin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RingPin({}, {} bytes)", self.id, self.bytes())
    }
}
