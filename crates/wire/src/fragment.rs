//! Fragments in frames: their bytes are in the payload, in the same order.

use super::{WireReader, WireWriter};
use forebay_core::{
    AttributeSchema, Attributes, Error, Key, KeySchema, Kind, Level, Primary, Report, Result, Shortage, Source,
    SourceSchema, Sources, Token,
};
use std::time::Duration;

/// The fields of a fragment without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireFragment {
    /// Bytes of its payload.
    pub length: u32,
    /// CRC-32C of its payload.
    pub checksum: u32,
    /// The producer's status bits.
    pub status: u32,
    /// Version; 0 unless updated.
    pub version: u16,
    /// The level that it was read from.
    pub level: Level,
}

/// One fragment of a put; its payload follows those of the fragments before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WirePut {
    /// The fragment's key.
    pub key: Key,
    /// Bytes of its payload.
    pub length: u32,
    /// CRC-32C of its payload, as the producer made it.
    pub checksum: u32,
    /// The producer's status bits.
    pub status: u32,
    /// Attributes of the event.
    pub attributes: Option<Attributes>,
    /// How long to wait for space, from arrival on; `None` is what the server waits by itself.
    pub deadline: Option<Duration>,
    /// Answered only when a device has it.
    pub persisted: bool,
    /// Level to which it goes; `None` takes that of its source's group.
    pub level: Option<Level>,
    /// When its holder tells the home of its event.
    pub report: Report,
}

const PERSISTED: u8 = 1;
const DEADLINE: u8 = 2;
const TO_HOT: u8 = 4;
const TO_WARM: u8 = 8;
/// Another node has the bytes.
const ELSEWHERE: u8 = TO_HOT | TO_WARM;
const ATTRIBUTES: u8 = 16;
const REPORT_LATER: u8 = 32;

/// Least bytes of a fragment of a put, in the meta.
const PUT_BYTES_MIN: usize = 14;

impl WirePut {
    /// The meta of a put of these.
    ///
    /// # Errors
    /// `Invalid` for a deadline beyond 49 days.
    pub fn encode_all(puts: &[WirePut], attributes: &AttributeSchema) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(puts.len() as u32);
        for put in puts {
            out.short(put.key.as_bytes())?;
            out.u32(put.length);
            out.u32(put.checksum);
            out.u32(put.status);
            let bit = |set: bool, bit: u8| if set { bit } else { 0 };
            let level = match put.level {
                None => 0,
                Some(Level::Hot) => TO_HOT,
                Some(Level::Warm) => TO_WARM,
                Some(Level::Elsewhere) => ELSEWHERE,
            };
            out.u8(bit(put.persisted, PERSISTED)
                | bit(put.deadline.is_some(), DEADLINE)
                | level
                | bit(put.attributes.is_some(), ATTRIBUTES)
                | bit(put.report == Report::Later, REPORT_LATER));
            if let Some(deadline) = put.deadline {
                out.milliseconds(deadline)?;
            }
            if let Some(set) = &put.attributes {
                out.attributes(set, attributes)?;
            }
        }
        Ok(out.finish())
    }

    /// What was put, from a meta; `payload_bytes` are what the frame has.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no such meta, `Invalid` for keys of another schema, and where lengths do not add up.
    pub fn decode_all(
        meta: &[u8],
        payload_bytes: u32,
        schema: &KeySchema,
        attributes: &AttributeSchema,
    ) -> Result<Vec<WirePut>> {
        decode(meta, payload_bytes, attributes, |read| read.key(schema))
    }

    /// The same for a ring, whose keys are source, timestamp, span and run, and whose fragments have no options.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no such meta, `Invalid` for keys of another schema, for options, and where lengths do
    /// not add up.
    pub fn decode_all_of_ring(meta: &[u8], payload_bytes: u32, sources: &SourceSchema) -> Result<Vec<WirePut>> {
        let key = |read: &mut WireReader<'_>| {
            let key = read.short()?;
            let wrong =
                || Error::invalid(format!("{} bytes that are no key of a ring of {:?}", key.len(), sources.describe()));
            sources.decode(key).ok_or_else(wrong)?;
            Ok(Key::from_packed(key))
        };
        let puts = decode(meta, payload_bytes, &AttributeSchema::default(), key)?;
        let is_plain =
            |put: &WirePut| put.attributes.is_none() && put.deadline.is_none() && !put.persisted && put.level.is_none();
        if puts.iter().all(is_plain) {
            return Ok(puts);
        }
        Err(Error::invalid(
            "a ring waits for nothing: its fragments have no attributes, deadline, level or persistence",
        ))
    }
}

