//! Fragments of all nodes in key order.

use super::ClusterClient;
use crate::fragment::Fragment;
use crate::get::Range;
use forebay_core::{Bounds, Error, Result};

/// Fragments inside bounds, in key order, as they are walked over: each node is read ahead of by as much as its connection takes.
pub struct ClusterRange {
    nodes: Vec<Ahead>,
    /// What ends the walk before it begins.
    failed: Option<Error>,
}

struct Ahead {
    range: Range,
    next: Option<Fragment>,
}

impl ClusterClient {
    /// Fragments inside bounds, in key order over all nodes. The first error ends the walk: what follows would not be all.
    pub fn range(&self, bounds: &Bounds) -> ClusterRange {
        let ranges = self.all_within(bounds, |client| {
            let mut range = client.range(bounds);
            let next = range.next().transpose()?;
            Ok(Ahead { range, next })
        });
        match ranges {
            Ok(nodes) => ClusterRange { nodes, failed: None },
            Err(error) => ClusterRange { nodes: Vec::new(), failed: Some(error) },
        }
    }
}

impl ClusterRange {
    fn take_next(&mut self) -> Result<Option<Fragment>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let first = self.nodes.iter().filter_map(|ahead| ahead.next.as_ref()).map(Fragment::key);
        let Some(first) = first.min_by(|one, other| one.as_bytes().cmp(other.as_bytes())) else { return Ok(None) };
        let is_first = |ahead: &&mut Ahead| ahead.next.as_ref().is_some_and(|next| next.key() == first);
        let Some(ahead) = self.nodes.iter_mut().find(is_first) else { return Ok(None) };
        let found = ahead.next.take();
        // An error comes after what was read before it.
        match ahead.range.next() {
            Some(Ok(next)) => ahead.next = Some(next),
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
        Ok(found)
    }
}

impl Iterator for ClusterRange {
    type Item = Result<Fragment>;

    fn next(&mut self) -> Option<Result<Fragment>> {
        let next = self.take_next().transpose();
        if matches!(next, Some(Err(_))) {
            self.nodes.clear();
        }
        next
    }
}
