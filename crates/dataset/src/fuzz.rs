//! Decoders as the fuzz target `dataset` calls them, for it alone. What it has no magic, checksum or compression for is made here.

use crate::directory::{self, Directory};
use crate::frame::{self, Magic};
use crate::read::TableView;
use crate::root::Root;
use crate::write::{Alive, Writers, decode_writers};

/// An object as it is stored, of any kind.
pub fn object(bytes: &[u8]) {
    check_root(bytes);
    if let Ok(directories) = directory::unbundle(bytes, &"fuzz") {
        for directory in directories {
            check_directory(directory);
        }
    }
    check_writers(bytes);
}

/// The JSON of a root, below its frame and its compression.
pub fn root(json: &[u8]) {
    if let Ok(body) = frame::deflate(json, 1) {
        check_root(&frame::framed(Magic::Root, &body));
    }
}

/// The bytes of a directory, below its compression.
pub fn directory(body: &[u8]) {
    if let Ok(body) = frame::deflate(body, 1) {
        check_directory(&body);
        let object = directory::bundle(&[body]);
        assert_eq!(directory::unbundle(&object, &"fuzz").map_or(0, |directories| directories.len()), 1);
    }
}

/// The JSON of a list of writers, or of a heartbeat.
pub fn writers(json: &[u8]) {
    check_writers(&frame::framed(Magic::Writers, json));
}

fn check_writers(object: &[u8]) {
    let _ = decode_writers::<Writers>(object, "fuzz");
    let _ = decode_writers::<Alive>(object, "fuzz");
}

/// A root that is accepted can be written again, and every table of every version either opens or says why not.
fn check_root(object: &[u8]) {
    let Ok(root) = Root::decode(object, "fuzz") else { return };
    let again = root.encode().and_then(|again| Root::decode(&again, "fuzz"));
    // Not the facts: the last bit of a number may differ in JSON.
    assert_eq!(again.map(|again| format!("{:?}", again.layers)).ok(), Some(format!("{:?}", root.layers)));
    for version in &root.versions {
        for (state, name) in version.tables.iter().zip(&root.tables) {
            if let Ok(view) = TableView::new(&root, state, name) {
                assert_eq!(view.batches().len() as u32, state.batches);
                for layer in &view.layers {
                    let first = layer.first_entries(view.events());
                    assert!(first.is_sorted());
                }
            }
        }
    }
}

/// A directory that is accepted says the same when it is written again.
fn check_directory(bytes: &[u8]) {
    // The number of entries is the layer's: any that is not too large.
    for entries in 0..40 {
        if let Ok(directory) = Directory::decode(bytes, entries, &"fuzz") {
            let again = directory.encode().and_then(|again| Directory::decode(&again, entries, &"fuzz"));
            assert_eq!(again.ok(), Some(directory));
        }
    }
}
