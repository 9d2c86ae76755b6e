"""The Python side of `cargo xtask bench dataset`: imports ROOT files, writes them as Parquet and RNTuple, and measures reading.

    sizes FILE FOLDER [RNTUPLE SETTINGS...]      dataset in FOLDER/ours; sizes of the others
    times DATASET FOLDER EVENTS REPETITIONS      events drawn from a dataset in shuffled order, read in turns with Parquet

The last line of the output is JSON.
"""

import gc
import json
import os
import sys
import time

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay

TEN = ["run", "event", "nMuon", "Muon_pt", "Muon_eta", "Muon_phi", "nJet", "Jet_pt", "Jet_eta", "MET_pt"]
CHUNK = 10_000
SEED = 14


def leaves(field, path):
    """Parquet's paths of the values below a field that byte-stream-split takes."""
    kind = field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return leaves(kind.value_field, f"{path}.list.element")
    if pa.types.is_struct(kind):
        return [leaf for at in range(kind.num_fields) for leaf in leaves(kind.field(at), f"{path}.{kind.field(at).name}")]
    split = pa.types.is_floating(kind) or kind in (pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
    return [path] if split else []


def arrow(columns):
    """A table of Arrow without extension types."""
    return pa.table({name: ak.to_arrow(ak.to_packed(array), extensionarray=False) for name, array in columns.items()})


def parquet(table, path, split):
    """Bytes of the table as a file: zstd-3 with a dictionary, or with byte-stream-split."""
    options = {"compression": "zstd", "compression_level": 3}
    if split:
        wanted = [leaf for field in table.schema for leaf in leaves(field, field.name)]
        pq.write_table(table, path, use_dictionary=False, use_byte_stream_split=wanted, **options)
    else:
        pq.write_table(table, path, use_dictionary=True, **options)
    return os.path.getsize(path)


def rntuple(file, tree, path, setting):
    """Bytes of the tree as an RNTuple that ROOT itself writes. The path is short: the file has it in its header."""
    import ROOT

    options = ROOT.RNTupleWriteOptions()
    options.SetCompression(setting)
    kind = getattr(ROOT, "RNTupleImporter", None) or ROOT.Experimental.RNTupleImporter
    importer = kind.Create(file, tree, path)
    importer.SetWriteOptions(options)
    importer.SetIsQuiet(True)
    importer.Import()
    return os.path.getsize(path)


def attempt(write):
    """A size, or in words why there is none."""
    try:
        return {"bytes": write()}
    except Exception as error:
        return {"not_run": " ".join(str(error).split())[:200] or type(error).__name__}


def sizes(file, folder, *settings):
    """Sizes of one file in all formats."""
    file = os.path.abspath(file)
    os.chdir(folder)
    began = time.perf_counter()
    dataset = forebay.import_root(file, "ours", progress=False)
    seconds = time.perf_counter() - began
    names = dataset.keys()
    columns = {name: dataset[name].array() for name in names}
    table = arrow(columns)
    found = {
        "events": len(dataset),
        "columns": len(names),
        "memory_bytes": sum(array.nbytes for array in columns.values()),
        "import_seconds": seconds,
        "skipped": len(dataset.facts.get("skipped", [])),
        "file_bytes": os.path.getsize(file),
        "parquet": {
            "zstd-3, dictionary": attempt(lambda: parquet(table, "d.parquet", False)),
            "zstd-3, byte-stream-split": attempt(lambda: parquet(table, "s.parquet", True)),
        },
        "rntuple": {},
    }
    for setting in settings:
        path = f"{setting}.root"
        found["rntuple"][setting] = attempt(lambda p=path, s=setting: rntuple(file, dataset.table_name, p, int(s)))
    if settings:
        import ROOT

        found["root_version"] = str(ROOT.gROOT.GetVersion())
    return found


def times(dataset, folder, events, repetitions):
    """Seconds to open and to read, in turns."""
    events, repetitions = int(events), int(repetitions)
    ours, path = f"{folder}/shuffled", f"{folder}/shuffled.parquet"
    source = forebay.open(dataset)
    names = source.keys()
    columns = {name: source[name].array() for name in names}
    drawn = np.random.default_rng(SEED).integers(0, len(source), size=events)
    writer = None

    def chunks():
        nonlocal writer
        for start in range(0, events, CHUNK):
            chunk = {name: ak.to_packed(array[drawn[start : start + CHUNK]]) for name, array in columns.items()}
            table = arrow(chunk)
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd", compression_level=3)
            writer.write_table(table)
            yield chunk

    forebay.write(ours, chunks())
    writer.close()
    ten = TEN if set(TEN) <= set(names) else names[:10]
    took = {}

    def measure(what, who, run):
        began = time.perf_counter()
        kept = run()
        took.setdefault(what, {}).setdefault(who, []).append(time.perf_counter() - began)
        del kept
        gc.collect()

    whats = {
        "open": (lambda: forebay.open(ours).keys(), lambda: pq.ParquetFile(path).schema_arrow.names),
        "ten columns": (lambda: forebay.open(ours).arrays(ten), lambda: pq.read_table(path, columns=ten)),
        "all columns": (lambda: forebay.open(ours).arrays(names), lambda: pq.read_table(path)),
    }
    for turn in range(repetitions + 1):
        for what, (own, other) in whats.items():
            pair = [("ours", own), ("parquet", other)]
            for who, run in pair if turn % 2 else reversed(pair):
                measure(what, who, run)
    # The first turn warms caches.
    for who in took.values():
        for samples in who.values():
            del samples[0]
    opened = forebay.open(ours)
    before = opened.requests, opened.bytes_read
    muon = next((name for name in ("Muon_pt", *names) if name in names))
    opened[muon].array(entry_start=0, entry_stop=1)
    return {
        "events": events,
        "columns": len(names),
        "ten": ten,
        "seconds": took,
        "ours_bytes": sum(os.path.getsize(os.path.join(at, name)) for at, _, files in os.walk(ours) for name in files),
        "parquet_bytes": os.path.getsize(path),
        "one_column": {"name": muon, "requests": opened.requests - before[0], "bytes": opened.bytes_read - before[1]},
    }


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    print(json.dumps({"sizes": sizes, "times": times}[command](*arguments)))
