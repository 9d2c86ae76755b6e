//! Keys as Redis's clients write them: `run/event/source`, each part decimal, leading zeros or not, or `0x…`.

use forebay_core::limits::SUB_KEYS_MAX;
use forebay_core::{Error, Key, KeySchema, Primary, Result};

/// Longest text of a key that is looked at.
const TEXT_BYTES_MAX: usize = 512;

/// A fragment's key.
///
/// # Errors
/// `Invalid`, naming the part that is wrong.
#[inline]
pub(super) fn key(schema: &KeySchema, text: &[u8]) -> Result<Key> {
    let mut values = [0; SUB_KEYS_MAX];
    match numbers(text, &mut values) {
        Some(count) if count == schema.sub_keys().len() => schema.key(&values[..count]),
        // Hexadecimal parts, and everything that is wrong: this way names the part in its error.
        _ => schema.parse_key(utf8(text)?),
    }
}

/// An event's name.
///
/// # Errors
/// `Invalid`, naming the part that is wrong.
pub(super) fn primary(schema: &KeySchema, text: &[u8]) -> Result<Primary> {
    schema.parse_primary(utf8(text)?)
}

/// Decimal numbers between slashes; `None` for anything else.
#[inline]
fn numbers(text: &[u8], values: &mut [u64; SUB_KEYS_MAX]) -> Option<usize> {
    let (mut count, mut value, mut digits) = (0, 0_u64, 0);
    for &byte in text {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                digits += 1;
            }
            b'/' if digits > 0 => {
                *values.get_mut(count)? = value;
                (count, value, digits) = (count + 1, 0, 0);
            }
            _ => return None,
        }
    }
    *values.get_mut(count)? = value;
    (digits > 0).then_some(count + 1)
}

/// Text, for the slow way.
///
/// # Errors
/// `Invalid` for bytes that are none, and for too many of them.
pub(super) fn utf8(text: &[u8]) -> Result<&str> {
    // Cut before it is looked at: a value that was sent as a key may have megabytes, and errors show it.
    let short = &text[..text.len().min(TEXT_BYTES_MAX)];
    let wrong = || Error::invalid(format!("`{}…` is no text of at most {TEXT_BYTES_MAX} bytes", lossy(short)));
    if short.len() < text.len() { Err(wrong()) } else { std::str::from_utf8(text).map_err(|_| wrong()) }
}

/// What can be shown of bytes that came from outside.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    #[test]
    fn the_fast_way_reads_what_the_slow_one_does() {
        let schema = KeySchema::run_event_source();
        for text in ["1/42/3", "0/0/0", "1/000000000042/3", "4294967295/18446744073709551615/4294967295", "0x1/0x2a/3"]
        {
            assert_eq!(key(&schema, text.as_bytes()).unwrap(), schema.parse_key(text).unwrap(), "{text}");
        }
        assert_eq!(key(&schema, b"1/42/3").unwrap(), key(&schema, b"01/0042/3").unwrap());
        for text in [
            "",
            "1",
            "1/2",
            "1/2/3/4",
            "1//3",
            "/1/2",
            "1/2/",
            "1/2/+3",
            "a/b/c",
            "1/18446744073709551616/1",
            "4294967296/1/1",
        ] {
            assert_eq!(key(&schema, text.as_bytes()).unwrap_err().kind(), Kind::Invalid, "{text}");
        }
        for bytes in [&b"1/2/\xFF"[..], &[b'1'; 600], &[b'/'; 40]] {
            assert_eq!(key(&schema, bytes).unwrap_err().kind(), Kind::Invalid);
        }
    }
}
