//! Making, opening and closing a store.
//!
//! ```text
//! DIR/keyspace.toml   the keyspace, for people and for opening
//! DIR/hot.fb          the region (docs/format-hot.md)
//! DIR/map.json        the map of its cluster, if it is a node of one
//! DIR/devices.toml    directories of the warm level, if it has one (docs/format-container.md)
//! DIR/runs/           summaries of closed runs, for people
//! ```
//!
//! *On failure*: opening fails closed: what cannot be accounted for is named, and nothing is served. Over a medium that
//! does not survive a restart of the machine, nothing is served before an operator accepts the loss
//! (`Config::accept_loss`).

use crate::archive_file;
use crate::config::Config;
use crate::config::check_marks;
use crate::engine::{Engine, new_holder};
use crate::keyspace_file::{self, KEYSPACE_FILE, REGION_FILE};
use crate::levels;
use crate::map_file;
use crate::placement::{Level, There};
use crate::{Store, recover, upkeep};
use forebay_core::{Error, KeySchema, Keyspace, Kind, Result};
use forebay_media::bytes::Geometry;
use forebay_media::hot::{CALLS_WAIT, Hot, Kept, Medium, Region, outlasted, wait_for_none};
use forebay_media::limits::{
    SEGMENT_BYTES_DEFAULT_MAX, SEGMENT_BYTES_DEFAULT_MIN, SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, SEGMENTS_DEFAULT,
    SEGMENTS_MIN, SUPERBLOCK_AREA_BYTES,
};
use forebay_media::named::Named;
use forebay_media::region_file::{self, Holds, write_superblock, write_superblock_durably};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const HOLDS: Holds = Holds {
    name: "store",
    keyspace_file: KEYSPACE_FILE,
    region_file: REGION_FILE,
    others: &[("ring.fb", "a ring"), ("ring.toml", "a ring")],
    after_restart: " of any run that was open; look with `check`, then open with accept_loss",
};

impl Store {
    /// Makes a new store in `dir`, which is made if need be and holds none yet.
    ///
    /// # Errors
    /// `Invalid` for a keyspace, sizes or marks that cannot be, a directory that holds a store or a ring, or cannot be written, `Full`
    /// without space for the region.
    pub fn create(dir: &Path, keyspace: &Keyspace, config: Config) -> Result<Store> {
        keyspace.check()?;
        check_marks(&config, !config.warm.is_empty())?;
        let geometry = geometry(&keyspace.schema, &config)?;
        let text = keyspace.to_toml()?;
        let (bytes, elsewhere) = (geometry.region_bytes(), config.region_dir.as_ref());
        let id = config.random.id();
        let region = region_file::make(&HOLDS, dir, &text, bytes, elsewhere, config.flush, id)?;
        start_new(region, geometry, keyspace, &text, config, id, Some(dir))
    }

    /// Opens a store: recovers everything that was acknowledged; leases are void, their events ready again.
    ///
    /// # Errors
    /// `Invalid` where there is no store, or one of another version or keyspace, or for marks that cannot be, or where
    /// `devices.toml` does not list the devices that the store was made with; `Unavailable` where another process has it; `Corrupt` for what cannot be accounted for, by segment and entry, and
    /// after a restart of the machine over a medium that does not survive one.
    pub fn open(dir: &Path, config: Config) -> Result<Store> {
        let known = keyspace_file::read(dir)?;
        let path = dir.join(REGION_FILE);
        if (std::fs::metadata(&path).is_err() || Region::is_unfinished(&path)) && levels::has_devices(dir) {
            let (keyspace, text) = known;
            return start_without_hot(dir, &keyspace, &text, config);
        }
        let region = Region::open(&path, config.flush)?;
        let (keyspace, text) = keyspace_file::finish_change(dir, &region, known)?;
        start_old(region, &keyspace, &text, config, Some(dir))
    }

