//! Versions: each is what it was, and a change writes only its own bytes.

use super::roundtrip::random;
use super::{Folder, assert_reads, events, open, product, small, write};
use forebay_dataset::{Array, Kind, ReadOptions, Scalar, Type, Writer, compact};

/// Bytes of all files of a dataset.
fn stored(folder: &Folder) -> u64 {
    fn below(path: &std::path::Path) -> u64 {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                if entry.file_type().unwrap().is_dir() { below(&entry.path()) } else { entry.metadata().unwrap().len() }
            })
            .sum()
    }
    below(folder.path())
}

#[test]
fn a_replaced_column_is_new_and_the_old_version_stays() {
    let folder = Folder::new("replace");
    let columns = events(0, 1000);
    write(&folder.url(), &columns, small());
    let size = stored(&folder);
    let mut changed = columns[2].clone();
    for value in changed.1.streams[1].values_mut::<f32>() {
        *value *= 1.01;
    }
    let mut writer = Writer::replace(&folder.url(), small()).unwrap();
    writer.push("Events", std::slice::from_ref(&changed)).unwrap();
    assert_eq!(writer.commit("calibration").unwrap().version, 1);
    let dataset = open(&folder.url());
    let mut new = columns.clone();
    new[2] = changed.clone();
    assert_reads(&dataset, &new);
    assert_reads(&dataset.at(0).unwrap(), &columns);
    let more = stored(&folder) - size;
    let own = changed.1.bytes() * 12 / 10 + 6000;
    assert!(more < own, "{more} bytes were written for a column of {} bytes", changed.1.bytes());
    assert_eq!(dataset.versions()[1].note, "calibration");
}

#[test]
fn an_added_column_writes_its_own_bytes_only() {
    let folder = Folder::new("add");
    let columns = events(0, 1000);
    write(&folder.url(), &columns, small());
    let added = random("option(float32)", 1000, 9);
    let mut writer = Writer::add(&folder.url(), small()).unwrap();
    for range in [0..10, 10..1000] {
        writer.push("Events", &[(added.0.clone(), added.1.slice(range))]).unwrap();
    }
    writer.commit("add").unwrap();
    let mut all = columns.clone();
    all.push(added.clone());
    assert_reads(&open(&folder.url()), &all);
    let twice = Writer::add(&folder.url(), small()).unwrap().push("Events", std::slice::from_ref(&added)).unwrap_err();
    assert_eq!(twice.kind(), Kind::Conflict);
    let mut short = Writer::add(&folder.url(), small()).unwrap();
    short.push("Events", &[(product("x", "option(float32)"), added.1.slice(0..999))]).unwrap();
    assert_eq!(short.commit("short").unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn files_with_other_columns_make_the_union() {
    let folder = Folder::new("union");
    write(&folder.url(), &events(0, 300), small());
    let mut second = events(300, 300);
    second.remove(4);
    second.remove(2);
    second.push(random("text", 300, 4));
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &second).unwrap();
    writer.commit("more").unwrap();
    let dataset = open(&folder.url());
    assert_eq!(dataset.events("Events").unwrap(), 600);
    let read = dataset.read("Events", &["HLT_Mu", "Muon_pt", "text", "event"], 200..400).unwrap();
    let bits: &[u8] = read[0].values();
    assert_eq!(bits[..100], (200..300_u64).map(|event| u8::from(event % 3 == 0)).collect::<Vec<_>>()[..]);
    assert!(bits[100..].iter().all(|&bit| bit == 0), "a bool that is missing is false");
    assert_eq!(read[1].ty, Type::parse("option(list(float32))").unwrap());
    let pt = read[1].to_array();
    pt.check().unwrap();
    assert_eq!(pt.streams[0].bytes().iter().filter(|&&flag| flag == 1).count(), 100);
    assert_eq!(read[2].parts[0].integers()[..100], [-1; 100]);
    assert_eq!(read[3].values::<u64>(), (200..400).collect::<Vec<u64>>());
    // The old version is what it was.
    assert_reads(&dataset.at(0).unwrap(), &events(0, 300));
    let mut wrong = Writer::append(&folder.url(), small()).unwrap();
    let error =
        wrong.push("Events", &[(product("event", "int32"), Array::values(Scalar::I32, vec![1_i32]))]).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("event") && error.to_string().contains("uint64"), "{error}");
}

