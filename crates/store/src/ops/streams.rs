//! Streams and outputs: where accepted events go, and which of their sources.
//!
//! ```text
//! detail of an accept:   0 | mask of streams (31)            whole events
//!                        1 | number of an output (31)        streams with chosen sources, journaled before the accept
//! ```
//!
//! *Invariants*: names and outputs are in the log before a decision that uses them.

use super::verdict::with_sources;
use crate::engine::{Engine, closed};
use crate::home::Run;
use crate::{Sources, Store};
use forebay_core::limits::{NAME_BYTES_MAX, STREAMS_MAX};
use forebay_core::{Blob, Error, Primary, Result, crc32c};
use forebay_media::hot::Class;
use forebay_media::limits::outputs_kept_bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The top bit of an accept's detail.
pub(crate) const OUTPUT: u32 = 1 << 31;

/// The detail of a choice that has no number: nobody who may name one asks, it can only be a repetition.
const UNNUMBERED: u32 = u32::MAX;

/// The output that a detail names, where it is not a mask.
pub(crate) fn output_number(detail: u32) -> Option<u32> {
    (detail & OUTPUT != 0).then_some(detail & !OUTPUT)
}

/// Streams with the sources that each keeps; `None` keeps all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) streams: Vec<(u8, Option<Vec<Vec<u8>>>)>,
    check: u32,
}

/// An output with the turn in which somebody last asked for it.
#[derive(Debug)]
struct Numbered {
    number: u32,
    asked: AtomicU64,
}

/// Outputs in use, by number and by content.
#[derive(Default)]
pub(crate) struct Outputs {
    by_number: HashMap<u32, Arc<Output>>,
    by_content: HashMap<Vec<u8>, Numbered>,
    next: u32,
    pub(crate) bytes: u64,
    /// Raised when a snapshot begins.
    turn: u64,
}

impl Outputs {
    /// Takes over an output that the log names.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none.
    pub(crate) fn adopt(&mut self, number: u32, content: &[u8], width: usize) -> Result<()> {
        let output = decode(content, width).ok_or_else(|| Error::corrupt("an output of a stream cannot be read"))?;
        self.insert(number, content, output);
        Ok(())
    }

    fn insert(&mut self, number: u32, content: &[u8], output: Output) {
        self.by_number.insert(number, Arc::new(output));
        self.by_content.insert(content.to_vec(), Numbered { number, asked: self.turn.into() });
        self.bytes += log_bytes(content);
        self.next = self.next.max(number.saturating_add(1));
    }

    /// The number of an output that is in use; whoever asks may accept an event with it.
    fn number_of(&self, content: &[u8]) -> Option<u32> {
        let known = self.by_content.get(content)?;
        known.asked.fetch_max(self.turn, Ordering::Relaxed);
        Some(known.number)
    }

    /// Events that are not to be found may use any of them: they stay for this life.
    pub(crate) fn keep(&mut self) {
        self.by_content.values().for_each(|known| known.asked.store(u64::MAX, Ordering::Relaxed));
    }

    /// A snapshot begins: outputs that are asked for from now on stay, whatever it finds in use.
    pub(crate) fn begin_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Forgets outputs that no accepted event uses any more, and nobody asked for since the turn; answers what is left.
    pub(crate) fn retain(&mut self, used: &std::collections::HashSet<u32>, turn: u64) -> Vec<(u32, Vec<u8>)> {
        let left = |known: &Numbered| used.contains(&known.number) || known.asked.load(Ordering::Relaxed) >= turn;
        self.by_content.retain(|_, known| left(known));
        let numbers: std::collections::HashSet<u32> = self.by_content.values().map(|known| known.number).collect();
        self.by_number.retain(|number, _| numbers.contains(number));
        self.bytes = self.by_content.keys().map(|content| log_bytes(content)).sum();
        self.by_content.iter().map(|(content, known)| (known.number, content.clone())).collect()
    }
}

/// Bytes of the log that an output takes at most: its number goes with it, and its last slot is a whole one.
fn log_bytes(content: &[u8]) -> u64 {
    (content.len() + 64) as u64
}

fn encode(streams: &[(u8, Option<Vec<Vec<u8>>>)]) -> Vec<u8> {
    let mut out = vec![streams.len() as u8];
    for (stream, sources) in streams {
        out.push(*stream);
        out.push(u8::from(sources.is_some()));
        if let Some(sources) = sources {
            out.extend_from_slice(&(sources.len() as u32).to_le_bytes());
            sources.iter().for_each(|source| out.extend_from_slice(source));
        }
    }
    out
}

