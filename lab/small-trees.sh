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
set -euo pipefail
export LC_ALL=C.UTF-8

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2; }
fail() { echo "small-trees: $*" >&2; exit 1; }

if [ "$(chrt -p $$ 2>/dev/null | sed -n 's/.*policy: //p')" != SCHED_OTHER ] && [ -z "${SMALL_TREES_ORDINARY-}" ]; then
    SMALL_TREES_ORDINARY=1 exec chrt -o 0 "$0" "$@"
fi

steps=() names=() dirs=()
for word; do
    case $word in
        *=*) names+=("${word%%=*}"); dirs+=("${word#*=}") ;;
        rsync|tar) steps+=("$word") ;;
        *) usage ;;
    esac
done
[ "${#names[@]}" -ge 1 ] || usage
[ "${#steps[@]}" -ge 1 ] || steps=(rsync tar)
for dir in "${dirs[@]}"; do [ -d "$dir" ] || fail "$dir is no directory"; done
tree=${TREE:-/usr/include} files=${FILES:-50000} turns=${TURNS:-3} pause=${PAUSE:-1.3}
case " ${steps[*]} " in *" rsync "*) command -v rsync > /dev/null || fail "rsync is not installed" ;; esac

work=$(mktemp -d) # sources and results, on the file system of temporary files
clean() {
    rm -rf "$work"
    for dir in "${dirs[@]}"; do rm -rf "$dir/small-trees"; done
}
trap clean EXIT
results=$work/results

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

can_drop=""
[ -w /proc/sys/vm/drop_caches ] && can_drop=1
# Long enough for caches with a time, and without those that have none.
rest() {
    sleep "$pause"
    [ -z "$can_drop" ] || { sync; echo 3 > /proc/sys/vm/drop_caches; }
    # The source is in memory again: only the target is compared.
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
    printf '%s\t%s\t%s\t%s\n' "$turn" "$system" "$label" "$(echo "$begun $ended" | awk '{ printf "%.3f", $2 - $1 }')" >> "$results"
}

run() { # STEP TURN SYSTEM DIR
    local step=$1 turn=$2 system=$3 dir=$4 place=$4/small-trees
    rm -rf "$place"
    mkdir "$place"
    case $step in
        rsync)
            rest "$tree"
            phase "$turn" "$system" "rsync -aHAX" "$dir" rsync -aHAX "$tree/" "$place/copy"
            rest "$tree"
            phase "$turn" "$system" "rsync -aHAX, nothing has changed" "$dir" rsync -aHAX "$tree/" "$place/copy"
            rest "$tree"
            phase "$turn" "$system" "rsync -aHAX --checksum" "$dir" rsync -aHAX --checksum "$tree/" "$place/copy"
            rest "$tree"
            phase "$turn" "$system" "rm -r of the copy" "$dir" rm -r "$place/copy" ;;
        tar)
            rest "$work/source.tar"
            phase "$turn" "$system" "tar x" "$dir" tar xpf "$work/source.tar" -C "$place"
            rest "$work/source"
            phase "$turn" "$system" "diff -r" "$dir" diff -r "$work/source" "$place/source"
            rest "$work/source.tar"
            phase "$turn" "$system" "rm -r" "$dir" rm -r "$place/source" ;;
    esac
    rm -rf "$place"
}

for step in "${steps[@]}"; do
    for ((turn = 1; turn <= turns; turn++)); do
        for place in "${!names[@]}"; do
            echo "$step, turn $turn of $turns: ${names[place]}" >&2
            run "$step" "$turn" "${names[place]}" "${dirs[place]}"
        done
    done
done

[ -z "${OUT-}" ] || { echo "turn,system,work,seconds"; sed 's/\t/","/g; s/^/"/; s/$/"/' "$results"; } > "$OUT"
shown_tree="$(find "$tree" -type f | wc -l) files of $([ "$tree" = "$work/tree" ] && echo "100 to 8,000 bytes" || echo "$tree")"
echo "In turns, $turns each, $(uname -r), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the end, ordinary scheduling class. rsync: $shown_tree;" \
    "tar: $files files of 100 to 8,000 bytes, 100 in each directory.${SYNC:+ With sync -f.}"
[ -n "$can_drop" ] || echo "The kernel's caches were not dropped (this is not root): local file systems compare and remove from memory."
echo
awk -F '\t' -v all="${names[*]}" '
function sorted(list, count,   i, j, value) {
    for (i = 2; i <= count; i++) {
        value = list[i]
        for (j = i - 1; j > 0 && list[j] > value; j--) list[j + 1] = list[j]
        list[j + 1] = value
    }
}
function spread(list, count,   middle) {
    if (count == 0) return "-"
    sorted(list, count)
    middle = count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
    return sprintf("%.2f (%.2f–%.2f)", middle, list[1], list[count])
}
BEGIN { systems = split(all, name, " ") }
{
    if (!($3 in seen)) { order[++works] = $3; seen[$3] = 1 }
    seconds[$3, $2, $1] = $4
    if ($1 > turns) turns = $1
}
END {
    head = "| work, seconds |"; rule = "|---|"
    for (s = 1; s <= systems; s++) { head = head " " name[s] " |"; rule = rule "---|" }
    for (s = 2; s <= systems; s++) { head = head " " name[1] " / " name[s] ", pairs |"; rule = rule "---|" }
    print head; print rule
    for (w = 1; w <= works; w++) {
        line = "| " order[w] " |"
        for (s = 1; s <= systems; s++) {
            count = 0
            for (t = 1; t <= turns; t++) if ((order[w], name[s], t) in seconds) list[++count] = seconds[order[w], name[s], t]
            line = line " " spread(list, count) " |"
        }
        for (s = 2; s <= systems; s++) {
            count = 0
            for (t = 1; t <= turns; t++)
                if (seconds[order[w], name[s], t] > 0) list[++count] = seconds[order[w], name[1], t] / seconds[order[w], name[s], t]
            line = line " " spread(list, count) " |"
        }
        print line
    }
}' "$results"
