//! A section `[[keyspace]]`: the store behind it, how it is opened, and what to create if it does not exist yet.
//!
//! *Not here*: when it is opened and when it is made (`start.rs`).

use super::start::{self, Section};
use crate::locate::Problem;
use crate::mark::{Marks, Started};
use crate::units;
use forebay_core::{Error, Keyspace, Result};
use forebay_store::{Config, Store, WarmDevice};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files of which each says that there is, or was, a store; the region first.
const STORE_FILES: [&str; 3] = ["hot.fb", "keyspace.toml", "devices.toml"];

/// A store that is served, with the values that an operator sets at each opening.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyspaceSettings {
    /// Directory of the store.
    pub path: PathBuf,
    /// Serve what is left although something acknowledged may be lost.
    pub accept_loss: bool,
    /// Verify the payload of every fragment at opening.
    pub verify: bool,
    /// Segments written side by side; one per processor where it is not said.
    pub write_heads: Option<usize>,
    /// Fill of the hot level at which inhibit starts.
    #[serde(with = "units::share")]
    pub hot_high: f64,
    /// Fill of the hot level at which inhibit stops.
    #[serde(with = "units::share")]
    pub hot_low: f64,
    /// Fill of the hot level at which undecided events begin to be demoted.
    #[serde(with = "units::share")]
    pub demote_high: f64,
    /// Fill of the hot level down to which they are demoted.
    #[serde(with = "units::share")]
    pub demote_low: f64,
    /// Fill of the warm level at which inhibit starts.
    #[serde(with = "units::share")]
    pub warm_high: f64,
    /// Fill of the warm level at which inhibit stops.
    #[serde(with = "units::share")]
    pub warm_low: f64,
    /// How long what the archive has stays on the warm level as well.
    #[serde(with = "units::time")]
    pub custody_min: Duration,
    /// Fill of the warm level above which it goes earlier; left out: `warm_low`.
    #[serde(with = "units::share_or_none")]
    pub custody_high: Option<f64>,
    /// How long a put waits for space.
    #[serde(with = "units::time")]
    pub put_deadline: Duration,
    /// How long a lease lasts without a heartbeat.
    #[serde(with = "units::time")]
    pub lease: Duration,
    /// How long a lease can be extended in total.
    #[serde(with = "units::time")]
    pub max_hold: Duration,
    /// Most leases out at once.
    pub leases_max: usize,
    /// Share of the region for conflicting bytes.
    #[serde(with = "units::share")]
    pub conflict_share: f64,
    /// Share of the region for the debug stream before it inhibits.
    #[serde(with = "units::share")]
    pub debug_share: f64,
    /// Share of the region for dead bytes under guards.
    #[serde(with = "units::share")]
    pub pinned_share: f64,
    /// How long a fragment that is to be persisted waits for others.
    #[serde(with = "units::time")]
    pub persist_delay: Duration,
    /// How long a fragment of a warm group stays on the hot level.
    #[serde(with = "units::time")]
    pub flush_delay: Duration,
    /// Silence after which a device is reported as stalled.
    #[serde(with = "units::time")]
    pub device_stall: Duration,
    /// What to create if there is no store yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateSettings>,
}

/// What a store is made of at its first start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateSettings {
    /// Keyspace file: keys, attributes, stages, what events wait for.
    pub keyspace: PathBuf,
    /// Bytes of the hot level.
    #[serde(with = "units::size")]
    pub hot_bytes: u64,
    /// Bytes of a segment; 1/64 of the hot level where it is not said.
    #[serde(with = "units::size_or_none", skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u64>,
    /// Where the region lies, if not in the store's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_dir: Option<PathBuf>,
    /// Bytes of a container of the warm level.
    #[serde(with = "units::size")]
    pub container_bytes: u64,
    /// Bytes of a file of a device's decision log.
    #[serde(with = "units::size")]
    pub device_log_bytes: u64,
    /// Devices of the warm level.
    pub warm: Vec<WarmSettings>,
}

