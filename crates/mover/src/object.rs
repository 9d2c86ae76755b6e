//! An archive object: events of one run and stream, whole or in parts, readable without anything else
//! (`docs/format-archive.md`).
//!
//! ```text
//! head (JSON) | event | event | … | directory | trailer          event: meta (name, streams, attributes, table) | payloads
//! ```
//!
//! *Invariants*: every byte is covered by a checksum: head, metas, directory and trailer by one each, a payload by that of the
//! readout. Nothing is read at a place that was not checked to lie in the object.

use bytes::{Bytes, BytesMut};
use forebay_core::{
    ClaimedEvent, Error, Event, KeySchema, Keyspace, Level, LiveState, Primary, ReadFragment, Result, Source, Unit,
    crc32c,
};
use forebay_dataset::storage::ALIGNED;
use serde::{Deserialize, Serialize};
use simd_adler32::Adler32;
use std::ops::Range;

const MAGIC: [u8; 8] = *b"FBARCHIV";
const EVENT_MAGIC: [u8; 4] = *b"FBEV";
const END_MAGIC: [u8; 8] = *b"FBARCEND";
const VERSION: u32 = 1;
pub(crate) const HEAD_BYTES: usize = 24;
pub(crate) const EVENT_HEAD_BYTES: usize = 16;
/// Bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 64;
const ALIGN: usize = 8;
/// In place of a number of sources: all.
const ALL: u32 = u32::MAX;
/// Longest head: a keyspace with many sources by name.
const JSON_BYTES_MAX: u32 = 64 << 20;

/// What an object says of itself before its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Identity of the store that it came from, as hexadecimal digits.
    pub store: String,
    /// The keyspace, as TOML: key schema and attributes are in it.
    pub keyspace: String,
    /// The run of all its events.
    pub run: u64,
    /// Stream of all its events; `debug` for the debug stream. Those in several streams name all of them.
    pub stream: String,
    /// What the mover had claimed.
    pub unit: Unit,
    /// First event of the unit that was looked at for this object, and the one after the last, counted from 0.
    pub of_unit: (u64, u64),
    /// When it was written, in milliseconds since 1970.
    pub written_ms: u64,
}

/// A fragment in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its source, packed.
    pub source: Source,
    /// Status bits of its producer.
    pub status: u32,
    /// Its version.
    pub version: u16,
    /// CRC-32C of the payload, as the readout's put brought it.
    pub checksum: u32,
    /// Where its payload is in the object.
    pub payload: Range<u64>,
}

/// An event in an object, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedEvent {
    /// Its name.
    pub primary: Primary,
    /// `Accepted` or `Debug`.
    pub state: LiveState,
    /// Stage of the selection that it had reached.
    pub stage: String,
    /// Streams that it was accepted into, with the sources that each keeps; `None` keeps all.
    pub streams: Vec<(String, Option<Vec<Source>>)>,
    /// Its attributes, packed by the keyspace's schema.
    pub attributes: Vec<u8>,
    /// Fragments of the whole event: here is a part of it where there are fewer.
    pub event_fragments: u32,
    /// Its fragments that are here, in the order of their sources.
    pub fragments: Vec<Fragment>,
}

/// What an object holds, as its trailer counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Events and parts of events.
    pub events: u64,
    /// Fragments.
    pub fragments: u64,
    /// Payload bytes.
    pub payload_bytes: u64,
}

/// An object that grows in memory.
pub(crate) struct Builder {
    /// From `skip` on the object: a directory writes it without a copy.
    bytes: BytesMut,
    skip: usize,
    adler32: Adler32,
    /// Bytes that the checksum covers.
    summed: usize,
    directory: Vec<u8>,
    widths: (usize, usize),
    contents: Contents,
}

/// An object that is whole.
pub(crate) struct Built {
    pub(crate) bytes: Bytes,
    pub(crate) contents: Contents,
    pub(crate) adler32: String,
    /// All of its memory.
    memory: Bytes,
}

