//! Looking at a store that nobody serves: every structure is read and verified, nothing of it is changed.
//!
//! ```text
//! hot.fb  ─▶ every header, entry and slot ─┐
//!                                          ├─▶ what the next opening would make of both, in memory that is thrown away
//! devices ─▶ headers, directories, logs  ──┘   deep: every payload against its checksum
//! ```
//!
//! *Invariants*: the region is mapped so that writes stay in this process, and devices refuse them: a check changes
//! nothing that an opening would read (test `a_check_changes_nothing`).

mod hot;
mod read_only;
mod warm;

use crate::config::Config;
use crate::keyspace_file::{self, REGION_FILE};
use crate::levels;
use forebay_core::{Result, crc32c};
use forebay_media::bytes::Superblock;
use forebay_media::hot::{Hot, Region};
use forebay_media::region_file::read_superblock;
use serde::Serialize;
use std::path::Path;

/// The report of a check, of both levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Segments in the region.
    pub segments: u32,
    /// Whole entries: in data segments, and in the tables of images on the warm level. A fragment that is on both
    /// levels has two.
    pub entries: u64,
    /// Entries that no decision, update or move has ended.
    pub live: u64,
    /// Entries that are ended, or void.
    pub dead: u64,
    /// Places of open segments before the last whole entry that hold none: never acknowledged.
    pub incomplete: u64,
    /// Slots of the decision logs, including those that a snapshot replaced while they are not overwritten.
    pub decisions: u64,
    /// Devices of the warm level.
    pub devices: u32,
    /// Containers of the warm level.
    pub containers: u32,
    /// Images in them.
    pub images: u64,
    /// Of `entries`, those on the warm level.
    pub warm_entries: u64,
    /// Of `live`, those on the warm level.
    pub warm_live: u64,
    /// What was being written when the store was last used and is not whole: never acknowledged, no problem.
    pub unfinished: Vec<String>,
    /// Whether the store was closed in order.
    pub clean: bool,
    /// What is wrong, by segment and entry or by container and position; empty where nothing is.
    pub problems: Vec<String>,
}

/// Reads and verifies a whole store, both of its levels; with `deep` also every live payload against its checksum.
///
/// # Errors
/// `Invalid` where there is no store, `Unavailable` while somebody serves it, `Corrupt` where not even its superblock
/// can be read. Everything else that is wrong is in the report.
pub fn check(dir: &Path, deep: bool) -> Result<CheckReport> {
    let known = keyspace_file::read(dir)?;
    let mut report = CheckReport::default();
    let absent = levels::absent_devices(dir)?;
    report.problems.extend(absent.iter().map(|path| format!("warm device {}: is not there", path.display())));
    // Without one of them nothing can be said of the others: an opening would refuse.
    let warm = if absent.is_empty() { read_only::devices(dir)? } else { Vec::new() };
    let config = Config { warm, accept_loss: true, ..Config::default() };
    let path = dir.join(REGION_FILE);
    if (std::fs::metadata(&path).is_err() || Region::is_unfinished(&path)) && levels::has_devices(dir) {
        report.problems.push(format!("{REGION_FILE}: the hot level is gone; data on it alone is lost"));
        warm::check_alone(&known.0, &config, deep, &mut report)?;
        return Ok(report);
    }
    let region = Region::open_aside(&path)?;
    let superblock = read_superblock(&region)?;
    let (keyspace, text) = keyspace_file::in_force(dir, superblock.keyspace_crc, known);
    look_at(&region, &superblock, &text, &mut report);
    let listed = config.warm.len();
    // More of them may have been added: what they say of themselves is looked at with them.
    if absent.is_empty() && listed < superblock.devices as usize {
        let devices = superblock.devices;
        report.problems.push(format!("devices.toml lists {listed} devices, the store was made with {devices}"));
    }
    let hot = Hot::new(region, superblock.geometry, superblock.store, 1);
    hot::check_segments(&hot, deep, &mut report);
    if !config.warm.is_empty() {
        warm::check_with_hot(hot, &keyspace, &text, &config, deep, &mut report)?;
    }
    Ok(report)
}

fn look_at(region: &Region, superblock: &Superblock, text: &str, report: &mut CheckReport) {
    (report.segments, report.clean) = (superblock.geometry.segments, superblock.clean);
    if superblock.keyspace_crc != crc32c(text.as_bytes()) {
        report.problems.push("keyspace.toml is not the one that this region was made with".to_owned());
    }
    if !superblock.clean && superblock.machine_boot != region.machine_boot() {
        report.problems.push("the machine restarted while the store was open".to_owned());
    }
}
