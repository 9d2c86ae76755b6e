"""Writes awkward arrays as versions of datasets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from . import _dataset, _native, _types
from ._errors import Invalid
from ._filter import no_column

# A record array, arrays by name, or some after the other.
Chunk: TypeAlias = ak.Array | Mapping[str, Any]
Columns: TypeAlias = Chunk | Iterable[Chunk]

# What is said of a column besides its values: title, name of its type, counter, notes.
Description = Mapping[str, Any]


class Writer:
    """Writes one version. Left without :meth:`commit`, it changes nothing."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        change: str,
        *,
        batch_events: int | None = None,
        target_bytes: int | None = None,
        best: bool = False,
        threads: int | None = None,
    ) -> None:
        self._native = _native.Writer(os.fspath(url), change, batch_events, target_bytes, best, threads)

    def push(self, table: str, arrays: Mapping[str, Any], about: Mapping[str, Description] | None = None) -> int:
        """Adds events of a table and returns how many. The columns have the same number of them: arrays or streams."""
        pushed: list[tuple[tuple[str, str, str, str, str, str], list[NDArray[np.uint8]]]] = []
        events: int | None = None
        for name, array in arrays.items():
            said = (about or {}).get(name, {})
            column = array if isinstance(array, _types.Streams) else _types.Streams(name, array)
            if events is not None and column.events != events:
                raise Invalid(f"column {name} has {column.events} events; the others have {events}")
            events = column.events
            notes = dict(said.get("notes", {}))
            if column.parameters:
                notes["parameters"] = column.parameters
                notes["type"] = str(column.type)
            elif notes.get("type") != str(column.type):
                # Of another type than before.
                notes.pop("parameters", None)
                notes.pop("type", None)
            product = (
                name,
                str(column.type),
                str(said.get("title", column.title)),
                str(said.get("type_name", "")),
                str(said.get("counter", "")),
                json.dumps(notes),
            )
            pushed.append((product, column.streams))
        if events is None:
            raise Invalid("no columns")
        self._native.push(table, events, pushed)
        return events

    def fact(self, name: str, value: Any) -> None:
        """Notes a fact of the dataset. Lists are appended to those of earlier versions."""
        self._native.fact(name, json.dumps(value))

    def commit(self, note: str = "") -> int:
        """Makes what was pushed the next version, and returns its number."""
        return self._native.commit(note)

    def close(self) -> None:
        """Ends the writer."""
        self._native.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def chunks(columns: Columns) -> Iterator[dict[str, Any]]:
    """The arrays by name, some events after the other."""
    if isinstance(columns, ak.Array):
        if not columns.fields:
            raise Invalid("a record array is written: it has a field for each column")
        yield {name: columns[name] for name in columns.fields}
    elif isinstance(columns, Mapping):
        yield dict(columns)
    elif isinstance(columns, Iterable):
        for chunk in columns:
            if not isinstance(chunk, ak.Array | Mapping):
                raise Invalid(f"columns are a record array or a mapping of arrays, not {type(chunk).__name__}")
            yield from chunks(chunk)
    else:
        raise Invalid(f"columns are a record array, a mapping of arrays, or several, not {type(columns).__name__}")


def write(
    url: str | os.PathLike[str],
    arrays: Columns,
    *,
    table: str = "Events",
    titles: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
    batch_events: int | None = None,
    note: str = "write",
) -> _dataset.Dataset:
    """Writes a new dataset and returns it.

    :param arrays: a record array, a mapping of arrays (awkward, NumPy, lists), or an iterable of them, some events
        after the other.
    :param titles: one line for people for some of the columns.
    :param facts: what is noted of the dataset.
    :param batch_events: events of a full batch, a multiple of 256; as many as have 64 MiB in memory without.
    :raises Conflict: where there is a dataset already.
    """
    version = change(
        url, "create", arrays, table=table, titles=titles, facts=facts, batch_events=batch_events, note=note
    )
    return _dataset.open(url, version, table)


def append(
    url: str | os.PathLike[str],
    arrays: Columns,
    *,
    table: str = "Events",
    titles: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
    note: str = "append",
) -> _dataset.Dataset:
    """Appends events, as a new version, which it returns. New columns are missing in the events before."""
    version = change(url, "append", arrays, table=table, titles=titles, facts=facts, note=note)
    return _dataset.open(url, version, table)


def change(
    url: str | os.PathLike[str],
    change: str,
    columns: Columns,
    *,
    table: str,
    titles: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
    batch_events: int | None = None,
    note: str = "",
    near: Mapping[str, _dataset.Product] | None = None,
) -> int:
    """Writes a version and returns its number. `near`: the columns that there are, whose titles stay."""
    with Writer(url, change, batch_events=batch_events) as writer:
        names: Sequence[str] = []
        for chunk in chunks(columns):
            names = list(chunk)
            if change == "replace" and near is not None:
                for name in names:
                    if name not in near:
                        raise no_column(os.fspath(url), name, list(near))
            writer.push(table, chunk, _about(names, titles, near))
        for name, value in (facts or {}).items():
            writer.fact(name, value)
        return writer.commit(note or f"{change} {', '.join(names[:10])}{' ...' if len(names) > 10 else ''}")


def _about(
    names: Sequence[str], titles: Mapping[str, str] | None, near: Mapping[str, _dataset.Product] | None
) -> dict[str, Description]:
    about: dict[str, Description] = {}
    for name in names:
        said: dict[str, Any] = {}
        if near is not None and name in near:
            product = near[name]
            said = {"title": product.title, "type_name": product.type_name, "counter": product.counter}
            said["notes"] = {"aliases": product.aliases} if product.aliases else {}
        if titles is not None and name in titles:
            said["title"] = titles[name]
        about[name] = said
    return about
