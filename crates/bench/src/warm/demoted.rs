//! Stores that demote everything: events of one fragment.

use super::options::Plan;
use crate::Result;
use crate::engine::{Scratch, config};
use forebay_core::Keyspace;
use forebay_store::{Config, PutOptions, Store, WarmDevice};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(super) const RUN: u64 = 1;
pub(super) const BYTES: usize = 64;
/// How long everything may take to be on the device.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes on the device for an event: image, directory, and what is open.
const DEVICE_BYTES: u64 = 512;

/// Directory, keyspace and configuration of a store whose device has room for `events` events; its hot level has 1 GiB.
pub(super) fn demoting(plan: &Plan, scratch: &Scratch, events: u64) -> (PathBuf, Keyspace, Config) {
    let mut keyspace = Keyspace::events("bench", 1).opening_runs();
    keyspace.run.complete_within = Duration::from_secs(3600);
    let containers = (events * DEVICE_BYTES).div_ceil(plan.container_bytes) + 8;
    let log_bytes = (events * 48).next_multiple_of(4096).clamp(1 << 20, 1 << 30);
    let config = Config {
        warm: vec![WarmDevice::directory(
            scratch.path().join("warm"),
            containers * plan.container_bytes + 2 * log_bytes + (1 << 20),
        )],
        container_bytes: plan.container_bytes,
        device_log_bytes: log_bytes,
        demote_high: 0.001,
        demote_low: 0.0,
        ..config(if plan.smoke { 64 << 20 } else { 1 << 30 })
    };
    (scratch.path().join("store"), keyspace, config)
}

/// Puts events; a refusal is an error.
pub(super) fn put(store: &Store, events: Range<u64>) -> Result<()> {
    for event in events {
        let _ = store.put(&store.schema().key(&[RUN, event, 0])?, &[0x5A; BYTES], &PutOptions::default())?;
    }
    Ok(())
}

/// Waits until no demotion is under way and the number of demoted events no longer grows.
pub(super) fn wait_for_demotion(store: &Store) -> Result<()> {
    let (from, mut known, mut since) = (Instant::now(), 0, Instant::now());
    loop {
        let warm = store.warm_stats().ok_or("a store with a warm level")?;
        if warm.demoted_events != known {
            (known, since) = (warm.demoted_events, Instant::now());
        }
        if warm.in_flight_bytes == 0 && since.elapsed() > Duration::from_millis(500) {
            return Ok(());
        }
        if from.elapsed() > PATIENCE {
            return Err(format!("{known} events demoted after {} s: {:?}", PATIENCE.as_secs(), warm.notes).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
