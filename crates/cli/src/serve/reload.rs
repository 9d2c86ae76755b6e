//! Tokens and certificates while the server runs: read again at SIGHUP, and when their files change.
//!
//! *On failure*: what cannot be used is logged, and what was in force stays so.

use forebay_core::{Error, Result};
use forebay_server::{Server, ServerConfig, Settings};
use signal_hook::consts::SIGHUP;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What changes with a file: its number, size, and time of the last change.
type Seen = Vec<Option<(u64, u64, i64, i64)>>;

/// Looks after the files of a configuration.
pub(super) struct Reload {
    /// The configuration; `None` where there is none, and nothing to read again.
    file: Option<PathBuf>,
    asked: Arc<AtomicBool>,
    seen: Seen,
}

impl Reload {
    /// Remembers the files as they are, and takes SIGHUP as an order.
    ///
    /// # Errors
    /// `Internal` where the handler cannot be installed.
    pub(super) fn begin(file: Option<&Path>, settings: &Settings) -> Result<Reload> {
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&asked))
            .map_err(|error| Error::internal("cannot install the handler of SIGHUP").with_source(error))?;
        Ok(Reload { file: file.map(Path::to_owned), asked, seen: seen(settings) })
    }

    /// Reads again what has changed; whether SIGHUP asked for it.
    pub(super) fn look(&mut self, server: &Server, settings: &mut Settings) -> bool {
        let asked = self.asked.swap(false, Ordering::Acquire);
        let now = seen(settings);
        if !asked && now == self.seen {
            return false;
        }
        // Before it is read: a file that changes meanwhile is read once more.
        self.seen = now;
        match self.read(server, settings, asked) {
            Ok(()) => tracing::info!("tokens and certificates were read again"),
            Err(error) => {
                tracing::error!(%error, "tokens and certificates stay as they were: what was read cannot be used");
            }
        }
        if asked {
            // Of the files that the configuration names now.
            self.seen = seen(settings);
        }
        asked
    }

    fn read(&self, server: &Server, settings: &mut Settings, asked: bool) -> Result<()> {
        let (new, config) = self.files(settings, asked).inspect_err(|error| server.reload_refused(error))?;
        server.reload(config.tokens, config.tls.as_ref())?;
        *settings = new;
        Ok(())
    }

    fn files(&self, settings: &Settings, asked: bool) -> Result<(Settings, ServerConfig)> {
        // Only an order reads the configuration again: an editor may be in the middle of it.
        let mut new = settings.clone();
        if let Some(file) = self.file.as_ref().filter(|_| asked) {
            let read = Settings::read(file)?;
            (new.token, new.tls) = (read.token, read.tls);
        }
        let config = new.server()?;
        Ok((new, config))
    }
}

fn seen(settings: &Settings) -> Seen {
    let secrets = settings.token.iter().filter_map(|token| token.secret_file.as_ref());
    let tls = settings.tls.iter().flat_map(|tls| [Some(&tls.certificate), Some(&tls.key), tls.client_ca.as_ref()]);
    let mark = |path: &PathBuf| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.ino(), data.size(), data.mtime(), data.mtime_nsec()))
    };
    secrets.chain(tls.flatten()).map(mark).collect()
}
