//! Changes of prescales, which the store records and does not apply.

use forebay_core::{KeySchema, PrescaleFactor, PrescaleRecord, Primary, Signature};

/// A prescale is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrescaleChange {
    pub(crate) run: u64,
    pub(crate) name: String,
    pub(crate) factor: PrescaleFactor,
    /// The first event for which it holds; `None`: from now on.
    pub(crate) from: Option<Primary>,
    pub(crate) signature: Signature,
}

impl PrescaleChange {
    /// What the run's summary says of it.
    pub(crate) fn record(&self, schema: &KeySchema) -> PrescaleRecord {
        PrescaleRecord {
            name: self.name.clone(),
            factor: self.factor,
            from: self.from.as_ref().map(|from| schema.text(from.as_bytes())),
            signature: self.signature.clone(),
        }
    }
}
