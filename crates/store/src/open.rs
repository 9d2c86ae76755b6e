//! Making, opening and closing a store.
//!
//! ```text
//! DIR/keyspace.toml   the keyspace, for people and for opening
//! DIR/hot.fb          the region (docs/format-hot.md)
//! DIR/runs/           summaries of closed runs, for people
//! ```
//!
//! *On failure*: opening fails closed: what cannot be accounted for is named, and nothing is served. Over a medium that
//! does not survive a restart of the machine, nothing is served before an operator accepts the loss
//! (`Config::accept_loss`).

use crate::config::Config;
use crate::engine::{Engine, Holder};
use crate::hot::{Hot, Region, Segment};
use crate::limits::{
    SEGMENT_BYTES_DEFAULT_MAX, SEGMENT_BYTES_DEFAULT_MIN, SEGMENT_BYTES_MIN, SEGMENTS_DEFAULT, SEGMENTS_MIN,
};
use crate::sim::SimMedium;
use crate::{Store, ops, recover};
use forebay_core::limits::{SEGMENT_HEADER_BYTES, SUPERBLOCK_AREA_BYTES};
use forebay_core::{Error, Geometry, KeySchema, Keyspace, Kind, Result, Superblock, crc32c};
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const KEYSPACE_FILE: &str = "keyspace.toml";
pub(crate) const REGION_FILE: &str = "hot.fb";
const COPY_BYTES: u64 = SUPERBLOCK_AREA_BYTES as u64 / 2;

impl Store {
    /// Makes a new store in `dir`, which is made if need be and holds none yet.
    ///
    /// # Errors
    /// `Invalid` for a keyspace or sizes that cannot be, a directory that holds a store or cannot be written, `Full`
    /// without space for the region.
    pub fn create(dir: &Path, keyspace: &Keyspace, config: Config) -> Result<Store> {
        keyspace.check()?;
        let geometry = geometry(&keyspace.schema, &config)?;
        let invalid = |what: &str, error| Error::invalid(format!("{}: {what}", dir.display())).with_source(error);
        std::fs::create_dir_all(dir).map_err(|error| invalid("cannot make the directory", error))?;
        let path = dir.join(REGION_FILE);
        if path.symlink_metadata().is_ok() && !Region::is_unfinished(&path) {
            return Err(Error::invalid(format!("{}: holds a store already; open it instead", dir.display())));
        }
        let text = keyspace.to_toml()?;
        // What a cut-off creation left never was a store.
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
        std::fs::write(dir.join(KEYSPACE_FILE), &text).map_err(|error| invalid("cannot write keyspace.toml", error))?;
        start_new(region, geometry, keyspace, &text, config, id, Some(dir))
    }

    /// Opens a store: recovers everything that was acknowledged; leases are void, their events ready again.
    ///
    /// # Errors
    /// `Invalid` where there is no store, or one of another version or keyspace; `Unavailable` where another process
    /// has it; `Corrupt` for what cannot be accounted for, by segment and entry, and after a restart of the machine over
    /// a medium that does not survive one.
    pub fn open(dir: &Path, config: Config) -> Result<Store> {
        let (keyspace, text) = read_keyspace(dir)?;
        let region = Region::open(&dir.join(REGION_FILE), config.flush)?;
        start_old(region, &keyspace, &text, config, Some(dir))
    }

    /// [`Store::create`] on a simulated medium.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub fn create_on(medium: Arc<SimMedium>, keyspace: &Keyspace, config: Config) -> Result<Store> {
        keyspace.check()?;
        let region = Region::simulated(medium);
        let geometry = geometry(&keyspace.schema, &Config { hot_bytes: region.length(), ..config.clone() })?;
        start_new(region, geometry, keyspace, &keyspace.to_toml()?, config, random_id(), None)
    }

    /// [`Store::open`] on a simulated medium.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(medium: Arc<SimMedium>, keyspace: &Keyspace, config: Config) -> Result<Store> {
        start_old(Region::simulated(medium), keyspace, &keyspace.to_toml()?, config, None)
    }

    /// Flushes the store and marks it clean; calls on any handle answer `Closed`. Guards and reservations stay valid:
    /// others can open the store once the last of them is dropped. Also done when the last handle is gone.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses its pages.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }
}

