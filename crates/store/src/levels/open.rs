//! Making and finding the warm level of a store.
//!
//! ```text
//! DIR/devices.toml    directories of the warm level, for people and for opening
//! ```
//!
//! *Invariant*: the region says how many devices its store has, and each device which of them it is: the list may have them in
//! any order, and a list that lacks one, or has one that is not its own, is refused (tests/levels/device_list.rs). A device that
//! was added is the store's own with its row in the list (`add.rs`).
//!
//! *On failure*: a device that is not there, or belongs to another store, is named; nothing is served without it, unless the
//! loss is accepted.

use super::list::{DEVICES_FILE, path_of, read_devices, wanted, write_devices};
use crate::config::check_marks;
use crate::config::{Config, WarmDevice, WarmPlace};
use crate::placement::{Level, There};
use forebay_core::{Error, Keyspace, Result};
use forebay_media::bytes::{DeviceSuperblock, Superblock};
use forebay_media::warm::{AbsentDevice, Device, DeviceLog, DirectoryDevice, IoMethod, Warm, WarmShape, remove_all};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Containers that a location can name.
pub(super) const CONTAINERS_MAX: u64 = 1 << 14;

/// Makes the warm level of a new store; `None` where it has none.
pub(crate) fn create(
    dir: Option<&Path>,
    store: [u8; 16],
    keyspace: &Keyspace,
    config: &Config,
) -> Result<Option<Level>> {
    if config.warm.is_empty() {
        return Ok(None);
    }
    check_marks(config, true)?;
    let bytes: Vec<u64> = config.warm.iter().map(|device| device.bytes).collect();
    // Before any directory is made: a refused store leaves nothing behind.
    let containers: u64 = bytes.iter().map(|bytes| bytes / config.container_bytes).sum();
    if containers > CONTAINERS_MAX {
        return Err(Error::invalid(format!(
            "{containers} containers of {} bytes: a store has at most {CONTAINERS_MAX}; larger ones (container_bytes) help",
            config.container_bytes
        )));
    }
    let devices = devices(&config.warm, true)?;
    let schema = &keyspace.schema;
    let widths = (schema.primary_bytes(), schema.rest_bytes());
    let warm = Warm::create(devices.clone(), bytes, store, widths, shape(config))?;
    let log = DeviceLog::create(&devices, store, schema.key_bytes(), config.device_log_bytes).and_then(|log| {
        // Last: a list without its devices would be refused at every opening.
        if let Some(dir) = dir {
            write_devices(dir, &config.warm)?;
        }
        Ok(log)
    });
    let log = log.inspect_err(|_| unmake(dir, &devices))?;
    Ok(Some(Level::new(
        Arc::new(warm.with(config.clock.clone(), config.random.clone())),
        log,
        devices.len() as u32,
        config,
        keyspace,
    )))
}

/// Removes the warm level of a store whose creation failed: the next attempt finds the devices empty.
pub(crate) fn unmake(dir: Option<&Path>, devices: &[Arc<dyn Device>]) {
    devices.iter().for_each(|device| remove_all(device.as_ref()));
    if let Some(dir) = dir {
        let _ = std::fs::remove_file(dir.join(DEVICES_FILE));
    }
}

