#!/bin/bash
# From nothing to a file system in use: builds, starts 2 metadata and 4 data servers, mounts, copies this source tree in and compares
# it, measures a little, and says how to go on.
#
#   run-demo.sh          do all that, in a new file system: that of an earlier run is removed
#   run-demo.sh stop     stop it
#   run-demo.sh remove   stop it and remove its files
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"

demo="${WEFT_DEMO_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weft-demo}"
state="$demo/state"
mount="$demo/mnt"
weft="${CARGO_TARGET_DIR:-target}/release/weft"

say() { printf '\n== %s\n' "$*"; }

stop() {
    if [ -e "$state/weft.toml" ]; then
        [ -x "$weft" ] || { echo "$weft is gone; build it to stop what runs in $state" >&2; exit 1; }
        "$weft" down --state "$state"
    fi
}

clear_away() {
    stop
    # Only what this script makes, and never through a mount.
    if [ -d "$demo" ]; then
        rm -rf --one-file-system "$state"
        rmdir "$mount" 2>/dev/null || true
    fi
}

remove() {
    clear_away
    if [ -d "$demo" ]; then rmdir "$demo" 2>/dev/null || true; fi
}

case "${1:-run}" in
    stop) stop; exit ;;
    remove) remove; exit ;;
    run) ;;
    *) echo "usage: $0 [stop|remove]" >&2; exit 2 ;;
esac

say "building (the first time takes some minutes)"
cargo build --release --locked -p weft

say "starting 2 metadata and 4 data servers in $state, mounted at $mount"
mkdir -p "$demo"
exec 9<"$demo"
flock --nonblock 9 || { echo "another 'make run' is at work in $demo: wait for its end, or set WEFT_DEMO_DIR to another folder" >&2; exit 1; }
if [ -e "$state/weft.toml" ]; then echo "the file system of an earlier run is removed, with what is in it"; fi
clear_away
# What stays does not keep the lock.
"$weft" up --state "$state" --meta 2 --data 4 --mount "$mount" 9<&-

say "copying this source tree in and comparing it"
skip=(--exclude=.git --exclude=target --exclude='target-*')
begun=$(date +%s.%N)
mkdir "$mount/source"
tar -c "${skip[@]}" . | tar -x -C "$mount/source"
ended=$(date +%s.%N)
diff -r --no-dereference "${skip[@]}" . "$mount/source"
awk -v files="$(find "$mount/source" -type f | wc -l)" -v begun="$begun" -v ended="$ended" \
    'BEGIN { printf "%d files copied in %.2f s; all of them compare equal\n", files, ended - begun }'

say "measuring, briefly: through the mount"
mkdir "$mount/bench"
"$weft" bench create --path "$mount/bench" --files 5000 --reps 3
"$weft" bench write --path "$mount/bench" --files 1 --size 256MiB --reps 3
"$weft" bench read --path "$mount/bench" --files 1 --size 256MiB --reps 3
say "and by the library, many requests in flight"
"$weft" bench create --fs "$state" --files 50000 --depth 64 --reps 3

say "it runs"
"$weft" status --state "$state"
cat <<TEXT

  the mount     $mount
  look          ls -l $mount/source
  servers       $weft status --state $state
  stop          make stop (the next 'make run' begins with a new file system)
TEXT
