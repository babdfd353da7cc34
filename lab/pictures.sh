#!/bin/bash
# Makes the pictures of docs/pictures.md: what the papers behind Weft show, made by Weft.
#
#   lab/pictures.sh [2007|2009|2016]...       all of them without one
#
#   2007  one file created, listed and removed, step by step on the servers of a real file system,
#         and by the steps of PVFS2 without and with the hint no_metafile, simulated                 (Kuhn 2007, chapter 6)
#   2009  partdiff-par under each cache layer, and interleaved two-phase, simulated                  (Kuhn 2009, section 6.8, chapter 7)
#   2016  running performance and latencies of creates in one directory by 1, 2 and 4 clients        (Vef 2016, figures 4.5, 4.12 to 4.14)
#
# Environment:
#   WEFT     the program (default: the release build of this tree, or weft from PATH)
#   OUT      where the pictures go (default docs/pictures)
#   RUN      what every measured process runs under (default: chrt -f 10 if that is allowed), so that others on the machine disturb less
#   FILES    files of the 2016 test, all clients together (default 600000)
# The application of 2009 was traced then, and its trace is not part of this repository: lab/plans/partdiff-layers.toml names its place. Without it
# that picture is left out.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.."

weft=${WEFT:-${CARGO_TARGET_DIR:-target}/release/weft}
[ -x "$weft" ] || weft=$(command -v weft) || { echo "no weft: cargo build --release -p weft, or WEFT=..." >&2; exit 1; }
out=${OUT:-docs/pictures}
if [ -z "${RUN+set}" ]; then
    RUN=""
    ! chrt -f 10 true 2>/dev/null || RUN="chrt -f 10"
fi
dir=$(mktemp -d)
running=()
cleanup() {
    for state in "${running[@]}"; do "$weft" down --state "$state" >/dev/null 2>&1 || true; done
    rm -rf "$dir"
}
trap cleanup EXIT
mkdir -p "$out"

start() { # STATE [OPTION...]: a file system that ends with this script
    local state=$1
    shift
    running+=("$state")
    $RUN "$weft" up --state "$state" "$@" >/dev/null
}

pictures_2007() {
    local traces=$dir/2007 fs=$dir/2007-fs
    mkdir -p "$traces/all"
    # Every process of this file system writes a trace when it ends.
    WEFT_TRACE=$traces/all start "$fs" --meta 1 --data 1
    "$weft" mkdir "$fs:/d"
    # Each command does its work several times: only the last time is drawn, when connections and caches are as in any longer run.
    local names=() number
    for number in {01..20}; do
        names+=("file$number")
        : > "$dir/file$number"
    done
    traced() { mkdir -p "$traces/$1"; local name=$1; shift; WEFT_TRACE=$traces/$name $RUN "$weft" "$@" >/dev/null; }
    traced create cp --jobs 1 --no-preserve "${names[@]/#/$dir/}" "$fs:/d/"
    traced list ls -l "$fs:/d" "$fs:/d" "$fs:/d" "$fs:/d"
    traced remove rm "${names[@]/#/$fs:/d/}"
    "$weft" down --state "$fs" >/dev/null
    for name in create list remove; do cp "$traces"/all/{meta,data}*.wtrace "$traces/$name/"; done
    "$weft" plot steps "$traces"/{create,list,remove} --operations client.create,client.close,client.readdir,client.unlink \
        -o "$out/2007-one-file.svg" --title "One file, step by step" \
        --label "Create a file and close it" --label "List the directory, with the attributes of its entries" --label "Remove the file"
    # The steps of PVFS2 on the five machines of the paper, in virtual time: without the hint, and with it.
    "$weft" sim run directory-hints --set clients=1 --set workload.protocol=classic --set workload.files=4 --set weft.flush_each=true \
        --trace "$traces/hint"
    "$weft" plot steps "$traces"/hint/case{0,1} --operations client.create \
        -o "$out/2007-hint.svg" --title "A file made by the steps of PVFS2" --label "Without the hint" --label "With no_metafile"
}

pictures_2009() {
    local plan
    if "$weft" sim run lab/plans/partdiff-layers.toml --trace "$dir/layers" > "$dir/layers.txt"; then
        "$weft" sim run lab/plans/partdiff-delayed.toml --trace "$dir/delayed" > "$dir/delayed.txt"
        "$weft" plot timeline "$dir"/layers/case{0,1,2,3} "$dir/delayed/case0" -o "$out/2009-partdiff.svg" \
            --title "partdiff-par under each cache layer, simulated" \
            --label none --label write_behind --label aggregation --label server_directed --label "server_directed, delayed writes"
        cat "$dir/layers.txt" "$dir/delayed.txt"
    else
        echo "2009-partdiff.svg is left out: its trace is not there (see lab/plans/partdiff-layers.toml)" >&2
    fi
    plan=lab/plans/interleaved-two-phase.toml
    "$weft" sim run "$plan" --trace "$dir/collective"
    "$weft" plot timeline "$dir"/collective/case{0,1} -o "$out/2009-interleaved-two-phase.svg" --network --iteration 40 \
        --title "Interleaved two-phase, server_directed, 5 clients and 5 servers, 1000 MiB in blocks of 512 KiB, simulated" --label read --label write
}

pictures_2016() {
    local fs=$dir/2016-fs files=${FILES:-600000} clients panels=() reports=()
    start "$fs" --meta 1 --data 1
    for clients in 1 2 4; do
        $RUN "$weft" bench create --fs "$fs" --procs $clients --clients 4 --files $((files / clients / 4)) --reps 1 \
            --progress "$dir/$clients.csv" --json > "$dir/$clients.json"
        panels+=("$dir/$clients.csv")
        reports+=("$dir/$clients.json")
    done
    "$weft" down --state "$fs" >/dev/null
    local labels=(--label "1 client" --label "2 clients" --label "4 clients")
    "$weft" plot running "${panels[@]}" "${labels[@]}" --window 0.2 -o "$out/2016-running.svg" --title "Running performance: creates in one directory"
    "$weft" plot latency "${reports[@]}" "${labels[@]}" -o "$out/2016-latency.svg" --title "Latency distribution of creates in one directory"
}

[ $# -gt 0 ] || set -- 2007 2009 2016
for year in "$@"; do
    case $year in
        2007|2009|2016) "pictures_$year" ;;
        *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
