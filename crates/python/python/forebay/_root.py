"""ROOT files through uproot: TTree and RNTuple in, RNTuple out.

    files ──▶ a thread a file, a few at once: open, read 32 MB ──queue──▶ this thread: push in order ──▶ commit

*Invariants*: nothing is committed before all files were read, so an interrupted import leaves no version; a column is
read by its full path, once: of a split object the leaves are kept, and the object's name is a group of them.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import awkward as ak

from . import _dataset, _types
from ._errors import Error, Invalid
from ._filter import Filter, matcher, no_column
from ._write import Writer

# Bytes in memory that are read from a file at a time.
CHUNK_BYTES = 32_000_000
# Files that are read at the same time.
FILES_AT_ONCE = 2
# The tree with the events, where nobody says which.
EVENT_TREES = ("Events", "CollectionTree")

Progress = bool | Callable[[int, int, int], None]


@dataclass
class _Chunk:
    """Some events of a table."""

    file: int
    table: str
    arrays: dict[str, _types.Streams]
    about: dict[str, dict[str, Any]]
    events: int


@dataclass
class _Read:
    """What a file was found to have; comes after its chunks."""

    file: int
    source: dict[str, Any]
    skipped: list[dict[str, str]] = field(default_factory=list)
    objects: list[dict[str, str]] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)


def import_root(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    url: str | os.PathLike[str],
    tree: str | None = None,
    columns: Filter = None,
    *,
    progress: Progress = True,
    step_bytes: int = CHUNK_BYTES,
    batch_events: int | None = None,
    append: bool = False,
    side_trees: bool = True,
    files_at_once: int = FILES_AT_ONCE,
) -> _dataset.Dataset:
    """Writes a dataset from ROOT files (TTree or RNTuple), and returns it.

    The events of all files become one table, in the order of the files; a column that only some of them have is an
    option (a flat bool is false there). Other trees, such as ``Runs``, become tables of their own. Titles, type names
    and counters are kept. What uproot cannot read is skipped, with its reason in ``facts["skipped"]``;
    ``facts["sources"]`` has name, UUID and events of each file. Interrupted, it leaves no version.

    :param files: a file or several; what uproot opens.
    :param tree: the tree with the events: ``Events``, ``CollectionTree`` or the only one without.
    :param columns: the columns of the events that are wanted, as in :meth:`Dataset.keys`.
    :param progress: a line on the terminal where it takes more than two seconds; or a function of files done, files
        and events.
    :param append: whether the events are appended to a dataset that is there.
    :param side_trees: whether the other trees are imported.
    :raises Conflict: where there is a dataset already, or columns have different types in the files.
    """
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    if not paths:
        raise Invalid("no files")
    shown = _Shown(progress, len(paths))
    order: dict[str, dict[str, dict[str, Any]]] = {}
    facts = _Facts()
    reading = _Reading([os.fspath(path) for path in paths], tree, matcher(columns), step_bytes, side_trees)
    try:
        with Writer(url, "append" if append else "create", batch_events=batch_events) as writer:
            for item in reading.items(files_at_once):
                if isinstance(item, _Read):
                    facts.take(item)
                    shown.file_done()
                    continue
                known = order.setdefault(item.table, {})
                for name, said in item.about.items():
                    known.setdefault(name, said)
                # In the order of the first file, and described as there: what is alike goes into the same batches.
                arrays = {name: item.arrays[name] for name in known if name in item.arrays}
                if arrays:
                    try:
                        writer.push(item.table, arrays, known)
                    except Error as error:
                        raise type(error)(f"{paths[item.file]}: {error}") from error
                shown.events(item.events if item.table == reading.main else 0)
            if reading.main is None or not order.get(reading.main):
                raise no_column(", ".join(map(str, paths)), str(columns), reading.seen)
            facts.write(writer)
            many = os.path.basename(os.fspath(paths[0])) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
            version = writer.commit(f"import {many}")
    finally:
        reading.stop()
        shown.end()
    return _dataset.open(url, version, reading.main)


class _Facts:
    """Facts of an import."""

    def __init__(self) -> None:
        self.sources: list[dict[str, Any]] = []
        self.skipped: dict[tuple[str, str], dict[str, str]] = {}
        self.objects: dict[str, dict[str, str]] = {}
        self.titles: dict[str, str] = {}

    def take(self, read: _Read) -> None:
        self.sources.append(read.source)
        for skipped in read.skipped:
            self.skipped.setdefault((skipped["table"], skipped["name"]), skipped)
        for found in read.objects:
            self.objects.setdefault(found["name"], found)
        self.titles.update(read.titles)

    def write(self, writer: Writer) -> None:
        writer.fact("sources", self.sources)
        if self.skipped:
            writer.fact("skipped", list(self.skipped.values()))
        if self.objects:
            writer.fact("objects", list(self.objects.values()))
        if self.titles:
            writer.fact("titles", self.titles)


class _Shown:
    """The line on the terminal."""

    def __init__(self, progress: Progress, files: int) -> None:
        self._progress = progress
        self._files, self._done, self._events = files, 0, 0
        self._begun = self._said = time.monotonic()
        self._open = False

    def file_done(self) -> None:
        self._done += 1
        self._say()

    def events(self, events: int) -> None:
        self._events += events
        self._say()

    def _say(self) -> None:
        if callable(self._progress):
            self._progress(self._done, self._files, self._events)
            return
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if not self._progress or now - self._begun < 2 or now - self._said < (0.2 if terminal else 10):
            return
        self._said = now
        rate = self._events / (now - self._begun)
        line = f"import: {self._done} of {self._files} files, {self._events} events, {rate:.0f} events/s"
        sys.stderr.write(f"\r{line}\x1b[K" if terminal else f"{line}\n")
        sys.stderr.flush()
        self._open = terminal

    def end(self) -> None:
        if self._open:
            sys.stderr.write("\n")


class _Reading:
    """Threads that read files ahead."""

    def __init__(
        self, paths: list[str], tree: str | None, chosen: Callable[[str], bool], step_bytes: int, side_trees: bool
    ) -> None:
        self._paths, self._tree, self._chosen = paths, tree, chosen
        self._step_bytes, self._side_trees = step_bytes, side_trees
        #: The table with the events; known when the first file is open.
        self.main: str | None = None
        #: Columns that the files have, chosen or not.
        self.seen: list[str] = []
        self._stopped = threading.Event()
        self._main_known = threading.Event()
        self._threads: list[threading.Thread] = []
        # What could be read and what not, so that the next file is not tried branch by branch: name and type to reason.
        self._unreadable: dict[tuple[str, str, str], str] = {}

    def items(self, files_at_once: int) -> Iterator[_Chunk | _Read]:
        """Chunks of all files in their order, and at the end of each file what was found in it."""
        queues: list[queue.Queue[_Chunk | _Read | BaseException]] = []
        for file in range(len(self._paths)):
            while len(queues) < min(len(self._paths), file + max(1, files_at_once)):
                one: queue.Queue[_Chunk | _Read | BaseException] = queue.Queue(maxsize=1)
                thread = threading.Thread(
                    target=self._read, args=(len(queues), one), name="forebay-import", daemon=True
                )
                queues.append(one)
                self._threads.append(thread)
                thread.start()
            while True:
                item = queues[file].get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if isinstance(item, _Read):
                    break

    def stop(self) -> None:
        """Ends the threads, after what each is reading just now."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _read(self, file: int, out: queue.Queue[_Chunk | _Read | BaseException]) -> None:
        def put(item: _Chunk | _Read | BaseException) -> bool:
            while not self._stopped.is_set():
                try:
                    out.put(item, timeout=0.1)
                except queue.Full:
                    continue
                return True
            return False

        try:
            for item in self._file(file):
                if not put(item):
                    return
        except BaseException as error:  # It is raised where the items are taken.
            put(error)

    def _file(self, file: int) -> Iterator[_Chunk | _Read]:
        import uproot

        path = self._paths[file]
        try:
            opened = uproot.open(path)
        except Exception as error:
            raise Invalid(f"{path}: uproot cannot open it: {error}") from error
        with opened:
            classes = opened.classnames(recursive=True, cycle=False)
            trees = [name for name, kind in classes.items() if kind in ("TTree", "TChain", "TNtuple", "ROOT::RNTuple")]
            main = self._main(path, trees)
            if file == 0:
                self.main = main
                self._main_known.set()
            while not self._main_known.wait(0.1):
                if self._stopped.is_set():
                    return
            read = _Read(file, {"file": path, "uuid": str(opened.file.uuid), "tree": main})
            for name, kind in classes.items():
                if name not in trees and kind != "TDirectory" and kind != "TDirectoryFile":
                    read.objects.append(_object(opened, name, kind))
            for name in [main, *(name for name in trees if name != main)] if self._side_trees else [main]:
                source = opened[name]
                read.titles[self._table(name, main)] = getattr(source, "title", "") or getattr(
                    source, "description", ""
                )
                if name == main:
                    read.source["events"] = int(source.num_entries)
                yield from self._table_chunks(file, source, self._table(name, main), name == main, read)
            yield read

    def _table(self, name: str, main: str) -> str:
        """The table of a tree: all files have their events in the table of the first one's."""
        return self.main if name == main and self.main else name

    def _main(self, path: str, trees: list[str]) -> str:
        if self._tree is not None:
            if self._tree not in trees:
                raise Invalid(f"{path}: no tree {self._tree!r}; there is {', '.join(trees) or 'none'}")
            return self._tree
        for name in EVENT_TREES:
            if name in trees:
                return name
        if len(trees) != 1:
            raise Invalid(f"{path}: which tree has the events? There is {', '.join(trees) or 'none'}; say it by tree=")
        return trees[0]

    def _table_chunks(self, file: int, source: Any, table: str, main: bool, read: _Read) -> Iterator[_Chunk]:
        columns = _columns(source, table, self._unreadable, read.skipped)
        if main:
            self.seen = self.seen or [column.name for column in columns]
            columns = [column for column in columns if self._chosen(column.name)]
        about = {column.name: column.about() for column in columns}
        entries = int(source.num_entries)
        step = _step(source, entries, self._step_bytes)
        for start in range(0, max(1, entries), step):
            stop = min(entries, start + step)
            arrays = _arrays(source, table, columns, start, stop, self._unreadable, read.skipped)
            yield _Chunk(file, table, arrays, {name: about[name] for name in arrays}, stop - start)


