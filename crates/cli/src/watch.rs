//! `forebay watch`: events of a run in their present state, one a second, in a form that people read.

use crate::ledger::no_run_here;
use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{choose, report, signal, units};
use forebay_core::{EventStore, Filter, OperatedStore, Result, SampleEvents};
use forebay_daq::display::EventDisplay;
use forebay_store::{Sampling, Sources};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
Look at events without taking them: their sources and states, sizes, attributes; for detector frames that are known (WIB1, \
WIBEth) the link and a histogram of ADC values, for other payloads their first bytes. One event a second, until Ctrl-C, \
--count or --for; nobody is delayed by it.

With --decided events are shown at the moment of their verdict, rejected ones too: that needs workers in the process that \
serves the store, as in `forebay demo --watch`. Nothing shown: exit code 1.

Example: three events of run 1; as JSON, ten a second, only ready for a class:
  forebay watch /tmp/first 1 --count 3
  forebay watch /tmp/first 1 --rate 10 --count 100 --filter class=calib --json";

/// Show one event a second: sources, sizes, ADC values.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Watch {
    #[command(flatten)]
    store: Place,
    /// Run number.
    run: u64,
    /// Events to show; until Ctrl-C when not given.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// How long to watch; until Ctrl-C when not given.
    #[arg(long = "for", value_name = "DURATION", value_parser = units::parse_duration)]
    time: Option<Duration>,
    /// Events a second.
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    rate: f64,
    /// Events as they are decided, instead of those that are there.
    #[arg(long)]
    decided: bool,
    /// Condition on attributes: name=value, name=low..high or name&mask; may be repeated.
    #[arg(long, value_name = "CONDITION")]
    filter: Vec<String>,
    /// Only events of this stage.
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// Sources whose bytes are read: a list such as 1,2,5..9, a group, or `none`; all when not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sources: Option<Vec<String>>,
}

impl Watch {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.watch(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn watch(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let keyspace = store.keyspace();
        let sampling = Sampling {
            filter: Filter::parse(&keyspace.attributes, &self.filter)?,
            stage: self.stage.clone(),
            run: Some(self.run),
            decided: self.decided,
            sources: self.sources.as_ref().map_or(Ok(Sources::All), |list| choose::sources(keyspace, list))?,
            rate_hz: self.rate,
            ..Sampling::default()
        };
        let mut sampler = store.sampler(&sampling)?;
        if !store.runs()?.iter().any(|status| status.run == self.run) {
            return no_run_here(self.run, out);
        }
        let stop = signal::stop_flag()?;
        let (start, mut shown) = (Instant::now(), 0);
        loop {
            let left = self.time.map_or(Duration::MAX, |time| time.saturating_sub(start.elapsed()));
            if let Some(sample) = sampler.next(left.min(Duration::from_millis(100)))? {
                let display = EventDisplay::of_sample(&sample, keyspace);
                out.json(&display)?;
                for line in report::lines(&display)? {
                    out.line(line)?;
                }
                // A watcher's reader wants each event now.
                out.finish()?;
                shown += 1;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(Answer::Interrupted);
            }
            if left.is_zero() || self.count.is_some_and(|count| shown >= count) {
                return Ok(Answer::found(shown > 0));
            }
        }
    }
}