/// Finds the warm level of a store again; `None` where it has none, or where all of its devices are gone and that loss is
/// accepted ([`all_gone`] says so). `region` is the superblock of the store's region, where that is there.
///
/// # Errors
/// `Invalid` where the list of devices is not that of the store, or one is not a device of it; `Unavailable` where one cannot
/// be used; `Corrupt` for what cannot be accounted for.
pub(crate) fn open(
    dir: Option<&Path>,
    region: Option<&Superblock>,
    keyspace: &Keyspace,
    config: &Config,
) -> Result<Option<(Level, There, [u8; 16])>> {
    let wanted = wanted(dir, config)?;
    // Before anything is opened: with a device too few or too many, decisions and images would not belong together.
    if let Some(region) = region {
        check_list(&wanted, region.devices, &list_name(dir, config), config.accept_loss)?;
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    check_marks(config, true)?;
    // Only what is not there at all: a directory that is there and cannot be read may hold all data.
    let gone: Vec<bool> = wanted.iter().map(|device| config.accept_loss && is_gone(device)).collect();
    if region.is_some() && gone.iter().all(|gone| *gone) {
        return Ok(None);
    }
    let (mut there, mut names, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
    for (device, gone) in wanted.iter().zip(gone) {
        if gone {
            names.push(name_of(device));
        } else {
            let opened = open_device(device, false)?;
            leaving.extend(device.leaving.then(|| opened.name()));
            there.push(opened);
        }
    }
    let schema = &keyspace.schema;
    let widths = (schema.primary_bytes(), schema.rest_bytes());
    // What a shadow lost the hot log has.
    let hot_is_there = region.is_some();
    let store = match region {
        Some(region) => region.store,
        None => Warm::store_of(&there)?,
    };
    let known = region.map_or(0, |region| region.devices);
    let places = in_their_places(&there, store, widths)?;
    let known = check_added(&places, known, &wanted, &list_name(dir, config), config.accept_loss)?;
    let devices = with_those_gone(places, names, known);
    let (warm, mut found) = Warm::open(there, store, widths, shape(config), config.accept_loss)?;
    leaving.into_iter().for_each(|name| warm.leaves_by_name(&name));
    let accept_loss = config.accept_loss || hot_is_there;
    let (log, decisions, lost) =
        DeviceLog::open(&devices, store, schema.key_bytes(), config.device_log_bytes, accept_loss)?;
    let level = Level::new(
        Arc::new(warm.with(config.clock.clone(), config.random.clone())),
        log,
        devices.len() as u32,
        config,
        keyspace,
    );
    let mut losses = std::mem::take(&mut found.losses);
    if hot_is_there {
        lost.into_iter().for_each(|what| level.note(what));
    } else {
        losses.extend(lost);
    }
    Ok(Some((level, There { found, decisions, losses, figures_kept: false }, store)))
}

/// What is lost where a store is opened without any of its devices.
pub(crate) fn all_gone(devices: u32) -> String {
    format!("all {devices} devices of the warm level: data that was only on them is lost")
}

/// Where the list of devices comes from, as errors call it.
fn list_name(dir: Option<&Path>, config: &Config) -> String {
    match dir {
        Some(dir) if config.warm.is_empty() => dir.join(DEVICES_FILE).display().to_string(),
        _ => "the configuration of the warm level".to_owned(),
    }
}

/// Compares the list of devices with the number that is known.
fn check_list(wanted: &[WarmDevice], devices: u32, list: &str, accept_loss: bool) -> Result<()> {
    // The same directory by two names would be written by two devices.
    let paths: Vec<PathBuf> = wanted.iter().filter_map(path_of).collect();
    if let Some((_, twice)) = paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path)) {
        return Err(Error::invalid(format!("{list} lists {} twice", twice.display())));
    }
    let listed = wanted.len();
    if listed == devices as usize || listed < devices as usize && accept_loss {
        return Ok(());
    }
    let gone = wanted.iter().find(|device| is_gone(device));
    if listed > devices as usize && devices > 0 && gone.is_none() {
        // Perhaps it was added: that device says so itself.
        return Ok(());
    }
    Err(Error::invalid(match (listed, devices) {
        (_, 0) => {
            format!("{list} lists devices ({listed}), but this store was made without a warm level: take them out")
        }
        (0, _) => format!(
            "{list} is missing or lists no device, but this store was made with {devices}, and cannot be served without them. \
             Write the list again: a section [[device]] with path and bytes for each ({DEVICES_FILE} in docs/operating.md). \
             If they are gone for good, open with accept_loss: what the hot level has is served"
        ),
        _ if listed > devices as usize => {
            format!(
                "{list} lists {listed} devices, but this store was made with {devices}, and {} is not there: take out what is not its \
                 own. One that was added is taken in when all are there",
                gone.map(name_of).unwrap_or_default()
            )
        }
        _ => format!(
            "{list} lists {listed} of the {devices} devices that this store was made with: add the others, or open with \
             accept_loss to serve what is left"
        ),
    }))
}

/// Devices by their numbers, with what each says of itself.
type Places = BTreeMap<u32, (DeviceSuperblock, Arc<dyn Device>)>;

fn in_their_places(there: &[Arc<dyn Device>], store: [u8; 16], widths: (usize, usize)) -> Result<Places> {
    let mut places = Places::new();
    for device in there {
        let superblock = Warm::superblock_of(device.as_ref(), &store, widths)?;
        // By the number in its superblock, not by its place in the list, which a person may have changed.
        if let Some((_, other)) = places.insert(superblock.device, (superblock, device.clone())) {
            let (one, two, number) = (other.name(), device.name(), superblock.device);
            return Err(Error::invalid(format!("{one} and {two} are both device {number} of this store")));
        }
    }
    Ok(places)
}