def _is_rntuple(source: Any) -> bool:
    import uproot

    return isinstance(source, uproot.behaviors.RNTuple.HasFields)


def _object(opened: Any, name: str, kind: str) -> dict[str, str]:
    """What is kept of an object that is no tree."""
    found = {"name": name, "class": kind}
    if kind == "TObjString":
        found["text"] = str(opened[name])
    return found


def _step(source: Any, entries: int, step_bytes: int) -> int:
    """Events with about this many bytes."""
    # uproot says the size of a TTree, not of an RNTuple: a few thousand events are a chunk there.
    try:
        size = int(source.uncompressed_bytes)
    except (AttributeError, RuntimeError):
        size = 0
    per_event = size / max(1, entries) or step_bytes / 10_000
    return max(1, int(step_bytes / per_event))


@dataclass
class _Column:
    """A branch or a field."""

    #: Full path.
    name: str
    branch: Any
    title: str
    type_name: str
    counter: str
    notes: dict[str, Any]

    def about(self) -> dict[str, Any]:
        return {"title": self.title, "type_name": self.type_name, "counter": self.counter, "notes": self.notes}


def _columns(
    source: Any, table: str, unreadable: Mapping[tuple[str, str, str], str], skipped: list[dict[str, str]]
) -> list[_Column]:
    """The columns of a tree that may be readable. What is not is listed."""
    if _is_rntuple(source):
        return _fields(source)
    columns: list[_Column] = []
    branches = list(source.iteritems(recursive=True, full_paths=True))
    known: set[str] = set()
    shorts: dict[str, int] = {}
    for _, branch in branches:
        shorts[branch.name] = shorts.get(branch.name, 0) + 1
    names = {id(branch): name for name, branch in branches}
    for name, branch in branches:
        kind = type(branch.interpretation).__name__
        reason = unreadable.get((table, name, branch.typename))
        if name in known:
            reason = "a second branch of this name"
        elif kind == "AsGrouped":
            if len(branch.branches) == 0:
                reason = "a grouping without branches"
            else:
                # Its leaves are columns.
                continue
        elif kind == "UnknownInterpretation":
            reason = f"uproot cannot interpret it: {getattr(branch.interpretation, 'reason', 'unknown')}"
        known.add(name)
        if reason is not None:
            skipped.append({"table": table, "name": name, "type": str(branch.typename), "reason": reason})
            continue
        notes: dict[str, Any] = {}
        if "/" in name:
            group, _, leaf = name.rpartition("/")
            notes["group"] = [group, leaf]
            if shorts[branch.name] == 1:
                notes["aliases"] = [branch.name]
        counter = branch.count_branch
        counted = names.get(id(counter), "") if counter is not None else ""
        # A split collection is said to be counted by one of its own leaves.
        counted = counted if counted != name and "/" not in counted else ""
        columns.append(_Column(name, branch, branch.title or "", str(branch.typename), counted, notes))
    return columns


