//! Policies of a keyspace beside completeness: source groups and their levels, order of delivery, stages.

use crate::limits::{GROUPS_MAX, NAME_BYTES_MAX, STAGES_MAX, STREAMS_MAX};
use crate::source::{parse_sources, source_texts};
use crate::{AttributeKind, Error, KeySchema, Keyspace, Result, Source};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A level of the store: a role, regardless of the hardware behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Bandwidth: memory or persistent memory.
    #[default]
    Hot,
    /// Capacity: containers on NVMe.
    Warm,
    /// Another node of the cluster has the bytes, as the run's look-up table says; what is put or read here is an
    /// [`crate::Elsewhere`].
    Elsewhere,
}

/// Sources under a name: what a stage reads first, what a stream keeps, and where their fragments go by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGroup {
    /// The group's name.
    pub name: String,
    /// Packed sub-keys after the primary key, sorted.
    pub sources: Vec<Source>,
    /// Where fragments of these sources go by default.
    pub level: Level,
}

/// Which ready event is given out first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Events on the hot level before others, about in order of arrival: the fastest.
    #[default]
    HotFirst,
    /// Strictly in order of arrival, over the whole store.
    OldestFirst,
    /// Lowest value of an attribute first, among equal ones the oldest; events without it last.
    Lowest(String),
    /// Highest value of an attribute first, among equal ones the oldest; events without it last.
    Highest(String),
}

/// Order of delivery, and the wait that no event exceeds because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which ready event is given out first.
    pub order: Order,
    /// An event that has been in the store for longer goes before all others, regardless of the order.
    pub max_wait: Duration,
}

impl Default for Delivery {
    fn default() -> Self {
        Delivery { order: Order::default(), max_wait: Duration::from_secs(60) }
    }
}

impl Keyspace {
    /// The policies in which `new` differs from this keyspace, by their names in a keyspace file. A store takes such a change:
    /// nothing that is stored depends on it.
    ///
    /// # Errors
    /// `Invalid` for a difference in anything else, naming it.
    pub fn changes_to(&self, new: &Keyspace) -> Result<Vec<&'static str>> {
        // Not a list of what must stay: what a later version adds to a keyspace stays until it is named here.
        let harmless = Keyspace {
            auto_open_runs: new.auto_open_runs,
            auto_open_after: new.auto_open_after,
            deliveries_max: new.deliveries_max,
            fragment_bytes_max: new.fragment_bytes_max,
            groups: new.groups.clone(),
            delivery: new.delivery.clone(),
            run: new.run.clone(),
            streams: new.streams.clone(),
            ..self.clone()
        };
        if *new != harmless {
            let fixed = [
                ("name", self.name != new.name),
                ("key and primary", self.schema != new.schema),
                ("attributes and classes", self.attributes != new.attributes),
                ("stages", self.stages != new.stages),
                ("ledger_by", self.ledger_by != new.ledger_by),
                ("announced", self.announced != new.announced),
            ];
            let names: Vec<&str> = fixed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
            return Err(Error::invalid(format!(
                "stored data depends on what differs ({}): only auto_open_runs, auto_open_after, deliveries_max, fragment_bytes_max, groups, \
                 streams, [delivery] and [run] can be changed; for the rest, make another store",
                names.join(", ")
            )));
        }
        let changes = [
            ("auto_open_runs", self.auto_open_runs != new.auto_open_runs),
            ("auto_open_after", self.auto_open_after != new.auto_open_after),
            ("deliveries_max", self.deliveries_max != new.deliveries_max),
            ("fragment_bytes_max", self.fragment_bytes_max != new.fragment_bytes_max),
            ("groups", self.groups != new.groups),
            ("delivery", self.delivery != new.delivery),
            ("run", self.run != new.run),
            ("streams", self.streams != new.streams),
        ];
        Ok(changes.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect())
    }
}

