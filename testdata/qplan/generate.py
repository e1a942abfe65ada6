#!/usr/bin/env python3
"""Writes the golden data of qplan: sources, expected files and cases.json.

    generate.py              write everything beside this script
    generate.py --check      make it again in memory, compare with the disk, and
                             prove the error bound of every case; exit 1 if not
    generate.py --all DIR    write also the large expected files, into DIR

Every expected byte comes from contract.py, which follows the numeric contract
with the standard library alone; none comes from the program under test.
"""

import argparse
import hashlib
import json
import os
import sys

sys.dont_write_bytecode = True

import cases
import checker
import container
import contract

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST_STORED = {"out": 5200, "dequant": 1100}     # larger ones are known by SHA-256 only


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def make_case(row, sources):
    """(entry for cases.json, {"out": bytes, "dequant": bytes})"""
    name, source, quantize, dequantize = row
    tensors, metadata = container.read(sources[source])
    out, quantized, kept = contract.quantize_file(tensors, metadata, quantize)
    back = contract.dequantize_file(quantized, kept, metadata, dequantize)
    expected = {"out": out, "dequant": back}
    entry = {
        "name": name,
        "quantize": quantize,
        "dequantize": dequantize,
        "in": source + ".in.safetensors",
        "stored": [part for part, data in expected.items() if len(data) <= LARGEST_STORED[part]],
        "sha256": {"in": sha256(sources[source]), "out": sha256(out), "dequant": sha256(back)},
    }
    return entry, expected


def prove_case(row, sources, expected):
    """The second decoder on one case."""
    _, source, _, dequantize = row
    dtype = dequantize[1].upper() if dequantize else None
    checker.check_case(sources[source], expected["out"], expected["dequant"], dtype)


def make_everything(prove, everything):
    """{file name: bytes}; with `everything` also the expected files too large to store."""
    sources = cases.sources()
    files = {name + ".in.safetensors": data for name, data in sources.items()}
    entries = {}
    for row in cases.cases():
        try:
            entry, expected = make_case(row, sources)
            if prove:
                prove_case(row, sources, expected)
        except (contract.Refused, checker.Offence) as error:
            sys.exit("generate.py: case %s: %s" % (row[0], error))
        for part in expected if everything else entry["stored"]:
            files["%s.%s.safetensors" % (row[0], part)] = expected[part]
        assert row[0] not in entries, "two cases have one name"
        entries[row[0]] = json.dumps(entry)
    used = {row[1] for row in cases.cases()}
    assert used == set(sources), "a source without a case"
    files["cases.json"] = ("[\n" + ",\n".join(entries.values()) + "\n]\n").encode()
    return files


def is_ours(file):
    return file == "cases.json" or file.endswith(".safetensors")


def write(files, folder):
    os.makedirs(folder, exist_ok=True)
    for file, data in files.items():
        with open(os.path.join(folder, file), "wb") as f:
            f.write(data)
    for file in sorted(set(filter(is_ours, os.listdir(folder))) - set(files)):
        print("not part of the golden data: " + os.path.join(folder, file))


def compare(files, folder):
    """Names of files that are missing, extra or different on disk."""
    wrong = set(filter(is_ours, os.listdir(folder))) ^ set(files)
    for file in set(files) - wrong:
        with open(os.path.join(folder, file), "rb") as f:
            if f.read() != files[file]:
                wrong.add(file)
    return sorted(wrong)


def self_test():
    """The floating point helpers, before anything is believed that they made."""
    checker.check_formats()
    random = cases.Random("self-test")
    checker.check_single_arithmetic([random.bits(32) for _ in range(4000)])
    checker.check_single_arithmetic([random.bits(24) | random.bits(1) << 31 for _ in range(2000)])


def main():
    parser = argparse.ArgumentParser(description="Golden data of qplan.")
    parser.add_argument("--check", action="store_true", help="compare with the disk and prove every case")
    parser.add_argument("--all", metavar="DIR", help="write everything, large files too, into DIR")
    arguments = parser.parse_args()
    if arguments.check:
        self_test()
        wrong = compare(make_everything(True, False), HERE)
        for file in wrong:
            print("differs: " + file)
        sys.exit(1 if wrong else 0)
    folder = arguments.all or HERE
    files = make_everything(False, bool(arguments.all))
    write(files, folder)
    print("%d files, %d bytes" % (len(files), sum(map(len, files.values()))))


if __name__ == "__main__":
    main()
