//! Every encoding gives every bit back, and damage is an error.

use super::choose::{ALL_CHOICES, encode_as};
use super::*;
use proptest::prelude::*;

/// Bytes back from bytes, for any encoder.
fn decoded(scalar: Scalar, encoded: &[u8], len: usize) -> Result<Vec<u8>, Damaged> {
    let mut out = vec![0xaa; len];
    decode(scalar, encoded, &mut out).map(|()| out)
}

/// All encodings that apply give the values back, in stripes after one another too.
fn check(scalar: Scalar, values: &[u8]) {
    // The best effort takes long, and differs in levels of zstd only.
    let efforts = if values.len() < 2500 { &[Effort::Default, Effort::Best][..] } else { &[Effort::Default] };
    for &effort in efforts {
        let mut coder = Coder::default();
        for _ in 0..2 {
            let encoded = coder.encode(scalar, values, effort);
            assert_eq!(decoded(scalar, &encoded, values.len()).as_deref(), Ok(values), "{scalar:?} {effort:?}");
            assert!(encoded.len() <= values.len() + 1);
        }
    }
    for choice in ALL_CHOICES {
        if let Some(encoded) = encode_as(choice, scalar, values) {
            assert_eq!(decoded(scalar, &encoded, values.len()).as_deref(), Ok(values), "{scalar:?} {choice:?}");
        }
    }
}

/// Values of a kind from words; few bits of them where `mask` says so.
fn values_of(scalar: Scalar, words: impl Iterator<Item = u64>) -> Vec<u8> {
    let word = |word: u64| if scalar == Scalar::Bool { word & 1 } else { word };
    words.flat_map(|value| word(value).to_le_bytes().into_iter().take(scalar.width())).collect()
}

