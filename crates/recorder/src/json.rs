//! Files of a recording in JSON with a checksum, written so that a reader finds the old one or the new one, whole.
//!
//! ```text
//! { "format": …, "version": 1, … members …            ┐ the checksum is over these bytes
//! ,                                                   ┘
//!   "crc32c": "1a2b3c4d" }
//! ```
//!
//! *On failure*: a file that was cut, changed or is of another format or version is `Corrupt` or `Invalid`, never read in
//! part.

use super::limits::MANIFEST_BYTES_MAX;
use forebay_core::{Error, Result, crc32c};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Ends the bytes that the checksum is over.
const SEAM: &str = "\n,\"crc32c\": \"";
/// Ends the file.
const END: &str = "\"}\n";
/// Version of the formats.
const VERSION: u64 = 1;

/// The bytes of a file.
pub(super) fn encode(format: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let wrong = |error| Error::internal(format!("{format} to JSON")).with_source(error);
    let body = serde_json::to_string_pretty(value).map_err(wrong)?;
    // The checksum line is put in by hand, behind what it covers: no JSON library keeps the bytes that it has read.
    // The body is an object with members: it begins with `{\n` and ends with `\n}`.
    let members = body.strip_prefix('{').and_then(|body| body.strip_suffix("\n}"));
    let members = members.ok_or_else(|| Error::internal(format!("{format} to JSON: not an object")))?;
    let mut text = format!("{{\n  \"format\": \"{format}\",\n  \"version\": {VERSION},{members}");
    // Over the text, not the values: what a person reads is what was compared.
    let crc = crc32c(text.as_bytes());
    text.push_str(SEAM);
    text.push_str(&format!("{crc:08x}"));
    text.push_str(END);
    Ok(text.into_bytes())
}

/// What the bytes of a file say.
///
/// # Errors
/// `Corrupt` where the checksum is not that of the bytes, or there is none; `Invalid` for another format or version.
pub(super) fn decode<T: DeserializeOwned>(format: &str, bytes: &[u8]) -> Result<T> {
    let cut = || Error::corrupt(format!("{format}: cut short or changed, its checksum line is missing"));
    let text = std::str::from_utf8(bytes).map_err(|_| cut())?;
    let (members, end) = text.rsplit_once(SEAM).ok_or_else(cut)?;
    let stored = end.strip_suffix(END).filter(|crc| crc.len() == 8).ok_or_else(cut)?;
    let found = format!("{:08x}", crc32c(members.as_bytes()));
    // Before the text is parsed: what a cut or a flipped bit made of it must not be taken for another format.
    if found != stored {
        return Err(Error::corrupt(format!("{format}: checksum {found} of the content, stored is {stored}")));
    }
    let wrong = |error| Error::invalid(format!("{format}: not what it should be")).with_source(error);
    let value: serde_json::Value = serde_json::from_str(&format!("{members}\n}}")).map_err(wrong)?;
    let (name, version) = (value["format"].as_str().unwrap_or_default(), value["version"].as_u64());
    if name != format || version != Some(VERSION) {
        return Err(Error::invalid(format!(
            "format `{name}` version {}: expected `{format}` version {VERSION}",
            version.map_or_else(|| "none".to_owned(), |version| version.to_string())
        )));
    }
    serde_json::from_value(value).map_err(wrong)
}

/// Reads a file; `None` if it does not exist.
///
/// # Errors
/// As [`decode`], with the file's name; `Unavailable` where it cannot be read.
pub(super) fn read<T: DeserializeOwned>(path: &Path, format: &str) -> Result<Option<T>> {
    let unreadable = |error| Error::unavailable(format!("cannot read {}", path.display())).with_source(error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    // Bounded: a directory may hold anything, and this file is read before anything in it was verified.
    file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(Error::invalid(format!("{}: longer than {MANIFEST_BYTES_MAX} bytes", path.display())));
    }
    let named = |error: Error| Error::new(error.kind(), format!("{}: {}", path.display(), error.message()));
    decode(format, &bytes).map(Some).map_err(named)
}

/// Allocates room for a file to come under its temporary name, so that a full disk cannot keep it from being written.
pub(super) fn reserve(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(temporary(path))?;
    Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

/// Writes a file whole and durably: under a temporary name, synced, renamed, and the name made durable. Room that
/// [`reserve`] allocated is used.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    // Not truncated before it is written: that would give the reserved room away, and on a full disk the manifest with it.
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&temporary)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    // Synced before it has its name, and the name synced after: a reader finds the old file or the new one, whole.
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes a file, and the room that was reserved for it.
pub(super) fn remove(path: &Path) {
    for name in [path, &temporary(path)] {
        // The caller has an error to report that comes before this one.
        let _ = fs::remove_file(name);
    }
}

fn temporary(path: &Path) -> std::path::PathBuf {
    path.with_extension("json.new")
}

/// Bytes as a hexadecimal word.
pub(super) mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
            }
            _ => Err(D::Error::custom(format!("`{text}` is not a hexadecimal word of whole bytes"))),
        }
    }
}

/// Sixteen bytes as a hexadecimal word.
pub(super) mod hex16 {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        super::hex::serialize(bytes, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let bytes = super::hex::deserialize(deserializer)?;
        let length = bytes.len();
        bytes.try_into().map_err(|_| D::Error::custom(format!("{length} bytes, expected 16")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::GapManifest;
    use super::super::manifest::tests::example;
    use super::*;
    use forebay_core::Kind;

    const FORMAT: &str = "forebay-recording-manifest";

    #[test]
    fn a_manifest_reads_back() {
        let bytes = encode(FORMAT, &example()).unwrap();
        assert_eq!(decode::<GapManifest>(FORMAT, &bytes).unwrap(), example());
        // Any reader of JSON takes it.
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&value["version"], &value["links"][0]["source"]), (&1.into(), &"0007".into()));
        assert_eq!(value["links"][0]["missed_by"]["device-slow"], 2);
    }

    #[test]
    fn every_changed_or_missing_byte_is_found() {
        let bytes = encode(FORMAT, &example()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode::<GapManifest>(FORMAT, &changed).is_err(), "byte {at}");
            assert_eq!(decode::<GapManifest>(FORMAT, &bytes[..at]).unwrap_err().kind(), Kind::Corrupt, "cut at {at}");
        }
        let error = decode::<GapManifest>("another-format", &bytes).unwrap_err();
        assert!(error.message().contains("expected `another-format`"), "{error}");
    }

    #[test]
    fn a_file_is_written_whole_into_reserved_room() {
        let dir = std::env::temp_dir().join(format!("forebay-json-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("manifest.json");
        assert!(read::<GapManifest>(&path, FORMAT).unwrap().is_none());
        reserve(&path, 100_000).unwrap();
        assert_eq!(fs::metadata(temporary(&path)).unwrap().len(), 100_000);
        let bytes = encode(FORMAT, &example()).unwrap();
        write(&path, &bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert!(!temporary(&path).exists());
        // Shorter than what is there.
        write(&path, &bytes[..20]).unwrap();
        let error = read::<GapManifest>(&path, FORMAT).unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.message().contains("manifest.json"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }
}
