//! `forebay inspect`: a store from the inside: segments, events by state, one event, one fragment in hex.

use crate::event;
use crate::open::{Close, Kept, Opened, Place};
use crate::output::{self, Answer, Output};
use crate::{levels, ring, units};
use clap::Subcommand;
use forebay_core::{Bounds, Error, EventStore, LIVE_STATES, OperatedStore, ReadFragment, Result};
use forebay_store::SegmentInfo;
use serde_json::{Map, json};

const HELP: &str = "\
Look into a store. Without more, the segments and the events by state in short.

Example: the segments with their fill, the live events of run 1, one event, one fragment in hex:
  forebay inspect /tmp/first
  forebay inspect /tmp/first segments
  forebay inspect /tmp/first events 1
  forebay inspect /tmp/first event 1/42
  forebay inspect /tmp/first fragment 1/42/0

Of a ring, its chunks and ticks in short, and every chunk:
  forebay inspect /tmp/links
  forebay inspect /tmp/links chunks --source 3/17";

/// Look into a store: segments, events, one event, one fragment in hex.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Inspect {
    #[command(flatten)]
    store: Place,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Every segment: state, generation, entries, fill. Example: forebay inspect /tmp/first segments
    Segments,
    /// Every chunk of a ring: source, state, ticks, fragments, pinned or not. Example: forebay inspect /tmp/links chunks
    Chunks {
        /// Of this source, such as 3/17.
        #[arg(long, value_name = "SOURCE")]
        source: Option<String>,
    },
    /// Live events by state, and a list of them. Example: forebay inspect /tmp/first events '1/10-20' --limit 5
    Events {
        /// Bounds of the events, such as 1 or 1/10-20.
        #[arg(default_value = "*")]
        bounds: String,
        /// Most events to list.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// One event with its sources. Example: forebay inspect /tmp/first event 1/42
    Event {
        /// The event, such as run/event: 1/42.
        #[arg(value_name = "RUN/EVENT")]
        event: String,
    },
    /// One fragment: what is stored about it, and its bytes in hex. Example: forebay inspect /tmp/first fragment 1/42/0
    Fragment {
        /// Key, such as run/event/source: 1/42/0.
        key: String,
    },
}

impl Inspect {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = match self.store.kept(out)? {
            Kept::Ring(ring) => {
                return match &self.what {
                    None => ring::inspect::overview(&ring, out),
                    Some(What::Chunks { source }) => ring::inspect::chunks(&ring, source.as_deref(), out),
                    Some(_) => {
                        Err(Error::invalid("a ring has chunks and no events: `inspect PLACE chunks` shows them"))
                    }
                };
            }
            Kept::Events(store) => store,
        };
        let answer = match &self.what {
            None => overview(&store, out),
            Some(What::Chunks { .. }) => Err(Error::invalid("only a ring has chunks: `inspect PLACE segments`")),
            Some(What::Segments) => segments(&store, out),
            Some(What::Events { bounds, limit }) => events(&store, bounds, *limit, out),
            Some(What::Event { event }) => event::show(&store, &store.schema().parse_primary(event)?, out),
            Some(What::Fragment { key }) => fragment(&store, key, out),
        }?;
        store.close()?;
        Ok(answer)
    }
}

fn overview(store: &Opened, out: &mut Output) -> Result<Answer> {
    let (stats, segments) = (store.stats()?, store.segments()?);
    let mut states: Map<_, _> = Map::new();
    for name in ["free", "open", "sealed", "log"] {
        states.insert(name.to_owned(), segments.iter().filter(|info| info.state == name).count().into());
    }
    out.line(format!(
        "keyspace {} · {} · boot {}",
        store.keyspace().name,
        store.schema().describe().join("/"),
        stats.boot
    ))?;
    out.line(format!(
        "hot      {} {:>3.0} % of {}",
        units::bar(stats.fill, 32),
        stats.fill * 100.0,
        units::bytes(stats.segment_bytes * u64::from(stats.segments))
    ))?;
    let counts: Vec<String> = states.iter().map(|(name, number)| format!("{number} {name}")).collect();
    out.line(format!("segments {} of {}", counts.join(", "), units::bytes(stats.segment_bytes)))?;
    for (state, tally) in stats.events.iter() {
        out.line(format!(
            "{:<8} {}, {}, {}",
            state.name(),
            units::plural(tally.events, "event"),
            units::plural(tally.fragments, "fragment"),
            units::bytes(tally.bytes)
        ))?;
    }
    out.json(&json!({
        "keyspace": store.keyspace().name,
        "key": store.schema().describe(),
        "boot": stats.boot,
        "fill": stats.fill,
        "segment_bytes": stats.segment_bytes,
        "segments": states,
        "events": stats.events,
    }))?;
    Ok(Answer::Yes)
}

