//! `forebay take`: one `get_any`, and the verdict on what it gave.

use crate::event;
use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{choose, levels, units};
use forebay_core::{Either, Error, EventStore, Filter, Lease, Level, ReadFragment, Result, Source};
use forebay_store::{Accept, GetAny, ResultFragment, Sources};
use serde_json::json;
use std::time::Duration;

const HELP: &str = "\
Take ready events as a filter process does: get_any leases them and returns the chosen sources in the same call. Prints \
each event's lease token, sources and sizes. Nothing ready, within --wait: exit code 1.

The verdict is given here as well: --accept into a stream (or several), --reject, --pass to a later stage of the selection, \
--requeue, or --fail with a reason. Without one the event is ready again after this process where it opened the directory itself, and once the lease has ended \
(`lease`, 10 s by default) where a server has the store. The delivery counts as one that a worker did not end; after the keyspace's deliveries_max of them the event goes to the debug stream.

Example: accept one event into the stream physics; reject up to ten whose attribute lumi is 1 to 5; look at two sources and give back:
  forebay take /tmp/first --accept physics
  forebay take /tmp/first -n 10 --filter lumi=1..5 --reject
  forebay take /tmp/first --sources 1,2 --requeue

Two stages (fast and final, named in the keyspace file): the first reads the group `fast` and passes on, the second \
adds a result under a source of its own, keeps the whole event in physics and some sources of it in calib:
  forebay take /tmp/first --stage fast --sources fast --pass final
  forebay take /tmp/first --stage final --result 1000=tracks.bin \\
    --accept physics --accept calib:1,2,5..9

Where the store has a warm level, --level takes only events of that level, as a second farm for the backlog does:
  forebay take /tmp/two --level warm -n 100 --reject

With --json: one object per line and event.";

/// A lease of a store that is here or on a server.
type LeaseOf = Lease<<Opened as EventStore>::Fragment, <Opened as EventStore>::Holder>;

/// Lease ready events and decide them.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Take {
    #[command(flatten)]
    store: Place,
    /// Most events to take.
    #[arg(short, value_name = "N", default_value_t = 1)]
    n: usize,
    /// Stage of the selection whose events are wanted; the first one when not given.
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// Takes this event instead of any, in any stage.
    #[arg(long, value_name = "RUN/EVENT", conflicts_with_all = ["stage", "n", "filter", "min_age", "wait", "sources", "level"])]
    event: Option<String>,
    /// Only events that are on this level, hot or warm.
    #[arg(long, value_name = "LEVEL", value_parser = levels::parse_level)]
    level: Option<Level>,
    /// Condition on attributes: name=value, name=low..high or name&mask; may be repeated.
    #[arg(long, value_name = "CONDITION")]
    filter: Vec<String>,
    /// Only events whose first fragment arrived at least this long ago.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::parse_duration)]
    min_age: Duration,
    /// How long to wait for a first event.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::parse_duration)]
    wait: Duration,
    /// Sources to read, such as 1,2,5..9 (7/1,7/2 where a source has two parts), a group, or `none`; all when not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sources: Option<Vec<String>>,
    /// Accepts into a stream, whole or (STREAM:SOURCES, a list or a group) in part; may be repeated; `accepted` when no
    /// name is given.
    #[arg(long, value_name = "STREAM", num_args = 0..=1, default_missing_value = "accepted", conflicts_with_all = ["reject", "requeue", "pass"])]
    accept: Vec<String>,
    /// Hands the events to a later stage.
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["reject", "requeue"])]
    pass: Option<String>,
    /// Adds a fragment with --accept or --pass, SOURCE=FILE, under a source that the event does not have; may be repeated.
    #[arg(long, value_name = "SOURCE=FILE", conflicts_with_all = ["reject", "requeue"])]
    result: Vec<String>,
    /// Rejects: the space is freed.
    #[arg(long, conflicts_with = "requeue")]
    reject: bool,
    /// Gives the events back for another worker.
    #[arg(long)]
    requeue: bool,
    /// Says that processing the events failed, and why. They become ready again at once and the delivery counts: after the
    /// keyspace's deliveries_max of them they are in the debug stream, with this text.
    #[arg(long, value_name = "REASON", conflicts_with_all = ["accept", "pass", "result", "reject", "requeue"])]
    fail: Option<String>,
}

