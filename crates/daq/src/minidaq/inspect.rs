//! Whether a trigger record is what was asked for: headers, windows, and every frame in its place.
//!
//! ```text
//! window             [begin ─────────────── end)
//! chunks of frames [──┼──][─────][─────][───┼─]      each overlaps the window, they follow each other
//! ```
//!
//! *Invariants*: a fragment without error bits covers its window without a gap; one with `Incomplete` has at least one
//! chunk, and gaps only between whole chunks; any other is empty (tests).
//!
//! *On failure*: `Corrupt`, naming the trigger record, the source and what is there.

use super::plan::{Plan, RUN};
use crate::dune::{ComponentRequest, FragmentErrors, FragmentHeader, SourceId, TriggerRecordHeader};
use forebay_core::{Error, Result};

/// Decodes and checks a trigger record header against its key.
pub(crate) fn record(plan: &Plan, trigger: u64, bytes: &[u8]) -> Result<TriggerRecordHeader> {
    let wrong = |what: String| Error::corrupt(format!("header of trigger record {trigger}: {what}"));
    let header = TriggerRecordHeader::decode(bytes).map_err(|error| wrong(error.message().to_owned()))?;
    if (header.trigger_number, header.run_number, header.source) != (trigger, RUN, SourceId::BUILDER) {
        return Err(wrong(format!(
            "run {}, trigger {}, source {}; expected run {RUN} and the builder",
            header.run_number, header.trigger_number, header.source
        )));
    }
    let links = header.components.iter().map(|component| component.source);
    if !links.eq((0..plan.links).map(SourceId::link)) {
        return Err(wrong(format!("{} components that are not the {} links", header.components.len(), plan.links)));
    }
    Ok(header)
}

/// Checks a link's fragment against the header of its record; answers its error bits.
pub(crate) fn fragment(
    plan: &Plan,
    record: &TriggerRecordHeader,
    component: &ComponentRequest,
    status: u32,
    bytes: &[u8],
) -> Result<FragmentErrors> {
    let wrong = |what: String| {
        Error::corrupt(format!("trigger record {}, {}: {what}", record.trigger_number, component.source))
    };
    let (header, frames) = FragmentHeader::decode(bytes).map_err(|error| wrong(error.message().to_owned()))?;
    let expected = FragmentHeader {
        size: bytes.len() as u64,
        trigger_number: record.trigger_number,
        trigger_timestamp: record.trigger_timestamp,
        window_begin: component.window_begin,
        window_end: component.window_end,
        run_number: RUN,
        error_bits: FragmentErrors(status),
        fragment_type: plan.fragment_type(),
        sequence_number: record.sequence_number,
        detector_id: plan.frames.link(component.source.id).detector.into(),
        source: component.source,
    };
    if header != expected {
        return Err(wrong(format!("{header:?}; expected {expected:?}")));
    }
    chunks(plan, &header, frames).map_err(|error| wrong(error.message().to_owned()))?;
    Ok(header.error_bits)
}

/// Checks the frames of a fragment, chunk by chunk.
fn chunks(plan: &Plan, header: &FragmentHeader, frames: &[u8]) -> Result<()> {
    let whole = header.error_bits == FragmentErrors::default();
    if frames.is_empty() {
        let says = [FragmentErrors::DATA_NOT_FOUND, FragmentErrors::INVALID_WINDOW].contains(&header.error_bits);
        return if says {
            Ok(())
        } else {
            Err(Error::corrupt(format!("no frames, error bits {:?}", header.error_bits)))
        };
    }
    if !whole && !header.error_bits.contains(FragmentErrors::INCOMPLETE) {
        return Err(Error::corrupt(format!("{} bytes of frames, error bits {:?}", frames.len(), header.error_bits)));
    }
    if !frames.len().is_multiple_of(plan.chunk_bytes) {
        let message = format!("{} bytes of frames, not a multiple of {}", frames.len(), plan.chunk_bytes);
        return Err(Error::corrupt(message));
    }
    let source = &plan.frames;
    let kind = source.kind();
    let first_tick = plan.timestamp(0);
    let mut next = None;
    let mut covered = header.window_begin;
    for chunk in frames.chunks_exact(plan.chunk_bytes) {
        // Frames with fewer timestamp bits than the window's ticks: the window says the others.
        let found = near(kind.timestamp(chunk), kind.cut_timestamp(chunk, u64::MAX), header.window_begin);
        let number = found.wrapping_sub(first_tick) / plan.chunk_ticks;
        // Every header of the chunk, the tick that is not a multiple included.
        source.check(number, header.source.id, chunk)?;
        let (begin, end) = (plan.timestamp(number), plan.timestamp(number + 1));
        if end <= header.window_begin || begin >= header.window_end {
            return Err(Error::corrupt(format!("frames of tick {begin} do not overlap the window")));
        }
        if next.is_some_and(|next| begin < next) || whole && begin > covered {
            return Err(Error::corrupt(format!("frames of tick {begin} do not follow those before tick {covered}")));
        }
        (next, covered) = (Some(end), end);
    }
    if whole && covered < header.window_end {
        return Err(Error::corrupt(format!("frames end at tick {covered}, the window at {}", header.window_end)));
    }
    Ok(())
}

/// The number nearest to `to` of those that have these low bits under `mask`.
fn near(low: u64, mask: u64, to: u64) -> u64 {
    let ahead = low.wrapping_sub(to) & mask;
    let behind = to.wrapping_sub(low) & mask;
    if ahead <= behind { to.wrapping_add(ahead) } else { to.wrapping_sub(behind) }
}
