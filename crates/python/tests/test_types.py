"""Every type is read as it was written, bit by bit."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import pytest

import forebay
from helpers import same_bits

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def scalars() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {}
    for name in INTEGERS:
        limits = np.iinfo(name)
        columns[name] = rng.integers(limits.min, limits.max, 300, dtype=name, endpoint=True)
        columns[name][:2] = limits.min, limits.max
    for name, pattern in (("float32", "uint32"), ("float64", "uint64")):
        columns[name] = rng.integers(0, np.iinfo(pattern).max, 300, dtype=pattern).view(name)
        columns[name][:4] = -0.0, np.inf, -np.inf, np.nan
    columns["bool"] = rng.random(300) < 0.5
    columns["big_endian"] = columns["int32"].astype(">i4")
    return columns


def nested() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    counts = rng.poisson(2, 300)
    values = rng.normal(size=counts.sum()).astype(np.float32)
    jagged = ak.unflatten(values, counts)
    inner = rng.poisson(1, counts.sum())
    doubly = ak.unflatten(ak.unflatten(rng.integers(0, 99, inner.sum(), dtype=np.int16), inner), counts)
    words = ak.Array(["", "µ", "a" * 70, "x\0y"] * 75)
    return {
        "jagged": jagged,
        "doubly": doubly,
        "fixed": rng.normal(size=(300, 3)),
        "fixed_of_fixed": rng.integers(0, 9, (300, 2, 2)),
        "fixed_of_lists": ak.to_regular(ak.unflatten(jagged, 2), axis=1)[np.arange(300) // 2],
        "lists_of_fixed": ak.unflatten(ak.Array(rng.normal(size=(int(counts.sum()), 2))), counts),
        "text": words,
        "bytes": ak.Array([b"", b"\xff\x00", b"abc"] * 100),
        "lists_of_text": ak.unflatten(words, [2] * 150)[np.arange(300) % 150],
        "option": ak.mask(ak.Array(rng.normal(size=300)), rng.random(300) < 0.7),
        "option_of_list": ak.mask(jagged, rng.random(300) < 0.7),
        "option_of_text": ak.mask(words, rng.random(300) < 0.7),
        "list_of_options": ak.mask(jagged, jagged > 0),
        "record": ak.zip({"x": jagged, "y": np.arange(300)}, depth_limit=1),
        "list_of_records": ak.zip({"pt": jagged, "n": ak.values_astype(jagged, np.int8)}, with_name="Momentum"),
        "pair": ak.zip((np.arange(300), rng.normal(size=300))),
        "nothing": ak.values_astype(ak.unflatten(np.zeros(0, np.int64), [0] * 300), np.int64),
    }


@pytest.mark.parametrize("batch_events", [None, 256])
@pytest.mark.parametrize("columns", [scalars, nested])
def test_a_column_is_read_as_it_was_written(columns: Any, batch_events: int | None, place: str) -> None:
    written = columns()
    ds = forebay.write(place, written, batch_events=batch_events)
    read = ds.arrays(how="dict")
    for name, array in written.items():
        expected = ak.Array(array.astype("i4") if name == "big_endian" else array)
        assert same_bits(read[name], expected), name
        assert same_bits(ds[name].array(100, 290), expected[100:290]), name


def test_half_floats_are_kept_and_handed_out_as_float32(place: str) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    ds = forebay.write(place, {"half": halves, "jagged": ak.unflatten(halves, [2] * 32768)[np.arange(65536) // 2]})
    read = ds["half"].array()
    assert str(read.type.content) == "float32"
    assert np.asarray(read).tobytes() == halves.astype(np.float32).tobytes()
    assert ds["jagged"].typename == "var * float32"
    assert sum(ds.stored_bytes("half").values()) < 4 * 65536


def test_names_of_records_and_parameters_stay(place: str) -> None:
    muons = ak.zip({"pt": ak.Array([[1.0, 2.0], []]), "eta": ak.Array([[0.1, 0.2], []])}, with_name="Momentum")
    ds = forebay.write(place, {"muons": muons, "pair": ak.Array([(1, 2.5), (3, 4.5)])})
    read = ds.arrays()
    assert ak.parameters(read.muons[0])["__record__"] == "Momentum"
    assert ak.is_tuple(read.pair)
    # Also where other events do not have them, and the columns become options.
    forebay.append(place, {"other": [1]})
    union = forebay.open(place)["muons"].array()
    assert union.to_list() == [*muons.to_list(), None]
    assert ak.parameters(union[0])["__record__"] == "Momentum"


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (ak.Array([1, "two"]), "union"),
        (ak.Array([[], []]), "no type"),
        (np.array([1j, 2j]), "complex128"),
        (np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[s]"), "datetime64"),
    ],
)
def test_what_a_dataset_has_no_type_for_is_refused_by_name(array: Any, word: str, place: str) -> None:
    with pytest.raises(forebay.Invalid, match=f"column odd.*{word}"):
        forebay.write(place, {"odd": array})
    with pytest.raises(forebay.Invalid, match="no dataset"):
        forebay.open(place)


def test_arrays_have_the_memory_that_rust_decoded(place: str) -> None:
    counts = np.array([2, 0, 3])
    columns = {name: ak.unflatten(np.arange(5.0) + at, counts) for at, name in enumerate(["a", "b"])}
    read = forebay.write(place, columns).arrays()
    a, b = read.a.layout, read.b.layout
    # Counts are stored once, and their offsets are one array.
    assert np.shares_memory(a.offsets.data, b.offsets.data)
    base = a.content.data
    while isinstance(base.base, np.ndarray):
        base = base.base
    # The memory's owner is no array of NumPy's own.
    assert not base.flags.owndata
    assert type(base.base).__name__ == "PySliceContainer"
