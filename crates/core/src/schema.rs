//! Key schemas and attribute schemas: names, widths, order; how values become bytes and text.
//!
//! ```text
//! key = [primary sub-keys, big-endian, padded to a byte][remaining sub-keys, big-endian, padded to a byte]
//! ```
//!
//! *Invariants*: byte order is key order (test `byte_order_is_key_order`); the padding bits are zero; a packed key is
//! at most [`KEY_BYTES_MAX`] bytes.

use crate::limits::{ATTRIBUTE_BITS_MAX, ATTRIBUTES_MAX, CLASSES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, SUB_KEYS_MAX};
use crate::{Error, Key, Primary, Result};

/// One typed, fixed-width part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubKey {
    /// Field name, such as `run`, `event`, `source`.
    pub name: String,
    /// Width in bits, 1 to 64.
    pub bits: u32,
}

impl SubKey {
    /// Highest value that fits.
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

/// The order and width of a key's parts, and which leading ones name an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySchema {
    sub_keys: Vec<SubKey>,
    primary: usize,
    primary_bytes: usize,
    rest_bytes: usize,
    whole_bytes: bool,
}

fn check_name(what: &str, name: &str) -> Result<()> {
    let legal = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if legal {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} name `{name}`: expected 1 to {NAME_BYTES_MAX} of a-z A-Z 0-9 _ -")))
}

/// The bits from one on as a number, at most 64.
#[inline]
fn bits_at(bytes: &[u8], from: usize, bits: usize) -> u64 {
    let to = from + bits;
    let behind = to.div_ceil(8) * 8 - to;
    // The last byte apart: the others are at most eight, also of 64 bits that begin within a byte.
    let (before, last) = (&bytes[from / 8..to.div_ceil(8) - 1], bytes[to.div_ceil(8) - 1]);
    let value = before.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    (value << (8 - behind) | u64::from(last) >> behind) & (u64::MAX >> (64 - bits))
}

