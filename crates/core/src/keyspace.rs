//! A keyspace: a key schema plus the policies that its events live by; read from TOML or built in code.

use crate::limits::{
    AUTO_OPEN_AFTER_MAX, CLASS_RULES_MAX, DELIVERIES_MAX, FRAGMENTS_PER_EVENT_MAX, NAME_BYTES_MAX, PRESCALES_MAX,
};
use crate::near::nearest;
use crate::policy::{Delivery, DeliveryFile, GroupFile, SourceGroup};
use crate::prescale::{PrescaleFactor, check_prescale_name};
use crate::source::{parse_sources, source_texts};
use crate::{AttributeKind, AttributeSchema, Error, KeySchema, Result, Source};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// When an event has all that it waits for. In every case `complete_within` ends the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Every one of these sources has arrived (packed sub-keys after the primary key, sorted).
    Sources(Vec<Source>),
    /// This many different fragments have arrived.
    Count(u32),
    /// Somebody sealed the event.
    Seal,
}

impl Completeness {
    /// A source list from the values of the sub-keys after the primary key, such as `[[1], [2], [3]]`.
    ///
    /// # Errors
    /// `Invalid` for an empty list, a repeated source, or values that do not fit.
    pub fn sources(schema: &KeySchema, sources: &[Vec<u64>]) -> Result<Completeness> {
        let lead = vec![0; schema.primary_len()];
        let mut packed = Vec::with_capacity(sources.len());
        for source in sources {
            let key = schema.key(&[&lead[..], source].concat())?;
            packed.push(schema.source_of(&key));
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
    /// What completes an event of no class, or of a class without its own rule.
    pub completeness: Completeness,
    /// Time after an event's first fragment at which it is ready in any case.
    pub complete_within: Duration,
    /// What completes events of these classes, by class name.
    pub classes: Vec<(String, Completeness)>,
    /// Time after the stop at which events that still wait are sealed.
    pub stop_grace: Duration,
    /// Mask a source after this many events in a row became ready without it; unmask it once the same number of its
    /// fragments has come again. `None`: only people mask.
    pub auto_mask: Option<u32>,
    /// Prescales of the trigger when the run is opened, by name: recorded for its summary, and not applied.
    pub prescales: BTreeMap<String, PrescaleFactor>,
    /// Stage of the selection in which its events begin, such as those of a restored run; `None`: the first.
    pub stage: Option<String>,
}

impl RunConfig {
    /// A run without classes, prescales or masks set by itself, sealed as soon as it is stopped.
    pub fn new(completeness: Completeness, complete_within: Duration) -> RunConfig {
        RunConfig {
            completeness,
            complete_within,
            classes: Vec::new(),
            stop_grace: Duration::ZERO,
            auto_mask: None,
            prescales: BTreeMap::new(),
            stage: None,
        }
    }
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
    /// Configuration of runs that have none of their own.
    pub run: RunConfig,
    /// Whether puts of a run that nobody opened open it, with `run`.
    pub auto_open_runs: bool,
    /// How many different fragments of such a run have to come first.
    pub auto_open_after: u8,
    /// Worker failures after which an event goes to the debug stream.
    pub deliveries_max: u8,
    /// Longest fragment, in bytes.
    pub fragment_bytes_max: usize,
    /// The steps of the selection, in order: at least one.
    pub stages: Vec<String>,
    /// The streams into which events may be accepted, and no others. Empty: a stream is made by its first use.
    pub streams: Vec<String>,
    /// Sources by name, for reading and for levels.
    pub groups: Vec<SourceGroup>,
    /// Order in which ready events are given out.
    pub delivery: Delivery,
    /// Attribute (an unsigned one of at most 63 bits) by whose values the ledger is kept as well, such as `lumi`.
    pub ledger_by: Option<String>,
    /// Whether events may be announced with their sources (`open_event`) in a keyspace without attributes.
    pub announced: bool,
}

/// The name of the only stage of a keyspace that names none.
pub const STAGE_DEFAULT: &str = "selection";

/// Different fragments that open a run where nothing else is said: one flipped bit opens none.
const AUTO_OPEN_AFTER: u8 = 2;

impl Keyspace {
    /// Events of `run/event/source` that are complete by count, within a second. Runs are opened by name.
    pub fn events(name: &str, fragments_per_event: u32) -> Keyspace {
        Keyspace {
            name: name.to_owned(),
            schema: KeySchema::run_event_source(),
            attributes: AttributeSchema::default(),
            run: RunConfig::new(Completeness::Count(fragments_per_event), Duration::from_secs(1)),
            auto_open_runs: false,
            auto_open_after: AUTO_OPEN_AFTER,
            deliveries_max: 3,
            fragment_bytes_max: 64 << 20,
            stages: vec![STAGE_DEFAULT.to_owned()],
            streams: Vec::new(),
            groups: Vec::new(),
            delivery: Delivery::default(),
            ledger_by: None,
            announced: false,
        }
    }

    /// The same with runs that open with their first fragment: for tests and trials. In an experiment one flipped bit in a run
    /// number would open a run.
    #[must_use]
    pub fn opening_runs(self) -> Keyspace {
        Keyspace { auto_open_runs: true, auto_open_after: 1, ..self }
    }

    /// The group of this name.
    ///
    /// # Errors
    /// `Invalid`, naming the groups that there are.
    pub fn group(&self, name: &str) -> Result<&SourceGroup> {
        self.groups.iter().find(|group| group.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
            Error::invalid(format!("no source group `{name}`; this keyspace has: {}", known.join(", ")))
        })
    }

    /// The position of a stage.
    ///
    /// # Errors
    /// `Invalid`, naming the stages that there are.
    pub fn stage(&self, name: &str) -> Result<u8> {
        let at = self.stages.iter().position(|stage| stage == name);
        at.map(|at| at as u8)
            .ok_or_else(|| Error::invalid(format!("no stage `{name}`; this keyspace has: {}", self.stages.join(", "))))
    }

    /// Checks that events may be accepted into a stream of this name.
    ///
    /// # Errors
    /// `Invalid` for a name that is empty or too long, and for one that is not among the declared streams, with the one that
    /// was probably meant.
    pub fn check_stream(&self, name: &str) -> Result<()> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(Error::invalid(format!("stream name `{name}`: 1 to {NAME_BYTES_MAX} bytes")));
        }
        let declared: Vec<&str> = self.streams.iter().map(String::as_str).collect();
        if declared.is_empty() || declared.contains(&name) {
            return Ok(());
        }
        let meant = nearest(name, &declared).map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
        let declared = declared.join(", ");
        Err(Error::invalid(format!("no stream `{name}`{meant}; this keyspace declares: {declared}")))
    }

    /// Checks a run's configuration against limits and this keyspace.
    ///
    /// # Errors
    /// `Invalid`, naming the value.
    pub fn check_run(&self, run: &RunConfig) -> Result<()> {
        check_run(run)?;
        run.stage.as_ref().map(|stage| self.stage(stage)).transpose()?;
        self.check_sources(&run.completeness)?;
        for (at, (class, completeness)) in run.classes.iter().enumerate() {
            self.check_sources(completeness)?;
            let has_class = self.attributes.fields.iter().any(|(_, kind)| *kind == AttributeKind::Class);
            if !has_class || !self.attributes.classes.contains(class) {
                return Err(Error::invalid(format!(
                    "run: no class `{class}`; this keyspace has: {}",
                    self.attributes.classes.join(", ")
                )));
            }
            if run.classes[..at].iter().any(|before| before.0 == *class) {
                return Err(Error::invalid(format!("run: class `{class}` appears twice")));
            }
        }
        Ok(())
    }

    /// A source list must read back from its text as it is: runs are journaled so.
    fn check_sources(&self, completeness: &Completeness) -> Result<()> {
        let Completeness::Sources(sources) = completeness else { return Ok(()) };
        let reads_back = |source: &Source| {
            self.schema.parse_source(&self.schema.source_text(source)).is_ok_and(|read| read == *source)
        };
        if let Some(wrong) = sources.iter().find(|source| !reads_back(source)) {
            return Err(Error::invalid(format!("run: {wrong:?} is no packed source of this keyspace")));
        }
        if sources.is_empty() || sources.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::invalid("run: a source list is sorted, not empty, and names each source once"));
        }
        Ok(())
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
        self.check_run(&self.run)?;
        crate::policy::check(self)?;
        if !(1..=AUTO_OPEN_AFTER_MAX).contains(&self.auto_open_after) {
            return Err(Error::invalid(format!(
                "auto_open_after: 1 to {AUTO_OPEN_AFTER_MAX}, not {}",
                self.auto_open_after
            )));
        }
        if !(1..=DELIVERIES_MAX).contains(&self.deliveries_max) {
            return Err(deliveries_out_of_range(self.deliveries_max.into()));
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

fn deliveries_out_of_range(value: u64) -> Error {
    Error::invalid(format!("deliveries_max: 1 to {DELIVERIES_MAX}, not {value}"))
}

fn check_run(run: &RunConfig) -> Result<()> {
    check_completeness(&run.completeness)?;
    if run.classes.len() > CLASS_RULES_MAX {
        return Err(Error::invalid(format!("run: rules for {} classes, at most {CLASS_RULES_MAX}", run.classes.len())));
    }
    run.classes.iter().try_for_each(|(_, completeness)| check_completeness(completeness))?;
    if run.prescales.len() > PRESCALES_MAX {
        return Err(Error::invalid(format!("run: {} prescales, at most {PRESCALES_MAX}", run.prescales.len())));
    }
    run.prescales.keys().try_for_each(|name| check_prescale_name(name))?;
    if run.auto_mask == Some(0) {
        return Err(Error::invalid("auto_mask_after: at least 1 miss"));
    }
    if run.stop_grace > Duration::from_secs(24 * 3600) || !run.stop_grace.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Error::invalid(format!("stop_grace: whole milliseconds, at most a day, not {:?}", run.stop_grace)));
    }
    if run.complete_within.is_zero() || run.complete_within > Duration::from_secs(30 * 24 * 3600) {
        return Err(Error::invalid(format!(
            "complete_within: more than 0 and at most 30 days, not {:?}",
            run.complete_within
        )));
    }
    if !run.complete_within.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Error::invalid(format!("complete_within: whole milliseconds, not {:?}", run.complete_within)));
    }
    Ok(())
}

