"""The calls of a file system for asyncio: each runs on a thread of its own pool.

    fs = weft.aio.FileSystem("/home/me/fs")
    files = await fs.read_many(paths)
"""

import asyncio
import concurrent.futures
import functools

from . import _filesystem

__all__ = ["FileSystem"]


class FileSystem:
    """As `weft.FileSystem`, with an awaitable for each call that asks servers."""

    def __init__(self, fs, *, key_file=None, timeout=None, threads=16):
        is_open = isinstance(fs, _filesystem.FileSystem)
        self.sync = fs if is_open else _filesystem.FileSystem(fs, key_file=key_file, timeout=timeout)
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="weft-aio")

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def run(self, call, *args, **kwargs):
        """Awaits a call of `sync`, or any other one, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(call, *args, **kwargs))

    async def close(self):
        await self.run(self.sync.close)
        self._pool.shutdown(wait=False)

    async def scandir(self, path="/", *, with_stat=True):
        return await self.run(lambda: list(self.sync.scandir(path, with_stat=with_stat)))


def _awaitable(name):
    call = getattr(_filesystem.FileSystem, name)

    @functools.wraps(call)
    async def wrapper(self, *args, **kwargs):
        return await self.run(getattr(self.sync, name), *args, **kwargs)

    return wrapper


for _name in (
    "chmod exists getxattr link listdir listxattr lstat makedirs mkdir open put read_bytes read_many readlink remove "
    "removexattr rename replace rmdir setxattr stat statfs symlink truncate unlink utime write_bytes"
).split():
    setattr(FileSystem, _name, _awaitable(_name))
