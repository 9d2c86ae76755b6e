//! Whether an open file or directory still is what its path names.
//!
//! What was removed, or has another disk mounted over it, takes writes without an error, and they are gone with the process.

use std::fs::{File, Metadata, metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path, and the file that it named when this was made. Holds the file open, so that no other gets its number.
#[derive(Debug)]
pub struct Named {
    path: PathBuf,
    file: File,
}

impl Named {
    /// What is open as `file` under this path.
    pub fn of(path: &Path, file: File) -> Named {
        Named { path: path.to_owned(), file }
    }

    /// Opens what the path names.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(path: &Path) -> io::Result<Named> {
        Ok(Named::of(path, File::open(path)?))
    }

    /// What became of the name, for people; `None` where it is as it was, or nobody can say now.
    pub fn gone(&self) -> Option<String> {
        let number = |of: &Metadata| (of.dev(), of.ino());
        let opened = self.file.metadata().ok()?;
        match metadata(&self.path) {
            Ok(there) if number(&there) == number(&opened) => None,
            Ok(_) => Some(format!("{} is not what was opened: something else is in its place", self.path.display())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Some(format!("{} is not there any more", self.path.display()))
            }
            Err(_) => None,
        }
    }
}
