//! The homes of runs, as a node of a cluster knows them.

use forebay_core::Result;
use std::time::Duration;

/// How long the home of a run has to open it for a put of a shorter deadline: longer than it looks for nodes that have just died.
pub const RUN_OPENS: Duration = Duration::from_millis(2500);

/// Where a node asks for runs that it does not know: their home opens them, on every node.
pub trait RunHome: Send + Sync {
    /// Events of this run have come. Returns at once; the run is known to the store a moment later.
    ///
    /// # Errors
    /// What its home answered a moment ago, where that was a refusal.
    fn wanted(&self, run: u64) -> Result<()>;

    /// Other nodes are to be told something: fragments that are held here for them, or events that ended here. Returns at
    /// once, and calls nothing of the store.
    fn stirred(&self) {}
}
