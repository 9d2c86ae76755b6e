//! A table of a version as readers need it: products by name, and the layer of each product and batch.

use crate::root::{Root, TableVersion, numbers};
use crate::types::{Node, Role};
use crate::{Product, Scalar, Type};
use forebay_core::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// A table of a version.
#[derive(Debug)]
pub(crate) struct TableView {
    pub(crate) name: String,
    pub(crate) products: Vec<Known>,
    by_name: HashMap<String, usize>,
    /// First event of each batch, and the number of events.
    pub(crate) starts: Vec<u64>,
    pub(crate) layers: Vec<LayerView>,
}

/// A product of the table.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) product: Product,
    pub(crate) nodes: Vec<Node>,
    /// Layers that have it: batches, the layer's place in [`TableView::layers`], the product's first stream there.
    pub(crate) layers: Vec<(Range<u32>, usize, u32)>,
    /// Whether some batch does not have it.
    pub(crate) missing: bool,
}

/// A layer of the table.
#[derive(Debug)]
pub(crate) struct LayerView {
    /// Its number in the root.
    pub(crate) number: usize,
    pub(crate) place: u32,
    pub(crate) prefix: String,
    pub(crate) first_batch: u32,
    pub(crate) batch_events: u32,
    /// Kind and shift of each stream.
    pub(crate) streams: Vec<(Scalar, u8)>,
}

impl Known {
    /// The type that readers get.
    pub(crate) fn shown(&self) -> Type {
        match &self.product.ty {
            ty if !self.missing => ty.clone(),
            ty @ (Type::Value(Scalar::Bool) | Type::Option(_)) => ty.clone(),
            ty => Type::Option(Box::new(ty.clone())),
        }
    }

    /// Layer and first stream of the product in a batch; none: the batch does not have it.
    pub(crate) fn layer(&self, batch: u32) -> Option<(usize, u32)> {
        self.layers.iter().find(|(batches, _, _)| batches.contains(&batch)).map(|&(_, layer, stream)| (layer, stream))
    }
}

impl LayerView {
    /// The first entry of each stream in the directory of a batch with this many events, and the number of entries.
    pub(crate) fn first_entries(&self, events: u64) -> Vec<u32> {
        let mut at = 0_u32;
        let mut first = Vec::with_capacity(self.streams.len() + 1);
        for &(_, shift) in &self.streams {
            first.push(at);
            // More entries than a directory can have: it does not fit then.
            at = at.saturating_add(self.stripes(shift, events));
        }
        first.push(at);
        first
    }

    /// Events of a stripe.
    pub(crate) fn stripe_events(&self, shift: u8) -> u64 {
        u64::from(self.batch_events >> shift)
    }

    /// Stripes of a batch with this many events. An uncut stream has one, also of a batch that is larger than those before it.
    pub(crate) fn stripes(&self, shift: u8, events: u64) -> u32 {
        if shift == 0 { 1 } else { u32::try_from(events.div_ceil(self.stripe_events(shift))).unwrap_or(u32::MAX) }
    }
}

impl TableView {
    /// The table of a version.
    ///
    /// # Errors
    /// Where a type cannot be read, layers overlap, or a layer does not say the shift of each stream.
    pub(crate) fn new(root: &Root, state: &TableVersion, name: &str) -> Result<TableView> {
        let mut starts = vec![0];
        let mut events = 0_u64;
        for batch in root.batches(state) {
            events += u64::from(batch);
            starts.push(events);
        }
        let mut at_of: HashMap<u32, usize> = HashMap::new();
        let mut products = Vec::new();
        for number in numbers(&state.products) {
            let product = root.product(number)?;
            at_of.insert(number, products.len());
            products.push(Known { nodes: product.ty.nodes(), product, layers: Vec::new(), missing: false });
        }
        let mut layers = Vec::new();
        for &number in &state.layers {
            let layer = &root.layers[number as usize];
            let batches = layer.first_batch..layer.first_batch + layer.batches();
            let mut streams = Vec::new();
            for product in numbers(&layer.products) {
                let first = streams.len() as u32;
                match at_of.get(&product) {
                    Some(&at) => {
                        let known: &mut Known = &mut products[at];
                        streams.extend(known.nodes.iter().map(|node| node.scalar));
                        let apart = |(other, _, _): &(Range<u32>, usize, u32)| {
                            other.end <= batches.start || batches.end <= other.start
                        };
                        if !known.layers.iter().all(apart) {
                            return Err(Error::corrupt(format!("product {product} is twice in a batch")));
                        }
                        known.layers.push((batches.clone(), layers.len(), first));
                    }
                    // Not in this version any more; its streams are still in the directory.
                    None => streams.extend(root.product(product)?.ty.nodes().iter().map(|node| node.scalar)),
                }
            }
            let said: u64 = layer.shifts.iter().map(|&(_, n)| u64::from(n)).sum();
            if said != streams.len() as u64 {
                return Err(Error::corrupt(format!("layer {number} says {said} shifts of {} streams", streams.len())));
            }
            let shifts = layer.shifts.iter().flat_map(|&(shift, n)| std::iter::repeat_n(shift, n as usize));
            layers.push(LayerView {
                number: number as usize,
                place: layer.place,
                prefix: layer.prefix.clone(),
                first_batch: layer.first_batch,
                batch_events: layer.batch_events,
                streams: streams.into_iter().zip(shifts).collect(),
            });
        }
        for known in &mut products {
            let covered: u64 = known
                .layers
                .iter()
                .map(|(batches, _, _)| u64::from(batches.end.min(state.batches).saturating_sub(batches.start)))
                .sum();
            known.missing = covered < u64::from(state.batches);
        }
        let by_name = products.iter().enumerate().map(|(at, known)| (known.product.name.clone(), at)).collect();
        Ok(TableView { name: name.to_owned(), products, by_name, starts, layers })
    }

    /// Events of the table.
    pub(crate) fn events(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Events of each batch.
    pub(crate) fn batches(&self) -> Vec<Range<u64>> {
        self.starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// The place of a column in the list of products.
    ///
    /// # Errors
    /// `Invalid` with names that are near.
    pub(crate) fn find(&self, name: &str) -> Result<usize> {
        if let Some(&at) = self.by_name.get(name) {
            return Ok(at);
        }
        let near = self.near(name).join(", ");
        let near = if near.is_empty() { String::new() } else { format!("; near: {near}") };
        Err(Error::invalid(format!("table {}: no column {name}{near}", self.name)))
    }

    /// At most five names that differ little from this one.
    fn near(&self, name: &str) -> Vec<&str> {
        let lower = name.to_lowercase();
        let mut scored: Vec<(usize, &str)> = self
            .products
            .iter()
            .map(|known| known.product.name.as_str())
            .filter_map(|known| {
                let other = known.to_lowercase();
                let far = if other.contains(&lower) || lower.contains(&other) { 1 } else { distance(&lower, &other) };
                (far <= 2 + name.len() / 6).then_some((far, known))
            })
            .collect();
        scored.sort_unstable();
        scored.into_iter().take(5).map(|(_, name)| name).collect()
    }
}

/// Edits that make one name of another (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Whether values below a stream are counted by it.
pub(crate) fn counts(node: &Node) -> bool {
    node.role != Role::Values
}
