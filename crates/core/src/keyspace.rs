//! A keyspace: a key schema plus the policies that its events live by; read from TOML or built in code.

use crate::limits::{DELIVERIES_MAX, FRAGMENTS_PER_EVENT_MAX};
use crate::{AttributeSchema, Error, KeySchema, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When an event has all that it waits for. Whatever this says, `complete_within` ends the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Every one of these sources has arrived (packed sub-keys after the primary key, sorted).
    Sources(Vec<Vec<u8>>),
    /// This many different fragments have arrived.
    Count(u32),
    /// Somebody sealed the event.
    Seal,
}

impl Completeness {
    /// A source list from the values of the sub-keys after the primary key, such as `[[1], [2], [3]]`.
    ///
    /// # Errors
    /// `Invalid` for an empty list, a source that stands twice, or values that do not fit.
    pub fn sources(schema: &KeySchema, sources: &[Vec<u64>]) -> Result<Completeness> {
        let lead = vec![0; schema.primary_len()];
        let mut packed = Vec::with_capacity(sources.len());
        for source in sources {
            let key = schema.key(&[&lead[..], source].concat())?;
            packed.push(schema.rest_of(&key).to_vec());
        }
        packed.sort_unstable();
        if packed.is_empty() || packed.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid("a source list is not empty and names each source once"));
        }
        Ok(Completeness::Sources(packed))
    }

    /// Sources `0..n` of a schema with one sub-key after the primary key.
    ///
    /// # Errors
    /// As [`Completeness::sources`].
    pub fn first_sources(schema: &KeySchema, n: u64) -> Result<Completeness> {
        Completeness::sources(schema, &(0..n).map(|source| vec![source]).collect::<Vec<_>>())
    }
}

/// How one run is taken: what its events wait for and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// What completes an event.
    pub completeness: Completeness,
    /// Time after an event's first fragment at which it is ready in any case.
    pub complete_within: Duration,
}

/// A key schema, the attributes of its events, and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Name, for people.
    pub name: String,
    /// Order and width of sub-keys.
    pub schema: KeySchema,
    /// Typed attributes of events.
    pub attributes: AttributeSchema,
    /// What runs get that do not say otherwise.
    pub run: RunConfig,
    /// Whether the first put of an unknown run opens it with `run`.
    pub auto_open_runs: bool,
    /// Worker failures after which an event goes to the debug stream.
    pub deliveries_max: u8,
    /// Longest fragment, in bytes.
    pub fragment_bytes_max: usize,
}

impl Keyspace {
    /// Events of `run/event/source` that are complete by count, within a second; runs open by themselves.
    pub fn events(name: &str, fragments_per_event: u32) -> Keyspace {
        Keyspace {
            name: name.to_owned(),
            schema: KeySchema::run_event_source(),
            attributes: AttributeSchema::default(),
            run: RunConfig {
                completeness: Completeness::Count(fragments_per_event),
                complete_within: Duration::from_secs(1),
            },
            auto_open_runs: true,
            deliveries_max: 3,
            fragment_bytes_max: 64 << 20,
        }
    }

    /// Reads a keyspace file.
    ///
    /// # Errors
    /// `Invalid` with the line and what is wrong with it, or the value that cannot be.
    pub fn from_toml(text: &str) -> Result<Keyspace> {
        let file: File = toml::from_str(text).map_err(|error| Error::invalid(format!("keyspace file: {error}")))?;
        file.build()
    }

    /// The keyspace as a file; reading it gives the same keyspace.
    ///
    /// # Errors
    /// `Internal` where the values cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(&File::of(self)).map_err(|error| Error::internal("keyspace to TOML").with_source(error))
    }

    /// Checks policies against limits.
    ///
    /// # Errors
    /// `Invalid`, naming the policy.
    pub fn check(&self) -> Result<()> {
        check_run(&self.run)?;
        if !(1..=DELIVERIES_MAX).contains(&self.deliveries_max) {
            return Err(Error::invalid(format!("deliveries_max: 1 to {DELIVERIES_MAX}, not {}", self.deliveries_max)));
        }
        if self.fragment_bytes_max == 0 || self.fragment_bytes_max > u32::MAX as usize {
            return Err(Error::invalid(format!(
                "fragment_bytes_max: 1 to {}, not {}",
                u32::MAX,
                self.fragment_bytes_max
            )));
        }
        Ok(())
    }
}

