"""Types of columns: their text, their streams, and awkward layouts of both.

text of a type ──parse──▶ Type ──layout(streams)──▶ awkward layout   (reading; memory is shared)
awkward layout ──streams──▶ Type and one array of values a stream    (writing)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from ._errors import Invalid

SCALARS = frozenset(
    ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
)
# Parameters of awkward nodes by the number of the node, outer before inner.
Parameters = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Value:
    """One value."""

    scalar: str

    def __str__(self) -> str:
        return self.scalar


@dataclass(frozen=True)
class Fixed:
    """A constant number of values."""

    size: int
    of: Type

    def __str__(self) -> str:
        return f"fixed({self.size},{self.of})"


@dataclass(frozen=True)
class ListOf:
    """Any number of values."""

    of: Type

    def __str__(self) -> str:
        return f"list({self.of})"


@dataclass(frozen=True)
class Maybe:
    """A value, or nothing."""

    of: Type

    def __str__(self) -> str:
        return f"option({self.of})"


@dataclass(frozen=True)
class Text:
    """A string."""

    def __str__(self) -> str:
        return "text"


@dataclass(frozen=True)
class Bytes:
    """Opaque bytes."""

    def __str__(self) -> str:
        return "bytes"


@dataclass(frozen=True)
class Record:
    """Named fields."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"record({','.join(f'{json.dumps(name, ensure_ascii=False)}:{of}' for name, of in self.fields)})"


Type = Value | Fixed | ListOf | Maybe | Text | Bytes | Record


@cache
def parse(text: str) -> Type:
    """The type of a text that the dataset has."""
    of, end = _parse(text, 0)
    if end != len(text):
        raise Invalid(f"no type: {text!r}")
    return of


def _parse(text: str, at: int) -> tuple[Type, int]:
    end = at
    while end < len(text) and text[end].isalnum():
        end += 1
    word = text[at:end]
    if word in SCALARS:
        return Value(word), end
    if word == "text":
        return Text(), end
    if word == "bytes":
        return Bytes(), end
    end += 1
    if word == "record":
        fields = []
        while text[end] != ")":
            end += text[end] == ","
            name, end = json.JSONDecoder().raw_decode(text, end)
            of, end = _parse(text, end + 1)
            fields.append((name, of))
        return Record(tuple(fields)), end + 1
    if word == "fixed":
        comma = text.index(",", end)
        of, close = _parse(text, comma + 1)
        return Fixed(int(text[end:comma]), of), close + 1
    if word not in ("list", "option"):
        raise Invalid(f"no type: {text!r}")
    of, close = _parse(text, end)
    return (ListOf(of) if word == "list" else Maybe(of)), close + 1


def shown(of: Type) -> str:
    """The type as people know it from awkward: ``var * float32``."""
    match of:
        case Value(scalar):
            return "float32" if scalar == "float16" else scalar
        case Fixed(size, inner):
            return f"{size} * {shown(inner)}"
        case ListOf(inner):
            return f"var * {shown(inner)}"
        case Maybe(inner):
            return f"?{shown(inner)}" if isinstance(inner, Value | Text | Bytes | Record) else f"option[{shown(inner)}]"
        case Text():
            return "string"
        case Bytes():
            return "bytes"
        case Record(fields):
            return "{" + ", ".join(f"{name}: {shown(inner)}" for name, inner in fields) + "}"


def walk(of: Type) -> Iterator[Type]:
    """The type and all types in it, outer before inner."""
    yield of
    if isinstance(of, Fixed | ListOf | Maybe):
        yield from walk(of.of)
    elif isinstance(of, Record):
        for _, inner in of.fields:
            yield from walk(inner)


class _Places:
    """The streams of a column that is read, one after the other."""

    def __init__(self, places: list[tuple[NDArray[Any], int, int]], half: bool) -> None:
        self._places: Iterator[tuple[NDArray[Any], int, int]] = iter(places)
        self._half = half

    def integers(self) -> NDArray[np.int64]:
        return next(self._places)[0]

    def values(self, scalar: str) -> NDArray[Any]:
        memory, start, size = next(self._places)
        values = memory.view(np.uint8)[start : start + size].view(scalar)
        # Awkward and numba cannot compute with half precision.
        return values.astype(np.float32) if scalar == "float16" and not self._half else values


