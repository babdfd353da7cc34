#!/bin/sh
# Installs what building, mounting and testing need and is not there: a C linker and make (build-essential), FUSE's mount helper (fuse3),
# an NFS client that needs no kernel (libnfs-utils, for the tests of weft nfs only), setfacl (acl, for tests only).
# The Rust toolchain is yours to choose: see https://rustup.rs
set -eu

missing=
command -v cc >/dev/null 2>&1 || missing="$missing build-essential"
command -v fusermount3 >/dev/null 2>&1 || missing="$missing fuse3"
command -v setfacl >/dev/null 2>&1 || missing="$missing acl"
command -v nfs-cp >/dev/null 2>&1 || missing="$missing libnfs-utils"

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "install-deps: please install what Debian calls:$missing" >&2
        exit 1
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || { echo "install-deps: run as root: apt-get install$missing" >&2; exit 1; }
        as_root=sudo
    fi
    echo "install-deps: installing$missing"
    $as_root apt-get update -q
    # Words of the list are package names.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -q -y --no-install-recommends $missing
fi

if ! command -v cargo >/dev/null 2>&1 && [ ! -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    echo "install-deps: there is no Rust toolchain; install one from https://rustup.rs and run this again" >&2
    exit 1
fi