/// Pseudo-random words.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Streams as they occur: of each kind, all shapes that an encoding is for.
fn shapes(scalar: Scalar, count: usize) -> Vec<Vec<u8>> {
    let bits = scalar.width() as u32 * 8;
    let shapes: [fn(u64, u64, u32) -> u64; 10] = [
        |at, random, _| (at - random % 3 % (at + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        |_, random, _| random,
        |_, random, bits| random >> (random % u64::from(bits)) as u32,
        |at, _, _| at,
        |at, random, _| 1_000_000 + at * 3 + random % 3,
        |_, random, _| (random % 3).wrapping_sub(1),
        |at, random, _| if at % 50 == 7 { random } else { 0 },
        |_, random, bits| (random >> 7) << (bits / 2),
        |_, random, bits| [1 << (bits - 1), 0, u64::MAX, 1, u64::MAX << (bits - 2)][(random % 5) as usize],
        |_, random, _| f64::to_bits(((random >> 40) as f64).ln()),
    ];
    let mut random = random(u64::from(scalar.code()) << 32 | count as u64);
    let mut all: Vec<Vec<u8>> =
        shapes.map(|shape| values_of(scalar, (0..count as u64).map(|at| shape(at, random(), bits)))).into();
    // Floats that are floats: normal ones of both signs, cut to some bits.
    let float = |random: u64, at: u64| {
        let value = ((random >> 11) as f64 / (1_u64 << 53) as f64 - 0.3) * 50.0 + (at % 5) as f64;
        match scalar {
            Scalar::F64 => (value as f32 as f64).to_bits(),
            _ => u64::from((value as f32).to_bits() & 0xffff_f800),
        }
    };
    all.push(values_of(scalar, (0..count as u64).map(|at| float(random(), at))));
    all
}

#[test]
fn all_kinds_and_lengths() {
    for scalar in Scalar::ALL {
        for count in (0..70).chain((70..300).step_by(11)).chain([254, 255, 256, 257, 258, 259, 260, 300, 511, 1000]) {
            shapes(scalar, count).iter().for_each(|values| check(scalar, values));
        }
    }
}

#[test]
fn long_stripes() {
    for scalar in [Scalar::U8, Scalar::F16, Scalar::I32, Scalar::F32, Scalar::U64, Scalar::F64] {
        shapes(scalar, 20_001).iter().for_each(|values| check(scalar, values));
    }
}

#[test]
fn special_floats() {
    let singles =
        [f32::NAN, -f32::NAN, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-45, -1e-45, 1.5];
    let payloads = [0x7f80_0001, 0xff80_0001, 0x7fc1_2345, 0xffff_ffff];
    let bits: Vec<u32> = singles.iter().map(|value| value.to_bits()).chain(payloads).collect();
    check(Scalar::F32, &bits.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<_>>());
    let doubles = bits.iter().map(|&bits| u64::from(bits) << 32 | 1).chain([0x7ff0_0000_0000_0001, 1 << 63, 0, 1]);
    check(Scalar::F64, &doubles.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
    check(Scalar::F16, &(0..=u16::MAX).flat_map(u16::to_le_bytes).collect::<Vec<_>>());
}

#[test]
fn small_streams_take_few_bytes() {
    let encode = |scalar, values: &[u8]| Coder::default().encode(scalar, values, Effort::Default).len();
    assert_eq!(encode(Scalar::F32, &[]), 0);
    assert_eq!(encode(Scalar::F64, &[0; 8000]), 1);
    assert_eq!(encode(Scalar::I32, &7_i32.to_le_bytes().repeat(1000)), 2);
    let flags: Vec<u8> = (0..1000).map(|at| u8::from(at == 500)).collect();
    assert!(encode(Scalar::Bool, &flags) < 24);
}

#[test]
fn a_coder_chooses_again_when_the_values_change() {
    let mut coder = Coder::default();
    let ids = values_of(Scalar::U64, (0..2000).map(|at| 5_000_000_000 + at));
    let mut noise = random(3);
    let noise = values_of(Scalar::U64, (0..2000).map(|_| noise() >> 20));
    let few = coder.encode(Scalar::U64, &ids, Effort::Default).len();
    assert!(coder.encode(Scalar::U64, &noise, Effort::Default).len() < 2000 * 6);
    assert_eq!(coder.encode(Scalar::U64, &ids, Effort::Default).len(), few);
}

#[test]
fn a_bool_is_0_or_1() {
    let encoded = Coder::default().encode(Scalar::Bool, &[0, 1, 7], Effort::Default);
    assert_eq!(decoded(Scalar::Bool, &encoded, 3), Ok(vec![0, 1, 1]));
    assert!(decoded(Scalar::Bool, &[encoding::RAW, 2], 1).is_err());
}

/// Each truncation and each changed byte decodes to something or is an error.
fn damage(scalar: Scalar, encoded: &[u8], len: usize) {
    for cut in 0..encoded.len() {
        let _ = decoded(scalar, &encoded[..cut], len);
    }
    let mut damaged = encoded.to_vec();
    for at in 0..encoded.len() {
        for flip in [1, 0x10, 0x80, 0xff] {
            damaged[at] = encoded[at] ^ flip;
            let _ = decoded(scalar, &damaged, len);
        }
        damaged[at] = encoded[at];
    }
    // For other lengths and kinds too.
    let width = scalar.width();
    for len in [0, width, len.saturating_sub(width), len + width, len * 2 + width * 300] {
        let _ = decoded(scalar, encoded, len);
    }
    for other in Scalar::ALL {
        let _ = decoded(other, encoded, len / width * other.width());
    }
}

#[test]
fn damage_is_found_or_harmless() {
    for scalar in Scalar::ALL {
        for count in [1, 2, 5, 40, 300, 900] {
            for values in shapes(scalar, count) {
                for choice in ALL_CHOICES {
                    if let Some(encoded) = encode_as(choice, scalar, &values)
                        && encoded.len() < 700
                    {
                        damage(scalar, &encoded, values.len());
                    }
                }
            }
        }
    }
}

#[test]
fn rows_of_bools_come_back() {
    let mut random = random(1);
    for (rows, count) in [(0, 0), (1, 0), (3, 1), (5, 7), (9, 64), (300, 65), (700, 130)] {
        let rows: Vec<Vec<u8>> = (0..rows)
            .map(|row| (0..count).map(|at| u8::from((at + row) % 7 == 0 || random().is_multiple_of(20))).collect())
            .collect();
        let borrowed: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        for effort in [Effort::Default, Effort::Best] {
            let encoded = encode_bools(&borrowed, effort);
            let decode = |encoded: &[u8]| {
                let mut out = vec![vec![9; count]; rows.len()];
                let mut borrowed: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                decode_bools(encoded, &mut borrowed).map(|()| out)
            };
            assert_eq!(decode(&encoded).as_ref(), Ok(&rows));
            for at in 0..encoded.len().min(300) {
                let _ = decode(&encoded[..at]);
                let mut damaged = encoded.clone();
                damaged[at] ^= 0x41;
                let _ = decode(&damaged);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_values_come_back(code in 0_u8..12, words in proptest::collection::vec(any::<u64>(), 0..400), bits in 1_u32..65) {
        let scalar = Scalar::of_code(code).unwrap();
        check(scalar, &values_of(scalar, words.iter().map(|word| word >> (64 - bits))));
    }

    #[test]
    fn any_bytes_are_harmless(code in 0_u8..12, first in any::<u8>(), bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0_usize..600) {
        let scalar = Scalar::of_code(code).unwrap();
        let _ = decoded(scalar, &bytes, count * scalar.width());
        let _ = decoded(scalar, &[&[first], &bytes[..]].concat(), count * scalar.width());
    }
}