def _fields(source: Any) -> list[_Column]:
    """Top-level fields of an RNTuple; what is below them comes with them."""
    columns = []
    for name in source.keys(recursive=False):
        if name.startswith("_collection"):
            continue
        one = source[name]
        columns.append(_Column(name, one, getattr(one, "description", "") or "", str(one.typename), "", {}))
    return columns


def _arrays(
    source: Any,
    table: str,
    columns: list[_Column],
    start: int,
    stop: int,
    unreadable: dict[tuple[str, str, str], str],
    skipped: list[dict[str, str]],
) -> dict[str, _types.Streams]:
    """The columns that can be read, which stay in the list; the others leave it."""
    try:
        read = _together(source, [column.name for column in columns], start, stop)
    except Exception:
        # Some branch has no reader: each is tried, and the next chunk reads all that are left together.
        read = {}
    streams: dict[str, _types.Streams] = {}
    for column in list(columns):
        try:
            array = read.pop(column.name, None)
            if array is None:
                array = column.branch.array(entry_start=start, entry_stop=stop)
            streams[column.name] = _types.Streams(column.name, array)
        except Exception as error:
            reason = str(error) if isinstance(error, Invalid) else f"uproot cannot read it: {_one_line(error)}"
            if start > 0:
                raise Invalid(f"{column.name}: events {start} to {stop}: {reason}") from error
            unreadable[table, column.name, column.type_name] = reason
            skipped.append({"table": table, "name": column.name, "type": column.type_name, "reason": reason})
            columns.remove(column)
    return streams