fn decode(content: &[u8], width: usize) -> Option<Output> {
    let (&count, mut rest) = content.split_first()?;
    let mut streams = Vec::new();
    for _ in 0..count {
        let (head, tail) = rest.split_at_checked(2)?;
        rest = tail;
        let sources = if head[1] == 0 {
            None
        } else {
            let (count, tail) = rest.split_first_chunk::<4>()?;
            let (packed, tail) = tail.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(width)?)?;
            rest = tail;
            Some(packed.chunks_exact(width).map(<[u8]>::to_vec).collect())
        };
        streams.push((head[0], sources));
    }
    rest.is_empty().then(|| Output { streams, check: crc32c(content) })
}

impl Store {
    /// What each stream keeps of an accepted event, by name; `None` where the event is not accepted.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`.
    pub fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let shard = engine.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let accepted = |event: &u32| {
            let state = shard.events[*event].state;
            state == crate::home::State::Live(forebay_core::LiveState::Accepted)
        };
        let Some(event) = shard.find(primary.as_bytes()).filter(accepted) else { return Ok(None) };
        let detail = shard.events[event].lease;
        drop(shard);
        let names = engine.streams.read();
        let name = |stream: u8| names.get(usize::from(stream)).cloned().unwrap_or_default();
        let sources = |list: Option<Vec<Vec<u8>>>| list.map_or(Sources::All, Sources::Only);
        Ok(Some(engine.streams_of(detail).into_iter().map(|(stream, list)| (name(stream), sources(list))).collect()))
    }
}

impl Engine {
    /// The mask of streams by name; new names are journaled, if `may_add` says that somebody may add them.
    pub(crate) fn stream_mask(&self, names: &[&str], may_add: impl Fn() -> Result<()>) -> Result<u32> {
        let mut mask = 0;
        for name in names {
            mask |= 1 << self.stream_number(name, &may_add)?;
        }
        Ok(mask)
    }

