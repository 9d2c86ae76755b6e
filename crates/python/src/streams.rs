//! Streams between Rust and NumPy: memory of decoded columns is handed over; buffers of Python are copied into aligned memory.

use forebay_dataset::{Array, Buffer, Column, Error, Part, Product, Type};
use numpy::IntoPyArray;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{OrRaise, raise};

/// Where the values of a stream are: a NumPy array, the first byte and the number of bytes. Of offsets and an index: all of it.
type Place = (Py<PyAny>, usize, usize);
/// A column for Python: the text of its type, and its streams.
pub(crate) type Read = (String, Vec<Place>);

/// A stream before its memory is an array: which memory, first byte, bytes.
type InMemory = (usize, usize, usize);

/// Memory that one or several columns have.
enum Memory {
    Integers(Arc<Vec<i64>>),
    Bytes(Arc<Buffer>),
}

/// Hands the memory of columns to Python. Memory that columns share becomes one array.
pub(crate) fn hand_over(py: Python<'_>, columns: Vec<Column>) -> Vec<Read> {
    let mut memory: Vec<Memory> = Vec::new();
    let mut known: HashMap<usize, usize> = HashMap::new();
    let mut shaped: Vec<(String, Vec<InMemory>)> = Vec::with_capacity(columns.len());
    for column in columns {
        let mut places = Vec::with_capacity(column.parts.len());
        for part in column.parts {
            let (address, start, len, part) = match part {
                Part::Offsets(integers) | Part::Index(integers) => {
                    (Arc::as_ptr(&integers).addr(), 0, integers.len() * 8, Memory::Integers(integers))
                }
                Part::Values { buffer, start, len } => (Arc::as_ptr(&buffer).addr(), start, len, Memory::Bytes(buffer)),
            };
            // A repeat is dropped here, so that every memory has one owner in the end.
            let at = *known.entry(address).or_insert_with(|| {
                memory.push(part);
                memory.len() - 1
            });
            places.push((at, start, len));
        }
        shaped.push((column.ty.to_string(), places));
    }
    let arrays: Vec<Py<PyAny>> = memory.into_iter().map(|memory| array(py, memory)).collect();
    let place = |(at, start, len): InMemory| (arrays[at].clone_ref(py), start, len);
    shaped.into_iter().map(|(ty, places)| (ty, places.into_iter().map(place).collect())).collect()
}

/// A NumPy array that owns this memory.
fn array(py: Python<'_>, memory: Memory) -> Py<PyAny> {
    match memory {
        Memory::Integers(integers) => Arc::unwrap_or_clone(integers).into_pyarray(py).into_any().unbind(),
        Memory::Bytes(buffer) => Arc::unwrap_or_clone(buffer).into_words().into_pyarray(py).into_any().unbind(),
    }
}

/// What Python says of a column: name, type, title, name of the type, counter, notes as JSON.
pub(crate) type Said = (String, String, String, String, String, String);

/// The product that Python describes.
pub(crate) fn product(py: Python<'_>, said: Said) -> PyResult<Product> {
    let (name, ty, title, type_name, counter, notes) = said;
    let ty = Type::parse(&ty).or_raise(py)?;
    let notes = serde_json::from_str(&notes)
        .map_err(|error| raise(py, &Error::invalid(format!("column {name}: notes: {error}"))))?;
    Ok(Product { name, ty, title, type_name, counter, notes })
}

/// What Python is told of a product.
pub(crate) fn said(product: Product) -> Said {
    let notes = serde_json::Value::from_iter(product.notes).to_string();
    (product.name, product.ty.to_string(), product.title, product.type_name, product.counter, notes)
}

/// The array with these streams, which are one-dimensional arrays of bytes.
pub(crate) fn columns(
    py: Python<'_>,
    events: u64,
    columns: Vec<(Said, Bound<'_, PyList>)>,
) -> PyResult<Vec<(Product, Array)>> {
    let column = |(said, streams): (Said, Bound<'_, PyList>)| {
        let product = product(py, said)?;
        let streams: PyResult<Vec<Buffer>> = streams.iter().map(|stream| copy(py, &stream)).collect();
        let array = Array { ty: product.ty.clone(), events, streams: streams? };
        Ok((product, array))
    };
    columns.into_iter().map(column).collect()
}

fn copy(py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let from = PyBuffer::<u8>::get(stream)?;
    let mut buffer = Buffer::zeroed(from.len_bytes());
    from.copy_to_slice(py, buffer.bytes_mut())?;
    Ok(buffer)
}