/// Whether what the list has beside the devices that the store knows was added to it; answers their number, with them. `known`
/// is what the region says, 0 without one.
fn check_added(places: &Places, known: u32, wanted: &[WarmDevice], list: &str, accept_loss: bool) -> Result<u32> {
    let own = places.values().filter(|(superblock, _)| !superblock.is_added());
    let known = own.map(|(superblock, _)| superblock.devices).fold(known, u32::max);
    // Again: an opening that was cut off may have told the devices of an added one, and not the region.
    check_list(wanted, known, list, accept_loss)?;
    let listed = wanted.len() as u32;
    for (number, (_, device)) in places.iter().filter(|(_, (superblock, _))| superblock.is_added()) {
        if !(known..listed).contains(number) {
            return Err(Error::invalid(format!(
                "{}: was to become device {number} of this store, and never did: {list} with the devices of the store has no place \
                 for it. Take it out, and empty it before it is added again",
                device.name()
            )));
        }
    }
    Ok(known.max(listed))
}

/// All `count` devices, in the places that are left those that are gone, by their names. The decision logs say theirs.
fn with_those_gone(mut places: Places, gone: Vec<String>, count: u32) -> Vec<Arc<dyn Device>> {
    let mut names = gone.into_iter();
    let mut device = |number: u32| match places.remove(&number) {
        Some((_, device)) => device,
        None => {
            let name = names.next().unwrap_or_else(|| format!("device {number}, which is not listed"));
            Arc::new(AbsentDevice::new(name)) as Arc<dyn Device>
        }
    };
    (0..count).map(&mut device).collect()
}

/// Whether a store has a warm level that could be served without its hot one.
pub(crate) fn has_devices(dir: &Path) -> bool {
    read_devices(dir).is_ok_and(|devices| devices.is_some_and(|devices| !devices.is_empty()))
}

/// Directories of the warm level that are not there.
///
/// # Errors
/// `Invalid` where their list cannot be read.
pub(crate) fn absent_devices(dir: &Path) -> Result<Vec<PathBuf>> {
    let path = |device: WarmDevice| match device.place {
        WarmPlace::Directory(path) => Some(path),
        WarmPlace::Device(_) => None,
    };
    Ok(read_devices(dir)?.unwrap_or_default().into_iter().filter(is_gone).filter_map(path).collect())
}

/// Whether nothing at all is where a device should be. An empty directory may be one on which nothing is mounted now: that
/// is no loss to be accepted.
fn is_gone(device: &WarmDevice) -> bool {
    matches!(&device.place, WarmPlace::Directory(path) if std::fs::metadata(path)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound))
}

pub(super) fn name_of(device: &WarmDevice) -> String {
    match &device.place {
        WarmPlace::Directory(path) => path.display().to_string(),
        WarmPlace::Device(device) => device.name(),
    }
}

/// The devices of the store in a directory, opened; none where it has no warm level.
///
/// # Errors
/// `Invalid` where their list cannot be read, `Unavailable` where one cannot be used.
pub(crate) fn devices_of(dir: &Path) -> Result<Vec<Arc<dyn Device>>> {
    devices(&read_devices(dir)?.unwrap_or_default(), false)
}

fn shape(config: &Config) -> WarmShape {
    WarmShape {
        container_bytes: config.container_bytes,
        log_bytes: config.device_log_bytes,
        stall: config.device_stall,
        ..WarmShape::default()
    }
}

fn devices(wanted: &[WarmDevice], make: bool) -> Result<Vec<Arc<dyn Device>>> {
    wanted.iter().map(|device| open_device(device, make)).collect()
}

pub(super) fn open_device(device: &WarmDevice, make: bool) -> Result<Arc<dyn Device>> {
    let path = match &device.place {
        WarmPlace::Device(device) => return Ok(device.clone()),
        WarmPlace::Directory(path) => path,
    };
    if make {
        let invalid =
            |error| Error::invalid(format!("{}: cannot make the directory", path.display())).with_source(error);
        std::fs::create_dir_all(path).map_err(invalid)?;
    }
    let device = DirectoryDevice::open(path, IoMethod::Auto, true).map_err(|error| {
        Error::unavailable(format!("{}: the device cannot be used: {error}", path.display())).with_source(error)
    })?;
    Ok(Arc::new(device))
}
