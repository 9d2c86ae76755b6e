//! Columns as they are read: lists have offsets, options have an index, values share memory.

use crate::types::Role;
use crate::{Array, Buffer, Scalar, Type};
use std::sync::Arc;

/// A column, decoded.
#[derive(Clone, Debug)]
pub struct Column {
    /// What each event has.
    pub ty: Type,
    /// Events.
    pub events: u64,
    /// The streams of the type, in the order of [`Type::nodes`].
    pub parts: Vec<Part>,
}

/// A stream of a column.
#[derive(Clone, Debug)]
pub enum Part {
    /// Of lists and strings: where each begins in the stream below, and where the last one ends. Columns of one collection share it.
    Offsets(Arc<Vec<i64>>),
    /// Of options: the place of each in the streams below, or -1.
    Index(Arc<Vec<i64>>),
    /// Values, of the node's kind.
    Values {
        /// Memory that the values are in.
        buffer: Arc<Buffer>,
        /// The first byte.
        start: usize,
        /// Bytes.
        len: usize,
    },
}

impl Part {
    /// The bytes of values; none of offsets and of an index.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Values { buffer, start, len } => &buffer.bytes()[*start..*start + *len],
            _ => &[],
        }
    }

    /// Offsets or index; none of values.
    pub fn integers(&self) -> &[i64] {
        match self {
            Part::Offsets(integers) | Part::Index(integers) => integers,
            Part::Values { .. } => &[],
        }
    }
}

impl Column {
    /// Values of a column that has one stream.
    ///
    /// # Panics
    /// Where `T` has not the width of the kind.
    pub fn values<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(&self) -> &[T] {
        self.parts.last().map_or(&[], |part| bytemuck::cast_slice(part.bytes()))
    }

    /// The same events as they are written.
    pub fn to_array(&self) -> Array {
        let streams = self.ty.nodes().into_iter().zip(&self.parts).map(|(node, part)| match (node.role, part) {
            (Role::Counts, part) => {
                part.integers().windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect::<Vec<u32>>().into()
            }
            (Role::Present, part) => part.integers().iter().map(|&at| u8::from(at >= 0)).collect::<Vec<u8>>().into(),
            (Role::Values, part) => Buffer::of(part.bytes()),
        });
        Array { ty: self.ty.clone(), events: self.events, streams: streams.collect() }
    }

    /// Kind of the values of each stream.
    pub fn scalars(&self) -> Vec<Scalar> {
        self.ty.nodes().iter().map(|node| node.scalar).collect()
    }
}
