//! Runs, masks and holds: asked of any node, done by all of them.

use super::ClusterClient;
use super::select::TURN;
use crate::fragment::{Fragment, Sample};
use crate::objects::{Producer, Sampler};
use crate::put::NO_WAIT;
use crate::retry::Limit;
use forebay_core::{
    Error, FollowRun, PrescaleFactor, Primary, Result, RunConfig, RunState, RunStatus, RunSummary, SampleEvents,
    Sampling, Source,
};
use std::time::Duration;

/// How often a run is looked at for changes.
const LOOK: Duration = Duration::from_millis(200);

macro_rules! about_run {
    ($($(#[$doc:meta])* $name:ident($run:ident: u64 $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        /// Calls that the home of a run makes, for every node.
        impl ClusterClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// As the client's method of the same name; `Unavailable` where the home of the run does not answer.
                pub fn $name(&self, $run: u64 $(, $argument: $type)*) -> Result<$answer> {
                    self.about_run($run, |client| client.$name($run $(, $argument)*))
                }
            )*
        }
    };
}

about_run! {
    /// Opens a run on every node.
    run_open(run: u64, config: &RunConfig) -> ();
    /// The waiting time of open events does not run.
    run_pause(run: u64) -> ();
    /// A paused run goes on.
    run_resume(run: u64) -> ();
    /// A run takes no new events.
    run_stop(run: u64) -> ();
    /// Events no longer wait for a source.
    mask(run: u64, source: &Source, from: Option<&Primary>) -> ();
    /// Events wait for a source again.
    unmask(run: u64, source: &Source, from: Option<&Primary>) -> ();
    /// Records a prescale of the trigger.
    prescale(run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> ();
}

impl ClusterClient {
    /// Closes a run on every node; answers what it leaves behind on all of them.
    ///
    /// # Errors
    /// As [`crate::Client::run_close`]; `Unavailable`, naming the node, while one of them has something left to decide or does
    /// not answer.
    pub fn run_close(&self, run: u64) -> Result<RunSummary> {
        let this = self.until(self.begin(NO_WAIT));
        this.about_run(run, |client| client.run_close(run))?;
        this.run_summary(run).map_err(|error| {
            let what = format!("run {run} is closed, and what it leaves cannot be said: {}", error.message());
            Error::new(error.kind(), what).with_source(error)
        })
    }

    /// Holds events back from delivery, on every node under one number.
    ///
    /// # Errors
    /// As [`crate::Client::hold`].
    pub fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        // Numbers of holds come from the home of run 0.
        self.about_run(0, |client| client.hold(run, conditions))
    }

    /// Ends a hold.
    ///
    /// # Errors
    /// As [`crate::Client::release_hold`].
    pub fn release_hold(&self, id: u32) -> Result<bool> {
        self.about_run(0, |client| client.release_hold(id))
    }

    /// Enters a producer in the books of a run, at the run's home.
    ///
    /// # Errors
    /// As [`crate::Client::producer`].
    pub fn producer(&self, run: u64, name: &str) -> Result<Producer> {
        let home = self.placed().keyspace.home(run, &run.to_be_bytes());
        self.inner.nodes.node_within(home, Limit::new(self.begin(NO_WAIT)))?.producer(run, name)
    }

    /// Follows a run: yields its status, of all nodes, after each change.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Unavailable`.
    pub fn watch(&self, run: u64) -> Result<ClusterWatch> {
        let last = self.status(run)?;
        Ok(ClusterWatch { cluster: self.clone(), run, last: None, state: last.state })
    }

    /// Samples events of all nodes, each at its share of the rate.
    ///
    /// # Errors
    /// As [`crate::Client::sampler`], with the name of the node.
    pub fn sampler(&self, sampling: &Sampling) -> Result<ClusterSampler> {
        let nodes = self.placed().nodes().count().max(1);
        let share = Sampling { rate_hz: sampling.rate_hz / nodes as f64, ..sampling.clone() };
        Ok(ClusterSampler { cluster: self.clone(), nodes: self.everywhere(|client| client.sampler(&share))?, turn: 0 })
    }

    fn status(&self, run: u64) -> Result<RunStatus> {
        let unknown = || forebay_core::Error::invalid(format!("run {run} is not known to the cluster"));
        self.runs()?.into_iter().find(|status| status.run == run).ok_or_else(unknown)
    }
}

/// Draws samples of the events of all nodes, one node after another.
pub struct ClusterSampler {
    cluster: ClusterClient,
    nodes: Vec<Sampler>,
    turn: usize,
}

impl ClusterSampler {
    /// The next sample; `None` if no node has one within the wait.
    ///
    /// # Errors
    /// As [`Sampler::next`].
    pub fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        let end = self.cluster.inner.nodes.now() + wait;
        let mut asked = 0;
        loop {
            self.turn = (self.turn + 1) % self.nodes.len();
            let left = end.saturating_duration_since(self.cluster.inner.nodes.now());
            // Each once without a wait; then one after another waits for a moment.
            let most = if asked < self.nodes.len() { Duration::ZERO } else { left.min(TURN) };
            if let Some(sample) = self.nodes[self.turn].next(most)? {
                return Ok(Some(sample));
            }
            asked += 1;
            if asked >= self.nodes.len() && left.is_zero() {
                return Ok(None);
            }
        }
    }
}

impl SampleEvents for ClusterSampler {
    type Fragment = Fragment;

    fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        self.next(wait)
    }
}

/// Follows one run over all nodes.
pub struct ClusterWatch {
    cluster: ClusterClient,
    run: u64,
    last: Option<RunStatus>,
    state: RunState,
}

impl ClusterWatch {
    /// The state of the run as it was seen last.
    pub fn state(&self) -> RunState {
        self.state
    }
}

impl FollowRun for ClusterWatch {
    fn next(&mut self, wait: Duration) -> Result<Option<RunStatus>> {
        let end = self.cluster.inner.nodes.now() + wait;
        loop {
            let now = self.cluster.status(self.run)?;
            self.state = now.state;
            if self.last.as_ref() != Some(&now) {
                self.last = Some(now.clone());
                return Ok(Some(now));
            }
            let left = end.saturating_duration_since(self.cluster.inner.nodes.now());
            if left.is_zero() {
                return Ok(None);
            }
            self.cluster.inner.nodes.options.machine.sleep(left.min(LOOK));
        }
    }
}
