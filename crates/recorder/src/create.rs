//! Making a recording on devices, and opening one.
//!
//! *On failure*: a creation that fails leaves no files behind; opening fails closed.

use super::config::{RecordingConfig, WarmDir};
use super::files;
use super::image::Image;
use super::index::Index;
use super::limits::{LOG_BYTES, PRIMARY_BYTES, REST_BYTES};
use super::playback::{self, Playback};
use super::recording::{LaneStart, Medium, Recording};
use super::sink::ContainerSink;
use forebay_core::{Error, Result};
use forebay_media::region_file::random_id;
use forebay_media::warm::{Device, DirectoryDevice, IoMethod, Warm, WarmShape};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Widths of primary and remaining key.
const WIDTHS: (usize, usize) = (PRIMARY_BYTES, REST_BYTES);

impl Recording {
    /// Makes a recording in directories, each one device, and starts it. All containers are allocated now.
    ///
    /// # Errors
    /// `Invalid` for sizes that cannot be, or a directory that holds a recording; `Full` where a directory has not the
    /// room; `Unavailable` where a directory cannot be used, or another process has it.
    pub fn create(dirs: &[WarmDir], config: RecordingConfig) -> Result<Recording> {
        config.check()?;
        for dir in dirs {
            std::fs::create_dir_all(&dir.path).map_err(|error| cannot(&dir.path, "cannot be made", error))?;
        }
        let paths: Vec<PathBuf> = dirs.iter().map(|dir| dir.path.clone()).collect();
        let devices = open_devices(&paths)?;
        Recording::create_on(devices, dirs, config)
    }

    /// As [`Recording::create`], on devices of the caller's own; what the recording is and its manifest go to the
    /// directories.
    ///
    /// # Errors
    /// As [`Recording::create`].
    pub fn create_on(devices: Vec<Arc<dyn Device>>, dirs: &[WarmDir], config: RecordingConfig) -> Result<Recording> {
        config.check()?;
        if dirs.is_empty() || devices.len() != dirs.len() {
            let message =
                format!("{} devices for {} directories: one for each, at least one", devices.len(), dirs.len());
            return Err(Error::invalid(message));
        }
        for dir in dirs {
            if files::holds_recording(&dir.path) {
                let message = "holds a recording already: play it, or name another directory";
                return Err(Error::invalid(format!("{}: {message}", dir.path.display())));
            }
        }
        // This recording must not remove what is there already, even if a step below fails.
        let before: Vec<HashSet<String>> = devices.iter().map(|device| names(device.as_ref())).collect();
        let made = make(&devices, dirs, &before, config);
        if made.is_err() {
            devices.iter().zip(&before).for_each(|(device, before)| remove_new(device.as_ref(), before));
        }
        made
    }

    /// Opens a recording for reading. Where its process died before it wrote a manifest, one is rebuilt from the
    /// containers. With `accept_loss` what is left is served where devices are missing or committed data does not verify
    /// (`Playback::losses` names it), and a manifest that does not verify counts as none.
    ///
    /// # Errors
    /// `Invalid` if there is none, or directories are missing; `Corrupt` where committed data or the manifest does not
    /// verify; `Unavailable` where another process has it.
    pub fn open(dirs: &[PathBuf], accept_loss: bool) -> Result<Playback> {
        // Without what says that there is a recording nothing is touched.
        files::description(dirs)?;
        Recording::open_on(open_devices(dirs)?, dirs, accept_loss)
    }

