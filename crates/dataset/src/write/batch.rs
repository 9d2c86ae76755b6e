//! Encodes a batch: what repeats is found first, flat bools are gathered, everything else is encoded on all cores.

use crate::codec::{self, Coder, Effort};
use crate::directory::Coded;
use crate::types::{Node, Role};
use crate::{Array, Scalar, parallel};
use forebay_core::crc32c;
use std::collections::HashMap;

/// Rows of a group of bools, so that reading one of them decodes at most this many.
const ROWS_MAX: usize = 512;
/// A stripe is at most this small a part of a batch: 2 to the power of this.
pub(crate) const SHIFT_MAX: u8 = 8;

/// What a layer remembers of a stream from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct StreamState {
    coder: Coder,
    /// A stripe has the events of a full batch divided by 2 to this power; chosen at the layer's first batch.
    pub(crate) shift: Option<u8>,
}

impl StreamState {
    /// Whether the stream is, or may become, one stripe a batch.
    fn whole(&self) -> bool {
        self.shift.unwrap_or(0) == 0
    }
}

/// Settings of the encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) threads: usize,
    pub(crate) effort: Effort,
    /// Events of a full batch.
    pub(crate) batch_events: u32,
    /// Bytes that a stripe should have when it is stored.
    pub(crate) target: usize,
}

/// A stream of a batch.
struct Part<'a> {
    array: &'a Array,
    /// Its number in the array.
    at: usize,
    node: Node,
}

impl<'a> Part<'a> {
    fn bytes(&self) -> &'a [u8] {
        self.array.streams[self.at].bytes()
    }

    fn constant(&self) -> bool {
        let width = self.node.scalar.width();
        let bytes = self.bytes();
        bytes.len() <= width || bytes[width..] == bytes[..bytes.len() - width]
    }

    fn flat_bool(&self) -> bool {
        let node = &self.node;
        node.scalar == Scalar::Bool && node.role == Role::Values && node.parent.is_none() && node.times == 1
    }
}

/// The stripes of a batch, in the order of its streams, and the groups of bools.
pub(crate) fn encode(arrays: &[Array], states: &mut [StreamState], settings: Settings) -> (Vec<Coded>, Vec<Vec<u8>>) {
    let mut parts: Vec<Part<'_>> = Vec::with_capacity(states.len());
    for array in arrays {
        let nodes = array.ty.nodes();
        parts.extend(nodes.into_iter().enumerate().map(|(at, node)| Part { array, at, node }));
    }
    debug_assert_eq!(parts.len(), states.len(), "a state for each stream");
    let same = repeats(&parts, states);
    let mut rows: Vec<usize> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if part.flat_bool() && same[at].is_none() && !part.constant() {
            rows.push(at);
        }
    }
    // A group of one row would only add a level.
    if rows.len() < 2 {
        rows.clear();
    }
    let groups: Vec<&[usize]> = rows.chunks(ROWS_MAX).collect();
    let group_of: HashMap<usize, u32> =
        groups.iter().enumerate().flat_map(|(group, rows)| rows.iter().map(move |&at| (at, group as u32))).collect();
    let groups = parallel::map(settings.threads, groups, |rows| {
        let rows: Vec<&[u8]> = rows.iter().map(|&at| parts[at].bytes()).collect();
        codec::encode_bools(&rows, settings.effort)
    });
    let work: Vec<(usize, &mut StreamState)> = states.iter_mut().enumerate().collect();
    let encoded = parallel::map(settings.threads, work, |(at, state)| match group_of.get(&at) {
        Some(&group) => {
            state.shift = Some(0);
            vec![Coded::Row { group }]
        }
        None if same[at].is_some() => Vec::new(),
        None => stripes(&parts[at], state, settings),
    });
    let mut all = Vec::with_capacity(encoded.len());
    for (at, stripes_of_stream) in encoded.into_iter().enumerate() {
        match same[at] {
            None => all.extend(stripes_of_stream),
            Some(stream) if states[stream].whole() => {
                states[at].shift = Some(0);
                all.push(Coded::Same { stream: stream as u32 });
            }
            // What it repeats was cut into stripes just now: it is large, and then stripes are not shared.
            Some(_) => all.extend(stripes(&parts[at], &mut states[at], settings)),
        }
    }
    (all, groups)
}

