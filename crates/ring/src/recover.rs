//! Finding everything again: the account in its note, then every entry of every chunk.
//!
//! ```text
//! note ─▶ headers ─▶ chunks by the order of their taking, without the one that the note evicted ─▶ sources, account
//! ```
//!
//! *Invariants*: an invalid entry of an open chunk was never acknowledged; one of a sealed chunk is corruption; a chunk
//! that the note counts as expired is over, whether its segment was taken again or not (tests/ring/power.rs).
//!
//! *On failure*: fails closed with segment and entry, unless the operator accepted the loss: then what was acknowledged
//! and is gone is booked as lost, and its ticks, where they can be read, are gaps of that cause.

use super::Gap;
use super::account::Books;
use super::chunk::Chunk;
use super::engine::RingEngine;
use super::source::{Cell, Source};
use super::space::Closed;
use crate::limits::{RING_NOTE_BYTES_MAX, RING_NOTE_OFFSET};
use crate::note::RingNote;
use forebay_core::limits::{KEY_BYTES_MAX, LOSSES_LISTED_MAX};
use forebay_core::{Error, GapCause, Key, Result, RingStamp, SourceId, Tally};
use forebay_media::bytes::{Entry, EntryFlags, Mark, RecordSeed, SegmentHeader, SegmentKind, SegmentState, StateWord};
use forebay_media::hot::{CLOSED, Location, Place, checksum};
use forebay_media::limits::{SEGMENT_HEADER_BYTES, SUPERBLOCK_AREA_BYTES};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rebuilds the engine's state from the region. `power_lost`: what was not sealed is checked byte by byte. `clean`: the
/// note says exactly what there is.
pub(super) fn recover(engine: &RingEngine, power_lost: bool, clean: bool) -> Result<()> {
    // The note first: it names the chunk that is over although its entries still verify.
    let note = read_note(engine)?;
    {
        let mut space = engine.space.lock();
        (space.books, space.leaving) = (Books::from_note(&note), note.evicted);
    }
    // In force as long as its segment has this generation; taken again, the segment's entries are another chunk's.
    let headers = read_headers(engine)?;
    let over = |header: &&SegmentHeader| note.evicted == Some((header.segment, header.generation));
    let mut data: Vec<&SegmentHeader> = headers.iter().flatten().filter(|header| !over(header)).collect();
    // By the order of taking, so that the chunks of a source are in order of arrival, as they were.
    data.sort_unstable_by_key(|header| header.order);
    debug_assert!(data.windows(2).all(|pair| pair[0].order < pair[1].order), "two chunks were taken at once");
    let doubted = |header: &&&SegmentHeader| {
        // On persistent memory a sealed chunk was flushed; elsewhere the kernel wrote pages in any order.
        let open = header.state == SegmentState::Open;
        engine.config.verify || power_lost && (open || !engine.hot.region.is_persistent())
    };
    let rotten = rotten(engine, &data.iter().filter(doubted).copied().collect::<Vec<_>>());
    for header in data {
        recover_chunk(engine, header, &rotten)?;
    }
    // Only after an orderly close does the note say what was stored; otherwise it was written before the last puts.
    if clean && note.clean {
        compare_with_note(engine, &note)?;
    }
    let has_evicted = engine.space.lock().books.has_evicted();
    for cell in engine.table.iter() {
        let mut source = cell.source.lock();
        // What came before the gap of this restart is known; what would have come meanwhile is a gap of that cause.
        source.known.found_again(has_evicted);
        source.newest = source.chunks.iter().filter_map(|chunk| chunk.items.last()).map(|item| item.timestamp).max();
    }
    for number in 0..engine.hot.geometry.segments {
        if engine.hot.segment(number).live() == 0 {
            engine.hot.add_free(number);
        }
    }
    Ok(())
}

/// The valid note with the higher sequence.
fn read_note(engine: &RingEngine) -> Result<RingNote> {
    let hot = &engine.hot;
    let read = |copy: u64| {
        let offset = copy * (SUPERBLOCK_AREA_BYTES as u64 / 2) + RING_NOTE_OFFSET as u64;
        RingNote::decode(hot.region.bytes(offset, RING_NOTE_BYTES_MAX), &hot.store)
    };
    match [read(0), read(1)].into_iter().flatten().max_by_key(|note| note.sequence) {
        Some(note) => Ok(note),
        None => {
            lost(engine, "neither copy of the account verifies: what has expired is not known".to_owned())?;
            Ok(RingNote::default())
        }
    }
}

