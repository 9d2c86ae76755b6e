//! Streams and outputs: where accepted events go, and which of their sources.
//!
//! *Invariants*: names and outputs are in the log before a decision that uses them.

use super::verdict::with_sources;
use crate::decisions::{
    MASKED, OUTPUTS_MAX, Output, detail_of_output, detail_of_streams, encode_output, log_bytes, output_number,
    streams_in,
};
use crate::engine::{Engine, closed};
use crate::events::Run;
use crate::{Sources, Store};
use forebay_core::limits::STREAMS_MAX;
use forebay_core::{Error, Primary, Result, Source, crc32c};
use forebay_media::bytes::Blob;
use forebay_media::hot::Class;
use forebay_media::limits::outputs_kept_bytes;
use std::sync::atomic::Ordering;

/// Streams whose names find room in a store that has none: each takes little, and a decision must find its own behind them.
const NAMED_WHEN_FULL: usize = 31;

impl Store {
    /// What each stream keeps of an accepted event, by name; `None` where the event is not accepted.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`.
    pub fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let shard = engine.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let accepted = |event: &u32| {
            let state = shard.events[*event].state;
            state == crate::events::State::Live(forebay_core::LiveState::Accepted)
        };
        let Some(event) = engine.find(&shard, primary.as_bytes())?.filter(accepted) else { return Ok(None) };
        let detail = shard.events[event].output();
        drop(shard);
        let names = engine.decisions.streams.read();
        let name = |stream: u8| names.name(stream).cloned().unwrap_or_default();
        let sources = |list: Option<Vec<Source>>| list.map_or(Sources::All, Sources::Only);
        Ok(Some(engine.streams_of(detail).into_iter().map(|(stream, list)| (name(stream), sources(list))).collect()))
    }
}

impl Engine {
    /// The detail of an accept of a whole event into these streams, and what ties a remembered accept to it. New names are
    /// journaled, if `may_add` says that somebody may add them. Within an effects guard, as [`Engine::output`].
    pub(crate) fn whole(&self, names: &[&str], may_add: impl Fn() -> Result<()>) -> Result<(u32, u32)> {
        // Nearly all accepts are into a few of the first streams: their mask takes no memory.
        let (mut mask, mut streams) = (0, Vec::new());
        for name in names {
            match self.stream_number(name, &may_add)? {
                stream if stream < MASKED => mask |= 1 << stream,
                stream => streams.push(stream),
            }
        }
        if streams.is_empty() {
            return Ok((mask, mask));
        }
        streams.extend(streams_in(mask));
        streams.sort_unstable();
        streams.dedup();
        match detail_of_streams(&streams) {
            Some(detail) => Ok((detail, detail)),
            None => self.numbered(streams.into_iter().map(|stream| (stream, None)).collect(), may_add),
        }
    }

