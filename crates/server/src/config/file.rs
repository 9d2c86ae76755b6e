//! The configuration file of `forebay serve`, in TOML: read, checked, written out.
//!
//! *Invariants*: every value has a default except those that name something outside (tests/secure/sample.rs, over
//! `docs/server.toml`); what `to_toml` writes reads back as the same configuration, and has no secret in it.

use super::{
    KeyspaceSettings, ListenSettings, RingSettings, STOP_GRACE, ServerConfig, TokenSettings, state_dir_default,
    threads_default,
};
use crate::access::Access;
use crate::audit::AuditSettings;
use crate::limits::Limits;
use crate::locate::{Problem, located, unreadable};
use crate::mark::Marks;
use crate::served::two_of;
use crate::tls::TlsFiles;
use crate::units;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most threads.
const THREADS_MAX: usize = 1024;

/// All that a configuration file says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Threads that serve connections; one per processor, at most 8, where it is not said.
    pub threads: Option<usize>,
    /// Time for what is under way when the server is stopped.
    #[serde(with = "units::time")]
    pub stop_grace: Duration,
    /// Where it remembers whether what it serves may be made again once it is gone.
    pub state_dir: PathBuf,
    /// Where it listens.
    pub listen: ListenSettings,
    /// Limits of connections.
    pub limits: Limits,
    /// How it logs.
    pub log: LogSettings,
    /// Certificate and key of `tls://` listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The cluster that it is a node of; without it none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterSettings>,
    /// Stores.
    pub keyspace: Vec<KeyspaceSettings>,
    /// Rings.
    pub ring: Vec<RingSettings>,
    /// Access tokens and their rights.
    pub token: Vec<TokenSettings>,
    /// Where changes are noted; nowhere without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditSettings>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// The map, in JSON: the same file on all nodes. Read again at SIGHUP.
    pub map: PathBuf,
    /// File with the token for the other nodes, where they want one: its right is `peer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// For `tls://` addresses of other nodes: the certificate of the CA that made theirs, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// How a server logs, to stderr.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Lines for people or for programs.
    pub format: LogFormat,
    /// Which events are logged.
    pub level: LogLevel,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object on each line.
    Json,
}

/// The least important line that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors that end the server or a listener.
    Error,
    /// Refusals, and what somebody should look at.
    Warn,
    /// Starts and stops.
    #[default]
    Info,
    /// Every connection.
    Debug,
    /// Everything.
    Trace,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threads: None,
            stop_grace: STOP_GRACE,
            state_dir: state_dir_default(),
            listen: ListenSettings::default(),
            limits: Limits::default(),
            log: LogSettings::default(),
            tls: None,
            cluster: None,
            keyspace: Vec::new(),
            ring: Vec::new(),
            token: Vec::new(),
            audit: None,
        }
    }
}

impl Settings {
    /// One store, served with the defaults.
    pub fn of(keyspace: KeyspaceSettings) -> Settings {
        let mut settings = Settings { keyspace: vec![keyspace], ..Settings::default() };
        settings.fill();
        settings
    }

    /// One ring, served with the defaults.
    pub fn of_ring(ring: RingSettings) -> Settings {
        let mut settings = Settings { ring: vec![ring], ..Settings::default() };
        settings.fill();
        settings
    }