fn read_headers(engine: &RingEngine) -> Result<Vec<Option<SegmentHeader>>> {
    let hot = &engine.hot;
    let mut headers = Vec::with_capacity(hot.geometry.segments as usize);
    let mut order = 0;
    for number in 0..hot.geometry.segments {
        let header = hot.read_header(number);
        if let Some(header) = &header {
            let segment = hot.segment(number);
            segment.generation.store(header.generation, Ordering::Relaxed);
            segment.revision.store(header.revision, Ordering::Relaxed);
            segment.order.store(header.order, Ordering::Relaxed);
            // Orders go on behind the highest: a chunk that is taken now must be younger than all that were found.
            order = order.max(header.order);
        }
        if let Some(what) = unread(engine, number, header.as_ref()) {
            lost(engine, what)?;
        }
        match header {
            Some(header) if header.kind != SegmentKind::Data => {
                lost(engine, format!("segment {number}: a log segment cannot belong to a ring"))?;
                headers.push(None);
            }
            header => headers.push(header),
        }
    }
    hot.continue_order(order);
    Ok(headers)
}

/// A header that was whole once and has rotted: two copies that do not verify, or one while an entry of the generation
/// after the other does. (A torn one is never followed by entries: it is durable before the first of them.)
fn unread(engine: &RingEngine, number: u32, header: Option<&SegmentHeader>) -> Option<String> {
    let hot = &engine.hot;
    let copies = hot.region.bytes(hot.geometry.segment_offset(number), 2 * SegmentHeader::BYTES);
    let broken = copies
        .chunks(SegmentHeader::BYTES)
        .filter(|copy| copy.iter().any(|&byte| byte != 0) && SegmentHeader::decode(copy, &hot.store, number).is_none());
    match broken.count() {
        0 => return None,
        2 => return Some(format!("segment {number}: neither copy of its header verifies")),
        _ => {}
    }
    // The first entry of the next generation verifies only under its own seed: one that does proves that the header of that
    // generation was whole and durable.
    let next = header.map_or(1, |header| header.generation.wrapping_add(1));
    let seed = RecordSeed::new(&hot.store, number, next);
    let first = hot.entry_offset(Location { segment: number, entry: 0 });
    let entry = hot.layout.decode(hot.region.bytes(first, hot.layout.state_offset()), seed, 0);
    entry.map(|_| format!("segment {number}: a copy of its header does not verify, but its entries do"))
}

