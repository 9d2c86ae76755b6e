//! `forebay create`: a new store, from a keyspace file or the built-in run/event/source keyspace, of one level or two; or a ring,
//! from its file.

use crate::output::{Answer, Output};
use crate::{levels, open, units};
use forebay_core::{AttributeSchema, Completeness, Error, Keyspace, Result, RingKeyspace};
use forebay_ring::{Ring, RingConfig};
use forebay_store::{Config, Store, WarmDevice};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HELP: &str = "\
Make a new store in DIR. Its levels are allocated at once, so that later puts find their space.

Without --keyspace the key is run:u32/event:u64/source:u32, events are run/event, and an event is complete when \
--sources-per-event different fragments of it have arrived, or --complete-within after the first of them.

Example: events of four sources with a lumi section and a class, one GiB of hot level, and its first run:
  forebay create /tmp/first --sources-per-event 4 --hot-bytes 1G \\
    --attribute lumi:u32 --attribute class --class physics --class calib
  forebay run /tmp/first open 1

Fragments of a run that is not open are refused. With --auto-open N a run opens once N different fragments of it have come; with \
1 a flipped bit in a run number opens a run.

A keyspace file can have more, such as a source with two parts and a list of expected sources:
  name = \"trigger-records\"
  key = [\"run:u32\", \"trigger:u64\", \"subsystem:u16\", \"id:u32\"]
  primary = [\"run\", \"trigger\"]
  [run]
  sources = [\"1/7\", \"1/8\", \"2/0\"]
  complete_within_ms = 1500

With --warm there is a second level: containers on disks (NVMe at best), where events go once they are accepted, or when \
the hot level is full of undecided ones. Each --warm DIR is one device: a directory on a disk of its own, outside of memory. \
Two disks of 1 TiB, and a small one to try it:
  forebay create /tmp/big --hot-bytes 8G --warm /disk1/warm:1TiB --warm /disk2/warm:1TiB
  forebay create /tmp/two --hot-bytes 64M --warm /var/tmp/two-warm:512M
  forebay containers /tmp/two

Instead of sources, count = 3 waits for any three; with neither, events wait until they are sealed. Stages of the \
selection, source groups, classes, order of delivery and more: docs/keyspace.toml explains every value.

A file with kind = \"ring\" makes a ring, the latency buffer of a continuous readout (docs/ring.toml explains its values). It is \
refused where the declared history does not fit --hot-bytes, with the figures:
  forebay create /dev/shm/links --config ring.toml --hot-bytes 16G

A directory holds one store or one ring: what is there already is named, and stays.";

/// Make a store: a keyspace, a hot level, and a warm one where it is wanted; or a ring.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Create {
    /// Directory of the store.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Keyspace file (TOML) instead of the built-in run/event/source: of events, or of a ring.
    #[arg(long, alias = "config", value_name = "FILE", conflicts_with_all = ["sources_per_event", "complete_within", "attribute", "class", "auto_open"])]
    keyspace: Option<PathBuf>,
    /// Fragments that complete an event of the built-in keyspace.
    #[arg(long, value_name = "N", default_value_t = 1)]
    sources_per_event: u32,
    /// Time after an event's first fragment at which it is ready in any case.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::parse_duration)]
    complete_within: Duration,
    /// Attribute of events, `name:uBITS` or `class`; may be repeated.
    #[arg(long, value_name = "NAME:TYPE")]
    attribute: Vec<String>,
    /// Class of events, where `class` is an attribute; may be repeated.
    #[arg(long, value_name = "NAME")]
    class: Vec<String>,
    /// Different fragments of a run that nobody opened which open it, 1 to 16; when not given, runs are opened by name.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    auto_open: Option<u8>,
    /// Size of the hot level, such as 64M or 2G.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::parse_bytes)]
    hot_bytes: u64,
    /// Size of one segment of the hot level; 1/64 of it when not given, between 256K and 64M.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    segment_bytes: Option<u64>,
    /// Directory of a device of the warm level, created if it does not exist, with the bytes to take there, such as
    /// /disk1/warm:100G; 8 GiB when no size is given. May be repeated; all devices have containers of one size.
    #[arg(long, value_name = "DIR[:SIZE]", value_parser = levels::parse_dir)]
    warm: Vec<levels::WarmDir>,
    /// Size of a container of the warm level, a multiple of 4K from 64K to 4G: the largest fragment is a little smaller;
    /// 1/16 of the smallest device when not given, between 256K and 1G.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, requires = "warm")]
    container: Option<u64>,
}

impl Create {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if let Some(address) = open::address(&self.dir) {
            return Err(Error::invalid(format!(
                "create works on directories only, and {address} is the address of a server"
            )));
        }
        let text = self.keyspace.as_deref().map(read_file).transpose()?;
        let keyspace = match &text {
            Some(text) if RingKeyspace::is_named_by(text) => return self.ring(&RingKeyspace::from_toml(text)?, out),
            Some(text) => Keyspace::from_toml(text)?,
            None => self.built_in()?,
        };
        let smallest = self.warm.iter().map(levels::WarmDir::bytes_or_default).min().unwrap_or(0);
        let (container_bytes, device_log_bytes) = levels::cut(smallest, self.container);
        let device = |dir: &levels::WarmDir| WarmDevice::directory(&dir.path, dir.bytes_or_default());
        let config = Config {
            hot_bytes: self.hot_bytes,
            segment_bytes: self.segment_bytes,
            warm: self.warm.iter().map(device).collect(),
            container_bytes,
            device_log_bytes,
            ..Config::default()
        };
        let store = Store::create(&self.dir, &keyspace, config)?;
        let stats = store.stats();
        store.close()?;
        out.line(format!(
            "created {}: keyspace {} ({}), hot level {} in {} segments of {}",
            self.dir.display(),
            keyspace.name,
            keyspace.schema.describe().join("/"),
            units::bytes(stats.segment_bytes * u64::from(stats.segments)),
            stats.segments,
            units::bytes(stats.segment_bytes),
        ))?;
        if let Some(warm) = &stats.warm {
            out.line(format!(
                "warm level {} in {} of {} on {}",
                units::bytes(warm.container_bytes * u64::from(warm.containers)),
                units::plural(u64::from(warm.containers), "container"),
                units::bytes(warm.container_bytes),
                units::plural(warm.devices.len() as u64, "device"),
            ))?;
            for device in &warm.devices {
                out.line(format!("  {}: {}", device.name, device.method))?;
            }
        }
        out.json(&serde_json::json!({
            "dir": self.dir,
            "keyspace": keyspace.name,
            "key": keyspace.schema.describe(),
            "segments": stats.segments,
            "segment_bytes": stats.segment_bytes,
            "containers": stats.warm.as_ref().map_or(0, |warm| warm.containers),
            "container_bytes": stats.warm.as_ref().map_or(0, |warm| warm.container_bytes),
            "devices": stats.warm.iter().flat_map(|warm| &warm.devices).map(|device| serde_json::json!({
                "name": device.name, "method": device.method
            })).collect::<Vec<_>>(),
        }))?;
        Ok(Answer::Yes)
    }

    fn ring(&self, keyspace: &RingKeyspace, out: &mut Output) -> Result<Answer> {
        if !self.warm.is_empty() {
            return Err(Error::invalid(
                "a ring has no warm level: `forebay record` takes what shall stay of it to devices",
            ));
        }
        let config =
            RingConfig { hot_bytes: self.hot_bytes, segment_bytes: self.segment_bytes, ..RingConfig::default() };
        let ring = Ring::create(&self.dir, keyspace, config)?;
        let stats = ring.stats();
        ring.close()?;
        let bytes = stats.segment_bytes * u64::from(stats.segments);
        out.line(format!(
            "created {}: ring {} ({}), {} in {} chunks of {}",
            self.dir.display(),
            keyspace.name,
            keyspace.source.describe().join("/"),
            units::bytes(bytes),
            stats.segments,
            units::bytes(stats.segment_bytes),
        ))?;
        out.line(format!(
            "keeps {:?} of {} at {}/s each; pins may hold {}",
            keyspace.history,
            units::plural(keyspace.sources_max.into(), "source"),
            units::bytes(keyspace.source_bytes_per_second),
            units::bytes(stats.pin_quota_bytes),
        ))?;
        out.json(&serde_json::json!({
            "dir": self.dir,
            "ring": keyspace.name,
            "source": keyspace.source.describe(),
            "segments": stats.segments,
            "segment_bytes": stats.segment_bytes,
            "pin_quota_bytes": stats.pin_quota_bytes,
        }))?;
        Ok(Answer::Yes)
    }

    fn built_in(&self) -> Result<Keyspace> {
        let mut keyspace = Keyspace::events("events", self.sources_per_event);
        keyspace.run.completeness = Completeness::Count(self.sources_per_event);
        keyspace.run.complete_within = self.complete_within;
        keyspace.attributes = AttributeSchema::parse(&self.attribute, &self.class)?;
        if let Some(fragments) = self.auto_open {
            (keyspace.auto_open_runs, keyspace.auto_open_after) = (true, fragments);
        }
        keyspace.check()?;
        Ok(keyspace)
    }
}

fn read_file(file: &Path) -> Result<String> {
    std::fs::read_to_string(file)
        .map_err(|error| Error::invalid(format!("cannot read the keyspace file {}", file.display())).with_source(error))
}