impl KeySchema {
    /// A schema from its parts; the first `primary` of them name an event.
    ///
    /// # Errors
    /// `Invalid` for no or too many parts, widths outside 1 to 64 bits, repeated names, a primary key that is empty or
    /// leaves no sub-key, a first sub-key that is not `run`, or a key past [`KEY_BYTES_MAX`] bytes.
    pub fn new(sub_keys: Vec<SubKey>, primary: usize) -> Result<KeySchema> {
        if sub_keys.is_empty() || sub_keys.len() > SUB_KEYS_MAX {
            return Err(Error::invalid(format!("a key has 1 to {SUB_KEYS_MAX} sub-keys, not {}", sub_keys.len())));
        }
        for (at, sub_key) in sub_keys.iter().enumerate() {
            check_name("sub-key", &sub_key.name)?;
            if !(1..=64).contains(&sub_key.bits) {
                return Err(Error::invalid(format!("sub-key `{}`: 1 to 64 bits, not {}", sub_key.name, sub_key.bits)));
            }
            if sub_keys[..at].iter().any(|before| before.name == sub_key.name) {
                return Err(Error::invalid(format!("sub-key `{}` appears twice in the key", sub_key.name)));
            }
        }
        if primary == 0 || primary >= sub_keys.len() {
            return Err(Error::invalid(format!(
                "the primary key takes 1 to {} leading sub-keys and leaves at least one, not {primary}",
                sub_keys.len() - 1
            )));
        }
        if sub_keys[0].name != "run" {
            return Err(Error::invalid(format!("the first sub-key is `run`, not `{}`", sub_keys[0].name)));
        }
        let bytes = |parts: &[SubKey]| parts.iter().map(|part| part.bits as usize).sum::<usize>().div_ceil(8);
        let (primary_bytes, rest_bytes) = (bytes(&sub_keys[..primary]), bytes(&sub_keys[primary..]));
        if primary_bytes + rest_bytes > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the key takes {} bytes, at most {KEY_BYTES_MAX} fit",
                primary_bytes + rest_bytes
            )));
        }
        let whole_bytes = sub_keys.iter().all(|part| part.bits.is_multiple_of(8));
        Ok(KeySchema { sub_keys, primary, primary_bytes, rest_bytes, whole_bytes })
    }

    /// A schema from text as in a keyspace file: `["run:u32", "event:u64", "source:u32"]` and `["run", "event"]`.
    ///
    /// # Errors
    /// `Invalid`, naming the part that is wrong; also where `primary` is not the leading part of `key`.
    pub fn parse<S: AsRef<str>>(key: &[S], primary: &[S]) -> Result<KeySchema> {
        let mut sub_keys = Vec::with_capacity(key.len());
        for text in key {
            let text = text.as_ref();
            let wrong = || Error::invalid(format!("sub-key `{text}`: expected name:uBITS, such as event:u64"));
            let (name, kind) = text.split_once(':').ok_or_else(wrong)?;
            let bits = kind.strip_prefix('u').and_then(|bits| bits.parse().ok()).ok_or_else(wrong)?;
            sub_keys.push(SubKey { name: name.to_owned(), bits });
        }
        for (at, name) in primary.iter().enumerate() {
            let name = name.as_ref();
            match sub_keys.get(at) {
                Some(sub_key) if sub_key.name == name => {}
                Some(sub_key) => {
                    return Err(Error::invalid(format!(
                        "primary part {} is `{name}`, but the key has `{}` there: the primary key is the leading part",
                        at + 1,
                        sub_key.name
                    )));
                }
                None => return Err(Error::invalid(format!("primary part `{name}` is not in the key"))),
            }
        }
        KeySchema::new(sub_keys, primary.len())
    }

    /// The schema of most experiments: `run:u32, event:u64, source:u32`, primary (run, event): 16 bytes.
    pub fn run_event_source() -> KeySchema {
        let part = |name: &str, bits| SubKey { name: name.to_owned(), bits };
        KeySchema {
            sub_keys: vec![part("run", 32), part("event", 64), part("source", 32)],
            primary: 2,
            primary_bytes: 12,
            rest_bytes: 4,
            whole_bytes: true,
        }
    }

    /// All parts in order.
    pub fn sub_keys(&self) -> &[SubKey] {
        &self.sub_keys
    }

    /// How many leading parts name an event.
    pub fn primary_len(&self) -> usize {
        self.primary
    }

    /// Bytes of a packed key.
    pub fn key_bytes(&self) -> usize {
        self.primary_bytes + self.rest_bytes
    }

    /// Bytes of a packed primary key.
    pub fn primary_bytes(&self) -> usize {
        self.primary_bytes
    }

    /// Bytes of the packed remaining sub-keys.
    pub fn rest_bytes(&self) -> usize {
        self.rest_bytes
    }

    /// Packs one value per sub-key.
    ///
    /// # Errors
    /// `Invalid` for the wrong number of values or one that does not fit, with its name and limit.
    #[inline]
    pub fn key(&self, values: &[u64]) -> Result<Key> {
        self.check(values, self.sub_keys.len())?;
        let mut bytes = [0; KEY_BYTES_MAX];
        self.pack(values, &mut bytes);
        Ok(Key::from_array(bytes, self.key_bytes()))
    }

    /// Packs the leading values that name an event.
    ///
    /// # Errors
    /// As [`KeySchema::key`].
    #[inline]
    pub fn primary(&self, values: &[u64]) -> Result<Primary> {
        self.check(values, self.primary)?;
        let mut bytes = [0; KEY_BYTES_MAX];
        self.pack(values, &mut bytes);
        Ok(Primary::from_array(bytes, self.primary_bytes))
    }

    /// A key from packed bytes, as read from a medium or the wire.
    ///
    /// # Errors
    /// `Invalid` for a wrong length or padding bits that are set.
    pub fn key_from_bytes(&self, bytes: &[u8]) -> Result<Key> {
        if bytes.len() != self.key_bytes() {
            return Err(Error::invalid(format!(
                "a key has {} bytes in this keyspace, not {}",
                self.key_bytes(),
                bytes.len()
            )));
        }
        let mut array = [0; KEY_BYTES_MAX];
        array[..bytes.len()].copy_from_slice(bytes);
        let key = Key::from_array(array, bytes.len());
        if !self.whole_bytes {
            let mut again = [0; KEY_BYTES_MAX];
            self.pack(&self.values(bytes), &mut again);
            if again != array {
                return Err(Error::invalid("the padding bits of a packed key are not zero"));
            }
        }
        Ok(key)
    }

    /// A primary key from packed bytes, as read from a medium or the wire.
    ///
    /// # Errors
    /// `Invalid` for a wrong length or padding bits that are set.
    pub fn primary_from_bytes(&self, bytes: &[u8]) -> Result<Primary> {
        if bytes.len() != self.primary_bytes {
            return Err(Error::invalid(format!(
                "a primary key has {} bytes in this keyspace, not {}",
                self.primary_bytes,
                bytes.len()
            )));
        }
        let mut key = [0; KEY_BYTES_MAX];
        key[..bytes.len()].copy_from_slice(bytes);
        self.key_from_bytes(&key[..self.key_bytes()]).map(|key| self.primary_of(&key))
    }

    /// The key of one fragment of an event: primary key and the packed remaining sub-keys.
    ///
    /// # Panics
    /// Where either part has not the length that this schema gives it: both come from packed keys.
    pub fn join(&self, primary: &Primary, rest: &[u8]) -> Key {
        assert_eq!((primary.as_bytes().len(), rest.len()), (self.primary_bytes, self.rest_bytes));
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..self.primary_bytes].copy_from_slice(primary.as_bytes());
        bytes[self.primary_bytes..self.key_bytes()].copy_from_slice(rest);
        Key::from_array(bytes, self.key_bytes())
    }

    /// The primary key of a key.
    pub fn primary_of(&self, key: &Key) -> Primary {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..self.primary_bytes].copy_from_slice(&key.as_bytes()[..self.primary_bytes]);
        Primary::from_array(bytes, self.primary_bytes)
    }

    /// The packed sub-keys after the primary key.
    #[inline]
    pub fn rest_of<'a>(&self, key: &'a Key) -> &'a [u8] {
        &key.as_bytes()[self.primary_bytes..]
    }

    /// Unpacks a key or a primary key (told apart by their length).
    pub fn values(&self, bytes: &[u8]) -> Vec<u64> {
        let mut values = Vec::with_capacity(self.sub_keys.len());
        for (parts, start) in self.halves() {
            if start >= bytes.len() {
                break;
            }
            let mut bit = start * 8;
            for part in parts {
                let bits = part.bits as usize;
                values.push(bits_at(bytes, bit, bits));
                bit += bits;
            }
        }
        values
    }

    /// Unpacks the sub-keys after the primary key, from their bytes; allocates nothing. Of another number of bytes there are none.
    pub fn unpack_source<'a>(&self, rest: &[u8], values: &'a mut [u64; SUB_KEYS_MAX]) -> &'a [u64] {
        let parts = if rest.len() == self.rest_bytes { &self.sub_keys[self.primary..] } else { &[] };
        let mut bit = 0;
        for (part, value) in parts.iter().zip(values.iter_mut()) {
            let bits = part.bits as usize;
            *value = bits_at(rest, bit, bits);
            bit += bits;
        }
        &values[..parts.len()]
    }

    /// The run of a packed key or primary key: its first sub-key.
    #[inline]
    pub fn run_of(&self, bytes: &[u8]) -> u64 {
        bits_at(bytes, 0, self.sub_keys[0].bits as usize)
    }

    /// Text form, such as `17/42/3`; of a primary key `17/42`.
    pub fn text(&self, bytes: &[u8]) -> String {
        self.values(bytes).iter().map(u64::to_string).collect::<Vec<_>>().join("/")
    }

    /// Values from text such as `17/42/3`; each part decimal or `0x…`.
    ///
    /// # Errors
    /// `Invalid`, naming the part, what is there and its range.
    pub fn parse_values(&self, text: &str, parts: usize) -> Result<Vec<u64>> {
        let form = || self.sub_keys[..parts].iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join("/");
        let given: Vec<&str> = text.split('/').collect();
        if given.len() != parts {
            return Err(Error::invalid(format!("`{text}` has {} part(s); expected {}", given.len(), form())));
        }
        let mut values = Vec::with_capacity(parts);
        for (part, text_part) in self.sub_keys.iter().zip(given) {
            values.push(parse_number(part, text_part, text)?);
        }
        Ok(values)
    }

    /// A key from its text form.
    ///
    /// # Errors
    /// As [`KeySchema::parse_values`].
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        self.key(&self.parse_values(text, self.sub_keys.len())?)
    }

    /// A primary key from its text form.
    ///
    /// # Errors
    /// As [`KeySchema::parse_values`].
    pub fn parse_primary(&self, text: &str) -> Result<Primary> {
        self.primary(&self.parse_values(text, self.primary)?)
    }

    /// The parts as a keyspace file writes them.
    pub fn describe(&self) -> Vec<String> {
        self.sub_keys.iter().map(|part| format!("{}:u{}", part.name, part.bits)).collect()
    }

    fn halves(&self) -> [(&[SubKey], usize); 2] {
        [(&self.sub_keys[..self.primary], 0), (&self.sub_keys[self.primary..], self.primary_bytes)]
    }

    #[inline]
    fn check(&self, values: &[u64], parts: usize) -> Result<()> {
        if values.len() != parts {
            return Err(Error::invalid(format!(
                "{parts} values expected ({}), not {}",
                self.describe().join(", "),
                values.len()
            )));
        }
        for (part, &value) in self.sub_keys.iter().zip(values) {
            if value > part.max() {
                return Err(Error::invalid(format!("{} = {value} does not fit: 0 to {}", part.name, part.max())));
            }
        }
        Ok(())
    }

    #[inline]
    fn pack(&self, values: &[u64], bytes: &mut [u8; KEY_BYTES_MAX]) {
        if self.whole_bytes {
            let mut at = 0;
            for (part, value) in self.sub_keys.iter().zip(values) {
                let width = part.bits as usize / 8;
                bytes[at..at + width].copy_from_slice(&value.to_be_bytes()[8 - width..]);
                at += width;
            }
            return;
        }
        let mut values = values.iter();
        for (parts, start) in self.halves() {
            let mut bit = start * 8;
            for (part, value) in parts.iter().zip(values.by_ref()) {
                for shift in (0..part.bits).rev() {
                    bytes[bit / 8] |= ((value >> shift & 1) as u8) << (7 - bit % 8);
                    bit += 1;
                }
            }
            if values.len() == 0 {
                break;
            }
        }
    }
}

