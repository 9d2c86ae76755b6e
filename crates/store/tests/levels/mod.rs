//! Two levels: what goes down, that everything works the same there, that nothing is lost on the way or after a crash.

mod add;
mod custody;
mod device_list;
mod device_lost;
mod drain;
mod faults;
mod hot_lost;
mod inhibit;
mod kill;
mod moves;
mod power;
mod review;

use crate::common::{TempDir, sealed_events, small_config};
use forebay_store::core::{Completeness, Keyspace};
use forebay_store::{Config, Store, WarmDevice};
use std::path::Path;

/// A small store with a small warm level of this many devices.
pub(crate) fn two_levels(dir: &Path, devices: usize) -> Config {
    let device = |number| WarmDevice::directory(dir.join(format!("warm-{number}")), 5 << 20);
    Config {
        warm: (0..devices).map(device).collect(),
        container_bytes: 256 << 10,
        device_log_bytes: 256 << 10,
        ..small_config()
    }
}

/// The same, where undecided events go down at once.
pub(crate) fn all_down(dir: &Path) -> Config {
    Config { demote_high: 0.001, demote_low: 0.0, ..two_levels(dir, 1) }
}

/// Events of this many fragments.
pub(crate) fn events_of(fragments: u32) -> Keyspace {
    let mut keyspace = sealed_events();
    keyspace.run.completeness = Completeness::Count(fragments);
    keyspace
}

/// A new store in `dir`.
pub(crate) fn create(dir: &TempDir, keyspace: &Keyspace, config: &Config) -> Store {
    Store::create(&dir.store(), keyspace, config.clone()).unwrap()
}
