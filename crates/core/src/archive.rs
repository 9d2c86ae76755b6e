//! What a mover asks of a store: to have events for itself, to say that the archive has them, to give them back.
//!
//! ```text
//! claim ─▶ claimed, page by page ─▶ (read, write, read back, manifest) ─▶ prove ─▶ custody ─▶ released by the store
//!   └── extend_claim, as a heartbeat            └── give_back, or the claim's time is over: another mover gets it
//! ```
//!
//! *Invariants*: a claim belongs to one mover at a time; its token is of the store's boot generation, so a claim of an earlier
//! life is `Fenced`. Nothing is released but what was proved, and only with the content that was proved.

use crate::map::Hex128;
use crate::{LiveState, Primary, Result, Source, Token};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// What a mover wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// Only what lies on this device, by its number; on any where it is `None`.
    pub device: Option<u32>,
    /// Containers that are still being filled are closed and claimed if they began this long ago, or if their run has ended. Without a warm level: events that were accepted longer ago than this are claimed although they are few.
    pub move_after: Duration,
    /// For how long, until it is extended.
    pub duration: Duration,
    /// The archive's identity; `None` where what is moved goes to no archive of Forebay's.
    #[serde(default)]
    pub archive: Option<Hex128>,
    /// It may be another archive than the one that the store's last proof was in.
    #[serde(default)]
    pub another: bool,
}

/// The name of a container's filling, drawn at random when it begins and never used again: its generation comes again after an old
/// backup is restored. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filling(pub u64);

impl fmt::Display for Filling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl Serialize for Filling {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'a> Deserialize<'a> for Filling {
    fn deserialize<D: Deserializer<'a>>(from: D) -> std::result::Result<Filling, D::Error> {
        let text = <Cow<'_, str>>::deserialize(from)?;
        let value = u64::from_str_radix(&text, 16).ok().map(Filling);
        value
            .filter(|value| value.to_string() == text)
            .ok_or_else(|| D::Error::custom("expected 16 digits of 0-9 and a-f"))
    }
}

/// What is moved together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A container in one of its fillings: nothing is added to it any more, and it is claimed by this name until it is released.
    Container {
        /// Its number.
        container: u32,
        /// How often it was filled, as the store counts.
        generation: u32,
        /// Its filling; 0 in what was archived before fillings had names.
        #[serde(default)]
        filling: Filling,
        /// Its device, by number.
        device: u32,
    },
    /// Events of a store without a warm level: another claim may have some of them and not others.
    Batch,
}

/// What a mover has for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The fence: no other claim, in this life or another, has the same.
    pub token: Token,
    /// The store's identity, as hexadecimal digits: with the unit it names the content.
    pub store: String,
    /// What it is.
    pub unit: Unit,
    /// Events with anything in it, those that ended since included.
    pub events: u64,
    /// Their payload bytes in it.
    pub bytes: u64,
}

/// A claimed event, or the part of it that lies in the unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedEvent {
    /// Its name.
    pub primary: Primary,
    /// `Accepted` or `Debug`.
    pub state: LiveState,
    /// Streams that it was accepted into, with what each keeps: `None` keeps all. Of the debug stream none.
    pub streams: Vec<(String, Option<Vec<Source>>)>,
    /// The sources whose fragments lie in the unit, packed; `None` where all of the event's do.
    pub sources: Option<Vec<Source>>,
    /// Fragments of the whole event: what is archived is a part where it has fewer. 0 where the event has ended, or is elsewhere
    /// now: nothing of it is archived with this claim.
    pub event_fragments: u32,
}

/// The stores that movers empty.
pub trait MovedStore {
    /// Claims a unit of accepted or debug events, oldest first; `None` if there is none.
    ///
    /// # Errors
    /// `Invalid` for a device that there is not, `Conflict` where the store's proofs are in another archive, `Unavailable` where the
    /// device does not answer, `Closed`.
    fn claim(&self, request: &ClaimRequest) -> Result<Option<Claim>>;

    /// The next events of a claim, in the order of the unit, after this many of them; none at the end. Events that ended since
    /// stay in the list, which is the same for each claim of the unit, with [`ClaimedEvent::event_fragments`] 0.
    ///
    /// # Errors
    /// `Fenced` where the claim is no longer in force, `Unavailable`, `Corrupt`, `Closed`.
    fn claimed(&self, token: &Token, after: u64) -> Result<Vec<ClaimedEvent>>;

    /// The claim goes on for this long from now: a heartbeat.
    ///
    /// # Errors
    /// `Fenced`, `Closed`.
    fn extend_claim(&self, token: &Token, duration: Duration) -> Result<()>;

    /// The archive has what was claimed: read back and compared. A container goes into custody; a batch is released. What
    /// changed since it was claimed stays accepted, to be moved again. Durable before the answer. Answers how many events the
    /// proof covers; a repetition answers the same.
    ///
    /// # Errors
    /// `Fenced` where the claim is no longer in force: nothing has changed. `OutcomeUnknown` where a device did not confirm it.
    fn prove(&self, token: &Token) -> Result<u64>;

    /// The claim ends without a proof: another mover may have the unit.
    ///
    /// # Errors
    /// `Fenced`, `Closed`.
    fn give_back(&self, token: &Token) -> Result<()>;
}
