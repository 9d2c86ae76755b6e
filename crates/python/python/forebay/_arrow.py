"""Arrow and Parquet through pyarrow, in and out, batch by batch.

out: batch ──▶ awkward arrays ──▶ record batch (titles and notes in the metadata of its fields)
in:  which fields have a null anywhere? ──▶ row groups ──▶ awkward arrays, options only where a null is
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import pyarrow as pa
import pyarrow.parquet as pq

from . import _dataset, _types
from ._errors import Invalid
from ._filter import Filter, matcher
from ._write import Writer

# Key of the metadata of a field with what a dataset knows besides the title.
_KEY = b"forebay"


# Out.


def reader(dataset: _dataset.Dataset, chosen: list[tuple[str, str]] | None = None) -> pa.RecordBatchReader:
    """Record batches, one a batch of the dataset."""
    names = chosen if chosen is not None else [(name, name) for name in dataset.keys()]  # noqa: SIM118

    def batch(start: int, stop: int) -> pa.RecordBatch:
        layouts = dataset._read([name for _, name in names], start, stop, half=True)
        arrays = []
        fields = []
        for (asked, name), layout in zip(names, layouts, strict=True):
            table = ak.to_arrow_table(
                ak.contents.RecordArray([layout], [asked], length=stop - start), extensionarray=False
            )
            arrays.append(table.column(0).combine_chunks())
            fields.append(table.schema.field(0).with_metadata(_metadata(dataset._products[name])))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    # The schema is that of no events.
    schema = batch(0, 0).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for start, stop in dataset._native.batches(dataset.table_name):
            yield batch(start, stop)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _metadata(product: _dataset.Product) -> dict[bytes, bytes]:
    said = {"type_name": product.type_name, "counter": product.counter, "notes": dict(product.notes)}
    return {b"title": product.title.encode(), _KEY: json.dumps(said).encode()}


def to_parquet(
    dataset: _dataset.Dataset,
    path: str | os.PathLike[str],
    chosen: list[tuple[str, str]],
    widen: bool,
    options: Mapping[str, Any],
) -> None:
    """Writes columns to a Parquet file."""
    for asked, name in chosen:
        if _has(dataset._products[name].type, lambda of: isinstance(of, _types.Record) and not of.fields):
            raise Invalid(f"column {asked}: Parquet has no record without fields")
        lossy = _has(dataset._products[name].type, lambda of: isinstance(of, _types.Fixed) and of.size == 0)
        if lossy and not widen:
            raise Invalid(f"column {asked}: Parquet has no fixed arrays of no values; widen=True makes lists of them")
    source = reader(dataset, chosen)
    with pq.ParquetWriter(os.fspath(path), source.schema, **options) as writer:
        for batch in source:
            writer.write_batch(batch)


def _has(of: _types.Type, wanted: Callable[[_types.Type], bool]) -> bool:
    return any(wanted(inner) for inner in _types.walk(of))


# In.


@dataclass
class _Nulls:
    """Whether a field, and what is in it, has a null anywhere."""

    here: bool = False
    inner: dict[str, _Nulls] = field(default_factory=dict)

    def take(self, array: Any) -> None:
        self.here = self.here or array.null_count > 0
        kind = array.type
        if pa.types.is_nested(kind):
            present = array.filter(array.is_valid()) if array.null_count else array
            if pa.types.is_struct(kind):
                for at in range(kind.num_fields):
                    self.inner.setdefault(kind.field(at).name, _Nulls()).take(present.field(at))
            elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
                self.inner.setdefault("", _Nulls()).take(present.flatten())

    def strip(self, layout: Any) -> Any:
        """The layout with options just where a null is."""
        if layout.is_option:
            if not self.here:
                content = layout.content if type(layout) is ak.contents.UnmaskedArray else layout.project()
                return self.strip(content)
            return ak.contents.IndexedOptionArray.simplified(
                layout.to_IndexedOptionArray64().index, self._inside(layout.to_IndexedOptionArray64().content)
            )
        stripped = self._inside(layout)
        return ak.contents.UnmaskedArray.simplified(stripped) if self.here else stripped

    def _inside(self, layout: Any) -> Any:
        if layout.is_option:
            return self.strip(layout)
        if layout.is_record:
            contents = [self.inner.get(name, _Nulls()).strip(layout.content(name)) for name in layout.fields]
            return ak.contents.RecordArray(contents, layout.fields, length=len(layout))
        if layout.parameter("__array__") in ("string", "bytestring"):
            return layout
        if layout.is_regular:
            content = self.inner.get("", _Nulls()).strip(layout.content)
            return ak.contents.RegularArray(content, layout.size, zeros_length=len(layout))
        if layout.is_list:
            layout = layout.to_ListOffsetArray64(True)
            return ak.contents.ListOffsetArray(layout.offsets, self.inner.get("", _Nulls()).strip(layout.content))
        return layout


def _column(name: str, array: Any, nulls: _Nulls) -> ak.Array:
    try:
        layout = ak.from_arrow(array, highlevel=False)
    except Exception as error:
        raise Invalid(f"column {name}: a dataset has no values of Arrow's type {array.type}: {error}") from error
    return ak.Array(nulls.strip(layout))


def _about(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    about: dict[str, dict[str, Any]] = {}
    for one in schema:
        metadata = one.metadata or {}
        about[one.name] = {"title": metadata.get(b"title", b"").decode(), "type_name": str(one.type)}
        if _KEY in metadata:
            about[one.name].update(json.loads(metadata[_KEY]))
    return about


def _write(
    url: str | os.PathLike[str],
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    nulls: Mapping[str, _Nulls],
    table: str,
    note: str,
    facts: Mapping[str, Any],
) -> _dataset.Dataset:
    about = _about(schema)
    with Writer(url, "create") as writer:
        empty = True
        for batch in batches:
            arrays = {name: _column(name, batch.column(at), nulls[name]) for at, name in enumerate(schema.names)}
            writer.push(table, arrays, about)
            empty = False
        if empty:
            arrays = {one.name: _column(one.name, pa.array([], one.type), nulls[one.name]) for one in schema}
            writer.push(table, arrays, about)
        for name, value in facts.items():
            writer.fact(name, value)
        version = writer.commit(note)
    return _dataset.open(url, version, table)


def _declared(one: pa.Field) -> _Nulls:
    nulls = _Nulls(one.nullable)
    kind = one.type
    if pa.types.is_struct(kind):
        nulls.inner = {kind.field(at).name: _declared(kind.field(at)) for at in range(kind.num_fields)}
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        nulls.inner = {"": _declared(kind.value_field)}
    return nulls


def from_arrow(source: Any, url: str | os.PathLike[str], *, table: str = "Events") -> _dataset.Dataset:
    """Writes a dataset from a table of Arrow; see :func:`forebay.from_arrow`."""
    if isinstance(source, pa.RecordBatchReader):
        nulls = {one.name: _declared(one) for one in source.schema}
        return _write(url, source.schema, iter(source), nulls, table, "from Arrow", {})
    whole = source if isinstance(source, pa.Table) else pa.table(source)
    nulls = {}
    for name, column in zip(whole.column_names, whole.columns, strict=True):
        nulls[name] = _Nulls()
        for chunk in column.chunks:
            nulls[name].take(chunk)
    return _write(url, whole.schema, iter(whole.to_batches()), nulls, table, "from Arrow", {})


def from_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    url: str | os.PathLike[str],
    columns: Filter = None,
    *,
    table: str = "Events",
) -> _dataset.Dataset:
    """Writes a dataset from Parquet files; see :func:`forebay.from_parquet`."""
    paths = [os.fspath(path)] if isinstance(path, str | os.PathLike) else [os.fspath(one) for one in path]
    if not paths:
        raise Invalid("no files")
    chosen = matcher(columns)
    nulls: dict[str, _Nulls] = {}
    schema: pa.Schema | None = None
    sources = []
    for one in paths:
        with pq.ParquetFile(one) as file:
            kept = [each for each in file.schema_arrow if chosen(each.name)]
            if schema is not None and schema.names != [each.name for each in kept]:
                raise Invalid(f"{one}: its columns are not those of {paths[0]}")
            schema = schema or pa.schema(kept)
            open_columns = _open_columns(file, [each.name for each in kept])
            for each in kept:
                nulls.setdefault(each.name, _Nulls())
            for group in range(file.metadata.num_row_groups):
                for name in open_columns:
                    for chunk in file.read_row_group(group, [name]).column(0).chunks:
                        nulls[name].take(chunk)
            sources.append({"file": one, "events": file.metadata.num_rows})
    assert schema is not None  # noqa: S101
    known = schema

    def batches() -> Iterator[pa.RecordBatch]:
        for one in paths:
            with pq.ParquetFile(one) as file:
                for group in range(file.metadata.num_row_groups):
                    yield from file.read_row_group(group, known.names).to_batches()

    return _write(url, known, batches(), nulls, table, "from Parquet", {"sources": sources})


def _open_columns(file: pq.ParquetFile, names: list[str]) -> list[str]:
    """Columns that may have nulls, as far as statistics tell."""
    closed = dict.fromkeys(names, True)
    metadata = file.metadata
    for group in range(metadata.num_row_groups):
        of_group = metadata.row_group(group)
        for at in range(of_group.num_columns):
            leaf = of_group.column(at)
            name = leaf.path_in_schema.split(".")[0]
            statistics = leaf.statistics
            without = statistics is not None and statistics.has_null_count and statistics.null_count == 0
            # A dot may be part of the column's name, and then the first part is none.
            for known in [name] if name in closed else names:
                closed[known] = closed[known] and without
    return [name for name, is_closed in closed.items() if not is_closed]