/// For each stream an earlier one with the same bytes.
fn repeats(parts: &[Part<'_>], states: &[StreamState]) -> Vec<Option<usize>> {
    let mut seen: HashMap<(usize, usize, u32), Vec<usize>> = HashMap::new();
    let mut same = vec![None; parts.len()];
    for (at, part) in parts.iter().enumerate() {
        let bytes = part.bytes();
        // What is constant takes two bytes by itself.
        if !states[at].whole() || part.constant() {
            continue;
        }
        let with = seen.entry((part.node.scalar.width(), bytes.len(), crc32c(bytes))).or_default();
        same[at] = with.iter().copied().find(|&earlier| parts[earlier].bytes() == bytes);
        if same[at].is_none() {
            with.push(at);
        }
    }
    same
}

/// The stripes of one stream.
fn stripes(part: &Part<'_>, state: &mut StreamState, settings: Settings) -> Vec<Coded> {
    let scalar = part.node.scalar;
    let shift = match state.shift {
        Some(shift) => shift,
        None => {
            let whole = state.coder.encode(scalar, part.bytes(), settings.effort);
            // Counts and flags are read whole: who reads a part of a batch needs the sums before it.
            let values = part.node.role == Role::Values;
            let wanted =
                if values { whole.len().div_ceil(settings.target).next_power_of_two().ilog2() as u8 } else { 0 };
            let shift = wanted.min(SHIFT_MAX).min(settings.batch_events.trailing_zeros() as u8);
            state.shift = Some(shift);
            if shift == 0 {
                return vec![Coded::Bytes(whole)];
            }
            shift
        }
    };
    if shift == 0 {
        return vec![Coded::Bytes(state.coder.encode(scalar, part.bytes(), settings.effort))];
    }
    let width = scalar.width();
    let bounds = bounds(part, (settings.batch_events >> shift) as usize);
    bounds
        .windows(2)
        .map(|pair| &part.bytes()[pair[0] * width..pair[1] * width])
        .map(|bytes| Coded::Bytes(state.coder.encode(scalar, bytes, settings.effort)))
        .collect()
}

/// The first value of each stripe of this many events, and the end of the last one.
fn bounds(part: &Part<'_>, stripe_events: usize) -> Vec<usize> {
    let nodes = part.array.ty.nodes();
    let events = part.array.events as usize;
    let mut path = vec![part.at];
    while let Some(parent) = nodes[path[path.len() - 1]].parent {
        path.push(parent);
    }
    let mut bounds: Vec<usize> = (0..events.div_ceil(stripe_events)).map(|stripe| stripe * stripe_events).collect();
    bounds.push(events);
    // From the outermost stream inwards: units of the stream above become values of this one.
    for &at in path.iter().rev() {
        let times = nodes[at].times as usize;
        bounds.iter_mut().for_each(|bound| *bound *= times);
        if at == part.at {
            break;
        }
        let stream = &part.array.streams[at];
        let (mut sum, mut from) = (0, 0);
        for bound in &mut bounds {
            sum += match nodes[at].role {
                Role::Present => stream.bytes()[from..*bound].iter().map(|&flag| usize::from(flag)).sum::<usize>(),
                _ => stream.values::<u32>()[from..*bound].iter().map(|&n| n as usize).sum(),
            };
            from = *bound;
            *bound = sum;
        }
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Type;

    fn settings(target: usize) -> Settings {
        Settings { threads: 2, effort: Effort::Default, batch_events: 8, target }
    }

    fn states(arrays: &[Array]) -> Vec<StreamState> {
        arrays.iter().flat_map(|array| array.ty.nodes()).map(|_| StreamState::default()).collect()
    }

    #[test]
    fn counts_of_a_collection_are_stored_once() {
        let counts = vec![1_u32, 2, 0, 1, 3, 0, 0, 1];
        let arrays = [
            Array::values(Scalar::I32, counts.clone()),
            Array::jagged(Scalar::I16, counts.clone(), (0..8_i16).collect()),
            Array::jagged(Scalar::I16, counts, (0..8_i16).map(|n| n * 300).collect()),
        ];
        let (coded, _) = encode(&arrays, &mut states(&arrays), settings(1 << 20));
        let same: Vec<_> = coded.iter().map(|entry| matches!(entry, Coded::Same { stream: 0 })).collect();
        assert_eq!(same, [false, true, false, true, false]);
    }

    #[test]
    fn stripes_begin_at_events() {
        let array = Array {
            ty: Type::list(Type::list(Type::Value(Scalar::U8))),
            events: 4,
            streams: vec![
                vec![1_u32, 0, 2, 1].into(),
                vec![2_u32, 1, 0, 3].into(),
                crate::Buffer::of(&[1, 2, 3, 4, 5, 6]),
            ],
        };
        array.check().unwrap();
        let nodes = array.ty.nodes();
        let part = |at| Part { array: &array, at, node: nodes[at] };
        assert_eq!(bounds(&part(2), 2), [0, 2, 6]);
        assert_eq!(bounds(&part(1), 1), [0, 1, 1, 3, 4]);
    }

    #[test]
    fn large_values_are_cut_and_bools_gathered() {
        let noise: Vec<f64> = (0..8).map(|n| f64::from(n).sin()).collect();
        let flags = |seed: u8| Array::values(Scalar::Bool, (0..8).map(|n| (n * seed / 3) % 2).collect::<Vec<u8>>());
        let arrays = [Array::values(Scalar::F64, noise), flags(5), flags(7)];
        let mut states = states(&arrays);
        let (coded, groups) = encode(&arrays, &mut states, settings(20));
        assert!(states[0].shift.unwrap() >= 2, "64 bytes of noise in stripes of 20");
        assert_eq!(groups.len(), 1);
        assert_eq!(coded.iter().filter(|entry| matches!(entry, Coded::Row { group: 0 })).count(), 2);
    }
}
