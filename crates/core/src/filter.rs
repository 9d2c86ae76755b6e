//! Conditions on attributes, for `get_any`: `lumi=5`, `bcid=10..20`, `class=physics`, `trigger_bits&0x4`.

use crate::attributes::parse_value;
use crate::{AttributeSchema, Attributes, Error, Result};

/// One condition; an event without the attribute does not meet it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The value lies in an inclusive interval.
    Within {
        /// Position of the attribute in the schema.
        attribute: usize,
        /// Lowest value that passes.
        min: u128,
        /// Highest value that passes.
        max: u128,
    },
    /// At least one bit of the mask is set.
    AnyBit {
        /// Position of the attribute in the schema.
        attribute: usize,
        /// Bits of which one must be set.
        mask: u128,
    },
}

/// All conditions must hold; without any, everything passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

impl Filter {
    /// A filter from its conditions.
    pub fn new(conditions: Vec<Condition>) -> Filter {
        Filter { conditions }
    }

    /// From text: `name=value`, `name=low..high` (inclusive) or `name&mask`, one condition each.
    ///
    /// # Errors
    /// `Invalid`, naming the condition that is wrong.
    pub fn parse<S: AsRef<str>>(schema: &AttributeSchema, conditions: &[S]) -> Result<Filter> {
        let one = |text: &str| {
            let index = |name: &str| schema.index(name).unwrap_or_default();
            if let Some((name, mask)) = text.split_once('&') {
                let mask = parse_value(schema, name, mask)?;
                return Ok(Condition::AnyBit { attribute: index(name), mask });
            }
            let (name, value) = text.split_once('=').ok_or_else(|| {
                Error::invalid(format!("filter `{text}`: expected name=value, name=low..high or name&mask"))
            })?;
            let (low, high) = value.split_once("..").unwrap_or((value, value));
            let (min, max) = (parse_value(schema, name, low)?, parse_value(schema, name, high)?);
            Ok(Condition::Within { attribute: index(name), min, max })
        };
        Ok(Filter { conditions: conditions.iter().map(|text| one(text.as_ref())).collect::<Result<_>>()? })
    }

    /// The conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether these attributes meet all conditions.
    pub fn matches(&self, attributes: &Attributes) -> bool {
        self.conditions.iter().all(|condition| match *condition {
            Condition::Within { attribute, min, max } => {
                attributes.get(attribute).is_some_and(|value| (min..=max).contains(&value))
            }
            Condition::AnyBit { attribute, mask } => attributes.get(attribute).is_some_and(|value| value & mask != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_select() {
        let schema = AttributeSchema::parse(&["lumi:u32", "bits:u64", "class"], &["physics", "calib"]).unwrap();
        let event = Attributes::parse(&schema, &["lumi=7", "bits=6", "class=calib"]).unwrap();
        for (text, expected) in [
            ("lumi=7", true),
            ("lumi=1..7", true),
            ("lumi=8..9", false),
            ("bits&0x4", true),
            ("bits&1", false),
            ("class=calib", true),
            ("class=physics", false),
        ] {
            assert_eq!(Filter::parse(&schema, &[text]).unwrap().matches(&event), expected, "{text}");
        }
        assert!(!Filter::parse(&schema, &["lumi=7"]).unwrap().matches(&Attributes::new()));
        for text in ["lumi", "x=1", "class=beam", "lumi=a..b"] {
            assert!(Filter::parse(&schema, &[text]).is_err(), "{text}");
        }
    }
}
