//! Products: the columns of a dataset.

use crate::Type;
use serde_json::Value;
use std::collections::BTreeMap;

/// A column: its name, its type, and what its origin says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Full name, such as `Muon_pt`.
    pub name: String,
    /// What each event has.
    pub ty: Type,
    /// One line for people.
    pub title: String,
    /// Name of the type where the product comes from, such as `Float_t[nMuon]`.
    pub type_name: String,
    /// Name of the product that counts its collection, where its origin says one.
    pub counter: String,
    /// What only some products have: `aliases` (other names), `precision` (mantissa bits that were kept).
    pub notes: BTreeMap<String, Value>,
}

impl Product {
    /// A product without a title.
    pub fn new(name: impl Into<String>, ty: Type) -> Product {
        Product {
            name: name.into(),
            ty,
            title: String::new(),
            type_name: String::new(),
            counter: String::new(),
            notes: BTreeMap::new(),
        }
    }
}
