"""Two datasets whose events are matched by the values of some columns."""

from __future__ import annotations

from typing import Any, Literal

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from . import _dataset
from ._errors import Invalid
from ._filter import Filter, is_glob, matcher, no_column

# Keys that an error names.
_NAMED = 5


class Joined:
    """Columns of both datasets. Only the key columns are read to match; the others when they are asked for."""

    def __init__(
        self,
        left: _dataset.Dataset,
        right: _dataset.Dataset,
        on: tuple[str, ...],
        how: Literal["left", "inner"],
    ) -> None:
        if how not in ("left", "inner"):
            raise Invalid(f"how={how!r}: 'left' or 'inner'")
        if not on:
            raise Invalid("no key columns")
        self._left, self._right, self._on, self._how = left, right, on, how
        self._place = _match(_keys(left, on), _keys(right, on), on, left.url, right.url)
        self._kept = np.flatnonzero(self._place >= 0) if how == "inner" else None

    @property
    def num_entries(self) -> int:
        """Events."""
        return len(self._place) if self._kept is None else len(self._kept)

    def __len__(self) -> int:
        return self.num_entries

    @property
    def matched(self) -> int:
        """Events that are in both."""
        return int(np.count_nonzero(self._place >= 0))

    def keys(self, filter_name: Filter = None) -> list[str]:
        """Names of the columns: those of the left one, and those of the right one that the left one lacks."""
        chosen = matcher(filter_name)
        names = list(self._left) + [name for name in self._right if name not in self._left]
        return [name for name in names if chosen(name)]

    def __getitem__(self, name: str) -> ak.Array:
        return self.arrays([name])[name]

    def arrays(
        self,
        names: _dataset.Names = None,
        *,
        filter_name: Filter = None,
        entry_start: int | None = None,
        entry_stop: int | None = None,
    ) -> ak.Array:
        """Columns of a range of events of the join. In a left join, those of the other dataset are options."""
        chosen: list[str] = []
        for name in [names] if isinstance(names, str) else names or []:
            matched = self.keys(name) if is_glob(name) else [name] if name in self._left or name in self._right else []
            if not matched:
                raise no_column(f"{self._left.url} and {self._right.url}", name, self.keys())
            chosen += matched
        if names is None or filter_name is not None:
            chosen += self.keys(filter_name)
        chosen = list(dict.fromkeys(chosen))
        start, stop, _ = slice(entry_start, entry_stop).indices(self.num_entries)
        stop = max(start, stop)
        rows = np.arange(start, stop) if self._kept is None else self._kept[start:stop]
        of_left = [name for name in chosen if name in self._left]
        of_right = [name for name in chosen if name not in self._left]
        columns = _rows(self._left, of_left, rows) | _rows(
            self._right, of_right, self._place[rows], self._how == "left"
        )
        layouts = [columns[name].layout for name in chosen]
        return ak.Array(ak.contents.RecordArray(layouts, chosen, length=stop - start))

    def __repr__(self) -> str:
        return f"<Joined {self._left.url!r} with {self._right.url!r} on {self._on}: {self.num_entries} events>"


def _rows(
    dataset: _dataset.Dataset, names: list[str], rows: NDArray[np.int64], option: bool = False
) -> dict[str, ak.Array]:
    """These events of columns; -1 is none. Only the range that has them is read."""
    if not names:
        return {}
    there = rows[rows >= 0]
    first, last = (int(there.min()), int(there.max()) + 1) if len(there) else (0, 0)
    read = dataset.arrays(names, entry_start=first, entry_stop=last, how="dict")
    if not option:
        whole = len(rows) == last - first and bool(np.all(np.diff(rows) == 1))
        return {name: array if whole else array[rows - first] for name, array in read.items()}
    index = ak.index.Index64(np.where(rows >= 0, rows - first, -1))
    return {
        name: ak.Array(ak.contents.IndexedOptionArray.simplified(index, array.layout)) for name, array in read.items()
    }


def _keys(dataset: _dataset.Dataset, on: tuple[str, ...]) -> NDArray[Any]:
    columns = []
    for name, array in dataset.arrays(list(on), how="dict").items():
        values = np.asarray(ak.to_numpy(array, allow_missing=False)) if array.ndim == 1 else None
        if values is None or values.dtype.kind not in "iub":
            raise Invalid(f"{dataset.url}: column {name}: keys are flat integers, not {array.type.content}")
        columns.append((name, values))
    # One width and sign for both datasets: keys are compared as unsigned patterns of 64 bits.
    keys = np.empty(dataset.num_entries, dtype=[(name, np.uint64) for name, _ in columns])
    for name, values in columns:
        keys[name] = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    return keys


def _match(
    left: NDArray[Any], right: NDArray[Any], on: tuple[str, ...], left_url: str, right_url: str
) -> NDArray[np.int64]:
    """For each event of the left one its place in the right one, or -1."""
    both = np.concatenate([left, right])
    order = np.lexsort([both[name] for name in reversed(on)])
    ordered = both[order]
    same = ordered[1:] == ordered[:-1]
    of_right = order >= len(left)
    for url, side in ((left_url, False), (right_url, True)):
        twice = same & (of_right[1:] == side) & (of_right[:-1] == side)
        if twice.any():
            named = ", ".join(str(tuple(int(part) for part in key)) for key in np.unique(ordered[1:][twice])[:_NAMED])
            raise Invalid(f"{url}: keys ({', '.join(on)}) that are there more than once: {named}")
    place = np.full(len(left), -1, dtype=np.int64)
    # Equal neighbours are one of each side: the sort is stable, so the left one comes first.
    pairs = np.flatnonzero(same)
    place[order[pairs]] = order[pairs + 1] - len(left)
    return place
