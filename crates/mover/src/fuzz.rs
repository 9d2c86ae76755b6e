//! Decoders as the fuzz target `archive` calls them, for it alone. What it has no checksums for is made here.

use crate::framed;
use crate::manifest::{Manifest, VERSION, WORD};
use crate::object::{EVENT_HEAD_BYTES, HEAD_BYTES, Object, TRAILER_BYTES, piece_of};
use bytes::Bytes;
use forebay_core::crc32c;

/// An object as it is stored: what opens is read whole, and says what is wrong.
pub fn object(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let read = |range| piece_of(&bytes, range);
    let Ok(object) = Object::open(bytes.len() as u64, &read) else { return };
    assert_eq!(object.events.len() as u64, object.contents.events);
    if let Ok(contents) = object.verify(&read) {
        assert_eq!(contents, object.contents);
        assert!(contents.payload_bytes <= bytes.len() as u64, "no byte is of two fragments");
    }
}

/// An object below its checksums: those of head, metas, directory and trailer are made right where their bytes lie in it.
pub fn unsealed_object(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    seal_object(&mut sealed);
    object(&sealed);
}

fn seal_object(object: &mut [u8]) -> Option<()> {
    let word = |object: &[u8], at: usize| Some(u32::from_le_bytes(object.get(at..at + 4)?.try_into().ok()?));
    let long = |object: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(object.get(at..at.checked_add(8)?)?.try_into().ok()?)).ok()
    };
    let json = word(object, 12)? as usize;
    let crc = crc32c(object.get(HEAD_BYTES..HEAD_BYTES.checked_add(json)?)?);
    object.get_mut(16..20)?.copy_from_slice(&crc.to_le_bytes());
    let trailer = object.len().checked_sub(TRAILER_BYTES)?;
    let (offset, length) = (long(object, trailer + 16)?, long(object, trailer + 24)?);
    let width = usize::from(u16::from_le_bytes(object.get(trailer + 36..trailer + 38)?.try_into().ok()?));
    let directory = object.get(offset..offset.checked_add(length)?)?.to_vec();
    for entry in directory.chunks_exact(20 + width) {
        let (at, meta) = (long(entry, 0)?, word(entry, 16)? as usize);
        let body = at.checked_add(EVENT_HEAD_BYTES)?;
        let crc = crc32c(object.get(body..body.checked_add(meta)?)?);
        object.get_mut(at + 4..at + 8)?.copy_from_slice(&crc.to_le_bytes());
    }
    object.get_mut(trailer + 32..trailer + 36)?.copy_from_slice(&crc32c(&directory).to_le_bytes());
    let crc = crc32c(&object[trailer + 16..]);
    object.get_mut(trailer + 12..trailer + 16)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

/// A manifest as it is stored: what is accepted can be written again.
pub fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes, 7) else { return };
    let again = manifest.encode().and_then(|bytes| Manifest::decode(&bytes, 7));
    assert_eq!(again.ok(), Some(manifest));
}

/// The JSON of a manifest, below its line.
pub fn manifest_json(json: &[u8]) {
    manifest(&framed::encode(WORD, VERSION, json));
}
