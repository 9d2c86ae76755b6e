//! Comparing payloads with their checksums, before their records are believed: by all processors, segment by segment.

use crate::engine::Engine;
use forebay_core::FixedSet;
use forebay_media::bytes::{Mark, SegmentHeader, SegmentKind, StateWord};
use forebay_media::hot::{Location, checksum};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Records of these segments, not marked dead, whose bytes do not match their checksum.
pub(super) fn rotten(engine: &Engine, headers: &[&SegmentHeader]) -> FixedSet<Location> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(headers.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut rotten = Vec::new();
        while let Some(header) = headers.get(next.fetch_add(1, Ordering::Relaxed)) {
            verify(engine, header, &mut rotten);
        }
        rotten
    };
    let rotten = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    debug_assert!(next.into_inner() >= headers.len(), "every segment was compared");
    rotten
}

fn verify(engine: &Engine, header: &SegmentHeader, rotten: &mut Vec<Location>) {
    let hot = &engine.placement.hot;
    debug_assert!(header.kind == SegmentKind::Data, "the log has checksums of its own, slot by slot");
    let seed = hot.seed(header.segment);
    for entry in 0..hot.entries_possible(header) {
        let location = Location { segment: header.segment, entry };
        let Some(found) = hot.read_entry(location).filter(|found| hot.fits(location, found)) else { continue };
        // The payload of a record that has ended is nobody's: it may have rotted, and nothing is lost by that. A word that
        // does not verify says nothing of the kind.
        let word = StateWord::decode(hot.region.load_word(hot.state_word_offset(location)), seed, entry);
        if word.is_some_and(|word| word.mark == Mark::Dead) {
            continue;
        }
        let offset = hot.payload_offset(header.segment, found.offset);
        if checksum(hot.region.bytes(offset, found.length as usize)) != found.payload_crc {
            rotten.push(location);
        }
    }
}
