//! Events, leases and verdicts as frames speak of them.

use super::{WireFragment, WireReader, WireWriter};
use forebay_core::{
    Attributes, Condition, Error, Filter, GetAny, Key, Keyspace, LIVE_STATES, Level, LiveState, Primary, Result,
    Source, SourceStates, Sources, Token,
};
use std::time::Duration;

/// An event as it is read; the payloads of its fragments follow in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireEvent {
    /// The event's name.
    pub primary: Primary,
    /// Its state.
    pub state: LiveState,
    /// Stage of the selection that it has reached, by its number in the keyspace.
    pub stage: u8,
    /// Attributes set so far.
    pub attributes: Attributes,
    /// Streams that it was accepted into.
    pub streams: Vec<String>,
    /// Fragments in key order, those that were asked for.
    pub fragments: Vec<(Key, WireFragment)>,
    /// Expected sources that are not there.
    pub missing: Vec<Key>,
    /// The state of each of its sources.
    pub sources: SourceStates,
}

/// An event under lease, with what the lease holder was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireLease {
    /// The event, in the state `leased`.
    pub event: WireEvent,
    /// The fence.
    pub token: Token,
    /// 1 for the first worker; counts failures of earlier ones.
    pub delivery: u8,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
}

/// A verdict of a lease holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireJudgement {
    /// The event is kept, in these streams, each with chosen sources.
    Accept(Vec<(String, Sources)>),
    /// It is dropped.
    Reject,
    /// It is given back unharmed.
    Requeue,
    /// It goes to a later stage.
    Pass(String),
    /// Processing it failed, for this reason.
    Fail(String),
}

/// One verdict; the payloads of its results follow those of the verdicts before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireVerdict {
    /// The event's name.
    pub primary: Primary,
    /// The fence of its lease.
    pub token: Token,
    /// The decision.
    pub judgement: WireJudgement,
    /// Fragments that the worker adds: packed source, bytes of payload, its CRC-32C.
    pub results: Vec<(Source, u32, u32)>,
}

/// Least bytes of a verdict.
const VERDICT_BYTES_MIN: usize = 22;

impl WireEvent {
    /// Appends the event.
    ///
    /// # Errors
    /// None for an event of the keyspace.
    pub fn encode(&self, out: &mut WireWriter, keyspace: &Keyspace) -> Result<()> {
        out.short(self.primary.as_bytes())?;
        out.u8(self.state as u8);
        out.u8(self.stage);
        out.attributes(&self.attributes, &keyspace.attributes)?;
        out.u32(self.streams.len() as u32);
        self.streams.iter().try_for_each(|stream| out.long(stream.as_bytes()))?;
        out.fragments(&self.fragments)?;
        out.u32(self.missing.len() as u32);
        self.missing.iter().try_for_each(|key| out.short(key.as_bytes()))?;
        out.long(self.sources.packed())
    }

    /// An event of the keyspace.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode(read: &mut WireReader<'_>, keyspace: &Keyspace) -> Result<WireEvent> {
        let schema = &keyspace.schema;
        let primary = read.primary(schema)?;
        let (state, stage) = (read.u8()?, read.u8()?);
        let state = LIVE_STATES.into_iter().find(|known| *known as u8 == state);
        let state = state.ok_or_else(|| Error::corrupt("an event in a state that there is not"))?;
        if usize::from(stage) >= keyspace.stages.len().max(1) {
            return Err(Error::corrupt(format!("an event in stage {stage}, which there is not")));
        }
        let attributes = read.attributes(&keyspace.attributes)?;
        let count = read.count(4)?;
        let streams = (0..count).map(|_| Ok(read.text()?.to_owned())).collect::<Result<Vec<_>>>()?;
        let fragments = read.fragments(schema)?;
        let count = read.count(2)?;
        let missing = (0..count).map(|_| read.key(schema)).collect::<Result<Vec<_>>>()?;
        let sources = SourceStates::from_packed(read.long()?, schema.rest_bytes())?;
        Ok(WireEvent { primary, state, stage, attributes, streams, fragments, missing, sources })
    }

    /// Bytes of its payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.fragments.iter().map(|(_, fragment)| u64::from(fragment.length)).sum()
    }
}

impl WireLease {
    /// Appends the lease.
    ///
    /// # Errors
    /// As [`WireEvent::encode`].
    pub fn encode(&self, out: &mut WireWriter, keyspace: &Keyspace) -> Result<()> {
        self.event.encode(out, keyspace)?;
        out.token(&self.token);
        out.u8(self.delivery);
        out.u32(self.event_fragments);
        out.u64(self.event_bytes);
        Ok(())
    }

    /// A lease of the keyspace.
    ///
    /// # Errors
    /// As [`WireEvent::decode`].
    pub fn decode(read: &mut WireReader<'_>, keyspace: &Keyspace) -> Result<WireLease> {
        let event = WireEvent::decode(read, keyspace)?;
        let token = read.token()?;
        let (delivery, event_fragments, event_bytes) = (read.u8()?, read.u32()?, read.u64()?);
        Ok(WireLease { event, token, delivery, event_fragments, event_bytes })
    }
}