    /// Reads and checks a file. Paths in it are meant from its directory.
    ///
    /// # Errors
    /// `Invalid`, with file, line, column, the value and what to write instead.
    pub fn read(path: &Path) -> Result<Settings> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let file = path.display();
            Error::invalid(format!("{file}: the configuration cannot be read: {error}")).with_source(error)
        })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Settings::parse(&text, &path.display().to_string(), base)
    }

    /// Reads and checks a configuration that is called `name` in errors, and whose paths are meant from `base`.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn parse(text: &str, name: &str, base: &Path) -> Result<Settings> {
        let mut settings: Settings = toml::from_str(text).map_err(|error| unreadable(name, text, &error))?;
        if let Some(problem) = settings.problem() {
            return Err(located(name, text, &problem));
        }
        // After the check: errors show paths as the file has them.
        settings.resolve(base);
        settings.fill();
        Ok(settings)
    }

    /// Checks what this says as a whole, for settings that were made or changed in code.
    ///
    /// # Errors
    /// `Invalid`, naming the value and what to write instead.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            Some(problem) => Err(Error::invalid(format!("{}: {}", problem.path, problem.message))),
            None => Ok(()),
        }
    }

    /// A contradiction in the file, with the path of its value.
    fn problem(&self) -> Option<Problem> {
        if self.keyspace.is_empty() && self.ring.is_empty() {
            let message = "needed: a section [[keyspace]] with the path of a store, or [[ring]] with that of a ring";
            return Some(Problem::new("keyspace", message));
        }
        if self.threads.is_some_and(|threads| threads == 0 || threads > THREADS_MAX) {
            return Some(Problem::new("threads", format!("1 to {THREADS_MAX}")));
        }
        if self.state_dir.as_os_str().is_empty() {
            return Some(Problem::new("state_dir", "a directory that survives a restart of the machine"));
        }
        for (at, keyspace) in self.keyspace.iter().enumerate() {
            if let Some(problem) = keyspace.problem() {
                return Some(problem.under(&format!("keyspace.{at}")));
            }
            // Two sections of one store would open it twice, and the second would wait for the lock of the first.
            if self.keyspace[..at].iter().any(|before| before.path == keyspace.path) {
                return Some(Problem::new(format!("keyspace.{at}.path"), "this store is served already, further up"));
            }
        }
        for (at, ring) in self.ring.iter().enumerate() {
            if let Some(problem) = ring.problem() {
                return Some(problem.under(&format!("ring.{at}")));
            }
            if self.ring[..at].iter().any(|before| before.path == ring.path) {
                return Some(Problem::new(format!("ring.{at}.path"), "this ring is served already, further up"));
            }
        }
        if let Some((name, message)) = self.limits.problem() {
            return Some(Problem::new(name, message).under("limits"));
        }
        for (at, token) in self.token.iter().enumerate() {
            if let Some(problem) = token.problem() {
                return Some(problem.under(&format!("token.{at}")));
            }
            if self.token[..at].iter().any(|before| before.name == token.name) {
                return Some(Problem::new(
                    format!("token.{at}.name"),
                    "another token has this name: logs tell them by it",
                ));
            }
        }
        if let Some(problem) = self.audit.as_ref().and_then(AuditSettings::problem) {
            return Some(problem.under("audit"));
        }
        if let Some(problem) = self.tls.as_ref().and_then(TlsFiles::problem) {
            return Some(problem.under("tls"));
        }
        let listen = &self.listen;
        if listen.native.is_empty() && listen.resp.is_empty() {
            return Some(Problem::new("listen.native", "nobody could connect: name an address here or in `resp`"));
        }
        // Last: whether an address is exposed depends on tokens and certificates, which must be right themselves.
        listen.exposure(self.tls.as_ref(), !self.token.is_empty()).map(|problem| problem.under("listen"))
    }

    fn resolve(&mut self, base: &Path) {
        self.state_dir = base.join(&self.state_dir);
        self.keyspace.iter_mut().for_each(|keyspace| keyspace.resolve(base));
        self.ring.iter_mut().for_each(|ring| ring.resolve(base));
        for token in &mut self.token {
            token.secret_file = token.secret_file.take().map(|file| base.join(file));
        }
        if let Some(tls) = &mut self.tls {
            tls.resolve(base);
        }
        if let Some(audit) = &mut self.audit {
            audit.resolve(base);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.map = base.join(&cluster.map);
            cluster.token_file = cluster.token_file.take().map(|file| base.join(file));
            cluster.ca = cluster.ca.take().map(|file| base.join(file));
        }
    }

    /// Writes out what was left to this machine.
    fn fill(&mut self) {
        // Written out, so that `--print-config` shows what this machine gets.
        self.threads.get_or_insert_with(threads_default);
        self.keyspace.iter_mut().for_each(KeyspaceSettings::fill);
    }

    /// Everything as a file, defaults written out, without any secret.
    ///
    /// # Errors
    /// `Invalid` for a path that is no text.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::invalid("the configuration as TOML").with_source(error))
    }

    /// Checks, without opening anything, that a server could start with this configuration: there is what it serves, or
    /// a keyspace file to make it of; and tokens have rights in keyspaces that are served.
    ///
    /// # Errors
    /// `Invalid`, saying what is missing.
    pub fn check_start(&self, config: &ServerConfig) -> Result<()> {
        let keyspaces = self.keyspace.iter().map(KeyspaceSettings::name);
        let names = keyspaces.chain(self.ring.iter().map(RingSettings::name)).collect::<Result<Vec<_>>>()?;
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            return Err(two_of(twice.1));
        }
        // A right in a keyspace that is not served is most often a misspelt name: refused, not ignored.
        Access::new(config.tokens.clone(), names.iter().map(String::as_str)).map(|_| ())
    }

    /// The directory of marks: what the server remembers of its stores.
    pub fn marks(&self) -> Marks {
        Marks::new(&self.state_dir)
    }

    /// Checks, without taking anything, that nothing that was served before is gone.
    ///
    /// # Errors
    /// As a start: `Corrupt` with [`crate::Gone`], saying what to do; `Invalid` for a mark that cannot be understood.
    pub fn check_marks(&self) -> Result<()> {
        let marks = self.marks();
        self.keyspace.iter().try_for_each(|keyspace| keyspace.check_mark(&marks))?;
        self.ring.iter().try_for_each(|ring| ring.check_mark(&marks))
    }

    /// Listeners, threads and limits, with secrets loaded; certificates are checked.
    ///
    /// # Errors
    /// `Invalid` for a secret, certificate or key that is not there, not private, or cannot be used.
    pub fn server(&self) -> Result<ServerConfig> {
        if let Some(tls) = &self.tls {
            // Loaded and dropped: a certificate that cannot be used must show here, before any store is opened.
            tls.load()?;
        }
        let listen = self.listen.clone();
        Ok(ServerConfig {
            native: listen.native,
            resp: listen.resp,
            http: listen.http,
            insecure: listen.insecure,
            http_insecure: listen.http_insecure,
            unix_mode: listen.unix_mode,
            tls: self.tls.clone(),
            tokens: self.token.iter().map(TokenSettings::load).collect::<Result<_>>()?,
            audit: self.audit.clone(),
            threads: self.threads.unwrap_or_else(threads_default),
            limits: self.limits.clone(),
        })
    }
}
