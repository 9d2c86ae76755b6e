//! Fragments by key: SET, GET and their kin.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::turn::{Answer, Flow, Looked, Turn};
use forebay_core::{Call, Key, KeySchema, Token};
use forebay_store::PutOutcome;

/// How SET was meant.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_there: bool,
    token: Option<Token>,
}

impl SetOptions {
    fn read<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Result<SetOptions, Failure> {
        let mut options = SetOptions::default();
        while let Some(word) = words.next() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => options.only_new = true,
                b"XX" => options.only_there = true,
                b"KEEPTTL" => {}
                b"TOKEN" => {
                    options.token = Some(keys::utf8(words.next().ok_or_else(Failure::syntax)?)?.parse()?);
                }
                b"EX" | b"PX" | b"EXAT" | b"PXAT" | b"GET" => {
                    return Err(Failure::err(format!(
                        "SET has no {} here: a fragment stays until its event is decided",
                        keys::lossy(word)
                    )));
                }
                _ => return Err(Failure::syntax()),
            }
        }
        let at_odds = options.only_new && options.only_there || options.token.is_some() && !options.only_there;
        if at_odds { Err(Failure::syntax()) } else { Ok(options) }
    }
}

/// SET key value [NX | XX [TOKEN token]]
pub(super) fn set(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let options = if command.len() > 3 { SetOptions::read(command.from(3))? } else { SetOptions::default() };
    if options.only_there {
        return update(turn, command, options.token.as_ref());
    }
    let key = turn.key(command)?;
    if options.only_new {
        match turn.look(&key)? {
            Looked::Wait => return Ok(Flow::Wait),
            Looked::Absent => {}
            Looked::There(_) => {
                turn.replies.nothing();
                return Ok(Flow::Done);
            }
        }
    }
    let value = command.part(2);
    match turn.put(&key, value)? {
        None => return Ok(Flow::Wait),
        Some(PutOutcome::Stored) => turn.replies.ok(),
        Some(PutOutcome::Duplicate) if options.only_new => turn.replies.nothing(),
        Some(PutOutcome::Duplicate) => turn.replies.ok(),
        Some(PutOutcome::Late | PutOutcome::LateUnknown) => return Err(late(turn.client.store()?.schema(), &key)),
    }
    turn.received += value.len() as u64;
    Ok(Flow::Done)
}

fn update(turn: &mut Turn<'_>, command: Command<'_>, token: Option<&Token>) -> Answer {
    turn.client.check(turn.shared, Call::Update, "set|xx")?;
    turn.call = Some(Call::Update);
    if !turn.may_wait {
        return Ok(Flow::Wait);
    }
    let key = turn.key(command)?;
    let store = turn.client.store()?;
    if store.get(&key)?.is_none() {
        turn.replies.nothing();
        return Ok(Flow::Done);
    }
    store.update(&key, command.part(2), token)?;
    turn.received += command.part(2).len() as u64;
    turn.replies.ok();
    Ok(Flow::Done)
}

/// What a put that came too late is told.
pub(super) fn late(schema: &KeySchema, key: &Key) -> Failure {
    let text = schema.text(key.as_bytes());
    Failure::coded("LATE", format!("{text}: its event is leased, decided or removed: not stored, a final answer"))
}

/// MSET key value [key value …]: one after the other, to the first that fails.
pub(super) fn mset(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    if command.len().is_multiple_of(2) {
        return Err(Failure::err("wrong number of arguments for 'mset' command"));
    }
    let store = turn.client.store()?;
    let schema = store.schema();
    let pairs = (command.len() - 1) / 2;
    let keys = (0..pairs).map(|pair| keys::key(schema, command.part(1 + 2 * pair)));
    // All keys are read before anything is stored.
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let mut received = 0;
    for (at, key) in keys.iter().enumerate() {
        let value = command.part(2 + 2 * at);
        let told = |failure: Failure| Failure {
            line: format!("{} (key {} of {pairs}; those before it are stored)", failure.line, at + 1),
            ..failure
        };
        match turn.put(key, value).map_err(told)? {
            Some(PutOutcome::Stored | PutOutcome::Duplicate) => received += value.len() as u64,
            Some(PutOutcome::Late | PutOutcome::LateUnknown) => return Err(told(late(schema, key))),
            // Repeated from the first key on: those that are stored answer as duplicates.
            None => return Ok(Flow::Wait),
        }
    }
    turn.received += received;
    (turn.things, turn.cost) = (pairs as u64, pairs);
    turn.replies.ok();
    Ok(Flow::Done)
}

/// GET key
pub(super) fn get(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let key = turn.key(command)?;
    say(turn, &key)
}

/// Answers a fragment's bytes.
#[inline]
fn say(turn: &mut Turn<'_>, key: &Key) -> Answer {
    match turn.look(key)? {
        Looked::There(fragment) => {
            turn.sent += fragment.len() as u64;
            turn.replies.fragment(fragment);
        }
        Looked::Absent => turn.replies.nothing(),
        Looked::Wait => return Ok(Flow::Wait),
    }
    Ok(Flow::Done)
}

/// MGET key [key …]
pub(super) fn mget(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let keys = command.from(1);
    (turn.things, turn.cost) = (keys.len() as u64, keys.len());
    turn.replies.array(keys.len());
    for text in keys {
        turn.check_answer()?;
        let key = keys::key(turn.client.store()?.schema(), text)?;
        if say(turn, &key)? == Flow::Wait {
            return Ok(Flow::Wait);
        }
    }
    Ok(Flow::Done)
}

/// EXISTS key [key …]
pub(super) fn exists(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let mut found = 0;
    for text in command.from(1) {
        match turn.look(&keys::key(turn.client.store()?.schema(), text)?)? {
            Looked::There(_) => found += 1,
            Looked::Absent => {}
            Looked::Wait => return Ok(Flow::Wait),
        }
    }
    (turn.things, turn.cost) = (command.len() as u64 - 1, command.len());
    turn.replies.number(found);
    Ok(Flow::Done)
}

/// STRLEN key
pub(super) fn strlen(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let length = match turn.look(&turn.key(command)?)? {
        Looked::There(fragment) => fragment.len(),
        Looked::Absent => 0,
        Looked::Wait => return Ok(Flow::Wait),
    };
    turn.replies.number(length as u64);
    Ok(Flow::Done)
}

/// TYPE key
pub(super) fn kind(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let word = match turn.look(&turn.key(command)?)? {
        Looked::There(_) => "string",
        Looked::Absent => "none",
        Looked::Wait => return Ok(Flow::Wait),
    };
    turn.replies.simple(word);
    Ok(Flow::Done)
}

/// DEL key [key …]
pub(super) fn del(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let keys = command.from(1).map(|text| keys::key(store.schema(), text)).collect::<Result<Vec<_>, _>>()?;
    let mut removed = 0;
    for key in &keys {
        removed += u64::from(store.remove(key)?);
    }
    (turn.things, turn.cost) = (keys.len() as u64, keys.len());
    turn.replies.number(removed);
    Ok(Flow::Done)
}
