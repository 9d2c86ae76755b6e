//! A section `[[ring]]`: the ring behind it, how it is opened, and what to create if it does not exist yet.

use super::keyspace::read_file;
use super::start::{self, Section};
use crate::locate::Problem;
use crate::mark::{Marks, Started};
use crate::units;
use forebay_core::{Error, Result, RingKeyspace};
use forebay_ring::{Ring, RingConfig};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Files of which each says that there is a ring; the region first.
const RING_FILES: [&str; 2] = ["ring.fb", "ring.toml"];

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
    /// What to create if there is no ring yet.
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

    /// Name of the keyspace, read without opening anything.
    ///
    /// # Errors
    /// `Invalid`, saying what is missing.
    pub fn name(&self) -> Result<String> {
        let own = self.path.join(RING_FILES[1]);
        match &self.create {
            _ if own.exists() => read_keyspace(&own),
            Some(create) => read_keyspace(&create.keyspace),
            None => Err(self.nothing_there()),
        }
        .map(|keyspace| keyspace.name)
    }

    /// Opens the ring, or creates it as `create` says if it does not exist, without a mark. One that another process
    /// has is tried again for a second.
    ///
    /// # Errors
    /// As [`Ring::open`] and [`Ring::create`]; `Invalid` where there is no ring and nothing says what to make.
    pub fn open(&self) -> Result<Ring> {
        start::start(self, None).map(|begun| begun.kept)
    }

    /// [`RingSettings::open`] for a server that has marks.
    ///
    /// # Errors
    /// Also `Corrupt` with [`crate::Gone`] where the ring was served before and is gone.
    pub fn start(&self, marks: Option<&Marks>) -> Result<Started> {
        start::start(self, marks)?.started()
    }

    pub(super) fn check_mark(&self, marks: &Marks) -> Result<()> {
        start::check(self, marks)
    }
}

impl Section for RingSettings {
    type Kept = Ring;
    const KIND: &'static str = "ring";
    const FILES: &'static [&'static str] = &RING_FILES;

    fn dir(&self) -> &Path {
        &self.path
    }

    fn region_dir(&self) -> Option<&Path> {
        self.create.as_ref()?.region_dir.as_deref()
    }

    fn has_more_than_region(&self) -> bool {
        false
    }

    fn can_make(&self) -> bool {
        self.create.is_some()
    }

    fn make(&self) -> Result<Ring> {
        let create = self.create.as_ref().ok_or_else(|| self.nothing_there())?;
        let config = RingConfig {
            hot_bytes: create.hot_bytes,
            segment_bytes: create.segment_bytes,
            region_dir: create.region_dir.clone(),
            ..self.config()
        };
        Ring::create(&self.path, &read_keyspace(&create.keyspace)?, config)
    }

    fn open_there(&self) -> Result<Ring> {
        Ring::open(&self.path, self.config())
    }

    fn nothing_there(&self) -> Error {
        let path = self.path.display();
        Error::invalid(format!("{path}: no ring here; a section [ring.create] makes one"))
    }
}

fn read_keyspace(file: &Path) -> Result<RingKeyspace> {
    read_file(file, RingKeyspace::from_toml)
}
