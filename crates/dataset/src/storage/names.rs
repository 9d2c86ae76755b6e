//! Names of objects: what may be put, checked before it becomes a path of a file or a key of a bucket.

use forebay_core::{Error, Result};

/// Longest name; S3 takes 1024 bytes with the prefix.
const NAME_BYTES_MAX: usize = 512;

/// Refuses what is no name of an object: relative, of letters, digits, `-`, `_`, `.` and `/`, no part empty or with a dot
/// in front. Names with a dot in front are ours: locks, clocks and files that are being written.
pub(super) fn check(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.');
    if name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) && name.split('/').all(is_part) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} is no name of an object: it takes letters, digits, '-', '_', '.' and '/', at most {NAME_BYTES_MAX} \
         bytes, and no part that is empty or begins with '.'"
    )))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn names_stay_below_their_place() {
        for name in ["root", "a/b-1/c_2.bin", "0"] {
            check(name).unwrap();
        }
        for name in ["", "/root", "a//b", "a/", "..", "a/../b", ".lock", "a/.tmp", "a b", "a\\b", "ä", "a\0", "a?b"] {
            assert_eq!(check(name).unwrap_err().kind(), forebay_core::Kind::Invalid, "{name:?}");
        }
        check(&"a".repeat(512)).unwrap();
        check(&"a".repeat(513)).unwrap_err();
    }
}
