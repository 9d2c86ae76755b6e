//! The map as JSON, and its hash.

use super::layout::{Layout, LayoutText};
use super::table::{Table, TableText};
use super::{ClusterMap, KeyspaceMap, MAP_BYTES_MAX, Node};
use crate::{Error, Result};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// 16 bytes, written as 32 hexadecimal digits: a name of a cluster or of a store, or a hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hex128(pub u128);

impl fmt::Debug for Hex128 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl Serialize for Hex128 {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{self:?}"))
    }
}

impl<'a> Deserialize<'a> for Hex128 {
    fn deserialize<D: Deserializer<'a>>(from: D) -> std::result::Result<Hex128, D::Error> {
        let text = <Cow<'_, str>>::deserialize(from)?;
        let digits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let value = if digits { u128::from_str_radix(&text, 16).ok() } else { None };
        value.map(Hex128).ok_or_else(|| D::Error::custom("expected 32 digits of 0-9 and a-f"))
    }
}

/// FNV-1a of 128 bits (Fowler, Noll, Vo): it finds maps that differ by mistake, which needs no cryptography and no dependency.
pub(super) fn fnv(bytes: &[u8]) -> Hex128 {
    let step =
        |hash: u128, &byte: &u8| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
    Hex128(bytes.iter().fold(0x6C62_272E_07BB_0142_62B8_2175_6295_C58D, step))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    cluster: Hex128,
    epoch: u32,
    nodes: Vec<Node>,
    #[serde(deserialize_with = "once")]
    keyspaces: BTreeMap<String, KeyspaceText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<Hex128>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyspaceText {
    copies: u8,
    copies_min: u8,
    #[serde(default = "block_default")]
    block: u8,
    layouts: Vec<LayoutText>,
    #[serde(default)]
    tables: Vec<TableText>,
}

fn block_default() -> u8 {
    6
}

/// Reads an object whose names are all different: of two values under one name neither is passed over.
fn once<'a, D: Deserializer<'a>>(from: D) -> std::result::Result<BTreeMap<String, KeyspaceText>, D::Error> {
    struct Once;
    impl<'a> Visitor<'a> for Once {
        type Value = BTreeMap<String, KeyspaceText>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("keyspaces by name")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut from: A) -> std::result::Result<Self::Value, A::Error> {
            let mut keyspaces = BTreeMap::new();
            while let Some((name, keyspace)) = from.next_entry::<String, KeyspaceText>()? {
                if keyspaces.contains_key(&name) {
                    return Err(A::Error::custom(format!("keyspace `{name:.64}` is there twice")));
                }
                keyspaces.insert(name, keyspace);
            }
            Ok(keyspaces)
        }
    }
    from.deserialize_map(Once)
}

impl ClusterMap {
    /// Reads a map from its JSON. A hash in it is compared; a map that people write may leave it out.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong and what to do.
    pub fn from_json(text: &str) -> Result<ClusterMap> {
        if text.len() > MAP_BYTES_MAX {
            let bytes = text.len();
            return Err(Error::invalid(format!("map of {bytes} bytes; at most {MAP_BYTES_MAX} can be read")));
        }
        let text: MapText = serde_json::from_str(text).map_err(|error| Error::invalid(format!("map: {error}")))?;
        let mut keyspaces = BTreeMap::new();
        for (name, text) in text.keyspaces {
            let KeyspaceText { copies, copies_min, block, layouts, tables } = text;
            let layouts = layouts.into_iter().map(Layout::from_text).collect::<Result<_>>()?;
            let tables = tables.iter().map(Table::from_text).collect::<Result<_>>()?;
            keyspaces.insert(name, KeyspaceMap { copies, copies_min, block, layouts, tables });
        }
        let map = ClusterMap::build(text.cluster, text.epoch, text.nodes, keyspaces)?;
        match text.hash {
            Some(hash) if hash != map.hash => Err(Error::invalid(format!(
                "map of epoch {}: its hash is {:?}, and it says {hash:?}; remove the hash if the change is meant",
                map.epoch, map.hash
            ))),
            _ => Ok(map),
        }
    }

    /// The canonical JSON with its hash. Equal maps have equal text.
    pub fn to_json(&self) -> String {
        self.write(Some(self.hash))
    }

    /// The text that is hashed: the canonical JSON without the hash.
    pub(super) fn write(&self, hash: Option<Hex128>) -> String {
        let of = |keyspace: &KeyspaceMap| KeyspaceText {
            copies: keyspace.copies,
            copies_min: keyspace.copies_min,
            block: keyspace.block,
            layouts: keyspace.layouts.iter().map(Layout::to_text).collect(),
            tables: keyspace.tables.iter().map(Table::to_text).collect(),
        };
        let keyspaces = self.keyspaces.iter().map(|(name, keyspace)| (name.clone(), of(keyspace))).collect();
        let text = MapText { cluster: self.cluster, epoch: self.epoch, nodes: self.nodes.clone(), keyspaces, hash };
        serde_json::to_string(&text).expect("names are text, and everything else is numbers")
    }
}