impl Built {
    /// Its memory for the next object, unless somebody still reads it.
    pub(crate) fn into_memory(self) -> Option<BytesMut> {
        drop(self.bytes);
        self.memory.try_into_mut().ok()
    }
}

impl Builder {
    /// An object without events that grows to some `expected` bytes, in the memory of an earlier one, whose pages the kernel need
    /// not clear again; what that holds is dropped.
    ///
    /// # Errors
    /// `Internal` where the head cannot be written.
    pub(crate) fn new(head: &Head, schema: &KeySchema, mut bytes: BytesMut, expected: usize) -> Result<Builder> {
        let json =
            serde_json::to_vec(head).map_err(|error| Error::internal("a head of an object").with_source(error))?;
        bytes.clear();
        bytes.reserve(expected + ALIGNED);
        let skip = bytes.as_ptr().align_offset(ALIGNED);
        bytes.resize(skip, 0);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c(&json).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&json);
        let widths = (schema.primary_bytes(), schema.rest_bytes());
        let mut builder = Builder {
            bytes,
            skip,
            adler32: Adler32::new(),
            summed: 0,
            directory: Vec::new(),
            widths,
            contents: Contents::default(),
        };
        builder.pad();
        Ok(builder)
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.at() + self.directory.len()
    }

    /// Where the next byte goes.
    fn at(&self) -> usize {
        self.bytes.len() - self.skip
    }

    fn pad(&mut self) {
        self.bytes.resize(self.skip + self.at().next_multiple_of(ALIGN), 0);
        self.sum();
    }

    /// The checksum takes in what is new, while the processor's cache has it.
    fn sum(&mut self) {
        self.adler32.write(&self.bytes[self.skip + self.summed..]);
        self.summed = self.at();
    }

    /// Adds an event, or the part of it that was read. Each payload is compared with its checksum first: what is rotten in the
    /// store is not archived as if it were not.
    ///
    /// # Errors
    /// `Corrupt` for a payload that does not match, `Invalid` for names that are longer than the format takes.
    pub(crate) fn push<F: ReadFragment>(
        &mut self,
        claimed: &ClaimedEvent,
        event: &Event<F>,
        attributes: &[u8],
        schema: &KeySchema,
    ) -> Result<()> {
        let mut meta = Vec::with_capacity(64 + event.fragments.len() * (self.widths.1 + 14));
        meta.extend_from_slice(event.primary.as_bytes());
        meta.extend_from_slice(&[event.state as u8, 0]);
        meta.extend_from_slice(&claimed.event_fragments.to_le_bytes());
        meta.extend_from_slice(&(event.fragments.len() as u32).to_le_bytes());
        text(&mut meta, &event.stage)?;
        let packed = u16::try_from(attributes.len()).map_err(|_| Error::invalid("attributes of more than 64 KiB"))?;
        meta.extend_from_slice(&packed.to_le_bytes());
        meta.extend_from_slice(attributes);
        let streams =
            u8::try_from(claimed.streams.len()).map_err(|_| Error::invalid("an event in over 255 streams"))?;
        meta.push(streams);
        for (name, kept) in &claimed.streams {
            text(&mut meta, name)?;
            let count = kept.as_ref().map_or(ALL, |kept| kept.len() as u32);
            meta.extend_from_slice(&count.to_le_bytes());
            kept.iter().flatten().for_each(|source| meta.extend_from_slice(source.as_bytes()));
        }
        let mut payload_bytes = 0;
        for fragment in &event.fragments {
            if fragment.level() == Level::Elsewhere {
                return Err(Error::unavailable(format!(
                    "{}: another node of the cluster has its bytes: give the mover the address of this node's server",
                    schema.text(fragment.key().as_bytes())
                )));
            }
            fragment.verify()?;
            meta.extend_from_slice(schema.rest_of(&fragment.key()));
            meta.extend_from_slice(&(fragment.len() as u32).to_le_bytes());
            meta.extend_from_slice(&fragment.checksum().to_le_bytes());
            meta.extend_from_slice(&fragment.status().to_le_bytes());
            meta.extend_from_slice(&fragment.version().to_le_bytes());
            payload_bytes += fragment.len() as u64;
        }
        self.directory.extend_from_slice(&(self.at() as u64).to_le_bytes());
        self.directory.extend_from_slice(&payload_bytes.to_le_bytes());
        self.directory.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        self.directory.extend_from_slice(event.primary.as_bytes());
        self.bytes.extend_from_slice(&EVENT_MAGIC);
        self.bytes.extend_from_slice(&crc32c(&meta).to_le_bytes());
        self.bytes.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&meta);
        for fragment in &event.fragments {
            self.bytes.extend_from_slice(fragment);
        }
        self.pad();
        self.contents.events += 1;
        self.contents.fragments += event.fragments.len() as u64;
        self.contents.payload_bytes += payload_bytes;
        Ok(())
    }

    /// The whole object.
    pub(crate) fn finish(mut self) -> Built {
        let offset = self.at() as u64;
        self.bytes.extend_from_slice(&self.directory);
        let mut end = Vec::with_capacity(TRAILER_BYTES - 16);
        end.extend_from_slice(&offset.to_le_bytes());
        end.extend_from_slice(&(self.directory.len() as u64).to_le_bytes());
        end.extend_from_slice(&crc32c(&self.directory).to_le_bytes());
        end.extend_from_slice(&(self.widths.0 as u16).to_le_bytes());
        end.extend_from_slice(&(self.widths.1 as u16).to_le_bytes());
        for count in [self.contents.events, self.contents.fragments, self.contents.payload_bytes] {
            end.extend_from_slice(&count.to_le_bytes());
        }
        self.bytes.extend_from_slice(&END_MAGIC);
        self.bytes.extend_from_slice(&VERSION.to_le_bytes());
        self.bytes.extend_from_slice(&crc32c(&end).to_le_bytes());
        self.bytes.extend_from_slice(&end);
        self.sum();
        let memory = self.bytes.freeze();
        let adler32 = format!("{:08x}", self.adler32.finish());
        Built { bytes: memory.slice(self.skip..), contents: self.contents, adler32, memory }
    }
}

