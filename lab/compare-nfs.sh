#!/bin/bash
# Compares NFSv3 servers: one client (libnfs, a call at a time) does the same with each in turns (A B A B ...), and the rates and
# the ratios of each pair of turns are printed.
#
#   lab/compare-nfs.sh NAME=URL NAME=URL...
#   lab/compare-nfs.sh weft='nfs://127.0.0.1/?version=3&nfsport=2049&mountport=2049' \
#       ganesha='nfs://127.0.0.1/export?version=3&nfsport=3049&mountport=3050'
#
# The first NAME is compared with each other one. Needs cc and libnfs (Debian: libnfs-dev) for lab/nfs-client.c.
# Environment: FILES (default 2000), MIB (default 256), TURNS (default 5).
here=$(cd "$(dirname "$0")" && pwd)
STEPS="calls" DEFAULT_STEPS="calls" PLACES=urls
# shellcheck source=lab/turns.sh
. "$here/turns.sh"
turns_begin "$@"

client=$(mktemp)
trap 'rm -f "$results" "$client"' EXIT
cc -O2 "$here/nfs-client.c" -o "$client" -lnfs || fail "lab/nfs-client.c does not compile: apt-get install gcc libnfs-dev"

run() {
    local turn=$2 name=$3 url=$4 lines phase rate unit
    lines=$("$client" "$url" "${FILES:-2000}" "${MIB:-256}") || fail "$name does not serve $url"
    while IFS=$'\t' read -r phase rate unit; do note "$turn" "$name" "$phase" "$rate" "$unit"; done <<< "$lines"
}

turns
turns_table
turns_circumstances
echo