/// Checks stages, groups, order and the ledger's attribute of a keyspace.
pub(crate) fn check(keyspace: &Keyspace) -> Result<()> {
    let named = |what: &str, name: &str| match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Error::invalid(format!("{what} name `{name}`: 1 to {NAME_BYTES_MAX} bytes"))),
    };
    if keyspace.stages.is_empty() || keyspace.stages.len() > STAGES_MAX {
        return Err(Error::invalid(format!("a keyspace has 1 to {STAGES_MAX} stages, not {}", keyspace.stages.len())));
    }
    for (at, stage) in keyspace.stages.iter().enumerate() {
        named("stage", stage)?;
        if keyspace.stages[..at].contains(stage) {
            return Err(Error::invalid(format!("stage `{stage}` appears twice")));
        }
    }
    if keyspace.streams.len() > STREAMS_MAX {
        return Err(Error::invalid(format!("at most {STREAMS_MAX} streams, not {}", keyspace.streams.len())));
    }
    for (at, stream) in keyspace.streams.iter().enumerate() {
        named("stream", stream)?;
        if keyspace.streams[..at].contains(stream) {
            return Err(Error::invalid(format!("stream `{stream}` appears twice")));
        }
    }
    if keyspace.groups.len() > GROUPS_MAX {
        return Err(Error::invalid(format!("at most {GROUPS_MAX} source groups, not {}", keyspace.groups.len())));
    }
    for (at, group) in keyspace.groups.iter().enumerate() {
        named("group", &group.name)?;
        if keyspace.groups[..at].iter().any(|before| before.name == group.name) {
            return Err(Error::invalid(format!("group `{}` appears twice", group.name)));
        }
    }
    if let Order::Lowest(name) | Order::Highest(name) = &keyspace.delivery.order {
        unsigned(keyspace, "delivery.order", name, 128)?;
    }
    if let Some(name) = &keyspace.ledger_by {
        unsigned(keyspace, "ledger_by", name, 63)?;
    }
    Ok(())
}

fn unsigned(keyspace: &Keyspace, what: &str, name: &str, most: u32) -> Result<()> {
    let field = keyspace.attributes.fields.iter().find(|field| field.0 == name);
    match field.map(|field| &field.1) {
        Some(AttributeKind::Unsigned { bits }) if *bits <= most => Ok(()),
        Some(AttributeKind::Class) => Ok(()),
        Some(AttributeKind::Unsigned { bits }) => {
            Err(Error::invalid(format!("{what}: attribute `{name}` has {bits} bits, at most {most} are possible")))
        }
        None => Err(Error::invalid(format!(
            "{what}: no attribute `{name}`; this keyspace has: {}",
            keyspace.attributes.describe().join(", ")
        ))),
    }
}

/// A group as a keyspace file writes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupFile {
    name: String,
    sources: Vec<String>,
    #[serde(default = "hot")]
    level: String,
}

fn hot() -> String {
    "hot".to_owned()
}

impl GroupFile {
    pub(crate) fn of(group: &SourceGroup, schema: &KeySchema) -> GroupFile {
        let level = if group.level == Level::Warm { "warm" } else { "hot" };
        GroupFile { name: group.name.clone(), sources: source_texts(schema, &group.sources), level: level.to_owned() }
    }

    pub(crate) fn build(&self, schema: &KeySchema) -> Result<SourceGroup> {
        let level = match self.level.as_str() {
            "hot" => Level::Hot,
            "warm" => Level::Warm,
            other => return Err(Error::invalid(format!("group `{}`: level `{other}`: hot or warm", self.name))),
        };
        Ok(SourceGroup { name: self.name.clone(), sources: parse_sources(schema, &self.sources)?, level })
    }
}

/// The order of delivery as a keyspace file writes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryFile {
    #[serde(default = "hot_first")]
    order: String,
    #[serde(default = "a_minute")]
    max_wait_ms: u64,
}

fn hot_first() -> String {
    "hot-first".to_owned()
}

fn a_minute() -> u64 {
    60_000
}

impl Default for DeliveryFile {
    fn default() -> Self {
        DeliveryFile::of(&Delivery::default())
    }
}

impl DeliveryFile {
    pub(crate) fn of(delivery: &Delivery) -> DeliveryFile {
        let order = match &delivery.order {
            Order::HotFirst => hot_first(),
            Order::OldestFirst => "oldest-first".to_owned(),
            Order::Lowest(attribute) => format!("lowest:{attribute}"),
            Order::Highest(attribute) => format!("highest:{attribute}"),
        };
        DeliveryFile { order, max_wait_ms: u64::try_from(delivery.max_wait.as_millis()).unwrap_or(u64::MAX) }
    }

    pub(crate) fn build(&self) -> Result<Delivery> {
        let order = match self.order.split_once(':') {
            None if self.order == "hot-first" => Order::HotFirst,
            None if self.order == "oldest-first" => Order::OldestFirst,
            Some(("lowest", attribute)) => Order::Lowest(attribute.to_owned()),
            Some(("highest", attribute)) => Order::Highest(attribute.to_owned()),
            _ => {
                return Err(Error::invalid(format!(
                    "delivery.order `{}`: hot-first, oldest-first, lowest:ATTRIBUTE or highest:ATTRIBUTE",
                    self.order
                )));
            }
        };
        Ok(Delivery { order, max_wait: Duration::from_millis(self.max_wait_ms) })
    }
}