fn text(meta: &mut Vec<u8>, text: &str) -> Result<()> {
    let length = u8::try_from(text.len()).map_err(|_| Error::invalid(format!("`{text}` has over 255 bytes")))?;
    meta.push(length);
    meta.extend_from_slice(text.as_bytes());
    Ok(())
}

/// A piece of an object, by its place.
pub type ReadPiece<'a> = &'a dyn Fn(Range<u64>) -> Result<Bytes>;

/// Where an event is in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPlace {
    /// Its name.
    pub primary: Primary,
    offset: u64,
    meta_bytes: u32,
    payload_bytes: u64,
}

/// An object that is read: its head and its directory.
#[derive(Clone, Debug)]
pub struct Object {
    /// What it says of itself.
    pub head: Head,
    /// What it holds.
    pub contents: Contents,
    /// Its events, in the order in which they were written.
    pub events: Vec<EventPlace>,
    /// The keyspace of its events.
    pub keyspace: Keyspace,
}

impl Object {
    /// Reads head, trailer and directory of an object of this many bytes.
    ///
    /// # Errors
    /// `Invalid` where it is no archive object or one of another version, `Corrupt` where it does not verify or has impossible
    /// values, and those of `read`.
    pub fn open(bytes: u64, read: ReadPiece<'_>) -> Result<Object> {
        let least = (HEAD_BYTES + TRAILER_BYTES) as u64;
        if bytes < least {
            return Err(Error::corrupt(format!("{bytes} bytes are no archive object")));
        }
        let first = read(0..HEAD_BYTES as u64)?;
        let mut first = Reader(&first);
        if first.take(8)? != MAGIC {
            return Err(Error::invalid("no archive object of Forebay: the magic bytes are missing"));
        }
        check_version(first.u32()?)?;
        let (json_bytes, crc) = (first.u32()?, first.u32()?);
        if json_bytes > JSON_BYTES_MAX || first.take(4)? != [0; 4] {
            return Err(impossible("a head"));
        }
        let end_of_head = HEAD_BYTES as u64 + u64::from(json_bytes);
        if end_of_head > bytes - TRAILER_BYTES as u64 {
            return Err(impossible("a head that is longer than the object"));
        }
        let json = read(HEAD_BYTES as u64..end_of_head)?;
        if crc32c(&json) != crc {
            return Err(Error::corrupt("the head does not verify"));
        }
        let head: Head = serde_json::from_slice(&json)
            .map_err(|error| Error::corrupt(format!("a head that is not understood: {error}")))?;
        let keyspace = Keyspace::from_toml(&head.keyspace)?;
        let trailer = read(bytes - TRAILER_BYTES as u64..bytes)?;
        let mut end = Reader(&trailer);
        if end.take(8)? != END_MAGIC {
            return Err(Error::corrupt("the object has no end"));
        }
        check_version(end.u32()?)?;
        let crc = end.u32()?;
        if crc32c(end.0) != crc {
            return Err(Error::corrupt("the trailer does not verify"));
        }
        let (offset, length, directory_crc) = (end.u64()?, end.u64()?, end.u32()?);
        let widths = (usize::from(end.u16()?), usize::from(end.u16()?));
        let contents = Contents { events: end.u64()?, fragments: end.u64()?, payload_bytes: end.u64()? };
        let schema = &keyspace.schema;
        let entry_bytes = 20 + widths.0 as u64;
        if widths != (schema.primary_bytes(), schema.rest_bytes())
            || offset.checked_add(length) != Some(bytes - TRAILER_BYTES as u64)
            || contents.events.checked_mul(entry_bytes) != Some(length)
            || offset < end_of_head
        {
            return Err(impossible("a directory"));
        }
        let directory = read(offset..offset + length)?;
        if crc32c(&directory) != directory_crc {
            return Err(Error::corrupt("the directory does not verify"));
        }
        let mut rest = Reader(&directory);
        let mut events = Vec::with_capacity(contents.events as usize);
        let mut before = end_of_head;
        while !rest.0.is_empty() {
            let (at, payload_bytes, meta_bytes) = (rest.u64()?, rest.u64()?, rest.u32()?);
            let primary = schema.primary_from_bytes(rest.take(widths.0)?)?;
            let end = (EVENT_HEAD_BYTES as u64 + u64::from(meta_bytes)).checked_add(payload_bytes);
            let end = end.and_then(|bytes| at.checked_add(bytes)).filter(|end| *end <= offset && at >= before);
            before = end.ok_or_else(|| impossible("the place of an event"))?;
            events.push(EventPlace { primary, offset: at, meta_bytes, payload_bytes });
        }
        Ok(Object { head, contents, events, keyspace })
    }

