"""A version of a dataset, read as awkward arrays.

Dataset ──names──▶ _native.Dataset.read ──streams──▶ _types.layout ──▶ awkward arrays (memory is shared)
"""

from __future__ import annotations

import builtins
import json
import os
import re
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TextIO, overload

import awkward as ak

from . import _native, _types
from ._errors import Invalid
from ._filter import Filter, is_glob, matcher, no_column

if TYPE_CHECKING:
    from ._join import Joined
    from ._write import Columns

# One column, or several by names, patterns or functions.
Names = None | str | Sequence[str]
How = Literal["array", "dict"]


def open(
    url: str | os.PathLike[str],
    version: int | None = None,
    table: str | None = None,
    *,
    threads: int | None = None,
    in_flight: int | None = None,
    deadline: float | None = None,
) -> Dataset:
    """Opens a dataset: a directory, or ``s3://bucket/prefix``. Only its root is read.

    :param version: a version of :meth:`Dataset.versions`; the newest one without.
    :param table: a table of :meth:`Dataset.tables`; the first one, which has the events, without.
    :param threads: threads that decode; one a core without.
    :param in_flight: requests at once (32 without).
    :param deadline: seconds that one object may take with all repeats (120 without).
    :raises Invalid: where there is no dataset, version or table.
    """
    settings = {"threads": threads, "in_flight": in_flight, "deadline": deadline}
    native = _native.Dataset.open(os.fspath(url), version, **settings)  # type: ignore[arg-type]
    return Dataset(native, table, settings)


@dataclass(frozen=True)
class Version:
    """A version in the list of versions."""

    #: Its number; the first one is 0.
    version: int
    #: When it was committed, by the writer's clock.
    time: datetime
    #: What made it.
    note: str
    #: Events and number of columns of each table.
    tables: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Partition:
    """A batch of a table, as a work item: small, and fit to be sent to other processes."""

    url: str
    version: int
    table: str
    #: Number of the batch.
    number: int
    #: First event.
    entry_start: int
    #: One past the last event.
    entry_stop: int

    @property
    def num_entries(self) -> int:
        """Events."""
        return self.entry_stop - self.entry_start

    def open(self) -> Dataset:
        """The dataset at the version of the item."""
        return open(self.url, self.version, self.table)

    def arrays(self, names: Names = None, *, filter_name: Filter = None) -> ak.Array:
        """Columns of the batch; see :meth:`Dataset.arrays`."""
        return self.open().arrays(
            names, filter_name=filter_name, entry_start=self.entry_start, entry_stop=self.entry_stop
        )


@dataclass(frozen=True)
class Product:
    """A column, as the dataset says it."""

    name: str
    type: _types.Type
    title: str
    #: Name of the type where the column comes from, such as ``float[]``.
    type_name: str
    #: The column that counts its collection, such as ``nMuon``; empty where none is known.
    counter: str
    notes: Mapping[str, Any]

    @property
    def parameters(self) -> _types.Parameters:
        """Awkward parameters of the nodes of the type, by their number, in the type that readers get."""
        parameters: _types.Parameters = self.notes.get("parameters", {})
        if isinstance(self.type, _types.Maybe) and self.notes.get("type") not in (None, str(self.type)):
            # An option around a column that is missing in some events is one more node.
            return {str(int(number) + 1): of for number, of in parameters.items()}
        return parameters

    @property
    def aliases(self) -> list[str]:
        """Other names."""
        return list(self.notes.get("aliases", []))


class Column:
    """A column of a dataset. Nothing is read before :meth:`array`."""

    def __init__(self, dataset: Dataset, product: Product) -> None:
        self._dataset = dataset
        self._product = product

    @property
    def name(self) -> str:
        """Full name."""
        return self._product.name

    @property
    def title(self) -> str:
        """One line for people, from the origin of the column."""
        return self._product.title

    @property
    def typename(self) -> str:
        """The type, as awkward shows it."""
        return _types.shown(self._product.type)

    @property
    def source_typename(self) -> str:
        """Name of the type where the column comes from, such as ``float[]``; empty where it is not known."""
        return self._product.type_name

    @property
    def counter(self) -> str:
        """The column that counts its collection; empty where none is known."""
        return self._product.counter

    @property
    def notes(self) -> Mapping[str, Any]:
        """What only some columns have, such as `aliases`."""
        return self._product.notes

    @property
    def num_entries(self) -> int:
        """Events."""
        return self._dataset.num_entries

    def array(self, entry_start: int | None = None, entry_stop: int | None = None) -> ak.Array:
        """The values of a range of events; all of them without one. Negative numbers count from the end."""
        arrays = self._dataset._read([self._product.name], *self._dataset._range(entry_start, entry_stop))
        return ak.Array(arrays[0])

    def __len__(self) -> int:
        return self.num_entries

    def __repr__(self) -> str:
        return f"<Column {self.name!r} ({self.typename}) of {self.num_entries} events>"