    /// [`Store::create`] on a medium that is no file.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub fn create_on(medium: Arc<dyn Medium>, keyspace: &Keyspace, config: Config) -> Result<Store> {
        keyspace.check()?;
        check_marks(&config, !config.warm.is_empty())?;
        let region = Region::over(medium);
        let geometry = geometry(&keyspace.schema, &Config { hot_bytes: region.length(), ..config.clone() })?;
        let id = config.random.id();
        start_new(region, geometry, keyspace, &keyspace.to_toml()?, config, id, None)
    }

    /// [`Store::open`] on a medium that is no file.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(medium: Arc<dyn Medium>, keyspace: &Keyspace, config: Config) -> Result<Store> {
        start_old(Region::over(medium), keyspace, &keyspace.to_toml()?, config, None)
    }

    /// [`Store::open`] of a store whose hot level is gone, on an empty medium.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_without_hot_on(medium: Arc<dyn Medium>, keyspace: &Keyspace, config: Config) -> Result<Store> {
        check_marks(&config, false)?;
        let found = levels::open(None, None, keyspace, &config)?
            .ok_or_else(|| Error::invalid("a store without devices has nothing but its hot level"))?;
        let region = Region::over(medium);
        let geometry = geometry(&keyspace.schema, &Config { hot_bytes: region.length(), ..config.clone() })?;
        start_on_warm(region, geometry, keyspace, &keyspace.to_toml()?, config, found, None)
    }

    /// Flushes the store and marks it clean. Calls on any handle answer `Closed` from now on; calls in flight are waited
    /// for, at most 5 s. Guards and reservations are not: they stay valid, others can open the store once the last of
    /// them is dropped, and [`Store::kept`] names their holders. Of several calls to `close`, at once or one after the
    /// other, the first closes; the others wait for its end and answer the same. Also done when the last handle is gone.
    ///
    /// A device that stalls is waited for as long as for any other write, seven times `Config::device_stall`, and for
    /// one `device_stall` in each step after that; replacing its decision log may take as long once more. What did not
    /// get there stays on the hot level.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses its pages, or where the store's files, or a device, are not there any more under their names;
    /// `Unavailable` where calls in flight, or a round that writes to a
    /// device, outlasted the wait: the store is closed and flushed, its lock is released with the last of them, and the
    /// next opening looks at every record.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }

    /// What keeps a closed store from being opened by others: guards and reservations by holder, calls in flight. Of an
    /// open store: what would.
    pub fn kept(&self) -> Kept {
        self.engine().kept()
    }
}

impl Engine {
    pub(crate) fn close(&self) -> Result<()> {
        self.placement.hot.closing.once(|| self.close_now())
    }

    /// Before anything is served: what the store holds is no longer what it was.
    fn note_losses(&self) -> Result<()> {
        let mut superblock = self.life.superblock.lock();
        if self.life.losses.lock().is_empty() || superblock.lost_in == superblock.boot {
            return Ok(());
        }
        superblock.lost_in = superblock.boot;
        write_superblock_durably(&self.placement.hot.region, &mut superblock)
    }

