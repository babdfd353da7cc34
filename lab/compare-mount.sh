#!/bin/bash
# Compares mounted file systems: runs each piece of work on all of them in turns (A B A B ...), and prints their rates and the ratios of
# each pair of turns. Turns that lie seconds apart see the same machine, so ratios of pairs hold where rates of different hours do not.
#
#   lab/compare-mount.sh [STEP...] NAME=DIR NAME=DIR...
#   lab/compare-mount.sh empty streams weft=/mnt/weft moosefs=/mnt/mfs ext4=/srv/plain
#
# The first NAME is compared with each other one. DIR is an existing directory; everything happens in directories below it that are removed again.
# STEPs; the first five without one:
#   empty        empty files in one directory: create, stat at once, stat after a rest, remove
#   unique       the same, each process in a directory of its own
#   small        files of 3901 bytes: create, stat, read, remove
#   streams      own files and one shared file, 1 MiB and 64 KiB in each call: write, read
#   interleaved  one file, blocks of 47,008 bytes in turns: write, read
#   fsync        own files with fsync at the end (weft bench only)
#   split, stress   4 x 50 MiB in few and many files; 100 x 500 empty files (weft bench only)
# Environment:
#   WEFT         the program (default: weft from PATH, or the release build of this tree)
#   MDTEST, IOR  mdtest and ior: then empty, unique and small are run by mdtest, streams and interleaved by IOR, as their users do it;
#                without them by `weft bench`
#   MPIRUN       how their processes are started (default: mpirun)
#   PROCESSES    processes of the metadata steps (default "1 2 4"); streams have 1 and 2, interleaved 2
#   FILES        files of the metadata steps, all processes together (default 10000)
#   MIB          MiB of each process in streams (default 512)
#   TURNS        turns of each file system (default 3)
#   PAUSE        seconds of rest before a phase that must not be answered by a cache (default 1.3: longer than the second for which
#                FUSE file systems let the kernel remember names and attributes)
#   OUT          keep all single results in this file (CSV)
# The kernel's caches of pages, names and attributes are dropped in every rest if this is root; if not, the table says which rows they may serve.
# Everything runs in the ordinary scheduling class; servers in another one are named.
here=$(cd "$(dirname "$0")/.." && pwd)
STEPS="empty unique small streams interleaved fsync split stress" DEFAULT_STEPS="empty unique small streams interleaved"
# shellcheck source=lab/turns.sh
. "$here/lab/turns.sh"
turns_begin "$@"

weft=${WEFT:-$(command -v weft || echo "${CARGO_TARGET_DIR:-$here/target}/dist/weft")}
mdtest=${MDTEST-} ior=${IOR-} mpirun=${MPIRUN:-mpirun}
[ -n "$mdtest" ] && [ -n "$ior" ] || [ -x "$weft" ] || fail "no program $weft: build it (cargo build --profile dist -p weft), or set WEFT, or MDTEST and IOR"
files=${FILES:-10000} mib=${MIB:-512}

# --- by weft bench ---------------------------------------------------------------------------------------------------------------
# bench TURN SYSTEM WORK DIR RENAME SUBCOMMAND OPTION...: RENAME is a sed script on names of phases; phases with an empty name are left out.
bench() {
    local turn=$1 system=$2 work=$3 dir=$4 rename=$5 subcommand=$6 json
    shift 6
    json=$("$weft" bench "$subcommand" --path "$dir" --reps 1 --full-paths --json "$@" 2>/dev/null) || fail "weft bench $subcommand failed in $dir"
    printf '%s' "$json" | "${PYTHON:-python3}" -c '
import json, sys
for phase in json.load(sys.stdin):
    stream = phase.get("mib_per_s")
    if phase["phase"].split("-")[-1] in ("write", "read") and stream:
        print(phase["phase"], stream["median"], "MiB/s", sep="\t")
    else:
        print(phase["phase"], phase["ops_per_s"]["median"], "1/s", sep="\t")' |
    while IFS=$'\t' read -r phase rate unit; do
        phase=$(printf '%s' "$phase" | sed "$rename")
        [ -z "$phase" ] || note "$turn" "$system" "$work: $phase" "$rate" "$unit"
    done
}

