#!/bin/bash
# Compares two builds of Weft: starts a file system of each with one metadata and one data server, mounts both, and runs each piece of work on
# them in turns (A B A B ...). What shows a loss of a few percent is many short turns on a machine that does nothing else.
#
#   lab/two-builds.sh NEW OLD [STEP...]
#   TURNS=12 FILES=4000 lab/two-builds.sh target/dist/weft ../before/target/dist/weft library empty
#
# STEPs: library (creates by the library, 64 in flight and one at a time, by each build's own client), and those of lab/compare-mount.sh; without one
# library, empty, small, streams and interleaved. NEW's `weft bench` works on both mounts.
# Environment: that of lab/compare-mount.sh; TRANSPORT (device, uring; default device); OPTIONS (more options of `weft mount`), OLD_OPTIONS (those of
# the second build, if they differ); SERVERS (options of `weft up`, default "--meta 1 --data 1"),
# OLD_SERVERS (those of the second build, if they differ). What encryption over TCP costs, with one build:
#   SERVERS="--meta 1 --data 1 --listen tcp" OLD_SERVERS="--meta 1 --data 1 --listen tcp --no-encryption" lab/two-builds.sh WEFT WEFT library streams
set -euo pipefail

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2; }
[ $# -ge 2 ] && [ -x "$1" ] && [ -x "$2" ] || usage
here=$(cd "$(dirname "$0")" && pwd)
new=$(realpath "$1") old=$(realpath "$2")
shift 2
[ $# -ge 1 ] || set -- library empty small streams interleaved
work=$(mktemp -d)
clean() {
    for build in new old; do "${!build}" down --state "$work/$build" > /dev/null 2>&1 || true; done
    rm -rf "$work"
}
trap clean EXIT
for build in new old; do
    servers=${SERVERS:---meta 1 --data 1}
    [ "$build" = new ] || servers=${OLD_SERVERS:-$servers}
    # Options are words.
    # shellcheck disable=SC2086
    "${!build}" up --state "$work/$build" $servers > "$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
    mkdir "$work/$build.mnt"
    options=${OPTIONS-}
    [ "$build" = new ] || options=${OLD_OPTIONS-$options}
    "${!build}" mount -o "transport=${TRANSPORT:-device}${options:+,$options}" "$work/$build" "$work/$build.mnt" > "$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
done

library() {
    local STEPS="library" DEFAULT_STEPS="library" files=${FILES:-10000}
    # shellcheck source=lab/turns.sh
    . "$here/turns.sh"
    turns_begin "new=$work/new" "old=$work/old"
    trap 'rm -f "$results"; clean' EXIT
    run() { # STEP TURN NAME DIR
        local depth rate
        for depth in 64 1; do
            rate=$("${!3}" bench create --fs "$4" --files "$files" --depth "$depth" --reps 1 --json 2> /dev/null |
                python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["ops_per_s"]["median"])')
            note "$2" "$3" "library, create, $depth in flight" "$rate" 1/s
        done
    }
    turns
    echo "$(turns_circumstances) One client."
    echo
    turns_table
    echo
}

on_mounts=()
for step; do
    if [ "$step" = library ]; then library; else on_mounts+=("$step"); fi
done
[ "${#on_mounts[@]}" -eq 0 ] || WEFT=$new "$here/compare-mount.sh" "${on_mounts[@]}" "new=$work/new.mnt" "old=$work/old.mnt"
