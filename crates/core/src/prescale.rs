//! Keeping one event in N, the same ones everywhere.

use crate::{Error, Primary, Result};

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
        if factor.is_nan() || factor < 1.0 {
            return Err(Error::invalid(format!("prescale `{name}`: a factor of 1 or more, not {factor}")));
        }
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
}
