//! What the checks need beyond Rust: installed where it is missing, at fixed versions where cargo installs it.

use crate::{Result, child};
use std::process::Command;

const DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const FUZZ: (&str, &str) = ("cargo-fuzz", "0.13.2");
/// Program and the Debian package that brings it.
const REDIS: (&str, &str) = ("redis-server", "redis-server");
const REDIS_TOOLS: (&str, &str) = ("redis-cli", "redis-tools");
const FIO: (&str, &str) = ("fio", "fio");
const OPENSSL: (&str, &str) = ("openssl", "openssl");
const PYTHON: (&str, &str) = ("python3", "python3");
const PIP: (&str, &str) = ("pip3", "python3-pip");
/// Packages of Python that tests use, kept beside the build: nothing of the system's changes.
const PYTHON_PACKAGES: [&str; 1] = ["redis==8.1.0"];
const COMPILER: (&str, &str) = ("c++", "g++");
/// A terminal that tests can look at, and the monitor with its checker.
const TERMINAL: (&str, &str) = ("tmux", "tmux");
const PROMETHEUS: (&str, &str) = ("promtool", "prometheus");
/// What checks the unit of a service.
const SYSTEMD: (&str, &str) = ("systemd-analyze", "systemd");

/// Installs everything that `cargo xtask test` needs.
pub(crate) fn all() -> Result<()> {
    debian(&[REDIS, REDIS_TOOLS, FIO, OPENSSL, COMPILER, TERMINAL, PROMETHEUS, SYSTEMD, PYTHON, PIP])?;
    python_packages()?;
    cargo_tool(DENY)?;
    cargo_tool(FUZZ)
}

/// Installs what fuzzing needs.
pub(crate) fn fuzzing() -> Result<()> {
    debian(&[COMPILER])?;
    cargo_tool(FUZZ)
}

/// Installs what the benchmark of the embedded store needs.
pub(crate) fn redis() -> Result<()> {
    debian(&[REDIS])
}

/// Installs what the benchmark of the warm level needs.
pub(crate) fn fio() -> Result<()> {
    debian(&[FIO])
}

fn debian(wanted: &[(&str, &str)]) -> Result<()> {
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
        match child::stream(&mut command)?.success {
            true => Ok(()),
            false => Err(format!("apt-get could not install {packages}: run as root, or install by hand").into()),
        }
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &missing[..]].concat())
}

/// Into `python` of the directory where builds go, at the versions that are written down here.
fn python_packages() -> Result<()> {
    let dir = child::target_dir().join("python");
    let wanted = PYTHON_PACKAGES.join("\n");
    let noted = dir.join("packages.txt");
    if std::fs::read_to_string(&noted).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"]).arg(&dir).args(PYTHON_PACKAGES);
    match child::stream(&mut command)?.success {
        true => Ok(std::fs::write(noted, wanted)?),
        false => Err(format!("pip could not install {}", PYTHON_PACKAGES.join(" ")).into()),
    }
}

fn cargo_tool((name, version): (&str, &str)) -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(std::path::PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    if child::on_path(name) || home.is_some_and(|home| home.join("bin").join(name).is_file()) {
        return Ok(());
    }
    // Without the flags of whoever calls: a tool is built like anywhere else.
    let mut command = child::cargo(&["install", name, "--locked", "--version", version]);
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    match child::stream(&mut command)?.success {
        true => Ok(()),
        false => Err(format!("cargo could not install {name} {version}").into()),
    }
}
