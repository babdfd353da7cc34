#!/bin/sh
# Installs libweft (shared and static), weft.h, weft.pc and, where it was built, the library behind `weft preload`, as cargo has built them in a folder such as target/dist.
#
# Usage: install-library.sh BUILD_FOLDER PREFIX [DESTDIR]
set -eu
[ $# -ge 2 ] || { sed -n 2,4p "$0" >&2; exit 2; }
built=$1 prefix=$2 root=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/Cargo.toml")
abi=$(sed -n 's/^const ABI: u32 = \(.*\);/\1/p' "$here/gateways/capi/build.rs")
case $prefix in /*) ;; *) echo "install-library: PREFIX must be an absolute path" >&2; exit 2 ;; esac
for file in libweft_capi.so libweft_capi.a; do
    [ -f "$built/$file" ] || { echo "install-library: $built/$file is missing: cargo build --profile dist -p weft-capi" >&2; exit 1; }
done
lib="$root$prefix/lib" include="$root$prefix/include"
install -d "$lib/pkgconfig" "$include"
install -m 755 "$built/libweft_capi.so" "$lib/libweft.so.$version"
ln -sf "libweft.so.$version" "$lib/libweft.so.$abi"
ln -sf "libweft.so.$abi" "$lib/libweft.so"
install -m 644 "$built/libweft_capi.a" "$lib/libweft.a"
[ ! -f "$built/libweft_preload.so" ] || install -m 755 "$built/libweft_preload.so" "$lib/libweft_preload.so"
install -m 644 "$here/gateways/capi/include/weft.h" "$include/weft.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@LIBS@|-lgcc_s -lutil -lrt -lpthread -lm -ldl|" "$here/gateways/capi/weft.pc.in" >"$lib/pkgconfig/weft.pc"
echo "installed libweft $version in $root$prefix"
