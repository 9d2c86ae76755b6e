//! The account of a ring beside the superblock, in two copies that alternate.
//!
//! ```text
//! magic "FBRN" 4 | version 2 | runs 2 | sequence 8 | segment 4 | generation 4 | flags 4 | zero 4
//! earlier runs: 7 × (fragments 8, bytes 8) | runs × (run 4, zero 4, 7 × (fragments 8, bytes 8)) | crc 4
//! ```
//!
//! A chunk is evicted by writing a note that counts its fragments as expired and names the chunk; then its segment is
//! taken again. Whichever of the two a crash leaves, each fragment is either there or counted (docs/format-ring.md).

use crate::limits::RING_NOTE_BYTES_MAX;
use forebay_core::{Tally, crc32c, crc32c_append};
use forebay_media::bytes::Reader;

/// The durable terms of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingTerms {
    /// Taken in; exact after an orderly close, otherwise counted again at opening.
    pub stored: Tally,
    /// The same bytes again.
    pub duplicate: Tally,
    /// Other bytes under a taken timestamp.
    pub conflict: Tally,
    /// After the ticks had been evicted.
    pub late: Tally,
    /// Not taken in.
    pub refused: Tally,
    /// Evicted.
    pub expired: Tally,
    /// Acknowledged and gone.
    pub lost: Tally,
}

impl RingTerms {
    fn terms(&mut self) -> [&mut Tally; 7] {
        let RingTerms { stored, duplicate, conflict, late, refused, expired, lost } = self;
        [stored, duplicate, conflict, late, refused, expired, lost]
    }
}

/// One note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingNote {
    /// Counts the notes; copy `sequence % 2` holds it. The higher valid one is in force.
    pub sequence: u64,
    /// The chunk that was evicted last, until its segment is taken again: segment and generation. While its segment still
    /// has that generation, its records are over.
    pub evicted: Option<(u32, u32)>,
    /// The ring was closed in order: `stored` is exact.
    pub clean: bool,
    /// Runs that are no longer kept apart, together.
    pub earlier: RingTerms,
    /// The last runs, in the order in which the ring met them.
    pub runs: Vec<(u32, RingTerms)>,
}

const MAGIC: u32 = u32::from_le_bytes(*b"FBRN");
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 32;
const TERMS_BYTES: usize = 7 * 16;
const RUN_BYTES: usize = 8 + TERMS_BYTES;

impl RingNote {
    /// Most runs of one note.
    pub const RUNS_MAX: usize = (RING_NOTE_BYTES_MAX - HEAD_BYTES - TERMS_BYTES - 4) / RUN_BYTES;

    /// The note as bytes; runs past [`RingNote::RUNS_MAX`] are left out.
    pub fn encode(&self, store: &[u8; 16]) -> Vec<u8> {
        let runs = &self.runs[..self.runs.len().min(Self::RUNS_MAX)];
        let mut out = Vec::with_capacity(HEAD_BYTES + TERMS_BYTES + runs.len() * RUN_BYTES + 4);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(runs.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        let (segment, generation) = self.evicted.unwrap_or((u32::MAX, 0));
        out.extend_from_slice(&segment.to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
        out.extend_from_slice(&u64::from(self.clean).to_le_bytes());
        put_terms(&mut out, &self.earlier);
        for (run, terms) in runs {
            out.extend_from_slice(&u64::from(*run).to_le_bytes());
            put_terms(&mut out, terms);
        }
        debug_assert_eq!(out.len(), HEAD_BYTES + TERMS_BYTES + runs.len() * RUN_BYTES, "a note of another length");
        // Seeded with the store, as entries are: a note that is copied with its region to another ring does not verify there.
        let crc = crc32c_append(crc32c(store), &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a note; `None` where it does not verify.
    pub fn decode(bytes: &[u8], store: &[u8; 16]) -> Option<RingNote> {
        let mut head = Reader(bytes);
        let magic = head.u32().ok()?;
        let version_and_runs = head.u32().ok()?;
        let (version, runs) = (version_and_runs as u16, (version_and_runs >> 16) as usize);
        if magic != MAGIC || version != VERSION || runs > Self::RUNS_MAX {
            return None;
        }
        let end = HEAD_BYTES + TERMS_BYTES + runs * RUN_BYTES;
        let crc = bytes.get(end..end + 4)?;
        // Version and number of runs before the checksum, which reaches as far as they say.
        if crc32c_append(crc32c(store), &bytes[..end]).to_le_bytes() != crc {
            return None;
        }
        let sequence = head.u64().ok()?;
        let (segment, generation) = (head.u32().ok()?, head.u32().ok()?);
        // No region has that many segments; a generation without a segment is no note that this version wrote.
        let evicted = (segment != u32::MAX).then_some((segment, generation));
        if evicted.is_none() && generation != 0 {
            return None;
        }
        let clean = match head.u64().ok()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let earlier = get_terms(&mut head)?;
        let mut list = Vec::with_capacity(runs);
        for _ in 0..runs {
            let run = u32::try_from(head.u64().ok()?).ok()?;
            list.push((run, get_terms(&mut head)?));
        }
        Some(RingNote { sequence, evicted, clean, earlier, runs: list })
    }
}

fn put_terms(out: &mut Vec<u8>, terms: &RingTerms) {
    for term in { *terms }.terms() {
        out.extend_from_slice(&term.fragments.to_le_bytes());
        out.extend_from_slice(&term.bytes.to_le_bytes());
    }
}

fn get_terms(reader: &mut Reader<'_>) -> Option<RingTerms> {
    let mut terms = RingTerms::default();
    for term in terms.terms() {
        *term = Tally { events: 0, fragments: reader.u64().ok()?, bytes: reader.u64().ok()? };
    }
    Some(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(runs: u32) -> RingNote {
        let terms = |at: u64| RingTerms {
            stored: Tally::fragment(at),
            expired: Tally { events: 0, fragments: 9, bytes: at },
            ..RingTerms::default()
        };
        RingNote {
            sequence: 7,
            evicted: Some((3, 9)),
            clean: true,
            earlier: terms(1),
            runs: (0..runs).map(|run| (run, terms(u64::from(run)))).collect(),
        }
    }

    #[test]
    fn a_full_note_fits_its_place() {
        let most = RingNote::RUNS_MAX as u32;
        assert!(most >= 16);
        let bytes = sample(most + 5).encode(&[1; 16]);
        assert!(bytes.len() <= RING_NOTE_BYTES_MAX);
        assert_eq!(RingNote::decode(&bytes, &[1; 16]), Some(sample(most)));
    }

    #[test]
    fn every_bit_matters() {
        let mut bytes = sample(2).encode(&[1; 16]);
        assert_eq!(RingNote::decode(&bytes, &[1; 16]), Some(sample(2)));
        assert_eq!(RingNote::decode(&bytes, &[2; 16]), None);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RingNote::decode(&bytes, &[1; 16]), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(RingNote::decode(&bytes[..bytes.len() - 1], &[1; 16]), None);
        assert_eq!(RingNote::decode(&[], &[1; 16]), None);
    }
}
