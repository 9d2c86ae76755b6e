//! Reading: one fragment, many, a whole event, and ranges as they come.

use crate::client::Client;
use crate::connection::{Answer, Connection};
use crate::elsewhere::Asked;
use crate::fragment::{Cutter, Event, Fragment, bytes_of};
use crate::pool::Ahead;
use crate::put::NO_WAIT;
use crate::retry::Failure;
use forebay_core::{Bounds, Call, Error, EventInfo, Key, Keyspace, Kind, LIVE_STATES, Primary, Result, Sources};
use forebay_wire::{FRAME_HEAD_BYTES, WireEvent, WireFragment, WireRange, WireReader, WireWriter};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Keys of one frame, and frames that are under way together.
const FRAME_KEYS: usize = 512;
const FRAMES: usize = 16;
/// Payload that an answer to one frame should have: the server makes the next one while it is read.
const FRAME_BYTES: u64 = 512 << 10;
/// Most bytes of a key in a meta.
const KEY_BYTES: usize = 40;
/// Least keys of one frame, however long fragments are.
const FRAME_KEYS_MIN: usize = 16;

pub(crate) fn get_meta(keys: &[Key]) -> Result<Vec<u8>> {
    let mut out = WireWriter::with_capacity(4 + 33 * keys.len());
    out.shorts(keys.iter().map(Key::as_bytes))?;
    Ok(out.finish())
}

pub(crate) type Found = Vec<Result<Option<WireFragment>>>;

/// The fragments that were found for the keys of a frame, and their bytes.
pub(crate) fn read_found(meta: &[u8]) -> Result<(Found, u64)> {
    let read_one = |read: &mut WireReader<'_>| read.outcome(|read| read.option(WireReader::fragment));
    let found: Found = WireReader::whole(meta, |read| read.list(1, read_one))?;
    let bytes = found.iter().flatten().flatten().map(|about| u64::from(about.length)).sum();
    Ok((found, bytes))
}

/// The request for one event.
pub(crate) fn get_event_meta(primary: &Primary, sources: &Sources) -> Result<Vec<u8>> {
    let mut out = WireWriter::new();
    out.u32(1);
    out.short(primary.as_bytes())?;
    out.sources(sources)?;
    Ok(out.finish())
}

/// The event that was found, and its bytes.
pub(crate) fn read_event(meta: &[u8], keyspace: &Keyspace) -> Result<(Result<Option<WireEvent>>, u64)> {
    let one = |read: &mut WireReader<'_>| read.outcome(|read| read.option(|read| WireEvent::decode(read, keyspace)));
    let mut found = WireReader::whole(meta, |read| read.list(1, one))?;
    let found = found.pop().ok_or_else(|| Error::corrupt("an answer without its event"))?;
    let bytes = found.as_ref().ok().and_then(Option::as_ref).map_or(0, WireEvent::payload_bytes);
    Ok((found, bytes))
}

/// An event with its fragments.
pub(crate) fn event_of(keyspace: &Keyspace, event: WireEvent, cutter: &mut Cutter) -> Result<Event> {
    Ok(Event {
        primary: event.primary,
        state: event.state,
        stage: keyspace.stages.get(usize::from(event.stage)).cloned().unwrap_or_default(),
        attributes: event.attributes,
        streams: event.streams,
        fragments: cutter.all(event.fragments)?,
        missing: event.missing,
        sources: event.sources,
    })
}

impl Client {
    /// The fragment of a key; `None` if there is none.
    ///
    /// # Errors
    /// As `Store::get`, and `Unavailable` where the server does not answer in time.
    pub fn get(&self, key: &Key) -> Result<Option<Fragment>> {
        let mut found = self.in_one_call(NO_WAIT).get_many(std::slice::from_ref(key))?;
        found.pop().ok_or_else(|| Error::corrupt("an answer without its fragment"))
    }

