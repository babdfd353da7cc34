#!/bin/bash
# Measures one mounted file system with the workloads that other file systems were measured with, and prints a Markdown table.
#
#   lab/compare-mount.sh MNT [STEP...]
#
# MNT is an existing directory of the mounted file system; everything happens in directories below it that are removed again. STEPs:
# empty, unique, small, streams, fsync, interleaved, split, stress; all of them without one. Environment:
#   WEFT     the program (default: weft from PATH, or the release build of this tree)
#   FS       if MNT is a Weft mount: its file system, for JSON with what its servers spent
#   FILES    files of the metadata steps, all processes together (default 20000)
#   MIB      MiB of each process in streams (default 1024)
#   REPS     repetitions (default 3)
# One line tells median (smallest - greatest) and the number of repetitions. Reads follow writes at once, as in those measurements: a file
# system that keeps pages in the kernel's cache reads from there.
set -euo pipefail
export LC_ALL=C.UTF-8

[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
mount=$1
shift
steps=${*:-empty unique small streams fsync interleaved split stress}
here=$(cd "$(dirname "$0")/.." && pwd)
weft=${WEFT:-$(command -v weft || echo "${CARGO_TARGET_DIR:-$here/target}/release/weft")}
[ -x "$weft" ] || { echo "no program $weft: build it (cargo build --release -p weft) or set WEFT" >&2; exit 1; }
[ -d "$mount" ] || { echo "$mount is no directory" >&2; exit 1; }
files=${FILES:-20000}
mib=${MIB:-1024}
reps=${REPS:-3}

# bench LABEL SUBCOMMAND OPTION...
bench() {
    local label=$1 subcommand=$2
    shift 2
    "$weft" bench "$subcommand" --path "$mount" ${FS:+--fs "$FS"} --reps "$reps" --full-paths --markdown "$label" "$@"
}

metadata() {
    local label=$1 processes
    shift
    for processes in 1 2 4; do
        bench "$label, $processes processes" all --stream-size 0 --procs "$processes" --files $((files / processes)) "$@"
    done
}

echo "| test | median (min–max) | repetitions |"
echo "|---|---|---|"
for step in $steps; do
    case $step in
        empty) metadata "empty files, shared directory" ;;
        unique) metadata "empty files, own directories" --dir own ;;
        small) metadata "3901-byte files, shared directory" --size 3901 ;;
        streams)
            for block in 1MiB 64KiB; do
                bench "own files, 1 process, $block" streams --size "${mib}MiB" --block "$block"
                bench "own files, 2 processes, $block" streams --procs 2 --size "${mib}MiB" --block "$block"
                bench "shared file, 2 processes, $block" streams --procs 2 --shared-file --size "${mib}MiB" --block "$block"
            done
            ;;
        fsync)
            bench "own file with fsync, 1 process, 1MiB" streams --fsync --size "${mib}MiB"
            bench "3901-byte files with fsync, shared directory, 2 processes" create --procs 2 --fsync --size 3901 --files $((files / 10))
            ;;
        interleaved)
            bench "47008-byte blocks interleaved, 2 processes" streams --procs 2 --interleaved --block 47008 --size $((10000 * 47008))
            ;;
        split)
            for count in 1 8 32 128; do
                bench "4 x 50 MiB in $count files each" split --procs 4 --size 50MiB --files "$count"
            done
            ;;
        stress)
            for processes in 1 5; do
                bench "100 x 500 files, $processes processes" stress --procs "$processes" --subdirs 100 --files 500
            done
            ;;
        *) echo "there is no step $step" >&2; exit 2 ;;
    esac
done
