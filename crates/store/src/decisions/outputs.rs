//! Outputs: streams with chosen sources, as accepts name them, by number.

use super::streams::OUTPUTS_MAX;
use forebay_core::{Error, FixedMap, FixedSet, Result, Source, crc32c};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Streams with the sources that each keeps; `None` keeps all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) streams: Vec<(u8, Option<Vec<Source>>)>,
    pub(crate) check: u32,
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
    pub(crate) by_number: FixedMap<u32, Arc<Output>>,
    by_content: BTreeMap<Vec<u8>, Numbered>,
    pub(crate) next: u32,
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
        let output = decode(content, width).filter(|_| number < OUTPUTS_MAX);
        let output = output.ok_or_else(|| Error::corrupt("an output of a stream cannot be read"))?;
        self.insert(number, content, output);
        Ok(())
    }

    pub(crate) fn insert(&mut self, number: u32, content: &[u8], output: Output) {
        self.by_number.insert(number, Arc::new(output));
        self.by_content.insert(content.to_vec(), Numbered { number, asked: self.turn.into() });
        self.bytes += log_bytes(content);
        self.next = self.next.max(number.saturating_add(1));
    }

    /// The number of an output that is in use; the caller may accept an event with it.
    pub(crate) fn number_of(&self, content: &[u8]) -> Option<u32> {
        let known = self.by_content.get(content)?;
        // Under the lock for readers, beside others: the accept that follows is not recorded yet, and a snapshot that begins now
        // finds no event with this output.
        known.asked.fetch_max(self.turn, Ordering::Relaxed);
        Some(known.number)
    }

    /// Events that are not to be found may use any of them: they stay for this life.
    pub(crate) fn keep(&mut self) {
        self.by_content.values().for_each(|known| known.asked.store(u64::MAX, Ordering::Relaxed));
    }

    /// A snapshot begins: outputs that are asked for from now on stay, even if the snapshot does not find them in use.
    pub(crate) fn begin_turn(&mut self) -> u64 {
        // Under the lock for writers: a caller asked either before this, and has its effects guard, or in the new turn.
        self.turn += 1;
        self.turn
    }

    /// Forgets outputs that no accepted event uses any more, and nobody asked for since the turn; answers what is left.
    pub(crate) fn retain(&mut self, used: &FixedSet<u32>, turn: u64) -> Vec<(u32, Vec<u8>)> {
        let left = |known: &Numbered| used.contains(&known.number) || known.asked.load(Ordering::Relaxed) >= turn;
        self.by_content.retain(|_, known| left(known));
        let numbers: FixedSet<u32> = self.by_content.values().map(|known| known.number).collect();
        self.by_number.retain(|number, _| numbers.contains(number));
        debug_assert_eq!(self.by_number.len(), self.by_content.len(), "each output has one number");
        self.bytes = self.by_content.keys().map(|content| log_bytes(content)).sum();
        self.by_content.iter().map(|(content, known)| (known.number, content.clone())).collect()
    }
}

/// Bytes of the log that an output takes at most: its number goes with it, and its last slot is a whole one.
pub(crate) fn log_bytes(content: &[u8]) -> u64 {
    (content.len() + 64) as u64
}

pub(crate) fn encode(streams: &[(u8, Option<Vec<Source>>)]) -> Vec<u8> {
    // Found again by their bytes: the same choice must always be the same bytes.
    debug_assert!(streams.is_sorted_by(|one, next| one.0 < next.0), "streams are in order, each once");
    let sorted = |sources: &Vec<Source>| sources.is_sorted_by(|one, next| one < next);
    debug_assert!(streams.iter().all(|(_, sources)| sources.as_ref().is_none_or(sorted)), "sources are in order");
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
            Some(packed.chunks_exact(width).map(Source::from_packed).collect())
        };
        streams.push((head[0], sources));
    }
    // To the last byte: what is left over would be lost when it is written again.
    rest.is_empty().then(|| Output { streams, check: crc32c(content) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_read_back_and_nothing_else_does() {
        let streams = vec![
            (0, None),
            (3, Some([[0, 1], [0, 9]].map(|source| Source::from_packed(&source)).to_vec())),
            (254, Some(Vec::new())),
        ];
        let content = encode(&streams);
        assert_eq!(decode(&content, 2).unwrap().streams, streams);
        for cut in 0..content.len() {
            assert_eq!(decode(&content[..cut], 2), None, "{cut}");
        }
        assert_eq!(decode(&[1, 0, 1, 255, 255, 255, 255], 4), None);
        let mut outputs = Outputs::default();
        outputs.adopt(7, &content, 2).unwrap();
        assert!(outputs.adopt(8, &[9], 2).is_err() && outputs.adopt(OUTPUTS_MAX, &content, 2).is_err());
        assert_eq!(outputs.retain(&FixedSet::from_iter([7]), 1).len(), 1);
        assert_eq!((outputs.retain(&Default::default(), 1).len(), outputs.bytes, outputs.next), (0, 0, 8));
    }
}
