//! Attribute values of one event, and their packed form.
//!
//! ```text
//! presence (u64, little-endian) | each field at its fixed place, little-endian, zero where absent
//! ```

use crate::limits::ATTRIBUTES_MAX;
use crate::{AttributeKind, AttributeSchema, Error, Result};

/// Values by position in the schema; each may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    values: Vec<(usize, u128)>,
}

impl Attributes {
    /// No value set.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// From `name=value` pairs; a class is given by its name.
    ///
    /// # Errors
    /// `Invalid` for an unknown name or class, or a value that does not fit.
    pub fn parse<S: AsRef<str>>(schema: &AttributeSchema, pairs: &[S]) -> Result<Attributes> {
        let mut attributes = Attributes::new();
        for pair in pairs {
            let pair = pair.as_ref();
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Error::invalid(format!("attribute `{pair}`: expected name=value")))?;
            let value = parse_value(schema, name, value)?;
            attributes.set(schema, name, value)?;
        }
        Ok(attributes)
    }

    /// Sets one value; a class by its position.
    ///
    /// # Errors
    /// `Invalid` for an unknown name or a value that does not fit.
    pub fn set(&mut self, schema: &AttributeSchema, name: &str, value: u128) -> Result<()> {
        let (at, kind) = lookup(schema, name)?;
        let max = match kind {
            AttributeKind::Unsigned { bits } => u128::MAX >> (128 - bits),
            AttributeKind::Class => (schema.classes.len() as u128).saturating_sub(1),
        };
        if value > max {
            return Err(Error::invalid(format!("attribute {name} = {value} does not fit: 0 to {max}")));
        }
        match self.values.binary_search_by_key(&at, |entry| entry.0) {
            Ok(place) => self.values[place].1 = value,
            Err(place) => self.values.insert(place, (at, value)),
        }
        Ok(())
    }

    /// The value at a position of the schema.
    pub fn get(&self, at: usize) -> Option<u128> {
        self.values.binary_search_by_key(&at, |entry| entry.0).ok().map(|place| self.values[place].1)
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// `name=value` for people, classes by name.
    pub fn text(&self, schema: &AttributeSchema) -> Vec<(String, String)> {
        let one = |&(at, value): &(usize, u128)| {
            let (name, kind) = schema.fields.get(at)?;
            let text = match kind {
                AttributeKind::Class => schema.classes.get(value as usize)?.clone(),
                AttributeKind::Unsigned { .. } => value.to_string(),
            };
            Some((name.clone(), text))
        };
        self.values.iter().filter_map(one).collect()
    }

    /// These values over `earlier` ones: what is set here wins. `None` where `only_new` and a value would change.
    pub fn merged(&self, earlier: &Attributes, only_new: bool) -> Option<Attributes> {
        let mut merged = earlier.clone();
        for &(at, value) in &self.values {
            match merged.values.binary_search_by_key(&at, |entry| entry.0) {
                Ok(place) if only_new && merged.values[place].1 != value => return None,
                Ok(place) => merged.values[place].1 = value,
                Err(place) => merged.values.insert(place, (at, value)),
            }
        }
        Some(merged)
    }

    /// Packs into `out`, which has the schema's packed length.
    pub fn pack(&self, schema: &AttributeSchema, out: &mut [u8]) {
        out.fill(0);
        let mut presence = 0_u64;
        let mut offset = 8;
        for (at, (_, kind)) in schema.fields.iter().enumerate() {
            let width = kind.bytes();
            if let Some(value) = self.get(at) {
                presence |= 1 << at;
                out[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            offset += width;
        }
        out[..8].copy_from_slice(&presence.to_le_bytes());
    }

    /// Unpacks what [`Attributes::pack`] wrote.
    ///
    /// # Errors
    /// `Corrupt` for a wrong length, presence bits past the schema, or values that the schema does not allow.
    pub fn unpack(schema: &AttributeSchema, packed: &[u8]) -> Result<Attributes> {
        if packed.len() != schema.packed_bytes() || schema.is_empty() {
            return Err(Error::corrupt(format!(
                "attribute block of {} bytes, not {}",
                packed.len(),
                schema.packed_bytes()
            )));
        }
        let mut word = [0; 8];
        word.copy_from_slice(&packed[..8]);
        let presence = u64::from_le_bytes(word);
        if schema.fields.len() < ATTRIBUTES_MAX && presence >> schema.fields.len() != 0 {
            return Err(Error::corrupt("attribute block names fields that the schema lacks"));
        }
        let mut attributes = Attributes::new();
        let mut offset = 8;
        for (at, (name, kind)) in schema.fields.iter().enumerate() {
            let width = kind.bytes();
            if presence >> at & 1 == 1 {
                let mut value = [0; 16];
                value[..width].copy_from_slice(&packed[offset..offset + width]);
                attributes
                    .set(schema, name, u128::from_le_bytes(value))
                    .map_err(|error| Error::corrupt("attribute block").with_source(error))?;
            }
            offset += width;
        }
        Ok(attributes)
    }
}

fn lookup<'a>(schema: &'a AttributeSchema, name: &str) -> Result<(usize, &'a AttributeKind)> {
    let at = schema.index(name).ok_or_else(|| {
        Error::invalid(format!("no attribute `{name}`; this keyspace has: {}", schema.describe().join(", ")))
    })?;
    Ok((at, &schema.fields[at].1))
}

/// A number, `0x…`, or the name of a class.
pub(crate) fn parse_value(schema: &AttributeSchema, name: &str, text: &str) -> Result<u128> {
    if let AttributeKind::Class = lookup(schema, name)?.1 {
        return match schema.classes.iter().position(|class| class == text) {
            Some(at) => Ok(at as u128),
            None => Err(Error::invalid(format!("no class `{text}`; known: {}", schema.classes.join(", ")))),
        };
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| Error::invalid(format!("attribute {name}: `{text}` is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schema() -> AttributeSchema {
        AttributeSchema::parse(&["lumi:u32", "bits:u128", "class", "flag:u1"], &["physics", "calib"]).unwrap()
    }

    #[test]
    fn round_trip_and_merge() {
        let schema = schema();
        let first = Attributes::parse(&schema, &["lumi=7", "class=calib"]).unwrap();
        let mut packed = vec![0xFF; schema.packed_bytes()];
        first.pack(&schema, &mut packed);
        assert_eq!(Attributes::unpack(&schema, &packed).unwrap(), first);
        let more = Attributes::parse(&schema, &["lumi=8", "flag=1"]).unwrap();
        assert_eq!(more.merged(&first, true), None);
        let merged = more.merged(&first, false).unwrap();
        assert_eq!(
            merged.text(&schema).iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>(),
            ["lumi=8", "class=calib", "flag=1"]
        );
        for pair in ["x=1", "lumi", "class=beam", "flag=2", "lumi=-1"] {
            assert!(Attributes::parse(&schema, &[pair]).is_err(), "{pair}");
        }
    }

    proptest! {
        #[test]
        fn any_block_is_values_or_corrupt(packed in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(attributes) = Attributes::unpack(&schema(), &packed) {
                let mut again = vec![0; packed.len()];
                attributes.pack(&schema(), &mut again);
                prop_assert_eq!(Attributes::unpack(&schema(), &again).unwrap(), attributes);
            }
        }
    }
}
