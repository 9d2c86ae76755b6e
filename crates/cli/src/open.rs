//! Opens the store of a command, or creates it with defaults on first use.

use crate::output::Output;
use forebay_core::{Error, Keyspace, Kind, Result};
use forebay_store::{Config, Store};
use std::path::{Path, PathBuf};

/// The directory of a store, as every command but `demo` and `bench` takes it.
#[derive(clap::Args)]
pub(crate) struct Directory {
    /// Directory of the store.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

impl Directory {
    /// Opens the store that is there.
    pub(crate) fn open(&self, out: &Output) -> Result<Store> {
        if !holds_store(&self.dir) {
            return Err(no_store(&self.dir));
        }
        let config = Config { accept_loss: out.accept_loss, ..Config::default() };
        Store::open(&self.dir, config).map_err(|error| explain(&self.dir, error))
    }

    /// Opens the store that is there, or makes one with the defaults.
    pub(crate) fn open_or_create(&self, out: &Output) -> Result<Store> {
        if holds_store(&self.dir) {
            return self.open(out);
        }
        let config = Config::default();
        out.note(format!(
            "forebay: no store in {} yet: made one with the defaults (run/event/source, events complete with 1 source, \
             hot level of {}; `forebay create` takes others)",
            self.dir.display(),
            crate::units::bytes(config.hot_bytes)
        ));
        Store::create(&self.dir, &Keyspace::events("events", 1), config)
    }
}

/// Whether a directory has the files of a store.
pub(crate) fn holds_store(dir: &Path) -> bool {
    dir.join("hot.fb").exists() || dir.join("keyspace.toml").exists()
}

/// What a command says where there is no store.
pub(crate) fn no_store(dir: &Path) -> Error {
    let what = if dir.is_dir() { "holds no store (no hot.fb)" } else { "is not a directory" };
    Error::invalid(format!("{} {what}; `forebay create {}` makes one", dir.display(), dir.display()))
}

/// An error of opening, with what a person can do about it.
pub(crate) fn explain(dir: &Path, error: Error) -> Error {
    // Every other kind says itself what to do.
    if error.kind() != Kind::Unavailable {
        return error;
    }
    Error::unavailable(format!(
        "the store in {} cannot be opened now; it serves one process at a time: wait for the other to end, or stop it",
        dir.display()
    ))
    .with_source(error)
}
