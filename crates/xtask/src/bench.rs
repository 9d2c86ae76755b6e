//! Measurements: `crates/bench`, built in the release profile. This program is none of it, so that checks start at once.

use crate::{Result, child};
use clap::Args;
use std::ffi::OsString;

/// What `forebay-bench` is told.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// `embedded`, `warm` or `network`, and what each of them takes: see `cargo xtask bench embedded --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds it and gives it the terminal; `true` where it succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = child::cargo(&["run", "--quiet", "--release", "--package", "forebay-bench", "--"]);
    Ok(command.args(&options.arguments).status()?.success())
}
