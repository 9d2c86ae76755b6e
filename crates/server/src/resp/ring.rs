//! A ring's keyspace: FB.PUT and FB.WINDOW.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::replies::Replies;
use super::select::{number, patience};
use super::turn::{Answer, Flow, Turn};
use forebay_core::{Coverage, RingOutcome, RingPut, RingSources, SourceSchema};
use forebay_store::Window;
use std::time::Duration;

/// How often a command that waits for a window looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// FB.PUT source timestamp span value [RUN n] [STATUS n]
pub(super) fn put(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
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
pub(super) fn window(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
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
        return Ok(Flow::Later(left.min(LOOK_AGAIN)));
    }
    *turn.patience = None;
    let window = ring.window(begin, end, &sources, Duration::ZERO)?;
    let bytes: u64 = window.sources.iter().map(|source| source.bytes_total()).sum();
    // It is copied: the chunks are not kept in place for a client that reads slowly.
    let most = u64::from(turn.shared.limits.window_bytes);
    if bytes > most {
        return Err(Failure::err(format!(
            "the window has {bytes} bytes, and at most {most} go into one answer: ask for less"
        )));
    }
    let things: usize = window.sources.iter().map(|source| source.fragments().len() + source.coverage.len()).sum();
    (turn.things, turn.cost, turn.sent) = (things as u64, 1 + things, turn.sent + bytes);
    write(turn.replies, &window);
    turn.check_answer()?;
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

fn write(replies: &mut Replies, window: &Window) {
    replies.array(window.sources.len());
    for source in &window.sources {
        replies.map(3);
        replies.text("source");
        replies.text(&source.source.text());
        replies.text("coverage");
        replies.array(source.coverage.len());
        for stretch in &source.coverage {
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
        replies.array(source.fragments().len());
        for fragment in source.fragments() {
            replies.array(5);
            replies.number(fragment.timestamp);
            [fragment.span, fragment.run, fragment.status].into_iter().for_each(|word| replies.number(u64::from(word)));
            replies.bulk(fragment.bytes);
        }
    }
}
