//! A directory for one test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new directory under the system's temporary one, removed with everything in it on drop.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A directory that no other test has, in this process or another one.
    ///
    /// # Panics
    /// Where the directory cannot be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "makes a directory")]
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-kit-{}-{number}", std::process::id()));
        // Left over from a process of the same id that was killed.
        std::fs::remove_dir_all(&path).ok();
        #[expect(clippy::expect_used, reason = "a test that cannot go on panics")]
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
