//! What operators do: FB.OPENEVENT, FB.RELEASE, FB.MASK, FB.UNMASK, FB.PRESCALE, FB.HOLD, FB.DEBUG, FB.SOURCES.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::select::number;
use super::turn::{Answer, Flow, Turn};
use forebay_core::{
    Attributes, Bounds, Call, Error, KeySchema, Keyspace, OpenEvent, PrescaleFactor, Primary, PutOutcome, Released,
    ServedStore, Source,
};

/// Words such as `lumi=7`.
pub(super) fn attributes<'a>(
    keyspace: &Keyspace,
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Attributes, Failure> {
    let texts = words.map(keys::utf8).collect::<Result<Vec<_>, Error>>()?;
    Ok(Attributes::parse(&keyspace.attributes, &texts)?)
}

fn source_of(schema: &KeySchema, word: &[u8]) -> Result<Source, Failure> {
    Ok(schema.parse_source(keys::utf8(word)?)?)
}

/// FB.OPENEVENT primary [ATTR name=value …] [SOURCES source …]
pub(super) fn open_event<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let keyspace = store.keyspace();
    let primary = keys::primary(&keyspace.schema, command.part(1))?;
    let words: Vec<&[u8]> = command.from(2).collect();
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(b"sources")).unwrap_or(words.len());
    let (before, after) = words.split_at(at);
    let set = match before.split_first() {
        None => None,
        Some((word, values)) if word.eq_ignore_ascii_case(b"attr") && !values.is_empty() => {
            Some(attributes(keyspace, values.iter().copied())?)
        }
        Some(_) => return Err(Failure::syntax()),
    };
    let sources = after.iter().skip(1).map(|word| source_of(&keyspace.schema, word)).collect::<Result<Vec<_>, _>>()?;
    let sources = (!after.is_empty()).then_some(&sources[..]);
    match store.open_event(&primary, &OpenEvent { sources, attributes: set.as_ref() })? {
        PutOutcome::Stored | PutOutcome::Duplicate => turn.replies.ok(),
        PutOutcome::Late | PutOutcome::LateUnknown => {
            let text = keyspace.schema.text(primary.as_bytes());
            return Err(Failure::coded("LATE", format!("{text} is leased, decided or removed: a final answer")));
        }
    }
    Ok(Flow::Done)
}

/// FB.RELEASE bounds [STREAM name] [AFTER primary]: how many events were released, and after which one to go on.
pub(super) fn release<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let schema = store.schema();
    let bounds = Bounds::parse(schema, keys::utf8(command.part(1))?)?;
    let (mut stream, mut after, mut words) = (None, None, command.from(2));
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(Failure::syntax)?;
        match word.to_ascii_uppercase().as_slice() {
            b"STREAM" => stream = Some(keys::utf8(value)?),
            b"AFTER" => after = Some(keys::primary(schema, value)?),
            _ => return Err(Failure::syntax()),
        }
    }
    let Released { events, after } = store.release_range(&bounds, stream, after.as_ref())?;
    let after = after.map(|after| schema.text(after.as_bytes()));
    turn.things = events.max(1);
    turn.replies.array(2);
    turn.replies.number(events);
    match after {
        Some(after) => turn.replies.text(&after),
        None => turn.replies.nothing(),
    }
    Ok(Flow::Done)
}

/// FB.MASK run source [FROM primary] | FB.UNMASK run source [FROM primary]
pub(super) fn mask<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.signed_store()?;
    let schema = store.schema();
    let (run, source) = (number(Some(command.part(1)))?, source_of(schema, command.part(2))?);
    let from = first_event(schema, command, 3)?;
    if command.part(0).eq_ignore_ascii_case(b"fb.mask") {
        store.mask(run, &source, from.as_ref())?;
    } else {
        store.unmask(run, &source, from.as_ref())?;
    }
    turn.replies.ok();
    Ok(Flow::Done)
}

/// [FROM primary], as the last words of a command.
fn first_event(schema: &KeySchema, command: Command<'_>, at: usize) -> Result<Option<Primary>, Failure> {
    match command.len() - at {
        0 => Ok(None),
        2 if command.part(at).eq_ignore_ascii_case(b"from") => Ok(Some(keys::primary(schema, command.part(at + 1))?)),
        _ => Err(Failure::syntax()),
    }
}

