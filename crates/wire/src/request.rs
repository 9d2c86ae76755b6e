//! Requests whose metas are a few parts each.

use super::{WireReader, WireWriter};
use forebay_core::{Attributes, Bounds, Error, Key, Keyspace, Primary, Result, Source, Token};
use std::time::Duration;

/// A new version of a fragment, whose bytes are in the payload, or new attributes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireUpdate {
    /// Of a fragment.
    Fragment {
        /// Its key.
        key: Key,
        /// The lease under which it is changed.
        token: Option<Token>,
        /// CRC-32C of the new bytes.
        checksum: u32,
    },
    /// Of an event.
    Attributes {
        /// Its name.
        primary: Primary,
        /// The lease under which they are changed.
        token: Option<Token>,
        /// What is set.
        attributes: Attributes,
    },
}

/// The target of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireRemove {
    /// A fragment.
    Fragment(Key),
    /// An event.
    Event(Primary),
    /// Everything between bounds.
    Range(Bounds),
}

/// A range request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRange {
    /// The bounds.
    pub bounds: Bounds,
    /// Events without their bytes instead of fragments.
    pub events: bool,
    /// Only what comes after this key.
    pub after: Option<Key>,
}

/// An event that is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireOpen {
    /// Its name.
    pub primary: Primary,
    /// Sources that it must have, packed.
    pub sources: Option<Vec<Source>>,
    /// Its attributes.
    pub attributes: Option<Attributes>,
}

/// A lease that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireExtend {
    /// The event.
    pub primary: Primary,
    /// The fence of the lease.
    pub token: Token,
    /// From now on.
    pub duration: Duration,
}

impl WireWriter {
    /// Appends whether something is there, and it.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut WireWriter, T) -> Result<()>) -> Result<()> {
        self.u8(u8::from(value.is_some()));
        value.map_or(Ok(()), |value| write(self, value))
    }

    /// Appends bounds: for each sub-key its lowest and highest value.
    pub fn bounds(&mut self, bounds: &Bounds) {
        self.u32(bounds.lower().len() as u32);
        for (&lower, &upper) in bounds.lower().iter().zip(bounds.upper()) {
            self.u64(lower);
            self.u64(upper);
        }
    }

    /// Appends a list of keys, primary keys or sources.
    ///
    /// # Errors
    /// None for what a schema made.
    pub fn shorts<'a>(&mut self, list: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<()> {
        self.u32(list.len() as u32);
        for one in list {
            self.short(one)?;
        }
        Ok(())
    }
}

impl<'a> WireReader<'a> {
    /// What may be there.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before or says neither, and those of `read`.
    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(Error::corrupt(format!("{other} where 0 or 1 says whether something follows"))),
        }
    }

    /// Bounds of the keyspace's keys.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, `Invalid` for bounds of another schema.
    pub fn bounds(&mut self, keyspace: &Keyspace) -> Result<Bounds> {
        let count = self.count(16)?;
        let pairs = (0..count).map(|_| Ok((self.u64()?, self.u64()?))).collect::<Result<Vec<_>>>()?;
        Bounds::new(&keyspace.schema, &pairs)
    }

    /// A list, each thing of which takes at least `least` bytes.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, and those of `read`.
    pub fn list<T>(&mut self, least: usize, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count(least)?;
        (0..count).map(|_| read(self)).collect()
    }

    /// What `read` reads, and nothing behind it.
    ///
    /// # Errors
    /// `Corrupt` where something follows, and those of `read`.
    pub fn whole<T>(meta: &'a [u8], read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut reader = WireReader::new(meta);
        let value = read(&mut reader)?;
        reader.end()?;
        Ok(value)
    }

    fn checked_source(&mut self, keyspace: &Keyspace) -> Result<Source> {
        let source = self.short()?;
        if source.len() == keyspace.schema.rest_bytes() {
            return Ok(Source::from_packed(source));
        }
        Err(Error::invalid(format!("a source of {} bytes, not {}", source.len(), keyspace.schema.rest_bytes())))
    }
}

impl WireUpdate {
    /// The meta.
    ///
    /// # Errors
    /// None for an update of the keyspace.
    pub fn encode(&self, keyspace: &Keyspace) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        let token = |out: &mut WireWriter, token: &Option<Token>| {
            out.option(token.as_ref(), |out, token| {
                out.token(token);
                Ok(())
            })
        };
        match self {
            WireUpdate::Fragment { key, token: lease, checksum } => {
                out.u8(0);
                out.short(key.as_bytes())?;
                token(&mut out, lease)?;
                out.u32(*checksum);
            }
            WireUpdate::Attributes { primary, token: lease, attributes } => {
                out.u8(1);
                out.short(primary.as_bytes())?;
                token(&mut out, lease)?;
                out.attributes(attributes, &keyspace.attributes)?;
            }
        }
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode(meta: &[u8], keyspace: &Keyspace) -> Result<WireUpdate> {
        let schema = &keyspace.schema;
        WireReader::whole(meta, |read| match read.u8()? {
            0 => Ok(WireUpdate::Fragment {
                key: read.key(schema)?,
                token: read.option(WireReader::token)?,
                checksum: read.u32()?,
            }),
            1 => Ok(WireUpdate::Attributes {
                primary: read.primary(schema)?,
                token: read.option(WireReader::token)?,
                attributes: read.attributes(&keyspace.attributes)?,
            }),
            other => Err(Error::corrupt(format!("an update of sort {other}, which is not known here"))),
        })
    }
}