/// Fragments of these chunks, not marked dead, whose bytes do not match their checksum; by all processors.
fn rotten(engine: &RingEngine, headers: &[&SegmentHeader]) -> HashSet<Location> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(headers.len());
    let next = AtomicUsize::new(0);
    let hot = &engine.hot;
    let work = || {
        let mut rotten = Vec::new();
        while let Some(header) = headers.get(next.fetch_add(1, Ordering::Relaxed)) {
            for entry in 0..hot.entries_possible(header) {
                let location = Location { segment: header.segment, entry };
                let Some(found) = hot.read_entry(location).filter(|found| hot.fits(location, found)) else { continue };
                let offset = hot.payload_offset(header.segment, found.offset);
                let bytes = hot.region.bytes(offset, found.length as usize);
                if !is_dead(engine, location) && checksum(bytes) != found.payload_crc {
                    rotten.push(location);
                }
            }
        }
        rotten
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn is_dead(engine: &RingEngine, location: Location) -> bool {
    engine.hot.state_of(location).is_some_and(|word| word.mark == Mark::Dead)
}

/// A chunk as it is found.
struct Found {
    chunk: Chunk,
    source: Option<SourceId>,
    /// Ticks of fragments that are lost.
    gaps: Vec<Gap>,
}

fn recover_chunk(engine: &RingEngine, header: &SegmentHeader, rotten: &HashSet<Location>) -> Result<()> {
    let hot = &engine.hot;
    let (number, sealed) = (header.segment, header.state == SegmentState::Sealed);
    let mut found = Found { chunk: Chunk::new(number, header.generation, 0, 0), source: None, gaps: Vec::new() };
    let (mut holes, mut end, mut payload_end) = (Vec::new(), 0, SEGMENT_HEADER_BYTES as u64);
    for at in 0..hot.entries_possible(header) {
        let location = Location { segment: number, entry: at };
        let Some(entry) = hot.read_entry(location).filter(|entry| hot.fits(location, entry)) else {
            if sealed {
                lost(engine, format!("segment {number} entry {at}: does not verify in a sealed segment"))?;
            }
            // Not the end: places are given out in order and filled in any order, so whole entries may follow.
            holes.push(at);
            continue;
        };
        // Holes before this entry are places whose writers did not finish.
        end = at + 1;
        payload_end = payload_end.max(entry.offset + hot.record_bytes(entry.length) - hot.layout.entry_bytes() as u64);
        let word = engine.hot.state_of(location);
        if word.is_none() && sealed {
            lost(engine, format!("segment {number} entry {at}: its state word does not verify"))?;
        }
        let over = entry.flags == EntryFlags::VOID || word.is_some_and(|word| word.mark == Mark::Dead);
        let live = !over && adopt(engine, &mut found, location, &entry, sealed, rotten.contains(&location))?;
        // A word that was torn with its entry's line is written again, as what recovery found: the next opening must not have
        // to decide a second time, when the segment may be sealed.
        if word.is_none() && live {
            hot.mark(location, StateWord::FRESH);
        } else if !live && word.is_none_or(|word| word.mark == Mark::Live) {
            hot.mark(location, StateWord { mark: Mark::Dead, ..StateWord::FRESH });
        }
    }
    // Filled before the chunk is sealed: in a sealed one every entry counts, and a hole would be corruption.
    if !sealed {
        close_holes(engine, number, &holes, end);
    }
    // One fence for all marks and voids of the chunk: until then a crash finds it as this recovery did.
    hot.region.fence();
    let (entries, payload_end) = if sealed { (header.entries, header.payload_end) } else { (end, payload_end) };
    settle(engine, header, found, entries, payload_end)
}

/// Takes a fragment into its chunk; `false` where it is none.
fn adopt(
    engine: &RingEngine,
    found: &mut Found,
    location: Location,
    entry: &Entry,
    sealed: bool,
    is_rotten: bool,
) -> Result<bool> {
    let Location { segment, entry: at } = location;
    let named = engine.keyspace.source.decode(entry.key.as_bytes());
    let Some((source, stamp)) = named.filter(|_| entry.flags == EntryFlags::FRAGMENT) else {
        lost(engine, format!("segment {segment} entry {at}: cannot belong to this ring"))?;
        return Ok(false);
    };
    if found.source.is_some_and(|other| other != source) {
        lost(engine, format!("segment {segment} entry {at}: source {source} in a chunk of another"))?;
        return Ok(false);
    }
    found.source = Some(source);
    if is_rotten {
        // In an open chunk power was lost before the fence: never acknowledged.
        if sealed {
            let RingStamp { timestamp, span, run } = stamp;
            lost(
                engine,
                format!(
                    "segment {segment} entry {at} (source {source} timestamp {timestamp}): its bytes do not match \
                     their checksum"
                ),
            )?;
            found.gaps.push(Gap { begin: timestamp, end: timestamp + u64::from(span), cause: GapCause::Lost });
            book_lost(engine, run, Tally::fragment(u64::from(entry.length)));
        }
        return Ok(false);
    }
    // A put compares before it writes: two in one chunk are damage, whichever of them is right.
    if found.chunk.find(stamp.timestamp).is_some() {
        lost(engine, format!("segment {segment} entry {at}: timestamp {} occurs twice", stamp.timestamp))?;
        return Ok(false);
    }
    found.chunk.insert(&stamp, location.entry, entry.length);
    Ok(true)
}

/// Gives a chunk to its source, or its segment back.
fn settle(engine: &RingEngine, header: &SegmentHeader, mut found: Found, entries: u32, payload_end: u64) -> Result<()> {
    let Some(id) = found.source else { return Ok(()) };
    let cell = match engine.table.find_or_add(&id) {
        Ok(cell) => cell,
        Err(error) => return lost(engine, format!("segment {}: {}", header.segment, error.message())),
    };
    let mut source = cell.source.lock();
    // Lost ticks arrived too: without that they would lie past the head, and windows would wait for them.
    found.gaps.iter().for_each(|gap| source.known.arrived(gap.begin, gap.end));
    found.chunk.items.iter().for_each(|item| source.known.arrived(item.timestamp, item.end()));
    found.gaps.drain(..).for_each(|gap| source.known.enter(gap));
    if found.chunk.items.is_empty() {
        return Ok(());
    }
    // Closed, not sealed: maintenance seals it, and until then a crash finds it as it is now.
    let segment = engine.hot.segment(header.segment);
    segment.adopt();
    segment.entries.store(entries, Ordering::Relaxed);
    segment.payload_end.store(payload_end.min(engine.hot.geometry.segment_bytes), Ordering::Relaxed);
    segment.set_state(CLOSED);
    give(engine, cell, &mut source, found.chunk);
    Ok(())
}

fn give(engine: &RingEngine, cell: &Cell, source: &mut Source, mut chunk: Chunk) {
    chunk.shrink();
    let mut space = engine.space.lock();
    for of_run in &chunk.runs {
        let ledger = space.books.accounts.of(of_run.run);
        ledger.offered += of_run.tally;
        ledger.stored += of_run.tally;
    }
    let (segment, begin, end) = (chunk.segment, chunk.begin, chunk.end);
    space.closed.push_back(Closed { segment, cell: cell.number, source: cell.id, begin, end, at_ns: 0 });
    source.last_run = chunk.runs.last().map_or(source.last_run, |of_run| of_run.run);
    source.add(chunk);
}

/// Gives the holes of an open chunk void entries: it will be sealed, and then every entry counts.
fn close_holes(engine: &RingEngine, segment: u32, holes: &[u32], end: u32) {
    let hot = &engine.hot;
    // The key means nothing in a void entry; zeros are a key of any schema.
    let zeros = [0; KEY_BYTES_MAX];
    let key = Key::from_packed(&zeros[..hot.geometry.key_bytes as usize]);
    let (offset, seed) = (SEGMENT_HEADER_BYTES as u64, hot.seed(segment));
    let entry = Entry { key, offset, length: 0, payload_crc: 0, status: 0, version: 0, flags: EntryFlags::VOID };
    for &hole in holes.iter().filter(|&&hole| hole < end) {
        let place = Place { location: Location { segment, entry: hole }, offset, seed };
        hot.write_entry(&place, &entry, StateWord { mark: Mark::Dead, ..StateWord::FRESH });
    }
}

/// After an orderly close the note says what was stored: what is missing now is lost, also where no entry says so.
fn compare_with_note(engine: &RingEngine, note: &RingNote) -> Result<()> {
    for (run, terms) in &note.runs {
        let found = engine.space.lock().books.accounts.get(*run).stored;
        if found == terms.stored {
            continue;
        }
        lost(
            engine,
            format!(
                "run {run}: {} fragments of {} bytes were stored, {} of {} are accounted for",
                terms.stored.fragments, terms.stored.bytes, found.fragments, found.bytes
            ),
        )?;
        let mut missing = terms.stored;
        missing -= found;
        book_lost(engine, *run, missing);
    }
    Ok(())
}

/// Something acknowledged is gone, and the operator accepted that.
fn book_lost(engine: &RingEngine, run: u32, tally: Tally) {
    let mut space = engine.space.lock();
    let ledger = space.books.accounts.of(run);
    ledger.offered += tally;
    ledger.stored += tally;
    ledger.lost += tally;
}

/// Something that should be there is not: an error, unless the operator accepted that.
fn lost(engine: &RingEngine, what: String) -> Result<()> {
    // Nothing is served over a loss that nobody has accepted: a consumer could not tell a gap from a detector that was silent.
    if !engine.config.accept_loss {
        return Err(Error::corrupt(what));
    }
    let mut losses = engine.losses.lock();
    if losses.len() < LOSSES_LISTED_MAX {
        losses.push(what);
    }
    Ok(())
}
