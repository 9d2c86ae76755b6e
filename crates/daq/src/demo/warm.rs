//! The warm level of a demo: how its devices are cut, where they lie, what became of them.
//!
//! *Lifecycle*: directories are named → the store makes its devices there → used → removed with the store, or kept with it.

use super::DemoConfig;
use crate::figures::bytes;
use crate::limits::{WARM_CONTAINERS, WARM_CONTAINERS_MIN};
use forebay_core::{Error, Result};
use forebay_store::{Store, WarmDevice};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Every size on a device is a multiple of this.
const BLOCK_BYTES: u64 = 4096;
/// Bounds of a container.
const CONTAINER_BYTES_MIN: u64 = 256 << 10;
const CONTAINER_BYTES_MAX: u64 = 1 << 30;
/// Bounds of one of the two files of a device's decision log, and its part of the device, as a divisor.
const LOG_BYTES_MIN: u64 = 1 << 20;
const LOG_BYTES_MAX: u64 = 64 << 20;
const LOG_SHARE: u64 = 32;

/// How devices are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WarmPlan {
    pub(crate) container_bytes: u64,
    pub(crate) log_bytes: u64,
}

/// How the devices of these choices are cut; `None` without a warm level.
///
/// # Errors
/// `Invalid` where a device is too small for fragments of this many bytes.
pub(super) fn cut(config: &DemoConfig, fragment_bytes: u64) -> Result<Option<WarmPlan>> {
    let sizes: Vec<u64> = match (&config.warm[..], config.warm_bytes) {
        ([], 0) => return Ok(None),
        ([], bytes) => vec![bytes],
        (given, _) => given.iter().map(|device| device.bytes).collect(),
    };
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let whole = |bytes: u64| bytes / BLOCK_BYTES * BLOCK_BYTES;
    let log_bytes = whole((smallest / LOG_SHARE).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX));
    let room = smallest.saturating_sub(2 * log_bytes + 2 * BLOCK_BYTES);
    // A fragment fills at most seven eighths of a container.
    let needed = whole(fragment_bytes.saturating_mul(4) / 3 + (64 << 10) + BLOCK_BYTES);
    let container_bytes = whole((room / WARM_CONTAINERS).clamp(CONTAINER_BYTES_MIN, CONTAINER_BYTES_MAX)).max(needed);
    if room / container_bytes < WARM_CONTAINERS_MIN {
        return Err(Error::invalid(format!(
            "a warm device of {} is too small: {WARM_CONTAINERS_MIN} containers of {} must fit, and the decision log",
            bytes(smallest),
            bytes(container_bytes)
        )));
    }
    Ok(Some(WarmPlan { container_bytes, log_bytes }))
}

/// Directories of the devices; those that are the demo's own go away with it.
pub(super) struct Devices {
    devices: Vec<WarmDevice>,
    ours: Vec<PathBuf>,
}

impl Devices {
    /// Below the store's directory, or where the person wants them: there in a directory of their own, unless the store
    /// is kept.
    pub(super) fn new(config: &DemoConfig, directory: &Path) -> Devices {
        let mut devices = Devices { devices: Vec::new(), ours: Vec::new() };
        if config.warm.is_empty() && config.warm_bytes > 0 {
            devices.devices.push(WarmDevice::directory(directory.join("warm"), config.warm_bytes));
        }
        for given in &config.warm {
            let path = match config.dir {
                Some(_) => given.path.clone(),
                None => given.path.join(format!("forebay-demo-{}", std::process::id())),
            };
            if config.dir.is_none() {
                devices.ours.push(path.clone());
            }
            devices.devices.push(WarmDevice::directory(path, given.bytes));
        }
        devices
    }

    pub(super) fn devices(&self) -> Vec<WarmDevice> {
        self.devices.clone()
    }

    /// Leaves them where they are.
    pub(super) fn keep(&mut self) {
        self.ours.clear();
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for path in &self.ours {
            // What the demo made; where it cannot be removed the next one takes another name.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// One device of a demo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarmDeviceSummary {
    /// Its directory.
    pub name: String,
    /// How it was written: `io_uring, direct` and similar.
    pub method: String,
}

/// What the warm level of a demo did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarmSummary {
    /// Its devices.
    pub devices: Vec<WarmDeviceSummary>,
    /// Containers in all.
    pub containers: u32,
    /// Bytes of one of them.
    pub container_bytes: u64,
    /// Events, or parts of them, that went down.
    pub demoted_events: u64,
    /// Payload bytes that went down.
    pub demoted_bytes: u64,
    /// Payload bytes that were to go down and whose events were rejected before.
    pub saved_bytes: u64,
    /// How often a container was begun.
    pub containers_filled: u64,
    /// Highest fill that was seen, 0 to 1.
    pub fill_most: f64,
    /// Bytes written to devices for each payload byte; 0 where nothing was.
    pub write_amplification: f64,
    /// What went wrong on devices, in words.
    pub notes: Vec<String>,
}

/// The level as the store has it now; `None` without one.
pub(super) fn summary(store: &Store, fill_most: f64) -> Option<WarmSummary> {
    let warm = store.warm_stats()?;
    let device = |device: &forebay_store::DeviceStatus| WarmDeviceSummary {
        name: device.name.clone(),
        method: device.method.clone(),
    };
    Some(WarmSummary {
        devices: warm.devices.iter().map(device).collect(),
        containers: warm.containers,
        container_bytes: warm.container_bytes,
        demoted_events: warm.demoted_events,
        demoted_bytes: warm.demoted_bytes,
        saved_bytes: warm.saved_bytes,
        containers_filled: store.containers().iter().map(|container| u64::from(container.generation)).sum(),
        fill_most,
        write_amplification: warm.write_amplification(),
        notes: warm.notes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::DemoDevice;

    #[test]
    fn devices_of_any_size_are_cut_into_containers_or_refused() {
        let none = DemoConfig { warm_bytes: 0, ..DemoConfig::default() };
        assert_eq!(cut(&none, 7200).unwrap(), None);
        for bytes in [8_u64 << 20, 128 << 20, 8 << 30, 4 << 40] {
            let config = DemoConfig { warm_bytes: bytes, ..DemoConfig::default() };
            let plan = cut(&config, 7200).unwrap().unwrap();
            assert!((bytes - 2 * plan.log_bytes) / plan.container_bytes >= WARM_CONTAINERS_MIN, "{plan:?}");
            assert!(plan.container_bytes.is_multiple_of(BLOCK_BYTES) && plan.log_bytes.is_multiple_of(BLOCK_BYTES));
        }
        let large = DemoConfig { warm_bytes: 64 << 20, ..DemoConfig::default() };
        assert!(cut(&large, 3 << 20).unwrap().unwrap().container_bytes >= 4 << 20);
        assert!(cut(&large, 30 << 20).unwrap_err().message().contains("too small"));
        let device = |bytes| DemoDevice { path: "/somewhere".into(), bytes };
        let two = DemoConfig { warm: vec![device(1 << 30), device(64 << 20)], ..DemoConfig::default() };
        let plan = cut(&two, 7200).unwrap().unwrap();
        assert!(plan.container_bytes <= 4 << 20, "the smallest device says how containers are cut: {plan:?}");
    }
}
