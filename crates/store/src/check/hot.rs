//! Looking at the hot level: every header, every entry, every slot of the decision log.

use super::CheckReport;
use forebay_media::bytes::{EntryFlags, Mark, SegmentHeader, SegmentKind, SegmentState, StateWord};
use forebay_media::hot::{Hot, Location, checksum};
use forebay_media::limits::SEGMENT_HEADER_BYTES;
use std::sync::atomic::Ordering;

/// Reads and verifies every segment.
pub(super) fn check_segments(hot: &Hot, deep: bool, report: &mut CheckReport) {
    let mut logged = false;
    for number in 0..hot.geometry.segments {
        let Some(header) = hot.read_header(number) else {
            let copies = hot.region.bytes(hot.geometry.segment_offset(number), 2 * SegmentHeader::BYTES);
            if copies.iter().any(|&byte| byte != 0) {
                report.problems.push(format!("segment {number}: no copy of its header verifies"));
            }
            continue;
        };
        hot.segment(number).generation.store(header.generation, Ordering::Relaxed);
        match header.kind {
            SegmentKind::Log | SegmentKind::Snapshot => {
                logged = true;
                check_log(hot, number, report);
            }
            SegmentKind::Data => check_data(hot, &header, deep, report),
        }
    }
    if !logged {
        report.problems.push("there is no decision log".to_owned());
    }
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