def _together(source: Any, names: list[str], start: int, stop: int) -> dict[str, ak.Array]:
    if not names:
        return {}
    if _is_rntuple(source):
        read = source.arrays(filter_name=names, entry_start=start, entry_stop=stop)
        return {name: read[name] for name in names}
    arrays: dict[str, ak.Array] = source.arrays(names, how=dict, entry_start=start, entry_stop=stop)
    return arrays


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'…' if len(text) > 160 else ''}"


def to_root(
    dataset: _dataset.Dataset, path: str | os.PathLike[str], chosen: list[tuple[str, str]], widen: bool
) -> None:
    """Writes columns to an RNTuple, a cluster a batch."""
    import uproot

    names: dict[str, str] = {}
    for asked, name in chosen:
        written = asked.replace(".", "_").replace("/", "_")
        lacking = _lacking(dataset._products[name].type)
        if written != asked:
            lacking = lacking or "a name with . or /"
        if lacking and not widen:
            raise Invalid(
                f"column {asked}: uproot's RNTuple has no {lacking}; widen=True takes the nearest that it has"
            )
        if written in names:
            raise Invalid(f"columns {names[written]} and {asked} have the same name in an RNTuple")
        names[written] = asked
    with uproot.recreate(os.fspath(path)) as file:
        rntuple = None
        for start, stop in dataset._native.batches(dataset.table_name) or [(0, 0)]:
            layouts = dataset._read([name for _, name in chosen], start, stop)
            arrays = {
                written: ak.Array(ak.to_packed(_without_bytes(layout)))
                for written, layout in zip(names, layouts, strict=True)
            }
            if rntuple is None:
                rntuple = file.mkrntuple(dataset.table_name, arrays)
            else:
                rntuple.extend(arrays)


def _lacking(of: _types.Type) -> str | None:
    """What uproot cannot write of a type."""
    for inner in _types.walk(of):
        if isinstance(inner, _types.Bytes):
            return "bytes (widen: lists of uint8)"
        if isinstance(inner, _types.Value) and inner.scalar == "float16":
            return "float16 (widen: float32)"
        if isinstance(inner, _types.Record) and not inner.fields:
            return "record without fields"
        if isinstance(inner, _types.Maybe) and isinstance(inner.of, _types.Record):
            return "option of a record (widen: a list of none or one)"
    return None


def _without_bytes(layout: Any) -> Any:
    """The layout without parameters, which an RNTuple does not have; bytes become lists of uint8."""

    def change(content: Any, **_: Any) -> Any:
        if content.is_list and content.parameter("__array__") == "bytestring":
            content = content.to_ListOffsetArray64(True)
            return ak.contents.ListOffsetArray(content.offsets, ak.contents.NumpyArray(content.content.data))
        return None

    return ak.transform(change, layout, highlevel=False)
