//! Which encoding a stripe gets.

use super::map::{Map, widen};
use super::numeric::Plan;
use super::packed::{self, Layout};
use super::{Effort, dictionary, encoding, repeats};
use crate::Scalar;
use std::ops::Range;

/// The choice is made again for a stripe that takes this much more per value than the one it was made for, or this much less:
/// the values are others then.
const WORSE: f64 = 1.05;
const BETTER: f64 = 0.8;

/// Values that the map is chosen by.
const SAMPLE: usize = 384;
/// zstd is tried with a sample first from this many values on.
const SAMPLED_FROM: usize = SAMPLE * 8 * 4;
/// zstd is tried where values occur this often on average: below, it never won.
const REPEATS_MIN: usize = 8;

/// What zstd makes is near the best where it is larger by at most one part in this many.
const NEAR: usize = 6;

const MAPS: [Map; 3] = [Map::Ordered, Map::Folded, Map::Delta];

/// An encoding with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Numeric(Map),
    Packed(Layout),
    Dictionary,
    Repeats,
}

/// Encodes stripes of one stream and remembers what suited it.
#[derive(Debug, Default)]
pub struct Coder {
    /// What was chosen, for which effort, and the bytes per value that it took then.
    chosen: Option<(Choice, Effort, f64)>,
}

impl Coder {
    /// The values of a stripe, encoded: bytes that say by themselves how to read them. An empty stripe has no bytes.
    /// Bytes of bools other than 0 become 1.
    pub fn encode(&mut self, scalar: Scalar, values: &[u8], effort: Effort) -> Vec<u8> {
        if scalar == Scalar::Bool && values.iter().any(|&value| value > 1) {
            let proper: Vec<u8> = values.iter().map(|&value| u8::from(value != 0)).collect();
            return self.encode(scalar, &proper, effort);
        }
        let stripe = Stripe::new(scalar, values, effort);
        if let Some(simple) = stripe.simple() {
            return simple;
        }
        let count = stripe.wide.len() as f64;
        if let Some((choice, before, bytes_each)) = self.chosen
            && before == effort
            && let Some(encoded) = stripe.encode(choice, effort)
            && (BETTER..WORSE).contains(&(encoded.len() as f64 / count / bytes_each))
        {
            return encoded;
        }
        let (choice, encoded) = stripe.best(true);
        self.chosen = choice.map(|choice| (choice, effort, encoded.len() as f64 / count));
        encoded
    }
}

/// Encodes a part of another encoding.
pub(super) fn encode_part(scalar: Scalar, values: &[u8], effort: Effort) -> Vec<u8> {
    let stripe = Stripe::new(scalar, values, effort);
    stripe.simple().unwrap_or_else(|| stripe.best(false).1)
}

/// Values to encode.
struct Stripe<'a> {
    scalar: Scalar,
    values: &'a [u8],
    wide: Vec<u64>,
    effort: Effort,
}

