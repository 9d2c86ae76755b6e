//! Datasets in a directory: what is written is read, in every version, by every reader.

mod attacks;
mod deaths;
mod fixture;
mod places;
mod roundtrip;
mod s3;
mod versions;
mod writers;

use forebay_dataset::{Array, Dataset, Product, ReadOptions, Scalar, Type, WriteOptions, Writer};
use std::path::Path;

/// A folder that is removed with the test.
pub(crate) struct Folder(std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("forebay-dataset-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn url(&self) -> String {
        self.0.join("ds").display().to_string()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn product(name: &str, ty: &str) -> Product {
    Product::new(name, Type::parse(ty).unwrap())
}

/// Small batches and stripes, so that few events have many of them.
pub(crate) fn small() -> WriteOptions {
    WriteOptions { batch_events: Some(256), target_bytes: 4096, ..WriteOptions::default() }
}

/// Events as a detector might have them: number, muons, a trigger bit, a weight.
pub(crate) fn events(from: u64, n: u64) -> Vec<(Product, Array)> {
    let counts: Vec<u32> = (from..from + n).map(|event| ((event * 7 + event / 5) % 4) as u32).collect();
    let muons: u32 = counts.iter().sum();
    let pt: Vec<f32> = (0..muons).map(|i| 20.0 + (i as f32 * 0.37 + from as f32).sin() * 15.0).collect();
    let bit: Vec<u8> = (from..from + n).map(|event| u8::from(event % 3 == 0)).collect();
    let other: Vec<u8> = (from..from + n).map(|event| u8::from(event % 5 == 0)).collect();
    vec![
        (product("event", "uint64"), Array::values(Scalar::U64, (from..from + n).collect())),
        (product("nMuon", "uint32"), Array::values(Scalar::U32, counts.clone())),
        (product("Muon_pt", "list(float32)"), Array::jagged(Scalar::F32, counts.clone(), pt.clone())),
        (
            product("Muon_eta", "list(float32)"),
            Array::jagged(Scalar::F32, counts, pt.iter().map(|pt| pt.ln()).collect()),
        ),
        (product("HLT_Mu", "bool"), Array::values(Scalar::Bool, bit)),
        (product("HLT_El", "bool"), Array::values(Scalar::Bool, other)),
    ]
}

pub(crate) fn write(url: &str, columns: &[(Product, Array)], options: WriteOptions) {
    let mut writer = Writer::create(url, options).unwrap();
    writer.push("Events", columns).unwrap();
    writer.commit("test").unwrap();
}

pub(crate) fn open(url: &str) -> Dataset {
    Dataset::open(url, ReadOptions::default()).unwrap()
}

/// Checks that the dataset has just these columns and events, read whole and in parts.
pub(crate) fn assert_reads(dataset: &Dataset, columns: &[(Product, Array)]) {
    let names: Vec<&str> = columns.iter().map(|(product, _)| product.name.as_str()).collect();
    let all = columns[0].1.events;
    assert_eq!(dataset.events("Events").unwrap(), all);
    for range in [0..all, all / 3..all, 0..all / 2, all / 4..all * 3 / 4, all / 2..all / 2] {
        let read = dataset.read("Events", &names, range.clone()).unwrap();
        for (column, (product, array)) in read.iter().zip(columns) {
            let again = column.to_array();
            again.check().unwrap();
            assert_eq!(again, array.slice(range.clone()), "{} {range:?}", product.name);
        }
    }
}

/// Events of several pushes, one after another.
pub(crate) fn events_of(pushes: &[(u64, u64)]) -> Vec<(Product, Array)> {
    let mut all = events(pushes[0].0, pushes[0].1);
    for &(from, n) in &pushes[1..] {
        for (column, (_, more)) in all.iter_mut().zip(events(from, n)) {
            column.1.extend(&more);
        }
    }
    all
}
