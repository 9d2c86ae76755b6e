//! Columns in other places: classes of service, and columns of another dataset. Readers notice nothing.

use super::{Folder, assert_reads, events, open, small, write};
use forebay_dataset::{Class, Kind, WriteOptions, Writer, gc, reclass, refer, storage};
use std::time::Duration;

fn place(folder: &Folder, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn objects(path: &str) -> Vec<(u64, bool)> {
    let writers = std::fs::read_dir(std::path::Path::new(path).join("w")).unwrap();
    let files = writers.flat_map(|writer| std::fs::read_dir(writer.unwrap().path()).unwrap());
    let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.unwrap().path()).unwrap();
    files.map(read).map(|bytes| (bytes.len() as u64, bytes.starts_with(b"FBDS"))).collect()
}

#[test]
fn a_class_is_a_new_version_in_its_own_place_and_cold_stripes_are_gathered() {
    let folder = Folder::new("class");
    write(&folder.url(), &events(0, 2000), small());
    let cold = Class::new("cold", &place(&folder, "tape"));
    let mut last = (0, 0);
    let columns = ["Muon_pt", "Muon_eta", "HLT_Mu"];
    reclass(&folder.url(), "Events", &columns, &cold, &small(), &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (2000, 2000));
    let dataset = open(&folder.url());
    assert_reads(&dataset, &events(0, 2000));
    assert_eq!(dataset.classes("Events").unwrap(), ["", "", "cold", "cold", "cold", ""]);
    let stripes: Vec<u64> =
        objects(&cold.url).into_iter().filter(|(_, stripes)| *stripes).map(|(bytes, _)| bytes).collect();
    assert_eq!(stripes.len(), 1, "stripes of 8 batches in {stripes:?}");
    assert_eq!(dataset.verify(&mut |_, _| {}).unwrap().damages, []);
    // The old version reads its own, also without the place of the class.
    std::fs::rename(&cold.url, place(&folder, "away")).unwrap();
    assert_reads(&open(&folder.url()).at(0).unwrap(), &events(0, 2000));
    let error = open(&folder.url()).read("Events", &["Muon_pt"], 0..1).unwrap_err();
    assert!(error.to_string().contains("tape"), "{error}");
    std::fs::rename(place(&folder, "away"), &cold.url).unwrap();
    // More events come to the dataset's own place; the class may follow without its address.
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &events(2000, 300)).unwrap();
    writer.commit("more").unwrap();
    let read = open(&folder.url()).read("Events", &["event", "Muon_pt"], 0..2300).unwrap();
    assert_eq!(read[0].values::<u64>(), (0..2300).collect::<Vec<u64>>());
    reclass(&folder.url(), "Events", &["Muon_pt"], &Class::new("cold", ""), &small(), &mut |_, _| {}).unwrap();
    let again = open(&folder.url()).read("Events", &["Muon_pt"], 0..2300).unwrap();
    assert_eq!(again[0].to_array(), read[1].to_array());
    assert_eq!(forebay_dataset::compact(&folder.url(), &small(), &mut |_, _| {}).unwrap_err().kind(), Kind::Invalid);
    let unknown = reclass(&folder.url(), "Events", &["Muon_pt"], &Class::new("fast", ""), &small(), &mut |_, _| {});
    assert_eq!(unknown.unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_column_that_some_batches_lack_keeps_lacking_there() {
    let folder = Folder::new("class-lacks");
    write(&folder.url(), &events(0, 300), small());
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &events(300, 300)[..2]).unwrap();
    writer.commit("fewer").unwrap();
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &events(600, 300)).unwrap();
    writer.commit("all again").unwrap();
    let before = open(&folder.url()).read("Events", &["Muon_pt", "HLT_Mu"], 0..900).unwrap();
    let class = Class::new("cold", &place(&folder, "tape"));
    reclass(&folder.url(), "Events", &["Muon_pt", "HLT_Mu"], &class, &small(), &mut |_, _| {}).unwrap();
    let after = open(&folder.url()).read("Events", &["Muon_pt", "HLT_Mu"], 0..900).unwrap();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.to_array(), after.to_array());
    }
}

