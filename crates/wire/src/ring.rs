//! Windows of a ring as frames speak of them; puts are those of `fragment.rs`, under a ring's keys.
//!
//! ```text
//! answer: part │ part │ …   a part: source │ stretches │ fragments, whose bytes are in the payload
//! ```
//!
//! Parts of one source follow each other, and are to be put together.

use super::{WireReader, WireWriter};
use forebay_core::{Coverage, Error, GAP_CAUSES, GapCause, Result, RingSources, SourceId, SourceSchema, Stretch};
use std::time::Duration;

/// Which window is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireWindow {
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Of which sources.
    pub sources: RingSources,
    /// How long to wait for what has not arrived yet.
    pub wait: Duration,
}

/// One fragment of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRingFragment {
    /// First tick.
    pub timestamp: u64,
    /// Ticks covered.
    pub span: u32,
    /// Run number.
    pub run: u32,
    /// The producer's status bits.
    pub status: u32,
    /// Bytes of its payload.
    pub length: u32,
    /// CRC-32C of its payload, as it is stored.
    pub checksum: u32,
}

/// Some of what a window shows of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireWindowPart {
    /// The source.
    pub source: SourceId,
    /// What is known of the window: what follows on the parts before.
    pub coverage: Vec<Stretch>,
    /// Fragments in time order: those that follow on the parts before.
    pub fragments: Vec<WireRingFragment>,
}

/// Bytes of meta for a stretch, and for a fragment.
const STRETCH_BYTES: usize = 17;
const FRAGMENT_BYTES: usize = 28;
/// From here on a state byte says a gap, and an outcome byte a refusal, with its cause.
pub(crate) const CAUSES_FROM: u8 = 16;

impl WireWindow {
    /// The meta.
    ///
    /// # Errors
    /// `Invalid` for a wait beyond 49 days.
    pub fn encode(&self, schema: &SourceSchema) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u64(self.begin);
        out.u64(self.end);
        out.milliseconds(self.wait)?;
        match &self.sources {
            RingSources::All => out.u8(0),
            RingSources::Only(list) => {
                out.u8(1);
                out.u32(list.len() as u32);
                list.iter().try_for_each(|source| out.short(&schema.packed(source)))?;
            }
        }
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for sources of another schema.
    pub fn decode(meta: &[u8], schema: &SourceSchema) -> Result<WireWindow> {
        WireReader::whole(meta, |read| {
            let (begin, end, wait) = (read.u64()?, read.u64()?, read.milliseconds()?);
            let sources = match read.u8()? {
                0 => RingSources::All,
                1 => RingSources::Only(read.list(1, |read| read.ring_source(schema))?),
                other => return Err(Error::corrupt(format!("sources of sort {other}, which is not known here"))),
            };
            Ok(WireWindow { begin, end, sources, wait })
        })
    }
}

impl WireWindowPart {
    /// The meta of these.
    ///
    /// # Errors
    /// None for sources of the schema.
    pub fn encode_all(parts: &[WireWindowPart], schema: &SourceSchema) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(parts.len() as u32);
        for part in parts {
            out.short(&schema.packed(&part.source))?;
            out.u32(part.coverage.len() as u32);
            for stretch in &part.coverage {
                out.u64(stretch.begin);
                out.u64(stretch.end);
                out.u8(match stretch.state {
                    Coverage::Complete => 0,
                    Coverage::NotYet => 1,
                    Coverage::Gone => 2,
                    Coverage::Gap(cause) => CAUSES_FROM + cause as u8,
                });
            }
            out.u32(part.fragments.len() as u32);
            for fragment in &part.fragments {
                out.u64(fragment.timestamp);
                [fragment.span, fragment.run, fragment.status, fragment.length, fragment.checksum]
                    .into_iter()
                    .for_each(|word| out.u32(word));
            }
        }
        Ok(out.finish())
    }

    /// From a meta.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for sources of another schema.
    pub fn decode_all(meta: &[u8], schema: &SourceSchema) -> Result<Vec<WireWindowPart>> {
        let stretch = |read: &mut WireReader<'_>| {
            let (begin, end) = (read.u64()?, read.u64()?);
            let state = match read.u8()? {
                0 => Coverage::Complete,
                1 => Coverage::NotYet,
                2 => Coverage::Gone,
                other => Coverage::Gap(cause_of(other)?),
            };
            Ok(Stretch { begin, end, state })
        };
        let fragment = |read: &mut WireReader<'_>| {
            let (timestamp, span, run) = (read.u64()?, read.u32()?, read.u32()?);
            let (status, length, checksum) = (read.u32()?, read.u32()?, read.u32()?);
            Ok(WireRingFragment { timestamp, span, run, status, length, checksum })
        };
        let part = |read: &mut WireReader<'_>| {
            let source = read.ring_source(schema)?;
            let coverage = read.list(STRETCH_BYTES, stretch)?;
            Ok(WireWindowPart { source, coverage, fragments: read.list(FRAGMENT_BYTES, fragment)? })
        };
        WireReader::whole(meta, |read| read.list(9, part))
    }
}

