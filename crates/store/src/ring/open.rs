//! Making, opening and closing a ring.
//!
//! ```text
//! DIR/ring.toml   the keyspace, for people and for opening
//! DIR/ring.fb     the region (docs/format-ring.md)
//! ```
//!
//! *On failure*: opening fails closed, as that of an events store does.

use super::config::RingConfig;
use super::engine::Engine;
use super::handle::{Ring, new_holder};
use super::limits::{CHUNK_BYTES_DEFAULT_MAX, CHUNK_BYTES_MIN, CHUNKS_PER_SOURCE_DEFAULT, CHUNKS_PER_SOURCE_MIN};
use super::{maintain, recover};
use crate::hot::{Hot, Region};
use crate::open::{machine_boot, read_superblock};
use crate::sim::SimMedium;
use forebay_core::limits::{PAYLOAD_ALIGN, RING_KEY_TAIL_BYTES, SEGMENT_HEADER_BYTES, SUPERBLOCK_AREA_BYTES};
use forebay_core::{EntryLayout, Error, Geometry, Result, RingKeyspace, Superblock, crc32c};
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KEYSPACE_FILE: &str = "ring.toml";
const REGION_FILE: &str = "ring.fb";
const COPY_BYTES: u64 = SUPERBLOCK_AREA_BYTES as u64 / 2;

impl Ring {
    /// Makes a new ring in `dir`, which is made if need be and holds none yet; it may hold an events store.
    ///
    /// # Errors
    /// `Invalid` for a keyspace or sizes that cannot be, capacity below the declared history (with the figures), a
    /// directory that holds a ring or cannot be written; `Full` without space for the region.
    pub fn create(dir: &Path, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        keyspace.check()?;
        let geometry = geometry(keyspace, &config)?;
        check_capacity(keyspace, &geometry)?;
        let invalid = |what: &str, error| Error::invalid(format!("{}: {what}", dir.display())).with_source(error);
        std::fs::create_dir_all(dir).map_err(|error| invalid("cannot make the directory", error))?;
        let path = dir.join(REGION_FILE);
        if path.symlink_metadata().is_ok() && !Region::is_unfinished(&path) {
            return Err(Error::invalid(format!("{}: holds a ring already; open it instead", dir.display())));
        }
        let text = keyspace.to_toml()?;
        // What a cut-off creation left never was a ring.
        let _ = std::fs::remove_file(&path);
        let id = random_id();
        let region = match &config.region_dir {
            None => Region::create(&path, geometry.region_bytes(), config.flush)?,
            Some(elsewhere) => {
                let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                let target = elsewhere.join(format!("forebay-{name}.fb"));
                let region = Region::create(&target, geometry.region_bytes(), config.flush)?;
                std::os::unix::fs::symlink(&target, &path).map_err(|error| invalid("cannot link the region", error))?;
                region
            }
        };
        std::fs::write(dir.join(KEYSPACE_FILE), &text).map_err(|error| invalid("cannot write ring.toml", error))?;
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
        let path = dir.join(KEYSPACE_FILE);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::invalid(format!("{}: no ring here", dir.display())).with_source(error))?;
        let keyspace = RingKeyspace::from_toml(&text)
            .map_err(|error| Error::invalid(format!("{}: cannot be read", path.display())).with_source(error))?;
        let region = Region::open(&dir.join(REGION_FILE), config.flush)?;
        start_old(region, &keyspace, &text, config)
    }

    /// [`Ring::create`] on a simulated medium.
    ///
    /// # Errors
    /// As [`Ring::create`].
    pub fn create_on(medium: Arc<SimMedium>, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        keyspace.check()?;
        let region = Region::simulated(medium);
        let geometry = geometry(keyspace, &RingConfig { hot_bytes: region.length(), ..config.clone() })?;
        check_capacity(keyspace, &geometry)?;
        start_new(region, geometry, keyspace, &keyspace.to_toml()?, config, random_id())
    }

    /// [`Ring::open`] on a simulated medium.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_on(medium: Arc<SimMedium>, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        start_old(Region::simulated(medium), keyspace, &keyspace.to_toml()?, config)
    }

    /// Flushes the ring and marks it clean; calls on any handle answer `Closed`, who waits for a window gets what is
    /// there. Windows and reservations stay valid: others can open the ring once the last of them is dropped. Also done
    /// when the last handle is gone.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses its pages.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }

    fn start(engine: Engine) -> Result<Ring> {
        let maintenance = engine.config.maintenance;
        let holder = new_holder(&Arc::new(engine), "ring");
        if maintenance {
            maintain::spawn(&holder.engine)
                .map_err(|error| Error::unavailable("cannot start a thread").with_source(error))?;
        }
        Ok(Ring::of(holder))
    }
}