fn segments(store: &Opened, out: &mut Output) -> Result<Answer> {
    let (segment_bytes, segments) = (store.stats()?.segment_bytes, store.segments()?);
    out.json(&segments)?;
    out.line(format!(
        "{:>7}  {:<6} {:>10} {:>10} {:>10} {:>5}  used of {}",
        "segment",
        "state",
        "generation",
        "entries",
        "live",
        "pins",
        units::bytes(segment_bytes)
    ))?;
    for info in &segments {
        out.line(segment_line(info, segment_bytes))?;
    }
    Ok(Answer::Yes)
}

fn segment_line(info: &SegmentInfo, segment_bytes: u64) -> String {
    let share = info.used_bytes as f64 / segment_bytes.max(1) as f64;
    format!(
        "{:>7}  {:<6} {:>10} {:>10} {:>10} {:>5}  {} {:>3.0} %",
        info.segment,
        info.state,
        info.generation,
        info.entries,
        info.live,
        info.pins,
        units::bar(share, 20),
        share * 100.0
    )
}

fn events(store: &Opened, bounds: &str, limit: usize, out: &mut Output) -> Result<Answer> {
    let schema = store.schema();
    let events = store.events(&Bounds::parse(schema, bounds)?)?;
    let mut states = Map::new();
    for state in LIVE_STATES {
        let number = events.iter().filter(|info| info.state == state).count();
        states.insert(state.name().to_owned(), number.into());
    }
    let counts: Vec<String> = states.iter().map(|(name, number)| format!("{number} {name}")).collect();
    out.line(format!("{}: {}", units::plural(events.len() as u64, "live event"), counts.join(", ")))?;
    let mut list = Vec::new();
    for info in events.iter().take(limit) {
        let name = schema.text(info.primary.as_bytes());
        out.line(format!(
            "  {name:<20} {:<8} {:>14} {:>10}  deliveries {}",
            info.state.name(),
            units::plural(u64::from(info.fragments), "fragment"),
            units::bytes(info.bytes),
            info.deliveries
        ))?;
        list.push(json!({
            "event": name,
            "state": info.state.name(),
            "fragments": info.fragments,
            "bytes": info.bytes,
            "deliveries": info.deliveries,
        }));
    }
    if events.len() > limit {
        out.line(format!("  … and {} more (--limit shows more)", events.len() - limit))?;
    }
    out.json(&json!({ "total": events.len(), "states": states, "events": list }))?;
    Ok(Answer::Yes)
}

fn fragment(store: &Opened, key: &str, out: &mut Output) -> Result<Answer> {
    let key = store.schema().parse_key(key)?;
    let text = store.schema().text(key.as_bytes());
    let Some(fragment) = store.get(&key)? else {
        out.note(format!("forebay: no fragment {text}"));
        out.json(&json!({ "key": text, "found": false }))?;
        return Ok(Answer::No);
    };
    // Shown even if it is damaged: this is the command for looking at damage.
    let verified = fragment.verify();
    out.line(format!(
        "fragment {text} · {} bytes · {} level · status {:#x} · version {} · crc32c {:08x} ({})",
        fragment.len(),
        levels::level_name(fragment.level()),
        fragment.status(),
        fragment.version(),
        fragment.checksum(),
        if verified.is_ok() { "verified" } else { "DOES NOT VERIFY" }
    ))?;
    out.line(format!("packed key {}", output::hex(key.as_bytes())))?;
    if !out.json {
        for line in output::hex_dump(&fragment) {
            out.line(line)?;
        }
    }
    out.json(&json!({
        "key": text,
        "found": true,
        "packed_key": output::hex(key.as_bytes()),
        "bytes": fragment.len(),
        "status": fragment.status(),
        "version": fragment.version(),
        "crc32c": format!("{:08x}", fragment.checksum()),
        "verified": verified.is_ok(),
        "level": levels::level_name(fragment.level()),
        "value_hex": output::hex(&fragment),
    }))?;
    verified.map(|()| Answer::Yes)
}
