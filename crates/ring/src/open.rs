//! Making, opening and closing a ring.
//!
//! ```text
//! DIR/ring.toml   the keyspace, for people and for opening
//! DIR/ring.fb     the region (docs/format-ring.md)
//! ```
//!
//! *On failure*: opening fails closed, as that of an events store does.

use super::config::RingConfig;
use super::engine::RingEngine;
use super::handle::{Ring, new_holder};
use super::limits::{CHUNK_BYTES_DEFAULT_MAX, CHUNK_BYTES_MIN, CHUNKS_PER_SOURCE_DEFAULT, CHUNKS_PER_SOURCE_MIN};
use super::{maintain, recover};
use forebay_core::limits::RING_KEY_TAIL_BYTES;
use forebay_core::{Error, Result, RingKeyspace};
use forebay_media::bytes::{EntryLayout, Geometry};
use forebay_media::hot::{CALLS_WAIT, Hot, Kept, Medium, Region, outlasted, wait_for_none};
use forebay_media::limits::{PAYLOAD_ALIGN, SEGMENT_HEADER_BYTES, SUPERBLOCK_AREA_BYTES};
use forebay_media::region_file::{self, Holds, random_id, write_superblock, write_superblock_durably};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KEYSPACE_FILE: &str = "ring.toml";
pub(super) const REGION_FILE: &str = "ring.fb";

pub(super) const HOLDS: Holds = Holds {
    name: "ring",
    keyspace_file: KEYSPACE_FILE,
    region_file: REGION_FILE,
    others: &[("hot.fb", "a store of events"), ("keyspace.toml", "a store of events")],
    after_restart: "; open with accept_loss to serve it",
};

impl Ring {
    /// Makes a new ring in `dir`, which is made if need be and holds neither a ring nor a store of events yet.
    ///
    /// # Errors
    /// `Invalid` for a keyspace or sizes that cannot be, capacity below the declared history (with the figures), a
    /// directory that holds a ring or a store of events, or cannot be written; `Full` without space for the region.
    pub fn create(dir: &Path, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        keyspace.check()?;
        let geometry = geometry(keyspace, &config)?;
        check_capacity(keyspace, &geometry)?;
        let text = keyspace.to_toml()?;
        let (bytes, elsewhere) = (geometry.region_bytes(), config.region_dir.as_ref());
        let id = random_id();
        let region = region_file::make(&HOLDS, dir, &text, bytes, elsewhere, config.flush, id)?;
        start_new(region, geometry, keyspace, &text, config, id)
    }

    /// Opens a ring: everything that was acknowledged and not evicted is there; pins are void, and what lies between the
    /// last fragment of a source and its next one is a gap of cause `Restart`.
    ///
    /// # Errors
    /// `Invalid` where there is no ring, or one of another version or keyspace; `Unavailable` where another process has
    /// it; `Corrupt` for what cannot be accounted for, by segment and entry, and after a restart of the machine over a
    /// medium that does not survive one.
    pub fn open(dir: &Path, config: RingConfig) -> Result<Ring> {
        let (keyspace, text) = read_keyspace(dir)?;
        let region = Region::open(&dir.join(REGION_FILE), config.flush)?;
        start_old(region, &keyspace, &text, config)
    }

    /// [`Ring::create`] on a medium that is no file.
    ///
    /// # Errors
    /// As [`Ring::create`].
    pub fn create_on(medium: Arc<dyn Medium>, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        keyspace.check()?;
        let region = Region::over(medium);
        let geometry = geometry(keyspace, &RingConfig { hot_bytes: region.length(), ..config.clone() })?;
        check_capacity(keyspace, &geometry)?;
        start_new(region, geometry, keyspace, &keyspace.to_toml()?, config, random_id())
    }