impl Engine {
    pub(super) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // Nothing becomes visible from here on: claims and publications ask under the lock.
        for cell in self.table.iter() {
            let mut source = cell.source.lock();
            source.closed = true;
            self.close_chunk(cell, &mut source);
            drop(source);
            cell.arrived.notify_all();
        }
        self.table.wake();
        let _taking = self.taking.lock();
        self.gather();
        self.hot.seal_closed();
        let flushed = self.hot.region.sync();
        // What is still in flight was never acknowledged, but it may yet write: then the next opening looks at all.
        let settled = self.hot.segments.iter().all(|segment| segment.in_flight() == 0);
        if flushed.is_ok() && settled {
            self.write_note(&mut self.space.lock(), true);
            let mut superblock = self.superblock.lock();
            superblock.clean = true;
            write_superblock(&self.hot.region, &mut superblock);
            self.hot.region.sync()?;
        }
        self.unlock_if_idle();
        flushed
    }

    /// Lets others open a closed ring, once no window shows and no reservation fills its memory any more.
    pub(super) fn unlock_if_idle(&self) {
        let idle = |segment: &crate::hot::Segment| segment.pins() == 0 && segment.in_flight() == 0;
        if self.is_closed() && self.hot.segments.iter().all(idle) {
            self.hot.region.unlock();
        }
    }
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
    let superblock = Superblock {
        store,
        keyspace_crc: crc32c(text.as_bytes()),
        geometry,
        boot: 1,
        revision: 0,
        clean: false,
        machine_boot: machine_boot(),
    };
    let hot = Hot::new(region, geometry, store, 1);
    (0..geometry.segments).for_each(|segment| hot.add_free(segment));
    let engine = Engine::new(hot, keyspace.clone(), config, superblock);
    // The account begins with nothing; then the superblock makes it a ring.
    engine.write_note(&mut engine.space.lock(), false);
    write_superblock(&engine.hot.region, &mut engine.superblock.lock());
    Ring::start(engine)
}

fn start_old(region: Region, keyspace: &RingKeyspace, text: &str, config: RingConfig) -> Result<Ring> {
    let mut superblock = read_superblock(&region)?;
    if superblock.keyspace_crc != crc32c(text.as_bytes()) {
        return Err(Error::invalid("ring.toml is not the one that this region was made with"));
    }
    let source_bytes = keyspace.source.bytes();
    let widths = (superblock.geometry.key_bytes as usize, superblock.geometry.primary_bytes as usize);
    if widths != (source_bytes + RING_KEY_TAIL_BYTES, source_bytes) {
        return Err(Error::corrupt(format!("the superblock says keys of {widths:?} bytes, the keyspace others")));
    }
    check_capacity(keyspace, &superblock.geometry)?;
    let here = machine_boot();
    let restarted = superblock.machine_boot != here && !superblock.clean;
    if restarted && !region.is_persistent() && !config.accept_loss {
        return Err(Error::corrupt(
            "the machine restarted while this ring was open, and its medium does not survive that: what is left may \
             lack acknowledged fragments; open with accept_loss to serve it",
        ));
    }
    let power_lost = !superblock.clean && (restarted || region.is_persistent());
    let clean = superblock.clean;
    superblock.boot =
        superblock.boot.checked_add(1).ok_or_else(|| Error::corrupt("the last boot generation is used"))?;
    superblock.clean = false;
    superblock.machine_boot = here;
    let hot = Hot::new(region, superblock.geometry, superblock.store, 1);
    let engine = Engine::new(hot, keyspace.clone(), config, superblock);
    recover::recover(&engine, power_lost, clean)?;
    // The account as it was found, then the new life.
    engine.write_note(&mut engine.space.lock(), false);
    write_superblock(&engine.hot.region, &mut engine.superblock.lock());
    Ring::start(engine)
}

fn write_superblock(region: &Region, superblock: &mut Superblock) {
    superblock.revision = superblock.revision.wrapping_add(1);
    let offset = u64::from(superblock.revision % 2) * COPY_BYTES;
    region.write(offset, &superblock.encode());
    region.flush(offset, Superblock::BYTES);
    region.fence();
}

/// 16 bytes that no other ring has: the standard library's hash keys come from the system's random source.
fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    for half in id.chunks_mut(8) {
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let time =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
        half.copy_from_slice(&(random ^ time.rotate_left(17)).to_le_bytes());
    }
    id
}