impl Take {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.take(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn take(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let results = self.results(store)?;
        let mut request = self.request(store)?;
        let mut taken = 0;
        // Several calls: one answers no more than a connection takes at once.
        while request.n > 0 {
            let more: Vec<LeaseOf> = match &self.event {
                Some(event) => store.lease(&store.schema().parse_primary(event)?, None)?.into_iter().collect(),
                None => store.get_any(&request)?,
            };
            for lease in &more {
                for fragment in &lease.fragments {
                    fragment.verify()?;
                }
                let verdict = self.decide(store, lease, &results)?;
                show(store, lease, verdict, out)?;
            }
            taken += more.len();
            request = GetAny { n: request.n.saturating_sub(more.len()), wait: Duration::ZERO, ..request };
            // What was given back would come again.
            if more.is_empty() || self.event.is_some() || self.requeue || self.fail.is_some() {
                break;
            }
        }
        if taken == 0 {
            out.note(match &self.event {
                Some(event) => format!("forebay: {event} is not there, not ready, or leased"),
                None => "forebay: nothing ready (`forebay inspect DIR events` shows what is there)".to_owned(),
            });
            return Ok(Answer::No);
        }
        if self.verdict().is_none() {
            let each = if taken == 1 { "the event is" } else { "the events are" };
            let then = match store {
                Either::Here(_) => "ready again after this process",
                Either::There(_) => "leased on the server until the lease ends, and ready again then",
            };
            out.note(format!(
                "forebay: no verdict given: {each} {then}, one delivery of {} used; --requeue gives back without that",
                store.keyspace().deliveries_max
            ));
        }
        Ok(Answer::Yes)
    }

    fn request(&self, store: &Opened) -> Result<GetAny> {
        let keyspace = store.keyspace();
        let sources = self.sources.as_ref().map_or(Ok(Sources::All), |list| choose::sources(keyspace, list))?;
        Ok(GetAny {
            stage: self.stage.clone(),
            n: self.n,
            filter: Filter::parse(&store.keyspace().attributes, &self.filter)?,
            min_age: self.min_age,
            sources,
            wait: self.wait,
            lease: None,
            level: self.level,
        })
    }

    fn verdict(&self) -> Option<&'static str> {
        match (self.accept.is_empty(), self.reject, self.requeue, &self.pass) {
            (false, ..) => Some("accepted"),
            (_, true, ..) => Some("rejected"),
            (.., true, _) => Some("requeued"),
            _ if self.fail.is_some() => Some("failed"),
            (.., Some(_)) => Some("passed"),
            _ => None,
        }
    }

    fn decide(&self, store: &Opened, lease: &LeaseOf, results: &[(Source, Vec<u8>)]) -> Result<Option<&'static str>> {
        let verdict = self.verdict();
        let results: Vec<ResultFragment<'_>> =
            results.iter().map(|(source, bytes)| ResultFragment::new(source, bytes)).collect();
        match (verdict, &self.pass) {
            (Some("accepted"), _) => {
                let stream = |text| choose::stream(store.keyspace(), text);
                let streams: Vec<_> = self.accept.iter().map(|text| stream(text)).collect::<Result<_>>()?;
                lease.accept_into(&Accept { streams: &streams, results: &results })?;
            }
            (Some("rejected"), _) => lease.reject()?,
            (Some("requeued"), _) => lease.requeue()?,
            (Some("failed"), _) => lease.fail(self.fail.as_deref().unwrap_or_default())?,
            (_, Some(stage)) => lease.pass(stage, &results)?,
            _ => {}
        }
        Ok(verdict)
    }

    /// Results from their files, before anything is leased.
    fn results(&self, store: &Opened) -> Result<Vec<(Source, Vec<u8>)>> {
        if !self.result.is_empty() && self.accept.is_empty() && self.pass.is_none() {
            return Err(Error::invalid("--result goes with --accept or --pass"));
        }
        let one = |text: &String| {
            let (source, file) = text.split_once('=').ok_or_else(|| {
                Error::invalid(format!("--result `{text}`: expected SOURCE=FILE, such as 1000=tracks.bin"))
            })?;
            let bytes = std::fs::read(file)
                .map_err(|error| Error::invalid(format!("cannot read {file}")).with_source(error))?;
            Ok((store.schema().parse_source(source)?, bytes))
        };
        self.result.iter().map(one).collect()
    }
}

fn show(store: &Opened, lease: &LeaseOf, verdict: Option<&str>, out: &mut Output) -> Result<()> {
    let schema = store.schema();
    let text = schema.text(lease.primary.as_bytes());
    let attributes = lease.attributes.text(&store.keyspace().attributes);
    out.json(&json!({
        "event": text,
        "token": lease.token.to_string(),
        "stage": store.keyspace().stages.get(usize::from(lease.stage)),
        "delivery": lease.delivery,
        "verdict": verdict,
        "attributes": event::attributes_json(&attributes),
        "event_fragments": lease.event_fragments,
        "event_bytes": lease.event_bytes,
        "read": lease.fragments.iter().map(|fragment| json!({
            "source": event::source(schema, fragment.key().as_bytes()),
            "bytes": fragment.len(),
            "status": fragment.status(),
            "level": levels::level_name(fragment.level()),
        })).collect::<Vec<_>>(),
        "missing": lease.missing.iter().map(|key| event::source(schema, key.as_bytes())).collect::<Vec<_>>(),
    }))?;
    out.line(format!(
        "event {text} · token {} · delivery {} · {}, {} · {}",
        lease.token,
        lease.delivery,
        units::plural(u64::from(lease.event_fragments), "fragment"),
        units::bytes(lease.event_bytes),
        verdict.unwrap_or("leased")
    ))?;
    for (name, value) in &attributes {
        out.line(format!("  {name} = {value}"))?;
    }
    for fragment in &lease.fragments {
        out.line(format!(
            "  source {:<12} {:>10}  {:<4}  status {:#x}",
            event::source(schema, fragment.key().as_bytes()),
            units::bytes(fragment.len() as u64),
            levels::level_name(fragment.level()),
            fragment.status()
        ))?;
    }
    for key in &lease.missing {
        out.line(format!("  source {:<12} missing", event::source(schema, key.as_bytes())))?;
    }
    Ok(())
}
