#!/bin/bash
# Counts the instructions of a mount and its servers for each operation, of one or several builds of
# Weft, by callgrind: what time does not show on a busy machine. The kernel's are not counted.
#
#   lab/instructions.sh NAME=PROGRAM [NAME=PROGRAM...]
#   lab/instructions.sh new=target/dist/weft old=../before/target/dist/weft
#
# Environment: FILES (default 1000), TRANSPORT (device, uring; default device).
# One metadata and one data server over Unix sockets. Ratios are of the first build to the others.
set -euo pipefail
export LC_ALL=C.UTF-8

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2; }
[ $# -ge 1 ] || usage
for word; do [[ $word == *=* ]] && [ -x "${word#*=}" ] || usage; done
command -v valgrind > /dev/null || { echo "${0##*/}: valgrind is not installed (apt-get install valgrind)" >&2; exit 1; }
files=${FILES:-1000}
work=$(mktemp -d)
pids=()
clean() {
    [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2> /dev/null || true
    wait
    rm -rf "$work"
}
trap clean EXIT

# wait_for COMMAND...: until it succeeds, at most a minute.
wait_for() {
    for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.2; done
    echo "${0##*/}: a minute passed without $*" >&2
    exit 1
}

# dump NAME STEP OPERATIONS: notes the instructions since the last dump, of each process.
dump() {
    local pid role place
    for place in 0 1 2; do
        pid=${pids[place]} role=${roles[place]}
        callgrind_control --dump "$pid" > /dev/null 2>&1
        for _ in $(seq 100); do compgen -G "$work/$1.$role.*" > /dev/null && break; sleep 0.1; done
        sleep 0.2
        awk -v what="$1 $2 $3 $role" '/^totals:/ { sum += $2 } END { print what, sum + 0 }' "$work/$1.$role".* >> "$work/counts"
        rm -f "$work/$1.$role".*
    done
}

steps=$work/steps.py
cat > "$steps" << 'PYTHON'
import os, sys
step, folder, files = sys.argv[1], sys.argv[2], int(sys.argv[3])
name = lambda n: f"{folder}/{n:07d}"
small, big = b"x" * 3901, b"y" * (1 << 20)
if step == "create":
    for n in range(files): os.close(os.open(name(n), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
elif step == "stat":
    for n in range(files): os.stat(name(n))
elif step == "list":
    for entry in os.scandir(folder): entry.stat()
elif step == "write":
    for n in range(files):
        with open(name(n), "r+b", buffering=0) as file: file.write(small)
elif step == "read":
    for n in range(files):
        with open(name(n), "rb", buffering=0) as file: assert file.read(4096) == small
elif step == "remove":
    for n in range(files): os.unlink(name(n))
elif step == "stream_write":
    with open(f"{folder}/big", "wb", buffering=0) as file:
        for n in range(64): file.write(big)
elif step == "stream_read":
    with open(f"{folder}/big", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for n in range(64): assert file.read(1 << 20) == big
PYTHON

names=()
for word; do
    name=${word%%=*} program=$(realpath "${word#*=}") state=$work/${word%%=*}
    names+=("$name")
    "$program" up --state "$state" --meta 1 --data 1 > /dev/null
    "$program" down --state "$state" > /dev/null
    mkdir "$state.mnt"
    pids=() roles=(meta data mount)
    counted() { valgrind --tool=callgrind --callgrind-out-file="$work/$name.$1" "$program" "${@:2}" > "$work/$1.log" 2>&1 & pids+=($!); }
    counted meta serve --config "$state/weft.toml" --server meta0
    counted data serve --config "$state/weft.toml" --server data0
    wait_for "$program" ping "$state"
    counted mount mount -f -o "transport=${TRANSPORT:-device},cache_ms=500" "$state" "$state.mnt"
    wait_for mountpoint -q "$state.mnt"
    mkdir "$state.mnt/d"
    sleep 1
    dump "$name" start 1
    for step in create stat list write read remove stream_write stream_read; do
        case $step in stream_*) times=64 ;; *) times=$files ;; esac
        python3 "$steps" "$step" "$state.mnt/d" "$files"
        sleep 1
        dump "$name" "$step" "$times"
    done
    umount "$state.mnt"
    kill "${pids[@]}" 2> /dev/null || true
    wait
    pids=()
done

echo "Instructions for one operation, user mode, $files files (streams: 64 of 1 MiB), callgrind. An idle second between steps is in them."
echo
awk -v all="${names[*]}" '
{ count[$1, $2, $4] = $5 / $3; count[$1, $2, "all three"] += $5 / $3; if (!($2 in seen) && $2 != "start") { seen[$2] = 1; order[++steps] = $2 } }
END {
    systems = split(all, name, " "); split("mount,meta,data,all three", role, ",")
    head = "| step | process |"; rule = "|---|---|"
    for (s = 1; s <= systems; s++) { head = head " " name[s] " |"; rule = rule "---|" }
    for (s = 2; s <= systems; s++) { head = head " " name[1] " / " name[s] " |"; rule = rule "---|" }
    print head; print rule
    for (k = 1; k <= steps; k++) for (r = 1; r <= 4; r++) {
        line = "| " order[k] " | " role[r] " |"
        for (s = 1; s <= systems; s++) line = line sprintf(" %d |", count[name[s], order[k], role[r]])
        for (s = 2; s <= systems; s++) line = line sprintf(" %.3f |", count[name[1], order[k], role[r]] / (count[name[s], order[k], role[r]] + 0.001))
        print line
    }
}' "$work/counts"
