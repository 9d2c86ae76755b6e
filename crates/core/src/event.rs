//! An event as it is read, regardless of what holds the bytes of its fragments: a guard in place, or memory of the reader.

use crate::{Attributes, Key, LiveState, Primary, SourceStates};
use std::borrow::Cow;

/// An event as it is read.
#[derive(Clone, Debug)]
pub struct Event<F> {
    /// The event's name.
    pub primary: Primary,
    /// Its state.
    pub state: LiveState,
    /// Stage of the selection that it has reached, by name.
    pub stage: String,
    /// Attributes set so far.
    pub attributes: Attributes,
    /// Streams that it was accepted into.
    pub streams: Vec<String>,
    /// Fragments in key order, those that were asked for.
    pub fragments: Vec<F>,
    /// Expected sources that are not there (for completeness by source list), masked ones not among them.
    pub missing: Vec<Key>,
    /// The state of each of its sources.
    pub sources: SourceStates,
}

/// One event as a monitor sees it.
#[derive(Clone, Debug)]
pub struct Sample<F> {
    /// The event's name.
    pub primary: Primary,
    /// `open`, `ready`, `leased`, `debug`, `accepted`; of decided ones `accepted`, `rejected`, `passed`.
    pub state: Cow<'static, str>,
    /// Stage of the selection, by name.
    pub stage: String,
    /// Attributes.
    pub attributes: Attributes,
    /// Copies of the chosen fragments, in key order.
    pub fragments: Vec<F>,
    /// The state of each of its sources.
    pub sources: SourceStates,
    /// Chosen fragments that were left out, because they would have gone past `bytes_max`.
    pub left_out: u32,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
}