    fn close_now(&self) -> Result<()> {
        self.life.closed.store(true, Ordering::SeqCst);
        // The thread of the store ends.
        self.upkeep.bell.ring();
        if let Some(level) = &self.placement.level {
            level.begin_closing();
        }
        let _round = self.life.maintaining.lock();
        let _last_snapshot = self.decisions.snapshotting.lock();
        // What is on its way down arrives first.
        let rested = self.rest_level();
        // From here on nothing becomes visible: claims and publications ask under the lock.
        for cell in &self.shards.cells {
            cell.lock().closed = true;
        }
        // Decisions that began before are carried out; later ones ask within their guard.
        self.decisions.effects.settled();
        let snapshot = self.take_snapshot().map(drop);
        let idle = self.close_device_logs();
        self.placement.hot.close_cursors();
        self.placement.hot.shut();
        let calls = wait_for_none(CALLS_WAIT, || self.kept().calls);
        self.placement.hot.seal_closed();
        let flushed = self.placement.hot.region.sync();
        // Without space for the snapshot the log stays as it is, whole. What is still in flight was never acknowledged,
        // but it may yet write: then the next opening looks at everything.
        let snapshot = snapshot.or_else(|error| if error.kind() == Kind::Full { Ok(()) } else { Err(error) });
        let mut closed = snapshot.and(flushed);
        if closed.is_ok() && rested.is_ok() && calls == 0 && self.placement.hot.users().1 == 0 {
            let mut superblock = self.life.superblock.lock();
            superblock.clean = true;
            write_superblock(&self.placement.hot.region, &mut superblock);
            closed = self.placement.hot.region.sync();
        }
        if calls == 0 && rested.is_ok() {
            self.let_devices_go(&idle);
        }
        closed = closed.and(rested);
        if calls > 0 {
            closed = closed.and_then(|()| Err(outlasted("store", &self.kept())));
        }
        // This life has written its last byte.
        self.placement.hot.let_go();
        let gone = |what| Error::corrupt(format!("{what}: what was put since is lost with this process"));
        closed.and_then(|()| self.look_at_names().map_or(Ok(()), |what| Err(gone(what))))
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

fn start_new(
    region: Region,
    geometry: Geometry,
    keyspace: &Keyspace,
    text: &str,
    config: Config,
    store: [u8; 16],
    dir: Option<&Path>,
) -> Result<Store> {
    let level = levels::create(dir, store, keyspace, &config)?;
    let count = level.as_ref().map_or(0, |level| level.devices);
    let mut superblock = region_file::first_life(&region, store, text, geometry, count);
    let devices = level.as_ref().map(|level| level.warm.present()).unwrap_or_default();
    let hot = Hot::new(region, geometry, superblock.store, config.write_heads);
    (0..geometry.segments).for_each(|segment| hot.add_free(segment));
    let mut engine = Engine::new(hot, keyspace.clone(), config, superblock.clone(), dir.map(Path::to_owned));
    engine.adopt_level(level);
    // The log begins with a snapshot of nothing; then the superblock makes it a store.
    engine.take_snapshot().inspect_err(|_| levels::unmake(dir, &devices))?;
    engine.snapshot_shadows();
    write_superblock_durably(&engine.placement.hot.region, &mut superblock)?;
    *engine.life.superblock.lock() = superblock;
    Store::start(engine)
}

fn start_old(region: Region, keyspace: &Keyspace, text: &str, config: Config, dir: Option<&Path>) -> Result<Store> {
    check_marks(&config, false)?;
    let widths = (keyspace.schema.key_bytes(), keyspace.schema.primary_bytes());
    let mut life = region_file::next_life(&HOLDS, &region, text, widths, config.accept_loss)?;
    let seat = map_file::seat_of(dir, config.map.as_ref(), &mut life.superblock, &keyspace.name)?;
    // A store that opens only when a disk is mounted stays as it was closed until then.
    let level = levels::open(dir, Some(&life.superblock), keyspace, &config)?;
    if let Some((level, ..)) = &level {
        // First the devices, then the region: cut off in between, the next opening does it again.
        level.warm.take_in()?;
        life.superblock.devices = level.devices;
    }
    life.begin(&region)?;
    let superblock = life.superblock.clone();
    let hot = Hot::new(region, superblock.geometry, superblock.store, config.write_heads);
    let mut engine = Engine::new(hot, keyspace.clone(), config, superblock, dir.map(Path::to_owned));
    engine.begin_in(seat);
    if level.is_none() && life.superblock.devices > 0 {
        engine.life.losses.lock().push(levels::all_gone(life.superblock.devices));
    }
    let mut there = level.map(|(level, there, _)| {
        engine.adopt_level(Some(level));
        There { figures_kept: life.was_clean, ..there }
    });
    let recovered = recover::recover(&engine, life.power_lost, there.as_mut());
    let replaced = recovered.inspect_err(|_| life.take_back(&engine.placement.hot.region))?;
    life.settle(&engine.placement.hot.region)?;
    *engine.life.superblock.lock() = life.superblock;
    recover::finish(&engine, replaced)?;
    Store::start(engine)
}

/// The hot level is gone, as memory is after the loss of power: what the devices have is served from a new one.
fn start_without_hot(dir: &Path, keyspace: &Keyspace, text: &str, config: Config) -> Result<Store> {
    if !config.accept_loss {
        return Err(Error::corrupt(format!(
            "{}: the hot level is gone; data on it alone is lost. What the warm level has can be served: open with \
             accept_loss",
            dir.display()
        )));
    }
    let (level, there, store) = levels::open(Some(dir), None, keyspace, &config)?
        .ok_or_else(|| Error::internal("devices that were just read"))?;
    let geometry = geometry(&keyspace.schema, &config)?;
    let (elsewhere, id) = (config.region_dir.as_ref(), config.random.id());
    let region = region_file::make_again(&HOLDS, dir, geometry.region_bytes(), elsewhere, config.flush, id)?;
    start_on_warm(region, geometry, keyspace, text, config, (level, there, store), Some(dir))
}

fn start_on_warm(
    region: Region,
    geometry: Geometry,
    keyspace: &Keyspace,
    text: &str,
    config: Config,
    (level, there, store): (Level, There, [u8; 16]),
    dir: Option<&Path>,
) -> Result<Store> {
    level.warm.take_in()?;
    let mut superblock = region_file::first_life(&region, store, text, geometry, level.devices);
    // No token of a life before may be in force again.
    superblock.boot = recover::boot_after(&there).saturating_add(1);
    let seat = match dir {
        Some(dir) => map_file::seat_without_region(dir, &mut superblock, &keyspace.name)?,
        None => None,
    };
    let hot = Hot::new(region, geometry, store, config.write_heads);
    (0..geometry.segments).for_each(|segment| hot.add_free(segment));
    let mut engine = Engine::new(hot, keyspace.clone(), config, superblock.clone(), dir.map(Path::to_owned));
    engine.begin_in(seat);
    engine.adopt_level(Some(level));
    engine.life.losses.lock().push("the hot level: data on it alone is lost".to_owned());
    let replaced = recover::recover_from_warm(&engine, there)?;
    recover::finish(&engine, replaced)?;
    write_superblock_durably(&engine.placement.hot.region, &mut superblock)?;
    *engine.life.superblock.lock() = superblock;
    Store::start(engine)
}

impl Store {
    fn start(mut engine: Engine) -> Result<Store> {
        // What cannot be opened to be watched was read all the same, and is not watched.
        let files = engine.life.dir.iter().flat_map(|dir| [REGION_FILE, KEYSPACE_FILE].map(|file| dir.join(file)));
        engine.life.named = files.filter_map(|path| Named::open(&path).ok()).collect();
        engine.claims.lock().archive = engine.life.dir.as_deref().map(archive_file::read).transpose()?.flatten();
        engine.note_losses()?;
        engine.book_custody();
        engine.begin_run_times();
        let maintenance = engine.config.maintenance;
        let holder = new_holder(&Arc::new(engine), "store");
        if maintenance {
            let failed = |error| Error::unavailable("cannot start a thread").with_source(error);
            upkeep::spawn(&holder).map_err(failed)?;
            if holder.engine.placement.level.is_some() {
                levels::spawn(&holder).map_err(failed)?;
            }
        }
        Ok(Store::handle(holder))
    }
}
