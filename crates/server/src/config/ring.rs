//! A section `[[ring]]`: the ring behind it, how it is opened, and what it is made of where there is none yet.

use super::keyspace::{open_or_make_again, read_file};
use super::locate::Problem;
use super::units;
use forebay_core::{Error, Result, RingKeyspace};
use forebay_store::{Ring, RingConfig};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Files of which each says that there is a ring.
const RING_FILES: [&str; 2] = ["ring.toml", "ring.fb"];

/// A ring that is served, with the values that an operator sets at each opening.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RingSettings {
    /// Directory of the ring.
    pub path: PathBuf,
    /// Serve what is left although something acknowledged may be lost.
    pub accept_loss: bool,
    /// Verify the payload of every fragment at opening.
    pub verify: bool,
    /// What to make where there is no ring yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateRingSettings>,
}

/// What a ring is made of at its first start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateRingSettings {
    /// Keyspace file: sources, ticks, history.
    pub keyspace: PathBuf,
    /// Bytes of the ring.
    #[serde(with = "units::size")]
    pub hot_bytes: u64,
    /// Bytes of a chunk; 16 of them for each source where it is not said.
    #[serde(with = "units::size_or_none", skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u64>,
    /// Where the region lies, if not in the ring's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_dir: Option<PathBuf>,
}

impl Default for CreateRingSettings {
    fn default() -> CreateRingSettings {
        let RingConfig { hot_bytes, segment_bytes, region_dir, .. } = RingConfig::default();
        CreateRingSettings { keyspace: PathBuf::new(), hot_bytes, segment_bytes, region_dir }
    }
}

impl RingSettings {
    fn config(&self) -> RingConfig {
        RingConfig { accept_loss: self.accept_loss, verify: self.verify, ..RingConfig::default() }
    }

    /// Paths that are not absolute are meant from here.
    pub(super) fn resolve(&mut self, base: &Path) {
        self.path = base.join(&self.path);
        if let Some(create) = &mut self.create {
            create.keyspace = base.join(&create.keyspace);
            create.region_dir = create.region_dir.take().map(|dir| base.join(dir));
        }
    }

    pub(super) fn problem(&self) -> Option<Problem> {
        if self.path.as_os_str().is_empty() {
            return Some(Problem::new("path", "needed: the directory of the ring, such as \"/var/lib/forebay/links\""));
        }
        let keyspace = self.create.as_ref()?.keyspace.as_os_str().is_empty();
        keyspace.then(|| {
            let message = "needed: a keyspace file of a ring; docs/ring.toml explains every value of one";
            Problem::new("create.keyspace", message)
        })
    }

    fn holds_ring(&self) -> bool {
        RING_FILES.iter().any(|name| self.path.join(name).symlink_metadata().is_ok())
    }

    /// Name of the keyspace, read without opening anything.
    ///
    /// # Errors
    /// `Invalid`, saying what is missing.
    pub fn name(&self) -> Result<String> {
        let own = self.path.join(RING_FILES[0]);
        match &self.create {
            _ if own.exists() => read_keyspace(&own),
            Some(create) => read_keyspace(&create.keyspace),
            None => Err(self.nothing_there()),
        }
        .map(|keyspace| keyspace.name)
    }

    fn nothing_there(&self) -> Error {
        let path = self.path.display();
        Error::invalid(format!("{path}: no ring here; a section [ring.create] makes one"))
    }

    /// Opens the ring, or makes it where there is none and `create` says of what. One that another process has is tried
    /// again for a second.
    ///
    /// # Errors
    /// As [`Ring::open`] and [`Ring::create`]; `Invalid` where there is no ring and nothing says what to make.
    pub fn open(&self) -> Result<Ring> {
        let make = self.create.as_ref().map(|create| || self.make(create));
        if !self.holds_ring() {
            return make.map_or_else(|| Err(self.nothing_there()), |make| make());
        }
        open_or_make_again(&self.path.join(RING_FILES[1]), || Ring::open(&self.path, self.config()), make)
    }

    fn make(&self, create: &CreateRingSettings) -> Result<Ring> {
        let config = RingConfig {
            hot_bytes: create.hot_bytes,
            segment_bytes: create.segment_bytes,
            region_dir: create.region_dir.clone(),
            ..self.config()
        };
        Ring::create(&self.path, &read_keyspace(&create.keyspace)?, config)
    }
}

fn read_keyspace(file: &Path) -> Result<RingKeyspace> {
    read_file(file, RingKeyspace::from_toml)
}
