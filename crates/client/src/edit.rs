//! Calls that change stored events: new versions, removals, announcements, seals, releases.

use crate::client::Client;
use crate::put::{NO_WAIT, list_outcomes, of_try};
use crate::retry::unknown;
use forebay_core::{
    Attributes, Bounds, Call, Error, Key, Kind, OpenEvent, Primary, PutOutcome, Repeat, Result, Source, Token, crc32c,
};
use forebay_wire::{WireOpen, WireReader, WireRemove, WireUpdate, WireWriter};

impl Client {
    /// A new version of a fragment; answers its number.
    ///
    /// # Errors
    /// As `Store::update`; `OutcomeUnknown` where no answer came: a repeat may make another version.
    pub fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16> {
        let update = WireUpdate::Fragment { key: *key, token: token.copied(), checksum: crc32c(value) };
        let meta = update.encode(self.keyspace())?;
        self.calls().call(Call::Update.repeat(), NO_WAIT, |connection, _| {
            let request = connection.send(Call::Update, &meta, &[value])?;
            Ok(connection.answer(request, |meta| Ok((WireReader::whole(meta, |read| read.u16())?, 0)))?.said)
        })
    }

    /// Sets attributes of an event.
    ///
    /// # Errors
    /// As `Store::update_attributes`, and `OutcomeUnknown`.
    pub fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()> {
        let (primary, attributes) = (*primary, attributes.clone());
        let update = WireUpdate::Attributes { primary, token: token.copied(), attributes };
        let meta = update.encode(self.keyspace())?;
        // Unlike a new version of a fragment: the same attributes set twice are the same attributes.
        self.calls().ask_as(Repeat::Safe, Call::Update, NO_WAIT, &meta, |read| read.u16().map(|_| ())).map(|_| ())
    }

    /// Removes a fragment; `false` where there was none.
    ///
    /// # Errors
    /// As `Store::remove`; `OutcomeUnknown` where no answer came.
    pub fn remove(&self, key: &Key) -> Result<bool> {
        self.remove_all(&WireRemove::Fragment(*key)).map(|removed| removed > 0)
    }

    /// Removes an event; `false` where there was none.
    ///
    /// # Errors
    /// As `Store::remove_event`; `OutcomeUnknown` where no answer came.
    pub fn remove_event(&self, primary: &Primary) -> Result<bool> {
        self.remove_all(&WireRemove::Event(*primary)).map(|removed| removed > 0)
    }

    /// Removes what lies inside bounds; answers how many events.
    ///
    /// # Errors
    /// As `Store::remove_range`; `OutcomeUnknown` where no answer came.
    pub fn remove_range(&self, bounds: &Bounds) -> Result<u64> {
        self.remove_all(&WireRemove::Range(bounds.clone()))
    }

    fn remove_all(&self, what: &WireRemove) -> Result<u64> {
        Ok(self.calls().ask(Call::Remove, NO_WAIT, &what.encode()?, |read| read.u64())?.0)
    }

    /// Announces an event.
    ///
    /// # Errors
    /// As `Store::open_event`, and `OutcomeUnknown`; repeats as of [`Client::put`].
    pub fn open_event(&self, primary: &Primary, how: &OpenEvent<'_>) -> Result<PutOutcome> {
        let sources = how.sources.map(<[Source]>::to_vec);
        let event = WireOpen { primary: *primary, sources, attributes: how.attributes.cloned() };
        self.open_events(&[event])?.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?
    }

    /// Announces many events with one request; outcomes in the same order.
    ///
    /// # Errors
    /// Those of single events are in their outcomes; `OutcomeUnknown` for the call.
    pub fn open_events(&self, events: &[WireOpen]) -> Result<Vec<Result<PutOutcome>>> {
        let meta = WireOpen::encode_all(events, self.keyspace())?;
        let (outcomes, is_repeat) = self.calls().ask(Call::OpenEvent, NO_WAIT, &meta, list_outcomes)?;
        Ok(outcomes.into_iter().map(|outcome| of_try(outcome, is_repeat)).collect())
    }

    /// An event waits for no more fragments; `false` where there is no such event.
    ///
    /// # Errors
    /// As `Store::seal`, and `OutcomeUnknown`.
    pub fn seal(&self, primary: &Primary) -> Result<bool> {
        self.by_name(Call::Seal, primary)
    }

    /// The archive has an accepted or debug event; `false` where it is neither.
    ///
    /// # Errors
    /// As `Store::release`, and `OutcomeUnknown`.
    pub fn release(&self, primary: &Primary) -> Result<bool> {
        self.by_name(Call::Release, primary)
    }

    /// Gives an event of the debug stream to workers again; `false` where it is not there.
    ///
    /// # Errors
    /// As `Store::replay`, and `OutcomeUnknown`.
    pub fn replay(&self, primary: &Primary) -> Result<bool> {
        self.by_name(Call::Replay, primary)
    }

    fn by_name(&self, call: Call, primary: &Primary) -> Result<bool> {
        let mut out = WireWriter::new();
        out.shorts(std::iter::once(primary.as_bytes()))?;
        let read = |read: &mut WireReader<'_>| read.list(1, |read| read.outcome(|read| Ok(read.u8()? == 1)));
        let (mut done, is_repeat) = self.calls().ask(call, NO_WAIT, &out.finish(), read)?;
        let done = done.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?;
        let done = if is_repeat { done.map_err(Error::of_repeat) } else { done }?;
        if !done && is_repeat {
            // It is done, or never was: this call may have done it before its answer was lost.
            return Err(unknown(&Error::new(Kind::Unavailable, "an answer was lost, and now there is nothing to do")));
        }
        Ok(done)
    }
}
