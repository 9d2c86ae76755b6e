//! Measurements: `crates/bench`, built in the release profile. It is a separate program, so that checks start at once.

use crate::{Result, child};
use clap::Args;
use std::ffi::OsString;

/// Arguments of `forebay-bench`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// `embedded`, `warm`, `network`, `dataset` or `archive`, and what each of them takes: see `cargo xtask bench embedded --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs it on this terminal; `true` if it succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = child::cargo(&["run", "--quiet", "--release", "--package", "forebay-bench", "--"]);
    Ok(command.args(&options.arguments).status()?.success())
}
