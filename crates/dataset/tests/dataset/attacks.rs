//! Every byte of every object, changed or cut off: found, or harmless.

use super::{Folder, events, open, product, small, write};
use forebay_dataset::{Array, Dataset, Kind, ReadOptions, Scalar};

fn objects(folder: &Folder) -> Vec<std::path::PathBuf> {
    let mut all = vec![folder.path().join("ds/root")];
    for writer in std::fs::read_dir(folder.path().join("ds/w")).unwrap() {
        all.extend(std::fs::read_dir(writer.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    all
}

/// Reads everything; the events, or the kind of the error.
fn read(url: &str) -> Result<Vec<Array>, Kind> {
    let names = ["event", "nMuon", "Muon_pt", "Muon_eta", "HLT_Mu", "HLT_El", "id"];
    let dataset =
        Dataset::open(url, ReadOptions { threads: Some(1), ..ReadOptions::default() }).map_err(|error| error.kind())?;
    let columns = dataset.read("Events", &names, 0..200).map_err(|error| error.kind())?;
    Ok(columns.iter().map(|column| column.to_array()).collect())
}

#[test]
fn every_changed_byte_is_found_or_harmless() {
    let folder = Folder::new("bytes");
    let mut columns = events(0, 200);
    columns.push((product("id", "int16"), Array::values(Scalar::I16, (0..200_i16).map(|n| n * 31 % 77).collect())));
    write(&folder.url(), &columns, small());
    let right = read(&folder.url()).unwrap();
    for object in objects(&folder) {
        let bytes = std::fs::read(&object).unwrap();
        // Every byte of small objects, every fifth of larger ones.
        let step = if bytes.len() > 1500 { 5 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            for flip in [1_u8, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                std::fs::write(&object, &changed).unwrap();
                match read(&folder.url()) {
                    Ok(read) => assert_eq!(read, right, "byte {at} of {}", object.display()),
                    Err(kind) => assert!(
                        matches!(kind, Kind::Corrupt | Kind::Invalid),
                        "{kind:?}: byte {at} of {}",
                        object.display()
                    ),
                }
            }
        }
        std::fs::write(&object, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read(&folder.url()).is_err(), "half of {}", object.display());
        std::fs::remove_file(&object).unwrap();
        assert!(read(&folder.url()).is_err(), "without {}", object.display());
        std::fs::write(&object, &bytes).unwrap();
    }
    assert_eq!(read(&folder.url()).unwrap(), right);
}

#[test]
fn verify_names_the_damaged_column_and_batch() {
    let folder = Folder::new("verify");
    write(&folder.url(), &events(0, 600), small());
    assert_eq!(open(&folder.url()).verify(&mut |_, _| {}).unwrap().damages, []);
    let stripes = objects(&folder).into_iter().find(|path| std::fs::read(path).unwrap().starts_with(b"FBDS")).unwrap();
    let mut bytes = std::fs::read(&stripes).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&stripes, &bytes).unwrap();
    let verified = open(&folder.url()).verify(&mut |_, _| {}).unwrap();
    assert_eq!(verified.batches, 3);
    let name = stripes.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(verified.damages.iter().any(|damage| damage.object.ends_with(&name)), "{:?}", verified.damages);
    assert!(verified.damages.iter().any(|damage| !damage.columns.is_empty()), "{:?}", verified.damages);
}
