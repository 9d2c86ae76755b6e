//! Sizes and speeds of the codec over a folder of columns: files `…__STATE__…__DTYPE.bin`, state `a` for active.
use forebay_dataset::{Scalar, codec};
use std::time::Instant;

fn main() {
    let folder = std::env::args().skip(1).find(|a| !a.starts_with("--")).expect("folder");
    let only = std::env::var("ONLY").ok();
    let verbose = std::env::var("VERBOSE").is_ok();
    let effort = if std::env::var("BEST").is_ok() { codec::Effort::Best } else { codec::Effort::Default };
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let (mut raw, mut out, mut enc, mut dec) = (0, 0, 0.0, 0.0);
    let mut by = std::collections::BTreeMap::<u8, (usize, usize, usize, f64, f64)>::new();
    let mut bools = (0, 0);
    for path in files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let parts: Vec<&str> = name.split("__").collect();
        if parts[1] != "a" {
            continue;
        }
        if only.as_ref().is_some_and(|o| !name.contains(o)) {
            continue;
        }
        let scalar = Scalar::ALL.into_iter().find(|s| s.name() == *parts.last().unwrap()).expect(&name);
        let values = std::fs::read(&path).unwrap();
        let reps = (200_000 / values.len()).clamp(3, 50);
        let mut t_enc = f64::MAX;
        let mut encoded = Vec::new();
        for _ in 0..3 {
            let t = Instant::now();
            encoded = codec::Coder::default().encode(scalar, &values, effort);
            t_enc = t_enc.min(t.elapsed().as_secs_f64());
        }
        let mut back = vec![0; values.len()];
        let mut t_dec = f64::MAX;
        for _ in 0..reps {
            let t = Instant::now();
            codec::decode(scalar, &encoded, &mut back).unwrap();
            t_dec = t_dec.min(t.elapsed().as_secs_f64());
        }
        assert!(back == values, "{name}");
        if scalar == Scalar::Bool {
            bools.0 += values.len();
            bools.1 += encoded.len();
            continue;
        }
        if verbose {
            println!(
                "{name} {} {} {:.2} bits {:.0} MB/s tag {:x}",
                values.len(),
                encoded.len(),
                encoded.len() as f64 * 8.0 * scalar.width() as f64 / values.len() as f64,
                values.len() as f64 / t_dec / 1e6,
                encoded[0]
            );
        }
        raw += values.len();
        out += encoded.len();
        enc += t_enc;
        dec += t_dec;
        let e = by.entry(encoded[0] & 15).or_default();
        e.0 += 1;
        e.1 += values.len();
        e.2 += encoded.len();
        e.3 += t_enc;
        e.4 += t_dec;
    }
    for (k, e) in by {
        println!(
            "{k}: {} cols raw {} out {} enc {:.0} dec {:.0} MB/s",
            e.0,
            e.1,
            e.2,
            e.1 as f64 / e.3 / 1e6,
            e.1 as f64 / e.4 / 1e6
        );
    }
    println!(
        "bools {bools:?}; rest raw {raw} out {out} enc {:.0} MB/s dec {:.0} MB/s",
        raw as f64 / enc / 1e6,
        raw as f64 / dec / 1e6
    );
}
