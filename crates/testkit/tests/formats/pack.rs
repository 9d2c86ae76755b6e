//! A directory as one small file: of each file its name, its length, and the blocks that are not all zeros.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BLOCK: usize = 512;

/// Every file under `dir`, in the order of names.
pub(crate) fn pack(dir: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for name in names(dir, Path::new("")) {
        let bytes = std::fs::read(dir.join(&name)).unwrap();
        let text = name.to_str().unwrap();
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        let full: Vec<(usize, &[u8])> =
            bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0)).collect();
        out.extend_from_slice(&(full.len() as u32).to_le_bytes());
        for (number, block) in full {
            out.extend_from_slice(&(number as u32).to_le_bytes());
            out.extend_from_slice(block);
        }
    }
    out
}

/// Writes the files again, under `dir`.
pub(crate) fn unpack(mut packed: &[u8], dir: &Path) {
    while !packed.is_empty() {
        let name_bytes = number(&mut packed);
        let name = String::from_utf8(take(&mut packed, name_bytes).to_vec()).unwrap();
        let length = u64::from_le_bytes(take(&mut packed, 8).try_into().unwrap());
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        file.set_len(length).unwrap();
        for _ in 0..number(&mut packed) {
            let at = (number(&mut packed) * BLOCK) as u64;
            let bytes = BLOCK.min((length - at) as usize);
            file.write_all_at(take(&mut packed, bytes), at).unwrap();
        }
    }
}

fn take<'a>(packed: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (head, rest) = packed.split_at(bytes);
    *packed = rest;
    head
}

fn number(packed: &mut &[u8]) -> usize {
    u32::from_le_bytes(take(packed, 4).try_into().unwrap()) as usize
}

fn names(root: &Path, inside: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join(inside)).unwrap() {
        let entry = entry.unwrap();
        let name = inside.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            names.extend(self::names(root, &name));
        } else {
            names.push(name);
        }
    }
    names.sort();
    names
}