    /// The detail of an accept into streams with chosen sources, and what ties a remembered accept to it; results go to
    /// every stream. Within an effects guard that lasts until the accept is recorded: folding the log forgets choices
    /// that no accepted event has.
    pub(crate) fn output(
        &self,
        streams: &[(&str, Sources)],
        results: &[&[u8]],
        may_add: impl Fn() -> Result<()>,
    ) -> Result<(u32, u32)> {
        let mut chosen: Vec<(u8, Option<Vec<Vec<u8>>>)> = Vec::with_capacity(streams.len());
        let width = self.keyspace.schema.rest_bytes();
        for (name, sources) in streams {
            if let Sources::Only(list) = sources
                && list.iter().any(|source| source.len() != width)
            {
                return Err(Error::invalid(format!("stream `{name}`: sources of another schema")));
            }
            chosen.push((self.stream_number(name, &may_add)?, with_sources(sources, results)));
        }
        chosen.sort_unstable_by_key(|stream| stream.0);
        if let Some(twice) = chosen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let at = usize::from(twice[0].0);
            return Err(Error::invalid(format!("stream `{}` stands twice", self.streams.read()[at])));
        }
        if chosen.iter().all(|(_, sources)| sources.is_none()) {
            let mask = chosen.iter().fold(0, |mask, (stream, _)| mask | 1 << stream);
            return Ok((mask, mask));
        }
        let content = encode(&chosen);
        let check = crc32c(&content);
        if let Some(number) = self.outputs.read().number_of(&content) {
            return Ok((OUTPUT | number, check));
        }
        if may_add().is_err() {
            return Ok((UNNUMBERED, check));
        }
        self.check_open()?;
        let mut outputs = self.outputs.write();
        if let Some(number) = outputs.number_of(&content) {
            return Ok((OUTPUT | number, check));
        }
        // Every snapshot contains it: beyond what is kept free for such, it must leave the space that decisions need.
        let kept = outputs_kept_bytes(self.hot.geometry.region_bytes());
        if outputs.bytes + log_bytes(&content) > kept && !self.hot.admits(Class::Evacuation) {
            return Err(Error::full("no space for another choice of sources of streams: nothing is decided"));
        }
        let number = outputs.next;
        if number >= OUTPUT - 1 {
            return Err(Error::full("no more numbers for chosen sources of streams in this store"));
        }
        let journaled = [&number.to_le_bytes()[..], &content].concat();
        // The accept that comes with it is later in every shadow.
        self.journal_blob(Blob::Output, &journaled, b"output")?.unanswered();
        let output = Output { streams: chosen, check };
        outputs.insert(number, &content, output);
        self.hot.output_bytes.store(outputs.bytes, Ordering::Relaxed);
        Ok((OUTPUT | number, check))
    }

    /// What ties a remembered accept to its output, over restarts.
    pub(crate) fn output_check(&self, detail: u32) -> u32 {
        if detail & OUTPUT == 0 {
            return detail;
        }
        self.outputs.read().by_number.get(&(detail & !OUTPUT)).map_or(detail, |output| output.check)
    }

    /// Streams of an accept's detail, with the sources that each keeps.
    pub(crate) fn streams_of(&self, detail: u32) -> Vec<(u8, Option<Vec<Vec<u8>>>)> {
        if detail & OUTPUT != 0 {
            let output = self.outputs.read().by_number.get(&(detail & !OUTPUT)).cloned();
            return output.map(|output| output.streams.clone()).unwrap_or_default();
        }
        (0..STREAMS_MAX as u8).filter(|stream| detail >> stream & 1 == 1).map(|stream| (stream, None)).collect()
    }

    pub(crate) fn stream_names(&self, detail: u32) -> Vec<String> {
        let numbers = self.streams_of(detail);
        let streams = self.streams.read();
        numbers.into_iter().filter_map(|(stream, _)| streams.get(usize::from(stream)).cloned()).collect()
    }

    /// A released event leaves the streams that it was accepted into.
    pub(crate) fn book_released(&self, run: &mut Run, detail: u32) {
        for (stream, _) in self.streams_of(detail) {
            *run.released.entry(stream).or_default() += 1;
        }
    }

    fn stream_number(&self, name: &str, may_add: impl Fn() -> Result<()>) -> Result<u8> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!("stream name `{name}`: 1 to {NAME_BYTES_MAX} bytes")));
        }
        let known = || self.streams.read().iter().position(|stream| stream == name).map(|at| at as u8);
        if let Some(at) = known() {
            return Ok(at);
        }
        if let Err(refused) = may_add() {
            // The same verdict, given meanwhile, brought the name: this one is its repetition.
            return known().ok_or(refused);
        }
        // The caller may have one already.
        let _effects = self.effects.begin();
        self.check_open()?;
        let mut streams = self.streams.write();
        if let Some(at) = streams.iter().position(|stream| stream == name) {
            return Ok(at as u8);
        }
        if streams.len() == STREAMS_MAX {
            return Err(Error::invalid(format!(
                "stream `{name}` would be one more than {STREAMS_MAX}: {:?}",
                *streams
            )));
        }
        self.journal_blob(Blob::Stream, name.as_bytes(), b"stream")?.unanswered();
        streams.push(name.to_owned());
        Ok(streams.len() as u8 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accept, Config, GetAny, PutOptions};
    use forebay_core::{Completeness, Keyspace, Kind, SegmentKind};
    use forebay_media::sim::SimMedium;

    #[test]
    fn outputs_read_back_and_nothing_else_does() {
        let streams = vec![(0, None), (3, Some(vec![vec![0, 1], vec![0, 9]])), (30, Some(Vec::new()))];
        let content = encode(&streams);
        assert_eq!(decode(&content, 2).unwrap().streams, streams);
        for cut in 0..content.len() {
            assert_eq!(decode(&content[..cut], 2), None, "{cut}");
        }
        assert_eq!(decode(&[1, 0, 1, 255, 255, 255, 255], 4), None);
        let mut outputs = Outputs::default();
        outputs.adopt(7, &content, 2).unwrap();
        assert!(outputs.adopt(8, &[9], 2).is_err());
        assert_eq!(outputs.retain(&[7].into(), 1).len(), 1);
        assert_eq!((outputs.retain(&Default::default(), 1).len(), outputs.bytes, outputs.next), (0, 0, 8));
    }

    #[test]
    fn a_full_level_takes_new_choices_until_their_own_space_is_taken() {
        let mut keyspace = Keyspace::events("choices", 1);
        keyspace.run.completeness = Completeness::Count(1);
        let segment_bytes = Some(16 << 10);
        let config = Config { hot_bytes: 16 << 20, segment_bytes, maintenance: false, ..Config::default() };
        let store = Store::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap();
        store.run_open(1, &keyspace.run).unwrap();
        let events = 400;
        for event in 0..events {
            let key = keyspace.schema.key(&[1, event, 0]).unwrap();
            assert_eq!(store.put(&key, b"small", &PutOptions::default()).unwrap(), crate::PutOutcome::Stored);
        }
        let engine = store.engine();
        while engine.hot.take(Class::Evacuation, SegmentKind::Data).is_some() {}
        let mut chosen = 0;
        for number in 0..events {
            let lease = store.get_any(&GetAny { n: 1, ..GetAny::default() }).unwrap().pop().unwrap();
            let streams = [("express", Sources::only(&keyspace.schema, [0, number]).unwrap())];
            match lease.accept_into(&Accept { streams: &streams, results: &[] }) {
                Ok(()) => chosen += 1,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    let (used, kept) = (engine.outputs.read().bytes, outputs_kept_bytes(16 << 20));
                    assert!((kept - 100..=kept).contains(&used), "refused at {used} of {kept} bytes");
                    // A stream of a new name has room as well.
                    lease.accept(&[&format!("full-{}", number % 20)]).unwrap();
                }
            }
        }
        assert!((100..300).contains(&chosen), "{chosen} choices of about 80 B in 16 KiB");
        let append = |blob| engine.log.append_blob(&engine.hot, blob, &[0; 64]);
        while append(Blob::Mask).is_ok() {}
        append(Blob::Output).unwrap();
    }
}
