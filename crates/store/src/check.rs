//! Looking at a store that nobody serves: every structure is read and verified, nothing is changed.

use crate::config::FlushPolicy;
use crate::hot::{Hot, Location, Region, checksum};
use crate::open::{REGION_FILE, read_keyspace};
use crate::region_file::{machine_boot, read_superblock};
use forebay_core::limits::SEGMENT_HEADER_BYTES;
use forebay_core::{EntryFlags, Mark, Result, SegmentHeader, SegmentKind, SegmentState, StateWord, crc32c};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::Ordering;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Segments in the region.
    pub segments: u32,
    /// Whole entries found in data segments.
    pub entries: u64,
    /// Entries that no decision, update or evacuation has marked dead.
    pub live: u64,
    /// Entries that are marked dead, or void.
    pub dead: u64,
    /// Places of open segments before the last whole entry that hold none: never acknowledged.
    pub incomplete: u64,
    /// Slots of the decision log, folded ones included while they are not overwritten.
    pub decisions: u64,
    /// Whether the store was closed in order.
    pub clean: bool,
    /// What is wrong, by segment and entry; empty where nothing is.
    pub problems: Vec<String>,
}

/// Reads and verifies a whole store; with `deep` also every live payload against its checksum.
///
/// # Errors
/// `Invalid` where there is no store, `Unavailable` while somebody serves it, `Corrupt` where not even its superblock
/// can be read. Everything else that is wrong is in the report.
pub fn check(dir: &Path, deep: bool) -> Result<CheckReport> {
    let (_, text) = read_keyspace(dir)?;
    let region = Region::open(&dir.join(REGION_FILE), FlushPolicy::Auto)?;
    let superblock = read_superblock(&region)?;
    let mut report =
        CheckReport { segments: superblock.geometry.segments, clean: superblock.clean, ..CheckReport::default() };
    if superblock.keyspace_crc != crc32c(text.as_bytes()) {
        report.problems.push("keyspace.toml is not the one that this region was made with".to_owned());
    }
    if !superblock.clean && superblock.machine_boot != machine_boot() {
        report.problems.push("the machine restarted while the store was open".to_owned());
    }
    let hot = Hot::new(region, superblock.geometry, superblock.store, 1);
    let mut logged = false;
    for number in 0..superblock.geometry.segments {
        let Some(header) = hot.read_header(number) else {
            let copies = hot.region.bytes(hot.geometry.segment_offset(number), 2 * SegmentHeader::BYTES);
            if copies.iter().any(|&byte| byte != 0) {
                report.problems.push(format!("segment {number}: no copy of its header verifies"));
            }
            continue;
        };
        hot.segment(number).generation.store(header.generation, Ordering::Relaxed);
        match header.kind {
            SegmentKind::Log => {
                logged = true;
                check_log(&hot, number, &mut report);
            }
            SegmentKind::Data => check_data(&hot, &header, deep, &mut report),
        }
    }
    if !logged {
        report.problems.push("there is no decision log".to_owned());
    }
    Ok(report)
}

fn check_log(hot: &Hot, number: u32, report: &mut CheckReport) {
    let (seed, size) = (hot.seed(number), hot.slots.slot_bytes());
    let mut hole = None;
    for slot in 0..hot.slots_per_segment() {
        let offset = hot.payload_offset(number, SEGMENT_HEADER_BYTES as u64 + u64::from(slot) * size as u64);
        match (hot.slots.decode(hot.region.bytes(offset, size), seed, slot), hole) {
            (Some(_), None) => report.decisions += 1,
            (Some(_), Some(hole)) => {
                report
                    .problems
                    .push(format!("segment {number}: decision slot {hole} does not verify, slot {slot} does"));
                return;
            }
            (None, None) => hole = Some(slot),
            (None, Some(_)) => {}
        }
    }
}

fn check_data(hot: &Hot, header: &SegmentHeader, deep: bool, report: &mut CheckReport) {
    let number = header.segment;
    let sealed = header.state == SegmentState::Sealed;
    let seed = hot.seed(number);
    let mut holes = 0;
    for entry in 0..hot.entries_possible(header) {
        let location = Location { segment: number, entry };
        let Some(found) = hot.read_entry(location) else {
            holes += 1;
            if sealed {
                report.problems.push(format!("segment {number} entry {entry}: does not verify in a sealed segment"));
            }
            continue;
        };
        report.incomplete += std::mem::take(&mut holes);
        report.entries += 1;
        let word = StateWord::decode(hot.region.load_word(hot.state_word_offset(location)), seed, entry);
        if word.is_none() && sealed {
            report.problems.push(format!("segment {number} entry {entry}: its state word does not verify"));
        }
        if found.flags == EntryFlags::VOID || word.is_some_and(|word| word.mark == Mark::Dead) {
            report.dead += 1;
            continue;
        }
        report.live += 1;
        if !hot.fits(location, &found) {
            report.problems.push(format!("segment {number} entry {entry}: reaches past its segment"));
        } else if deep {
            let bytes = hot.region.bytes(hot.payload_offset(number, found.offset), found.length as usize);
            if checksum(bytes) != found.payload_crc {
                report.problems.push(format!("segment {number} entry {entry}: its bytes do not match their checksum"));
            }
        }
    }
}
