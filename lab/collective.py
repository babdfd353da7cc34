#!/usr/bin/env python3
"""The collective methods of 2009, run for real and simulated, in one picture.

    lab/collective.py --weft target/release/weft --mpi openmpi --lib PREFIX/lib --program INTERLEAVED -o collective.svg

INTERLEAVED is the compiled gateways/mpiio/examples/interleaved.c, PREFIX where `make install-mpiio` has put its library. Each
pattern (ranks, bytes of a block) is written and read by single calls and by each method, in turns, on a new file system of 4
data servers in /dev/shm; the simulator does the same on the machines of 2009. Prints a line of JSON for each case: MiB/s of
both, how many writes the data servers answered, and the ratio to single calls of the same turn (write, read).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

METHODS = ("direct", "two_phase", "interleaved_two_phase", "double_buffered")
SERVERS, STRIPE, BUFFER = 4, 1 << 20, 8 << 20


def run(*command, **environment):
    done = subprocess.run([str(part) for part in command], env={**os.environ, **environment}, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def writes(arguments, state):
    text = run(arguments.weft, "metrics", state, "--once")
    found = re.findall(r'^weft_request_duration_seconds_count\{[^}]*op="Write"[^}]*\} (\d+)', text, re.M)
    return sum(map(int, found))


def real(arguments, state, ranks, block, method):
    library = f"{arguments.lib}/libweft-mpiio-{arguments.mpi}.so"
    load = ("--allow-run-as-root", "--oversubscribe", "-x", f"LD_PRELOAD={library}") if arguments.mpi == "openmpi" else ("-env", "LD_PRELOAD", library)
    before = writes(arguments, state)
    said = run(f"mpiexec.{arguments.mpi}", "-n", ranks, *load, arguments.program, "weft:/blocks", block, arguments.file, method, BUFFER, WEFT_FS=state)
    return {**json.loads(said), "writes": writes(arguments, state) - before}


def simulated(arguments, folder, ranks, block):
    plan = os.path.join(folder, "plan.toml")
    with open(plan, "w", encoding="utf-8") as out:
        out.write(f'description = "collective"\nprofile = "pvs-2009"\nclients = {ranks}\nservers = {SERVERS}\nstripe = {STRIPE}\n'
                  f'collective = {json.dumps(METHODS)}\ncollective_buffer = {BUFFER}\n[server]\nrules = "today"\ncache_layer = "server_directed"\n'
                  f'[[workload]]\nkind = "collective"\nfile = {arguments.file}\nblock = {block}\naccess = ["write", "read"]\n')
    return {(row["collective"], row["workload.access"]): row for row in json.loads(run(arguments.weft, "sim", "run", plan, "--json"))}


def compare(arguments, state, folder, ranks, block):
    turns = {method: [] for method in ("alone", *METHODS)}
    for _ in range(arguments.turns):
        for method, found in turns.items():
            found.append(real(arguments, state, ranks, block, method))
    model = simulated(arguments, folder, ranks, block)
    for method, found in turns.items():
        row = {"ranks": ranks, "block": block, "method": method, "writes": found[0]["writes"]}
        for access in ("write", "read"):
            row[f"{access}_mib_s"] = statistics.median(one[f"{access}_mib_s"] for one in found)
            if method != "alone":
                row[f"{access}_simulated"] = model[method, access]["mib_per_second"]
        row["over_alone"] = [round(statistics.median(one[f"{access}_mib_s"] / single[f"{access}_mib_s"]
                             for one, single in zip(found, turns["alone"])), 1) for access in ("write", "read")]
        print(json.dumps(row), flush=True)
        yield row


def picture(rows, path):
    """Bars: a group for each pattern, above what was measured, below what was simulated; each half has its own scale."""
    colours = dict(zip(("alone", *METHODS), ("#888888", "#4477aa", "#ee6677", "#228833", "#ccbb44")))
    keys = sorted({(row["ranks"], row["block"]) for row in rows})
    width, high = 90 * len(keys) + 220, 180
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{2 * high + 90}" font-family="sans-serif" font-size="11">']
    for half, (field, title) in enumerate((("write_mib_s", "measured: writing, MiB/s"), ("write_simulated", "simulated (machines of 2009): writing, MiB/s"))):
        most = max(row.get(field, 0) for row in rows)
        base = (half + 1) * high + half * 40
        out.append(f'<text x="10" y="{base - high + 20}">{title}; highest {most:.0f}</text>')
        for row in rows:
            bar = row.get(field, 0) / most * (high - 40)
            x = 20 + 90 * keys.index((row["ranks"], row["block"])) + 15 * list(colours).index(row["method"])
            name = f'{row["method"]}, {row["ranks"]} ranks, {row["block"]} bytes: {row.get(field, 0):.1f} MiB/s'
            out.append(f'<rect x="{x}" y="{base - bar:.1f}" width="13" height="{bar:.1f}" fill="{colours[row["method"]]}"><title>{name}</title></rect>')
        for number, (ranks, block) in enumerate(keys):
            out.append(f'<text x="{20 + 90 * number}" y="{base + 14}">{ranks} x {block >> 10} KiB</text>')
    for number, (method, colour) in enumerate(colours.items()):
        out.append(f'<rect x="{width - 180}" y="{30 + 18 * number}" width="12" height="12" fill="{colour}"/><text x="{width - 162}" y="{40 + 18 * number}">{method}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--weft", "--lib", "--program"):
        parser.add_argument(name, required=True)
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), default="openmpi")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 5, 10])
    parser.add_argument("--blocks", type=int, nargs="+", default=[5120, 51200, 524288])
    parser.add_argument("--file", type=int, default=52428800, help="bytes of the file")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("-o", "--out", help="SVG")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        state = os.path.join(folder, "fs")
        run(arguments.weft, "up", "--state", state, "--data", SERVERS)
        try:
            rows = [row for ranks in arguments.ranks for block in arguments.blocks for row in compare(arguments, state, folder, ranks, block)]
        finally:
            run(arguments.weft, "down", "--state", state)
    if arguments.out:
        picture(rows, arguments.out)


if __name__ == "__main__":
    main()