class _Numbers:
    """Numbers nodes, outer before inner, and knows their parameters."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._next = 0

    def next(self) -> dict[str, Any] | None:
        number = self._next
        self._next += 1
        return dict(self._parameters[str(number)]) if str(number) in self._parameters else None


def layout(
    of: Type, places: list[tuple[NDArray[Any], int, int]], events: int, parameters: Parameters, half: bool = False
) -> Any:
    """The awkward layout of a column that is read. It has the memory of the streams. `half`: float16 stays as it is."""
    return _layout(of, _Places(places, half), events, _Numbers(parameters))


def _layout(of: Type, places: _Places, length: int, numbers: _Numbers) -> Any:
    own = numbers.next()
    match of:
        case Value(scalar):
            return ak.contents.NumpyArray(places.values(scalar), parameters=own)
        case Fixed(size, inner):
            content = _layout(inner, places, length * size, numbers)
            return ak.contents.RegularArray(content, size, zeros_length=length, parameters=own)
        case ListOf(inner):
            offsets = places.integers()
            content = _layout(inner, places, int(offsets[-1]), numbers)
            return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content, parameters=own)
        case Maybe(inner):
            index = places.integers()
            content = _layout(inner, places, int(np.count_nonzero(index >= 0)), numbers)
            return ak.contents.IndexedOptionArray(ak.index.Index64(index), content, parameters=own)
        case Text() | Bytes():
            offsets = places.integers()
            char, whole = ("char", "string") if isinstance(of, Text) else ("byte", "bytestring")
            content = ak.contents.NumpyArray(places.values("uint8"), parameters={"__array__": char})
            return ak.contents.ListOffsetArray(
                ak.index.Index64(offsets), content, parameters={**(own or {}), "__array__": whole}
            )
        case Record(fields):
            tuple_like = bool(own and own.pop("tuple", False))
            contents = [_layout(inner, places, length, numbers) for _, inner in fields]
            names = None if tuple_like else [name for name, _ in fields]
            return ak.contents.RecordArray(contents, names, length=length, parameters=own or None)


class Streams:
    """A column that is written: its type, its streams, and the parameters of its nodes."""

    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        self.streams: list[NDArray[np.uint8]] = []
        self.parameters: dict[str, dict[str, Any]] = {}
        self._next = 0
        content = array.layout if isinstance(array, ak.Array) else self._layout_of(array)
        self.events = len(content)
        self.title = content.parameters.get("__doc__") or ""
        self.type = self._take(content.to_packed())

    def _layout_of(self, array: Any) -> Any:
        if isinstance(array, np.ndarray) and array.dtype.kind in "iuf" and not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        try:
            return ak.to_layout(array, primitive_policy="error")
        except (TypeError, ValueError) as error:
            raise self._refuse(f"awkward cannot make an array of it: {error}".split("\n")[0]) from error

    def _refuse(self, what: str) -> Invalid:
        return Invalid(f"column {self._name}: {what}")

    def _note(self, content: Any, without: str = "") -> None:
        number = str(self._next)
        self._next += 1
        # Titles are kept apart; names of types are what the type already says.
        left_out = {"__doc__", "typename", without, "__categorical__"}
        kept = {key: value for key, value in content.parameters.items() if key not in left_out and value is not None}
        if content.is_record and content.is_tuple:
            kept["tuple"] = True
        if kept:
            self.parameters[number] = kept

    def _values(self, values: NDArray[Any]) -> None:
        self.streams.append(np.ascontiguousarray(values).reshape(-1).view(np.uint8))

    def _counts(self, offsets: NDArray[Any]) -> None:
        counts = np.diff(offsets)
        if len(counts) and int(counts.max()) > 0xFFFF_FFFF:
            raise self._refuse("a list with more than 4294967295 values")
        self._values(counts.astype(np.uint32))

    def _take(self, content: Any) -> Type:
        if content.is_numpy:
            return self._numpy(content)
        if content.is_indexed and not content.is_option:
            return self._take(content.project().to_packed())
        if content.is_option:
            return self._option(content)
        if content.is_list and content.parameter("__array__") in ("string", "bytestring"):
            content = content.to_ListOffsetArray64(True)
            text = content.parameter("__array__") == "string"
            self._note(content, without="__array__")
            self._counts(np.asarray(content.offsets))
            self._values(np.asarray(content.content.data)[: content.offsets[-1]])
            return Text() if text else Bytes()
        if content.is_regular:
            self._note(content)
            return Fixed(content.size, self._take(content.content[: content.length * content.size]))
        if content.is_list:
            content = content.to_ListOffsetArray64(True)
            self._note(content)
            self._counts(np.asarray(content.offsets))
            return ListOf(self._take(content.content[: content.offsets[-1]]))
        if content.is_record:
            self._note(content)
            return Record(tuple((name, self._take(content.content(name))) for name in content.fields))
        if content.is_unknown:
            raise self._refuse("it has no values and no type; give it one, as with ak.values_astype")
        raise self._refuse(f"a dataset has no {type(content).__name__.removesuffix('Array').lower()} of types")

    def _numpy(self, content: Any) -> Type:
        data = np.asarray(content.data)
        if data.dtype.name not in SCALARS:
            raise self._refuse(f"a dataset has no values of type {data.dtype.name}")
        # The outermost dimension of an array with several is the first node.
        shape = data.shape[1:]
        for _ in shape:
            self._next += 1
        self._note(content)
        self._values(data)
        of: Type = Value(data.dtype.name)
        for size in reversed(shape):
            of = Fixed(size, of)
        return of

    def _option(self, content: Any) -> Type:
        self._note(content)
        content = content.to_IndexedOptionArray64()
        index = np.asarray(content.index)
        self._values((index >= 0).astype(np.uint8))
        return Maybe(self._take(content.project().to_packed()))


def form(of: Type, name: str, parameters: Parameters) -> dict[str, Any]:
    """The awkward form of a column whose buffers are read when they are touched. Keys of nodes are ``name@stream``."""
    return _form(of, name, _Numbers(parameters), iter(range(1 << 20)))


def _form(of: Type, name: str, numbers: _Numbers, streams: Iterator[int]) -> dict[str, Any]:
    own = numbers.next() or {}

    def inner(of: Type) -> dict[str, Any]:
        return _form(of, name, numbers, streams)

    made: dict[str, Any]
    match of:
        case Value(scalar):
            primitive = "float32" if scalar == "float16" else scalar
            made = {"class": "NumpyArray", "primitive": primitive, "form_key": f"{name}@{next(streams)}"}
        case Fixed(size, content):
            made = {"class": "RegularArray", "size": size, "content": inner(content)}
        case ListOf(content):
            key = f"{name}@{next(streams)}"
            made = {"class": "ListOffsetArray", "offsets": "i64", "form_key": key, "content": inner(content)}
        case Maybe(content):
            key = f"{name}@{next(streams)}"
            made = {"class": "IndexedOptionArray", "index": "i64", "form_key": key, "content": inner(content)}
        case Text() | Bytes():
            char, whole = ("char", "string") if isinstance(of, Text) else ("byte", "bytestring")
            key = f"{name}@{next(streams)}"
            chars: dict[str, Any] = {"class": "NumpyArray", "primitive": "uint8", "form_key": f"{name}@{next(streams)}"}
            chars["parameters"] = {"__array__": char}
            made = {"class": "ListOffsetArray", "offsets": "i64", "form_key": key, "content": chars}
            own["__array__"] = whole
        case Record(fields):
            names = None if own.pop("tuple", False) else [field for field, _ in fields]
            made = {"class": "RecordArray", "fields": names, "contents": [inner(content) for _, content in fields]}
    made["parameters"] = own
    return made


def buffers(of: Type, places: list[tuple[NDArray[Any], int, int]]) -> list[tuple[bool, NDArray[Any]]]:
    """The buffer of each stream, for a form of :func:`form`, and whether it has offsets or an index."""
    each = _Places(places, half=False)
    return [
        (True, each.integers()) if scalar is None else (False, each.values(scalar)) for scalar in _stream_scalars(of)
    ]


def _stream_scalars(of: Type) -> Iterator[str | None]:
    """For each stream the kind of its values; none: offsets or an index."""
    for inner in walk(of):
        match inner:
            case Value(scalar):
                yield scalar
            case ListOf() | Maybe():
                yield None
            case Text() | Bytes():
                yield None
                yield "uint8"
            case _:
                pass