    /// As [`Recording::open`], on devices of the caller's own.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open_on(devices: Vec<Arc<dyn Device>>, dirs: &[PathBuf], accept_loss: bool) -> Result<Playback> {
        let description = files::description(dirs)?;
        // Fewer devices would look like fewer images, and a rebuilt manifest would call what is elsewhere missing.
        if devices.len() != description.devices as usize && !accept_loss {
            return Err(Error::invalid(format!(
                "the recording is on {} devices, {} are given",
                description.devices,
                devices.len()
            )));
        }
        // Sizes as they were at its creation; how it is driven is of no matter to a reader.
        let config = RecordingConfig {
            container_bytes: description.container_bytes,
            extent_bytes: description.extent_bytes,
            ..RecordingConfig::default()
        };
        let (warm, mut found) = Warm::open(devices, description.recording, WIDTHS, shape(&config), accept_loss)?;
        let warm = Arc::new(warm);
        let mut index = Index::new(&description.links);
        warm.images(&mut found, &mut |place, image| {
            let (head, primary, table) = (&image.head, image.primary, image.table());
            // Live as long as the playback is open: nothing of a recording ends.
            warm.adopt(place, head.fragments);
            index.add(place, head, primary, table)
        })?;
        // Containers first: whether the manifest is there or not, what plays back is what they hold.
        let written = files::manifest(dirs).or_else(|error| {
            if !accept_loss {
                return Err(error);
            }
            found.losses.push(error.to_string());
            Ok(None)
        })?;
        let manifest = playback::manifest(written, &description, &warm, &index)?;
        Ok(Playback::new(warm, index, manifest, found.losses))
    }
}

fn make(
    devices: &[Arc<dyn Device>],
    dirs: &[WarmDir],
    before: &[HashSet<String>],
    config: RecordingConfig,
) -> Result<Recording> {
    let id = random_id();
    let bytes: Vec<u64> = dirs.iter().map(|dir| dir.bytes).collect();
    let warm = Arc::new(Warm::create(devices.to_vec(), bytes, id, WIDTHS, shape(&config))?);
    let longest = Image::payload_max(config.extent_bytes) as u64;
    // Asked now: an extent that fits no container would be refused by every writer, frame after frame.
    if warm.payload_bytes_max() < longest {
        return Err(Error::invalid(format!(
            "extents of {} bytes do not fit containers of {}",
            config.extent_bytes, config.container_bytes
        )));
    }
    let containers = warm.containers();
    let lane = |(at, device): (usize, &Arc<dyn Device>)| {
        let mut sink = ContainerSink::new(warm.clone(), config.run, at as u32, config.finish_deadline);
        let containers = containers.iter().filter(|container| container.header.device as usize == at).count() as u32;
        LaneStart {
            directory: device.name(),
            method: device.method(),
            containers,
            bytes: u64::from(containers) * config.container_bytes,
            run: Box::new(move |body| body(&mut sink)),
        }
    };
    let lanes = devices.iter().enumerate().map(lane).collect();
    let medium = Medium { devices: devices.to_vec(), warm, before: before.to_vec() };
    Recording::start(id, dirs.iter().map(|dir| dir.path.clone()).collect(), config, lanes, Some(medium))
}

fn shape(config: &RecordingConfig) -> WarmShape {
    WarmShape {
        container_bytes: config.container_bytes,
        log_bytes: LOG_BYTES,
        io_bytes: config.io_bytes,
        depth: config.depth,
        stall: config.stall,
        ..WarmShape::default()
    }
}

fn names(device: &dyn Device) -> HashSet<String> {
    device.list().unwrap_or_default().into_iter().collect()
}

/// Removes what was not there before.
pub(super) fn remove_new(device: &dyn Device, before: &HashSet<String>) {
    for name in names(device).difference(before) {
        // The caller has an error to report that comes before this one.
        let _ = device.remove(name);
    }
    let _ = device.sync_names();
}

fn open_devices(paths: &[PathBuf]) -> Result<Vec<Arc<dyn Device>>> {
    let open = |path: &PathBuf| -> Result<Arc<dyn Device>> {
        let device = DirectoryDevice::open(path, IoMethod::Auto, true);
        Ok(Arc::new(device.map_err(|error| cannot(path, "cannot be used", error))?))
    };
    paths.iter().map(open).collect()
}

fn cannot(path: &Path, what: &str, error: std::io::Error) -> Error {
    let message = format!("{}: {what}", path.display());
    let error_of_kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::full(message),
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory => Error::invalid(message),
        _ => Error::unavailable(message),
    };
    error_of_kind.with_source(error)
}