bench_names() {
    local turn=$1 system=$2 work=$3 dir=$4 processes=$5
    shift 5
    local each=$((files / processes))
    bench "$turn" "$system" "$work" "$dir" 's/^stat$/stat at once/; s/^read$/read at once/; s/^readdir$//' \
        all --stream-size 0 --procs "$processes" --files "$each" "$@"
    bench "$turn" "$system" "$work" "$dir" "s/^stat\$/stat after $pause s/; s/^read\$/read after $pause s/; s/^create\$//; s/^remove\$//; s/^readdir\$//" \
        all --stream-size 0 --procs "$processes" --files "$each" --pause "$pause" --cold "$@"
}

# --- by mdtest and IOR --------------------------------------------------------------------------------------------------------------
# rate_of NAME: of a line such as `   File creation   12345.6 ...`
rate_of() { sed -n "s/^ *$1 *:\{0,1\} *\([0-9.]*\).*/\1/p" | head -n 1; }

mdtest_phase() { # TURN SYSTEM WORK PHASE PROCESSES LINE OPTION...
    local turn=$1 system=$2 work=$3 phase=$4 processes=$5 line=$6 rate
    shift 6
    rate=$("$mpirun" -n "$processes" "$mdtest" -F -i 1 "$@" | rate_of "$line") || fail "mdtest $* failed"
    [ -n "$rate" ] || fail "mdtest $* printed no rate of $line"
    note "$turn" "$system" "$work: $phase" "$rate" "1/s"
}

mdtest_names() { # TURN SYSTEM WORK DIR PROCESSES BYTES OPTION...
    local turn=$1 system=$2 work=$3 dir=$4/compare-mdtest processes=$5 bytes=$6
    shift 6
    local common=(-n $((files / processes)) -d "$dir" "$@")
    mdtest_phase "$turn" "$system" "$work" create "$processes" "File creation" "${common[@]}" -C -w "$bytes"
    mdtest_phase "$turn" "$system" "$work" "stat at once" "$processes" "File stat" "${common[@]}" -T
    rest
    mdtest_phase "$turn" "$system" "$work" "stat after $pause s" "$processes" "File stat" "${common[@]}" -T
    if [ "$bytes" -gt 0 ]; then
        rest
        mdtest_phase "$turn" "$system" "$work" "read after $pause s" "$processes" "File read" "${common[@]}" -E -e "$bytes"
    fi
    rest
    mdtest_phase "$turn" "$system" "$work" remove "$processes" "File removal" "${common[@]}" -r
    rm -rf "$dir"
}

ior_pair() { # TURN SYSTEM WORK DIR PROCESSES OPTION...
    local turn=$1 system=$2 work=$3 file=$4/compare-ior processes=$5 rate
    shift 5
    rate=$("$mpirun" -n "$processes" "$ior" -a POSIX -i 1 -k -w -o "$file" "$@" | sed -n 's/^Max Write: *\([0-9.]*\) MiB.*/\1/p')
    note "$turn" "$system" "$work: write" "${rate:?IOR printed no rate}" "MiB/s"
    rest
    rate=$("$mpirun" -n "$processes" "$ior" -a POSIX -i 1 -k -r -o "$file" "$@" | sed -n 's/^Max Read: *\([0-9.]*\) MiB.*/\1/p')
    note "$turn" "$system" "$work: read after $pause s" "${rate:?IOR printed no rate}" "MiB/s"
    rm -f "$file" "$file".0*
}

# --- one turn of one file system ---------------------------------------------------------------------------------------------------
names_of() { # TURN SYSTEM DIR LABEL BYTES bench-options -- mdtest-options
    local turn=$1 system=$2 dir=$3 label=$4 bytes=$5 processes
    shift 5
    for processes in ${PROCESSES:-1 2 4}; do
        local work="$label, $processes process$([ "$processes" = 1 ] || echo es)"
        if [ -n "$mdtest" ]; then
            mdtest_names "$turn" "$system" "$work" "$dir" "$processes" "$bytes" $([ "$label" != "${label/own/}" ] && echo -u)
        else
            bench_names "$turn" "$system" "$work" "$dir" "$processes" --size "$bytes" "$@"
        fi
    done
}

