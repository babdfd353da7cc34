#!/bin/bash
# How many files a second a metadata server makes that has more names than memory, and what one takes.
#
#   lab/beyond-memory.sh WEFT DIR FILES [GROUP_MIB MEMORY_MIB]
#
# Starts a file system in DIR, which must not exist, makes FILES files in it by the library and
# removes them. With GROUP_MIB (as root) its servers may use so much memory in all, their page cache
# included, and with MEMORY_MIB so much of it is for names; the rest lies in the page file.
set -euo pipefail
weft=$1 state=$2 files=$3 group_mib=${4:-} memory_mib=${5:-}
group=/sys/fs/cgroup/weft-beyond-memory limit=memory.max
if [ -d /sys/fs/cgroup/memory ]; then group=/sys/fs/cgroup/memory/weft-beyond-memory limit=memory.limit_in_bytes; fi
end() {
    "$weft" down --state "$state" >/dev/null || true
    rm -rf "$state"
    [ -z "$group_mib" ] || rmdir "$group"
}
[ ! -e "$state" ] || { echo "$state exists" >&2; exit 1; }
trap end EXIT
options=(--state "$state" --meta 1 --data 1)
[ -z "$memory_mib" ] || options+=(--metadata-memory "${memory_mib}MiB")
(
    if [ -n "$group_mib" ]; then
        mkdir -p "$group"
        echo "${group_mib}M" >"$group/$limit"
        echo "$BASHPID" >"$group/cgroup.procs"
    fi
    exec "$weft" up "${options[@]}" >/dev/null
)
pid=$(cut -d' ' -f1 "$state/run/meta0.pid")
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"; }
before=$(resident) most=0 in_file=0
"$weft" bench create --fs "$state" --files "$files" --depth 64 --clients 1 --reps 1 --timeout 600 &
while kill -0 $! 2>/dev/null; do
    now=$(resident || echo 0)
    [ "${now:-0}" -le "$most" ] || most=$now
    now=$("$weft" metrics "$state" --once | awk '/^weft_page_file_bytes.*role="meta"/ { printf "%d", $2 }')
    [ "${now:-0}" -le "$in_file" ] || in_file=$now
    sleep 0.5
done
wait $!
echo "at most $most kB in memory ($(((most - before) * 1024 / files)) bytes a file), $((in_file / 1000000)) MB in the page file"
