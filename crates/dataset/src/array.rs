//! Arrays in memory: events of one product as its streams.

use crate::types::Role;
use crate::{Buffer, Scalar, Type};
use forebay_core::{Error, Result};
use std::ops::Range;

/// Events of one product, as they are written: lists have counts, options have a flag for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// What each event has.
    pub ty: Type,
    /// Events.
    pub events: u64,
    /// The streams of the type, in the order of [`Type::nodes`]. The kind of each is the node's.
    pub streams: Vec<Buffer>,
}

impl Array {
    /// No events of a type.
    pub fn empty(ty: Type) -> Array {
        let streams = vec![Buffer::default(); ty.nodes().len()];
        Array { ty, events: 0, streams }
    }

    /// Values, one an event.
    ///
    /// # Panics
    /// Where `T` has not the width of the kind.
    pub fn values<T: bytemuck::Pod>(scalar: Scalar, values: Vec<T>) -> Array {
        assert_eq!(size_of::<T>(), scalar.width(), "the kind's width");
        Array { ty: Type::Value(scalar), events: values.len() as u64, streams: vec![values.into()] }
    }

    /// Jagged values: how many each event has, and all of them.
    ///
    /// # Panics
    /// Where `T` has not the width of the kind.
    pub fn jagged<T: bytemuck::Pod>(scalar: Scalar, counts: Vec<u32>, values: Vec<T>) -> Array {
        assert_eq!(size_of::<T>(), scalar.width(), "the kind's width");
        let events = counts.len() as u64;
        Array { ty: Type::list(Type::Value(scalar)), events, streams: vec![counts.into(), values.into()] }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.len() as u64).sum()
    }

    /// Checks that every stream has as many values as the streams above it say.
    ///
    /// # Errors
    /// `Invalid` with the stream, what it has and what it must have.
    pub fn check(&self) -> Result<()> {
        let nodes = self.ty.nodes();
        if nodes.len() != self.streams.len() {
            let (wanted, has) = (nodes.len(), self.streams.len());
            return Err(Error::invalid(format!("an array of type {} has {wanted} streams, not {has}", self.ty)));
        }
        let mut below = vec![0_u64; nodes.len()];
        for (at, (node, stream)) in nodes.iter().zip(&self.streams).enumerate() {
            let units = node.parent.map_or(self.events, |parent| below[parent]);
            let wanted = units.checked_mul(node.times).and_then(|n| n.checked_mul(node.scalar.width() as u64));
            if wanted != Some(stream.len() as u64) {
                let (has, width) = (stream.len(), node.scalar.width());
                return Err(Error::invalid(format!(
                    "stream {at} of type {} has {has} bytes, not {units} x {} values of {width} bytes",
                    self.ty, node.times
                )));
            }
            below[at] = match node.role {
                Role::Values => 0,
                Role::Counts => stream.values::<u32>().iter().map(|&n| u64::from(n)).sum(),
                Role::Present => {
                    if stream.bytes().iter().any(|&flag| flag > 1) {
                        return Err(Error::invalid(format!("stream {at} of type {} has flags above 1", self.ty)));
                    }
                    stream.bytes().iter().map(|&flag| u64::from(flag)).sum()
                }
            };
            if node.scalar == Scalar::Bool && node.role == Role::Values && stream.bytes().iter().any(|&flag| flag > 1) {
                return Err(Error::invalid("a bool is 0 or 1"));
            }
        }
        Ok(())
    }

    /// These events, of an array that passes its check.
    #[must_use]
    pub fn slice(&self, events: Range<u64>) -> Array {
        debug_assert!(events.start <= events.end && events.end <= self.events, "events of the array");
        let nodes = self.ty.nodes();
        let mut below: Vec<Range<usize>> = Vec::with_capacity(nodes.len());
        let mut streams = Vec::with_capacity(nodes.len());
        for (node, stream) in nodes.iter().zip(&self.streams) {
            let units = match node.parent {
                None => events.start as usize..events.end as usize,
                Some(parent) => below[parent].clone(),
            };
            let times = node.times as usize;
            let own = units.start * times..units.end * times;
            let width = node.scalar.width();
            streams.push(Buffer::of(&stream.bytes()[own.start * width..own.end * width]));
            below.push(match node.role {
                Role::Values => 0..0,
                Role::Counts => {
                    let counts: &[u32] = stream.values();
                    let sum = |part: &[u32]| part.iter().map(|&n| n as usize).sum::<usize>();
                    let start = sum(&counts[..own.start]);
                    start..start + sum(&counts[own])
                }
                Role::Present => {
                    let sum = |part: &[u8]| part.iter().map(|&n| usize::from(n)).sum::<usize>();
                    let start = sum(&stream.bytes()[..own.start]);
                    start..start + sum(&stream.bytes()[own])
                }
            });
        }
        Array { ty: self.ty.clone(), events: events.end - events.start, streams }
    }

    /// The same events of a type that this one is an option of, where all of them are present.
    pub(crate) fn without_option(mut self, ty: &Type) -> Array {
        if self.ty != *ty && matches!(self.ty, Type::Option(_)) {
            debug_assert!(self.streams[0].bytes().iter().all(|&flag| flag == 1), "every event is present");
            self.streams.remove(0);
            self.ty = ty.clone();
        }
        self
    }

    /// Appends events of the same type.
    pub fn extend(&mut self, more: &Array) {
        debug_assert_eq!(self.ty, more.ty, "arrays of one type");
        self.events += more.events;
        for (stream, more) in self.streams.iter_mut().zip(&more.streams) {
            stream.extend(more.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jagged() -> Array {
        Array::jagged(Scalar::I16, vec![2, 0, 3], vec![1_i16, 2, 3, 4, 5])
    }

    #[test]
    fn a_slice_has_its_own_values_only() {
        let part = jagged().slice(1..3);
        assert_eq!((part.events, part.streams[0].values::<u32>()), (2, &[0, 3][..]));
        assert_eq!(part.streams[1].values::<i16>(), [3, 4, 5]);
        part.check().unwrap();
    }

    #[test]
    fn slices_put_together_are_the_whole() {
        let whole = jagged();
        let mut again = whole.slice(0..2);
        again.extend(&whole.slice(2..3));
        assert_eq!(again, whole);
    }

    #[test]
    fn streams_that_do_not_fit_are_refused() {
        let mut short = jagged();
        short.streams[1] = vec![1_i16].into();
        assert_eq!(short.check().unwrap_err().kind(), forebay_core::Kind::Invalid);
        let mut flag = Array::values(Scalar::Bool, vec![2_u8]);
        assert!(flag.check().is_err());
        flag.streams.clear();
        assert!(flag.check().is_err());
    }
}
