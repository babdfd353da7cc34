"""Weft, a parallel file system, from Python and without a mount.

    import weft

    fs = weft.FileSystem("/home/me/fs")     # a state directory, a config, weft://HOST:PORT/NAME or a mount point
    with fs.open("/a", "wb") as file:
        file.write(b"words")
    fs.read_many(["/a", "/b"])              # whole files in few messages

Nothing is cached: what another mount or program changes, the next call sees. Errors are `OSError`.
Threads may share everything; calls wait for servers without the interpreter's lock.
`weft.aio` has the calls for asyncio, `weft.torch` data sets, `weft.fsspec_impl` `weft://` for fsspec.
"""

from ._filesystem import DirEntry, FileSystem, RawFile, Stat
from ._native import VERSION as __version__

__all__ = ["DirEntry", "FileSystem", "RawFile", "Stat", "__version__"]
