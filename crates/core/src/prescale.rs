//! Keeping one event in N, the same ones everywhere; and the factor itself, as runs record it.

use crate::limits::NAME_BYTES_MAX;
use crate::{Error, Primary, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Keeps a share of events, chosen by a hash of their names: every worker and every replay chooses the same ones, and
/// prescales with different names choose independently of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Prescale {
    seed: u64,
    below: u64,
    factor: f64,
}

impl Prescale {
    /// One event in `factor` (1 or more, fractions allowed) for the trigger or stream of this name; infinity keeps none.
    ///
    /// # Errors
    /// `Invalid` for a factor below 1 or not a number.
    pub fn new(name: &str, factor: f64) -> Result<Prescale> {
        let factor = PrescaleFactor::new(factor)
            .map_err(|error| Error::invalid(format!("prescale `{name}`: {}", error.message())))?
            .get();
        let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| mixed(hash ^ u64::from(byte)));
        let below = if factor == 1.0 { u64::MAX } else { (u64::MAX as f64 / factor) as u64 };
        Ok(Prescale { seed, below, factor })
    }

    /// The factor: each kept event represents this many.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Whether this event is kept.
    pub fn keeps(&self, primary: &Primary) -> bool {
        let words = primary.as_bytes().chunks(8);
        let hash = words.fold(self.seed, |hash, word| {
            mixed(hash ^ word.iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte)))
        });
        self.below == u64::MAX || hash < self.below
    }
}

/// The prescale of a trigger or stream: a factor of N keeps one event in N. As text, and in JSON and TOML, a number of 1 or
/// more, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(into = "FactorForm", try_from = "FactorForm")]
pub struct PrescaleFactor(f64);

// Never NaN.
impl Eq for PrescaleFactor {}

impl PrescaleFactor {
    /// A factor of 1 or more, fractions allowed; infinity keeps none.
    ///
    /// # Errors
    /// `Invalid` for a factor below 1 or not a number.
    pub fn new(factor: f64) -> Result<PrescaleFactor> {
        if factor.is_nan() || factor < 1.0 {
            return Err(Error::invalid(format!("a factor of 1 or more, or `off`, not {factor}")));
        }
        Ok(PrescaleFactor(factor))
    }

    /// Reads a number, or `off`.
    ///
    /// # Errors
    /// As [`PrescaleFactor::new`], and for what is neither.
    pub fn parse(text: &str) -> Result<PrescaleFactor> {
        if text == "off" {
            return Ok(PrescaleFactor(f64::INFINITY));
        }
        let wrong = |_| Error::invalid(format!("prescale factor `{text}`: expected a number of 1 or more, or `off`"));
        PrescaleFactor::new(text.parse().map_err(wrong)?)
    }

    /// As a number; infinity for `off`.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for PrescaleFactor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_infinite() { out.write_str("off") } else { write!(out, "{}", self.0) }
    }
}

/// JSON has no infinity.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FactorForm {
    Number(f64),
    Text(String),
}

impl From<PrescaleFactor> for FactorForm {
    fn from(factor: PrescaleFactor) -> FactorForm {
        if factor.0.is_infinite() { FactorForm::Text(factor.to_string()) } else { FactorForm::Number(factor.0) }
    }
}

impl TryFrom<FactorForm> for PrescaleFactor {
    type Error = Error;

    fn try_from(form: FactorForm) -> Result<PrescaleFactor> {
        match form {
            FactorForm::Number(factor) => PrescaleFactor::new(factor),
            FactorForm::Text(text) => PrescaleFactor::parse(&text),
        }
    }
}

/// Checks the name of a prescale that a run is to record.
///
/// # Errors
/// `Invalid` for a name that is empty or too long.
pub fn check_prescale_name(name: &str) -> Result<()> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(Error::invalid(format!("prescale name `{name}`: 1 to {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeySchema;

    #[test]
    fn keeps_its_share_and_the_same_ones() {
        let schema = KeySchema::run_event_source();
        let events: Vec<Primary> = (0..100_000).map(|event| schema.primary(&[1, event]).unwrap()).collect();
        for factor in [1.0, 2.5, 10.0, 1000.0] {
            let prescale = Prescale::new("jet-40", factor).unwrap();
            let kept = events.iter().filter(|event| prescale.keeps(event)).count() as f64;
            let expected = events.len() as f64 / factor;
            assert!((kept - expected).abs() <= 5.0 * expected.sqrt(), "{factor}: {kept}");
        }
        let (one, other) = (Prescale::new("a", 10.0).unwrap(), Prescale::new("b", 10.0).unwrap());
        let both = events.iter().filter(|event| one.keeps(event) && other.keeps(event)).count();
        assert!((800..1200).contains(&both), "independent: {both}");
        assert!(!Prescale::new("none", f64::INFINITY).unwrap().keeps(&events[0]));
        assert!(Prescale::new("wrong", 0.5).is_err() && Prescale::new("wrong", f64::NAN).is_err());
    }

    #[test]
    fn factors_are_numbers_or_off() {
        for (text, json) in [("1", "1.0"), ("2.5", "2.5"), ("off", "\"off\"")] {
            let factor = PrescaleFactor::parse(text).unwrap();
            assert_eq!(factor.to_string(), text);
            assert_eq!(serde_json::to_string(&factor).unwrap(), json);
            assert_eq!(serde_json::from_str::<PrescaleFactor>(json).unwrap(), factor);
        }
        assert_eq!(serde_json::from_str::<PrescaleFactor>("20").unwrap().get(), 20.0);
        for wrong in ["0", "0.99", "-1", "NaN", "on", ""] {
            assert!(PrescaleFactor::parse(wrong).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<PrescaleFactor>("0").is_err());
    }
}
