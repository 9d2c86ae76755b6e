//! Fuzzing: every target of the `fuzz` crate, from the inputs that are kept for it, for a given time.
//!
//! ```text
//! fuzz/kept/TARGET.inputs ──unpacked──▶ a directory ──▶ libFuzzer: each kept input first, then new ones for some seconds
//!            ▲                                              │ finds ──▶ fuzz/artifacts/TARGET
//!            └────── `--keep`: the fewest inputs that reach all that fuzz/corpus/TARGET reaches
//! ```
//!
//! One program has all targets. Forebay's crates in it are compiled as cargo-fuzz compiles them (`fuzz-rustc.sh`: coverage,
//! AddressSanitizer), with assertions; without cargo-fuzz, whose installation takes longer than the step, and without compiling
//! again what others wrote.
//!
//! *Invariants*: a target that ran fewer inputs than are kept for it has failed.

use crate::child::{self, Listener, Terminal};
use crate::{Result, checked, tools};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The program of all targets.
const PROGRAM: &str = "forebay-fuzz";
/// What makes a file a target.
pub(crate) const TARGET: &str = "pub(crate) fn target(";
/// Forebay's crates below it.
const INSTRUMENTED: [&str; 13] = [
    "core", "client", "cluster", "daq", "dataset", "fuzz", "media", "mover", "recorder", "ring", "server", "store",
    "wire",
];
/// Targets at a time.
const AT_A_TIME: usize = 2;
/// Longer inputs find little in decoders and take room in the repository.
const INPUT_BYTES_MAX: &str = "-max_len=2048";

/// What to fuzz and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Keep the fewest inputs that reach everything that was ever reached here: fuzz/kept changes.
    #[arg(long)]
    keep: bool,
    /// Only these targets; all without.
    targets: Vec<String>,
}

/// Fuzzes as the options say; `false` where a target found something.
#[expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]
pub(crate) fn run(options: &Options) -> Result<bool> {
    build(true, &Terminal)?;
    let mut targets = targets()?;
    if let Some(unknown) = options.targets.iter().find(|name| targets.iter().all(|target| target.name != **name)) {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        return Err(format!("no fuzz target `{unknown}`; there are: {}", names.join(", ")).into());
    }
    targets.retain(|target| options.targets.is_empty() || options.targets.contains(&target.name));
    let found = each(&targets, options.seconds, &fuzz_dir().join("corpus"), &Terminal)?;
    for (target, wrong) in &found {
        println!("{target}: {}", wrong.as_deref().unwrap_or("nothing found"));
    }
    if options.keep {
        for target in &targets {
            target.keep(&Terminal)?;
        }
    }
    Ok(found.iter().all(|(_, wrong)| wrong.is_none()))
}

/// A target.
pub(crate) struct Target {
    name: String,
}

/// Builds the program of all targets; `optimised` where they run for longer than that takes.
pub(crate) fn build(optimised: bool, listener: &dyn Listener) -> Result<()> {
    tools::fuzzing(listener)?;
    let level = if optimised { 2 } else { 0 };
    // A test as well: only then does cargo give what others wrote the features that it has in the other builds.
    let what = ["--workspace", "--exclude", "forebay-sim", "--bin", PROGRAM, "--test", "profiles"];
    let mut command = checked::cargo("build", &what);
    command
        .args(checked::optimised(&INSTRUMENTED, level))
        .env("RUSTC_WORKSPACE_WRAPPER", checked::wrapper("fuzz-rustc.sh"));
    if !child::stream(&mut command, listener)?.success {
        return Err("the fuzz targets do not build".into());
    }
    // A copy: the next build of a program of this name replaces it.
    std::fs::create_dir_all(child::target_dir().join("checks"))?;
    std::fs::copy(child::target_dir().join(checked::PROFILE).join(PROGRAM), program())?;
    Ok(())
}

/// Where the program is that has been built.
fn program() -> PathBuf {
    child::target_dir().join("checks").join(PROGRAM)
}

/// All targets: a file with a function `target` is one.
pub(crate) fn targets() -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(fuzz_dir().join("src"))? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().map(|name| name.to_string_lossy().into_owned())
            && std::fs::read_to_string(&path)?.contains(TARGET)
        {
            targets.push(Target { name });
        }
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

/// Fuzzes the targets, several at a time, with a directory for each in `corpora`; returns the failures.
pub(crate) fn each(
    targets: &[Target],
    seconds: u64,
    corpora: &Path,
    listener: &dyn Listener,
) -> Result<Vec<(String, Option<String>)>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let hand = || -> Result<()> {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let wrong = target.fuzz(seconds, &corpora.join(&target.name), listener)?;
            found.lock().map_err(|_| "a hand panicked")?.push((target.name.clone(), wrong));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(hand)).collect();
        hands.into_iter().try_for_each(|hand| hand.join().unwrap_or_else(|_| Err("a hand panicked".into())))
    })?;
    let mut found = found.into_inner().map_err(|_| "a hand panicked")?;
    found.sort();
    Ok(found)
}