/// One number of a text key, decimal or hexadecimal.
pub(crate) fn parse_number(part: &SubKey, text: &str, whole: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.starts_with('+') => "+".parse(),
        None => text.parse(),
    };
    match number {
        Ok(value) if value <= part.max() => Ok(value),
        _ => Err(Error::invalid(format!(
            "`{whole}`: {} is `{text}`; expected a number from 0 to {}",
            part.name,
            part.max()
        ))),
    }
}

/// The type of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeKind {
    /// An unsigned number of 1 to 128 bits.
    Unsigned {
        /// Width in bits.
        bits: u32,
    },
    /// The event's class: one of the keyspace's named classes.
    Class,
}

impl AttributeKind {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            AttributeKind::Unsigned { bits } => bits.div_ceil(8) as usize,
            AttributeKind::Class => 2,
        }
    }
}

/// The typed attributes of a keyspace's events, and its named classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeSchema {
    pub(crate) fields: Vec<(String, AttributeKind)>,
    pub(crate) classes: Vec<String>,
}

impl AttributeSchema {
    /// Attributes from text such as `["lumi:u32", "trigger_bits:u128", "class"]`, and the names of the classes.
    ///
    /// # Errors
    /// `Invalid`, naming the attribute or class that is wrong, repeated or one too many.
    pub fn parse<S: AsRef<str>>(attributes: &[S], classes: &[S]) -> Result<AttributeSchema> {
        if attributes.len() > ATTRIBUTES_MAX || classes.len() > CLASSES_MAX {
            return Err(Error::invalid(format!("at most {ATTRIBUTES_MAX} attributes and {CLASSES_MAX} classes")));
        }
        let mut schema = AttributeSchema::default();
        for text in attributes {
            let text = text.as_ref();
            let (name, kind) = match text.split_once(':') {
                None if text == "class" => (text, AttributeKind::Class),
                Some((name, kind)) => {
                    let bits = kind.strip_prefix('u').and_then(|bits| bits.parse().ok());
                    match bits {
                        Some(bits) if (1..=ATTRIBUTE_BITS_MAX).contains(&bits) => {
                            (name, AttributeKind::Unsigned { bits })
                        }
                        _ => {
                            return Err(Error::invalid(format!(
                                "attribute `{text}`: expected u1 to u{ATTRIBUTE_BITS_MAX}"
                            )));
                        }
                    }
                }
                None => return Err(Error::invalid(format!("attribute `{text}`: expected name:uBITS or class"))),
            };
            check_name("attribute", name)?;
            if schema.index(name).is_some() {
                return Err(Error::invalid(format!("attribute `{name}` appears twice")));
            }
            schema.fields.push((name.to_owned(), kind));
        }
        for name in classes {
            let name = name.as_ref();
            check_name("class", name)?;
            if schema.classes.iter().any(|class| class == name) {
                return Err(Error::invalid(format!("class `{name}` appears twice")));
            }
            schema.classes.push(name.to_owned());
        }
        if !schema.classes.is_empty() && schema.index("class").is_none() {
            return Err(Error::invalid("classes are named, but `class` is not among the attributes"));
        }
        Ok(schema)
    }

