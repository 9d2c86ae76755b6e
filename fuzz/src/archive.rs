//! Fuzzes what opens an archive: objects and manifests, as stored, and below their checksums.

use forebay_mover::fuzz;

pub(crate) fn target(bytes: &[u8]) {
    // The first byte says what the others are.
    let Some((&what, bytes)) = bytes.split_first() else { return };
    match what % 4 {
        0 => fuzz::object(bytes),
        1 => fuzz::unsealed_object(bytes),
        2 => fuzz::manifest(bytes),
        _ => fuzz::manifest_json(bytes),
    }
}
