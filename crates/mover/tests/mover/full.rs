//! A directory that fills up, or becomes read-only, in the middle.

use crate::scene::{RUN, Scene, archive_in, options};
use forebay_core::Kind;
use forebay_mover::{Archive, Moved, MoverOptions, News};
use forebay_testkit::Mounted;
use std::time::Duration;

fn refused(scene: &Scene, archive: &Archive, words: &str) {
    let impatient = MoverOptions { patience: Duration::from_millis(300), ..options() };
    let mut heard = 0;
    let mut told = |_: &Moved, news: News<'_>| heard += u32::from(matches!(news, News::Again(_)));
    let error = scene.mover(archive, impatient).run(true, &mut told).unwrap_err();
    assert!(matches!(error.kind(), Kind::Full | Kind::Unavailable), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    // Somebody who looks on knows what is tried again, while it is.
    assert!(heard > 0 || error.to_string().contains("cannot be written"), "{error}");
    // What counts is whole, and only what was proved is let go.
    let named = archive.manifest(RUN).unwrap().unwrap_or_default();
    named.objects.iter().for_each(|object| archive.verify(RUN, object).unwrap());
    let ledger = scene.store.ledger(RUN).unwrap();
    assert_eq!(ledger.imbalance(), None);
    assert!(ledger.in_custody.events < 1000, "{ledger:?}");
}

#[test]
fn a_directory_that_is_full_or_read_only_is_gone_on_with_when_it_is_not() {
    let scene = Scene::new(true);
    scene.accept(0..1000, &["physics"]);
    scene.settle();
    let at = scene.dir.path().join("mounted");
    let disk = Mounted::new(&at, "size=1200k");
    let archive = archive_in(&at.join("archive"));
    refused(&scene, &archive, "space");
    let named = archive.manifest_there(RUN).unwrap().objects.len();
    assert!(named > 0, "something fitted");
    disk.again("ro,size=1200k");
    refused(&scene, &archive, "ead-only");
    disk.again("rw,size=64m");
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..1000);
    // What killed movers leave, and no more, is removed.
    let left = at.join(format!("archive/run-{RUN}/.physics-c0-g1-0.fba.new"));
    std::fs::write(&left, b"in the middle").unwrap();
    archive.place().remove(&archive.unnamed(Duration::ZERO).unwrap().0).unwrap();
    assert!(archive.place().clear_unfinished(Duration::from_secs(60), false).unwrap().is_empty());
    let found = archive.place().clear_unfinished(Duration::ZERO, true).unwrap();
    assert!(left.exists() && found.len() == 1, "{found:?}");
    assert_eq!(archive.place().clear_unfinished(Duration::ZERO, false).unwrap(), found);
    let files = std::fs::read_dir(at.join(format!("archive/run-{RUN}"))).unwrap();
    let names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), archive.manifest_there(RUN).unwrap().objects.len() + 1, "{names:?}");
}