/// A device of the warm level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmSettings {
    /// A directory on a disk of its own.
    pub path: PathBuf,
    /// Bytes to take there.
    #[serde(with = "units::size")]
    pub bytes: u64,
}

impl Default for KeyspaceSettings {
    fn default() -> KeyspaceSettings {
        let store = Config::default();
        KeyspaceSettings {
            path: PathBuf::new(),
            accept_loss: store.accept_loss,
            verify: store.verify,
            write_heads: None,
            hot_high: store.hot_high,
            hot_low: store.hot_low,
            demote_high: store.demote_high,
            demote_low: store.demote_low,
            warm_high: store.warm_high,
            warm_low: store.warm_low,
            custody_min: store.custody_min,
            custody_high: store.custody_high,
            put_deadline: store.put_deadline,
            lease: store.lease,
            max_hold: store.max_hold,
            leases_max: store.leases_max,
            conflict_share: store.conflict_share,
            debug_share: store.debug_share,
            pinned_share: store.pinned_share,
            persist_delay: store.persist_delay,
            flush_delay: store.flush_delay,
            device_stall: store.device_stall,
            create: None,
        }
    }
}

impl Default for CreateSettings {
    fn default() -> CreateSettings {
        let Config { hot_bytes, segment_bytes, region_dir, container_bytes, device_log_bytes, .. } = Config::default();
        let (keyspace, warm) = (PathBuf::new(), Vec::new());
        CreateSettings { keyspace, hot_bytes, segment_bytes, region_dir, container_bytes, device_log_bytes, warm }
    }
}

impl KeyspaceSettings {
    /// The store in a directory, with the defaults.
    pub fn new(path: impl Into<PathBuf>) -> KeyspaceSettings {
        KeyspaceSettings { path: path.into(), ..KeyspaceSettings::default() }
    }

    /// The store's configuration.
    fn config(&self) -> Config {
        let defaults = Config::default();
        Config {
            accept_loss: self.accept_loss,
            verify: self.verify,
            write_heads: self.write_heads.unwrap_or(defaults.write_heads),
            hot_high: self.hot_high,
            hot_low: self.hot_low,
            demote_high: self.demote_high,
            demote_low: self.demote_low,
            warm_high: self.warm_high,
            warm_low: self.warm_low,
            custody_min: self.custody_min,
            custody_high: self.custody_high,
            put_deadline: self.put_deadline,
            lease: self.lease,
            max_hold: self.max_hold,
            leases_max: self.leases_max,
            conflict_share: self.conflict_share,
            debug_share: self.debug_share,
            pinned_share: self.pinned_share,
            persist_delay: self.persist_delay,
            flush_delay: self.flush_delay,
            device_stall: self.device_stall,
            ..defaults
        }
    }

    /// Fills in the values that the file left to this machine.
    pub(super) fn fill(&mut self) {
        self.write_heads.get_or_insert(Config::default().write_heads);
    }

    /// Paths that are not absolute are meant from here.
    pub(super) fn resolve(&mut self, base: &Path) {
        self.path = base.join(&self.path);
        if let Some(create) = &mut self.create {
            // From the directory of the file, not of the process: a service manager starts it anywhere.
            create.keyspace = base.join(&create.keyspace);
            create.region_dir = create.region_dir.take().map(|dir| base.join(dir));
            create.warm.iter_mut().for_each(|device| device.path = base.join(&device.path));
        }
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        if self.path.as_os_str().is_empty() {
            return Some(Problem::new(
                "path",
                "needed: the directory of the store, such as \"/var/lib/forebay/detector\"",
            ));
        }
        if self.write_heads == Some(0) || self.leases_max == 0 {
            let name = if self.leases_max == 0 { "leases_max" } else { "write_heads" };
            return Some(Problem::new(name, "at least 1"));
        }
        if self.lease.is_zero() || self.lease > self.max_hold {
            return Some(Problem::new("lease", "more than 0, and at most max_hold"));
        }
        // The store says it in the same words as at its opening; the first value that it names is where to look.
        if let Err(error) =
            self.config().check_marks(self.create.as_ref().is_some_and(|create| !create.warm.is_empty()))
        {
            let name = error.message().split(' ').next().unwrap_or_default().to_owned();
            let message = error.message().strip_prefix(&format!("{name} ")).unwrap_or(error.message()).to_owned();
            return Some(Problem::new(name, message));
        }
        let create = self.create.as_ref()?;
        let keyspace = create.keyspace.as_os_str().is_empty();
        keyspace.then(|| {
            let message = "needed: a keyspace file; docs/keyspace.toml explains every value of one";
            Problem::new("create.keyspace", message)
        })
    }