    /// The detail of an accept into streams with chosen sources, and what ties a remembered accept to it; results go to
    /// every stream. Within an effects guard that lasts until the accept is recorded: a snapshot forgets choices
    /// that no accepted event has.
    pub(crate) fn output(
        &self,
        streams: &[(&str, Sources)],
        results: &[&Source],
        may_add: impl Fn() -> Result<()>,
    ) -> Result<(u32, u32)> {
        let mut chosen: Vec<(u8, Option<Vec<Source>>)> = Vec::with_capacity(streams.len());
        let width = self.keyspace.schema.rest_bytes();
        for (name, sources) in streams {
            if let Sources::Only(list) = sources
                && list.iter().any(|source| source.len() != width)
            {
                return Err(Error::invalid(format!("stream `{name}`: sources of another schema")));
            }
            chosen.push((self.stream_number(name, &may_add)?, with_sources(sources, results)));
        }
        // In one order, regardless of the caller's: the same choice has the same bytes, and one number.
        chosen.sort_unstable_by_key(|stream| stream.0);
        if let Some(twice) = chosen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = self.decisions.streams.read().name(twice[0].0).cloned().unwrap_or_default();
            return Err(Error::invalid(format!("stream `{name}` is named twice")));
        }
        let whole: Option<Vec<u8>> =
            chosen.iter().map(|(stream, sources)| sources.is_none().then_some(*stream)).collect();
        match whole.and_then(|streams| detail_of_streams(&streams)) {
            Some(detail) => Ok((detail, detail)),
            None => self.numbered(chosen, may_add),
        }
    }

    /// The detail of what only an output can name, and what ties a remembered accept to it.
    fn numbered(&self, chosen: Vec<(u8, Option<Vec<Source>>)>, may_add: impl Fn() -> Result<()>) -> Result<(u32, u32)> {
        let content = encode_output(&chosen);
        let check = crc32c(&content);
        // The common case takes the lock for readers: a selection uses the same few choices for all its events.
        if let Some(number) = self.decisions.outputs.read().number_of(&content) {
            return Ok((detail_of_output(number), check));
        }
        // A number is taken from the log's space: only for a token that is in force. No holder of a lease asks for this
        // one, which is never given: it can only be a repetition.
        if may_add().is_err() {
            return Ok((detail_of_output(OUTPUTS_MAX), check));
        }
        self.check_open()?;
        let mut outputs = self.decisions.outputs.write();
        if let Some(number) = outputs.number_of(&content) {
            return Ok((detail_of_output(number), check));
        }
        // Every snapshot contains it: beyond what is kept free for such, it must leave the space that decisions need.
        let kept = outputs_kept_bytes(self.placement.hot.geometry.region_bytes());
        if outputs.bytes + log_bytes(&content) > kept && !self.placement.hot.admits(Class::Evacuation) {
            return Err(Error::full("no space for another choice of streams or their sources: nothing is decided"));
        }
        let number = outputs.next;
        if number >= OUTPUTS_MAX {
            return Err(Error::full("no more numbers for chosen sources of streams in this store"));
        }
        let journaled = [&number.to_le_bytes()[..], &content].concat();
        // The accept that comes with it is later in every shadow.
        self.journal_blob(Class::Decision, Blob::Output, &journaled, b"output")?.unanswered();
        let output = Output { streams: chosen, check };
        outputs.insert(number, &content, output);
        self.placement.hot.output_bytes.store(outputs.bytes, Ordering::Relaxed);
        Ok((detail_of_output(number), check))
    }

    /// What ties a remembered accept to its output, over restarts.
    pub(crate) fn output_check(&self, detail: u32) -> u32 {
        let Some(number) = output_number(detail) else { return detail };
        self.decisions.outputs.read().by_number.get(&number).map_or(detail, |output| output.check)
    }

    /// Streams of an accept's detail, with the sources that each keeps.
    pub(crate) fn streams_of(&self, detail: u32) -> Vec<(u8, Option<Vec<Source>>)> {
        let Some(number) = output_number(detail) else {
            return streams_in(detail).into_iter().map(|stream| (stream, None)).collect();
        };
        let output = self.decisions.outputs.read().by_number.get(&number).cloned();
        output.map(|output| output.streams.clone()).unwrap_or_default()
    }

    pub(crate) fn stream_names(&self, detail: u32) -> Vec<String> {
        let numbers = self.streams_of(detail);
        let streams = self.decisions.streams.read();
        numbers.into_iter().filter_map(|(stream, _)| streams.name(stream).cloned()).collect()
    }

    /// A released event leaves the streams that it was accepted into.
    pub(crate) fn book_released(&self, run: &mut Run, detail: u32) {
        for (stream, _) in self.streams_of(detail) {
            *run.released.entry(stream).or_default() += 1;
        }
    }

    fn stream_number(&self, name: &str, may_add: impl Fn() -> Result<()>) -> Result<u8> {
        let known = || self.decisions.streams.read().accepting(name);
        if let Some(number) = known() {
            return Ok(number);
        }
        self.keyspace.check_stream(name)?;
        if let Err(refused) = may_add() {
            // The same verdict, given meanwhile, brought the name: this one is its repetition.
            return known().ok_or(refused);
        }
        // The caller may have one already.
        let _effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut streams = self.decisions.streams.write();
        if let Some(number) = streams.accepting(name) {
            return Ok(number);
        }
        if streams.names().len() == STREAMS_MAX {
            return Err(Error::invalid(format!(
                "stream `{name}` would be one more than {STREAMS_MAX}: {:?}",
                streams.names()
            )));
        }
        if streams.names().len() >= NAMED_WHEN_FULL && !self.placement.hot.admits(Class::Evacuation) {
            return Err(Error::full(format!("no space for the name of a new stream, `{name}`: nothing is decided")));
        }
        self.journal_blob(Class::Decision, Blob::Stream, name.as_bytes(), b"stream")?.unanswered();
        Ok(streams.add(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accept, Config, GetAny, PutOptions};
    use forebay_core::{Completeness, Keyspace, Kind};
    use forebay_media::bytes::SegmentKind;
    use forebay_testkit::media::SimMedium;

    #[test]
    fn a_full_level_takes_new_choices_until_their_own_space_is_taken() {
        let mut keyspace = Keyspace::events("choices", 1).opening_runs();
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
        while engine.placement.hot.take(Class::Evacuation, SegmentKind::Data).is_some() {}
        let mut chosen = 0;
        for number in 0..events {
            let lease = store.get_any(&GetAny { n: 1, ..GetAny::default() }).unwrap().pop().unwrap();
            let streams = [("express", Sources::only(&keyspace.schema, [0, number]).unwrap())];
            match lease.accept_into(&Accept { streams: &streams, results: &[] }) {
                Ok(()) => chosen += 1,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    let (used, kept) = (engine.decisions.outputs.read().bytes, outputs_kept_bytes(16 << 20));
                    assert!((kept - 100..=kept).contains(&used), "refused at {used} of {kept} bytes");
                    // A stream of a new name has room as well.
                    lease.accept(&[&format!("full-{}", number % 20)]).unwrap();
                }
            }
        }
        assert!((100..300).contains(&chosen), "{chosen} choices of about 80 B in 16 KiB");
        let append = |class, blob| engine.decisions.log.append_blob(&engine.placement.hot, class, blob, &[0; 64]);
        while append(Class::Evacuation, Blob::Mask).is_ok() {}
        append(Class::Decision, Blob::Output).unwrap();
    }
}