/// The cause that a state or an outcome names.
///
/// # Errors
/// `Corrupt` for a byte that names none.
pub(crate) fn cause_of(byte: u8) -> Result<GapCause> {
    let cause = byte.checked_sub(CAUSES_FROM).and_then(|cause| GAP_CAUSES.get(usize::from(cause)));
    cause.copied().ok_or_else(|| Error::corrupt(format!("a byte {byte}, which names no cause of a gap")))
}

impl WireReader<'_> {
    /// A source of a ring.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, `Invalid` for another schema.
    pub fn ring_source(&mut self, schema: &SourceSchema) -> Result<SourceId> {
        let packed = self.short()?;
        let wrong =
            || Error::invalid(format!("a source of {} bytes that is none of {:?}", packed.len(), schema.describe()));
        schema.unpacked(packed).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> SourceSchema {
        SourceSchema::parse(&["crate:u4", "link:u16"]).unwrap()
    }

    fn is_all<T: PartialEq + std::fmt::Debug>(meta: &[u8], value: &T, decode: impl Fn(&[u8]) -> Result<T>) {
        assert_eq!(&decode(meta).unwrap(), value);
        for end in 0..meta.len() {
            assert!(decode(&meta[..end]).is_err(), "{end}");
        }
        assert!(decode(&[meta, &[0]].concat()).is_err());
    }

    #[test]
    fn windows_read_back_and_nothing_else_does() {
        let schema = schema();
        let sources = [[3, 17], [15, 0]].map(|values| schema.source(&values).unwrap());
        for sources in [RingSources::All, RingSources::Only(sources.to_vec())] {
            let window = WireWindow { begin: 5, end: u64::MAX, sources, wait: Duration::from_millis(1500) };
            is_all(&window.encode(&schema).unwrap(), &window, |meta| WireWindow::decode(meta, &schema));
        }
        let mut coverage: Vec<Stretch> = [Coverage::Complete, Coverage::NotYet, Coverage::Gone]
            .into_iter()
            .map(|state| Stretch { begin: 1, end: 2, state })
            .collect();
        coverage.extend(GAP_CAUSES.map(|cause| Stretch { begin: 3, end: 9, state: Coverage::Gap(cause) }));
        let fragment =
            WireRingFragment { timestamp: 7, span: 32, run: 4, status: 9, length: 7200, checksum: 0xdead_beef };
        let part = WireWindowPart { source: sources[1], coverage, fragments: vec![fragment; 3] };
        let parts = vec![part, WireWindowPart { source: sources[0], coverage: Vec::new(), fragments: Vec::new() }];
        is_all(&WireWindowPart::encode_all(&parts, &schema).unwrap(), &parts, |meta| {
            WireWindowPart::decode_all(meta, &schema)
        });
        assert!(cause_of(CAUSES_FROM + 6).is_err() && cause_of(3).is_err());
        // The padding of a source is no part of it.
        assert_eq!(schema.unpacked(&[0x30, 0x01, 0x11]), None);
    }
}
