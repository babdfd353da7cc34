#!/bin/bash
# Builds what is handed out, in target/packages: a static binary, a Debian package, an OCI image from
# scratch, and the wheel that `make wheel` has built, if it has.
#
# The binary is linked with musl if rustup has its target and Debian's musl-tools are installed,
# otherwise with the C library of this machine. WEFT_PACKAGE_BINARY takes one that is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
target="${CARGO_TARGET_DIR:-target}"
packages="$target/packages"
# What was not finished is none, and never beside what an earlier run made.
out="$packages.new"
work=$(mktemp -d)
trap 'rm -rf "$work" "$out"' EXIT
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
rm -rf "$out"
mkdir -p "$out"

musl=x86_64-unknown-linux-musl
if [ -n "${WEFT_PACKAGE_BINARY:-}" ]; then
    built=$WEFT_PACKAGE_BINARY
elif [ "$(uname -m)" = x86_64 ] && command -v musl-gcc >/dev/null && [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]; then
    CC_x86_64_unknown_linux_musl=musl-gcc cargo build --locked --profile dist --target "$musl" -p weft
    built="$target/$musl/dist/weft"
else
    echo "package: no target $musl (rustup target add $musl; apt-get install musl-tools): the binary needs the C library of this system" >&2
    cargo build --locked --profile dist -p weft
    built="$target/dist/weft"
fi
machine=$(dpkg --print-architecture)
binary="$out/weft-$version-$machine"
strip -o "$binary" "$built"
chmod 755 "$binary"
depends=
if ldd "$binary" 2>/dev/null | grep -q 'libc\.so'; then depends="libc6 (>= $(dpkg-query -W -f '${Version}' libc6 | sed 's/-.*//'))"; fi

# The Debian package.
root="$work/root"
install -D -m 755 "$binary" "$root/usr/bin/weft"
install -d "$root/usr/sbin" "$root/etc/weft" "$root/usr/share/man/man1" "$root/usr/share/doc/weft"
ln -s ../bin/weft "$root/usr/sbin/mount.weft"
ln -s mount.weft "$root/usr/sbin/mount.fuse.weft"
for unit in weft-server@ weft-mount@; do install -D -m 644 "scripts/package/$unit.service" "$root/usr/lib/systemd/system/$unit.service"; done
install -D -m 644 scripts/package/default "$root/etc/default/weft"
"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
"$binary" completion bash >"$root/usr/share/bash-completion/completions/weft"
"$binary" completion zsh >"$root/usr/share/zsh/vendor-completions/_weft"
"$binary" completion fish >"$root/usr/share/fish/vendor_completions.d/weft.fish"
install -m 644 README.md SECURITY.md CHANGELOG.md docs/running.md "$root/usr/share/doc/weft"
cat LICENSE LICENSE-MIT LICENSE-APACHE >"$root/usr/share/doc/weft/copyright"
install -d "$root/DEBIAN"
install -m 755 scripts/package/postinst scripts/package/prerm "$root/DEBIAN"
echo /etc/default/weft >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<TEXT
Package: weft
Version: $version
Architecture: $machine
Maintainer: The Weft developers <weft@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: passwd${depends:+, $depends}
Recommends: fuse3
Description: parallel file system and its own performance laboratory
 A shared, striped POSIX file system over many servers, for millions of
 small files as well as for big streams. Servers, mounts, measuring and
 explaining are one program.
TEXT
chmod -R u=rwX,go=rX "$root"
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/weft_${version}_$machine.deb" >/dev/null

# The image: one layer with one file, in the layout of the Open Container Initiative.
image="$work/image" layer="$work/layer"
install -d "$image/blobs/sha256" "$layer/tmp"
chmod 1777 "$layer/tmp"
install -m 755 "$binary" "$layer/weft"
[ -z "$depends" ] || echo "package: the image lacks a C library, since the binary is not static" >&2
pack() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$1" -cf "$2" .; }
# Puts a file among the blobs and prints how a descriptor names it.
blob() {
    local digest
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    cp "$1" "$image/blobs/sha256/$digest"
    printf '"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s' "$2" "$digest" "$(stat -c %s "$1")"
}
pack "$layer" "$work/layer.tar"
plain=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
gzip -9n "$work/layer.tar"
about=$(blob "$work/layer.tar.gz" layer.v1.tar+gzip)
printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/weft"],"Env":["PATH=/"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$machine" "$plain" >"$work/config"
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{%s},"layers":[{%s}]}' "$(blob "$work/config" config.v1+json)" "$about" >"$work/manifest"
printf '{"schemaVersion":2,"manifests":[{%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' "$(blob "$work/manifest" manifest.v1+json)" "$version" >"$image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$image/oci-layout"
pack "$image" "$out/weft-$version-$machine.oci.tar"

wheels=("$target"/wheels/"weft-$version"-*.whl)
[ ! -e "${wheels[0]}" ] || cp "${wheels[@]}" "$out"
rm -rf "$packages"
mv "$out" "$packages"
ls -l "$packages"