fn check_completeness(completeness: &Completeness) -> Result<()> {
    let fragments = match completeness {
        Completeness::Count(count) => *count as usize,
        Completeness::Sources(sources) => sources.len(),
        Completeness::Seal => 0,
    };
    if fragments > FRAGMENTS_PER_EVENT_MAX as usize {
        return Err(Error::invalid(format!(
            "an event of {fragments} fragments can never be complete: at most {FRAGMENTS_PER_EVENT_MAX} fit"
        )));
    }
    match completeness {
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
    #[serde(default)]
    auto_open_runs: bool,
    #[serde(default = "auto_open_after")]
    auto_open_after: u8,
    /// Wider than the policy: what does not fit is refused with the range.
    #[serde(default = "three")]
    deliveries_max: u64,
    #[serde(default = "fragment_bytes_max")]
    fragment_bytes_max: usize,
    #[serde(default = "one_stage")]
    stages: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    streams: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ledger_by: Option<String>,
    #[serde(default)]
    announced: bool,
    #[serde(default)]
    delivery: DeliveryFile,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<GroupFile>,
    run: RunFile,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunFile {
    complete_within_ms: u64,
    #[serde(default)]
    stop_grace_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auto_mask_after: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sources: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    classes: BTreeMap<String, RuleFile>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    prescales: BTreeMap<String, PrescaleFactor>,
}

/// `count = 16`, `sources = ["0..499", "1000"]`, or neither: only a seal completes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sources: Option<Vec<String>>,
}

fn auto_open_after() -> u8 {
    AUTO_OPEN_AFTER
}

fn three() -> u64 {
    3
}

fn fragment_bytes_max() -> usize {
    64 << 20
}

fn one_stage() -> Vec<String> {
    vec![STAGE_DEFAULT.to_owned()]
}

impl RuleFile {
    fn of(completeness: &Completeness, schema: &KeySchema) -> RuleFile {
        match completeness {
            Completeness::Count(count) => RuleFile { count: Some(*count), sources: None },
            Completeness::Seal => RuleFile { count: None, sources: None },
            Completeness::Sources(sources) => RuleFile { count: None, sources: Some(source_texts(schema, sources)) },
        }
    }

    fn build(&self, schema: &KeySchema) -> Result<Completeness> {
        match (&self.count, &self.sources) {
            (Some(_), Some(_)) => Err(Error::invalid("run: give `count` or `sources`, not both")),
            (Some(count), None) => Ok(Completeness::Count(*count)),
            (None, None) => Ok(Completeness::Seal),
            (None, Some(texts)) => Ok(Completeness::Sources(parse_sources(schema, texts)?)),
        }
    }
}

impl RunFile {
    fn of(run: &RunConfig, schema: &KeySchema) -> RunFile {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let classes = run.classes.iter().map(|(class, rule)| (class.clone(), RuleFile::of(rule, schema))).collect();
        let RuleFile { count, sources } = RuleFile::of(&run.completeness, schema);
        RunFile {
            complete_within_ms: milliseconds(run.complete_within).max(1),
            stop_grace_ms: milliseconds(run.stop_grace),
            auto_mask_after: run.auto_mask,
            stage: run.stage.clone(),
            count,
            sources,
            classes,
            prescales: run.prescales.clone(),
        }
    }

    fn build(&self, schema: &KeySchema) -> Result<RunConfig> {
        let class = |(class, rule): (&String, &RuleFile)| Ok((class.clone(), rule.build(schema)?));
        let rule = RuleFile { count: self.count, sources: self.sources.clone() };
        let run = RunConfig {
            completeness: rule.build(schema)?,
            complete_within: Duration::from_millis(self.complete_within_ms),
            classes: self.classes.iter().map(class).collect::<Result<_>>()?,
            stop_grace: Duration::from_millis(self.stop_grace_ms),
            auto_mask: self.auto_mask_after,
            prescales: self.prescales.clone(),
            stage: self.stage.clone(),
        };
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
            auto_open_after: keyspace.auto_open_after,
            deliveries_max: keyspace.deliveries_max.into(),
            fragment_bytes_max: keyspace.fragment_bytes_max,
            stages: keyspace.stages.clone(),
            streams: keyspace.streams.clone(),
            ledger_by: keyspace.ledger_by.clone(),
            announced: keyspace.announced,
            delivery: DeliveryFile::of(&keyspace.delivery),
            groups: keyspace.groups.iter().map(|group| GroupFile::of(group, schema)).collect(),
            run: RunFile::of(&keyspace.run, schema),
        }
    }

    fn build(self) -> Result<Keyspace> {
        let schema = KeySchema::parse(&self.key, &self.primary)?;
        let keyspace = Keyspace {
            run: self.run.build(&schema)?,
            attributes: AttributeSchema::parse(&self.attributes, &self.classes)?,
            name: self.name,
            stages: self.stages,
            streams: self.streams,
            ledger_by: self.ledger_by,
            announced: self.announced,
            delivery: self.delivery.build()?,
            groups: self.groups.iter().map(|group| group.build(&schema)).collect::<Result<_>>()?,
            schema,
            auto_open_runs: self.auto_open_runs,
            auto_open_after: self.auto_open_after,
            deliveries_max: u8::try_from(self.deliveries_max)
                .map_err(|_| deliveries_out_of_range(self.deliveries_max))?,
            fragment_bytes_max: self.fragment_bytes_max,
        };
        keyspace.check()?;
        Ok(keyspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STREAMS_MAX;

    const DUNE: &str = r#"
        name = "trigger-records"
        key = ["run:u32", "trigger:u64", "sequence:u16", "subsystem:u16", "id:u32"]
        primary = ["run", "trigger", "sequence"]
        attributes = ["trigger_type:u32", "class"]
        classes = ["physics", "calib-tile"]
        stages = ["fast", "final"]
        streams = ["physics", "express", "calibration"]
        ledger_by = "trigger_type"
        [delivery]
        order = "highest:trigger_type"
        max_wait_ms = 250
        [[groups]]
        name = "charge"
        sources = ["1/0..9", "2/0"]
        level = "warm"
        [run]
        sources = ["1/7", "1/8", "2/0"]
        complete_within_ms = 1500
        auto_mask_after = 20
        [run.classes.calib-tile]
        count = 2
    "#;

    #[test]
    fn reads_and_writes_the_same_keyspace() {
        let keyspace = Keyspace::from_toml(DUNE).unwrap();
        assert_eq!(keyspace.schema.key_bytes(), 20);
        assert!(matches!(&keyspace.run.completeness, Completeness::Sources(list) if list.len() == 3));
        assert_eq!(keyspace.group("charge").unwrap().sources.len(), 11);
        assert_eq!((keyspace.stage("final").unwrap(), keyspace.run.auto_mask), (1, Some(20)));
        assert_eq!(keyspace.run.classes, [("calib-tile".to_owned(), Completeness::Count(2))]);
        assert_eq!(keyspace.streams, ["physics", "express", "calibration"]);
        assert_eq!(Keyspace::from_toml(&keyspace.to_toml().unwrap()).unwrap(), keyspace);
        let run = keyspace.run.to_toml(&keyspace.schema).unwrap();
        assert_eq!(RunConfig::from_toml(&run, &keyspace.schema).unwrap(), keyspace.run);
    }

    #[test]
    fn streams_are_those_that_are_declared_or_any() {
        let mut keyspace = Keyspace::from_toml(DUNE).unwrap();
        keyspace.check_stream("physics").unwrap();
        let refused = |keyspace: &Keyspace, name: &str| keyspace.check_stream(name).unwrap_err().to_string();
        let typo = refused(&keyspace, "phyiscs");
        assert!(typo.contains("did you mean `physics`?"), "{typo}");
        assert!(typo.contains("physics, express, calibration"), "{typo}");
        assert!(!refused(&keyspace, "something else").contains("did you mean"));
        keyspace.streams = (0..=STREAMS_MAX).map(|number| number.to_string()).collect();
        assert!(keyspace.check().unwrap_err().to_string().contains("255 streams"));
        keyspace.streams.pop();
        keyspace.check().unwrap();
        keyspace.streams.clear();
        keyspace.check_stream("phyiscs").unwrap();
        assert!(refused(&keyspace, "").contains("1 to 64 bytes"));
        // A keyspace that declares none has the text that it had before there were declared streams.
        assert!(!keyspace.to_toml().unwrap().contains("streams"));
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
            ("classes.calib-tile", "classes.calib-muon", "calib-muon"),
            ("stages = [\"fast\", \"final\"]", "stages = []", "stage"),
            ("\"express\"", "\"physics\"", "stream `physics` appears twice"),
            ("\"express\"", "\"\"", "stream name"),
            ("highest:trigger_type", "highest:lumi", "lumi"),
            ("highest:trigger_type", "newest", "order"),
            ("\"warm\"", "\"cold\"", "level"),
            ("ledger_by = \"trigger_type\"", "ledger_by = \"lumi\"", "lumi"),
            ("auto_mask_after = 20", "auto_mask_after = 0", "auto_mask_after"),
            ("ledger_by =", "deliveries_max = 0\nledger_by =", "deliveries_max: 1 to 15, not 0"),
            ("ledger_by =", "deliveries_max = 16\nledger_by =", "deliveries_max: 1 to 15, not 16"),
            ("ledger_by =", "deliveries_max = 300\nledger_by =", "deliveries_max: 1 to 15, not 300"),
            ("\"1/0..9\"", "\"1/9..0\"", "1/9..0"),
        ] {
            let error = Keyspace::from_toml(&DUNE.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(message), "{to}: {error}");
        }
    }
}
