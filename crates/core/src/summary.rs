//! What a run leaves behind: its summary, and who did what to it while it was taken.

use crate::limits::NAME_BYTES_MAX;
use crate::utc::utc;
use crate::{InhibitClass, Ledger, LedgerRow, PrescaleFactor, ProducerStatus, SourceStatus};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who changed a run, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// On a server the name of the token, in a program that of the store's handle, `auto` where the store
    /// did it itself. `None`: a store of a format that did not say so.
    pub by: Option<String>,
    /// Milliseconds since 1970; `None` as for `by`.
    pub at_ms: Option<u64>,
}

impl Signature {
    /// The name of the store itself: masks by a run's policy, runs opened by their first fragment.
    pub const AUTO: &'static str = "auto";

    /// This name, cut to [`NAME_BYTES_MAX`], at this time.
    pub fn new(by: &str, at_ms: u64) -> Signature {
        let end = by.floor_char_boundary(NAME_BYTES_MAX);
        Signature { by: Some(by[..end].to_owned()), at_ms: Some(at_ms) }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.by.as_deref().unwrap_or("unknown"))?;
        let Some(at_ms) = self.at_ms else { return Ok(()) };
        write!(out, " at {}", utc(at_ms))
    }
}

/// A mask of a run was set or lifted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "MaskForm")]
pub struct MaskRecord {
    /// The source, as text.
    pub source: String,
    /// Set; otherwise lifted.
    pub masked: bool,
    /// The first event for which it holds, as text; `None`: all that waited, or all that came from then on.
    pub from: Option<String>,
    /// Who did it, and when.
    #[serde(flatten)]
    pub signature: Signature,
}

impl MaskRecord {
    /// Reads the sentence that earlier versions kept instead of a record: `source 1/7 masked by hand from now on`.
    pub fn from_words(words: &str) -> Option<MaskRecord> {
        let (source, rest) = words.strip_prefix("source ")?.split_once(' ')?;
        let (change, rest) = rest.split_once(" by ")?;
        let (by, from) = rest.split_once(" from ")?;
        let masked = match change {
            "masked" => true,
            "unmasked" => false,
            _ => return None,
        };
        Some(MaskRecord {
            source: source.to_owned(),
            masked,
            from: (from != "now on").then(|| from.to_owned()),
            signature: Signature { by: (by == "policy").then(|| Signature::AUTO.to_owned()), at_ms: None },
        })
    }
}

impl fmt::Display for MaskRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = if self.masked { "masked" } else { "unmasked" };
        let from = self.from.as_deref().unwrap_or("now on");
        write!(out, "source {} {change} from {from} by {}", self.source, self.signature)
    }
}

/// A prescale of the trigger, as it was when the run was opened or as it was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrescaleRecord {
    /// Name of the trigger, item, path or stream.
    pub name: String,
    /// A factor of N kept one event in N.
    pub factor: PrescaleFactor,
    /// The first event for which it held, as text; `None`: from the opening, or from the change on.
    pub from: Option<String>,
    /// Who set it, and when.
    #[serde(flatten)]
    pub signature: Signature,
}

impl fmt::Display for PrescaleRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.as_deref().unwrap_or("now on");
        write!(out, "{} {} from {from} by {}", self.name, self.factor, self.signature)
    }
}

/// Dead time of one cause: where, by whom, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadTimeRow {
    /// What was full: the scope of the inhibit, such as `hot level` or `device warm-1`; `others` where there are too many.
    pub level: String,
    /// Who could change that: the owner of the inhibit.
    pub owner: String,
    /// The class of the inhibit.
    pub cause: InhibitClass,
    /// Nanoseconds.
    pub ns: u64,
}

/// A mask in a summary: earlier versions wrote sentences.
#[derive(Deserialize)]
#[serde(untagged)]
enum MaskForm {
    Words(String),
    Record {
        source: String,
        masked: bool,
        from: Option<String>,
        #[serde(flatten)]
        signature: Signature,
    },
}

