//! What the checks need beyond Rust: installed where it is missing, at fixed versions where cargo installs it.

use crate::{Result, child};
use std::process::Command;

const DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const FUZZ: (&str, &str) = ("cargo-fuzz", "0.13.2");
/// Program and the Debian package that brings it.
const REDIS: (&str, &str) = ("redis-server", "redis-server");
const FIO: (&str, &str) = ("fio", "fio");
const OPENSSL: (&str, &str) = ("openssl", "openssl");
const COMPILER: (&str, &str) = ("c++", "g++");
/// A terminal that tests can look at, and the monitor with its checker.
const TERMINAL: (&str, &str) = ("tmux", "tmux");
const PROMETHEUS: (&str, &str) = ("promtool", "prometheus");

/// Installs everything that `cargo xtask test` needs.
pub(crate) fn all() -> Result<()> {
    debian(&[REDIS, FIO, OPENSSL, COMPILER, TERMINAL, PROMETHEUS])?;
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