    /// Names and kinds in order.
    pub fn fields(&self) -> &[(String, AttributeKind)] {
        &self.fields
    }

    /// Named classes in order.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Position of an attribute.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| field == name)
    }

    /// Whether events carry no attributes at all.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Bytes of the packed form: presence word and all fields; 0 without attributes.
    pub fn packed_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { 8 + self.fields.iter().map(|(_, kind)| kind.bytes()).sum::<usize>() }
    }

    /// The attributes as a keyspace file writes them.
    pub fn describe(&self) -> Vec<String> {
        let one = |(name, kind): &(String, AttributeKind)| match kind {
            AttributeKind::Unsigned { bits } => format!("{name}:u{bits}"),
            AttributeKind::Class => name.clone(),
        };
        self.fields.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn odd() -> KeySchema {
        KeySchema::parse(&["run:u17", "event:u40", "crate:u10", "slot:u3"], &["run", "event"]).unwrap()
    }

    #[test]
    fn packs_big_endian() {
        let key = KeySchema::run_event_source().key(&[1, 2, 3]).unwrap();
        assert_eq!(key.as_bytes(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(
            KeySchema::run_event_source(),
            KeySchema::parse(&["run:u32", "event:u64", "source:u32"], &["run", "event"]).unwrap()
        );
    }

    proptest! {
        // Nine bytes, with one to eight bits in the first and the last.
        #[test]
        fn numbers_that_begin_within_a_byte_come_back_whole(
            bits in 1..8_usize, rest in 1..65_usize, run in any::<u64>(), event in any::<u64>(), source in any::<u64>(),
        ) {
            let parts = [format!("run:u{bits}"), "event:u64".to_owned(), format!("module:u{bits}"), format!("source:u{rest}")];
            let schema = KeySchema::parse(&parts.each_ref().map(String::as_str), &["run", "event"]).unwrap();
            let below = |value: u64, bits: usize| value & (u64::MAX >> (64 - bits));
            let given = [below(run, bits), event, below(!run, bits), below(source, rest)];
            let key = schema.key(&given).unwrap();
            prop_assert_eq!(&schema.values(key.as_bytes())[..], &given[..]);
            prop_assert_eq!(schema.run_of(key.as_bytes()), given[0]);
            let mut values = [0; SUB_KEYS_MAX];
            prop_assert_eq!(schema.unpack_source(schema.rest_of(&key), &mut values), &given[2..]);
        }

        #[test]
        fn byte_order_is_key_order(a in (0..1_u64 << 17, 0..1_u64 << 40, 0..1024_u64, 0..8_u64),
                                   b in (0..1_u64 << 17, 0..1_u64 << 40, 0..1024_u64, 0..8_u64)) {
            let schema = odd();
            let pack = |v: (u64, u64, u64, u64)| schema.key(&[v.0, v.1, v.2, v.3]).unwrap();
            let (key_a, key_b) = (pack(a), pack(b));
            prop_assert_eq!(a.cmp(&b), key_a.as_bytes().cmp(key_b.as_bytes()));
            prop_assert_eq!(schema.values(key_a.as_bytes()), vec![a.0, a.1, a.2, a.3]);
            prop_assert_eq!(schema.run_of(key_a.as_bytes()), a.0);
            prop_assert_eq!(schema.key_from_bytes(key_a.as_bytes()).unwrap(), key_a);
            prop_assert_eq!(schema.parse_key(&schema.text(key_a.as_bytes())).unwrap(), key_a);
        }

        #[test]
        fn any_text_is_a_key_or_a_clear_error(text in ".{0,40}") {
            if let Err(error) = odd().parse_key(&text) {
                prop_assert_eq!(error.kind(), crate::Kind::Invalid);
            }
        }
    }

    #[test]
    fn refuses_schemas_that_cannot_work() {
        let cases: [(&[&str], &[&str], &str); 9] = [
            (&[], &[], "1 to 16 sub-keys"),
            (&["run:u32"], &["run"], "leaves at least one"),
            (&["run:u32", "event:u64"], &[], "1 to 1 leading"),
            (&["run:u32", "event:u64", "source:u32"], &["event"], "leading part"),
            (&["run:u32", "event:u65", "source:u32"], &["run"], "1 to 64 bits"),
            (&["run:u32", "run:u32"], &["run"], "appears twice"),
            (&["run", "event:u64"], &["run"], "name:uBITS"),
            (&["event:u64", "source:u32"], &["event"], "first sub-key is `run`"),
            (&["run:u64", "a:u64", "b:u64", "c:u64", "d:u8"], &["run"], "at most 32 fit"),
        ];
        for (key, primary, message) in cases {
            let error = KeySchema::parse(key, primary).unwrap_err();
            assert!(error.message().contains(message), "{key:?}: {error}");
        }
    }

    #[test]
    fn key_errors_name_the_part() {
        let schema = odd();
        for (text, message) in [
            ("1/2", "expected run/event/crate/slot"),
            ("1/2/3/8", "slot is `8`; expected a number from 0 to 7"),
            ("1//3/4", "event is ``"),
            ("1/2/x/4", "crate is `x`"),
            ("1/-2/3/4", "event is `-2`"),
            ("+1/2/3/4", "run is `+1`"),
        ] {
            let error = schema.parse_key(text).unwrap_err();
            assert!(error.message().contains(message), "{text}: {error}");
        }
        assert_eq!(schema.parse_key("0x1f/2/3/4").unwrap(), schema.key(&[31, 2, 3, 4]).unwrap());
        assert!(schema.key(&[1, 2, 3]).unwrap_err().message().contains("4 values expected"));
        let mut padded = schema.key(&[1, 2, 3, 4]).unwrap().as_bytes().to_vec();
        *padded.last_mut().unwrap() |= 1;
        assert!(schema.key_from_bytes(&padded).unwrap_err().message().contains("padding"));
    }

    #[test]
    fn attribute_schemas_say_what_is_wrong() {
        for (attributes, classes, message) in [
            (&["lumi"][..], &[][..], "expected name:uBITS or class"),
            (&["lumi:u129"], &[], "expected u1 to u128"),
            (&["a:u8", "a:u8"], &[], "appears twice"),
            (&["a:u8"], &["physics"], "`class` is not among"),
            (&["class"], &["x", "x"], "class `x` appears twice"),
        ] {
            let error = AttributeSchema::parse(attributes, classes).unwrap_err();
            assert!(error.message().contains(message), "{error}");
        }
        assert_eq!(AttributeSchema::parse(&["lumi:u32", "bits:u128", "class"], &["x"]).unwrap().packed_bytes(), 30);
    }
}