#[test]
fn an_option_that_a_batch_lacks_is_missing_there() {
    let folder = Folder::new("lacks");
    let column = random("option(float32)", 50, 3);
    write(&folder.url(), std::slice::from_ref(&column), small());
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &events(0, 20)).unwrap();
    writer.commit("more").unwrap();
    let read = open(&folder.url()).read("Events", &["option(float32)"], 0..70).unwrap().remove(0);
    assert_eq!(read.ty, column.1.ty);
    let array = read.to_array();
    array.check().unwrap();
    assert_eq!(array.slice(0..50), column.1);
    assert!(array.streams[0].bytes()[50..].iter().all(|&flag| flag == 0));
}

#[test]
fn compacting_keeps_every_event_and_column() {
    let folder = Folder::new("compact");
    write(&folder.url(), &events(0, 300), small());
    let mut second = events(300, 300);
    second.truncate(3);
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &second).unwrap();
    writer.commit("more").unwrap();
    let names: Vec<String> = events(0, 1).iter().map(|(product, _)| product.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let before: Vec<Array> =
        open(&folder.url()).read("Events", &names, 0..600).unwrap().iter().map(|column| column.to_array()).collect();
    let mut last = (0, 0);
    compact(&folder.url(), &small(), &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (600, 600));
    let dataset = open(&folder.url());
    assert_eq!(dataset.version(), 2);
    let after: Vec<Array> =
        dataset.read("Events", &names, 0..600).unwrap().iter().map(|column| column.to_array()).collect();
    assert_eq!(before, after);
    let verified = dataset.verify(&mut |_, _| {}).unwrap();
    assert_eq!(verified.damages, []);
}

#[test]
fn two_writers_and_one_wins_the_other_goes_on() {
    let folder = Folder::new("two");
    write(&folder.url(), &events(0, 300), small());
    let mut one = Writer::append(&folder.url(), small()).unwrap();
    let mut two = Writer::append(&folder.url(), small()).unwrap();
    one.push("Events", &events(300, 300)).unwrap();
    two.push("Events", &events(600, 100)).unwrap();
    assert_eq!(one.commit("one").unwrap().version, 1);
    assert_eq!(two.commit("two").unwrap_err().kind(), Kind::Conflict);
    assert_eq!(two.commit("two").unwrap().version, 2);
    // Once committed, a repeat says the same.
    assert_eq!(two.commit("two").unwrap().version, 2);
    let read = open(&folder.url()).read("Events", &["event"], 0..700).unwrap();
    assert_eq!(read[0].values::<u64>(), (0..700).collect::<Vec<u64>>());
    let mut three = Writer::replace(&folder.url(), small()).unwrap();
    three.push("Events", &events(0, 700)[..1]).unwrap();
    let mut four = Writer::append(&folder.url(), small()).unwrap();
    four.push("Events", &events(700, 1)).unwrap();
    four.commit("four").unwrap();
    assert_eq!(three.commit("three").unwrap_err().kind(), Kind::Conflict);
    let error = three.commit("three").unwrap_err();
    assert!(error.to_string().contains("events changed"), "{error}");
}

#[test]
fn a_place_is_taken_once_and_must_have_a_dataset() {
    let folder = Folder::new("taken");
    let none = forebay_dataset::Dataset::open(&folder.url(), ReadOptions::default()).unwrap_err();
    assert_eq!(none.kind(), Kind::Invalid);
    assert_eq!(Writer::append(&folder.url(), small()).unwrap_err().kind(), Kind::Invalid);
    write(&folder.url(), &events(0, 3), small());
    assert_eq!(Writer::create(&folder.url(), small()).unwrap_err().kind(), Kind::Conflict);
    assert!(open(&folder.url()).at(1).is_err());
}