    /// Name of the keyspace, read without opening anything.
    ///
    /// # Errors
    /// `Invalid`, saying what is missing.
    pub fn name(&self) -> Result<String> {
        let own = self.path.join(STORE_FILES[1]);
        match &self.create {
            _ if own.exists() => read_file(&own, Keyspace::from_toml),
            Some(create) => create.read_keyspace(),
            None => Err(self.nothing_there()),
        }
        .map(|keyspace| keyspace.name)
    }

    /// Opens the store, or creates it as `create` says if it does not exist, without a mark. A store that another
    /// process has is tried again for a second.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::create`]; `Invalid` where there is no store and nothing says what to make.
    pub fn open(&self) -> Result<Store> {
        start::start(self, None).map(|begun| begun.kept)
    }

    /// [`KeyspaceSettings::open`] for a server that has marks.
    ///
    /// # Errors
    /// Also `Corrupt` with [`crate::Gone`] where the store was served before and is gone.
    pub fn start(&self, marks: Option<&Marks>) -> Result<Started> {
        start::start(self, marks)?.started()
    }

    pub(super) fn check_mark(&self, marks: &Marks) -> Result<()> {
        start::check(self, marks)
    }
}

impl Section for KeyspaceSettings {
    type Kept = Store;
    const KIND: &'static str = "store";
    const FILES: &'static [&'static str] = &STORE_FILES;

    fn dir(&self) -> &Path {
        &self.path
    }

    fn region_dir(&self) -> Option<&Path> {
        self.create.as_ref()?.region_dir.as_deref()
    }

    fn has_more_than_region(&self) -> bool {
        self.path.join(STORE_FILES[2]).exists()
    }

    fn can_make(&self) -> bool {
        self.create.is_some()
    }

    fn make(&self) -> Result<Store> {
        let create = self.create.as_ref().ok_or_else(|| self.nothing_there())?;
        let config = Config {
            hot_bytes: create.hot_bytes,
            segment_bytes: create.segment_bytes,
            region_dir: create.region_dir.clone(),
            container_bytes: create.container_bytes,
            device_log_bytes: create.device_log_bytes,
            warm: create.warm.iter().map(|device| WarmDevice::directory(&device.path, device.bytes)).collect(),
            ..self.config()
        };
        Store::create(&self.path, &create.read_keyspace()?, config)
    }

    fn open_there(&self) -> Result<Store> {
        Store::open(&self.path, self.config())
    }

    fn nothing_there(&self) -> Error {
        let path = self.path.display();
        Error::invalid(format!(
            "{path}: no store here; `forebay create {path}` makes one, and so does a section [keyspace.create]"
        ))
    }
}

impl CreateSettings {
    fn read_keyspace(&self) -> Result<Keyspace> {
        read_file(&self.keyspace, Keyspace::from_toml)
    }
}

/// A keyspace, from its file.
///
/// # Errors
/// `Invalid`, with the file and what is wrong with it.
pub(super) fn read_file<T>(file: &Path, read: impl Fn(&str) -> Result<T>) -> Result<T> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::invalid(format!("{name}: the keyspace file cannot be read: {error}")).with_source(error)
    })?;
    read(&text).map_err(|error| Error::invalid(format!("{name}: {}", error.message())))
}