    /// [`Ring::open`] on a medium that is no file.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_on(medium: Arc<dyn Medium>, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        start_old(Region::over(medium), keyspace, &keyspace.to_toml()?, config)
    }

    /// Flushes the ring and marks it clean. Calls on any handle answer `Closed` from now on; a call that waits for a
    /// window gets what is there. `close` waits at most 5 s for calls in flight. It does not wait for windows and
    /// reservations: they stay valid, others can open the ring once the last of them is dropped, and [`Ring::kept`] names
    /// their holders. Of several calls to `close`, the first closes; the others wait for its end and answer the same. Also
    /// done when the last handle is gone.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses its pages; `Unavailable` where calls in flight outlasted the wait: the ring is
    /// closed and flushed, its lock is released with the last of them, and the next opening looks at every record.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }

    /// What keeps a closed ring from being opened by others: windows and reservations by holder, calls in flight. Of an
    /// open ring: what would.
    pub fn kept(&self) -> Kept {
        self.engine().kept()
    }

    fn start(engine: RingEngine) -> Result<Ring> {
        let maintenance = engine.config.maintenance;
        let holder = new_holder(&Arc::new(engine), "ring");
        if maintenance {
            maintain::spawn(&holder.engine)
                .map_err(|error| Error::unavailable("cannot start a thread").with_source(error))?;
        }
        Ok(Ring::of(holder))
    }
}

impl RingEngine {
    pub(super) fn close(&self) -> Result<()> {
        self.hot.closing.once(|| self.close_now())
    }

    fn close_now(&self) -> Result<()> {
        // Sequentially consistent, as `Waiting` is: a window that waits is seen below, or sees this. With release and acquire
        // each side could miss the other's write, and a window would take guards after the memory was given away.
        self.closed.store(true, Ordering::SeqCst);
        // Nothing becomes visible from here on: claims and publications ask under the lock.
        for cell in self.table.iter() {
            let mut source = cell.source.lock();
            source.closed = true;
            self.close_chunk(cell, &mut source);
            drop(source);
            cell.arrived.notify_all();
        }
        self.table.wake();
        // Those who waited for a window read what is there; after that no window takes a guard.
        wait_for_none(CALLS_WAIT, || self.windows_waiting());
        // One source after the other: a window holds one source's lock at a time, and finds each of them open or shut.
        for cell in self.table.iter() {
            cell.source.lock().shut = true;
        }
        self.hot.shut();
        let calls = wait_for_none(CALLS_WAIT, || self.kept().calls);
        let _taking = self.taking.lock();
        self.gather();
        self.hot.seal_closed();
        let mut closed = self.hot.region.sync();
        // What is still in flight was never acknowledged, but it may yet write: then the next opening looks at all.
        if closed.is_ok() && calls == 0 && self.hot.users().1 == 0 {
            self.write_note(&mut self.space.lock(), true);
            let mut superblock = self.superblock.lock();
            superblock.clean = true;
            write_superblock(&self.hot.region, &mut superblock);
            closed = self.hot.region.sync();
        }
        if calls > 0 {
            closed = closed.and_then(|()| Err(outlasted("ring", &self.kept())));
        }
        // This life has written its last byte.
        self.hot.let_go();
        closed
    }
}

/// The keyspace of the ring in a directory, and its text.
pub(super) fn read_keyspace(dir: &Path) -> Result<(RingKeyspace, String)> {
    let path = dir.join(KEYSPACE_FILE);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::invalid(format!("{}: no ring here", dir.display())).with_source(error))?;
    let keyspace = RingKeyspace::from_toml(&text)
        .map_err(|error| Error::invalid(format!("{}: cannot be read", path.display())).with_source(error))?;
    Ok((keyspace, text))
}

/// How a region of this size is cut.
fn geometry(keyspace: &RingKeyspace, config: &RingConfig) -> Result<Geometry> {
    let usable = config.hot_bytes.saturating_sub(SUPERBLOCK_AREA_BYTES as u64);
    let header = SEGMENT_HEADER_BYTES as u64;
    let sources = u64::from(keyspace.sources_max);
    let default = usable / (sources * CHUNKS_PER_SOURCE_DEFAULT);
    let default = default.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_DEFAULT_MAX);
    let segment_bytes = config.segment_bytes.unwrap_or(default) / header * header;
    let segments = usable.checked_div(segment_bytes).unwrap_or(0);
    let fewest = sources * CHUNKS_PER_SOURCE_MIN;
    if segment_bytes < CHUNK_BYTES_MIN || segments < fewest || segments >= 1 << 24 {
        return Err(Error::invalid(format!(
            "a region of {} bytes in {segments} chunks of {segment_bytes}: chunks have at least {CHUNK_BYTES_MIN} bytes, \
             and {sources} sources need {CHUNKS_PER_SOURCE_MIN} each, {fewest} to {} in all",
            config.hot_bytes,
            (1 << 24) - 1
        )));
    }
    let source_bytes = keyspace.source.bytes();
    let key_bytes = (source_bytes + RING_KEY_TAIL_BYTES) as u16;
    Ok(Geometry { segment_bytes, segments: segments as u32, key_bytes, primary_bytes: source_bytes as u16 })
}