impl WireRemove {
    /// The meta.
    ///
    /// # Errors
    /// None for keys of the keyspace.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        match self {
            WireRemove::Fragment(key) => {
                out.u8(0);
                out.short(key.as_bytes())?;
            }
            WireRemove::Event(primary) => {
                out.u8(1);
                out.short(primary.as_bytes())?;
            }
            WireRemove::Range(bounds) => {
                out.u8(2);
                out.bounds(bounds);
            }
        }
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode(meta: &[u8], keyspace: &Keyspace) -> Result<WireRemove> {
        WireReader::whole(meta, |read| match read.u8()? {
            0 => Ok(WireRemove::Fragment(read.key(&keyspace.schema)?)),
            1 => Ok(WireRemove::Event(read.primary(&keyspace.schema)?)),
            2 => Ok(WireRemove::Range(read.bounds(keyspace)?)),
            other => Err(Error::corrupt(format!("a removal of sort {other}, which is not known here"))),
        })
    }
}

impl WireRange {
    /// The meta.
    ///
    /// # Errors
    /// None for keys of the keyspace.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.bounds(&self.bounds);
        out.u8(u8::from(self.events));
        out.option(self.after.as_ref(), |out, key| out.short(key.as_bytes()))?;
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode(meta: &[u8], keyspace: &Keyspace) -> Result<WireRange> {
        WireReader::whole(meta, |read| {
            let bounds = read.bounds(keyspace)?;
            let events = read.u8()? == 1;
            let after = read.option(|read| read.key(&keyspace.schema))?;
            Ok(WireRange { bounds, events, after })
        })
    }
}

impl WireOpen {
    /// The meta of an announcement of these.
    ///
    /// # Errors
    /// None for events of the keyspace.
    pub fn encode_all(events: &[WireOpen], keyspace: &Keyspace) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(events.len() as u32);
        for event in events {
            out.short(event.primary.as_bytes())?;
            let sources = event.sources.as_ref();
            out.option(sources, |out, list| out.shorts(list.iter().map(Source::as_bytes)))?;
            out.option(event.attributes.as_ref(), |out, set| out.attributes(set, &keyspace.attributes))?;
        }
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode_all(meta: &[u8], keyspace: &Keyspace) -> Result<Vec<WireOpen>> {
        WireReader::whole(meta, |read| {
            read.list(4, |read| {
                let primary = read.primary(&keyspace.schema)?;
                let sources = read.option(|read| read.list(2, |read| read.checked_source(keyspace)))?;
                let attributes = read.option(|read| read.attributes(&keyspace.attributes))?;
                Ok(WireOpen { primary, sources, attributes })
            })
        })
    }
}

impl WireExtend {
    /// The meta of these.
    ///
    /// # Errors
    /// `Invalid` for a duration beyond 49 days.
    pub fn encode_all(leases: &[WireExtend]) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(leases.len() as u32);
        for lease in leases {
            out.short(lease.primary.as_bytes())?;
            out.token(&lease.token);
            out.milliseconds(lease.duration)?;
        }
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode_all(meta: &[u8], keyspace: &Keyspace) -> Result<Vec<WireExtend>> {
        WireReader::whole(meta, |read| {
            read.list(21, |read| {
                let (primary, token) = (read.primary(&keyspace.schema)?, read.token()?);
                Ok(WireExtend { primary, token, duration: read.milliseconds()? })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::{AttributeSchema, Kind};

    fn keyspace() -> Keyspace {
        let mut keyspace = Keyspace::events("wire", 2);
        keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[] as &[&str]).unwrap();
        keyspace
    }

    /// Reads back what was written, refuses it cut off anywhere or with a byte more.
    fn both_ways<T: PartialEq + std::fmt::Debug>(meta: &[u8], expected: &T, read: impl Fn(&[u8]) -> Result<T>) {
        assert_eq!(read(meta).unwrap(), *expected);
        for end in 0..meta.len() {
            assert!(read(&meta[..end]).is_err(), "{end} bytes of {expected:?}");
        }
        assert_eq!(read(&[meta, &[0]].concat()).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let keyspace = keyspace();
        let schema = &keyspace.schema;
        let (key, primary) = (schema.key(&[1, 2, 3]).unwrap(), schema.primary(&[1, 2]).unwrap());
        let token = Some(Token { epoch: 1, boot: 2, counter: 3 });
        let attributes = Attributes::parse(&keyspace.attributes, &["lumi=7"]).unwrap();
        for update in [
            WireUpdate::Fragment { key, token, checksum: 5 },
            WireUpdate::Fragment { key, token: None, checksum: 5 },
            WireUpdate::Attributes { primary, token, attributes: attributes.clone() },
        ] {
            both_ways(&update.encode(&keyspace).unwrap(), &update, |meta| WireUpdate::decode(meta, &keyspace));
        }
        let bounds = Bounds::parse(schema, "1/2-9").unwrap();
        for remove in [WireRemove::Fragment(key), WireRemove::Event(primary), WireRemove::Range(bounds.clone())] {
            both_ways(&remove.encode().unwrap(), &remove, |meta| WireRemove::decode(meta, &keyspace));
        }
        let range = WireRange { bounds, events: true, after: Some(key) };
        both_ways(&range.encode().unwrap(), &range, |meta| WireRange::decode(meta, &keyspace));
        let open = vec![
            WireOpen { primary, sources: Some(vec![Source::from_packed(&[0, 0, 0, 1])]), attributes: Some(attributes) },
            WireOpen { primary, sources: None, attributes: None },
        ];
        let meta = WireOpen::encode_all(&open, &keyspace).unwrap();
        both_ways(&meta, &open, |meta| WireOpen::decode_all(meta, &keyspace));
        let extend = vec![WireExtend { primary, token: Token::NONE, duration: Duration::from_millis(5) }];
        both_ways(&WireExtend::encode_all(&extend).unwrap(), &extend, |meta| WireExtend::decode_all(meta, &keyspace));
    }
}