    /// The event at a place: without its payloads.
    ///
    /// # Errors
    /// `Corrupt` where it does not verify, and those of `read`.
    pub fn event(&self, place: &EventPlace, read: ReadPiece<'_>) -> Result<ArchivedEvent> {
        let payloads = place.offset + EVENT_HEAD_BYTES as u64 + u64::from(place.meta_bytes);
        let bytes = read(place.offset..payloads)?;
        let name = || self.keyspace.schema.text(place.primary.as_bytes());
        let mut meta = Reader(&bytes);
        if meta.take(4)? != EVENT_MAGIC {
            return Err(Error::corrupt(format!("event {}: there is no event", name())));
        }
        let (crc, meta_bytes) = (meta.u32()?, meta.u32()?);
        meta.take(4)?;
        if meta_bytes != place.meta_bytes || crc32c(meta.0) != crc {
            return Err(Error::corrupt(format!("event {} does not verify", name())));
        }
        let schema = &self.keyspace.schema;
        let primary = schema.primary_from_bytes(meta.take(schema.primary_bytes())?)?;
        let state = match meta.take(2)? {
            [state, 0] if *state == LiveState::Accepted as u8 => LiveState::Accepted,
            [state, 0] if *state == LiveState::Debug as u8 => LiveState::Debug,
            _ => return Err(impossible("the state of an event")),
        };
        let (event_fragments, fragments) = (meta.u32()?, meta.u32()?);
        let stage = meta.text()?;
        let packed = usize::from(meta.u16()?);
        let attributes = meta.take(packed)?.to_vec();
        let mut streams = Vec::new();
        for _ in 0..meta.u8()? {
            let name = meta.text()?;
            let count = meta.u32()?;
            let kept = match count {
                ALL => None,
                count => {
                    let sources = (0..count).map(|_| Ok(Source::from_packed(meta.take(schema.rest_bytes())?)));
                    Some(sources.collect::<Result<Vec<_>>>()?)
                }
            };
            streams.push((name, kept));
        }
        let mut list = Vec::new();
        let mut at = payloads;
        for _ in 0..fragments {
            let source = Source::from_packed(meta.take(schema.rest_bytes())?);
            let (length, checksum, status, version) = (meta.u32()?, meta.u32()?, meta.u32()?, meta.u16()?);
            let payload = at..at + u64::from(length);
            at = payload.end;
            list.push(Fragment { source, status, version, checksum, payload });
        }
        if !meta.0.is_empty() || primary != place.primary || at != payloads + place.payload_bytes {
            return Err(impossible("an event"));
        }
        Ok(ArchivedEvent { primary, state, stage, streams, attributes, event_fragments, fragments: list })
    }