/// FB.PRESCALE run name factor [FROM primary]
pub(super) fn prescale<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.signed_store()?;
    let (run, name) = (number(Some(command.part(1)))?, keys::utf8(command.part(2))?);
    let factor = PrescaleFactor::parse(keys::utf8(command.part(3))?)?;
    let from = first_event(store.schema(), command, 4)?;
    store.prescale(run, name, factor, from.as_ref())?;
    turn.replies.ok();
    Ok(Flow::Done)
}

/// FB.HOLD SET [RUN n] [condition …] | RELEASE id | LIST
pub(super) fn hold<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let word = command.part(1).to_ascii_uppercase();
    let call = match word.as_slice() {
        b"LIST" => Call::Look,
        b"RELEASE" => Call::ReleaseHold,
        _ => Call::Hold,
    };
    // Checked here and not by the table: LIST needs less than the words that change something.
    turn.client.check(turn.shared, call, "fb.hold")?;
    turn.call = Some(call);
    let store = turn.client.store()?;
    match word.as_slice() {
        b"LIST" if command.len() == 2 => {
            let holds = store.holds()?;
            turn.replies.array(holds.len());
            for hold in holds {
                turn.replies.map(4);
                turn.replies.text("id");
                turn.replies.number(u64::from(hold.id));
                turn.replies.text("run");
                match hold.run {
                    Some(run) => turn.replies.number(run),
                    None => turn.replies.nothing(),
                }
                turn.replies.text("conditions");
                turn.replies.texts(hold.conditions.iter());
                turn.replies.text("events");
                turn.replies.number(hold.events);
            }
        }
        b"RELEASE" if command.len() == 3 => {
            let id = number(Some(command.part(2)))?;
            let released = match u32::try_from(id) {
                Ok(id) => store.release_hold(id)?,
                Err(_) => false,
            };
            turn.replies.number(u64::from(released));
        }
        b"SET" => {
            let mut words = command.from(2).peekable();
            let run = match words.next_if(|word| word.eq_ignore_ascii_case(b"run")) {
                Some(_) => Some(number(words.next())?),
                None => None,
            };
            let conditions = words.map(keys::utf8).collect::<Result<Vec<_>, Error>>()?;
            let id = store.hold(run, &conditions)?;
            turn.replies.number(u64::from(id));
        }
        _ => return Err(Failure::err("FB.HOLD: expected SET [RUN n] [condition …], RELEASE id, or LIST")),
    }
    Ok(Flow::Done)
}

/// FB.DEBUG LIST | REPLAY primary
pub(super) fn debug<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let word = command.part(1).to_ascii_uppercase();
    let call = if word == b"LIST" { Call::Look } else { Call::Replay };
    // As for FB.HOLD.
    turn.client.check(turn.shared, call, "fb.debug")?;
    turn.call = Some(call);
    let store = turn.client.store()?;
    let schema = store.schema();
    match word.as_slice() {
        b"LIST" if command.len() == 2 => {
            let events = store.debug_events()?;
            turn.cost = 1 + events.len();
            turn.replies.array(events.len());
            for event in events {
                turn.replies.map(5);
                turn.replies.text("primary");
                turn.replies.text(&schema.text(event.primary.as_bytes()));
                turn.replies.text("reason");
                turn.replies.text(&event.reason);
                turn.replies.text("stage");
                turn.replies.text(&event.stage);
                turn.replies.text("deliveries");
                turn.replies.number(u64::from(event.deliveries));
                turn.replies.text("bytes");
                turn.replies.number(event.tally.bytes);
            }
        }
        b"REPLAY" if command.len() == 3 => {
            let replayed = store.replay(&keys::primary(schema, command.part(2))?)?;
            turn.replies.number(u64::from(replayed));
        }
        _ => return Err(Failure::err("FB.DEBUG: expected LIST, or REPLAY primary; FB.RELEASE releases")),
    }
    Ok(Flow::Done)
}

/// FB.SOURCES run
pub(super) fn sources<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let sources = turn.client.store()?.sources(number(Some(command.part(1)))?)?;
    turn.cost = 1 + sources.len();
    let replies = &mut *turn.replies;
    replies.map(sources.len());
    for source in sources {
        replies.text(&source.source);
        replies.map(7);
        for (name, value) in [
            ("fragments", source.fragments),
            ("bytes", source.bytes),
            ("missing", source.missing),
            ("late", source.late),
            ("conflicts", source.conflicts),
        ] {
            replies.text(name);
            replies.number(value);
        }
        for (name, value) in [("last_key", source.last_key), ("masked", source.masked)] {
            replies.text(name);
            match value {
                Some(value) => replies.text(&value),
                None => replies.nothing(),
            }
        }
    }
    Ok(Flow::Done)
}