impl Engine {
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let _round = self.maintaining.lock();
        // From here on nothing becomes visible: claims and publications ask under the lock.
        for cell in &self.cells {
            cell.lock().closed = true;
        }
        let folded = self.fold_log();
        self.hot.close_heads();
        self.hot.seal_closed();
        let flushed = self.hot.region.sync();
        // Without space for the snapshot the log stays as it is, whole. What is still in flight was never acknowledged,
        // but it may yet write: then the next opening looks at everything.
        let folded = folded.or_else(|error| if error.kind() == Kind::Full { Ok(()) } else { Err(error) });
        let settled = self.hot.segments.iter().all(|segment| segment.in_flight() == 0);
        if folded.is_ok() && flushed.is_ok() && settled {
            let mut superblock = self.superblock.lock();
            superblock.clean = true;
            write_superblock(&self.hot.region, &mut superblock);
            self.hot.region.sync()?;
        }
        self.unlock_if_idle();
        folded.and(flushed)
    }

    /// Lets others open a closed store, once no guard shows and no reservation fills its memory any more: the next
    /// opening may use that memory again.
    pub(crate) fn unlock_if_idle(&self) {
        let idle = |segment: &Segment| segment.pins() == 0 && segment.in_flight() == 0;
        if self.is_closed() && self.hot.segments.iter().all(idle) {
            self.hot.region.unlock();
        }
    }
}

/// How a region of this size is cut.
fn geometry(schema: &KeySchema, config: &Config) -> Result<Geometry> {
    let usable = config.hot_bytes.saturating_sub(SUPERBLOCK_AREA_BYTES as u64);
    let default = (usable / SEGMENTS_DEFAULT).clamp(SEGMENT_BYTES_DEFAULT_MIN, SEGMENT_BYTES_DEFAULT_MAX);
    let header = SEGMENT_HEADER_BYTES as u64;
    let segment_bytes = config.segment_bytes.unwrap_or(default) / header * header;
    let segments = usable.checked_div(segment_bytes).unwrap_or(0);
    if segment_bytes < SEGMENT_BYTES_MIN || segments < u64::from(SEGMENTS_MIN) || segments >= 1 << 24 {
        return Err(Error::invalid(format!(
            "a region of {} bytes with segments of {segment_bytes}: segments have at least {SEGMENT_BYTES_MIN} bytes, and \
             {SEGMENTS_MIN} to {} of them fit a region",
            config.hot_bytes,
            (1 << 24) - 1
        )));
    }
    let (key_bytes, primary_bytes) = (schema.key_bytes() as u16, schema.primary_bytes() as u16);
    Ok(Geometry { segment_bytes, segments: segments as u32, key_bytes, primary_bytes })
}

pub(crate) fn read_keyspace(dir: &Path) -> Result<(Keyspace, String)> {
    let path = dir.join(KEYSPACE_FILE);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::invalid(format!("{}: no Forebay store here", dir.display())).with_source(error))?;
    let keyspace = Keyspace::from_toml(&text)
        .map_err(|error| Error::invalid(format!("{}: cannot be read", path.display())).with_source(error))?;
    Ok((keyspace, text))
}

fn start_new(
    region: Region,
    geometry: Geometry,
    keyspace: &Keyspace,
    text: &str,
    config: Config,
    store: [u8; 16],
    dir: Option<&Path>,
) -> Result<Store> {
    let mut superblock = Superblock {
        store,
        keyspace_crc: crc32c(text.as_bytes()),
        geometry,
        boot: 1,
        revision: 0,
        clean: false,
        machine_boot: machine_boot(),
    };
    let hot = Hot::new(region, geometry, superblock.store, config.write_heads);
    (0..geometry.segments).for_each(|segment| hot.add_free(segment));
    let engine = Engine::new(hot, keyspace.clone(), config, superblock.clone(), dir.map(Path::to_owned));
    // The log begins with a snapshot of nothing; then the superblock makes it a store.
    engine.fold_log()?;
    write_superblock(&engine.hot.region, &mut superblock);
    *engine.superblock.lock() = superblock;
    Store::start(engine)
}

