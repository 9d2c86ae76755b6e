//! Builds in the profile `checked`: which command of cargo, and which compiler.
//!
//! *Invariants*: every build of the checks in this profile goes through here, so that what others wrote is compiled once.

use crate::child;
use std::path::PathBuf;
use std::process::Command;

/// Fast enough, with assertions: see Cargo.toml.
pub(crate) const PROFILE: &str = "checked";

/// Packages that no test of the workspace needs: the simulator has planted faults in it, and only the fuzzer links the targets.
pub(crate) const APART: [&str; 4] = ["--exclude", "forebay-sim", "--exclude", "forebay-fuzz"];

/// This command of cargo for the profile `checked`, with the compiler of the checks.
pub(crate) fn cargo(command: &str, arguments: &[&str]) -> Command {
    let mut cargo = child::cargo(&[command, "--profile", PROFILE]);
    cargo.args(arguments).env("RUSTC_WORKSPACE_WRAPPER", wrapper("checked-rustc.sh"));
    cargo
}

/// A script of this package that cargo calls in place of the compiler.
pub(crate) fn wrapper(name: &str) -> PathBuf {
    let root = child::root();
    root.canonicalize().unwrap_or(root).join("crates/xtask").join(name)
}

/// Options of cargo that optimise these crates of Forebay like this.
pub(crate) fn optimised(crates: &[&str], level: u8) -> Vec<String> {
    let each =
        |name: &&str| ["--config".to_owned(), format!("profile.{PROFILE}.package.forebay-{name}.opt-level={level}")];
    crates.iter().flat_map(each).collect()
}
