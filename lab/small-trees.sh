#!/bin/bash
# Times what people do with trees of small files, on several file systems in turns (A B A B ...): prints seconds of each and the ratios of pairs.
# Turns that lie seconds apart see the same machine, so ratios of pairs hold where seconds of different hours do not.
#
#   lab/small-trees.sh [STEP...] NAME=DIR NAME=DIR...
#   lab/small-trees.sh rsync tar weft=/mnt/weft ext4=/srv/plain
#
# The first NAME is compared with each other one. DIR is an existing directory; everything happens in a directory below it that is removed again.
# STEPs; both without one:
#   rsync    `rsync -aHAX` of TREE (or of FILES files if it has fewer), a second time when nothing has changed, and with `--checksum`; remove
#   tar      untar FILES small files, compare them with their source, remove them
# Environment:
#   TREE     the tree of the step rsync (default /usr/include)
#   FILES    files of the step tar (default 50000), and at least so many of the step rsync / 6
#   TURNS    turns of each file system (default 3)
#   PAUSE    seconds of rest before each phase (default 1.3: longer than the second for which FUSE file systems let the kernel remember)
#   OUT      keep all single results in this file (CSV)
# The kernel's caches are dropped in every rest if this is root. What is only in the page cache when a program ends counts as done, on all alike;
# SYNC=1 adds a `sync -f` to each phase that writes.
here=$(cd "$(dirname "$0")" && pwd)
STEPS="rsync tar" DEFAULT_STEPS="rsync tar"
# shellcheck source=lab/turns.sh
. "$here/turns.sh"
turns_begin "$@"
tree=${TREE:-/usr/include} files=${FILES:-50000}
case " ${steps[*]} " in *" rsync "*) command -v rsync > /dev/null || fail "rsync is not installed" ;; esac

work=$(mktemp -d) # sources and results, on the file system of temporary files
clean() {
    rm -rf "$work" "$results"
    for dir in "${dirs[@]}"; do rm -rf "$dir/small-trees"; done
}
trap clean EXIT

# make_files DIR COUNT: COUNT files of 100 to 8,000 bytes, 100 in each directory
make_files() {
    python3 - "$1" "$2" <<'PYTHON'
import os, random, sys
top, count = sys.argv[1], int(sys.argv[2])
draw = random.Random(1)
for number in range(count):
    folder = f"{top}/{number // 10000}/{number // 100 % 100:02}"
    if number % 100 == 0:
        os.makedirs(folder)
    with open(f"{folder}/file{number}.h", "wb") as out:
        out.write(draw.randbytes(int(100 * 80 ** draw.random())))
PYTHON
}

case " ${steps[*]} " in *" rsync "*)
    if [ "$(find "$tree" -type f 2>/dev/null | wc -l)" -lt $((files / 6)) ]; then
        tree=$work/tree
        make_files "$tree" $((files / 6))
    fi ;;
esac
case " ${steps[*]} " in *" tar "*)
    make_files "$work/source" "$files"
    tar cf "$work/source.tar" -C "$work" source ;;
esac

# The source is in memory again after a rest: only the target is compared.
rest_with() {
    rest
    find "$@" -type f -exec cat {} + > /dev/null
}

# phase TURN SYSTEM WORK DIR COMMAND...: its seconds
phase() {
    local turn=$1 system=$2 label=$3 dir=$4 begun ended
    shift 4
    begun=$(date +%s.%N)
    "$@" > "$work/said" 2>&1 || fail "$system, $label: $* failed: $(tail -n 3 "$work/said")"
    [ -z "${SYNC-}" ] || sync -f "$dir"
    ended=$(date +%s.%N)
    note "$turn" "$system" "$label" "$(echo "$begun $ended" | awk '{ printf "%.3f", $2 - $1 }')" s
}

run() { # STEP TURN SYSTEM DIR
    local step=$1 turn=$2 system=$3 dir=$4 place=$4/small-trees
    rm -rf "$place"
    mkdir "$place"
    case $step in
        rsync)
            rest_with "$tree"
            phase "$turn" "$system" "rsync -aHAX" "$dir" rsync -aHAX "$tree/" "$place/copy"
            rest_with "$tree"
            phase "$turn" "$system" "rsync -aHAX, nothing has changed" "$dir" rsync -aHAX "$tree/" "$place/copy"
            rest_with "$tree"
            phase "$turn" "$system" "rsync -aHAX --checksum" "$dir" rsync -aHAX --checksum "$tree/" "$place/copy"
            rest_with "$tree"
            phase "$turn" "$system" "rm -r of the copy" "$dir" rm -r "$place/copy" ;;
        tar)
            rest_with "$work/source.tar"
            phase "$turn" "$system" "tar x" "$dir" tar xpf "$work/source.tar" -C "$place"
            rest_with "$work/source"
            phase "$turn" "$system" "diff -r" "$dir" diff -r "$work/source" "$place/source"
            rest_with "$work/source.tar"
            phase "$turn" "$system" "rm -r" "$dir" rm -r "$place/source" ;;
    esac
    rm -rf "$place"
}

turns
shown_tree="$(find "$tree" -type f | wc -l) files of $([ "$tree" = "$work/tree" ] && echo "100 to 8,000 bytes" || echo "$tree")"
echo "$(turns_circumstances) rsync: $shown_tree;" \
    "tar: $files files of 100 to 8,000 bytes, 100 in each directory.${SYNC:+ With sync -f.}"
[ -n "$can_drop" ] || echo "The kernel's caches were not dropped (this is not root): local file systems compare and remove from memory."
echo
turns_table
