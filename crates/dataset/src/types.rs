//! What each event has of a product: the type, its text, and the streams that hold its values.
//!
//! ```text
//! list(float32)              counts of each event (uint32), values of all events (float32)
//! option(text)               present (bool), lengths of the present ones (uint32), their bytes (uint8)
//! record("a":T,"b":U)        streams of a, streams of b
//! ```

use crate::Scalar;
use forebay_core::{Error, Result};
use std::fmt;

/// Types nest at most this deep, so that hostile bytes cannot exhaust the stack.
const DEPTH_MAX: usize = 24;
/// A type has at most this many streams.
const STREAMS_MAX: usize = 4096;

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

/// What the values of a stream mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Values of the product.
    Values,
    /// How many units the streams below have for each of its own (lists, strings).
    Counts,
    /// Whether the streams below have a unit for each of its own (options).
    Present,
}

/// One stream of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Kind of its values.
    pub scalar: Scalar,
    /// Their meaning.
    pub role: Role,
    /// The stream that says how many values this one has; none: the number of events.
    pub parent: Option<usize>,
    /// Values per unit of the parent (fixed arrays).
    pub times: u64,
}

impl Type {
    /// Jagged values.
    pub fn list(of: Type) -> Type {
        Type::List(Box::new(of))
    }

    /// The streams of the type, outer before inner.
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes = Vec::new();
        self.collect(None, 1, &mut nodes);
        nodes
    }

    fn collect(&self, parent: Option<usize>, times: u64, nodes: &mut Vec<Node>) {
        let mut structure = |role, scalar, inner: &Type| {
            nodes.push(Node { scalar, role, parent, times });
            let own = nodes.len() - 1;
            inner.collect(Some(own), 1, nodes);
        };
        match self {
            Type::Value(scalar) => nodes.push(Node { scalar: *scalar, role: Role::Values, parent, times }),
            Type::Fixed(n, inner) => inner.collect(parent, times.saturating_mul(u64::from(*n)), nodes),
            Type::List(inner) => structure(Role::Counts, Scalar::U32, inner),
            Type::Option(inner) => structure(Role::Present, Scalar::Bool, inner),
            Type::Text | Type::Bytes => structure(Role::Counts, Scalar::U32, &Type::Value(Scalar::U8)),
            Type::Record(fields) => fields.iter().for_each(|(_, field)| field.collect(parent, times, nodes)),
        }
    }

    /// The type that a text names.
    ///
    /// # Errors
    /// `Invalid` where it names none, nests deeper than 24 levels or has more than 4096 streams.
    pub fn parse(text: &str) -> Result<Type> {
        let mut parser = Parser { text, at: 0 };
        let ty = parser.one(0)?;
        if parser.at != text.len() {
            return Err(parser.wrong("text after the type"));
        }
        if ty.nodes().len() > STREAMS_MAX {
            return Err(Error::invalid(format!("a type with more than {STREAMS_MAX} streams")));
        }
        Ok(ty)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("{what} at byte {} of the type {:?}", self.at, self.text))
    }

    fn word(&mut self) -> &str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        if self.text[self.at..].starts_with(wanted) {
            self.at += wanted.len();
            return Ok(());
        }
        Err(self.wrong(&format!("no {wanted:?}")))
    }

    fn one(&mut self, depth: usize) -> Result<Type> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("too many levels"));
        }
        let word = self.word().to_owned();
        if let Some(scalar) = Scalar::ALL.into_iter().find(|scalar| scalar.name() == word) {
            return Ok(Type::Value(scalar));
        }
        match word.as_str() {
            "text" => return Ok(Type::Text),
            "bytes" => return Ok(Type::Bytes),
            _ => self.expect("(")?,
        }
        let ty = match word.as_str() {
            "list" => Type::List(Box::new(self.one(depth + 1)?)),
            "option" => Type::Option(Box::new(self.one(depth + 1)?)),
            "fixed" => {
                let n = self.word().parse().map_err(|_| self.wrong("no length"))?;
                self.expect(",")?;
                Type::Fixed(n, Box::new(self.one(depth + 1)?))
            }
            "record" => self.record(depth)?,
            _ => return Err(self.wrong("no such type")),
        };
        self.expect(")")?;
        Ok(ty)
    }

    fn record(&mut self, depth: usize) -> Result<Type> {
        let mut fields = Vec::new();
        while !self.text[self.at..].starts_with(')') {
            if !fields.is_empty() {
                self.expect(",")?;
            }
            // A name is a JSON string: the one quoting rule that every language has.
            let mut names = serde_json::Deserializer::from_str(&self.text[self.at..]).into_iter::<String>();
            let name = match names.next() {
                Some(Ok(name)) => name,
                _ => return Err(self.wrong("no name of a field")),
            };
            self.at += names.byte_offset();
            self.expect(":")?;
            fields.push((name, self.one(depth + 1)?));
        }
        Ok(Type::Record(fields))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Value(scalar) => f.write_str(scalar.name()),
            Type::Fixed(n, inner) => write!(f, "fixed({n},{inner})"),
            Type::List(inner) => write!(f, "list({inner})"),
            Type::Option(inner) => write!(f, "option({inner})"),
            Type::Text => f.write_str("text"),
            Type::Bytes => f.write_str("bytes"),
            Type::Record(fields) => {
                f.write_str("record(")?;
                for (i, (name, field)) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{field}", serde_json::Value::from(name.as_str()))?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_as_it_was_written() {
        for text in [
            "float32",
            "list(list(float16))",
            "option(text)",
            "fixed(3,list(bytes))",
            "record(\"a b\":int8,\"q\\\"\":record(),\"c\":list(uint64))",
        ] {
            assert_eq!(Type::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_type_is_refused() {
        let deep = "list(".repeat(100_000);
        for text in ["", "float31", "list(float32", "list()", "record(a:int8)", "fixed(-1,int8)", "int8 ", &deep] {
            assert_eq!(Type::parse(text).unwrap_err().kind(), forebay_core::Kind::Invalid, "{text:.20}");
        }
    }

    #[test]
    fn streams_are_outer_before_inner() {
        let nodes = Type::parse("list(record(\"x\":float32,\"s\":text))").unwrap().nodes();
        let parents: Vec<_> = nodes.iter().map(|node| node.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(2)]);
    }
}