impl From<MaskForm> for MaskRecord {
    fn from(form: MaskForm) -> MaskRecord {
        match form {
            MaskForm::Record { source, masked, from, signature } => MaskRecord { source, masked, from, signature },
            // Words that nobody wrote are kept as they are: a summary is for people.
            MaskForm::Words(words) => MaskRecord::from_words(&words).unwrap_or(MaskRecord {
                source: words,
                masked: true,
                from: None,
                signature: Signature::default(),
            }),
        }
    }
}

/// The summary of a run: of a closed one kept as `runs/run-N.json` in the store's directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Run number.
    pub run: u64,
    /// The keyspace's name.
    pub keyspace: String,
    /// The run's configuration, as TOML.
    pub config: String,
    /// Who opened it, and when.
    #[serde(default)]
    pub opened: Signature,
    /// Its account: of a closed run the final one.
    pub ledger: Ledger,
    /// Events that it knew, by announcement or by a fragment.
    pub announced: u64,
    /// Events that producers say they announced; `None` where none says so.
    pub announced_by_producers: Option<u64>,
    /// By accepted stream.
    pub streams: Vec<LedgerRow>,
    /// By value of the keyspace's `ledger_by` attribute.
    pub groups: Vec<LedgerRow>,
    /// By source.
    pub sources: Vec<SourceStatus>,
    /// Its producers.
    pub producers: Vec<ProducerStatus>,
    /// Masks as they were set and lifted, the oldest first: the last 1000.
    pub masks: Vec<MaskRecord>,
    /// Changes of masks before those.
    #[serde(default)]
    pub masks_dropped: u64,
    /// Prescales of the trigger: those of the opening, then changes, the oldest first: the last 1000, the newest of each name
    /// among them.
    #[serde(default)]
    pub prescales: Vec<PrescaleRecord>,
    /// Changes of prescales before those.
    #[serde(default)]
    pub prescales_dropped: u64,
    /// How long it was open, neither paused nor stopped, in a store that was open: nanoseconds.
    #[serde(default)]
    pub ran_ns: u64,
    /// The part of that during which inhibit was set, by cause, longest first.
    #[serde(default)]
    pub dead_time: Vec<DeadTimeRow>,
}

impl RunSummary {
    /// This time as a part of the time that the run was open.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.ran_ns.max(1) as f64
    }

    /// Dead time of all causes.
    pub fn dead_ns(&self) -> u64 {
        self.dead_time.iter().map(|row| row.ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_of_earlier_versions_read_as_records() {
        let read = |words: &str| serde_json::from_value::<MaskRecord>(words.into()).unwrap();
        let by_hand = read("source 1/7 masked by hand from 3/99");
        assert_eq!((&*by_hand.source, by_hand.masked, by_hand.from.as_deref()), ("1/7", true, Some("3/99")));
        assert_eq!(by_hand.signature, Signature::default());
        let by_policy = read("source 5 unmasked by policy from now on");
        assert_eq!((by_policy.masked, by_policy.from), (false, None));
        assert_eq!(by_policy.signature.by.as_deref(), Some(Signature::AUTO));
        assert_eq!(MaskRecord::from_words("source 5 gone by hand from now on"), None);
        assert_eq!(read("something else").source, "something else");
    }

    #[test]
    fn records_read_back_and_say_when() {
        let signature = Signature::new("shift", 1_000_000_000_123);
        let record = MaskRecord { source: "5".to_owned(), masked: true, from: None, signature };
        let json = serde_json::to_value(&record).unwrap();
        assert_eq!((&json["by"], &json["at_ms"]), (&"shift".into(), &1_000_000_000_123_u64.into()));
        assert_eq!(serde_json::from_value::<MaskRecord>(json).unwrap(), record);
        assert_eq!(record.to_string(), "source 5 masked from now on by shift at 2001-09-09T01:46:40Z");
        let long = Signature::new(&"ü".repeat(100), 0);
        assert_eq!(long.by.map(|by| by.len()), Some(NAME_BYTES_MAX));
    }
}
