//! The kinds of values that a stream can have, and memory that holds them aligned.

/// The kind of the values of a stream. The number of a kind is part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scalar {
    /// One byte, 0 or 1.
    Bool = 0,
    /// Signed, 1 byte.
    I8 = 1,
    /// Unsigned, 1 byte; also the bytes of strings and opaque products.
    U8 = 2,
    /// Signed, 2 bytes.
    I16 = 3,
    /// Unsigned, 2 bytes.
    U16 = 4,
    /// Signed, 4 bytes.
    I32 = 5,
    /// Unsigned, 4 bytes; also counts and lengths.
    U32 = 6,
    /// Signed, 8 bytes.
    I64 = 7,
    /// Unsigned, 8 bytes.
    U64 = 8,
    /// IEEE 754 binary16, kept as its 2 bytes.
    F16 = 9,
    /// IEEE 754 binary32.
    F32 = 10,
    /// IEEE 754 binary64.
    F64 = 11,
}

impl Scalar {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Scalar; 12] = [
        Scalar::Bool,
        Scalar::I8,
        Scalar::U8,
        Scalar::I16,
        Scalar::U16,
        Scalar::I32,
        Scalar::U32,
        Scalar::I64,
        Scalar::U64,
        Scalar::F16,
        Scalar::F32,
        Scalar::F64,
    ];

    /// The kind with this number.
    pub fn of_code(code: u8) -> Option<Scalar> {
        Scalar::ALL.get(usize::from(code)).copied()
    }

    /// The number of the kind in the format.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 | Scalar::F16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
        }
    }

    /// The name that NumPy has for the kind.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::I8 => "int8",
            Scalar::U8 => "uint8",
            Scalar::I16 => "int16",
            Scalar::U16 => "uint16",
            Scalar::I32 => "int32",
            Scalar::U32 => "uint32",
            Scalar::I64 => "int64",
            Scalar::U64 => "uint64",
            Scalar::F16 => "float16",
            Scalar::F32 => "float32",
            Scalar::F64 => "float64",
        }
    }
}

/// Bytes at an address that every kind of value may have. Values are little-endian, as on the machines that this runs on.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Buffer {
    words: Vec<u64>,
    len: usize,
}

impl Buffer {
    /// This many zero bytes.
    pub fn zeroed(len: usize) -> Buffer {
        Buffer { words: vec![0; len.div_ceil(8)], len }
    }

    /// A copy of these bytes.
    pub fn of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    /// The values.
    ///
    /// # Panics
    /// Where the length is no multiple of the width of `T`.
    pub fn values<T: bytemuck::AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The values, to write.
    ///
    /// # Panics
    /// Where the length is no multiple of the width of `T`.
    pub fn values_mut<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.len += bytes.len();
        self.words.resize(self.len.div_ceil(8), 0);
        self.bytes_mut()[start..].copy_from_slice(bytes);
    }

    /// The words, the last one padded: what a caller takes over without a copy.
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }
}

impl<T: bytemuck::Pod> From<Vec<T>> for Buffer {
    fn from(values: Vec<T>) -> Buffer {
        match bytemuck::try_cast_vec::<T, u64>(values) {
            Ok(words) => Buffer { len: words.len() * 8, words },
            Err((_, values)) => Buffer::of(bytemuck::cast_slice(&values)),
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
