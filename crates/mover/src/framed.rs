//! JSON behind a line that says what it is, its version, its length and its checksum.

use bytes::Bytes;
use forebay_core::{Error, Result, crc32c};

/// The line and the JSON.
pub(crate) fn encode(word: &str, version: u32, json: &[u8]) -> Bytes {
    let mut bytes = format!("{word} {version} {} {:08x}\n", json.len(), crc32c(json)).into_bytes();
    bytes.extend_from_slice(json);
    bytes.into()
}

/// The JSON behind the line; errors begin with `what`.
///
/// # Errors
/// `Invalid` where it is something else or of another version, `Corrupt` where it does not verify.
pub(crate) fn decode<'a>(word: &str, version: u32, bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    let end = bytes.iter().take(128).position(|byte| *byte == b'\n');
    let line = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok()).unwrap_or_default();
    let mut words = line.split(' ');
    if words.next() != Some(word) {
        return Err(Error::invalid(format!("{what}: it is none of Forebay's")));
    }
    let there = words.next().unwrap_or_default();
    if there != version.to_string() {
        return Err(Error::invalid(format!("{what} has version {there}; this build reads version {version}")));
    }
    let length = words.next().and_then(|word| word.parse::<usize>().ok());
    let crc = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
    let json = &bytes[end.unwrap_or_default() + 1..];
    if length != Some(json.len()) || crc != Some(crc32c(json)) || words.next().is_some() {
        return Err(Error::corrupt(format!("{what} does not verify")));
    }
    Ok(json)
}
