//! Lossy precision, where it was asked for by name: values keep the upper bits of their mantissa, rounded to the nearest, ties to even.

use crate::types::Role;
use crate::{Array, Scalar};
use forebay_core::{Error, Result};

/// The note of a product that says how many bits of the mantissa were kept.
pub(crate) const NOTE: &str = "precision";

/// The array with this many bits of mantissa.
///
/// # Errors
/// `Invalid` where the type has no floating-point values.
pub(crate) fn round(array: &Array, bits: u64) -> Result<Array> {
    let nodes = array.ty.nodes();
    let float = |scalar| matches!(scalar, Scalar::F32 | Scalar::F64);
    if !nodes.iter().any(|node| node.role == Role::Values && float(node.scalar)) {
        return Err(Error::invalid(format!("a precision for values of type {}, which are exact", array.ty)));
    }
    let mut rounded = array.clone();
    for (node, stream) in nodes.iter().zip(&mut rounded.streams) {
        match (node.role, node.scalar) {
            (Role::Values, Scalar::F32) if bits < 23 => {
                let drop = 23 - bits as u32;
                stream
                    .values_mut::<u32>()
                    .iter_mut()
                    .for_each(|value| *value = round_to(u64::from(*value), drop, 23, 8) as u32);
            }
            (Role::Values, Scalar::F64) if bits < 52 => {
                let drop = 52 - bits as u32;
                stream.values_mut::<u64>().iter_mut().for_each(|value| *value = round_to(*value, drop, 52, 11));
            }
            _ => {}
        }
    }
    Ok(rounded)
}

/// A value without this many of its low bits. What is infinite or no number stays; what would round to infinity is cut instead.
fn round_to(value: u64, drop: u32, mantissa: u32, exponent: u32) -> u64 {
    let special = ((1_u64 << exponent) - 1) << mantissa;
    if value & special == special {
        return value;
    }
    let mask = (1_u64 << drop) - 1;
    let half = (mask >> 1) + (value >> drop & 1);
    let rounded = (value + half) & !mask;
    if rounded & special == special { value & !mask } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_to_the_nearest_with_ties_to_even() {
        let values = vec![1.0_f32, 1.1, -1.1, f32::NAN, f32::INFINITY, f32::MAX, 0.0, -0.0];
        let rounded = round(&Array::values(Scalar::F32, values.clone()), 8).unwrap();
        for (was, is) in values.iter().zip(rounded.streams[0].values::<f32>()) {
            let same = was.to_bits() == is.to_bits();
            assert!(same || (was - is).abs() <= was.abs() / 512.0 || *was == f32::MAX && is.is_finite(), "{was} {is}");
            assert!(was.is_nan() || is.to_bits().trailing_zeros() >= 15 || is.is_infinite());
        }
        assert_eq!(round_to(0b1_0100, 3, 52, 11), 0b1_0000, "a tie goes to even");
        assert_eq!(round_to(0b1_1100, 3, 52, 11), 0b10_0000);
        assert!(round(&Array::values(Scalar::U8, vec![1_u8]), 8).is_err());
    }
}
