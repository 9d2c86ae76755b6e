"""NanoEvents of coffea on a dataset: the schemas are coffea's, the columns are read when they are touched.

    NanoEventsFactory ──key of a buffer──▶ Columns (a mapping of coffea's) ──▶ _lazy.Source ──▶ dataset

The names of coffea that are no public interface (`_lazify_form`) are used in this file only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import awkward as ak
from coffea.nanoevents import NanoAODSchema, NanoEventsFactory
from coffea.nanoevents.mapping.base import BaseSourceMapping
from coffea.nanoevents.mapping.uproot import CannotBeNanoEvents, _lazify_form
from coffea.nanoevents.trace import trace
from coffea.nanoevents.util import tuple_to_key
from coffea.processor import Runner as CoffeaRunner
from coffea.processor.executor import WorkItem

from . import _dataset, _types
from ._errors import Invalid
from ._lazy import Source, opened

# Columns to read together: their names, or a function of the events that is traced for them.
Preload = Sequence[str] | Callable[[ak.Array], Any]


class _Opener:
    """Opens the source again in another process."""

    def __init__(self, source: Source) -> None:
        self._dataset, self._range = source.dataset, (source.start, source.stop)

    def open_uuid(self, uuid: str) -> Mapping[str, Source]:
        """The source below each path."""
        return {self._dataset.table_name: Source(self._dataset, *self._range)}


class Columns(BaseSourceMapping):  # type: ignore[misc]
    """Columns of a dataset, as coffea asks for them."""

    @classmethod
    def _extract_base_form(cls, source: Source) -> dict[str, Any]:
        return _base_form(source.dataset)

    def key_root(self) -> str:
        """The first part of keys in the cache."""
        return "forebay:"

    def get_column_handle(self, columnsource: Source, name: str, allow_missing: bool) -> ak.Array:
        """A column with virtual buffers."""
        return columnsource.column(name)

    def extract_column(self, columnhandle: ak.Array, start: int, stop: int, allow_missing: bool, **_: Any) -> ak.Array:
        """The same: a source has the events of its range only."""
        return columnhandle

    def __len__(self) -> int:
        return int(self._stop - self._start)

    def __getstate__(self) -> dict[str, Any]:
        # Sources are opened again where they are needed.
        return {**self.__dict__, "_cache": {}}

    # Coffea asks for keys and never for all of them.
    __iter__ = None


def _form_of(dataset: _dataset.Dataset, name: str) -> dict[str, Any]:
    product = dataset._products[name]
    form = ak.forms.from_dict(_types.form(product.type, name, product.parameters)).to_dict()
    lazy: dict[str, Any] = _lazify_form(
        _without_keys(form),
        f"{name},!load",
        docstr=product.title,
        typestr=product.type_name or _types.shown(product.type),
    )
    return lazy


def _without_keys(form: dict[str, Any]) -> dict[str, Any]:
    form["form_key"] = None
    for inner in [form["content"]] if "content" in form else form.get("contents", []):
        _without_keys(inner)
    return form


def _base_form(dataset: _dataset.Dataset) -> dict[str, Any]:
    """The form of all columns. The name of a split object is a record of its leaves, as coffea has it from ROOT."""
    forms: dict[str, dict[str, Any]] = {}
    left_out: list[str] = []
    for name, product in dataset._products.items():
        if any(sign in name for sign in ",!") or _lacks(product.type):
            left_out.append(name)
            continue
        try:
            form = _form_of(dataset, name)
        except (CannotBeNanoEvents, ValueError):
            left_out.append(name)
            continue
        group, leaf = product.notes.get("group", (None, None))
        if group is not None:
            record = forms.setdefault(group, _record())
            record["fields"].append(leaf)
            record["contents"].append(_form_of(dataset, name))
        forms[name] = form
    if left_out:
        some = ", ".join(left_out[:10]) + (" ..." if len(left_out) > 10 else "")
        warnings.warn(
            f"{dataset.url}: {len(left_out)} columns are left out of NanoEvents, which cannot hold them "
            f"(options, or names with , or !): {some}",
            stacklevel=3,
        )
    base = _record()
    base["fields"], base["contents"] = list(forms), list(forms.values())
    base["parameters"] = {"__doc__": dataset.facts.get("titles", {}).get(dataset.table_name, "")}
    base["typenames"] = {name: product.type_name for name, product in dataset._products.items()}
    return base


def _record() -> dict[str, Any]:
    return {"class": "RecordArray", "fields": [], "contents": [], "parameters": {}, "form_key": None}


def _lacks(of: _types.Type) -> bool:
    return any(isinstance(inner, _types.Maybe) for inner in _types.walk(of))


def nanoevents(
    url: str | os.PathLike[str] | _dataset.Dataset,
    version: int | None = None,
    table: str | None = None,
    *,
    schemaclass: Any = NanoAODSchema,
    metadata: Mapping[str, Any] | None = None,
    entry_start: int | None = None,
    entry_stop: int | None = None,
    preload: Preload | None = None,
    access_log: list[Any] | None = None,
) -> ak.Array:
    """NanoEvents of coffea, whose columns are read when they are first touched.

    :param url: a place, or a dataset that is open.
    :param schemaclass: a schema of coffea, such as ``PHYSLITESchema``.
    :param metadata: what ``events.metadata`` has.
    :param preload: columns that are read together at once: their names, or a function of the events, which is traced
        without reading.
    :param access_log: is told of each column that is touched.
    """
    dataset = opened(url, version, table)
    start, stop = dataset._range(entry_start, entry_stop)
    source = Source(dataset, start, stop)
    key = (f"{dataset.uuid}-{dataset.version}", dataset.table_name, f"{start}-{stop}")
    mapping = Columns(_Opener(source), start, stop, cache={}, access_log=access_log, virtual=True)
    mapping.preload_column_source(key[0], key[1], source)
    base = mapping._extract_base_form(source)
    if metadata is not None:
        base["parameters"]["metadata"] = dict(metadata)
    events = NanoEventsFactory(schemaclass(base), mapping, tuple_to_key(key), mode="virtual").events()
    if preload is not None:
        source.prefetch(trace(preload, events) if callable(preload) else list(preload))
    return events


class Runner(CoffeaRunner):  # type: ignore[misc]
    """coffea's Runner over datasets: one work item a batch, made from the root alone.

        >>> run = forebay.Runner(executor=processor.FuturesExecutor(workers=4), schema=NanoAODSchema)
        >>> out = run({"ttbar": "s3://bucket/ttbar"}, MyProcessor())

    A dataset is a place, an open dataset, or a dictionary with `url`, and where wanted `version`, `table`, `metadata`
    and `preload`: names of columns that are read together for each batch. ``preload=True`` of a call traces the
    processor for them.
    """

    def __call__(
        self,
        fileset: Mapping[str, Any] | Sequence[WorkItem],
        processor_instance: Any,
        *,
        preload: bool = False,
        **options: Any,
    ) -> Any:
        """Runs a processor on all batches, and returns the sum of what it returns."""
        items = self.work_items(fileset) if isinstance(fileset, Mapping) else list(fileset)
        if preload:
            items = _traced(items, processor_instance, self.schema)
        return super().__call__(items, processor_instance, **options)

    @staticmethod
    def work_items(fileset: Mapping[str, Any]) -> list[WorkItem]:
        """One work item for each batch of the datasets. Only their roots are read."""
        items = []
        for name, said in fileset.items():
            one = dict(said) if isinstance(said, Mapping) else {"url": said}
            unknown = set(one) - {"url", "version", "table", "metadata", "preload"}
            if unknown or "url" not in one:
                raise Invalid(f"{name}: a dataset has url, version, table, metadata, preload; not {sorted(unknown)}")
            dataset = opened(one["url"], one.get("version"), one.get("table"))
            for part in dataset.partitions():
                meta = {**one.get("metadata", {}), "version": part.version}
                columns = frozenset(one["preload"]) if one.get("preload") else None
                uuid = bytes.fromhex(dataset.uuid)
                items.append(
                    WorkItem(name, part.url, part.table, part.entry_start, part.entry_stop, uuid, meta, columns)
                )
        return items

    @staticmethod
    def _work_function(
        format: str,  # noqa: A002
        xrootdtimeout: int,
        schema: Any,
        use_dataframes: bool,
        savemetrics: bool,
        item: Any,
        processor_instance: Any,
        *_: Any,
        **__: Any,
    ) -> Any:
        if isinstance(processor_instance, str) and processor_instance == "heavy":
            item, processor_instance = item
        if isinstance(processor_instance, bytes):
            import cloudpickle
            import lz4.frame

            processor_instance = cloudpickle.loads(lz4.frame.decompress(processor_instance))
        metadata = {
            "dataset": item.dataset,
            "filename": item.filename,
            "treename": item.treename,
            "entrystart": item.entrystart,
            "entrystop": item.entrystop,
            "fileuuid": item.fileuuid.hex(),
            **item.usermeta,
        }
        dataset = _dataset.open(item.filename, item.usermeta["version"], item.treename)
        log: list[Any] = []
        events = nanoevents(
            dataset,
            schemaclass=schema,
            metadata=metadata,
            entry_start=item.entrystart,
            entry_stop=item.entrystop,
            preload=sorted(item.preload) if item.preload else None,
            access_log=log,
        )
        process = getattr(processor_instance, "process", processor_instance)
        out = process(events)
        if out is None:
            raise Invalid("process() returned nothing: it returns an accumulator")
        done = {"out": out, "processed": {item}}
        if savemetrics:
            columns = {accessed.branch for accessed in log}
            done["metrics"] = {"bytesread": dataset.bytes_read, "columns": columns, "entries": len(events)}
        return done


def _traced(items: list[WorkItem], processor_instance: Any, schema: Any) -> list[WorkItem]:
    """The items with the columns that the processor touches, traced once for each dataset."""
    from dataclasses import replace

    columns: dict[tuple[str, str, str], frozenset[str]] = {}
    traced = []
    for item in items:
        key = (item.dataset, item.filename, item.treename)
        if key not in columns:
            metadata = {"dataset": item.dataset, "filename": item.filename, **item.usermeta}
            events = nanoevents(
                item.filename,
                item.usermeta["version"],
                item.treename,
                schemaclass=schema,
                metadata=metadata,
                entry_start=item.entrystart,
                entry_stop=item.entrystop,
            )
            columns[key] = trace(getattr(processor_instance, "process", processor_instance), events)
        traced.append(replace(item, preload=columns[key]))
    return traced
