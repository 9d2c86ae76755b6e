//! File descriptors: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors beside connections: stores, devices, listeners, logs.
const BESIDE: u64 = 512;

/// Takes as many descriptors as the system allows this process, and says where that is too few for the connections.
pub(super) fn raise_limit(connections_max: usize) {
    let now = getrlimit(Resource::Nofile);
    // What is refused leaves it as it is: then the figure below says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    let allowed = getrlimit(Resource::Nofile).current;
    let needed = connections_max as u64 + BESIDE;
    if allowed.is_some_and(|allowed| allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "fewer file descriptors than connections_max needs: raise LimitNOFILE (ulimit -Hn), or lower it"
        );
    }
}
