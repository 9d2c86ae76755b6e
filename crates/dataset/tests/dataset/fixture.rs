//! A dataset that this version of the format wrote once, `tests/fixtures/v1`: every later program reads it.
//!
//! `FOREBAY_MAKE_FORMATS=1 cargo test -p forebay-dataset --test dataset fixture` makes it again: only with a new version of the format.

use super::{open, product};
use forebay_dataset::{Array, Dataset, Product, Scalar, Type, WriteOptions, Writer, compact};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Events of the first version, and those that the second one appends.
const FIRST: u64 = 600;
const MORE: u64 = 100;

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/v1")
}

fn options() -> WriteOptions {
    WriteOptions { batch_events: Some(256), target_bytes: 16 << 10, threads: Some(1), ..WriteOptions::default() }
}

/// Bits that look random and are the same on every machine (splitmix64).
fn bits(of: u64) -> u64 {
    let mut z = of.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Values of a type for one event, appended to its streams: what they are depends on name and event alone.
fn fill(ty: &Type, seed: u64, next: &mut usize, streams: &mut [Vec<u8>]) {
    let own = *next;
    let streams_of = |ty: &Type| ty.nodes().len();
    match ty {
        Type::Value(scalar) => {
            *next += 1;
            let value = bits(seed);
            let bytes = match scalar {
                Scalar::Bool => u64::from(value.is_multiple_of(3)).to_le_bytes(),
                // Quotients of small integers are exact everywhere.
                Scalar::F32 => u64::from(((value % 4000) as f32 / 16.0).to_bits()).to_le_bytes(),
                Scalar::F64 => ((value % 1_000_003) as f64 / 1024.0).to_le_bytes(),
                Scalar::F16 => (value % 0x7c00).to_le_bytes(),
                Scalar::I64 | Scalar::U64 => value.to_le_bytes(),
                // Few values, many values, both signs.
                _ => (value % 300).wrapping_sub(20).to_le_bytes(),
            };
            streams[own].extend_from_slice(&bytes[..scalar.width()]);
        }
        Type::Fixed(n, inner) => {
            for i in 0..u64::from(*n) {
                *next = own;
                fill(inner, bits(seed ^ i), next, streams);
            }
        }
        Type::List(inner) => several(inner, (bits(seed) % 4) as u32, seed, next, streams),
        Type::Text => several(&Type::Value(Scalar::U8), 0, seed, next, streams),
        Type::Bytes => several(&Type::Value(Scalar::U8), (bits(seed) % 40) as u32, seed, next, streams),
        Type::Option(inner) => {
            let there = !bits(seed).is_multiple_of(3);
            streams[own].push(u8::from(there));
            *next += 1;
            if there {
                fill(inner, bits(seed ^ 7), next, streams);
            }
            *next = own + 1 + streams_of(inner);
        }
        Type::Record(fields) => {
            for (i, (_, field)) in (0..).zip(fields) {
                fill(field, bits(seed ^ i << 8), next, streams);
            }
        }
    }
    if *ty == Type::Text {
        // Text has to be UTF-8: the length was 0 above.
        let text = format!("event {} µ", bits(seed) % 50);
        let at = streams[own].len() - 4;
        streams[own][at..].copy_from_slice(&(text.len() as u32).to_le_bytes());
        streams[own + 1].extend_from_slice(text.as_bytes());
    }
}

fn several(inner: &Type, n: u32, seed: u64, next: &mut usize, streams: &mut [Vec<u8>]) {
    let own = *next;
    streams[own].extend_from_slice(&n.to_le_bytes());
    for i in 0..u64::from(n) {
        *next = own + 1;
        fill(inner, bits(seed ^ i << 16 ^ 1), next, streams);
    }
    *next = own + 1 + inner.nodes().len();
}

/// Events of a column.
fn column(name: &str, ty: &str, events: std::ops::Range<u64>) -> (Product, Array) {
    let product = Product {
        title: format!("title of {name}"),
        type_name: "made".into(),
        notes: [("aliases".to_owned(), json!([format!("{name}_")]))].into(),
        ..product(name, ty)
    };
    let name = name.bytes().fold(0, |sum, byte| bits(sum ^ u64::from(byte)));
    let mut streams = vec![Vec::new(); product.ty.nodes().len()];
    let n = events.end - events.start;
    for event in events {
        fill(&product.ty, bits(name ^ event), &mut 0, &mut streams);
    }
    let streams = streams.iter().map(|bytes| forebay_dataset::Buffer::of(bytes)).collect();
    let array = Array { ty: product.ty.clone(), events: n, streams };
    array.check().unwrap();
    (product, array)
}

/// The columns that version 0 has.
fn columns(events: std::ops::Range<u64>) -> Vec<(Product, Array)> {
    let mut types: Vec<(String, String)> =
        Scalar::ALL.iter().map(|scalar| (scalar.name().to_owned(), scalar.name().to_owned())).collect();
    for (name, ty) in [
        ("trigger_a", "bool"),
        ("trigger_b", "bool"),
        ("jagged", "list(float32)"),
        ("doubly", "list(list(int16))"),
        ("fixed", "fixed(3,float64)"),
        ("fixed_jagged", "list(fixed(2,uint8))"),
        ("option", "option(float64)"),
        ("option_text", "option(text)"),
        ("text", "text"),
        ("texts", "list(text)"),
        ("opaque", "bytes"),
        ("record", "record(\"x y\":float32,\"in\":record(\"q\":int8,\"name\":text))"),
        ("records", "list(record(\"pt\":float16,\"hits\":list(uint32)))"),
        // Large enough for several stripes of a batch.
        ("large", "fixed(10,uint64)"),
    ] {
        types.push((name.to_owned(), ty.to_owned()));
    }
    let mut all: Vec<_> = types.iter().map(|(name, ty)| column(name, ty, events.clone())).collect();
    // A collection: its counts, and two columns with the same counts.
    let counts = all
        .iter()
        .find(|(product, _)| product.name == "jagged")
        .map(|(_, array)| array.streams[0].values::<u32>().to_vec());
    let counts = counts.unwrap();
    let charges = |(event, &n): (u64, &u32)| (0..u64::from(n)).map(move |i| ((event + i) % 3) as i8 - 1);
    let charges: Vec<i8> = (events.start..).zip(&counts).flat_map(charges).collect();
    all.push((product("njagged", "uint32"), Array::values(Scalar::U32, counts.clone())));
    let charge = Product { counter: "njagged".into(), ..product("charge", "list(int8)") };
    all.push((charge, Array::jagged(Scalar::I8, counts, charges)));
    all.push((
        product("constant", "float32"),
        Array::values(Scalar::F32, vec![1.5_f32; (events.end - events.start) as usize]),
    ));
    all
}

fn runs() -> (Product, Array) {
    column("run", "uint32", 0..7)
}

fn replaced() -> (Product, Array) {
    let (product, _) = column("jagged", "list(float32)", 0..0);
    (product, column("another", "list(float32)", 0..FIRST + MORE).1)
}

/// Columns that the appended events do not have.
const ABSENT: [&str; 2] = ["trigger_b", "opaque"];

fn make() {
    let url = place().display().to_string();
    let _ = std::fs::remove_dir_all(place());
    let mut writer = Writer::create(&url, options()).unwrap();
    writer.push("Events", &columns(0..FIRST)).unwrap();
    writer.push("Runs", &[runs()]).unwrap();
    writer.push("None", &[column("nothing", "list(float32)", 0..0)]).unwrap();
    writer.fact("sources", json!(["first.root"]));
    writer.commit("created").unwrap();
    let mut writer = Writer::append(&url, options()).unwrap();
    let mut more = columns(FIRST..FIRST + MORE);
    more.retain(|(product, _)| !ABSENT.contains(&product.name.as_str()));
    more.push(column("new", "uint16", FIRST..FIRST + MORE));
    writer.push("Events", &more).unwrap();
    writer.fact("sources", json!(["second.root"]));
    writer.commit("appended").unwrap();
    let mut writer = Writer::replace(&url, options()).unwrap();
    writer.push("Events", &[replaced()]).unwrap();
    writer.commit("replaced").unwrap();
    compact(&url, &options(), &mut |_, _| {}).unwrap();
    // The lock of a directory is no object.
    std::fs::remove_file(place().join(".lock")).unwrap();
}

/// Checks columns of a version that no event lacks.
fn assert_has(dataset: &Dataset, table: &str, columns: &[(Product, Array)]) {
    let products = dataset.products(table).unwrap();
    for (product, array) in columns {
        let name = &product.name;
        assert_eq!(products.iter().find(|known| known.name == *name), Some(product), "{name}");
        for events in [0..array.events, array.events / 3..array.events / 2] {
            let read = dataset.read(table, &[name], events.clone()).unwrap().remove(0).to_array();
            assert_eq!(read, array.slice(events), "{name} of version {}", dataset.version());
        }
    }
}

/// Checks columns that some events lack: the others have these values, the lacking ones are false, or absent.
fn assert_has_some(dataset: &Dataset, column: &(Product, Array), events: std::ops::Range<u64>) {
    let (name, all) = (&column.0.name, dataset.events("Events").unwrap());
    let read = dataset.read("Events", &[name], 0..all).unwrap().remove(0).to_array();
    read.check().unwrap();
    let there = |event: u64| events.contains(&event);
    if column.0.ty == Type::Value(Scalar::Bool) {
        assert_eq!(read.slice(events.clone()), column.1);
        assert!((0..all).filter(|&event| !there(event)).all(|event| read.streams[0].bytes()[event as usize] == 0));
    } else {
        assert_eq!(read.ty, Type::Option(Box::new(column.0.ty.clone())));
        let flags: Vec<u8> = (0..all).map(|event| u8::from(there(event))).collect();
        assert_eq!(read.streams[0].bytes(), flags);
        assert_eq!(read.streams[1..], column.1.streams);
    }
}

#[test]
fn the_fixture_of_version_1_is_read() {
    if std::env::var_os("FOREBAY_MAKE_FORMATS").is_some() {
        make();
    }
    let dataset = open(&place().display().to_string());
    let notes: Vec<String> = dataset.versions().into_iter().map(|version| version.note).collect();
    assert_eq!(notes, ["created", "appended", "replaced", "compact"]);
    assert_eq!(dataset.facts()["sources"], json!(["first.root", "second.root"]));
    let first = dataset.at(0).unwrap();
    assert_eq!(first.facts()["sources"], json!(["first.root"]));
    assert_eq!(first.tables(), ["Events", "Runs", "None"]);
    assert_eq!(first.batches("Events").unwrap(), [0..256, 256..512, 512..600]);
    assert_has(&first, "Events", &columns(0..FIRST));
    let whole = |names: &[&str]| -> Vec<(Product, Array)> {
        let mut all = columns(0..FIRST + MORE);
        all.retain(|(product, _)| !ABSENT.contains(&product.name.as_str()) && !names.contains(&product.name.as_str()));
        all
    };
    assert_has(&dataset.at(1).unwrap(), "Events", &whole(&[]));
    for version in [2, 3] {
        let dataset = dataset.at(version).unwrap();
        assert_has(&dataset, "Events", &whole(&["jagged"]));
        assert_has(&dataset, "Events", &[replaced()]);
    }
    for version in 0..4 {
        let dataset = dataset.at(version).unwrap();
        assert_has(&dataset, "Runs", &[runs()]);
        assert_has(&dataset, "None", &[column("nothing", "list(float32)", 0..0)]);
        if version > 0 {
            assert_has_some(&dataset, &column("new", "uint16", FIRST..FIRST + MORE), FIRST..FIRST + MORE);
            assert_has_some(&dataset, &column("trigger_b", "bool", 0..FIRST), 0..FIRST);
            assert_has_some(&dataset, &column("opaque", "bytes", 0..FIRST), 0..FIRST);
        }
        let verified = dataset.verify(&mut |_, _| {}).unwrap();
        assert_eq!(verified.damages, []);
        assert!(verified.objects > 0 && verified.bytes > 0);
    }
}
