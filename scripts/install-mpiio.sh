#!/bin/sh
# Compiles MPI-IO over libweft for one MPI library and installs it beside libweft, which is installed already: libweft-mpiio-mpich.so
# or libweft-mpiio-openmpi.so, by which MPI the compiler is of. So does it with the library of `weft trace mpi`, libweft-mpitrace-*.so.
#
# Usage: install-mpiio.sh MPICC PREFIX [DESTDIR]
set -eu
[ $# -ge 2 ] || { sed -n 2,5p "$0" >&2; exit 2; }
mpicc=$1 prefix=$2 root=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
case $prefix in /*) ;; *) echo "install-mpiio: PREFIX must be an absolute path" >&2; exit 2 ;; esac
lib="$root$prefix/lib" include="$root$prefix/include"
[ -f "$include/weft.h" ] || { echo "install-mpiio: $include/weft.h is missing: make install-library PREFIX=$prefix" >&2; exit 1; }
command -v "$mpicc" >/dev/null 2>&1 || { echo "install-mpiio: there is no $mpicc; set MPICC" >&2; exit 1; }
family=$("$mpicc" -E -dM "-I$include" "$here/gateways/mpiio/src/errors.c" |
    sed -n -e 's/^#define OPEN_MPI .*/openmpi/p' -e 's/^#define MPICH_VERSION .*/mpich/p')
[ -n "$family" ] || { echo "install-mpiio: $mpicc is neither of MPICH nor of Open MPI" >&2; exit 1; }
# MPI_STATUSES_IGNORE of MPICH is an address that the compiler takes for a short array.
"$mpicc" -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-stringop-overflow -fPIC -fvisibility=hidden -shared -pthread "-I$include" \
    -o "$lib/libweft-mpiio-$family.so" "$here"/gateways/mpiio/src/*.c "-L$lib" -lweft "-Wl,-rpath,$prefix/lib" "-Wl,-soname,libweft-mpiio-$family.so"
"$mpicc" -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-stringop-overflow -fPIC -fvisibility=hidden -shared -pthread \
    -o "$lib/libweft-mpitrace-$family.so" "$here"/gateways/mpitrace/src/*.c -ldl "-Wl,-soname,libweft-mpitrace-$family.so"
echo "installed libweft-mpiio-$family.so and libweft-mpitrace-$family.so in $lib"