impl WireVerdict {
    /// The meta of these verdicts.
    ///
    /// # Errors
    /// None for verdicts of the keyspace.
    pub fn encode_all(verdicts: &[WireVerdict]) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(verdicts.len() as u32);
        for verdict in verdicts {
            out.short(verdict.primary.as_bytes())?;
            out.token(&verdict.token);
            match &verdict.judgement {
                WireJudgement::Accept(streams) => {
                    out.u8(1);
                    out.u32(streams.len() as u32);
                    for (name, sources) in streams {
                        out.long(name.as_bytes())?;
                        out.sources(sources)?;
                    }
                }
                WireJudgement::Reject => out.u8(2),
                WireJudgement::Requeue => out.u8(3),
                WireJudgement::Pass(stage) => {
                    out.u8(4);
                    out.long(stage.as_bytes())?;
                }
                WireJudgement::Fail(reason) => {
                    out.u8(5);
                    out.long(reason.as_bytes())?;
                }
            }
            out.u32(verdict.results.len() as u32);
            for (source, length, checksum) in &verdict.results {
                out.short(source)?;
                out.u32(*length);
                out.u32(*checksum);
            }
        }
        Ok(out.finish())
    }

    /// Verdicts from a meta; `payload_bytes` are what the frame has.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema, and where lengths do not add up.
    pub fn decode_all(meta: &[u8], payload_bytes: u32, keyspace: &Keyspace) -> Result<Vec<WireVerdict>> {
        let mut read = WireReader::new(meta);
        let count = read.count(VERDICT_BYTES_MIN)?;
        let mut verdicts = Vec::with_capacity(count);
        let mut bytes = 0_u64;
        for _ in 0..count {
            let (primary, token) = (read.primary(&keyspace.schema)?, read.token()?);
            let judgement = match read.u8()? {
                1 => {
                    let count = read.count(5)?;
                    let one =
                        |read: &mut WireReader<'_>| Ok((read.text()?.to_owned(), read.sources(&keyspace.schema)?));
                    WireJudgement::Accept((0..count).map(|_| one(&mut read)).collect::<Result<Vec<_>>>()?)
                }
                2 => WireJudgement::Reject,
                3 => WireJudgement::Requeue,
                4 => WireJudgement::Pass(read.text()?.to_owned()),
                5 => WireJudgement::Fail(read.text()?.to_owned()),
                other => return Err(Error::corrupt(format!("verdict {other}, which there is not"))),
            };
            let count = read.count(9)?;
            let mut results = Vec::with_capacity(count);
            for _ in 0..count {
                let (source, length, checksum) = (Source::from_packed(read.short()?), read.u32()?, read.u32()?);
                bytes += u64::from(length);
                results.push((source, length, checksum));
            }
            verdicts.push(WireVerdict { primary, token, judgement, results });
        }
        read.end()?;
        if bytes != u64::from(payload_bytes) {
            return Err(Error::invalid(format!("results of {bytes} bytes in a frame with {payload_bytes}")));
        }
        Ok(verdicts)
    }
}

/// Requests of the selection.
impl WireWriter {
    /// Appends what `get_any` is asked for.
    ///
    /// # Errors
    /// `Invalid` for a time beyond 49 days.
    pub fn get_any(&mut self, request: &GetAny) -> Result<()> {
        self.long(request.stage.as_deref().unwrap_or_default().as_bytes())?;
        self.u8(match request.level {
            None => 0,
            Some(Level::Hot) => 1,
            Some(Level::Warm) => 2,
            // No event is there: the reader says so.
            Some(Level::Elsewhere) => 3,
        });
        self.u32(u32::try_from(request.n).unwrap_or(u32::MAX));
        let conditions = request.filter.conditions();
        self.u32(conditions.len() as u32);
        for condition in conditions {
            match *condition {
                Condition::Within { attribute, min, max } => {
                    self.u8(0);
                    self.u8(attribute as u8);
                    self.u128(min);
                    self.u128(max);
                }
                Condition::AnyBit { attribute, mask } => {
                    self.u8(1);
                    self.u8(attribute as u8);
                    self.u128(mask);
                }
            }
        }
        self.milliseconds(request.min_age)?;
        self.sources(&request.sources)?;
        self.milliseconds(request.wait)?;
        self.milliseconds(request.lease.unwrap_or_default())
    }
}