fn start_old(region: Region, keyspace: &Keyspace, text: &str, config: Config, dir: Option<&Path>) -> Result<Store> {
    let mut superblock = read_superblock(&region)?;
    if superblock.keyspace_crc != crc32c(text.as_bytes()) {
        return Err(Error::invalid("keyspace.toml is not the one that this region was made with"));
    }
    let schema = &keyspace.schema;
    let widths = (superblock.geometry.key_bytes as usize, superblock.geometry.primary_bytes as usize);
    if widths != (schema.key_bytes(), schema.primary_bytes()) {
        return Err(Error::corrupt(format!("the superblock says keys of {widths:?} bytes, the keyspace others")));
    }
    let here = machine_boot();
    let restarted = superblock.machine_boot != here && !superblock.clean;
    if restarted && !region.is_persistent() && !config.accept_loss {
        return Err(Error::corrupt(
            "the machine restarted while this store was open, and its medium does not survive that: what is left may \
             lack acknowledged fragments of any run that was open; look with `check`, then open with accept_loss",
        ));
    }
    let power_lost = !superblock.clean && (restarted || region.is_persistent());
    let hot = Hot::new(region, superblock.geometry, superblock.store, config.write_heads);
    superblock.boot =
        superblock.boot.checked_add(1).ok_or_else(|| Error::corrupt("the last boot generation is used"))?;
    superblock.clean = false;
    superblock.machine_boot = here;
    let engine = Engine::new(hot, keyspace.clone(), config, superblock.clone(), dir.map(Path::to_owned));
    let replaced = recover::recover(&engine, power_lost)?;
    write_superblock(&engine.hot.region, &mut superblock);
    *engine.superblock.lock() = superblock;
    recover::finish(&engine, replaced)?;
    Store::start(engine)
}

impl Store {
    fn start(engine: Engine) -> Result<Store> {
        let maintenance = engine.config.maintenance;
        let holder = new_holder(&Arc::new(engine), "store");
        if maintenance {
            ops::spawn(&holder).map_err(|error| Error::unavailable("cannot start a thread").with_source(error))?;
        }
        Ok(Store::handle(holder))
    }
}

pub(crate) fn new_holder(engine: &Arc<Engine>, name: &str) -> Arc<Holder> {
    let (guards, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let holder = Arc::new(Holder { engine: engine.clone(), name: name.to_owned(), guards, bytes });
    let mut holders = engine.holders.lock();
    holders.retain(|known| known.strong_count() > 0);
    holders.push(Arc::downgrade(&holder));
    holder
}

/// The valid superblock with the higher revision.
pub(crate) fn read_superblock(region: &Region) -> Result<Superblock> {
    let read = |copy: u64| Superblock::decode(region.bytes(copy * COPY_BYTES, Superblock::BYTES));
    let superblock = match (read(0), read(1)) {
        (Ok(a), Ok(b)) => {
            if a.revision >= b.revision {
                a
            } else {
                b
            }
        }
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
        // Both unreadable: the copy that says most about why.
        (Err(a), Err(b)) => return Err(if b.kind() == Kind::Invalid { a } else { b }),
    };
    let needed = superblock.geometry.region_bytes();
    // hugetlbfs rounds the file up to whole huge pages.
    let rounded = needed.next_multiple_of(2 << 20);
    let fits = region.length() == needed || region.length() == rounded || region.is_simulated();
    if !fits || region.length() < needed {
        return Err(Error::corrupt(format!("the region has {} bytes, its superblock wants {needed}", region.length())));
    }
    Ok(superblock)
}

fn write_superblock(region: &Region, superblock: &mut Superblock) {
    superblock.revision = superblock.revision.wrapping_add(1);
    let offset = u64::from(superblock.revision % 2) * COPY_BYTES;
    region.write(offset, &superblock.encode());
    region.flush(offset, Superblock::BYTES);
    region.fence();
}

/// 16 bytes that no other store has: the standard library's hash keys come from the system's random source.
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

/// The machine's boot id; zeros where the system has none.
pub(crate) fn machine_boot() -> [u8; 36] {
    let mut id = [0; 36];
    if let Ok(text) = std::fs::read("/proc/sys/kernel/random/boot_id")
        && let Some(text) = text.get(..36)
    {
        id.copy_from_slice(text);
    }
    id
}
