//! Values of columns as text, the same for people and in JSON.
//!
//! ```text
//! bool true   numbers 3 -0.5 "NaN" "inf"   text "J/ψ"   bytes "0aff"   list, fixed [1,2]   record {"x":1}   option null
//! ```

use forebay_dataset::{Column, Scalar, Type};
use std::fmt::Write;

/// A type with the numbers of its streams.
enum Shape {
    Value(usize, Scalar),
    Fixed(usize, Box<Shape>),
    List(usize, Box<Shape>),
    Option(usize, Box<Shape>),
    Text(usize),
    Bytes(usize),
    Record(Vec<(String, Shape)>),
}

impl Shape {
    /// The shape of a type whose first stream has this number; counts on.
    fn new(ty: &Type, next: &mut usize) -> Shape {
        let mut take = |n| {
            let own = *next;
            *next += n;
            own
        };
        match ty {
            Type::Value(scalar) => Shape::Value(take(1), *scalar),
            Type::Fixed(n, inner) => Shape::Fixed(*n as usize, Box::new(Shape::new(inner, next))),
            Type::List(inner) => Shape::List(take(1), Box::new(Shape::new(inner, next))),
            Type::Option(inner) => Shape::Option(take(1), Box::new(Shape::new(inner, next))),
            Type::Text => Shape::Text(take(2)),
            Type::Bytes => Shape::Bytes(take(2)),
            Type::Record(fields) => {
                let field = |(name, ty): &(String, Type)| (quoted(name), Shape::new(ty, next));
                Shape::Record(fields.iter().map(field).collect())
            }
        }
    }
}

/// A column whose values become text.
pub(super) struct Values<'a> {
    column: &'a Column,
    shape: Shape,
}

impl<'a> Values<'a> {
    pub(super) fn new(column: &'a Column) -> Values<'a> {
        Values { column, shape: Shape::new(&column.ty, &mut 0) }
    }

    /// Appends the value of an event.
    pub(super) fn write(&self, event: usize, out: &mut String) {
        self.one(&self.shape, event, out);
    }

    /// Appends a unit of a shape.
    fn one(&self, shape: &Shape, at: usize, out: &mut String) {
        match shape {
            Shape::Value(stream, scalar) => value(*scalar, self.bytes(*stream), at, out),
            Shape::Fixed(n, inner) => self.some(inner, at * n..(at + 1) * n, out),
            Shape::List(stream, inner) => self.some(inner, self.range(*stream, at), out),
            Shape::Option(stream, inner) => match usize::try_from(self.column.parts[*stream].integers()[at]) {
                Ok(at) => self.one(inner, at, out),
                Err(_) => out.push_str("null"),
            },
            Shape::Text(stream) => {
                let bytes = &self.bytes(stream + 1)[self.range(*stream, at)];
                out.push_str(&quoted(&String::from_utf8_lossy(bytes)));
            }
            Shape::Bytes(stream) => {
                let bytes = &self.bytes(stream + 1)[self.range(*stream, at)];
                out.push('"');
                out.push_str(&crate::output::hex(bytes));
                out.push('"');
            }
            Shape::Record(fields) => {
                out.push('{');
                for (i, (name, field)) in fields.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    out.push_str(name);
                    out.push(':');
                    self.one(field, at, out);
                }
                out.push('}');
            }
        }
    }

    fn some(&self, shape: &Shape, range: std::ops::Range<usize>, out: &mut String) {
        out.push('[');
        for at in range.clone() {
            out.push_str(if at == range.start { "" } else { "," });
            self.one(shape, at, out);
        }
        out.push(']');
    }

    fn bytes(&self, stream: usize) -> &[u8] {
        self.column.parts[stream].bytes()
    }

    fn range(&self, stream: usize, at: usize) -> std::ops::Range<usize> {
        let offsets = self.column.parts[stream].integers();
        offsets[at] as usize..offsets[at + 1] as usize
    }
}

