//! Fuzzes what opens an archive: objects and manifests, as stored, and below their checksums.
#![no_main]

use forebay_mover::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte says what the others are.
    let Some((&what, bytes)) = bytes.split_first() else { return };
    match what % 4 {
        0 => fuzz::object(bytes),
        1 => fuzz::unsealed_object(bytes),
        2 => fuzz::manifest(bytes),
        _ => fuzz::manifest_json(bytes),
    }
});
