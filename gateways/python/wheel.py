#!/usr/bin/env python3
"""Makes the wheel of the package `weft`: wheel.py NATIVE_LIBRARY FOLDER. Prints its path.

The same files give the same wheel. It fits the Linux and the C library that it was built on, or
newer ones, and every Python from 3.11.
"""

import base64
import hashlib
import pathlib
import platform
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
WORKSPACE = HERE.parent.parent / "Cargo.toml"
TAG = f"cp311-abi3-linux_{platform.machine()}"


def main(library, folder):
    section = WORKSPACE.read_text().split("[workspace.package]")[1]
    version = re.search(r'^version = "(.*)"$', section, re.MULTILINE).group(1)
    info = f"weft-{version}.dist-info"
    files = {f"weft/{path.name}": path.read_bytes() for path in sorted((HERE / "weft").iterdir()) if path.suffix in (".py", ".pyi", ".typed")}
    files["weft/_native.abi3.so"] = pathlib.Path(library).read_bytes()
    metadata = [
        "Metadata-Version: 2.1",
        "Name: weft",
        f"Version: {version}",
        "Summary: Weft, a parallel file system, without a mount",
        "License: Apache-2.0 OR MIT",
        "Requires-Python: >=3.11",
        "Provides-Extra: fsspec",
        "Requires-Dist: fsspec; extra == 'fsspec'",
    ]
    files[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    files[f"{info}/entry_points.txt"] = b"[fsspec.specs]\nweft = weft.fsspec_impl:WeftFileSystem\n"
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = pathlib.Path(folder) / f"weft-{version}-{TAG}.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data)
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
