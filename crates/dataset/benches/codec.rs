//! Sizes and speeds of the codec over folders of columns.
//!
//! ```text
//! cargo bench -p forebay-dataset --bench codec -- [--best] [--each] FOLDER …
//! ```
//!
//! A folder has a file for each column: its values, little-endian; the name ends in `__` and the NumPy name of their kind, as in
//! `0249__GenPart_eta__float32.bin`. Constant columns and repeated ones are left out: they would flatter the speeds. Bools of
//! the same length are coded as a group. Speeds are the best of several runs, for an encoder that has seen no stripe yet.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use forebay_dataset::codec::{Coder, Effort, decode, decode_bools, encode_bools};
use forebay_dataset::{Buffer, Scalar};
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

/// Bytes and seconds of some columns.
#[derive(Clone, Copy, Default)]
struct Sum {
    columns: usize,
    raw: usize,
    encoded: usize,
    encode_seconds: f64,
    decode_seconds: f64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.columns += other.columns;
        self.raw += other.raw;
        self.encoded += other.encoded;
        self.encode_seconds += other.encode_seconds;
        self.decode_seconds += other.decode_seconds;
    }

    fn print(&self, name: &str) {
        let speed = |seconds: f64| self.raw as f64 / seconds / 1e6;
        let Sum { columns, raw, encoded, .. } = self;
        let (encode, decode) = (speed(self.encode_seconds), speed(self.decode_seconds));
        println!(
            "{name:>16}: {columns:5} columns {raw:9} B -> {encoded:8} B  encode {encode:5.0} decode {decode:5.0} MB/s"
        );
    }
}

/// The shortest time of several runs.
fn best<T>(runs: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let timed = |run: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        let result = run();
        (start.elapsed().as_secs_f64(), result)
    };
    let mut best = timed(&mut run);
    for _ in 1..runs {
        let (seconds, result) = timed(&mut run);
        best = (best.0.min(seconds), result);
    }
    best
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let effort = if has("--best") { Effort::Best } else { Effort::Default };
    for folder in arguments.iter().filter(|argument| !argument.starts_with("--")) {
        println!("{folder}");
        measure(folder, effort, has("--each"));
    }
}

/// Columns of a folder with their names, without those that are constant or were there before.
fn columns(folder: &str) -> Vec<(String, Scalar, Buffer)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    let mut seen = HashSet::new();
    let mut columns = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let kind = name.rsplit("__").next().unwrap_or_default();
        let Some(scalar) = Scalar::ALL.into_iter().find(|scalar| scalar.name() == kind) else { continue };
        let bytes = std::fs::read(&path).expect("a column");
        let constant = bytes.chunks(scalar.width()).all(|value| value == &bytes[..scalar.width()]);
        if !constant && seen.insert((kind.to_owned(), bytes.clone())) {
            columns.push((name, scalar, Buffer::of(&bytes)));
        }
    }
    columns
}

fn measure(folder: &str, effort: Effort, each: bool) {
    let encode_runs = if effort == Effort::Best { 1 } else { 5 };
    let mut by_encoding = BTreeMap::<u8, Sum>::new();
    let mut bools = BTreeMap::<usize, Vec<Vec<u8>>>::new();
    let mut all = Sum::default();
    for (name, scalar, values) in columns(folder) {
        if scalar == Scalar::Bool {
            bools.entry(values.len()).or_default().push(values.bytes().to_vec());
            continue;
        }
        let (encode_seconds, encoded) = best(encode_runs, || Coder::default().encode(scalar, values.bytes(), effort));
        let mut out = Buffer::zeroed(values.len());
        let runs = (400_000 / values.len()).clamp(5, 50);
        let (decode_seconds, result) = best(runs, || decode(scalar, &encoded, out.bytes_mut()));
        assert!(result.is_ok() && out == values, "{name} did not come back");
        let sum = Sum { columns: 1, raw: values.len(), encoded: encoded.len(), encode_seconds, decode_seconds };
        if each {
            sum.print(&format!("{name} {:02x}", encoded[0]));
        }
        by_encoding.entry(encoded[0] & 15).or_default().add(sum);
        all.add(sum);
    }
    for (encoding, sum) in by_encoding {
        let names = ["raw", "constant", "ordered", "folded", "delta", "zstd", "dictionary", "repeats"];
        sum.print(names.get(usize::from(encoding)).unwrap_or(&"other"));
    }
    all.print("all but bools");
    let groups = bools.into_iter().map(|(count, rows)| measure_bools(count, &rows, effort));
    let groups = groups.fold(Sum::default(), |mut all, sum| {
        all.add(sum);
        all
    });
    groups.print("groups of bools");
    all.add(groups);
    all.print("all");
}

fn measure_bools(count: usize, rows: &[Vec<u8>], effort: Effort) -> Sum {
    let borrowed: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let (encode_seconds, encoded) = best(3, || encode_bools(&borrowed, effort));
    let mut out = vec![vec![0; count]; rows.len()];
    let (decode_seconds, result) = best(20, || {
        let mut borrowed: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
        decode_bools(&encoded, &mut borrowed)
    });
    assert!(result.is_ok() && out == rows, "bools did not come back");
    Sum { columns: rows.len(), raw: count * rows.len(), encoded: encoded.len(), encode_seconds, decode_seconds }
}