impl Stripe<'_> {
    fn new(scalar: Scalar, values: &[u8], effort: Effort) -> Stripe<'_> {
        Stripe { scalar, values, wide: widen(scalar, values), effort }
    }

    /// The bytes where there is no choice: no values, or one.
    fn simple(&self) -> Option<Vec<u8>> {
        let Some(&value) = self.wide.first() else { return Some(Vec::new()) };
        if self.wide.iter().any(|&other| other != value) {
            return None;
        }
        let bytes = value.to_le_bytes();
        let used = 8 - (value.leading_zeros() / 8) as usize;
        Some([&[encoding::CONSTANT], &bytes[..used]].concat())
    }

    fn raw(&self) -> Vec<u8> {
        [&[encoding::RAW], self.values].concat()
    }

    /// Encoded in this way, where it applies.
    fn encode(&self, choice: Choice, effort: Effort) -> Option<Vec<u8>> {
        match choice {
            Choice::Numeric(map) => Some(write(&Plan::of(self.scalar, &self.wide, map))),
            Choice::Packed(layout) => {
                let first = encoding::PACKED | (layout as u8) << 4;
                packed::encode(layout, self.values, &self.wide, self.scalar.width(), effort, first)
            }
            Choice::Dictionary => dictionary::encode(self.scalar, &self.wide, effort, encoding::DICTIONARY),
            Choice::Repeats => repeats::encode(self.scalar, &self.wide, effort, encoding::REPEATS),
        }
    }

    /// The encoding that is chosen; no choice where nothing is smaller than the values.
    fn best(&self, parts: bool) -> (Option<Choice>, Vec<u8>) {
        let maps = match self.effort {
            Effort::Default if self.wide.len() > SAMPLE => vec![self.likely_map()],
            _ => MAPS.to_vec(),
        };
        let mut best = (None, self.raw());
        let mut repeats = false;
        let plans = maps.into_iter().map(|map| Plan::of(self.scalar, &self.wide, map));
        if let Some(plan) = plans.min_by_key(|plan| plan.bytes) {
            repeats = plan.different <= self.wide.len() / REPEATS_MIN;
            let encoded = write(&plan);
            if encoded.len() < best.1.len() {
                best = (Some(Choice::Numeric(plan.map)), encoded);
            }
        }
        let mut others = self.packed_choices(repeats, parts);
        if self.effort == Effort::Default && self.wide.len() > SAMPLED_FROM {
            self.keep_likely(&mut others, best.0);
        }
        for choice in others {
            // The highest levels are slow: they are tried where a low one comes near.
            let Some(mut encoded) = self.encode(choice, Effort::Default) else { continue };
            if self.effort == Effort::Best
                && encoded.len() < best.1.len() + best.1.len() / NEAR
                && let Some(harder) = self.encode(choice, Effort::Best)
                && harder.len() < encoded.len()
            {
                encoded = harder;
            }
            if encoded.len() < best.1.len() {
                best = (Some(choice), encoded);
            }
        }
        best
    }

    /// The map that suits a sample best.
    fn likely_map(&self) -> Map {
        let sample = &self.wide[self.sample()];
        let cost = |&map: &Map| Plan::of(self.scalar, sample, map).bytes;
        MAPS.into_iter().min_by_key(cost).unwrap_or(Map::Ordered)
    }

    /// Keeps the choices that come near the best one for a sample: patterns gain more in the whole stripe.
    fn keep_likely(&self, choices: &mut Vec<Choice>, best: Option<Choice>) {
        let Range { start, end } = self.sample();
        let width = self.scalar.width();
        let sample = Stripe::new(self.scalar, &self.values[start * width..end * width], self.effort);
        let bytes = |choice| sample.encode(choice, self.effort).map_or(usize::MAX, |encoded| encoded.len());
        let enough = best.map_or(usize::MAX, |best| bytes(best).saturating_mul(3) / 2);
        choices.retain(|&choice| bytes(choice) < enough);
    }

    /// Neighbours from the middle, that are not all the same where that can be helped: any encoding suits those.
    fn sample(&self) -> Range<usize> {
        let count = self.wide.len();
        let sampled = (count / 8).clamp(SAMPLE, SAMPLE * 8).min(count);
        let middle = (count - sampled) / 2;
        let from = self.wide[middle..].windows(2).position(|pair| pair[0] != pair[1]).unwrap_or(0);
        let from = (middle + from).min(count - sampled);
        from..from + sampled
    }

    /// What zstd is worth trying for.
    fn packed_choices(&self, repeats: bool, parts: bool) -> Vec<Choice> {
        let mut choices = Vec::new();
        let best = self.effort == Effort::Best;
        if repeats || best || self.scalar == Scalar::U8 {
            choices.push(Choice::Packed(Layout::Values));
        }
        if best && self.scalar.width() > 1 {
            choices.extend([Choice::Packed(Layout::Planes), Choice::Packed(Layout::DeltaPlanes)]);
        }
        if (repeats || best) && parts && self.scalar.width() > 1 {
            choices.push(Choice::Dictionary);
        }
        // It saves little, and decodes at half the speed of the others.
        if best && parts && self.scalar.width() > 1 {
            choices.push(Choice::Repeats);
        }
        choices
    }
}

fn write(plan: &Plan) -> Vec<u8> {
    let kind = match plan.map {
        Map::Ordered => encoding::ORDERED,
        Map::Folded => encoding::FOLDED,
        Map::Delta => encoding::DELTA,
    };
    plan.write(kind | (plan.log() as u8) << 4)
}

/// All choices, for tests of each.
#[cfg(test)]
pub(super) const ALL_CHOICES: [Choice; 8] = [
    Choice::Numeric(Map::Ordered),
    Choice::Numeric(Map::Folded),
    Choice::Numeric(Map::Delta),
    Choice::Packed(Layout::Values),
    Choice::Packed(Layout::Planes),
    Choice::Packed(Layout::DeltaPlanes),
    Choice::Dictionary,
    Choice::Repeats,
];

/// Values by one choice, where there is one.
#[cfg(test)]
pub(super) fn encode_as(choice: Choice, scalar: Scalar, values: &[u8]) -> Option<Vec<u8>> {
    let stripe = Stripe::new(scalar, values, Effort::Default);
    if stripe.simple().is_some() { None } else { stripe.encode(choice, Effort::Default) }
}
