//! Every type and every size, bit for bit.

use super::{Folder, assert_reads, events, open, product, small, write};
use forebay_dataset::{Array, Buffer, Product, Role, Scalar, Type, WriteOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Random values of a type.
pub(crate) fn random(ty: &str, events: u64, seed: u64) -> (Product, Array) {
    let mut rng = StdRng::seed_from_u64(seed);
    let ty = Type::parse(ty).unwrap();
    let nodes = ty.nodes();
    let mut below = vec![0_u64; nodes.len()];
    let mut streams = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let n = node.parent.map_or(events, |parent| below[parent]) * node.times;
        let stream: Buffer = match node.role {
            Role::Counts => {
                let counts: Vec<u32> = (0..n).map(|_| rng.random_range(0..5)).collect();
                below[at] = counts.iter().map(|&n| u64::from(n)).sum();
                counts.into()
            }
            Role::Present => {
                let flags: Vec<u8> = (0..n).map(|_| u8::from(rng.random_bool(0.6))).collect();
                below[at] = flags.iter().map(|&flag| u64::from(flag)).sum();
                flags.into()
            }
            Role::Values if node.scalar == Scalar::Bool => {
                (0..n).map(|_| rng.random_range(0..2_u8)).collect::<Vec<u8>>().into()
            }
            Role::Values => {
                let bytes: Vec<u8> = (0..n * node.scalar.width() as u64).map(|_| rng.random()).collect();
                Buffer::of(&bytes)
            }
        };
        streams.push(stream);
    }
    let array = Array { ty: ty.clone(), events, streams };
    array.check().unwrap();
    (product(&format!("{ty}"), &format!("{ty}")), array)
}

const TYPES: [&str; 17] = [
    "bool",
    "int8",
    "uint16",
    "int64",
    "float16",
    "float64",
    "text",
    "bytes",
    "list(float32)",
    "list(list(int16))",
    "list(bool)",
    "option(float32)",
    "option(list(text))",
    "list(option(uint8))",
    "fixed(3,float32)",
    "list(fixed(2,list(int32)))",
    "record(\"a\":list(float32),\"b\":record(\"c\":text,\"d\":option(bool)))",
];

#[test]
fn every_type_is_read_as_it_was_written() {
    for events in [1, 100, 256, 700] {
        let folder = Folder::new(&format!("types-{events}"));
        let columns: Vec<_> = (0..).zip(TYPES).map(|(seed, ty)| random(ty, events, seed)).collect();
        write(&folder.url(), &columns, small());
        assert_reads(&open(&folder.url()), &columns);
    }
}

#[test]
fn events_pushed_in_pieces_are_the_same_dataset() {
    let folder = Folder::new("pieces");
    let columns = events(0, 1000);
    let mut writer = forebay_dataset::Writer::create(&folder.url(), small()).unwrap();
    for range in [0..1, 1..300, 300..300, 300..999, 999..1000] {
        let part: Vec<_> =
            columns.iter().map(|(product, array)| (product.clone(), array.slice(range.clone()))).collect();
        writer.push("Events", &part).unwrap();
    }
    writer.commit("in pieces").unwrap();
    let dataset = open(&folder.url());
    assert_reads(&dataset, &columns);
    assert_eq!(dataset.batches("Events").unwrap(), [0..256, 256..512, 512..768, 768..1000]);
}

#[test]
fn large_columns_are_cut_into_stripes_and_a_part_reads_only_its_own() {
    let folder = Folder::new("stripes");
    let columns = [random("list(float64)", 4096, 5), random("float64", 4096, 6)];
    write(
        &folder.url(),
        &columns,
        WriteOptions { batch_events: Some(4096), target_bytes: 8192, ..WriteOptions::default() },
    );
    assert_reads(&open(&folder.url()), &columns);
    let dataset = open(&folder.url());
    dataset.read("Events", &["float64"], 0..1).unwrap();
    let read = dataset.traffic().bytes_read;
    assert!(read < 4096 * 8 / 2, "{read} bytes for one event of a column of 32 KiB");
}

#[test]
fn tables_beside_events_have_their_own_length() {
    let folder = Folder::new("tables");
    let mut writer = forebay_dataset::Writer::create(&folder.url(), small()).unwrap();
    let (main, runs) = (events(0, 300), [random("uint32", 7, 1), random("text", 7, 2)]);
    let none = [random("list(float32)", 0, 3)];
    writer.push("Events", &main).unwrap();
    writer.push("Runs", &runs).unwrap();
    writer.push("Empty", &none).unwrap();
    writer.commit("tables").unwrap();
    let dataset = open(&folder.url());
    assert_eq!(dataset.tables(), ["Events", "Runs", "Empty"]);
    assert_reads(&dataset, &main);
    assert_eq!(dataset.read("Runs", &["text"], 0..7).unwrap()[0].to_array(), runs[1].1);
    assert_eq!(dataset.products("Empty").unwrap()[0].name, "list(float32)");
    assert_eq!(dataset.read("Empty", &["list(float32)"], 0..0).unwrap()[0].events, 0);
}

#[test]
fn a_missing_column_names_what_is_near() {
    let folder = Folder::new("near");
    write(&folder.url(), &events(0, 10), small());
    let error = open(&folder.url()).read("Events", &["muon_pt"], 0..1).unwrap_err();
    assert!(error.to_string().contains("Muon_pt"), "{error}");
    assert!(open(&folder.url()).read("Events", &["event"], 0..11).is_err());
    assert!(open(&folder.url()).read("Evnts", &["event"], 0..1).is_err());
}

#[test]
fn a_column_of_a_collection_takes_three_requests_and_its_own_bytes() {
    let folder = Folder::new("requests");
    let columns = events(0, 5000);
    write(&folder.url(), &columns, WriteOptions { batch_events: Some(8192), ..WriteOptions::default() });
    let dataset = open(&folder.url());
    let before = dataset.traffic();
    dataset.read("Events", &["Muon_pt"], 0..5000).unwrap();
    let after = dataset.traffic();
    assert!(after.reads - before.reads <= 3, "{} requests", after.reads - before.reads);
    let names = ["Muon_pt", "nMuon"];
    let products = dataset.products("Events").unwrap();
    let bytes: u64 = (products.iter().zip(dataset.stored_bytes("Events").unwrap()))
        .filter(|(product, _)| names.contains(&product.name.as_str()))
        .map(|(_, bytes)| bytes)
        .sum();
    let read = after.bytes_read - before.bytes_read;
    assert!(read <= bytes * 11 / 10 + 1000, "{read} bytes read of {bytes}");
}
