//! The bytes of objects: every one of them counts, and those of version 1 stay readable.

use crate::scene::{RUN, Scene, options, payload};
use bytes::Bytes;
use forebay_core::{Kind, Result};
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, Contents, Object, piece_of};
use std::path::Path;

fn open(bytes: &Bytes) -> Result<(Object, Contents)> {
    let read = |range| piece_of(bytes, range);
    let object = Object::open(bytes.len() as u64, &read)?;
    let contents = object.verify(&read)?;
    Ok((object, contents))
}

#[test]
fn every_changed_byte_is_found() {
    let scene = Scene::new(true);
    scene.accept(0..3, &["calib", "physics"]);
    scene.settle();
    let archive = scene.archive();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let manifest = archive.manifest_there(RUN).unwrap();
    let (bytes, _) = archive.place().get(&manifest.objects[0].name, 1 << 20).unwrap().unwrap();
    let (object, contents) = open(&bytes).unwrap();
    assert_eq!((object.head.run, contents.events), (RUN, 3));
    let end_of_meta = |at: usize| bytes[at..].iter().take_while(|byte| **byte == 0).count();
    let mut harmless = 0;
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x10;
        if open(&changed.into()).is_ok() {
            // Padding to eight bytes, and the zeros of an event's head.
            assert!(end_of_meta(at) > 0, "byte {at} of {} says nothing", bytes.len());
            harmless += 1;
        }
    }
    assert!(harmless <= 3 * 11 + 7, "{harmless} bytes say nothing");
    for length in 0..bytes.len() {
        let error = open(&bytes.slice(..length)).unwrap_err();
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Invalid), "{length}: {error}");
    }
}

/// Written by version 1; made again with `FOREBAY_WRITE_FIXTURE=1`, which no released version needs.
#[test]
fn objects_of_version_1_are_read() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    let archive = Archive::open(fixture.to_str().unwrap(), &Options::default()).unwrap();
    if std::env::var_os("FOREBAY_WRITE_FIXTURE").is_some() {
        let scene = Scene::new(true);
        scene.accept(0..5, &["calib", "physics"]);
        scene.settle();
        std::fs::remove_dir_all(&fixture).ok();
        archive.create("").unwrap();
        scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    }
    let manifest = archive.manifest_there(RUN).unwrap();
    assert_eq!(manifest.objects.iter().map(|object| object.contents.events).sum::<u64>(), 5);
    for object in &manifest.objects {
        archive.verify(RUN, object).unwrap();
    }
    let object = archive.object(RUN, &manifest.objects[0]).unwrap();
    let primary = object.keyspace.schema.primary(&[RUN, 4]).unwrap();
    let whole = archive.event(&manifest, &primary).unwrap().unwrap();
    assert_eq!(whole.payloads[2], payload(4, 2));
    assert_eq!(whole.event.streams.len(), 2);
}
