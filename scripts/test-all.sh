#!/bin/bash
# Everything that CI checks, the quick things first. Stops at the first failure and says which step it was.
#
# WEFT_SIM_SEEDS sets the seeds of the simulation (default 0..5000).
set -euo pipefail
# Tests send SIGHUP and SIGINT, which nohup and shells in the background have programs ignore.
[ -n "${WEFT_SIGNALS_RESET:-}" ] || WEFT_SIGNALS_RESET=1 exec env --default-signal=HUP,INT,QUIT bash "$0" "$@"
cd "$(dirname "$0")/.."
PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
seeds="${WEFT_SIM_SEEDS:-0..5000}"
# A build for one run: without what debuggers and the next build want, which takes half of the time.
# A panic says its file and line all the same.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}" CARGO_PROFILE_DEV_DEBUG="${CARGO_PROFILE_DEV_DEBUG:-false}"

step() {
    printf '\n== %s\n' "$*"
    SECONDS=0
    "$@" || { printf '\nFAILED: %s\n' "$*" >&2; exit 1; }
    printf '== took %d s\n' "$SECONDS"
}

step cargo fmt --all --check
step cargo clippy --locked --workspace --all-targets -- -D warnings
# The program and the libraries first: the system tests start them as, and in, processes of their own.
step cargo build --locked -p weft -p weft-capi -p weft-python -p weft-preload -p xtask
# Not `cargo xtask`, which is optimised for campaigns: that build takes longer than these seeds.
xtask="${CARGO_TARGET_DIR:-target}/debug/xtask"
step "$xtask" tests
step "$xtask" tidy
# Links of the documentation lead somewhere.
step env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
if cargo deny --version >/dev/null 2>&1; then
    step cargo deny --locked check bans licenses sources
    # The database of advisories is on the network, which tests do not need.
    if cargo deny --locked fetch db >/dev/null 2>&1; then step cargo deny --locked check advisories; else echo "advisories: skipped, their database cannot be reached"; fi
else
    echo "cargo deny: skipped, it is not installed (cargo install --locked cargo-deny)"
fi
step "$xtask" sim --seeds "$seeds"
# Every other one with small files beside their inodes.
step "$xtask" sim --leases --seeds 0..500
step "$xtask" sim --leases --inline --repairs --seeds 2000..2500
step "$xtask" sim --growing --inline --seeds 0..500
step "$xtask" sim --split --seeds 0..500
step "$xtask" sim --split --inline --repairs --seeds 1000..1500
step "$xtask" sim --puts --seeds 0..500
printf '\nall checks passed\n'
