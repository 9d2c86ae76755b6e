//! The Python side: a virtual environment of pinned packages in the build directory, and our package beside it.

use crate::{Result, child};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything but ROOT.
const PACKAGES: [&str; 4] = ["awkward==2.14.0", "numpy==2.4.6", "pyarrow==26.0.1", "uproot==5.7.7"];
/// ROOT's own pre-release package (6.40), of 250 MB.
const ROOT: &str = "ROOT==0.1a12";
const SCRIPT: &str = "crates/bench/src/dataset/peers.py";

/// An interpreter with the packages, and where our package is.
pub(super) struct Python {
    program: PathBuf,
    package: PathBuf,
}

impl Python {
    /// Installs what is missing and copies our package beside its extension module, which is built beside this program.
    pub(super) fn prepare(with_root: bool) -> Result<Python> {
        let dir = child::target_dir().join("bench-python");
        std::fs::create_dir_all(&dir)?;
        let program = dir.join("venv/bin/python");
        if !program.is_file() {
            run(Command::new("python3").args(["-m", "venv"]).arg(dir.join("venv")))?;
        }
        let mut wanted = PACKAGES.to_vec();
        wanted.extend(with_root.then_some(ROOT));
        let noted = dir.join(if with_root { "packages-and-root.txt" } else { "packages.txt" });
        if !std::fs::read_to_string(&noted).is_ok_and(|there| there == wanted.join("\n")) {
            let mut install = Command::new(&program);
            run(install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&wanted))?;
            std::fs::write(noted, wanted.join("\n"))?;
        }
        let package = dir.join("package");
        assemble(&package)?;
        Ok(Python { program, package })
    }

    /// Runs a command of the script; its answer.
    pub(super) fn answer(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.program);
        command.args(["-W", "ignore"]).arg(child::root().join(SCRIPT)).args(arguments).env("PYTHONPATH", &self.package);
        let said = child::output(&mut command)?;
        Ok(serde_json::from_str(said.lines().last().unwrap_or_default())?)
    }
}

/// Our package as a wheel would install it.
fn assemble(package: &Path) -> Result<()> {
    let built = std::env::current_exe()?.with_file_name("lib_native.so");
    if !built.is_file() || !cfg!(debug_assertions) {
        let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
        run(child::cargo(&["build", "--quiet", "--package", "forebay-python"]).args(profile))?;
    }
    let into = package.join("forebay");
    let _ = std::fs::remove_dir_all(&into);
    std::fs::create_dir_all(&into)?;
    for entry in std::fs::read_dir(child::root().join("crates/python/python/forebay"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), into.join(entry.file_name()))?;
        }
    }
    std::fs::copy(built, into.join("_native.abi3.so"))?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    child::output(command).map(drop)
}
