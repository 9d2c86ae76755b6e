"""Comparison of arrays bit by bit."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np


def bits(layout: Any) -> list[Any]:
    """What an array is, however awkward lays it out: kinds of nodes, lengths, and the bytes of values."""
    if layout.is_option:
        layout = layout.to_IndexedOptionArray64()
        return ["option", (np.asarray(layout.index) >= 0).tobytes(), *bits(layout.project())]
    if layout.is_indexed:
        return bits(layout.project())
    if layout.is_list and not layout.is_regular:
        layout = layout.to_ListOffsetArray64(True)
        offsets = np.asarray(layout.offsets)
        kind = layout.parameter("__array__")
        return ["list", kind, np.diff(offsets).tobytes(), *bits(layout.content[: offsets[-1]])]
    if layout.is_regular and not layout.is_numpy:
        return ["fixed", layout.size, *bits(layout.content[: layout.length * layout.size])]
    if layout.is_record:
        return [
            "record",
            layout.is_tuple,
            *([name, *bits(layout.content(name)[: layout.length])] for name in layout.fields),
        ]
    if layout.is_numpy and layout.inner_shape:
        return bits(layout.to_RegularArray())
    values = np.ascontiguousarray(layout.data)
    return [values.dtype.name, values.tobytes()]


def same_bits(a: ak.Array, b: ak.Array) -> bool:
    """Whether two arrays have the same types, structure and bits: NaN is what it was, and -0.0 is not 0.0."""
    return len(a) == len(b) and bits(a.layout) == bits(b.layout)