class Group:
    """The leaves of a split object, such as the links of ATLAS: columns under one name."""

    def __init__(self, dataset: Dataset, name: str, leaves: Mapping[str, str]) -> None:
        self._dataset, self.name = dataset, name
        #: Names of the columns by the names of the leaves.
        self.leaves = dict(leaves)

    @property
    def typename(self) -> str:
        """The type, as awkward shows it."""
        types = self._dataset.typenames(list(self.leaves.values()))
        return "{" + ", ".join(f"{leaf}: {types[name]}" for leaf, name in self.leaves.items()) + "}"

    def array(self, entry_start: int | None = None, entry_stop: int | None = None) -> ak.Array:
        """A record array of the leaves."""
        read = self._dataset.arrays(list(self.leaves.values()), entry_start=entry_start, entry_stop=entry_stop).layout
        return ak.Array(ak.contents.RecordArray(read.contents, list(self.leaves), length=read.length))

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {len(self.leaves)} columns>"


class Dataset:
    """A table of a version of a dataset."""

    def __init__(self, native: _native.Dataset, table: str | None, settings: Mapping[str, Any] | None = None) -> None:
        self._native = native
        self._settings = dict(settings or {})
        tables = native.tables()
        if table is None and not tables:
            raise Invalid(f"{native.url}: no table")
        self._table = tables[0] if table is None else table
        self._entries = native.events(self._table)

    # What it is.

    @property
    def url(self) -> str:
        """Where it is."""
        return self._native.url

    @property
    def uuid(self) -> str:
        """Names the dataset for ever, through all versions."""
        return self._native.uuid

    @property
    def version(self) -> int:
        """The number of this version."""
        return self._native.version

    @property
    def table_name(self) -> str:
        """The table that is read."""
        return self._table

    @property
    def num_entries(self) -> int:
        """Events."""
        return self._entries

    def __len__(self) -> int:
        return self._entries

    @property
    def bytes_read(self) -> int:
        """Bytes that came from the storage since the dataset was opened, its root included."""
        return self._native.traffic()[1]

    @property
    def requests(self) -> int:
        """Requests to read since the dataset was opened."""
        return self._native.traffic()[0]

    @property
    def facts(self) -> dict[str, Any]:
        """What writers noted of the dataset, such as the files that it was made of (``sources``)."""
        facts: dict[str, Any] = json.loads(self._native.facts())
        return facts

    def versions(self) -> list[Version]:
        """All versions, oldest first, as they were when the dataset was opened."""
        return [
            Version(
                version,
                datetime.fromtimestamp(time_ms / 1000, UTC),
                note,
                {name: (events, columns) for name, events, columns in tables},
            )
            for version, time_ms, note, tables in self._native.versions()
        ]

    def classes(self) -> dict[str, str]:
        """The class of service of each column; empty: the dataset's own place."""
        return dict(
            zip(
                (said[0] for said in self._native.products(self._table)), self._native.classes(self._table), strict=True
            )
        )

    def lumis(self) -> dict[int, dict[int, int]]:
        """Events of each luminosity section of each run, of all events of the dataset."""
        found: dict[int, dict[int, int]] = {}
        for run, section, events in self._native.lumis():
            found.setdefault(run, {})[section] = events
        return found

    def certified(
        self, golden: str | os.PathLike[str] | Mapping[str, Sequence[Sequence[int]]]
    ) -> list[tuple[int, int]]:
        """Ranges (first, end) of the events whose luminosity sections are in a golden JSON.

        :param golden: its path, or the dictionary itself: run as text, to lists of first and last section.
        """
        if isinstance(golden, Mapping):
            text = json.dumps({str(run): [list(one) for one in sections] for run, sections in golden.items()})
        else:
            with builtins.open(golden, encoding="utf-8") as file:
                text = file.read()
        return self._native.certified(text)

    def at(self, version: int) -> Dataset:
        """The same table at another version; negative numbers count from the newest one."""
        number = version + len(self._native.versions()) if version < 0 else version
        if number < 0:
            raise Invalid(f"{self.url}: no version {version}")
        return Dataset(self._native.at(number), self._table, self._settings)

    def tables(self) -> list[str]:
        """Names of the tables; the events first."""
        return self._native.tables()

    def table(self, name: str) -> Dataset:
        """Another table, such as ``Runs``."""
        return Dataset(self._native, name, self._settings)

    def partitions(self) -> list[Partition]:
        """One work item for each batch. Nothing is opened or read for it."""
        return [
            Partition(self.url, self.version, self._table, number, start, stop)
            for number, (start, stop) in enumerate(self._native.batches(self._table))
        ]

    # Columns.

    @cached_property
    def _products(self) -> dict[str, Product]:
        products = {}
        for name, text, title, type_name, counter, notes in self._native.products(self._table):
            products[name] = Product(name, _types.parse(text), title, type_name, counter, json.loads(notes))
        return products

    @cached_property
    def _aliases(self) -> dict[str, str]:
        aliases: dict[str, str] = {}
        for product in self._products.values():
            for alias in product.aliases:
                aliases.setdefault(alias, product.name)
        return aliases

    @cached_property
    def _groups(self) -> dict[str, dict[str, str]]:
        groups: dict[str, dict[str, str]] = {}
        for product in self._products.values():
            if "group" in product.notes:
                group, leaf = product.notes["group"]
                groups.setdefault(group, {})[leaf] = product.name
        return groups

    def _product(self, name: str) -> Product:
        product = self._products.get(name) or self._products.get(self._aliases.get(name, ""))
        if product is None:
            raise no_column(f"{self.url}, table {self._table}", name, [*self._products, *self._aliases])
        return product

    def keys(self, filter_name: Filter = None, filter_typename: Filter = None) -> list[str]:
        """Names of columns: all, or those chosen by a glob, a ``/regular expression/``, a function, or several."""
        chosen, typed = matcher(filter_name), matcher(filter_typename)
        return [name for name, product in self._products.items() if chosen(name) and typed(_types.shown(product.type))]

    def typenames(self, filter_name: Filter = None) -> dict[str, str]:
        """The type of each column, as awkward shows it."""
        return {name: _types.shown(self._products[name].type) for name in self.keys(filter_name)}

    def stored_bytes(self, filter_name: Filter = None) -> dict[str, int]:
        """Stored bytes of each column, from the directories. What columns share counts for the first of them."""
        chosen = set(self.keys(filter_name))
        sizes = zip(self._products, self._native.stored_bytes(self._table), strict=True)
        return {name: size for name, size in sizes if name in chosen}

    def show(self, filter_name: Filter = None, stream: TextIO | None = None) -> None:
        """Prints name, type, stored bytes and title of each column. Reads the directories, and no column."""
        out = stream if stream is not None else sys.stdout
        sizes = self.stored_bytes(filter_name)
        types = self.typenames(filter_name)
        wide = max([4, *(min(len(name), 50) for name in sizes)])
        typed = max([4, *(min(len(text), 40) for text in types.values())])
        batches = len(self._native.batches(self._table))
        out.write(
            f"{self.url}, version {self.version}, table {self._table}: {self.num_entries} events in {batches} batches, "
            f"{len(sizes)} columns, {sum(sizes.values())} bytes\n"
        )
        out.write(f"{'name':<{wide}}  {'type':<{typed}}  {'stored bytes':>12}  title\n")
        for name, size in sizes.items():
            text = types[name]
            text = text if len(text) <= 40 else text[:39] + "…"
            out.write(f"{name:<{wide}}  {text:<{typed}}  {size:>12}  {self._products[name].title}\n")

    def __getitem__(self, name: str) -> Column | Group:
        """A column by its name, or a group of columns."""
        if name not in self._products and name in self._groups:
            return Group(self, name, self._groups[name])
        return Column(self, self._product(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._products or name in self._aliases or name in self._groups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._products)

    def _chosen(self, names: Names, filter_name: Filter) -> list[tuple[str, str]]:
        """Name as asked for, and name of the column."""
        chosen: dict[str, str] = {}
        for name in [names] if isinstance(names, str) else names or []:
            if name not in self and is_glob(name):
                matched = self.keys(name)
                if not matched:
                    raise no_column(f"{self.url}, table {self._table}", name, list(self._products))
                chosen.update((one, one) for one in matched)
            elif name not in self._products and name in self._groups:
                chosen.update((leaf, leaf) for leaf in self._groups[name].values())
            else:
                chosen[name] = self._product(name).name
        if names is None or filter_name is not None:
            for name in self.keys(filter_name):
                chosen.setdefault(name, name)
        return list(chosen.items())

    # Values.

    def _range(self, start: int | None, stop: int | None) -> tuple[int, int]:
        first, last, _ = slice(start, stop).indices(self._entries)
        return first, max(first, last)

    def _read(self, names: Sequence[str], start: int, stop: int, half: bool = False) -> list[Any]:
        """Layouts of columns. `half`: float16 stays as it is."""
        columns = self._native.read(self._table, names, start, stop)
        return [
            _types.layout(_types.parse(text), places, stop - start, self._products[name].parameters, half)
            for name, (text, places) in zip(names, columns, strict=True)
        ]

    @overload
    def arrays(
        self,
        names: Names = None,
        *,
        filter_name: Filter = None,
        entry_start: int | None = None,
        entry_stop: int | None = None,
        how: Literal["array"] = "array",
    ) -> ak.Array: ...
    @overload
    def arrays(
        self,
        names: Names = None,
        *,
        filter_name: Filter = None,
        entry_start: int | None = None,
        entry_stop: int | None = None,
        how: Literal["dict"],
    ) -> dict[str, ak.Array]: ...
    def arrays(
        self,
        names: Names = None,
        *,
        filter_name: Filter = None,
        entry_start: int | None = None,
        entry_stop: int | None = None,
        how: How = "array",
    ) -> ak.Array | dict[str, ak.Array]:
        """Columns of a range of events, fetched and decoded together on all cores.

        :param names: a name, several, or patterns; all columns without.
        :param filter_name: see :meth:`keys`.
        :param entry_start: first event; negative numbers count from the end.
        :param entry_stop: one past the last event.
        :param how: ``"array"`` for a record array, ``"dict"`` for an array a column.
        :raises NoColumn: (a ``KeyError``) where there is no such column.
        """
        chosen = self._chosen(names, filter_name)
        start, stop = self._range(entry_start, entry_stop)
        layouts = self._read([name for _, name in chosen], start, stop)
        if how == "dict":
            return {asked: ak.Array(layout) for (asked, _), layout in zip(chosen, layouts, strict=True)}
        return ak.Array(ak.contents.RecordArray(layouts, [asked for asked, _ in chosen], length=stop - start))

    def iterate(
        self,
        names: Names = None,
        *,
        step_size: int | str | None = None,
        filter_name: Filter = None,
        entry_start: int | None = None,
        entry_stop: int | None = None,
    ) -> Generator[ak.Array, None, None]:
        """Columns, some events after the other. The next ones are read while these are used.

        :param step_size: events, or bytes in memory such as ``"100 MB"``; the batches of the dataset without.
        """
        chosen = self._chosen(names, filter_name)
        start, stop = self._range(entry_start, entry_stop)

        def read(part: tuple[int, int]) -> ak.Array:
            layouts = self._read([name for _, name in chosen], *part)
            return ak.Array(ak.contents.RecordArray(layouts, [asked for asked, _ in chosen], length=part[1] - part[0]))

        batches = [
            (max(start, first), min(stop, last))
            for first, last in self._native.batches(self._table)
            if first < stop and last > start
        ]
        if step_size is None or not batches:
            yield from _ahead(read, batches)
            return
        if isinstance(step_size, str):
            # The first batch tells how large an event is; it is handed out in steps, and not read twice.
            first, last = batches[0]
            of_first = read(batches[0])
            step = max(1, _bytes(step_size) * (last - first) // max(1, of_first.nbytes))
            while first + step <= last:
                yield of_first[first - batches[0][0] : first - batches[0][0] + step]
                first += step
            del of_first
            start = first
        else:
            step = step_size
        if step < 1:
            raise Invalid(f"a step of {step_size!r}")
        yield from _ahead(read, [(at, min(stop, at + step)) for at in range(start, stop, step)])

    def lazy(
        self, *, filter_name: Filter = None, entry_start: int | None = None, entry_stop: int | None = None
    ) -> ak.Array:
        """A record array of all columns, each of which is read when it is first touched."""
        from ._lazy import lazy

        return lazy(self, filter_name=filter_name, entry_start=entry_start, entry_stop=entry_stop)

    # Changes.

    def add(self, columns: Columns, *, titles: Mapping[str, str] | None = None, note: str = "") -> Dataset:
        """Writes new columns for the events that there are, as a new version, which it returns.

        :param columns: a record array, a mapping of arrays, or an iterable of them with all events in order.
        :raises Conflict: where a column is there already, or the events changed meanwhile.
        """
        return self._changed("add", columns, titles, note)

    def replace(self, columns: Columns, *, titles: Mapping[str, str] | None = None, note: str = "") -> Dataset:
        """Writes new values of columns, as a new version, which it returns. Older versions keep the old ones."""
        return self._changed("replace", columns, titles, note)

    def _changed(self, change: str, columns: Columns, titles: Mapping[str, str] | None, note: str) -> Dataset:
        from ._write import change as write_change

        version = write_change(
            self.url, change, columns, table=self._table, titles=titles, note=note, near=self._products
        )
        return open(self.url, version, self._table, **self._settings)

    def join(
        self,
        other: Dataset,
        on: Sequence[str] = ("run", "luminosityBlock", "event"),
        how: Literal["left", "inner"] = "left",
    ) -> Joined:
        """The columns of both datasets, whose events are matched by the values of some columns.

        :param how: ``"left"`` keeps all events of this one, and columns of the other are options; ``"inner"`` keeps
            events of both.
        :raises Invalid: where a key is twice in one of them; the message names the first ones.
        """
        from ._join import Joined

        return Joined(self, other, tuple(on), how)

    # Other formats.

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as a stream of Arrow, batch by batch (needs pyarrow)."""
        from ._arrow import reader

        return reader(self).__arrow_c_stream__(requested_schema)

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        names: Names = None,
        *,
        filter_name: Filter = None,
        widen: bool = False,
        **options: Any,
    ) -> None:
        """Writes columns to a Parquet file, a row group a batch (needs pyarrow, which gets the options)."""
        from ._arrow import to_parquet

        to_parquet(self, path, self._chosen(names, filter_name), widen, options)

    def to_root(
        self, path: str | os.PathLike[str], names: Names = None, *, filter_name: Filter = None, widen: bool = False
    ) -> None:
        """Writes columns to an RNTuple in a new ROOT file, a cluster a batch (needs uproot).

        :param widen: whether types that RNTuple or uproot lacks become the next wider ones; they are refused by name
            without.
        """
        from ._root import to_root

        to_root(self, path, self._chosen(names, filter_name), widen)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.url, self.version, self._table, self._settings)

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.url!r} version {self.version}, table {self._table!r}: "
            f"{self.num_entries} events, {len(self._products)} columns>"
        )


def _reopened(url: str, version: int, table: str, settings: Mapping[str, Any]) -> Dataset:
    return open(url, version, table, **settings)


def _ahead(read: Any, parts: Sequence[tuple[int, int]]) -> Iterator[ak.Array]:
    """Reads one part ahead."""
    if not parts:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="forebay-ahead") as pool:
        coming = pool.submit(read, parts[0])
        for following in parts[1:]:
            now = coming.result()
            coming = pool.submit(read, following)
            yield now
        yield coming.result()


def _bytes(text: str) -> int:
    """Bytes of a text such as ``100 MB``; powers of ten, and of two for ``MiB``."""
    parts = re.fullmatch(r"\s*([0-9.]+)\s*([kKMGT]?)(i?)B\s*", text)
    if not parts:
        raise Invalid(f"no size: {text!r}; a size is such as '100 MB'")
    power = " kMGT".index(parts[2].replace("K", "k") or " ")
    return int(float(parts[1]) * (1024 if parts[3] else 1000) ** power)
