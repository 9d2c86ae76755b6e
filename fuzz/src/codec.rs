//! Fuzzes the codec of datasets: any bytes decode or are damaged; any values come back, and are decoded after damage.

use forebay_dataset::Scalar;
use forebay_dataset::codec::{Coder, Effort, decode, decode_bools, encode_bools};

pub(crate) fn target(data: (u8, u16, u16, u8, &[u8])) {
    let (kind, count, at, with, bytes) = data;
    let scalar = Scalar::ALL[usize::from(kind) % Scalar::ALL.len()];
    let (width, count) = (scalar.width(), usize::from(count) % 2048);

    let _ = decode(scalar, bytes, &mut vec![0; count * width]);
    let mut rows = vec![vec![0; count % 40]; count / 40];
    let mut rows: Vec<&mut [u8]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
    let _ = decode_bools(bytes, &mut rows);

    let flags: Vec<u8> = bytes.iter().map(|byte| byte & 1).collect();
    let values = if scalar == Scalar::Bool { &flags[..] } else { &bytes[..bytes.len() / width * width] };
    let mut coder = Coder::default();
    for _ in 0..2 {
        let mut encoded = coder.encode(scalar, values, Effort::Default);
        let mut out = vec![1; values.len()];
        assert_eq!(decode(scalar, &encoded, &mut out), Ok(()));
        assert!(out == values);
        if !encoded.is_empty() {
            let at = usize::from(at) % encoded.len();
            encoded[at] ^= with;
            let _ = decode(scalar, &encoded, &mut out);
        }
    }

    let rows: Vec<&[u8]> = flags.chunks_exact(1 + count % 40).collect();
    let encoded = encode_bools(&rows, Effort::Default);
    let mut out = vec![vec![1; 1 + count % 40]; rows.len()];
    let mut borrowed: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    assert_eq!(decode_bools(&encoded, &mut borrowed), Ok(()));
    assert!(out == rows);
}
