//! Sets up a demo's store: stages, source groups, the run, sizes.
//!
//! ```text
//! fast   reads group `fast`      ─▶ reject | pass
//! final  reads every source      ─▶ accept into physics (whole), and one of ten into calib (group `calib`)
//! ```

use super::plan::Plan;
use crate::limits::{COMPLETE_WITHIN, CUSTODY_MIN, LEASE, PUT_WAIT};
use forebay_core::{Completeness, Keyspace, Level, Result, RunConfig, Source, SourceGroup};
use forebay_store::{Config, Sources, WarmDevice};

/// The first stage: reads a few sources of every event.
pub(crate) const FAST: &str = "fast";
/// The last stage: reads what the first one passed on, whole.
pub(crate) const FINAL: &str = "final";
/// The stream of physics events.
pub(crate) const PHYSICS: &str = "physics";
/// The stream and the source group of calibration.
pub(crate) const CALIB: &str = "calib";

impl Plan {
    /// The keyspace `run/event/source`; runs are opened by hand, events are announced.
    pub(crate) fn keyspace(&self) -> Result<Keyspace> {
        let mut keyspace = Keyspace::events("demo", self.config.sources);
        keyspace.stages = vec![FAST.to_owned(), FINAL.to_owned()];
        keyspace.streams = vec![PHYSICS.to_owned(), CALIB.to_owned()];
        keyspace.groups = vec![self.source_group(FAST, &self.fast)?, self.source_group(CALIB, &self.calib)?];
        keyspace.announced = true;
        keyspace.run = self.run_config()?;
        keyspace.fragment_bytes_max = keyspace.fragment_bytes_max.max(self.fragment_bytes);
        keyspace.check()?;
        Ok(keyspace)
    }

    /// Events are complete when each source has arrived.
    pub(crate) fn run_config(&self) -> Result<RunConfig> {
        let all = Completeness::first_sources(&self.schema, u64::from(self.config.sources))?;
        Ok(RunConfig::new(all, COMPLETE_WITHIN))
    }

    /// How the store is opened, with these devices.
    pub(crate) fn store_config(&self, warm: Vec<WarmDevice>) -> Config {
        let base = Config::default();
        Config {
            hot_bytes: self.config.hot_bytes,
            warm,
            container_bytes: self.warm.map_or(base.container_bytes, |warm| warm.container_bytes),
            device_log_bytes: self.warm.map_or(base.device_log_bytes, |warm| warm.log_bytes),
            segment_bytes: Some(self.segment_bytes),
            write_heads: self.config.readout_threads,
            put_deadline: PUT_WAIT,
            lease: LEASE,
            custody_min: CUSTODY_MIN,
            ..base
        }
    }

    /// Sources by number, for reading and for streams.
    pub(crate) fn group(&self, sources: &[u32]) -> Result<Sources> {
        Ok(Sources::Only(self.pack(sources)?))
    }

    fn source_group(&self, name: &str, sources: &[u32]) -> Result<SourceGroup> {
        Ok(SourceGroup { name: name.to_owned(), sources: self.pack(sources)?, level: Level::Hot })
    }

    /// Packed sources, in the order of their numbers.
    pub(crate) fn pack(&self, sources: &[u32]) -> Result<Vec<Source>> {
        sources.iter().map(|source| self.schema.source(&[u64::from(*source)])).collect()
    }
}
