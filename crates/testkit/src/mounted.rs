//! A file system of a size.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs, unmounted on drop. Its tests need root.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one with these options (`size=1200k`) over a directory, which is made if need be.
    ///
    /// # Panics
    /// Where it cannot be mounted.
    pub fn new(at: &Path, options: &str) -> Mounted {
        let made = std::fs::create_dir_all(at);
        assert!(made.is_ok(), "{}: {made:?}", at.display());
        mount(at, options, &["-t", "tmpfs", "tmpfs"]);
        Mounted(at.to_owned())
    }

    /// The same with other options.
    ///
    /// # Panics
    /// Where it cannot be mounted so.
    pub fn again(&self, options: &str) {
        mount(&self.0, &format!("remount,{options}"), &[]);
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

fn mount(at: &Path, options: &str, what: &[&str]) {
    let done = Command::new("mount").args(["-o", options]).args(what).arg(at).status();
    assert!(done.is_ok_and(|status| status.success()), "this test mounts a tmpfs: it needs root");
}
