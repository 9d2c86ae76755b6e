//! Reading: one fragment, many, a whole event, and ranges as they come.

use crate::client::{Client, Repeat};
use crate::connection::{Connection, Failure};
use crate::fragment::{Cutter, Event, Fragment, bytes_of};
use crate::put::NO_WAIT;
use forebay_core::{
    Bounds, Error, EventInfo, FrameKind, Key, Kind, LIVE_STATES, Primary, Result, Sources, WireEvent, WireFragment,
    WireRange, WireReader, WireWriter,
};
use std::collections::VecDeque;

/// Bytes that a request says of a key, at most.
const KEY_BYTES: usize = 34;

impl Client {
    /// The fragment of a key; `None` where there is none.
    ///
    /// # Errors
    /// As `Store::get`, and `Unavailable` where the server does not answer in time.
    pub fn get(&self, key: &Key) -> Result<Option<Fragment>> {
        let mut found = self.get_many(std::slice::from_ref(key))?;
        found.pop().ok_or_else(|| Error::corrupt("an answer without its fragment"))
    }

    /// The fragments of several keys, in the order of the keys, with one request; with more of them where the fragments
    /// have more bytes than this client takes at once.
    ///
    /// # Errors
    /// As [`Client::get`]; the first error of a key is that of the call.
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        let mut all = Vec::with_capacity(keys.len());
        loop {
            self.get_some(&keys[all.len()..], &mut all)?;
            if all.len() >= keys.len() {
                return Ok(all);
            }
        }
    }

    /// The fragments of the first of these keys: as many as fit one answer, one at least.
    fn get_some(&self, keys: &[Key], all: &mut Vec<Option<Fragment>>) -> Result<()> {
        // A server takes a quarter of its window for what a request says.
        let most = self.inner.known.welcome.window_bytes as usize / 4 / KEY_BYTES;
        let keys = &keys[..keys.len().min(most.max(1))];
        let mut out = WireWriter::with_capacity(4 + 33 * keys.len());
        out.shorts(keys.iter().map(Key::as_bytes))?;
        let meta = out.finish();
        let answer = self.call(Repeat::Safe, NO_WAIT, |connection, _| {
            let request = connection.send(FrameKind::Get, &meta, &[])?;
            connection.answer(request, |meta| {
                let read_one = |read: &mut WireReader<'_>| read.outcome(|read| read.option(WireReader::fragment));
                let found = WireReader::whole(meta, |read| read.list(1, read_one))?;
                let bytes = found.iter().flatten().flatten().map(|about: &WireFragment| u64::from(about.length)).sum();
                Ok((found, bytes))
            })
        })?;
        if answer.said.len() != keys.len() {
            return Err(Error::corrupt("an answer with another number of fragments than keys"));
        }
        let mut cutter = Cutter::new(answer.payload);
        for (at, (key, found)) in keys.iter().zip(answer.said).enumerate() {
            match found {
                Ok(found) => all.push(found.map(|about| cutter.next(*key, about)).transpose()?),
                // What did not fit is asked for next.
                Err(error) if at > 0 && error.kind() == Kind::Full => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A live event with the fragments of the given sources; `None` where there is no such event.
    ///
    /// # Errors
    /// As `Store::get_event`, and `Unavailable` where the server does not answer in time.
    pub fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event>> {
        let mut out = WireWriter::new();
        out.u32(1);
        out.short(primary.as_bytes())?;
        out.sources(sources)?;
        let meta = out.finish();
        let keyspace = self.keyspace();
        let answer = self.call(Repeat::Safe, NO_WAIT, |connection, _| {
            let request = connection.send(FrameKind::GetEvent, &meta, &[])?;
            connection.answer(request, |meta| {
                let one = |read: &mut WireReader<'_>| {
                    read.outcome(|read| read.option(|read| WireEvent::decode(read, keyspace)))
                };
                let mut found = WireReader::whole(meta, |read| read.list(1, one))?;
                let found = found.pop().ok_or_else(|| Error::corrupt("an answer without its event"))?;
                let bytes = found.as_ref().ok().and_then(Option::as_ref).map_or(0, WireEvent::payload_bytes);
                Ok((found, bytes))
            })
        })?;
        let Some(event) = answer.said? else { return Ok(None) };
        Ok(Some(self.event(event, &mut Cutter::new(answer.payload))?))
    }

    fn event(&self, event: WireEvent, cutter: &mut Cutter) -> Result<Event> {
        Ok(Event {
            primary: event.primary,
            state: event.state,
            stage: self.keyspace().stages.get(usize::from(event.stage)).cloned().unwrap_or_default(),
            attributes: event.attributes,
            streams: event.streams,
            fragments: cutter.all(event.fragments)?,
            missing: event.missing,
            sources: event.sources,
        })
    }

    /// Fragments inside the bounds, streamed in key order. The range has a connection of its own while it lasts; where that
    /// fails, it goes on behind the last fragment.
    pub fn range(&self, bounds: &Bounds) -> Range {
        let part = Part { here: VecDeque::new(), under_way: None, is_over: false };
        Range { client: self.clone(), bounds: bounds.clone(), last: None, part, tries: 0 }
    }

    /// Live events inside the primary part of the bounds, in key order, without their payloads.
    ///
    /// # Errors
    /// As `Store::events`, and `Unavailable` where the server does not answer in time.
    pub fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        let meta = WireRange { bounds: bounds.clone(), events: true, after: None }.encode()?;
        let schema = self.schema();
        self.call(Repeat::Safe, NO_WAIT, |connection, _| {
            let request = connection.send(FrameKind::Range, &meta, &[])?;
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
    tries: u32,
}

struct Part {
    here: VecDeque<Fragment>,
    under_way: Option<(Connection, u64)>,
    is_over: bool,
}

/// How often a range whose connection fails is taken up again without a fragment in between.
const TRIES: u32 = 8;

impl Range {
    fn fetch(&mut self) -> std::result::Result<(), Failure> {
        if self.part.under_way.is_none() {
            let mut connection = self.client.own_connection().map_err(Failure::Refused)?;
            connection.begin(self.client.deadline(NO_WAIT));
            let range = WireRange { bounds: self.bounds.clone(), events: false, after: self.last };
            let meta = range.encode().map_err(Failure::Refused)?;
            let request = connection.send(FrameKind::Range, &meta, &[])?;
            self.part.under_way = Some((connection, request));
        }
        let schema = self.client.schema();
        let Some((connection, request)) = &mut self.part.under_way else { return Ok(()) };
        connection.begin(self.client.deadline(NO_WAIT));
        let answer = connection.answer(*request, |meta| {
            let list = WireReader::whole(meta, |read| read.fragments(schema))?;
            let bytes = bytes_of(&list);
            Ok((list, bytes))
        })?;
        connection.grant()?;
        self.part.here = Cutter::new(answer.payload).all(answer.said).map_err(Failure::Refused)?.into();
        if !answer.more {
            self.part.is_over = true;
            self.part.under_way = None;
        }
        Ok(())
    }
}

impl Iterator for Range {
    type Item = Result<Fragment>;

    fn next(&mut self) -> Option<Result<Fragment>> {
        loop {
            if let Some(fragment) = self.part.here.pop_front() {
                self.last = Some(fragment.key());
                self.tries = 0;
                return Some(Ok(fragment));
            }
            if self.part.is_over {
                return None;
            }
            match self.fetch() {
                Ok(()) => {}
                Err(Failure::Refused(error)) => {
                    self.part.is_over = true;
                    return Some(Err(error));
                }
                Err(Failure::Unsent(error) | Failure::Lost(error)) => {
                    self.part.under_way = None;
                    self.tries += 1;
                    if self.tries >= TRIES {
                        self.part.is_over = true;
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}