fn check_run(run: &RunConfig) -> Result<()> {
    if run.complete_within.is_zero() || run.complete_within > Duration::from_secs(30 * 24 * 3600) {
        return Err(Error::invalid(format!(
            "complete_within: more than 0 and at most 30 days, not {:?}",
            run.complete_within
        )));
    }
    if !run.complete_within.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Error::invalid(format!("complete_within: whole milliseconds, not {:?}", run.complete_within)));
    }
    let fragments = match &run.completeness {
        Completeness::Count(count) => *count as usize,
        Completeness::Sources(sources) => sources.len(),
        Completeness::Seal => 0,
    };
    if fragments > FRAGMENTS_PER_EVENT_MAX as usize {
        return Err(Error::invalid(format!(
            "an event of {fragments} fragments can never be complete: at most {FRAGMENTS_PER_EVENT_MAX} fit"
        )));
    }
    match &run.completeness {
        Completeness::Count(0) => Err(Error::invalid("completeness by count needs a count of at least 1")),
        _ => Ok(()),
    }
}

impl RunConfig {
    /// The run as TOML, as it is journaled.
    ///
    /// # Errors
    /// `Internal` where the values cannot be written as TOML.
    pub fn to_toml(&self, schema: &KeySchema) -> Result<String> {
        toml::to_string(&RunFile::of(self, schema)).map_err(|error| Error::internal("run to TOML").with_source(error))
    }

    /// Reads what [`RunConfig::to_toml`] wrote, or what a person wrote in the same words.
    ///
    /// # Errors
    /// `Invalid` with the line and what is wrong with it.
    pub fn from_toml(text: &str, schema: &KeySchema) -> Result<RunConfig> {
        let file: RunFile = toml::from_str(text).map_err(|error| Error::invalid(format!("run: {error}")))?;
        file.build(schema)
    }

