//! How long the command takes: by the last whole run in this directory, or, before it, by the runs of `docs/decisions/0015`.

use super::extent::Extent;
use crate::{Result, child};
use std::path::PathBuf;
use std::time::Duration;

/// The time of one extent.
pub(crate) struct Took {
    extent: Extent,
    file: PathBuf,
    last: Option<Duration>,
}

impl Took {
    /// What is known of it.
    pub(crate) fn of(extent: Extent) -> Took {
        let file = child::target_dir().join("checks").join(format!("took-{extent:?}"));
        let last = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        Took { extent, file, last: last.map(Duration::from_secs) }
    }

    /// A sentence for who waits.
    pub(crate) fn expected(&self) -> String {
        match self.last {
            Some(last) => format!("the last run here took {} min", last.as_secs().div_ceil(60)),
            None => format!("from nothing on two processors: {}", self.extent.takes()),
        }
    }

    /// Notes how long a run took that passed.
    pub(crate) fn save(&self, took: Duration) -> Result<()> {
        Ok(std::fs::write(&self.file, took.as_secs().to_string())?)
    }
}