    /// The payload of a fragment, compared with its checksum.
    ///
    /// # Errors
    /// `Corrupt` where it does not match, and those of `read`.
    pub fn payload(&self, event: &ArchivedEvent, fragment: &Fragment, read: ReadPiece<'_>) -> Result<Bytes> {
        let payload = read(fragment.payload.clone())?;
        if crc32c(&payload) == fragment.checksum {
            return Ok(payload);
        }
        let key = self.keyspace.schema.join(&event.primary, fragment.source.as_bytes());
        let name = self.keyspace.schema.text(key.as_bytes());
        Err(Error::corrupt(format!("fragment {name}: its bytes do not match the checksum of the readout")))
    }

    /// Compares every payload with its checksum; answers what there was.
    ///
    /// # Errors
    /// `Corrupt`, naming the first that does not match, and those of `read`.
    pub fn verify(&self, read: ReadPiece<'_>) -> Result<Contents> {
        let mut seen = Contents::default();
        for place in &self.events {
            let event = self.event(place, read)?;
            for fragment in &event.fragments {
                seen.payload_bytes += self.payload(&event, fragment, read)?.len() as u64;
            }
            seen.events += 1;
            seen.fragments += event.fragments.len() as u64;
        }
        if seen != self.contents {
            return Err(Error::corrupt(format!("the trailer counts {:?}, there are {seen:?}", self.contents)));
        }
        Ok(seen)
    }
}

/// Pieces of an object that is in memory.
///
/// # Errors
/// `Corrupt` for a piece beyond its end.
pub fn piece_of(object: &Bytes, piece: Range<u64>) -> Result<Bytes> {
    let bounds = usize::try_from(piece.start).ok().zip(usize::try_from(piece.end).ok());
    let inside = bounds.filter(|(start, end)| start <= end && *end <= object.len());
    inside
        .map(|(start, end)| object.slice(start..end))
        .ok_or_else(|| Error::corrupt("the object is shorter than it says"))
}

fn check_version(version: u32) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(Error::invalid(format!("an archive object of version {version}; this build reads version {VERSION}")))
}

#[cold]
fn impossible(what: &str) -> Error {
    Error::corrupt(format!("{what} with impossible values"))
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(|| impossible("lengths"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<String> {
        let length = usize::from(self.u8()?);
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| impossible("a name"))
    }
}