    /// Checks the values against limits.
    ///
    /// # Errors
    /// `Invalid`, naming the value.
    pub fn check(&self) -> Result<()> {
        check_run(self)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    key: Vec<String>,
    primary: Vec<String>,
    #[serde(default)]
    attributes: Vec<String>,
    #[serde(default)]
    classes: Vec<String>,
    #[serde(default = "yes")]
    auto_open_runs: bool,
    #[serde(default = "three")]
    deliveries_max: u8,
    #[serde(default = "fragment_bytes_max")]
    fragment_bytes_max: usize,
    run: RunFile,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunFile {
    complete_within_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sources: Option<Vec<String>>,
}

fn yes() -> bool {
    true
}

fn three() -> u8 {
    3
}

fn fragment_bytes_max() -> usize {
    64 << 20
}

impl RunFile {
    fn of(run: &RunConfig, schema: &KeySchema) -> RunFile {
        let complete_within_ms = u64::try_from(run.complete_within.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut file = RunFile { complete_within_ms, count: None, sources: None };
        match &run.completeness {
            Completeness::Count(count) => file.count = Some(*count),
            Completeness::Seal => {}
            Completeness::Sources(sources) => {
                let zero = schema.primary(&vec![0; schema.primary_len()]);
                let text = |rest: &Vec<u8>| {
                    let key = zero.as_ref().map(|zero| schema.join(zero, rest));
                    let values = key.map(|key| schema.values(key.as_bytes())).unwrap_or_default();
                    values[schema.primary_len().min(values.len())..]
                        .iter()
                        .map(u64::to_string)
                        .collect::<Vec<_>>()
                        .join("/")
                };
                file.sources = Some(sources.iter().map(text).collect());
            }
        }
        file
    }

    fn build(&self, schema: &KeySchema) -> Result<RunConfig> {
        let completeness = match (&self.count, &self.sources) {
            (Some(_), Some(_)) => return Err(Error::invalid("run: give `count` or `sources`, not both")),
            (Some(count), None) => Completeness::Count(*count),
            (None, None) => Completeness::Seal,
            (None, Some(texts)) => {
                let mut sources = Vec::new();
                for text in texts {
                    let lead = vec!["0"; schema.primary_len()].join("/");
                    let values = schema.parse_values(&format!("{lead}/{text}"), schema.sub_keys().len())?;
                    sources.push(values[schema.primary_len()..].to_vec());
                }
                Completeness::sources(schema, &sources)?
            }
        };
        let run = RunConfig { completeness, complete_within: Duration::from_millis(self.complete_within_ms) };
        check_run(&run)?;
        Ok(run)
    }
}

impl File {
    fn of(keyspace: &Keyspace) -> File {
        let schema = &keyspace.schema;
        let primary = schema.sub_keys()[..schema.primary_len()].iter().map(|part| part.name.clone()).collect();
        File {
            name: keyspace.name.clone(),
            key: schema.describe(),
            primary,
            attributes: keyspace.attributes.describe(),
            classes: keyspace.attributes.classes.clone(),
            auto_open_runs: keyspace.auto_open_runs,
            deliveries_max: keyspace.deliveries_max,
            fragment_bytes_max: keyspace.fragment_bytes_max,
            run: RunFile::of(&keyspace.run, schema),
        }
    }

    fn build(self) -> Result<Keyspace> {
        let schema = KeySchema::parse(&self.key, &self.primary)?;
        let keyspace = Keyspace {
            run: self.run.build(&schema)?,
            attributes: AttributeSchema::parse(&self.attributes, &self.classes)?,
            name: self.name,
            schema,
            auto_open_runs: self.auto_open_runs,
            deliveries_max: self.deliveries_max,
            fragment_bytes_max: self.fragment_bytes_max,
        };
        keyspace.check()?;
        Ok(keyspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUNE: &str = r#"
        name = "trigger-records"
        key = ["run:u32", "trigger:u64", "sequence:u16", "subsystem:u16", "id:u32"]
        primary = ["run", "trigger", "sequence"]
        attributes = ["trigger_type:u64", "class"]
        classes = ["physics", "calib-tile"]
        [run]
        sources = ["1/7", "1/8", "2/0"]
        complete_within_ms = 1500
    "#;

    #[test]
    fn reads_and_writes_the_same_keyspace() {
        let keyspace = Keyspace::from_toml(DUNE).unwrap();
        assert_eq!(keyspace.schema.key_bytes(), 20);
        assert!(matches!(&keyspace.run.completeness, Completeness::Sources(list) if list.len() == 3));
        assert_eq!(Keyspace::from_toml(&keyspace.to_toml().unwrap()).unwrap(), keyspace);
        let run = keyspace.run.to_toml(&keyspace.schema).unwrap();
        assert_eq!(RunConfig::from_toml(&run, &keyspace.schema).unwrap(), keyspace.run);
    }

    #[test]
    fn errors_name_the_line_or_value() {
        for (from, to, message) in [
            ("sources = [\"1/7\", \"1/8\", \"2/0\"]", "count = 0", "at least 1"),
            ("\"2/0\"", "\"1/7\"", "each source once"),
            ("\"2/0\"", "\"99999/0\"", "subsystem"),
            ("complete_within_ms = 1500", "complete_within_ms = 0", "complete_within"),
            ("complete_within_ms = 1500", "", "complete_within_ms"),
            ("name =", "nam =", "nam"),
            ("sequence:u16", "sequence", "name:uBITS"),
        ] {
            let error = Keyspace::from_toml(&DUNE.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(message), "{to}: {error}");
        }
    }
}