stream() { # TURN SYSTEM DIR LABEL PROCESSES BLOCK own|shared
    local turn=$1 system=$2 dir=$3 label=$4 processes=$5 block=$6 sharing=$7
    if [ -n "$ior" ]; then
        ior_pair "$turn" "$system" "$label" "$dir" "$processes" -b "${mib}m" -t "$block" $([ "$sharing" = shared ] || echo -F)
    else
        bench "$turn" "$system" "$label" "$dir" "s/^read\$/read after $pause s/" streams --procs "$processes" --size "${mib}MiB" --block "$block" \
            --pause "$pause" --cold $([ "$sharing" = own ] || echo --shared-file)
    fi
}

run() { # STEP TURN SYSTEM DIR
    local step=$1 turn=$2 system=$3 dir=$4 count processes
    case $step in
        empty) names_of "$turn" "$system" "$dir" "empty files, one directory" 0 ;;
        unique) names_of "$turn" "$system" "$dir" "empty files, own directories" 0 --dir own ;;
        small) names_of "$turn" "$system" "$dir" "3901-byte files, one directory" 3901 ;;
        streams)
            for block in 1048576 65536; do
                stream "$turn" "$system" "$dir" "own file, 1 process, $((block / 1024)) KiB" 1 "$block" own
                stream "$turn" "$system" "$dir" "own files, 2 processes, $((block / 1024)) KiB" 2 "$block" own
                stream "$turn" "$system" "$dir" "shared file, 2 processes, $((block / 1024)) KiB" 2 "$block" shared
            done ;;
        interleaved)
            local blocks=$((mib * 1048576 / 47008))
            if [ -n "$ior" ]; then
                ior_pair "$turn" "$system" "47008-byte blocks interleaved, 2 processes" "$dir" 2 -t 47008 -b 47008 -s "$blocks"
            else
                bench "$turn" "$system" "47008-byte blocks interleaved, 2 processes" "$dir" "s/^read\$/read after $pause s/" streams --procs 2 \
                    --interleaved --block 47008 --size $((blocks * 47008)) --pause "$pause" --cold
            fi ;;
        fsync)
            bench "$turn" "$system" "own file with fsync, 1 process, 1 MiB" "$dir" 's/^read$//' streams --fsync --size "${mib}MiB"
            bench "$turn" "$system" "3901-byte files with fsync, 2 processes" "$dir" '' create --procs 2 --fsync --size 3901 --files $((files / 10)) ;;
        split)
            for count in 1 8 32 128; do bench "$turn" "$system" "4 x 50 MiB in $count files each" "$dir" '' split --procs 4 --size 50MiB --files "$count"; done ;;
        stress)
            for processes in 1 5; do
                bench "$turn" "$system" "100 x 500 files, $processes processes" "$dir" '' stress --procs "$processes" --subdirs 100 --files 500
            done ;;
    esac
}

turns

# --- what came out -------------------------------------------------------------------------------------------------------------------
echo "$(turns_circumstances) Names by ${mdtest:+mdtest}${mdtest:-weft bench}, streams by ${ior:+IOR}${ior:-weft bench}." |
    sed "s|mdtest$mdtest|mdtest|; s|IOR$ior|IOR|"
special=$(ps -eo cls=,comm= 2>/dev/null | awk '($1 == "FF" || $1 == "RR") && $2 ~ /^(weft|mfs|glusterfs|ceph|juicefs|mount|pvfs|orangefs)/ { print $2 }' | sort -u | tr '\n' ' ')
[ -z "$special" ] || echo "NOT COMPARABLE: in a real-time class run: $special"
if [ -n "$mdtest$ior" ] && [ -n "$can_drop" ]; then
    echo "Before each phase with \"after $pause s\" and before removals the kernel's caches were dropped; \"at once\" may be answered by them."
else
    echo "\"At once\" may be answered by the kernel's caches. After $pause s names and attributes of FUSE file systems are asked for again; those of local" \
        "and kernel file systems are not; pages of files were dropped with POSIX_FADV_DONTNEED where the file system heeds it."
fi
echo
turns_table
