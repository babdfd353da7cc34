#!/usr/bin/env python3
"""The rates of `weft bench` beside those of mdtest and IOR in the same directory, in turns.

    lab/same-rates.py DIR --weft target/release/weft --mdtest ior/src/mdtest --ior ior/src/ior [--procs 1 2]

DIR is in any mounted file system. Each pair is one measurement of each, every second time the other
way round: empty files made, looked at and removed, then a shared file written and read block by
block. Prints Weft's rate as a share of the other's: median, quartiles and range.
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess

BLOCK_BYTES = 47_008
NAMES = {"create": "File creation", "stat": "File stat", "remove": "File removal"}


def said(command, where=None):
    return subprocess.run(list(map(str, command)), cwd=where, check=True, capture_output=True, text=True, timeout=600).stdout


def of_weft(args, procs, what, *options):
    """Rows of `weft bench`, by phase."""
    shape = ["--path", args.dir, "--procs", procs, "--reps", 1, "--json", *options]
    return {row["phase"]: row for row in json.loads(said([args.weft, "bench", what, *shape]))}


def names_of_weft(args, procs):
    one = lambda what: of_weft(args, procs, what, "--files", args.files, "--naming", "mdtest")[what]
    return {what: one(what)["ops_per_s"]["median"] for what in NAMES}


def names_of_mdtest(args, procs):
    # Below the working directory: weft bench names files from an open directory.
    text = said([args.mpirun, "-n", procs, args.mdtest, "-F", "-n", args.files, "-d", "./mdtest", "-i", 1], args.dir)
    return {what: float(re.search(name + r"\s+([\d.]+)", text).group(1)) for what, name in NAMES.items()}


def stream_of_weft(args, procs):
    shared = ["--interleaved"] if procs > 1 else []
    rows = of_weft(args, procs, "streams", "--block", BLOCK_BYTES, "--size", BLOCK_BYTES * args.blocks, *shared)
    return {what: row["mib_per_s"]["median"] for what, row in rows.items()}


def stream_of_ior(args, procs):
    shape = ["-i", 1, "-w", "-r", "-o", args.dir / "ior", "-t", BLOCK_BYTES, "-b", BLOCK_BYTES, "-s", args.blocks]
    text = said([args.mpirun, "-n", procs, args.ior, "-a", "POSIX", *shape])
    return {what: float(re.search(rf"\n{what}\s+([\d.]+)", text).group(1)) for what in ("write", "read")}


def compare(args, procs, other, ours, theirs):
    shares = []
    for pair in range(args.pairs):
        sides = [ours, theirs][:: -1 if pair % 2 else 1]
        rates = {side: side(args, procs) for side in sides}
        shares.append({what: rates[ours][what] / rates[theirs][what] for what in rates[theirs]})
    for what in shares[0]:
        some = sorted(share[what] for share in shares)
        low, middle, high = statistics.quantiles(some, n=4)
        print(f"{other}, processes: {procs}, {what}: {middle:.3f} ({low:.3f} - {high:.3f}; {some[0]:.3f} - {some[-1]:.3f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    for program in ("weft", "mdtest", "ior", "mpirun"):
        parser.add_argument(f"--{program}", default=program)
    parser.add_argument("--procs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--files", type=int, default=20_000, help="empty files of each process")
    parser.add_argument("--blocks", type=int, default=11_000, help="blocks of each process, of 47,008 bytes")
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    args.dir = args.dir.absolute()
    for program in ("weft", "mdtest", "ior", "mpirun"):
        found = shutil.which(getattr(args, program)) or parser.error(f"there is no program {getattr(args, program)}")
        # Some are started in another folder.
        setattr(args, program, pathlib.Path(found).absolute())
    for procs in args.procs:
        compare(args, procs, "mdtest", names_of_weft, names_of_mdtest)
        compare(args, procs, "IOR", stream_of_weft, stream_of_ior)


if __name__ == "__main__":
    main()