    /// The fragments of several keys, in the order of the keys; several frames are under way where there are many. What is
    /// more than this client takes in one answer is asked for again. Each part of several frames has a deadline of its own.
    ///
    /// # Errors
    /// As [`Client::get`]; the first error of a key is that of the call.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        let mut found = self.get_many_here(keys)?;
        self.fetch_elsewhere(&mut found)?;
        Ok(found)
    }

    /// The same, with what the server has: of bytes that another node has it is not them.
    pub(crate) fn get_many_here(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        let mut found = Vec::with_capacity(keys.len());
        let frame_keys = self.frame_keys();
        for keys in keys.chunks(frame_keys * FRAMES) {
            let metas = keys.chunks(frame_keys).map(get_meta).collect::<Result<Vec<_>>>()?;
            let answers = self.calls().call(Call::Get.repeat(), NO_WAIT, |connection, _| {
                // Empty for each try: reads may be repeated, and the answers of a lost connection are incomplete.
                let mut answers: Vec<Option<Answer<_>>> = Vec::new();
                answers.resize_with(metas.len(), || None);
                let (mut requests, mut open) = (Vec::with_capacity(metas.len()), Vec::with_capacity(metas.len()));
                while requests.len() < metas.len() || !open.is_empty() {
                    // The number that the server takes now.
                    while let Some(meta) = metas.get(requests.len()) {
                        let bytes = (meta.len() + FRAME_HEAD_BYTES) as u64;
                        if bytes > connection.credit() && !open.is_empty() {
                            break;
                        }
                        let request = connection.send(Call::Get, meta, &[])?;
                        requests.push(request);
                        open.push(request);
                    }
                    let answer = connection.answer_of(&open, read_found)?;
                    open.retain(|request| *request != answer.request);
                    // Answers may come in any order; they are handed out in the order of the keys.
                    if let Some(at) = requests.iter().position(|request| *request == answer.request) {
                        answers[at] = Some(answer);
                    }
                    connection.grant()?;
                }
                Ok(answers)
            })?;
            for (keys, answer) in keys.chunks(frame_keys).zip(answers) {
                self.take_found(keys, answer, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Keys of a frame.
    fn frame_keys(&self) -> usize {
        // Frames whose answers fit what the server may send before it is granted more; as long as fragments were before.
        let each = (FRAME_BYTES / self.pool().fragment_bytes.load(Ordering::Relaxed).max(1)) as usize;
        // No meta may be longer than a quarter of what the server takes.
        let most = (self.pool().welcome.window_bytes as usize / 4 / KEY_BYTES).clamp(1, FRAME_KEYS);
        each.clamp(FRAME_KEYS_MIN, FRAME_KEYS).min(most)
    }

    /// Adds the fragments of a frame.
    fn take_found(&self, keys: &[Key], answer: Option<Answer<Found>>, found: &mut Vec<Option<Fragment>>) -> Result<()> {
        let answer = answer.filter(|answer| answer.said.len() == keys.len());
        let answer = answer.ok_or_else(|| Error::corrupt("an answer with another number of fragments than keys"))?;
        self.pool().fragment_bytes.store((answer.payload.len() / keys.len()) as u64, Ordering::Relaxed);
        let mut cutter = Cutter::new(answer.payload);
        for (at, (key, about)) in keys.iter().zip(answer.said).enumerate() {
            if at > 0 && about.as_ref().is_err_and(|error| error.kind() == Kind::Full) {
                // What did not fit is asked for by itself.
                found.extend(self.get_many_here(&keys[at..])?);
                break;
            }
            found.push(about?.map(|about| cutter.next(*key, about)).transpose()?);
        }
        Ok(())
    }

    /// Asks for fragments that are read later, while other servers are asked as well; `None` where there are too many for one frame.
    pub(crate) fn get_ahead(&self, keys: &[Key], is_optional: bool) -> Option<Ahead> {
        let fits = !keys.is_empty() && keys.len() <= self.frame_keys();
        self.send_ahead(Call::Get, &get_meta(keys).ok().filter(|_| fits)?, is_optional)
    }

    /// Those of what was asked for ahead that are there.
    pub(crate) fn there_of(&self, keys: &[Key], ahead: Ahead) -> Vec<Fragment> {
        let Some(answer) = ahead.answer(read_found).filter(|answer| answer.said.len() == keys.len()) else {
            return Vec::new();
        };
        let mut cutter = Cutter::new(answer.payload);
        let found = keys.iter().zip(answer.said).filter_map(|(key, about)| Some((key, about.ok()??)));
        // The lengths are those of the answer, or it was refused.
        found.map_while(|(key, about)| cutter.next(*key, about).ok()).collect()
    }

    /// What was asked for ahead, or is asked for now.
    pub(crate) fn get_asked(&self, keys: &[Key], ahead: Option<Ahead>) -> Result<Vec<Option<Fragment>>> {
        match ahead.and_then(|ahead| ahead.answer(read_found)) {
            Some(answer) => {
                let mut found = Vec::with_capacity(keys.len());
                self.take_found(keys, Some(answer), &mut found)?;
                Ok(found)
            }
            None => self.get_many_here(keys),
        }
    }

    /// A live event with the fragments of the given sources; `None` where there is no such event.
    ///
    /// # Errors
    /// As `Store::get_event`, and `Unavailable` where the server does not answer in time.
    pub fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event>> {
        self.in_one_call(NO_WAIT).event(primary, sources)
    }

    fn event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event>> {
        let meta = get_event_meta(primary, sources)?;
        let keyspace = self.keyspace();
        let mut asked: Option<Asked> = None;
        let answer = self.calls().call(Call::GetEvent.repeat(), NO_WAIT, |connection, _| {
            let request = connection.send(Call::GetEvent, &meta, &[])?;
            // Once, and behind the request to the home: nothing is waited for with connections of holders in hand but its answer.
            asked.get_or_insert_with(|| self.inner.others.ask(self, primary, sources));
            let answer = connection.answer(request, |meta| read_event(meta, keyspace));
            if answer.is_err() {
                asked = Some(Asked::default());
            }
            answer
        })?;
        let found = answer.said?;
        let Some(event) = found else {
            self.read_asked(asked, &[]);
            return Ok(None);
        };
        let mut event = event_of(keyspace, event, &mut Cutter::new(answer.payload))?;
        let fragments = event.fragments.len();
        let ahead = self.read_asked(asked, &event.fragments);
        self.fetch_lists([&mut event.fragments], ahead).pop().unwrap_or(Ok(()))?;
        // Something was removed since it was read, such as the event.
        if event.fragments.len() < fragments { self.event(primary, sources) } else { Ok(Some(event)) }
    }

    /// Fragments inside the bounds, streamed in key order. The range has a connection of its own while it lasts; where that
    /// fails, it goes on behind the last fragment.
    pub fn range(&self, bounds: &Bounds) -> Range {
        let part = Part { here: VecDeque::new(), under_way: None, is_over: false };
        Range { client: self.clone(), bounds: bounds.clone(), last: None, part }
    }

    /// Live events inside the primary part of the bounds, in key order, without their payloads.
    ///
    /// # Errors
    /// As `Store::events`, and `Unavailable` where the server does not answer in time.
    pub fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        let meta = WireRange { bounds: bounds.clone(), events: true, after: None }.encode()?;
        let schema = self.schema();
        self.calls().call(Call::Range.repeat(), NO_WAIT, |connection, _| {
            let request = connection.send(Call::Range, &meta, &[])?;
            let mut events = Vec::new();
            loop {
                let answer = connection.answer(request, |meta| {
                    let one = |read: &mut WireReader<'_>| {
                        let (primary, state, stage) = (read.primary(schema)?, read.u8()?, read.u8()?);
                        let known = LIVE_STATES.into_iter().find(|known| *known as u8 == state);
                        let state = known.ok_or_else(|| Error::corrupt("an event in a state that there is not"))?;
                        let (fragments, bytes, deliveries) = (read.u32()?, read.u64()?, read.u8()?);
                        Ok(EventInfo { primary, state, stage, fragments, bytes, deliveries })
                    };
                    Ok((WireReader::whole(meta, |read| read.list(17, one))?, 0))
                })?;
                events.extend(answer.said);
                if !answer.more {
                    return Ok(events);
                }
                connection.grant()?;
            }
        })
    }
}

/// Fragments inside bounds, in key order.
pub struct Range {
    client: Client,
    bounds: Bounds,
    last: Option<Key>,
    part: Part,
}

struct Part {
    here: VecDeque<Fragment>,
    under_way: Option<(Connection, u64)>,
    is_over: bool,
}

impl Range {
    fn fetch(&mut self, client: &Client, end: Instant) -> std::result::Result<(), Failure> {
        if self.part.under_way.is_none() {
            // A connection of its own: a range lasts as long as its reader likes, and would block one of the pool for
            // that time.
            let mut connection = client.calls().own_connection().map_err(Failure::Refused)?;
            connection.begin(end);
            let range = WireRange { bounds: self.bounds.clone(), events: false, after: self.last };
            let meta = range.encode().map_err(Failure::Refused)?;
            let request = connection.send(Call::Range, &meta, &[])?;
            self.part.under_way = Some((connection, request));
        }
        let Some((connection, request)) = &mut self.part.under_way else { return Ok(()) };
        connection.begin(end);
        let answer = connection.answer(*request, |meta| {
            let list = WireReader::whole(meta, |read| read.fragments(client.schema()))?;
            let bytes = bytes_of(&list);
            Ok((list, bytes))
        })?;
        connection.grant()?;
        let mut here = Cutter::new(answer.payload).all(answer.said).map_err(Failure::Refused)?;
        if !answer.more {
            self.part.is_over = true;
            self.part.under_way = None;
        }
        // Holders have their own time: there may be many bytes to each of these few.
        self.client.fetch_list(&mut here).map_err(Failure::Refused)?;
        self.part.here = here.into();
        Ok(())
    }
}

impl Iterator for Range {
    type Item = Result<Fragment>;

    fn next(&mut self) -> Option<Result<Fragment>> {
        loop {
            if let Some(fragment) = self.part.here.pop_front() {
                // Noted when it is handed out, not when it is received: a new connection continues after what the
                // caller has seen.
                self.last = Some(fragment.key());
                return Some(Ok(fragment));
            }
            if self.part.is_over {
                return None;
            }
            let client = self.client.in_one_call(NO_WAIT);
            let fetched = client.calls().drive(Call::Range.repeat(), NO_WAIT, |retry| {
                let fetched = self.fetch(&client, retry.end());
                if fetched.is_err() {
                    // The next try goes on behind the last fragment, over another connection.
                    self.part.under_way = None;
                }
                fetched
            });
            if let Err(error) = fetched {
                self.part.is_over = true;
                return Some(Err(error));
            }
        }
    }
}
