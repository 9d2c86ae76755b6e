//! The Python package: its environment, its wheel of the library that is built already, and its checks.
//!
//! ```text
//! requirements.txt ─▶ environment ─────────────────────────┐
//! library of the one build + sources ─▶ wheel ─▶ installed ┴─▶ ruff, mypy, pytest
//! ```
//!
//! *Invariants*: nothing is compiled here: maturin would build pyo3 and what is below it with other features and variables, and so twice.
//! The wheel has maturin's own metadata. Nothing is written outside the directory where builds go.

use crate::Result;
use crate::child::{self, Listener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a run of the checks has counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Failures, and tests that did not run, by name.
    pub(crate) notes: Vec<String>,
    /// Its slowest tests, and the seconds that each took.
    pub(crate) times: Vec<(String, f64)>,
}

/// The directory of the package.
fn package() -> PathBuf {
    child::root().join("crates").join("python")
}

/// Where everything of it goes.
fn dir() -> PathBuf {
    child::target_dir().join("python-tests")
}

fn program(name: &str) -> PathBuf {
    dir().join("env").join("bin").join(name)
}

/// Makes the environment of the tests, where it is not there with just these versions.
pub(crate) fn environment(listener: &dyn Listener) -> Result<()> {
    let requirements = package().join("requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)?;
    let (env, noted) = (dir().join("env"), dir().join("requirements.txt"));
    if std::fs::read_to_string(&noted).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(&env);
    std::fs::create_dir_all(dir())?;
    // Without pip in it, which takes longer to install than the rest to unpack.
    ran(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&env), listener)?;
    ran(pip().args(["install", "--quiet", "--no-deps", "--no-compile", "-r"]).arg(&requirements), listener)?;
    Ok(std::fs::write(noted, wanted)?)
}

fn pip() -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(program("python"));
    command
}

fn ran(command: &mut Command, listener: &dyn Listener) -> Result<()> {
    match child::stream(command, listener)?.success {
        true => Ok(()),
        false => Err("the command failed; its output is above".into()),
    }
}

/// Packs the wheel with this library, and installs it.
pub(crate) fn install(library: &Path, listener: &dyn Listener) -> Result<()> {
    let (stage, wheels) = (dir().join("stage"), dir().join("wheels"));
    for old in [&stage, &wheels] {
        let _ = std::fs::remove_dir_all(old);
    }
    let sources = stage.join("forebay");
    std::fs::create_dir_all(&sources)?;
    std::fs::create_dir_all(&wheels)?;
    for entry in std::fs::read_dir(package().join("python").join("forebay"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), sources.join(entry.file_name()))?;
        }
    }
    std::fs::copy(library, sources.join("_native.abi3.so"))?;
    let mut metadata = Command::new(program("maturin"));
    metadata.args(["pep517", "write-dist-info", "--metadata-directory"]).arg(&stage).arg("--interpreter");
    ran(metadata.arg(program("python")).current_dir(package()), listener)?;
    ran(Command::new(program("python")).args(["-m", "wheel", "pack"]).arg(&stage).arg("-d").arg(&wheels), listener)?;
    let wheel = std::fs::read_dir(&wheels)?.next().ok_or("no wheel was packed")??.path();
    ran(pip().args(["install", "--quiet", "--no-deps", "--no-compile", "--force-reinstall"]).arg(wheel), listener)
}

/// Runs formatter, linter and type checker on the sources, and the tests on the wheel.
pub(crate) fn checks(listener: &dyn Listener) -> Result<Counts> {
    let mut counts = Counts::default();
    let cache = |name: &str| dir().join(name).display().to_string();
    let ruff = cache("ruff");
    let mypy = cache("mypy");
    let checks: [(&str, &[&str]); 3] = [
        ("ruff", &["format", "--check", "--cache-dir", &ruff]),
        ("ruff", &["check", "--cache-dir", &ruff]),
        ("mypy", &["--cache-dir", &mypy]),
    ];
    for (name, arguments) in checks {
        match child::stream(Command::new(program(name)).args(arguments).current_dir(package()), listener)?.success {
            true => counts.passed += 1,
            false => {
                counts.failed += 1;
                counts.notes.push(format!("{name} {}: see above", arguments[0]));
            }
        }
    }
    let mut pytest = Command::new(program("python"));
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "--durations=10"]).current_dir(package());
    let ended = child::stream(pytest.env("PYTHONPYCACHEPREFIX", cache("compiled")), listener)?;
    counts.take(&ended.stdout, ended.success);
    Ok(counts)
}

impl Counts {
    /// Adds what pytest says of its tests. A failure that it does not count (a crash, no test at all) counts as one.
    fn take(&mut self, stdout: &str, success: bool) {
        let lines = || stdout.lines().map(str::trim);
        let summary =
            lines().rfind(|line| line.contains(" passed") || line.contains(" failed") || line.contains(" error"));
        let number = |word: &str| {
            let mut words = summary.unwrap_or_default().split([' ', ',', '=']).filter(|text| !text.is_empty());
            let mut before = words.next().unwrap_or_default();
            for text in words {
                if text.trim_end_matches('s') == word {
                    return before.parse::<u64>().unwrap_or(0);
                }
                before = text;
            }
            0
        };
        let (passed, failed) = (number("passed"), number("failed") + number("error"));
        self.passed += passed;
        self.failed += failed;
        if failed == 0 && (!success || passed == 0) {
            self.failed += 1;
            self.notes.push("pytest: no test passed, or it ended without a summary; see above".to_owned());
        }
        let named = |line: &&str| ["FAILED ", "ERROR ", "SKIPPED "].iter().any(|word| line.starts_with(word));
        self.notes.extend(lines().filter(named).map(str::to_owned));
        // Such as `1.25s call     tests/test_root.py::test_nanoaod`.
        self.times.extend(lines().filter_map(|line| {
            let (seconds, what) = line.split_once("s call ")?;
            Some((format!("python {}", what.trim()), seconds.parse().ok()?))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    fn counted(text: &str, success: bool) -> (u64, u64, usize) {
        let mut counts = Counts::default();
        counts.take(text, success);
        (counts.passed, counts.failed, counts.notes.len())
    }

    #[test]
    fn counts_what_pytest_says() {
        let skipped = "SKIPPED [2] tests/conftest.py:26: not run: no file\n";
        assert_eq!(counted(&format!("..s [100%]\n{skipped}62 passed, 2 skipped in 40.12s\n"), true), (62, 0, 1));
        let mut timed = Counts::default();
        timed.take("1.25s call     tests/test_a.py::b\n3 passed in 2.00s\n", true);
        assert_eq!(timed.times, [("python tests/test_a.py::b".to_owned(), 1.25)]);
        let failed = "FAILED tests/test_a.py::b - assert\n1 failed, 3 passed, 2 errors in 0.1s\n";
        assert_eq!(counted(failed, false), (3, 3, 1));
    }

    #[test]
    fn a_crash_and_an_empty_run_are_failures() {
        assert_eq!(counted("Fatal Python error: Segmentation fault\n", false), (0, 1, 1));
        assert_eq!(counted("no tests ran in 0.01s\n", true), (0, 1, 1));
        assert_eq!(counted("5 passed in 1.00s\n", false), (5, 1, 1));
    }
}
