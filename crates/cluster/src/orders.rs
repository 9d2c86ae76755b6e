//! Doing an order on this node's own store, telling orders that come late, and the JSON of answers.

use forebay_core::mutants::is_planted;
use forebay_core::{Error, Result, RunConfig};
use forebay_store::Store;
use forebay_wire::Control;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

pub(crate) fn json(value: impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(&value)
        .map_err(|error| Error::internal("an answer cannot be written as JSON").with_source(error))
}

pub(crate) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    serde_json::from_slice(json)
        .map_err(|error| Error::corrupt("an answer that is not what was asked for").with_source(error))
}

/// Does it here, signed by who asked for it; the JSON of what the call answers. It may wait for devices.
pub(crate) fn carry_out(store: &Store, signed: &str, order: &Control) -> Result<Vec<u8>> {
    let store = store.named(signed);
    let words = |conditions: &[String]| conditions.to_vec();
    match order {
        Control::RunOpen { run, config } => json(store.run_open(*run, &RunConfig::from_toml(config, store.schema())?)?),
        Control::RunPause { run } => json(store.run_pause(*run)?),
        Control::RunResume { run } => json(store.run_resume(*run)?),
        Control::RunStop { run } => json(store.run_stop(*run)?),
        Control::RunClose { run } => json(store.run_close(*run)?),
        Control::BeginClose { run } => json(store.begin_close(*run)?),
        Control::AbandonClose { run } => json(store.abandon_close(*run)?),
        Control::Mask { run, source, from, set: true } => json(store.mask(*run, source, from.as_ref())?),
        Control::Mask { run, source, from, set: false } => json(store.unmask(*run, source, from.as_ref())?),
        Control::MasksByPolicy { run, sources } => json(store.set_masks_by_policy(*run, sources)?),
        Control::Prescale { run, name, factor, from } => json(store.prescale(*run, name, *factor, from.as_ref())?),
        Control::Hold { run, conditions } => {
            let conditions = words(conditions);
            json(store.hold(*run, &conditions.iter().map(String::as_str).collect::<Vec<_>>())?)
        }
        Control::HoldAs { id, run, conditions } => {
            let conditions = words(conditions);
            json(store.hold_as(*id, *run, &conditions.iter().map(String::as_str).collect::<Vec<_>>())?)
        }
        Control::ReleaseHold { id } => json(store.release_hold(*id)?),
        other => Err(Error::invalid(format!("`{}` is no order", other.call().name()))),
    }
}

/// The run whose home decides about an order; holds have that of run 0, so that their numbers come from one node.
///
/// # Errors
/// `Invalid` for what no client may ask for.
pub(crate) fn run_of(order: &Control) -> Result<u64> {
    match order {
        Control::RunOpen { run, .. }
        | Control::RunPause { run }
        | Control::RunResume { run }
        | Control::RunStop { run }
        | Control::RunClose { run }
        | Control::Mask { run, .. }
        | Control::Prescale { run, .. } => Ok(*run),
        Control::Hold { .. } | Control::ReleaseHold { .. } => Ok(0),
        other => Err(Error::invalid(format!("`{}` is no call of a client", other.call().name()))),
    }
}

/// The last orders of each home that were done here: (boot generation, number).
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<u16, (u32, u64)>);

impl Seen {
    /// An order is about to be done. The last one may come again: its answer was lost.
    ///
    /// # Errors
    /// `Fenced` for an order before the last one: a connection that its home had given up brought it.
    pub(crate) fn take(&mut self, node: u16, number: (u32, u64)) -> Result<()> {
        let last = self.0.entry(node).or_default();
        if number < *last && !is_planted("order-late") {
            return Err(Error::fenced(format!(
                "an order of node {node} that it has replaced: {number:?} after {last:?}; if that goes on, a copy of its store is served \
                 somewhere"
            )));
        }
        *last = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_comes_late_is_refused_and_the_last_one_may_come_again() {
        let mut seen = Seen::default();
        for number in [(1, 1), (1, 2), (1, 2), (2, 1), (2, 1)] {
            seen.take(3, number).unwrap();
        }
        for late in [(1, 9), (2, 0)] {
            assert_eq!(seen.take(3, late).unwrap_err().kind(), forebay_core::Kind::Fenced, "{late:?}");
        }
        seen.take(4, (1, 1)).unwrap();
    }
}
