//! `devices.toml`: the list of a store's devices, which are drained, and which took the place of another one.
//!
//! *Invariant*: the list is replaced as a whole, by a rename: an opening finds the old one or the new one.

use crate::config::{Config, WarmDevice, WarmPlace};
use forebay_core::{Error, Result};
use forebay_media::region_file::write_durably;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub(super) const DEVICES_FILE: &str = "devices.toml";
/// The list before it takes the place of the old one.
const CHANGED_FILE: &str = "devices.toml.new";

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
    /// It is being drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leaving: bool,
    /// The directory whose place it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<PathBuf>,
}

impl DeviceRow {
    fn device(&self) -> WarmDevice {
        WarmDevice { leaving: self.leaving, ..WarmDevice::directory(self.path.clone(), self.bytes) }
    }
}

/// The path of a device's directory, the same for all names of it.
pub(super) fn path_of(device: &WarmDevice) -> Option<PathBuf> {
    match &device.place {
        WarmPlace::Directory(path) => Some(same_path(path)),
        WarmPlace::Device(_) => None,
    }
}

fn same_path(path: &Path) -> PathBuf {
    let plain = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    std::fs::canonicalize(path).unwrap_or_else(|_| plain())
}

/// The devices to open: those of the configuration, else those of the list, which says which of them leave.
///
/// # Errors
/// `Invalid` where the list cannot be read, or where the configuration names a device that was exchanged.
pub(super) fn wanted(dir: Option<&Path>, config: &Config) -> Result<Vec<WarmDevice>> {
    let rows = dir.map(read_rows).transpose()?.flatten().unwrap_or_default();
    if config.warm.is_empty() {
        return Ok(rows.iter().map(DeviceRow::device).collect());
    }
    let mut wanted = config.warm.clone();
    for device in &mut wanted {
        let Some(path) = path_of(device) else { continue };
        // What was taken since lies on the other one: served without it, it would be missing without a word.
        if let Some(row) = rows.iter().find(|row| row.replaces.as_ref().is_some_and(|old| same_path(old) == path)) {
            return Err(Error::invalid(format!(
                "{} was exchanged for {}: name that one in the configuration of the warm level",
                path.display(),
                row.path.display()
            )));
        }
        device.leaving |= rows.iter().any(|row| row.leaving && same_path(&row.path) == path);
    }
    Ok(wanted)
}

/// Notes durably that the device of this name leaves, or takes data again.
///
/// # Errors
/// `Invalid` where the list does not have it, or cannot be read or written.
pub(super) fn remember_leaving(dir: &Path, name: &str, leaving: bool) -> Result<()> {
    change(dir, name, |row| row.leaving = leaving)
}

/// Notes durably that another directory has the place of the device of this name, and takes data.
///
/// # Errors
/// `Invalid` where the list does not have it, or cannot be read or written.
pub(super) fn remember_exchange(dir: &Path, name: &str, to: &Path) -> Result<()> {
    change(dir, name, |row| {
        row.replaces = Some(std::mem::replace(&mut row.path, to.to_owned()));
        row.leaving = false;
    })
}

/// Notes durably that this directory is one more device of the store.
///
/// # Errors
/// `Invalid` where the list cannot be read or written.
pub(super) fn remember_added(dir: &Path, path: &Path, bytes: u64) -> Result<()> {
    let mut rows = read_rows(dir)?.unwrap_or_default();
    rows.push(DeviceRow { path: path.to_owned(), bytes, leaving: false, replaces: None });
    write_rows(dir, rows)
}

/// How many devices the list has.
///
/// # Errors
/// `Invalid` where it cannot be read.
pub(super) fn listed(dir: &Path) -> Result<usize> {
    Ok(read_rows(dir)?.map_or(0, |rows| rows.len()))
}

/// The list of a store in this directory.
pub(super) fn list_of(dir: &Path) -> PathBuf {
    dir.join(DEVICES_FILE)
}

/// Whether the list has this directory, or had it before an exchange.
///
/// # Errors
/// `Invalid` where the list cannot be read.
pub(super) fn is_listed(dir: &Path, path: &Path) -> Result<bool> {
    let (rows, path) = (read_rows(dir)?.unwrap_or_default(), same_path(path));
    Ok(rows
        .iter()
        .flat_map(|row| [Some(&row.path), row.replaces.as_ref()])
        .flatten()
        .any(|known| same_path(known) == path))
}

/// Whether the device of this name is this directory, and took the place of another one.
///
/// # Errors
/// `Invalid` where the list cannot be read.
pub(super) fn took_a_place(dir: &Path, path: &Path, name: &str) -> Result<bool> {
    let (rows, path) = (read_rows(dir)?.unwrap_or_default(), same_path(path));
    Ok(same_path(Path::new(name)) == path
        && rows.iter().any(|row| row.replaces.is_some() && same_path(&row.path) == path))
}

fn change(dir: &Path, name: &str, change: impl FnOnce(&mut DeviceRow)) -> Result<()> {
    let mut rows = read_rows(dir)?.unwrap_or_default();
    let path = same_path(Path::new(name));
    let row = rows.iter_mut().find(|row| same_path(&row.path) == path).ok_or_else(|| {
        let list = dir.join(DEVICES_FILE);
        Error::invalid(format!("{} does not list {name}: enter it again first (docs/operating.md)", list.display()))
    })?;
    change(row);
    write_rows(dir, rows)
}

/// Writes the list of a new store; none for devices that are no directories.
///
/// # Errors
/// `Invalid` where it cannot be written.
pub(super) fn write_devices(dir: &Path, devices: &[WarmDevice]) -> Result<()> {
    let row = |device: &WarmDevice| match &device.place {
        WarmPlace::Directory(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Some(DeviceRow { path, bytes: device.bytes, leaving: false, replaces: None })
        }
        WarmPlace::Device(_) => None,
    };
    let rows: Vec<DeviceRow> = devices.iter().filter_map(row).collect();
    if rows.is_empty() { Ok(()) } else { write_rows(dir, rows) }
}

fn write_rows(dir: &Path, rows: Vec<DeviceRow>) -> Result<()> {
    let text = toml::to_string(&DevicesFile { device: rows })
        .map_err(|error| Error::internal("devices cannot be written as TOML").with_source(error))?;
    let path = dir.join(DEVICES_FILE);
    // Beside it first: written in place, a kill in between would leave a store whose list says less than it has.
    write_durably(dir, CHANGED_FILE, &text)
        .and_then(|()| std::fs::rename(dir.join(CHANGED_FILE), &path))
        .and_then(|()| std::fs::File::open(dir)?.sync_all())
        .map_err(|error| Error::invalid(format!("{}: cannot be written", path.display())).with_source(error))
}

fn read_rows(dir: &Path) -> Result<Option<Vec<DeviceRow>>> {
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
    Ok(Some(file.device))
}

/// The devices of the list; `None` where there is no list.
///
/// # Errors
/// `Invalid` where it cannot be read.
pub(super) fn read_devices(dir: &Path) -> Result<Option<Vec<WarmDevice>>> {
    Ok(read_rows(dir)?.map(|rows| rows.iter().map(DeviceRow::device).collect()))
}
