//! Recording while the disk fills: real file systems of a size, which need root to be mounted.

use super::{SPAN, TempDir, config, link_config, paths, push, read_all, record, settle};
use forebay_core::Kind;
use forebay_recorder::{GapReason, Recording, WarmDir};
use forebay_testkit::Mounted;
use std::path::Path;

fn mounted(at: &Path, kib: u32) -> Mounted {
    Mounted::new(at, &format!("size={kib}k,mode=0755"))
}

#[test]
fn a_file_system_without_the_room_is_refused_and_left_clean() {
    let temp = TempDir::new();
    let mounted = mounted(&temp.path().join("small"), 2048);
    let dirs = [WarmDir { path: mounted.path().to_owned(), bytes: 8 << 20 }];
    let error = Recording::create(&dirs, config()).unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    let left: Vec<String> = std::fs::read_dir(mounted.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "device.lock")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // What fits is made in the same place.
    let dirs = [WarmDir { path: mounted.path().to_owned(), bytes: 1 << 20 }];
    let recording = Recording::create(&dirs, config()).unwrap();
    let (produced, manifest) = record(&recording, 1, 200);
    drop(recording);
    settle(&manifest, &produced, &read_all(&Recording::open(&paths(&dirs), false).unwrap()));
}

#[test]
fn links_that_outgrow_their_containers_are_told_from_which_tick_on() {
    let temp = TempDir::new();
    let mounted = mounted(&temp.path().join("small"), 4096);
    let dirs = [WarmDir { path: mounted.path().to_owned(), bytes: 2 << 20 }];
    let recording = Recording::create(&dirs, config()).unwrap();
    let mut links = recording.links(vec![link_config(0), link_config(1)]).unwrap();
    // The file system fills to its last byte meanwhile: what the recording needs at its end is its own already.
    let mut filler = 0;
    while std::fs::write(mounted.path().join(format!("filler-{filler}")), [1; 4096]).is_ok() {
        filler += 1;
    }
    let mut produced = Vec::new();
    for tick in (0..3000).map(|at| at * u64::from(SPAN)) {
        for link in &mut links {
            push(link, tick);
            produced.push((link.number(), tick));
        }
    }
    drop(links);
    let manifest = recording.finish().unwrap();
    drop(recording);
    assert!(manifest.totals.recorded > 1000 && manifest.totals.missed > 1000, "{:?}", manifest.totals);
    for link in &manifest.links {
        assert_eq!(link.missed_by.keys().collect::<Vec<_>>(), [&GapReason::DiskFull]);
        assert_eq!(link.gaps.last().unwrap().end, 3000 * u64::from(SPAN));
    }
    let failure = manifest.devices[0].failure.as_ref().unwrap();
    assert!(failure.starts_with("disk full"), "{failure}");
    assert!(mounted.path().join("manifest.json").is_file());
    settle(&manifest, &produced, &read_all(&Recording::open(&paths(&dirs), false).unwrap()));
}

#[test]
fn a_full_device_leaves_its_links_to_one_that_has_room() {
    let temp = TempDir::new();
    let mut dirs = super::dirs(&temp, 2, 8 << 20);
    dirs[0].bytes = 1 << 20;
    let recording = Recording::create(&dirs, config()).unwrap();
    let (produced, manifest) = record(&recording, 2, 2000);
    drop(recording);
    assert!(manifest.is_complete(), "{:?}", manifest.totals);
    assert!(manifest.devices[0].failure.as_ref().unwrap().starts_with("disk full"));
    settle(&manifest, &produced, &read_all(&Recording::open(&paths(&dirs), false).unwrap()));
}
