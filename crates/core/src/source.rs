//! Sources as people write them: the sub-keys after the primary key, such as `7` or `1/7`, and ranges `1/0..9`.

use crate::limits::{FRAGMENTS_PER_EVENT_MAX, SUB_KEYS_MAX};
use crate::{Error, Key, KeySchema, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;

/// One source of an event: the packed sub-keys after the primary key. It reads as its bytes, and no bytes pass for it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Source(Vec<u8>);

impl Source {
    /// From packed bytes, as a schema makes them. The calls that take a source refuse one of another schema.
    pub fn from_packed(packed: &[u8]) -> Source {
        Source(packed.to_vec())
    }

    /// The packed bytes, big-endian.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Source {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// As its bytes.
impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl KeySchema {
    /// The source of a key.
    pub fn source_of(&self, key: &Key) -> Source {
        Source::from_packed(self.rest_of(key))
    }

    /// Packs the sub-keys after the primary key: a source.
    ///
    /// # Errors
    /// `Invalid` for the wrong number of values or one that does not fit.
    pub fn source(&self, values: &[u64]) -> Result<Source> {
        let lead = vec![0; self.primary_len()];
        let key = self.key(&[&lead[..], values].concat())?;
        Ok(self.source_of(&key))
    }

    /// Text of a packed source, such as `7` or `1/7`.
    pub fn source_text(&self, source: &[u8]) -> String {
        self.source_values(source).iter().map(u64::to_string).collect::<Vec<_>>().join("/")
    }

    /// A source from its text.
    ///
    /// # Errors
    /// `Invalid`, naming the part that is wrong.
    pub fn parse_source(&self, text: &str) -> Result<Source> {
        let lead = vec!["0"; self.primary_len()].join("/");
        let values = self.parse_values(&format!("{lead}/{text}"), self.sub_keys().len())?;
        self.source(&values[self.primary_len()..])
    }

    fn source_values(&self, source: &[u8]) -> Vec<u64> {
        self.unpack_source(source, &mut [0; SUB_KEYS_MAX]).to_vec()
    }
}

/// Reads a list of sources and inclusive ranges of them; answers it sorted.
pub(crate) fn parse_sources(schema: &KeySchema, texts: &[String]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for text in texts {
        let (head, last) = text.split_once("..").unwrap_or((text, ""));
        let first = schema.parse_source(head)?;
        let mut values = schema.source_values(&first);
        let from = values.last().copied().unwrap_or_default();
        let to = if last.is_empty() { Ok(from) } else { last.parse() };
        let wrong = || Error::invalid(format!("sources `{text}`: expected FIRST..LAST, such as 0..499 or 1/0..9"));
        let to = to.ok().filter(|&to| to >= from).ok_or_else(wrong)?;
        if to - from >= u64::from(FRAGMENTS_PER_EVENT_MAX) {
            return Err(Error::invalid(format!("sources `{text}`: at most {FRAGMENTS_PER_EVENT_MAX}")));
        }
        for value in from..=to {
            if let Some(place) = values.last_mut() {
                *place = value;
            }
            sources.push(schema.source(&values)?);
        }
    }
    sources.sort_unstable();
    if sources.is_empty() || sources.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::invalid("a source list is not empty and names each source once"));
    }
    Ok(sources)
}

/// Writes a sorted list of sources, neighbours as ranges.
pub(crate) fn source_texts(schema: &KeySchema, sources: &[Source]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut at = 0;
    while at < sources.len() {
        let mut values = schema.source_values(&sources[at]);
        let mut end = at;
        let first = values.last().copied().unwrap_or_default();
        while end + 1 < sources.len() {
            let Some(last) = values.last_mut() else { break };
            *last = last.wrapping_add(1);
            if schema.source(&values).ok().as_ref() != Some(&sources[end + 1]) {
                break;
            }
            end += 1;
        }
        let text = schema.source_text(&sources[at]);
        let last = first + (end - at) as u64;
        texts.push(if end == at { text } else { format!("{text}..{last}") });
        at = end + 1;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_and_neighbours_join() {
        let schema = KeySchema::parse(&["run:u32", "event:u64", "part:u16", "id:u32"], &["run", "event"]).unwrap();
        let texts: Vec<String> = ["1/0..9", "1/11", "2/0", "65535/4294967295"].map(str::to_owned).into();
        let sources = parse_sources(&schema, &texts).unwrap();
        assert_eq!(sources.len(), 13);
        assert_eq!(source_texts(&schema, &sources), texts);
        assert_eq!(schema.source_text(&sources[10]), "1/11");
        for wrong in ["", "1", "1/3..2", "1/0..x", "1/0..4000000", "70000/1"] {
            assert!(parse_sources(&schema, &[wrong.to_owned()]).is_err(), "{wrong}");
        }
        assert!(parse_sources(&schema, &["1/4".to_owned(), "1/3..5".to_owned()]).is_err());
    }
}