/// The same, read.
impl WireReader<'_> {
    /// What `get_any` is asked for.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no such request, `Invalid` for attributes and sources of another schema.
    pub fn get_any(&mut self, keyspace: &Keyspace) -> Result<GetAny> {
        let stage = Some(self.text()?).filter(|stage| !stage.is_empty()).map(str::to_owned);
        let level = match self.u8()? {
            0 => None,
            1 => Some(Level::Hot),
            2 => Some(Level::Warm),
            other => return Err(Error::corrupt(format!("level {other}, which there is not"))),
        };
        let n = self.u32()? as usize;
        let count = self.count(18)?;
        let conditions = (0..count).map(|_| self.condition(keyspace)).collect::<Result<Vec<_>>>()?;
        Ok(GetAny {
            stage,
            n,
            level,
            filter: Filter::new(conditions),
            min_age: self.milliseconds()?,
            sources: self.sources(&keyspace.schema)?,
            wait: self.milliseconds()?,
            lease: Some(self.milliseconds()?).filter(|lease| *lease > Duration::ZERO),
        })
    }

    fn condition(&mut self, keyspace: &Keyspace) -> Result<Condition> {
        let (sort, attribute) = (self.u8()?, usize::from(self.u8()?));
        if attribute >= keyspace.attributes.fields().len() {
            return Err(Error::invalid(format!("a condition on attribute {attribute}, which the keyspace has not")));
        }
        match sort {
            0 => Ok(Condition::Within { attribute, min: self.u128()?, max: self.u128()? }),
            1 => Ok(Condition::AnyBit { attribute, mask: self.u128()? }),
            other => Err(Error::corrupt(format!("a condition of sort {other}, which is not known here"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::{AttributeSchema, Kind};

    fn keyspace() -> Keyspace {
        let mut keyspace = Keyspace::events("wire", 2);
        keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "bits:u64"], &[] as &[&str]).unwrap();
        keyspace.stages = ["fast", "final"].map(str::to_owned).into();
        keyspace
    }

    fn lease(keyspace: &Keyspace) -> WireLease {
        let key = |source| keyspace.schema.key(&[1, 2, source]).unwrap();
        let fragment = |length| WireFragment { length, checksum: 9, status: 8, version: 7, level: Level::Warm };
        WireLease {
            event: WireEvent {
                primary: keyspace.schema.primary(&[1, 2]).unwrap(),
                state: LiveState::Leased,
                stage: 1,
                attributes: Attributes::parse(&keyspace.attributes, &["lumi=5"]).unwrap(),
                streams: vec!["physics".to_owned()],
                fragments: vec![(key(0), fragment(3)), (key(1), fragment(0))],
                missing: vec![key(2)],
                sources: SourceStates::new([&[0, 0, 0, 0, 0][..], &[0, 0, 0, 2, 2]].concat(), 4),
            },
            token: Token { epoch: 1, boot: 2, counter: 3 },
            delivery: 1,
            event_fragments: 2,
            event_bytes: 3,
        }
    }

    #[test]
    fn a_lease_is_read_as_it_was_written_and_never_cut_short() {
        let keyspace = keyspace();
        let lease = lease(&keyspace);
        assert_eq!(lease.event.payload_bytes(), 3);
        let mut out = WireWriter::new();
        lease.encode(&mut out, &keyspace).unwrap();
        let meta = out.finish();
        let mut read = WireReader::new(&meta);
        assert_eq!(WireLease::decode(&mut read, &keyspace).unwrap(), lease);
        assert!(read.is_empty());
        for end in 0..meta.len() {
            assert!(WireLease::decode(&mut WireReader::new(&meta[..end]), &keyspace).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn verdicts_are_read_as_they_were_written() {
        let keyspace = keyspace();
        let one = |judgement, results| WireVerdict {
            primary: keyspace.schema.primary(&[1, 2]).unwrap(),
            token: Token { epoch: 0, boot: 4, counter: 5 },
            judgement,
            results,
        };
        let chosen = Sources::only(&keyspace.schema, [1, 2]).unwrap();
        let streams = vec![("a".to_owned(), Sources::All), ("b".to_owned(), chosen)];
        let verdicts = [
            one(WireJudgement::Accept(streams), vec![(Source::from_packed(&[0, 0, 0, 9]), 10, 11)]),
            one(WireJudgement::Reject, Vec::new()),
            one(WireJudgement::Requeue, Vec::new()),
            one(WireJudgement::Fail("no tracks".to_owned()), Vec::new()),
            one(WireJudgement::Pass("final".to_owned()), vec![(Source::from_packed(&[0, 0, 0, 8]), 5, 6)]),
        ];
        let meta = WireVerdict::encode_all(&verdicts).unwrap();
        assert_eq!(WireVerdict::decode_all(&meta, 15, &keyspace).unwrap(), verdicts);
        assert_eq!(WireVerdict::decode_all(&meta, 14, &keyspace).unwrap_err().kind(), Kind::Invalid);
        for end in 0..meta.len() {
            assert!(WireVerdict::decode_all(&meta[..end], 15, &keyspace).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn a_request_for_any_events_is_read_as_it_was_written() {
        let keyspace = keyspace();
        let request = GetAny {
            stage: Some("final".to_owned()),
            n: 64,
            level: Some(Level::Warm),
            filter: Filter::parse(&keyspace.attributes, &["lumi=3..7", "bits&0x10"]).unwrap(),
            min_age: Duration::from_millis(5),
            sources: Sources::None,
            wait: Duration::from_secs(1),
            lease: Some(Duration::from_secs(30)),
        };
        let mut out = WireWriter::new();
        out.get_any(&request).unwrap();
        let read = WireReader::new(out.bytes()).get_any(&keyspace).unwrap();
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
        let mut out = WireWriter::new();
        out.get_any(&GetAny::default()).unwrap();
        let read = WireReader::new(out.bytes()).get_any(&keyspace).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", GetAny::default()));
    }
}
