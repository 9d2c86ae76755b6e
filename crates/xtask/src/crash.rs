//! The crash test with more rounds than the suite has.

use crate::child::{self, Terminal};
use crate::{Result, checked};

/// How often a child is killed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kills; the suite has 30.
    #[arg(long, default_value_t = 500)]
    rounds: u32,
    /// First seed of the child's operations; a failure prints the one that it had.
    #[arg(long, default_value_t = 20_260_101)]
    seed: u64,
}

/// Runs the test; `true` where every promise held.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = checked::cargo("test", &["-p", "forebay-store-tests", "crash::"]);
    command.env("FOREBAY_CRASH_ROUNDS", options.rounds.to_string()).env("FOREBAY_CRASH_SEED", options.seed.to_string());
    Ok(child::stream(&mut command, &Terminal)?.success)
}
