//! Fuzzes what opens a dataset: roots, directories and lists of writers, as stored objects, and below their checksums and compression.

use forebay_dataset::fuzz;

pub(crate) fn target(bytes: &[u8]) {
    // The first byte says what the others are.
    let Some((&what, bytes)) = bytes.split_first() else { return };
    match what % 4 {
        0 => fuzz::object(bytes),
        1 => fuzz::root(bytes),
        2 => fuzz::directory(bytes),
        _ => fuzz::writers(bytes),
    }
}