/// A string of JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Appends one value of a stream.
fn value(scalar: Scalar, bytes: &[u8], at: usize, out: &mut String) {
    let width = scalar.width();
    // Little-endian, widened with zeros: the numbers of each kind are its lowest bits.
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(&bytes[at * width..(at + 1) * width]);
    let bits = u64::from_le_bytes(wide);
    // Writing to a string does not fail.
    let _ = match scalar {
        Scalar::Bool => write!(out, "{}", bits != 0),
        Scalar::I8 => write!(out, "{}", bits as i8),
        Scalar::I16 => write!(out, "{}", bits as i16),
        Scalar::I32 => write!(out, "{}", bits as i32),
        Scalar::I64 => write!(out, "{}", bits as i64),
        Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => write!(out, "{bits}"),
        Scalar::F16 => float(half(bits as u16), out),
        Scalar::F32 => float(f32::from_bits(bits as u32), out),
        Scalar::F64 => float(f64::from_bits(bits), out),
    };
}

/// The shortest digits that give the same value again; JSON has no word for what is no number.
fn float<T: std::fmt::Debug + Into<f64> + Copy>(value: T, out: &mut String) -> std::fmt::Result {
    let wide: f64 = value.into();
    if wide.is_finite() { write!(out, "{value:?}") } else { write!(out, "\"{value:?}\"") }
}

/// A binary16 as the binary32 with the same value.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, f32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2_f32.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_dataset::{Buffer, Part};
    use std::sync::Arc;

    fn values<T: Copy>(values: &[T]) -> Part
    where
        Buffer: From<Vec<T>>,
    {
        let buffer = Buffer::from(values.to_vec());
        let len = buffer.len();
        Part::Values { buffer: Arc::new(buffer), start: 0, len }
    }

    fn offsets(offsets: &[i64]) -> Part {
        Part::Offsets(Arc::new(offsets.to_vec()))
    }

    fn text(ty: &str, events: u64, parts: Vec<Part>) -> Vec<String> {
        let column = Column { ty: Type::parse(ty).unwrap(), events, parts };
        let values = Values::new(&column);
        let one = |event: u64| {
            let mut out = String::new();
            values.write(event as usize, &mut out);
            out
        };
        (0..events).map(one).collect()
    }

    #[test]
    fn numbers_are_shortest_and_exact() {
        assert_eq!(
            text("float32", 4, vec![values(&[0.1_f32, -2.0, 1e30, f32::NAN])]),
            ["0.1", "-2.0", "1e30", "\"NaN\""]
        );
        assert_eq!(text("float64", 2, vec![values(&[f64::NEG_INFINITY, 0.1])]), ["\"-inf\"", "0.1"]);
        assert_eq!(text("int8", 1, vec![values(&[-3_i8])]), ["-3"]);
        assert_eq!(text("uint64", 1, vec![values(&[u64::MAX])]), ["18446744073709551615"]);
        assert_eq!(text("bool", 2, vec![values(&[0_u8, 1])]), ["false", "true"]);
    }

    #[test]
    fn halves_have_the_value_that_their_bits_say() {
        let bits = [0_u16, 0x8001, 0x3c00, 0x3555, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x0400];
        let shown =
            ["0.0", "-5.9604645e-8", "1.0", "0.33325195", "65504.0", "\"inf\"", "\"-inf\"", "\"NaN\"", "6.1035156e-5"];
        assert_eq!(text("float16", 9, vec![values(&bits)]), shown);
    }

    #[test]
    fn what_nests_is_written_as_it_nests() {
        let lists = vec![offsets(&[0, 2, 2]), offsets(&[0, 1, 3]), values(&[7_i16, 8, 9])];
        assert_eq!(text("list(list(int16))", 2, lists), ["[[7],[8,9]]", "[]"]);
        let options = vec![Part::Index(Arc::new(vec![-1, 0])), offsets(&[0, 3]), values(b"a\"b")];
        assert_eq!(text("option(text)", 2, options), ["null", "\"a\\\"b\""]);
        let record = vec![values(&[1_u8, 2, 3, 4]), offsets(&[0, 2, 2]), values(&[0_u8, 255])];
        let shown = ["{\"a b\":[1,2],\"c\":\"00ff\"}", "{\"a b\":[3,4],\"c\":\"\"}"];
        assert_eq!(text("record(\"a b\":fixed(2,uint8),\"c\":bytes)", 2, record), shown);
    }
}