#[test]
fn gc_of_a_dataset_looks_after_the_places_of_its_classes() {
    let folder = Folder::new("class-gc");
    write(&folder.url(), &events(0, 300), small());
    let class = Class::new("disk", &place(&folder, "disk"));
    let move_it = || reclass(&folder.url(), "Events", &["Muon_pt"], &class, &small(), &mut |_, _| {}).unwrap();
    move_it();
    let whole = objects(&class.url).len();
    // A writer for the place that dies: announced there, for the dataset that is elsewhere.
    let options = storage::Options::default();
    let elsewhere = storage::open(&class.url, &options).unwrap();
    let mut dead = Writer::on(elsewhere, small()).unwrap();
    dead.push("Events", &events(0, 300)).unwrap();
    drop(dead);
    assert!(objects(&class.url).len() > whole);
    std::thread::sleep(Duration::from_millis(5));
    let collected = gc(&folder.url(), Duration::ZERO, &options).unwrap();
    assert_eq!(collected.removed.len(), 1);
    assert_eq!(objects(&class.url).len(), whole);
    assert_reads(&open(&folder.url()), &events(0, 300));
}

#[test]
fn a_reference_copies_nothing_and_reads_the_other_dataset() {
    let folder = Folder::new("refer");
    let options = storage::Options::default();
    let (all, gen_url) = (events(0, 600), place(&folder, "gen"));
    write(&gen_url, &all, small());
    write(&folder.url(), &all[..2], small());
    assert_eq!(refer(&folder.url(), "Events", &gen_url, &["event"], &options).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(refer(&folder.url(), "Events", &gen_url, &["none"], &options).unwrap_err().kind(), Kind::Invalid);
    refer(&folder.url(), "Events", &gen_url, &["Muon_eta", "HLT_El"], &options).unwrap();
    let expected = [all[0].clone(), all[1].clone(), all[3].clone(), all[5].clone()];
    let dataset = open(&folder.url());
    assert_reads(&dataset, &expected);
    assert_eq!(dataset.products("Events").unwrap().len(), 4);
    assert_eq!(dataset.verify(&mut |_, _| {}).unwrap().damages, []);
    // Nothing of the other dataset is collected from here.
    gc(&folder.url(), Duration::ZERO, &options).unwrap();
    assert_reads(&open(&gen_url), &all);
    write(&place(&folder, "short"), &events(0, 599), small());
    assert_eq!(
        refer(&place(&folder, "short"), "Events", &gen_url, &["HLT_El"], &options).unwrap_err().kind(),
        Kind::Invalid
    );
}

#[test]
fn a_precision_is_kept_with_the_column() {
    let folder = Folder::new("precision");
    let mut columns = events(0, 600);
    columns[2].0.notes.insert("precision".into(), 10.into());
    write(&folder.url(), &columns, WriteOptions { batch_events: Some(1024), ..small() });
    let dataset = open(&folder.url());
    assert_eq!(dataset.products("Events").unwrap()[2].notes["precision"], 10);
    let read = dataset.read("Events", &["Muon_pt", "Muon_eta"], 0..600).unwrap();
    let exact: &[f32] = columns[2].1.streams[1].values();
    for (was, is) in exact.iter().zip(read[0].values::<f32>()) {
        assert!((was - is).abs() <= was.abs() / 2048.0, "{was} {is}");
        assert!(is.to_bits().trailing_zeros() >= 13);
    }
    assert_eq!(read[1].to_array(), columns[3].1, "other columns are exact");
    columns[0].0.notes.insert("precision".into(), 10.into());
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    let error = writer.push("Events", &columns).unwrap_err();
    assert!(error.to_string().contains("event"), "{error}");
}
