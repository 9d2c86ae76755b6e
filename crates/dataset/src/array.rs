//! Arrays in memory: a type, and the streams of its values.
//!
//! ```text
//! List(F32)          counts of each event (U32), values of all events (F32)
//! Option(Text)       present (Bool), lengths of the present ones (U32), their bytes (U8)
//! Record{a, b}       streams of a, streams of b
//! ```

use crate::{Buffer, Scalar};

/// What each event has of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// One value.
    Value(Scalar),
    /// This many of the inner type.
    Fixed(u32, Box<Type>),
    /// Any number of the inner type.
    List(Box<Type>),
    /// The inner type, or nothing.
    Option(Box<Type>),
    /// A string (UTF-8).
    Text,
    /// Opaque bytes.
    Bytes,
    /// Named fields.
    Record(Vec<(String, Type)>),
}

/// Values of one kind, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Their kind.
    pub scalar: Scalar,
    /// Their bytes.
    pub values: Buffer,
}

/// Events of one product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// What each event has.
    pub ty: Type,
    /// Events.
    pub events: u64,
    /// The streams of the type, in its order.
    pub streams: Vec<Stream>,
}
