#!/usr/bin/env python3
"""Small files in random order: the libraries' batches beside open().read() on a mount of the same servers.

    lab/read-many.py --weft target/dist/weft --site SITE --readers READERS --state /dev/shm/read-many [--turns 5]

SITE is a folder with the Python package (`python3 -m zipfile -e WHEEL SITE`), READERS the compiled
gateways/capi/examples/readers.c. Each measurement is a new process, and the mount a new one. Each
turn is A B A B A B: Python, mount, Python with views, mount, C, mount; a ratio is that of a pair.
Prints files/s as the median with the range, and the ratios.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys

SIZES = ((3901, 4096), (112 << 10, 2048))
DIRECTORIES = 16
BATCH = 256

FILL = """
import concurrent.futures, os, sys, weft
fs, size, count, directories = weft.FileSystem(sys.argv[1]), *map(int, sys.argv[2:])
data = os.urandom(size)
for number in range(directories):
    fs.makedirs(f"/{size}/{number}")
write = lambda number: fs.write_bytes(f"/{size}/{number % directories}/{number}", data)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    list(pool.map(write, range(count)))
"""
BY_LIBRARY = """
import json, sys, time, weft
paths, batch, size = sys.stdin.read().split(), int(sys.argv[2]), 0
fs = weft.FileSystem(sys.argv[1])
begun = time.perf_counter()
for at in range(0, len(paths), batch):
    size += sum(map(len, fs.read_many(paths[at:at + batch], views=sys.argv[3] == "views")))
print(json.dumps({"files": len(paths), "bytes": size, "seconds": time.perf_counter() - begun}))
"""
BY_MOUNT = """
import json, sys, time
paths, size = [sys.argv[1] + path for path in sys.stdin.read().split()], 0
begun = time.perf_counter()
for path in paths:
    with open(path, "rb", buffering=0) as file:
        size += len(file.read())
print(json.dumps({"files": len(paths), "bytes": size, "seconds": time.perf_counter() - begun}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weft", "site", "readers", "state"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    place = options.state.with_name(options.state.name + ".mnt")
    place.mkdir(parents=True, exist_ok=True)

    def call(*command, given=None):
        done = subprocess.run(list(map(str, command)), input=given, text=True, env={"PYTHONPATH": str(options.site), "PATH": "/usr/bin:/bin"},
                              stdout=subprocess.PIPE, check=True, timeout=300)
        return done.stdout

    def rate(said, size):
        result = json.loads(said)
        assert result["bytes"] == result["files"] * size, result
        return result["files"] / result["seconds"]

    def by_library(kind, given):
        return call(sys.executable, "-c", BY_LIBRARY, options.state, BATCH, kind, given=given)

    def by_mount(given):
        call(options.weft, "mount", options.state, place)
        try:
            return call(sys.executable, "-c", BY_MOUNT, place, given=given)
        finally:
            call(options.weft, "umount", place)

    call(options.weft, "up", "--state", options.state, "--meta", 2, "--data", 4)
    try:
        print("| files | way | files/s | ratio to the mount beside it |\n|---|---|---|---|")
        for size, count in SIZES:
            call(sys.executable, "-c", FILL, options.state, size, count, DIRECTORIES)
            paths = [f"/{size}/{number % DIRECTORIES}/{number}" for number in range(count)]
            ways = {
                "Python `read_many`": lambda given: by_library("copies", given),
                "the same, `views=True`": lambda given: by_library("views", given),
                "C `weft_read_many`": lambda given: call(options.readers, options.state, BATCH, given=given),
            }
            rates = {name: [] for name in [*ways, "mount"]}
            ratios = {name: [] for name in ways}
            for turn in range(options.turns):
                for name, way in ways.items():
                    random.Random(turn).shuffle(paths)
                    given = "".join(f"{path}\n" for path in paths)
                    pair = rate(way(given), size), rate(by_mount(given), size)
                    rates[name].append(pair[0])
                    rates["mount"].append(pair[1])
                    ratios[name].append(pair[0] / pair[1])
            for name, numbers in rates.items():
                ratio = spread(ratios[name], ".1f") if name in ratios else "1"
                print(f"| {size:,} B | {name} | {spread(numbers, ',.0f')} | {ratio} |", flush=True)
    finally:
        call(options.weft, "down", "--state", options.state)


def spread(numbers, form):
    return f"{statistics.median(numbers):{form}} ({min(numbers):{form}} - {max(numbers):{form}})"


if __name__ == "__main__":
    main()
