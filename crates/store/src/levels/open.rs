//! Making and finding the warm level of a store.
//!
//! ```text
//! DIR/devices.toml    directories of the warm level, for people and for opening
//! ```
//!
//! *On failure*: a device that is not there, or belongs to another store, is named; nothing is served without it.

use super::Level;
use crate::config::{Config, WarmDevice, WarmPlace};
use crate::pressure::check_marks;
use crate::recover::There;
use crate::warm::{AbsentDevice, Device, DeviceLog, DirectoryDevice, IoMethod, Warm, WarmShape, is_warm_file};
use forebay_core::{Error, Keyspace, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEVICES_FILE: &str = "devices.toml";
/// Containers that a location can name.
const CONTAINERS_MAX: u64 = 1 << 14;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DevicesFile {
    device: Vec<DeviceRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceRow {
    path: PathBuf,
    bytes: u64,
}

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
        if let Some(dir) = dir {
            write_devices(dir, &config.warm)?;
        }
        Ok(log)
    });
    let log = log.inspect_err(|_| unmake(dir, &devices))?;
    Ok(Some(Level::new(Arc::new(warm), log, devices.len() as u32, config, keyspace)))
}

/// Removes the warm level of a store whose creation failed: the next attempt finds the devices empty.
pub(crate) fn unmake(dir: Option<&Path>, devices: &[Arc<dyn Device>]) {
    // The error that brought us here is the one to answer.
    for device in devices {
        for name in device.list().unwrap_or_default().iter().filter(|name| is_warm_file(name)) {
            let _ = device.remove(name);
        }
        let _ = device.sync_names();
    }
    if let Some(dir) = dir {
        let _ = std::fs::remove_file(dir.join(DEVICES_FILE));
    }
}

/// Finds the warm level of a store again; `None` where it has none.
pub(crate) fn open(
    dir: Option<&Path>,
    store: Option<[u8; 16]>,
    keyspace: &Keyspace,
    config: &Config,
) -> Result<Option<(Level, There, [u8; 16])>> {
    let known = dir.map(read_devices).transpose()?.flatten();
    let wanted = if config.warm.is_empty() { known.unwrap_or_default() } else { config.warm.clone() };
    if wanted.is_empty() {
        return Ok(None);
    }
    check_marks(config, true)?;
    // One that is not there keeps its number: the logs of the others say theirs.
    let gone: Vec<bool> = wanted.iter().map(|device| config.accept_loss && is_gone(device)).collect();
    let devices = wanted
        .iter()
        .zip(&gone)
        .map(|(device, gone)| if *gone { Ok(absent(device)) } else { open_device(device, false) })
        .collect::<Result<Vec<_>>>()?;
    let there = devices.iter().zip(&gone).filter(|(_, gone)| !**gone);
    let there: Vec<Arc<dyn Device>> = there.map(|(device, _)| device.clone()).collect();
    let schema = &keyspace.schema;
    let widths = (schema.primary_bytes(), schema.rest_bytes());
    // What a shadow lost the hot log has.
    let hot_is_there = store.is_some();
    let store = match store {
        Some(store) => store,
        None => Warm::store_of(&there)?,
    };
    let (warm, mut found) = Warm::open(there, store, widths, shape(config), config.accept_loss)?;
    let accept_loss = config.accept_loss || hot_is_there;
    let (log, decisions, lost) =
        DeviceLog::open(&devices, store, schema.key_bytes(), config.device_log_bytes, accept_loss)?;
    let level = Level::new(Arc::new(warm), log, devices.len() as u32, config, keyspace);
    let mut losses = std::mem::take(&mut found.losses);
    if hot_is_there {
        lost.into_iter().for_each(|what| level.note(what));
    } else {
        losses.extend(lost);
    }
    Ok(Some((level, There { found, decisions, losses, figures_kept: false }, store)))
}

/// Whether a store has a warm level that could be served without its hot one.
pub(crate) fn has_devices(dir: &Path) -> bool {
    read_devices(dir).is_ok_and(|devices| devices.is_some())
}

/// Directories of the warm level that are not there.
///
/// # Errors
/// `Invalid` where their list cannot be read.
pub(crate) fn absent_devices(dir: &Path) -> Result<Vec<PathBuf>> {
    let path_of = |device: WarmDevice| match device.place {
        WarmPlace::Directory(path) => Some(path),
        WarmPlace::Device(_) => None,
    };
    Ok(read_devices(dir)?.unwrap_or_default().into_iter().filter(is_gone).filter_map(path_of).collect())
}

/// Whether nothing at all is where a device should be. An empty directory may be one on which nothing is mounted now: that
/// is no loss to be accepted.
fn is_gone(device: &WarmDevice) -> bool {
    matches!(&device.place, WarmPlace::Directory(path) if std::fs::metadata(path)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound))
}

fn absent(device: &WarmDevice) -> Arc<dyn Device> {
    let name = match &device.place {
        WarmPlace::Directory(path) => path.display().to_string(),
        WarmPlace::Device(device) => device.name(),
    };
    Arc::new(AbsentDevice::new(name))
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

fn open_device(device: &WarmDevice, make: bool) -> Result<Arc<dyn Device>> {
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

fn write_devices(dir: &Path, devices: &[WarmDevice]) -> Result<()> {
    let row = |device: &WarmDevice| match &device.place {
        WarmPlace::Directory(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Some(DeviceRow { path, bytes: device.bytes })
        }
        WarmPlace::Device(_) => None,
    };
    let rows: Vec<DeviceRow> = devices.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let text = toml::to_string(&DevicesFile { device: rows })
        .map_err(|error| Error::internal("devices cannot be written as TOML").with_source(error))?;
    let path = dir.join(DEVICES_FILE);
    std::fs::write(&path, text)
        .map_err(|error| Error::invalid(format!("{}: cannot be written", path.display())).with_source(error))
}

fn read_devices(dir: &Path) -> Result<Option<Vec<WarmDevice>>> {
    let path = dir.join(DEVICES_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::invalid(format!("{}: cannot be read", path.display())).with_source(error));
        }
    };
    let file: DevicesFile = toml::from_str(&text)
        .map_err(|error| Error::invalid(format!("{}: cannot be understood", path.display())).with_source(error))?;
    Ok(Some(file.device.into_iter().map(|row| WarmDevice::directory(row.path, row.bytes)).collect()))
}
