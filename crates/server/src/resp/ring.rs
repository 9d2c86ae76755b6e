//! A ring's keyspace: FB.PUT and FB.WINDOW.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::replies::Replies;
use super::select::{number, patience};
use super::turn::{Answer, Flow, Turn};
use crate::session::LOOK_AGAIN_FILTERED;
use crate::slices::{Slice, Slices, join};
use forebay_core::{Coverage, RingOutcome, RingPut, RingSources, ServedStore, SourceId, SourceSchema, Stretch};
use std::ops::Deref;
use std::time::Duration;

/// Most fragments and stretches of one answer.
const THINGS_MAX: usize = 50_000;

/// FB.PUT source timestamp span value [RUN n] [STATUS n]
pub(super) fn put<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let ring = turn.client.ring("fb.put")?;
    let source = ring.keyspace().source.parse_source(keys::utf8(command.part(1))?)?;
    let timestamp = number(Some(command.part(2)))?;
    let span = narrow(Some(command.part(3)))?;
    let mut options = RingPut::default();
    let mut words = command.from(5);
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"RUN" => options.run = narrow(words.next())?,
            b"STATUS" => options.status = narrow(words.next())?,
            _ => return Err(Failure::syntax()),
        }
    }
    let value = command.part(4);
    match ring.put(&source, timestamp, span, value, &options)? {
        RingOutcome::Stored | RingOutcome::Duplicate => {
            turn.received += value.len() as u64;
            turn.replies.ok();
            Ok(Flow::Done)
        }
        // A refusal is an error here: a client of Redis reads `OK` as stored.
        RingOutcome::Refused(cause) => Err(Failure::coded(
            "REFUSED",
            format!("{}: not stored, entered as a gap at {source}/{timestamp}, a final answer", cause.name()),
        )),
    }
}

fn narrow(word: Option<&[u8]>) -> Result<u32, Failure> {
    u32::try_from(number(word)?).map_err(|_| Failure::number())
}

/// FB.WINDOW begin end [WAIT ms] [SOURCES ALL | source…]
pub(super) fn window<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let ring = turn.client.ring("fb.window")?.clone();
    let (begin, end) = (number(Some(command.part(1)))?, number(Some(command.part(2)))?);
    let (mut wait, mut sources) = (Duration::ZERO, RingSources::All);
    let mut words = command.from(3);
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"WAIT" => wait = Duration::from_millis(number(words.next())?).min(turn.shared.limits.wait_max),
            b"SOURCES" => sources = named(&ring.keyspace().source, words.by_ref())?,
            _ => return Err(Failure::syntax()),
        }
    }
    if !ring.has_window(begin, end, &sources)?
        && let Some(left) = patience(turn, wait)
    {
        return Ok(Flow::Later(left.min(LOOK_AGAIN_FILTERED)));
    }
    *turn.patience = None;
    let (mut all, mut things, mut bytes) = (Vec::<(SourceId, Vec<Stretch>, Vec<Slice>)>::new(), 0, 0);
    let mut slices = Slices::new(&ring, begin, end, &sources);
    // It is copied: nothing is kept in place for a client that reads slowly.
    let most = u64::from(turn.shared.limits.window_bytes);
    while let Some(slice) = slices.next()? {
        let lengths = slice.fragments().filter_map(|at| slice.window.sources[0].fragment(at));
        bytes += lengths.map(|fragment| fragment.bytes.len() as u64).sum::<u64>();
        things += 1 + slice.fragments().len() + slice.coverage().len();
        // Refused, not cut: an answer in this protocol has no flag for more, and half a window would look whole.
        if bytes > most || things > THINGS_MAX {
            return Err(Failure::err(format!(
                "the window has more than {most} bytes or {THINGS_MAX} fragments and stretches, which do not go into one \
                 answer: ask for less"
            )));
        }
        if all.last().is_none_or(|last| last.0 != slice.source()) {
            all.push((slice.source(), Vec::new(), Vec::new()));
        }
        if let Some((_, coverage, slices)) = all.last_mut() {
            // Slices are cut by size: stretches that go over a cut are one for the client.
            join(coverage, slice.coverage());
            slices.push(slice);
        }
    }
    (turn.things, turn.cost, turn.sent) = (1, 1 + things, turn.sent + bytes);
    turn.replies.array(all.len());
    for (source, coverage, slices) in &all {
        write(turn.replies, source, coverage, slices);
    }
    Ok(Flow::Done)
}

/// Every word that is left: `ALL`, or sources.
fn named<'a>(schema: &SourceSchema, words: impl Iterator<Item = &'a [u8]>) -> Result<RingSources, Failure> {
    let words = words.map(keys::utf8).collect::<Result<Vec<_>, _>>()?;
    match words.as_slice() {
        [] => Err(Failure::syntax()),
        [word] if word.eq_ignore_ascii_case("all") => Ok(RingSources::All),
        _ => {
            let sources = words.into_iter().map(|word| schema.parse_source(word)).collect::<Result<Vec<_>, _>>()?;
            Ok(RingSources::Only(sources))
        }
    }
}

fn write<F: Deref<Target = [u8]>>(replies: &mut Replies<F>, source: &SourceId, coverage: &[Stretch], slices: &[Slice]) {
    replies.map(3);
    replies.text("source");
    replies.text(&source.text());
    replies.text("coverage");
    replies.array(coverage.len());
    for stretch in coverage {
        replies.array(3);
        replies.number(stretch.begin);
        replies.number(stretch.end);
        match stretch.state {
            Coverage::Complete => replies.text("complete"),
            Coverage::NotYet => replies.text("not yet"),
            Coverage::Gone => replies.text("gone"),
            Coverage::Gap(cause) => replies.text(&format!("gap: {}", cause.name())),
        }
    }
    replies.text("fragments");
    replies.array(slices.iter().map(|slice| slice.fragments().len()).sum());
    for slice in slices {
        for fragment in slice.fragments().filter_map(|at| slice.window.sources[0].fragment(at)) {
            replies.array(5);
            replies.number(fragment.timestamp);
            [fragment.span, fragment.run, fragment.status].into_iter().for_each(|word| replies.number(u64::from(word)));
            replies.bulk(fragment.bytes);
        }
    }
}
