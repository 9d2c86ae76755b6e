//! `forebay event`: one event, its state and its sources; announce, seal, attributes, release.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{choose, levels, units};
use forebay_core::{Attributes, EventStore, KeySchema, OperatedStore, Primary, ReadFragment, Result};
use forebay_store::{OpenEvent, PutOutcome, SourceState, Sources};
use serde_json::{Value, json};

const HELP: &str = "\
Show one live event: its state (open, ready, leased, debug, accepted), its attributes, which sources are there with their \
sizes and the level that each is on, and which expected ones are missing (for runs with a source list), masked or late. An event that is decided and gone, removed, or \
never seen is absent: exit code 1.

Example: look at event 42 of run 1; announce event 43 as a trigger does, and event 44 with the sources that it must have \
(where the keyspace has attributes or says `announced = true`); stop waiting for the rest of event 42; set its attribute lumi (declared by \
`forebay create`); give its space back once the archive has it:
  forebay event /tmp/first 1/42
  forebay event /tmp/first 1/43 --announce --attribute class=calib
  forebay event /tmp/first 1/44 --announce 1,2,5..9
  forebay event /tmp/first 1/42 --seal
  forebay event /tmp/first 1/42 --attribute lumi=7
  forebay event /tmp/first 1/42 --release

`forebay take` leases and decides events; `forebay rm /tmp/first 1/42` removes one.";

/// Show one event; announce it, seal it, set attributes, release it.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Event {
    #[command(flatten)]
    store: Place,
    /// The event, such as run/event: 1/42.
    #[arg(value_name = "RUN/EVENT")]
    event: String,
    /// Announces the event, with the sources (or groups) that it must have if they are given.
    #[arg(long, value_name = "SOURCES", num_args = 0..=1, default_missing_value = "", value_delimiter = ',')]
    announce: Option<Vec<String>>,
    /// Makes the event ready now, with what it has.
    #[arg(long)]
    seal: bool,
    /// Sets an attribute, `name=value`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    attribute: Vec<String>,
    /// Frees an accepted or debug event that an archive has taken over.
    #[arg(long, conflicts_with_all = ["seal", "attribute", "announce"])]
    release: bool,
}

impl Event {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.act(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn act(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let primary = store.schema().parse_primary(&self.event)?;
        if self.release {
            let released = store.release(&primary)?;
            let text = store.schema().text(primary.as_bytes());
            out.line(if released {
                format!("released {text}")
            } else {
                format!("{text} is neither accepted nor in the debug stream")
            })?;
            out.json(&json!({ "event": text, "released": released }))?;
            return Ok(Answer::found(released));
        }
        let attributes = Attributes::parse(&store.keyspace().attributes, &self.attribute)?;
        if let Some(sources) = &self.announce {
            let answer = self.announce(store, &primary, sources, &attributes)?;
            if answer.is_late() {
                out.note(format!("forebay: event {} is leased or decided already", self.event));
                out.json(&json!({ "event": self.event, "found": false }))?;
                return Ok(Answer::No);
            }
        } else if !self.attribute.is_empty() {
            store.update_attributes(&primary, &attributes, None)?;
        }
        if self.seal {
            // An event that is not there is shown as absent below.
            store.seal(&primary)?;
        }
        show(store, &primary, out)
    }

    fn announce(
        &self,
        store: &Opened,
        primary: &Primary,
        sources: &[String],
        attributes: &Attributes,
    ) -> Result<PutOutcome> {
        let chosen = match sources {
            [] => Sources::All,
            [none] if none.is_empty() => Sources::All,
            list => choose::sources(store.keyspace(), list)?,
        };
        let sources = match &chosen {
            Sources::Only(list) => Some(&list[..]),
            _ => None,
        };
        store.open_event(primary, &OpenEvent { sources, attributes: (!attributes.is_empty()).then_some(attributes) })
    }
}

/// Shows one live event; also for `inspect event`.
pub(crate) fn show(store: &Opened, primary: &Primary, out: &mut Output) -> Result<Answer> {
    let schema = store.schema();
    let text = schema.text(primary.as_bytes());
    let Some(event) = store.get_event(primary, &Sources::All)? else {
        out.note(format!("forebay: no live event {text}: never seen, decided and gone, or removed"));
        out.json(&json!({ "event": text, "found": false }))?;
        return Ok(Answer::No);
    };
    let bytes: u64 = event.fragments.iter().map(|fragment| fragment.len() as u64).sum();
    let attributes = event.attributes.text(&store.keyspace().attributes);
    out.json(&json!({
        "event": text,
        "found": true,
        "state": event.state.name(),
        "stage": event.stage,
        "streams": event.streams,
        "attributes": attributes_json(&attributes),
        "sources": event.sources.iter()
            .map(|(source, state)| (schema.source_text(source), json!(state)))
            .collect::<serde_json::Map<_, _>>(),
        "fragments": event.fragments.iter().map(|fragment| json!({
            "source": source(schema, fragment.key().as_bytes()),
            "bytes": fragment.len(),
            "status": fragment.status(),
            "version": fragment.version(),
            "crc32c": format!("{:08x}", fragment.checksum()),
            "level": levels::level_name(fragment.level()),
        })).collect::<Vec<_>>(),
        "bytes": bytes,
        "missing": event.missing.iter().map(|key| source(schema, key.as_bytes())).collect::<Vec<_>>(),
    }))?;
    out.line(format!(
        "event {text} · {}{}{} · {}, {}",
        event.state.name(),
        if store.keyspace().stages.len() > 1 { format!(" · stage {}", event.stage) } else { String::new() },
        if event.streams.is_empty() { String::new() } else { format!(" into {}", event.streams.join(", ")) },
        units::plural(event.fragments.len() as u64, "fragment"),
        units::bytes(bytes)
    ))?;
    for (name, value) in &attributes {
        out.line(format!("  {name} = {value}"))?;
    }
    for fragment in &event.fragments {
        let presence = event.sources.of(schema.rest_of(&fragment.key())).name();
        out.line(format!(
            "  source {:<12} {presence:<8} {:>10}  {:<4}  status {:#x}  version {}  crc32c {:08x}",
            source(schema, fragment.key().as_bytes()),
            units::bytes(fragment.len() as u64),
            levels::level_name(fragment.level()),
            fragment.status(),
            fragment.version(),
            fragment.checksum()
        ))?;
    }
    let there = |state| matches!(state, SourceState::Present | SourceState::Empty | SourceState::Late);
    for (source, state) in event.sources.iter().filter(|(_, state)| !there(*state)) {
        out.line(format!("  source {:<12} {}", schema.source_text(source), state.name()))?;
    }
    Ok(Answer::Yes)
}

/// The sub-keys after the primary key, as text.
pub(crate) fn source(schema: &KeySchema, key: &[u8]) -> String {
    let values = schema.values(key);
    values[schema.primary_len()..].iter().map(u64::to_string).collect::<Vec<_>>().join("/")
}

/// Attributes as an object of texts: numbers of 128 bits do not fit into those of JSON.
pub(crate) fn attributes_json(attributes: &[(String, String)]) -> Value {
    attributes
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