/// The declared history must fit, at the declared rate, for all sources: whole fragments with their entries in whole
/// chunks, and for each source one more chunk, which is being filled.
fn check_capacity(keyspace: &RingKeyspace, geometry: &Geometry) -> Result<()> {
    let entry = EntryLayout::for_key_bytes(geometry.key_bytes as usize).entry_bytes() as u64;
    let fragment = keyspace.fragment_bytes_max as u64;
    let record = fragment.next_multiple_of(PAYLOAD_ALIGN as u64) + entry;
    let per_chunk = (geometry.segment_bytes - SEGMENT_HEADER_BYTES as u64) / record;
    if per_chunk == 0 {
        return Err(Error::invalid(format!(
            "a fragment of fragment_bytes_max = {fragment} takes {record} bytes with its entry; a chunk has {}",
            geometry.segment_bytes
        )));
    }
    let bytes = keyspace.history.as_nanos() * u128::from(keyspace.source_bytes_per_second) / 1_000_000_000;
    let fragments = bytes.div_ceil(u128::from(fragment));
    let chunks = fragments.div_ceil(u128::from(per_chunk)) + 1;
    let needed = chunks * u128::from(keyspace.sources_max);
    if needed <= u128::from(geometry.segments) {
        return Ok(());
    }
    let segment = u128::from(geometry.segment_bytes);
    Err(Error::invalid(format!(
        "the ring holds {} chunks of {segment} bytes ({} bytes); {:?} of {} sources at {} bytes/s in fragments of \
         {fragment} need {chunks} chunks each, {} bytes in all",
        geometry.segments,
        geometry.region_bytes(),
        keyspace.history,
        keyspace.sources_max,
        keyspace.source_bytes_per_second,
        needed * segment + SUPERBLOCK_AREA_BYTES as u128
    )))
}

fn start_new(
    region: Region,
    geometry: Geometry,
    keyspace: &RingKeyspace,
    text: &str,
    config: RingConfig,
    store: [u8; 16],
) -> Result<Ring> {
    let superblock = region_file::first_life(&region, store, text, geometry, 0);
    let hot = Hot::new(region, geometry, store, 1);
    (0..geometry.segments).for_each(|segment| hot.add_free(segment));
    let engine = RingEngine::new(hot, keyspace.clone(), config, superblock);
    // The account begins with nothing; then the superblock makes it a ring. The other way round a creation that is cut off
    // would leave a ring whose account does not verify.
    engine.write_note(&mut engine.space.lock(), false);
    write_superblock_durably(&engine.hot.region, &mut engine.superblock.lock())?;
    Ring::start(engine)
}

pub(super) fn start_old(region: Region, keyspace: &RingKeyspace, text: &str, config: RingConfig) -> Result<Ring> {
    let source_bytes = keyspace.source.bytes();
    let widths = (source_bytes + RING_KEY_TAIL_BYTES, source_bytes);
    let mut life = region_file::next_life(&HOLDS, &region, text, widths, config.accept_loss)?;
    // Again at each opening: the keyspace file is for people, who may have raised the history since.
    check_capacity(keyspace, &life.superblock.geometry)?;
    life.begin(&region)?;
    let hot = Hot::new(region, life.superblock.geometry, life.superblock.store, 1);
    let engine = RingEngine::new(hot, keyspace.clone(), config, life.superblock.clone());
    let recovered = recover::recover(&engine, life.power_lost, life.was_clean);
    recovered.inspect_err(|_| life.take_back(&engine.hot.region))?;
    // The account as it was found, then the new life: what was booked as lost is durable before anything is served, so that
    // the next opening does not find the same loss a second time.
    engine.write_note(&mut engine.space.lock(), false);
    life.settle(&engine.hot.region)?;
    *engine.superblock.lock() = life.superblock;
    Ring::start(engine)
}
