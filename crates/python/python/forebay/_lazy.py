"""Arrays whose buffers are read when they are touched.

awkward ──buffer──▶ Source: kept? ── no ──▶ offsets alone, or the column with its values ──▶ kept
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import awkward as ak
from numpy.typing import NDArray

from . import _dataset, _types
from ._filter import Filter


class Source:
    """Buffers of the columns of a range of events. What was read is kept, and may be used from several threads."""

    def __init__(self, dataset: _dataset.Dataset, start: int, stop: int) -> None:
        self.dataset, self.start, self.stop = dataset, start, stop
        #: Columns whose values were read, in the order in which they were touched.
        self.loaded: list[str] = []
        self._kept: dict[tuple[str, int], NDArray[Any]] = {}
        self._columns: dict[str, ak.Array] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self.stop - self.start

    def buffer(self, name: str, stream: int, structure: bool) -> NDArray[Any]:
        """One stream of a column. Offsets are read without the values."""
        with self._lock:
            if (name, stream) not in self._kept:
                self._read([name], values=not structure)
            return self._kept[name, stream]

    def prefetch(self, names: Iterable[str]) -> None:
        """Reads columns together, which costs fewer requests than one after the other."""
        with self._lock:
            known = set(self.loaded)
            wanted = [name for name in dict.fromkeys(names) if name in self.dataset._products and name not in known]
            if wanted:
                self._read(wanted, values=True)

    def _read(self, names: list[str], values: bool) -> None:
        native = self.dataset._native
        read = native.read(self.dataset.table_name, names, self.start, self.stop, values)
        for name, (text, places) in zip(names, read, strict=True):
            of = _types.parse(text)
            for stream, (integers, buffer) in enumerate(_types.buffers(of, places)):
                if values or integers:
                    self._kept.setdefault((name, stream), buffer)
            if values:
                self.loaded.append(name)

    def container(self) -> Mapping[str, Callable[[], NDArray[Any]]]:
        """Buffers by the keys of :func:`_types.form`."""
        return _Container(self)

    def column(self, name: str) -> ak.Array:
        """A column with virtual buffers."""
        with self._lock:
            if name not in self._columns:
                product = self.dataset._products[name]
                form = ak.forms.from_dict(_types.form(product.type, name, product.parameters))
                self._columns[name] = ak.from_buffers(form, len(self), self.container())
            return self._columns[name]


class _Container(Mapping[str, Callable[[], NDArray[Any]]]):
    """Gives a function that reads for every key, so that no list of keys is needed."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, key: str) -> Callable[[], NDArray[Any]]:
        rest, _, attribute = key.rpartition("-")
        name, _, stream = rest.rpartition("@")
        return lambda: self._source.buffer(name, int(stream), attribute != "data")

    def __len__(self) -> int:
        return len(self._source.dataset._products)

    # It has a function for each key that is asked for, and no keys of its own.
    __iter__ = None  # type: ignore[assignment]


def opened(url: str | os.PathLike[str] | _dataset.Dataset, version: int | None, table: str | None) -> _dataset.Dataset:
    """The dataset that is meant."""
    if not isinstance(url, _dataset.Dataset):
        return _dataset.open(url, version, table)
    dataset = url if version is None else url.at(version)
    return dataset if table is None else dataset.table(table)


def lazy(
    url: str | os.PathLike[str] | _dataset.Dataset,
    version: int | None = None,
    table: str | None = None,
    *,
    filter_name: Filter = None,
    entry_start: int | None = None,
    entry_stop: int | None = None,
) -> ak.Array:
    """A record array of all columns, each of which is read when it is first touched, and then kept.

    :param url: a place, or a dataset that is open.
    :param filter_name: see :meth:`Dataset.keys`.
    """
    dataset = opened(url, version, table)
    start, stop = dataset._range(entry_start, entry_stop)
    source = Source(dataset, start, stop)
    names = dataset.keys(filter_name)
    products = dataset._products
    form = {
        "class": "RecordArray",
        "fields": names,
        "contents": [_types.form(products[name].type, name, products[name].parameters) for name in names],
    }
    return ak.from_buffers(ak.forms.from_dict(form), stop - start, source.container())
