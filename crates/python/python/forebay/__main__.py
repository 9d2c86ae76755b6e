"""The command `python3 -m forebay`, which `forebay dataset import`, `add` and `export` call.

    python3 -m forebay import URL FILES... [--tree NAME] [--columns PATTERN]... [--append]
    python3 -m forebay add URL FILE
    python3 -m forebay export URL FILE [--version N] [--widen]

With ``--json`` the answer is a JSON object on stdout, and an error one on stderr. Exit codes are those of the program
`forebay`. Interrupted, it leaves no version and no file half made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import forebay

from . import _errors
from ._write import Writer

# Exit code and next move of each class of errors, as the program has them.
KINDS: dict[type[_errors.Error], tuple[str, int, str]] = {
    _errors.Invalid: ("Invalid", 2, "fix the call"),
    _errors.NoColumn: ("Invalid", 2, "fix the call"),
    _errors.Conflict: ("Conflict", 3, "decide"),
    _errors.Full: ("Full", 4, "slow down"),
    _errors.Unavailable: ("Unavailable", 5, "retry later"),
    _errors.Fenced: ("Fenced", 6, "refresh the lease"),
    _errors.OutcomeUnknown: ("OutcomeUnknown", 7, "repeat the same call"),
    _errors.Corrupt: ("Corrupt", 8, "use another copy, report"),
    _errors.Closed: ("Closed", 9, "reopen"),
    _errors.Internal: ("Internal", 10, "report a bug"),
}
INTERRUPTED = 130
# What has to be installed for a module that may be missing.
EXTRAS = {"uproot": "uproot", "pyarrow": "pyarrow"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    asked = _parser().parse_args(arguments)
    commands = {"import": _import, "add": _add, "export": _export}
    try:
        answer, lines = commands[asked.command](asked)
    except KeyboardInterrupt:
        return INTERRUPTED
    except _errors.Error as error:
        return _failed(error, str(error), asked.json)
    except ImportError as error:
        needed = EXTRAS.get((error.name or "").split(".")[0])
        if needed is None:
            raise
        message = (
            f"{sys.executable} has no {needed}, which is needed for this file: {sys.executable} -m pip install {needed}"
        )
        return _failed(_errors.Invalid(message), message, asked.json)
    except OSError as error:
        return _failed(_errors.Invalid(str(error)), str(error), asked.json)
    print(json.dumps(answer) if asked.json else "\n".join(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m forebay", description="What `forebay dataset` does with ROOT and Parquet."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    importing = commands.add_parser("import", help="make a dataset of ROOT or Parquet files")
    importing.add_argument("url", metavar="URL")
    importing.add_argument("files", metavar="FILES", nargs="+")
    importing.add_argument("--tree", metavar="NAME", help="the tree with the events")
    importing.add_argument(
        "--columns", metavar="PATTERN", action="append", help="only columns that fit; may be repeated"
    )
    importing.add_argument("--append", action="store_true", help="append the events to a dataset that is there")
    adding = commands.add_parser("add", help="add the columns of a file to the events of a dataset")
    adding.add_argument("url", metavar="URL")
    adding.add_argument("file", metavar="FILE")
    exporting = commands.add_parser("export", help="write a dataset to a ROOT or Parquet file")
    exporting.add_argument("url", metavar="URL")
    exporting.add_argument("file", metavar="FILE")
    exporting.add_argument("--version", metavar="N", type=int, help="version; the newest one without")
    exporting.add_argument(
        "--widen", action="store_true", help="widen types that the format lacks"
    )
    for command in (importing, adding, exporting):
        command.add_argument("--json", action="store_true", help="write JSON")
    return parser


def _failed(error: _errors.Error, message: str, as_json: bool) -> int:
    kind, code, move = next(said for known, said in KINDS.items() if isinstance(error, known))
    if as_json:
        said = {"kind": kind, "message": message, "cause": None, "next_move": move, "exit_code": code}
        print(json.dumps({"error": said}), file=sys.stderr)
    else:
        print(f"forebay: {kind}: {message}", file=sys.stderr)
    return code


def _is_parquet(path: str) -> bool:
    return path.endswith(".parquet")


def _import(asked: argparse.Namespace) -> tuple[Mapping[str, Any], list[str]]:
    if any(_is_parquet(file) for file in asked.files):
        if not all(_is_parquet(file) for file in asked.files) or asked.tree is not None or asked.append:
            raise forebay.Invalid(
                "Parquet files are imported alone: no ROOT files, no --tree, no --append"
            )
        ds = forebay.from_parquet(asked.files, asked.url, asked.columns)
    else:
        # The line of progress is for people: with --json only where one looks.
        progress = not asked.json or sys.stderr.isatty()
        ds = forebay.import_root(
            asked.files, asked.url, asked.tree, asked.columns, progress=progress, append=asked.append
        )
    skipped = ds.facts.get("skipped", [])
    answer = _version(ds) | {"files": len(asked.files), "skipped": skipped}
    lines = [f"{ds.url}: version {ds.version}, {ds.num_entries} events, {len(ds.keys())} columns"]
    lines += [f"  skipped: {one['table']}/{one['name']} ({one['type']}): {one['reason']}" for one in skipped]
    return answer, lines


def _add(asked: argparse.Namespace) -> tuple[Mapping[str, Any], list[str]]:
    table = forebay.open(asked.url).table_name
    chunks = _parquet_columns(asked.file) if _is_parquet(asked.file) else _root_columns(asked.file)
    added: list[str] = []
    with Writer(asked.url, "add") as writer:
        for arrays, about in chunks:
            added = list(arrays)
            writer.push(table, arrays, about)
        version = writer.commit(f"add columns of {os.path.basename(asked.file)}")
    ds = forebay.open(asked.url, version, table)
    return _version(ds) | {"added": added}, [f"{ds.url}: version {ds.version} has {', '.join(added)}"]


Columns = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]


def _root_columns(path: str) -> Iterator[Columns]:
    from . import _root
    from ._filter import matcher

    reading = _root._Reading([path], None, matcher(None), _root.CHUNK_BYTES, False)
    try:
        for item in reading.items(1):
            if isinstance(item, _root._Chunk):
                yield item.arrays, item.about
    finally:
        reading.stop()


def _parquet_columns(path: str) -> Iterator[Columns]:
    import pyarrow.parquet as pq

    from . import _arrow

    # Whole: a column is an option where it has a null anywhere, and those that are added are few.
    whole = pq.read_table(path)
    about = _arrow._about(whole.schema)
    nulls = {}
    for name, column in zip(whole.column_names, whole.columns, strict=True):
        nulls[name] = _arrow._Nulls()
        for chunk in column.chunks:
            nulls[name].take(chunk)
    for batch in whole.to_batches():
        columns = enumerate(whole.column_names)
        yield {name: _arrow._column(name, batch.column(at), nulls[name]) for at, name in columns}, about


def _export(asked: argparse.Namespace) -> tuple[Mapping[str, Any], list[str]]:
    ds = forebay.open(asked.url, asked.version)
    folder, name = os.path.split(asked.file)
    # Renamed at its end: a file of this name is whole. The ending tells the format.
    part = os.path.join(folder, f".part-{name}")
    try:
        if _is_parquet(name):
            ds.to_parquet(part, widen=asked.widen)
        elif name.endswith(".root"):
            ds.to_root(part, widen=asked.widen)
        else:
            raise forebay.Invalid(f"{asked.file}: its name ends in .root or .parquet")
        os.replace(part, asked.file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
        raise
    size = os.path.getsize(asked.file)
    answer = _version(ds) | {"file": asked.file, "bytes": size}
    return answer, [f"{asked.file}: {ds.num_entries} events, {len(ds.keys())} columns, {size} bytes"]


def _version(ds: forebay.Dataset) -> dict[str, Any]:
    return {
        "url": ds.url,
        "version": ds.version,
        "table": ds.table_name,
        "events": ds.num_entries,
        "columns": len(ds.keys()),
    }


if __name__ == "__main__":
    sys.exit(main())
