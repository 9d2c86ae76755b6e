//! Ranges over composite keys: a lower and an upper bound per sub-key, answered by seeking.

use crate::schema::parse_number;
use crate::{Error, KeySchema, Result};

/// An inclusive interval per sub-key. `1/10-20/*` is run 1, events 10 to 20, every source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    lower: Vec<u64>,
    upper: Vec<u64>,
}

/// Where a walk in key order goes from some key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The key lies inside.
    Inside,
    /// The next values that can lie inside; everything in between is outside.
    To(Vec<u64>),
    /// Nothing from here on lies inside.
    End,
}

impl Bounds {
    /// Everything in the keyspace.
    pub fn all(schema: &KeySchema) -> Bounds {
        let upper = schema.sub_keys().iter().map(|part| part.max()).collect::<Vec<_>>();
        Bounds { lower: vec![0; upper.len()], upper }
    }

    /// Inclusive bounds, one pair per sub-key.
    ///
    /// # Errors
    /// `Invalid` for the wrong number of pairs, an empty interval, or a bound that does not fit.
    pub fn new(schema: &KeySchema, pairs: &[(u64, u64)]) -> Result<Bounds> {
        if pairs.len() != schema.sub_keys().len() {
            return Err(Error::invalid(format!("{} bounds expected, not {}", schema.sub_keys().len(), pairs.len())));
        }
        for (part, &(lower, upper)) in schema.sub_keys().iter().zip(pairs) {
            if lower > upper || upper > part.max() {
                return Err(Error::invalid(format!(
                    "{}: {lower} to {upper} is not an interval within 0 to {}",
                    part.name,
                    part.max()
                )));
            }
        }
        Ok(Bounds {
            lower: pairs.iter().map(|pair| pair.0).collect(),
            upper: pairs.iter().map(|pair| pair.1).collect(),
        })
    }

    /// Bounds from text: per sub-key `*`, a number, or `a-b` (either end may be left out); missing parts mean `*`.
    ///
    /// # Errors
    /// `Invalid`, naming the part that is wrong.
    pub fn parse(schema: &KeySchema, text: &str) -> Result<Bounds> {
        let given: Vec<&str> = text.split('/').collect();
        if given.len() > schema.sub_keys().len() {
            return Err(Error::invalid(format!(
                "`{text}` has more parts than the key: {}",
                schema.describe().join("/")
            )));
        }
        let mut pairs = Vec::new();
        for (at, part) in schema.sub_keys().iter().enumerate() {
            let text_part = given.get(at).copied().unwrap_or("*");
            let end = |end: &str, otherwise| if end.is_empty() { Ok(otherwise) } else { parse_number(part, end, text) };
            pairs.push(match text_part.split_once('-') {
                _ if text_part == "*" => (0, part.max()),
                Some((lower, upper)) => (end(lower, 0)?, end(upper, part.max())?),
                None => {
                    let value = parse_number(part, text_part, text)?;
                    (value, value)
                }
            });
        }
        Bounds::new(schema, &pairs)
    }

    /// Lowest values inside.
    pub fn lower(&self) -> &[u64] {
        &self.lower
    }

    /// Highest values inside.
    pub fn upper(&self) -> &[u64] {
        &self.upper
    }

    /// Where to go from a key with these values, or from a primary key (then only its parts count).
    pub fn seek(&self, values: &[u64]) -> Seek {
        for (at, &value) in values.iter().enumerate() {
            if value < self.lower[at] {
                return Seek::To([&values[..at], &self.lower[at..values.len()]].concat());
            }
            if value > self.upper[at] {
                // Carry: raise the last earlier part that has room, restart everything after it.
                let Some(carry) = (0..at).rev().find(|&before| values[before] < self.upper[before]) else {
                    return Seek::End;
                };
                let mut next = values[..carry].to_vec();
                next.push(values[carry] + 1);
                next.extend_from_slice(&self.lower[carry + 1..values.len()]);
                return Seek::To(next);
            }
        }
        Seek::Inside
    }

    /// Whether these values (of a key or primary key) lie inside.
    pub fn contains(&self, values: &[u64]) -> bool {
        values.iter().enumerate().all(|(at, value)| (self.lower[at]..=self.upper[at]).contains(value))
    }

    /// Whether every sub-key after the primary key is unbounded: whole events are meant.
    pub fn covers_whole_events(&self, schema: &KeySchema) -> bool {
        let from = schema.primary_len();
        schema.sub_keys()[from..]
            .iter()
            .enumerate()
            .all(|(at, part)| self.lower[from + at] == 0 && self.upper[from + at] == part.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn small() -> KeySchema {
        KeySchema::parse(&["run:u2", "event:u3", "source:u2"], &["run", "event"]).unwrap()
    }

    proptest! {
        #[test]
        fn seeking_visits_exactly_what_filtering_would(pairs in prop::collection::vec((0_u64..8, 0_u64..8), 3)) {
            let schema = small();
            let pairs: Vec<_> = pairs.iter().zip(schema.sub_keys())
                .map(|(&(a, b), part)| (a.min(b).min(part.max()), a.max(b).min(part.max()))).collect();
            let bounds = Bounds::new(&schema, &pairs).unwrap();
            let every = || (0..4).flat_map(|r| (0..8).flat_map(move |e| (0..4).map(move |s| vec![r, e, s])));
            let expected: Vec<_> = every().filter(|values| bounds.contains(values)).collect();
            let mut visited = Vec::new();
            let mut at = vec![0, 0, 0];
            loop {
                match bounds.seek(&at) {
                    Seek::End => break,
                    Seek::To(next) => { prop_assert!(next > at); at = next; }
                    Seek::Inside => {
                        visited.push(at.clone());
                        match every().find(|values| *values > at) { Some(next) => at = next, None => break }
                    }
                }
            }
            prop_assert_eq!(visited, expected);
        }
    }

    #[test]
    fn text_form() {
        let schema = small();
        let bounds = Bounds::parse(&schema, "1/2-5/*").unwrap();
        assert_eq!(bounds, Bounds::new(&schema, &[(1, 1), (2, 5), (0, 3)]).unwrap());
        assert_eq!(Bounds::parse(&schema, "1/-5").unwrap(), Bounds::new(&schema, &[(1, 1), (0, 5), (0, 3)]).unwrap());
        assert!(bounds.covers_whole_events(&schema));
        for text in ["9", "1/5-2", "1/2/3/4", "x", "1/a-b", "1/2-99"] {
            assert!(Bounds::parse(&schema, text).is_err(), "{text}");
        }
    }
}
