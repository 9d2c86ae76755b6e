//! Two devices on a machine with one: file systems on loop devices, over files of the same directory.
//!
//! *Lifecycle*: file ─▶ loop device ─▶ ext4 ─▶ mounted; taken down in the opposite order by `drop`.
//!
//! *On failure*: without root, loop devices or `mkfs.ext4` there is no second device; the rows that want one are left out
//! and the report says why. [`sweep`] takes down what a killed benchmark left behind.

use super::super::engine::Scratch;
use super::fio::preallocated;
use crate::{Result, child};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file system of its own.
pub(super) struct LoopDevice {
    device: String,
    mount: PathBuf,
}

impl LoopDevice {
    /// A file system of this size, mounted in the scratch directory under this name.
    pub(super) fn new(scratch: &Scratch, name: &str, bytes: u64) -> Result<LoopDevice> {
        let image = preallocated(&scratch.path().join(format!("{name}.img")), bytes)?;
        let mount = scratch.path().join(name);
        std::fs::create_dir(&mount)?;
        let device = child::output(Command::new("losetup").args(["--direct-io=on", "--find", "--show"]).arg(&image))?;
        // From here on `drop` removes everything that was set up.
        let made = LoopDevice { device, mount };
        let ready = ["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        child::output(Command::new("mkfs.ext4").args(ready).arg(&made.device))?;
        child::output(Command::new("mount").arg(&made.device).arg(&made.mount))?;
        Ok(made)
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the next benchmark sweeps.
        let _ = child::output(Command::new("umount").arg(&self.mount));
        let _ = child::output(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

/// Whether there can be loop devices here; the error says why not.
pub(super) fn available(dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    LoopDevice::new(&scratch, "probe", 64 << 20).map(drop)
}

/// Takes down what benchmarks that were killed have left in this directory: mounts, loop devices, files.
pub(super) fn sweep(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix("forebay-bench-").and_then(|rest| rest.split('-').next());
        let Some(process) = process else { continue };
        if Path::new("/proc").join(process).exists() {
            continue;
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        for line in mounts.lines() {
            let mut words = line.split(' ');
            if let (Some(device), Some(mount)) = (words.next(), words.next())
                && Path::new(mount).starts_with(&path)
            {
                drop(LoopDevice { device: device.to_owned(), mount: PathBuf::from(mount) });
            }
        }
        std::fs::remove_dir_all(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_is_swept() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        // No process has a number above 2^22.
        let dead = scratch.path().join("forebay-bench-4194999-0");
        let living = scratch.path().join(format!("forebay-bench-{}-0", std::process::id()));
        let other = scratch.path().join("something");
        for dir in [&dead, &living, &other] {
            std::fs::create_dir(dir).unwrap();
        }
        sweep(scratch.path()).unwrap();
        assert!(!dead.exists() && living.exists() && other.exists());
    }
}
