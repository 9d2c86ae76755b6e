"""Commands of the package: ``python -m forebay import | add | export``, which ``forebay dataset`` calls.

An error is one line on stderr, or with ``--json`` one line of JSON there, and an exit code by its kind; 130 after
Ctrl-C. Both are as those of the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import forebay

# As in the table of kinds of the command line: the exit code, and the caller's next move.
KINDS: dict[type[BaseException], tuple[int, str]] = {
    forebay.Invalid: (2, "fix the call"),
    forebay.Conflict: (3, "decide"),
    forebay.Full: (4, "slow down"),
    forebay.Unavailable: (5, "retry later"),
    forebay.Fenced: (6, "refresh the lease or the map"),
    forebay.OutcomeUnknown: (7, "repeat the same call"),
    forebay.Corrupt: (8, "use another copy, report"),
    forebay.Closed: (9, "reopen"),
    forebay.Internal: (10, "report a bug"),
}


def import_files(
    url: str,
    files: Sequence[str],
    tree: str | None,
    columns: Sequence[str] | None,
    append: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Makes a dataset of ROOT or Parquet files, or appends the events of ROOT files to one."""
    parquet = [name for name in files if name.endswith((".parquet", ".pq"))]
    if parquet and len(parquet) < len(files):
        raise forebay.Invalid("ROOT files and Parquet files together: import one kind, and append the other")
    if parquet:
        if tree is not None or append:
            raise forebay.Invalid("--tree, --append: for ROOT files only")
        ds = forebay.from_parquet(files, url, columns)
    else:
        ds = forebay.import_root(files, url, tree, columns, progress=progress, append=append)
    return _said(ds) | {"skipped": ds.facts.get("skipped", [])}


def add(url: str, file: str) -> dict[str, Any]:
    """Adds the columns of a ROOT or Parquet file to the events of a dataset."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="forebay-") as place:
        import_files(f"{place}/columns", [file], None, None)
        new = forebay.open(f"{place}/columns")
        titles = {name: column.title for name in new if isinstance(column := new[name], forebay.Column)}
        return _said(forebay.open(url).add(new.iterate(), titles=titles, note=f"add {os.path.basename(file)}"))


def export(url: str, file: str, version: int | None, widen: bool) -> dict[str, Any]:
    """Writes a version to a ROOT or Parquet file."""
    ds = forebay.open(url, version)
    folder, name = os.path.split(file)
    # Renamed at its end: a file with this name is whole.
    part = os.path.join(folder, f".part-{name}")
    try:
        if name.endswith(".root"):
            ds.to_root(part, widen=widen)
        elif name.endswith((".parquet", ".pq")):
            ds.to_parquet(part, widen=widen)
        else:
            raise forebay.Invalid(f"{file}: its name ends in .root or .parquet")
        os.replace(part, file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
    return _said(ds) | {"file": file, "bytes": os.path.getsize(file)}


def _said(ds: forebay.Dataset) -> dict[str, Any]:
    return {"url": ds.url, "version": ds.version, "table": ds.table_name, "events": len(ds), "columns": len(ds.keys())}


def _print(said: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(said))
        return
    skipped = said.pop("skipped", [])
    for one in skipped[:10]:
        print(f"skipped {one['name']} ({one['type']}): {one['reason']}")
    if len(skipped) > 10:
        print(f"skipped {len(skipped) - 10} more; facts['skipped'] has all of them")
    print(f"{said['url']}, version {said['version']}: {said['events']} events, {said['columns']} columns", end="")
    print(f"; {said['file']} has {said['bytes']} bytes" if "file" in said else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m forebay", description="Datasets from and to files.")
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("import", help="make a dataset of ROOT or Parquet files")
    one.add_argument("url")
    one.add_argument("files", nargs="+")
    one.add_argument("--tree")
    one.add_argument("--columns", action="append")
    one.add_argument("--append", action="store_true")
    for action, text in (("add", "add the columns of a file"), ("export", "write a ROOT or Parquet file")):
        one = actions.add_parser(action, help=text)
        one.add_argument("url")
        one.add_argument("file")
    one.add_argument("--version", type=int)
    one.add_argument("--widen", action="store_true")
    for one in actions.choices.values():
        one.add_argument("--json", action="store_true")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    said = _parser().parse_args(arguments)
    # Also where a shell has started it with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if said.action == "import":
            # The line of progress is for people: with --json only where one looks.
            progress = not said.json or sys.stderr.isatty()
            done = import_files(said.url, said.files, said.tree, said.columns, said.append, progress)
        elif said.action == "add":
            done = add(said.url, said.file)
        else:
            done = export(said.url, said.file, said.version, said.widen)
    except KeyboardInterrupt:
        print("interrupted: the dataset is as before", file=sys.stderr)
        return 130
    except (forebay.Error, ImportError, OSError) as error:
        # A missing column, package or file: the call is wrong.
        kind = next((kind for kind in KINDS if isinstance(error, kind)), forebay.Invalid)
        code, move = KINDS[kind]
        message = " ".join(str(error).split())
        if said.json:
            cause = str(error.__cause__) if error.__cause__ else None
            report = {"kind": kind.__name__, "message": message, "cause": cause, "next_move": move, "exit_code": code}
            print(json.dumps({"error": report}), file=sys.stderr)
        else:
            print(f"forebay: {kind.__name__}: {message}", file=sys.stderr)
        return code
    _print(done, said.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