impl Target {
    fn kept_file(&self) -> PathBuf {
        fuzz_dir().join("kept").join(format!("{}.inputs", self.name))
    }

    fn kept(&self) -> Result<Vec<Vec<u8>>> {
        let file = self.kept_file();
        let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(unpack(&bytes).ok_or_else(|| format!("{}: not what `cargo xtask fuzz --keep` writes", file.display()))?)
    }

    /// Runs each kept input, then new ones; returns the failures.
    fn fuzz(&self, seconds: u64, corpus: &Path, listener: &dyn Listener) -> Result<Option<String>> {
        let kept = if self.kept_file().exists() { self.kept()? } else { Vec::new() };
        std::fs::create_dir_all(corpus)?;
        for (number, input) in kept.iter().enumerate() {
            std::fs::write(corpus.join(format!("kept-{number}")), input)?;
        }
        let artifacts = fuzz_dir().join("artifacts").join(&self.name);
        std::fs::create_dir_all(&artifacts)?;
        // libFuzzer ends by itself; a hang or excessive memory in a decoder is a find. The time-out is in wall time: on a
        // machine with ten times its load, an input of a millisecond has taken half a minute.
        let limits = ["-timeout=240", "-rss_limit_mb=2048", INPUT_BYTES_MAX, "-verbosity=1", "-print_final_stats=1"];
        let mut command = self.command();
        command.args(limits).arg(format!("-max_total_time={seconds}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(corpus);
        let heard = Quiet { listener, said: Mutex::default() };
        let success = child::stream(&mut command, &heard)?.success;
        let said = heard.said.into_inner().map_err(|_| "a listener panicked")?;
        let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        let runs: usize = runs.and_then(|runs| runs.trim().parse().ok()).unwrap_or(0);
        let wrong = match success {
            true if runs < kept.len() => Some(format!("{runs} inputs ran, {} are kept", kept.len())),
            true => None,
            false => Some(format!("FOUND SOMETHING: see {}", artifacts.display())),
        };
        // All of it where something is wrong; one line otherwise.
        match wrong {
            Some(_) => listener.line(&said),
            None => listener.line(&format!("{}: {} kept inputs, {runs} inputs ran", self.name, kept.len())),
        }
        Ok(wrong)
    }

    /// Writes the fewest inputs that reach what the corpus reaches.
    fn keep(&self, listener: &dyn Listener) -> Result<()> {
        let fewest = child::target_dir().join("fuzz").join("fewest").join(&self.name);
        let _ = std::fs::remove_dir_all(&fewest);
        std::fs::create_dir_all(&fewest)?;
        let corpus = fuzz_dir().join("corpus").join(&self.name);
        let mut command = self.command();
        command.args(["-set_cover_merge=1", "-verbosity=0", INPUT_BYTES_MAX]).arg(&fewest).arg(corpus);
        if !child::stream(&mut command, listener)?.success {
            return Err(format!("libFuzzer could not choose among the inputs of {}", self.name).into());
        }
        let mut inputs = Vec::new();
        for entry in std::fs::read_dir(&fewest)? {
            inputs.push(std::fs::read(entry?.path())?);
        }
        // Their order has no meaning; a fixed one makes small diffs.
        inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        std::fs::create_dir_all(fuzz_dir().join("kept"))?;
        let bytes = pack(&inputs);
        listener.line(&format!("{}: {} inputs kept, {} B", self.name, inputs.len(), bytes.len()));
        Ok(std::fs::write(self.kept_file(), bytes)?)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.arg(format!("--target={}", self.name));
        // Two parts of the standard library define the same globals; that is not an error of the target.
        command.current_dir(fuzz_dir()).env("ASAN_OPTIONS", "detect_odr_violation=0");
        command
    }
}

/// Keeps the output of a fuzzer, and passes on its processor time.
struct Quiet<'a> {
    listener: &'a dyn Listener,
    said: Mutex<String>,
}

impl Listener for Quiet<'_> {
    fn line(&self, line: &str) {
        if let Ok(mut said) = self.said.lock() {
            said.push_str(line);
            said.push('\n');
        }
    }

    fn spent(&self, cpu: std::time::Duration) {
        self.listener.spent(cpu);
    }
}

fn fuzz_dir() -> PathBuf {
    // libFuzzer runs there: its paths must not depend on the directory.
    let root = child::root();
    root.canonicalize().unwrap_or(root).join("fuzz")
}

/// Inputs one after the other, each behind its length as a little-endian `u32`.
fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    let each = |input: &Vec<u8>| [&(input.len() as u32).to_le_bytes()[..], input].concat();
    inputs.iter().flat_map(each).collect()
}

fn unpack(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        inputs.push(input.to_vec());
        bytes = rest;
    }
    Some(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_come_back() {
        let inputs = vec![Vec::new(), vec![7], vec![1; 300]];
        assert_eq!(unpack(&pack(&inputs)), Some(inputs.clone()));
        assert_eq!(unpack(&pack(&inputs)[..100]), None);
        assert_eq!(unpack(&[1, 0]), None);
    }
}
