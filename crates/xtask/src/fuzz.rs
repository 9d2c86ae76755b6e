//! Fuzzing: every target of the `fuzz` crate for a given time, one after the other.

use crate::{Result, child, tools};
use clap::Args;

/// What to fuzz and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only these targets; all without.
    targets: Vec<String>,
}

/// Fuzzes as the options say; `false` where a target found something.
pub(crate) fn run(options: &Options) -> Result<bool> {
    tools::fuzzing()?;
    let found = each(options.seconds, &options.targets)?;
    for (target, clean) in &found {
        println!("{target}: {}", if *clean { "nothing found" } else { "FOUND SOMETHING, see fuzz/artifacts" });
    }
    Ok(found.iter().all(|(_, clean)| *clean))
}

/// Fuzzes the targets (all where none is named); yields which came through clean.
pub(crate) fn each(seconds: u64, only: &[String]) -> Result<Vec<(String, bool)>> {
    let every: Vec<String> = child::output(&mut fuzz(&["list"]))?.lines().map(str::to_owned).collect();
    if let Some(unknown) = only.iter().find(|name| !every.contains(name)) {
        return Err(format!("no fuzz target `{unknown}`; there are: {}", every.join(", ")).into());
    }
    if !child::stream(&mut fuzz(&["build"]))?.success {
        return Err("the fuzz targets do not build".into());
    }
    let time = format!("-max_total_time={seconds}");
    let mut found = Vec::new();
    for target in if only.is_empty() { &every } else { only } {
        // libFuzzer ends by itself; a hang or a hunger for memory in a decoder is a find.
        let limits = ["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=0", "-verbosity=1"];
        let arguments = [&["run", target, "--", &time], &limits[..]].concat();
        found.push((target.clone(), child::stream(&mut fuzz(&arguments))?.success));
    }
    Ok(found)
}

fn fuzz(arguments: &[&str]) -> std::process::Command {
    let mut command = child::cargo(&[&["fuzz"], arguments].concat());
    // Sanitizers are unstable flags: the pinned compiler accepts them this way. Flags of another build stay out.
    command.env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTFLAGS");
    command
}
