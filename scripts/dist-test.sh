#!/bin/bash
# Installs the Debian package of `make package` in a clean root of Debian, made by debootstrap, and
# uses it there: servers, copies, a mount for one job, units, pages and completions, removal.
#
# As root. WEFT_DIST_ROOT names a root that is there already; it is changed.
set -euo pipefail
cd "$(dirname "$0")/.."
deb=$(ls -t "${CARGO_TARGET_DIR:-target}"/packages/weft_*.deb 2>/dev/null | head -n 1)
[ -n "$deb" ] || { echo "dist-test: there is no package; run: make package" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "dist-test: SKIPPED, a root of its own needs root"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root="${WEFT_DIST_ROOT:-}"
if [ -z "$root" ]; then
    command -v debootstrap >/dev/null || { echo "dist-test: SKIPPED, debootstrap is not installed"; exit 0; }
    root="$work/root"
    debootstrap --variant=minbase stable "$root" >"$work/log" 2>&1 || { tail -n 5 "$work/log"; echo "dist-test: SKIPPED, debootstrap cannot make a root here"; exit 0; }
fi
cp "$deb" "$root/weft.deb"
cat >"$root/try.sh" <<'TEXT'
set -eux
dpkg -i /weft.deb
getent passwd weft
test "$(stat -c %U:%a /var/lib/weft)" = weft:700
weft --version
test -s /usr/share/man/man1/weft-run.1.gz
test -s /usr/share/bash-completion/completions/weft
test -e /usr/lib/systemd/system/weft-server@.service
test "$(readlink -f /sbin/mount.weft)" = "$(readlink -f /usr/bin/weft)"
cd /root
weft up --state fs --meta 2 --data 4
weft cp -r /usr/share/doc fs:/
weft ls -l fs:/doc/weft
weft cp -r fs:/doc copy
diff -r /usr/share/doc copy
weft status --state fs
if [ -c /dev/fuse ]; then
    weft run --state fs --verbose -- sh -euc 'diff -r /usr/share/doc $WEFT_MOUNT/doc; echo mounted > $WEFT_MOUNT/note'
    test "$(weft cat fs:/note)" = mounted
    mkdir /mnt/weft
    mount -t weft -o ro,threads=2 /root/fs/weft.toml /mnt/weft
    test "$(cat /mnt/weft/note)" = mounted
    umount /mnt/weft
else
    echo "SKIPPED: there is no /dev/fuse"
fi
weft down --state fs
echo changed >> /etc/default/weft
dpkg -r weft
test -e /etc/default/weft
test ! -e /usr/bin/weft
dpkg -P weft
test ! -e /etc/default/weft
TEXT
unshare --mount --pid --fork --kill-child --propagation private sh -euc '
    mount -t proc proc "$1/proc"
    mount -t tmpfs dev "$1/dev"
    mknod -m 666 "$1/dev/null" c 1 3; mknod -m 666 "$1/dev/urandom" c 1 9
    [ ! -c /dev/fuse ] || mknod -m 666 "$1/dev/fuse" c 10 229
    exec chroot "$1" sh /try.sh
' sh "$root"
echo "dist-test: $(basename "$deb") was installed, used and removed in a clean root"
