#!/usr/bin/env python3
"""How fast all files of a tree are read again: open, read, close, one after the other, in random
order, by one process; several places with the same tree in turns.

    lab/epochs.py [--turns 6] NAME=DIR NAME=DIR ...

Prints for each place the files per second of the first time and, as median (smallest - greatest),
of the times after it, and the ratio of each place to the first one named, turn by turn. What the
kernel has in its caches stays there: that is what is measured. Caches are not dropped before the
first time.
"""

import argparse
import os
import random
import statistics
import time

READ_BYTES = 1 << 20


def files_below(root):
    return [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]


def epoch(files, seed):
    """Files per second."""
    files = list(files)
    random.Random(seed).shuffle(files)
    begun = time.monotonic()
    for path in files:
        file = os.open(path, os.O_RDONLY)
        while os.read(file, READ_BYTES):
            pass
        os.close(file)
    return len(files) / (time.monotonic() - begun)


def shown(values):
    return f"{statistics.median(values):.3g} ({min(values):.3g} - {max(values):.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("places", nargs="+", metavar="NAME=DIR")
    args = parser.parse_args()
    places = dict(place.split("=", 1) for place in args.places)
    files = {name: files_below(root) for name, root in places.items()}
    counts = {name: len(of_place) for name, of_place in files.items()}
    assert len(set(counts.values())) == 1 and min(counts.values()) > 0, f"not the same trees: {counts}"
    first = {name: epoch(of_place, 0) for name, of_place in files.items()}
    rates = {name: [] for name in files}
    for turn in range(1, args.turns + 1):
        for name, of_place in files.items():
            rates[name].append(epoch(of_place, turn))
    one = next(iter(rates))
    for name, of_place in rates.items():
        ratios = [mine / its for mine, its in zip(of_place, rates[one])]
        print(f"{name}: {counts[name]} files, first {first[name]:.0f}/s, then {shown(of_place)}/s, {shown(ratios)} of {one}")


if __name__ == "__main__":
    main()