fn decode(
    meta: &[u8],
    payload_bytes: u32,
    attributes: &AttributeSchema,
    key: impl Fn(&mut WireReader<'_>) -> Result<Key>,
) -> Result<Vec<WirePut>> {
    let mut read = WireReader::new(meta);
    let count = read.count(PUT_BYTES_MIN)?;
    let mut puts = Vec::with_capacity(count);
    let mut bytes = 0_u64;
    for _ in 0..count {
        let key = key(&mut read)?;
        let (length, checksum, status) = (read.u32()?, read.u32()?, read.u32()?);
        bytes += u64::from(length);
        let flags = read.u8()?;
        let level = match flags & (TO_HOT | TO_WARM) {
            0 => None,
            TO_HOT => Some(Level::Hot),
            TO_WARM => Some(Level::Warm),
            _ => Some(Level::Elsewhere),
        };
        if flags & !(PERSISTED | DEADLINE | ELSEWHERE | ATTRIBUTES | REPORT_LATER) != 0 {
            return Err(Error::corrupt("a put with flags that are not known here"));
        }
        let deadline = if flags & DEADLINE != 0 { Some(read.milliseconds()?) } else { None };
        let set = if flags & ATTRIBUTES != 0 { Some(read.attributes(attributes)?) } else { None };
        let persisted = flags & PERSISTED != 0;
        let report = if flags & REPORT_LATER != 0 { Report::Later } else { Report::Prompt };
        puts.push(WirePut { key, length, checksum, status, attributes: set, deadline, persisted, level, report });
    }
    read.end()?;
    if bytes != u64::from(payload_bytes) {
        return Err(Error::invalid(format!("a put of {bytes} bytes in a frame with {payload_bytes}")));
    }
    Ok(puts)
}

/// Optional parts of metas.
impl WireWriter {
    /// Appends a duration, in milliseconds, rounded up.
    ///
    /// # Errors
    /// `Invalid` beyond 49 days.
    pub fn milliseconds(&mut self, duration: Duration) -> Result<()> {
        let ms = duration.as_nanos().div_ceil(1_000_000);
        let ms = u32::try_from(ms).map_err(|_| Error::invalid(format!("{duration:?} is longer than 49 days")))?;
        self.u32(ms);
        Ok(())
    }

    /// Appends attributes.
    ///
    /// # Errors
    /// None for attributes of the schema.
    pub fn attributes(&mut self, attributes: &Attributes, schema: &AttributeSchema) -> Result<()> {
        let mut packed = vec![0; schema.packed_bytes()];
        if !packed.is_empty() {
            attributes.pack(schema, &mut packed);
        }
        self.long(&packed)
    }

    /// Appends the fence of a lease.
    pub fn token(&mut self, token: &Token) {
        self.u32(token.epoch);
        self.u32(token.boot);
        self.u64(token.counter);
    }

    /// Appends which sources are meant.
    ///
    /// # Errors
    /// None for sources of a schema.
    pub fn sources(&mut self, sources: &Sources) -> Result<()> {
        match sources {
            Sources::None => self.u8(0),
            Sources::All => self.u8(1),
            Sources::Only(list) => {
                self.u8(2);
                self.u32(list.len() as u32);
                list.iter().try_for_each(|source| self.short(source))?;
            }
        }
        Ok(())
    }

    /// Appends what a fragment is.
    pub fn fragment(&mut self, fragment: &WireFragment) {
        self.u32(fragment.length);
        self.u32(fragment.checksum);
        self.u32(fragment.status);
        self.u16(fragment.version);
        self.u8(match fragment.level {
            Level::Hot => 0,
            Level::Warm => 1,
            Level::Elsewhere => 2,
        });
    }

    /// Appends fragments with their keys.
    ///
    /// # Errors
    /// None for keys of a schema.
    pub fn fragments(&mut self, fragments: &[(Key, WireFragment)]) -> Result<()> {
        self.u32(fragments.len() as u32);
        for (key, fragment) in fragments {
            self.short(key.as_bytes())?;
            self.fragment(fragment);
        }
        Ok(())
    }

    /// Appends that something went well, or its error.
    pub fn outcome<T>(&mut self, outcome: &Result<T>, well: impl FnOnce(&mut WireWriter, &T)) {
        match outcome {
            Ok(value) => {
                self.u8(WENT_WELL);
                well(self, value);
            }
            Err(error) => self.error(error),
        }
    }

    /// Appends an error: the number of its kind, and its message; of `Full` also what is full.
    pub fn error(&mut self, error: &Error) {
        self.u8(error.kind().code());
        self.cut(error.message(), MESSAGE_BYTES_MAX);
        if error.kind() == Kind::Full {
            self.u8(u8::from(error.shortage().is_some()));
            if let Some(Shortage { level, owner, cause }) = error.shortage() {
                [level, owner, cause].into_iter().for_each(|text| self.cut(text, SHORTAGE_BYTES_MAX));
            }
        }
    }

    /// A text as a long, cut off where it is too long.
    fn cut(&mut self, text: &str, most: usize) {
        let text = &text.as_bytes()[..text.len().min(most)];
        self.u32(text.len() as u32);
        self.raw(text);
    }
}

/// The byte before what went well. No kind of an error has this number.
const WENT_WELL: u8 = 0;
/// Longest message of an error, in bytes: the rest is cut off.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Longest text of each part of what is full, in bytes.
const SHORTAGE_BYTES_MAX: usize = 1024;

/// Least bytes of a fragment with its key, in a meta.
const FRAGMENT_BYTES_MIN: usize = 16;

/// The same, read.
impl WireReader<'_> {
    /// Fragments with their keys.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, `Invalid` for keys of another schema.
    pub fn fragments(&mut self, schema: &KeySchema) -> Result<Vec<(Key, WireFragment)>> {
        let count = self.count(FRAGMENT_BYTES_MIN)?;
        (0..count).map(|_| Ok((self.key(schema)?, self.fragment()?))).collect()
    }

    /// A key.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, `Invalid` for a key of another schema.
    pub fn key(&mut self, schema: &KeySchema) -> Result<Key> {
        schema.key_from_bytes(self.short()?)
    }

    /// An event's name.
    ///
    /// # Errors
    /// As [`WireReader::key`].
    pub fn primary(&mut self, schema: &KeySchema) -> Result<Primary> {
        schema.primary_from_bytes(self.short()?)
    }

    /// A duration.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before.
    pub fn milliseconds(&mut self) -> Result<Duration> {
        Ok(Duration::from_millis(u64::from(self.u32()?)))
    }

    /// Attributes.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, or for what is not packed by this schema.
    pub fn attributes(&mut self, schema: &AttributeSchema) -> Result<Attributes> {
        let packed = self.long()?;
        if packed.len() != schema.packed_bytes() {
            return Err(Error::corrupt(format!(
                "attributes of {} bytes; the keyspace's have {}",
                packed.len(),
                schema.packed_bytes()
            )));
        }
        if packed.is_empty() { Ok(Attributes::new()) } else { Attributes::unpack(schema, packed) }
    }

    /// The fence of a lease.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before.
    pub fn token(&mut self) -> Result<Token> {
        Ok(Token { epoch: self.u32()?, boot: self.u32()?, counter: self.u64()? })
    }

    /// Which sources are meant.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, `Invalid` for sources of another schema or out of order.
    pub fn sources(&mut self, schema: &KeySchema) -> Result<Sources> {
        match self.u8()? {
            0 => Ok(Sources::None),
            1 => Ok(Sources::All),
            2 => {
                let count = self.count(1)?;
                let list = (0..count).map(|_| Ok(Source::from_packed(self.short()?))).collect::<Result<Vec<_>>>()?;
                let known = list.iter().all(|source| source.len() == schema.rest_bytes());
                if !known || !list.is_sorted_by(|a, b| a < b) {
                    return Err(Error::invalid("sources that are not in order, or not of this keyspace"));
                }
                Ok(Sources::Only(list))
            }
            other => Err(Error::corrupt(format!("sources of sort {other}, which is not known here"))),
        }
    }

    /// What a fragment is.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, or for a level that there is not.
    pub fn fragment(&mut self) -> Result<WireFragment> {
        let (length, checksum, status, version) = (self.u32()?, self.u32()?, self.u32()?, self.u16()?);
        let level = match self.u8()? {
            0 => Level::Hot,
            1 => Level::Warm,
            2 => Level::Elsewhere,
            other => return Err(Error::corrupt(format!("level {other}, which there is not"))),
        };
        Ok(WireFragment { length, checksum, status, version, level })
    }

    /// What went well, or the error that it had.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, or for an error that is not known here.
    pub fn outcome<T>(&mut self, well: impl FnOnce(&mut Self) -> Result<T>) -> Result<Result<T>> {
        match self.u8()? {
            WENT_WELL => well(self).map(Ok),
            code => self.error_of(code).map(Err),
        }
    }

    /// An error: the whole meta of an answer that is one.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, or for an error that is not known here.
    pub fn error(&mut self) -> Result<Error> {
        let code = self.u8()?;
        self.error_of(code)
    }

    fn error_of(&mut self, code: u8) -> Result<Error> {
        let unknown = || Error::corrupt(format!("an error of kind {code}, which is not known here"));
        let kind = Kind::of_code(code).ok_or_else(unknown)?;
        let error = Error::new(kind, self.cut()?);
        if kind != Kind::Full {
            return Ok(error);
        }
        match self.u8()? {
            0 => Ok(error),
            1 => Ok(error.with_shortage(Shortage { level: self.cut()?, owner: self.cut()?, cause: self.cut()? })),
            other => Err(Error::corrupt(format!("{other} before what is full, which is neither there nor left out"))),
        }
    }

    /// A text that may have been cut within a letter.
    fn cut(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.long()?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Keyspace;

    fn keyspace() -> Keyspace {
        let mut keyspace = Keyspace::events("wire", 2);
        keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "class"], &["physics", "calib"]).unwrap();
        keyspace
    }

    fn put(keyspace: &Keyspace, source: u64) -> WirePut {
        WirePut {
            key: keyspace.schema.key(&[1, 2, source]).unwrap(),
            length: 10,
            checksum: 0xABCD,
            status: 7,
            attributes: None,
            deadline: None,
            persisted: false,
            level: None,
            report: Report::Prompt,
        }
    }

    #[test]
    fn puts_are_read_as_they_were_written() {
        let keyspace = keyspace();
        let attributes = Attributes::parse(&keyspace.attributes, &["lumi=3", "class=calib"]).unwrap();
        let all = [
            put(&keyspace, 0),
            WirePut { attributes: Some(attributes), deadline: Some(Duration::from_millis(1500)), ..put(&keyspace, 1) },
            WirePut { persisted: true, level: Some(Level::Warm), length: 0, ..put(&keyspace, 2) },
            WirePut { level: Some(Level::Hot), ..put(&keyspace, 3) },
            WirePut { level: Some(Level::Elsewhere), ..put(&keyspace, 4) },
            WirePut { report: Report::Later, ..put(&keyspace, 5) },
        ];
        let meta = WirePut::encode_all(&all, &keyspace.attributes).unwrap();
        let read = |payload| WirePut::decode_all(&meta, payload, &keyspace.schema, &keyspace.attributes);
        assert_eq!(read(50).unwrap(), all);
        assert_eq!(read(51).unwrap_err().kind(), Kind::Invalid);
        for end in 0..meta.len() {
            let cut = WirePut::decode_all(&meta[..end], 50, &keyspace.schema, &keyspace.attributes);
            assert!(cut.is_err(), "{end} bytes");
        }
    }

    #[test]
    fn outcomes_carry_values_and_errors() {
        let mut out = WireWriter::new();
        out.outcome(&Ok(5_u32), |out, value| out.u32(*value));
        out.outcome::<u32>(&Err(Error::full("no space")), |_, _| {});
        out.outcome::<u32>(&Err(Error::full_of("hot level", "archive", "71 % accepted")), |_, _| {});
        out.outcome::<u32>(&Err(Error::invalid("é".repeat(5000))), |_, _| {});
        let meta = out.finish();
        let mut read = WireReader::new(&meta);
        assert_eq!(read.outcome(|read| read.u32()).unwrap().unwrap(), 5);
        let full = read.outcome(|read| read.u32()).unwrap().unwrap_err();
        assert_eq!((full.kind(), full.message(), full.shortage()), (Kind::Full, "no space", None));
        let full_of = read.outcome(|read| read.u32()).unwrap().unwrap_err();
        let shortage = Shortage { level: "hot level".into(), owner: "archive".into(), cause: "71 % accepted".into() };
        assert_eq!((full_of.message(), full_of.shortage()), ("71 % accepted", Some(&shortage)));
        let long = read.outcome(|read| read.u32()).unwrap().unwrap_err();
        assert_eq!(long.message().len(), MESSAGE_BYTES_MAX);
        assert_eq!(WireReader::new(&[99, 0, 0, 0, 0]).error().unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn sources_out_of_order_are_refused() {
        let keyspace = keyspace();
        for sources in [Sources::None, Sources::All, Sources::only(&keyspace.schema, [1, 5, 9]).unwrap()] {
            let mut out = WireWriter::new();
            out.sources(&sources).unwrap();
            assert_eq!(WireReader::new(out.bytes()).sources(&keyspace.schema).unwrap(), sources);
        }
        let source = |bytes: &[u8]| Source::from_packed(bytes);
        for list in [vec![source(&[0, 0, 0, 2]), source(&[0, 0, 0, 1])], vec![source(&[1])]] {
            let mut out = WireWriter::new();
            out.sources(&Sources::Only(list)).unwrap();
            assert_eq!(WireReader::new(out.bytes()).sources(&keyspace.schema).unwrap_err().kind(), Kind::Invalid);
        }
    }
}
