"""`weft://` for fsspec: `weft:///PATH` with `fs=` (a state directory, config, address or mount
point) in the storage options or in the environment as `WEFT_FS`.

    fsspec.open("weft:///train/a.npy", fs="/home/me/fs")

Without fsspec the class works by its own methods: `ls`, `info`, `cat`, `cat_file`, `cat_ranges`,
`pipe_file`, `open`, `mkdir`, `rm`, `mv`.
"""

import datetime
import errno
import os
import stat as modes

from ._filesystem import FileSystem

try:
    from fsspec.spec import AbstractFileSystem
except ImportError:

    class AbstractFileSystem:
        """Stands for fsspec's where that is not installed."""

        protocol = "abstract"

        def __init__(self, *args, **kwargs):
            pass

        @classmethod
        def _strip_protocol(cls, path):
            return path


__all__ = ["WeftFileSystem"]

# A path that leads nowhere. Who may not look along it knows no better.
_NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES}


class WeftFileSystem(AbstractFileSystem):
    """Files of Weft for fsspec."""

    protocol = "weft"
    root_marker = "/"
    cachable = True

    def __init__(self, fs=None, key_file=None, timeout=None, **kwargs):
        super().__init__(**kwargs)
        if fs is None:
            fs = os.environ.get("WEFT_FS")
        if fs is None:
            raise ValueError("weft://: name the file system: fs=... in the storage options, or WEFT_FS")
        self.fs = fs if isinstance(fs, FileSystem) else FileSystem(fs, key_file=key_file, timeout=timeout)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        path = path.removeprefix("weft://")
        return "/" + path.strip("/")

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        return _info(path, self.fs.stat(path))

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        if not modes.S_ISDIR(self.fs.stat(path).st_mode):
            found = [self.info(path)]
        else:
            found = [_info_of(entry) for entry in self.fs.scandir(path)]
        found.sort(key=lambda info: info["name"])
        return found if detail else [info["name"] for info in found]

    def exists(self, path, **kwargs):
        return self._mode(path) != 0

    def isdir(self, path):
        return modes.S_ISDIR(self._mode(path))

    def isfile(self, path):
        return modes.S_ISREG(self._mode(path))

    def _mode(self, path):
        """0: the path leads nowhere."""
        try:
            return self.fs.stat(self._strip_protocol(path)).st_mode
        except OSError as error:
            if error.errno in _NOWHERE:
                return 0
            raise

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.fs.read_bytes(path)
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]

    def cat(self, path, recursive=False, on_error="raise", **kwargs):
        """The bytes of a file; of a list (or a tree, or a pattern with fsspec) a dictionary."""
        if isinstance(path, (str, os.PathLike)) and not recursive and not _is_pattern(path):
            return self.cat_file(path)
        if recursive or _is_pattern(path):
            paths = [one for one in self.expand_path(path, recursive=recursive) if not self.isdir(one)]
        else:
            paths = [self._strip_protocol(one) for one in path]
        files = self.fs.read_many(paths, return_exceptions=True)
        if on_error == "raise":
            _raise_first(files)
        pairs = zip(paths, files)
        return {path: file for path, file in pairs if on_error != "omit" or not isinstance(file, OSError)}

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        """Bytes of ranges: those of one file in one message to each data server."""
        paths = [self._strip_protocol(path) for path in paths]
        starts = list(starts) if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("cat_ranges: as many paths as beginnings and ends")
        results = [None] * len(paths)
        of_files = {}
        for position, path in enumerate(paths):
            of_files.setdefault(path, []).append(position)
        for path, positions in of_files.items():
            try:
                with self.fs.open(path, "rb", buffering=0) as file:
                    size = file.stat().st_size
                    ranges = [_range(starts[position], ends[position], size) for position in positions]
                    for position, data in zip(positions, file.read_list(ranges)):
                        results[position] = data
            except OSError as error:
                for position in positions:
                    results[position] = error
        if on_error == "raise":
            _raise_first(results)
        return results

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self.fs.put(self._strip_protocol(path), value, exclusive=mode == "create")

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **kwargs):
        if not autocommit and "r" not in mode:
            raise NotImplementedError("weft:// has no transactions: write under another name, and mv it")
        return self.fs.open(self._strip_protocol(path), mode)

    def open(self, path, mode="rb", **kwargs):
        if hasattr(super(), "open"):
            return super().open(path, mode, **kwargs)
        return self._open(path, mode)

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        parent = os.path.dirname(path)
        if create_parents and parent != "/":
            self.fs.makedirs(parent, exist_ok=True)
        self.fs.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        self.fs.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self.fs.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.fs.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        for one in [path] if isinstance(path, (str, os.PathLike)) else path:
            for found in self._meant(self._strip_protocol(one), recursive, maxdepth):
                self._rm_one(found, recursive and maxdepth is None)

    def _meant(self, path, recursive, maxdepth):
        if maxdepth is not None:
            # From below; a directory that keeps something is refused.
            return reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth))
        # A name that is there is no pattern.
        if _is_pattern(path) and hasattr(self, "glob") and not self._is_there(path):
            return self.expand_path(path)
        return [path]

    def _is_there(self, path):
        try:
            return bool(self.fs.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _rm_one(self, path, recursive):
        if not modes.S_ISDIR(self.fs.lstat(path).st_mode):
            return self.fs.remove(path)
        if recursive:
            for name in self.fs.listdir(path):
                self._rm_one(os.path.join(path, name), True)
        self.fs.rmdir(path)

    def mv(self, path1, path2, **kwargs):
        self.fs.replace(self._strip_protocol(path1), self._strip_protocol(path2))

    mv_file = mv

    def cp_file(self, path1, path2, **kwargs):
        """A directory is made and not filled: `copy` asks for all that is in it."""
        if self.isdir(path1):
            return self.makedirs(path2, exist_ok=True)
        with self.fs.open(self._strip_protocol(path1), "rb", buffering=0) as source:
            with self.fs.open(self._strip_protocol(path2), "wb", buffering=0) as target:
                while piece := source.read(8 << 20):
                    target.write(piece)

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        with self.fs.open(path, "wb" if truncate else "ab"):
            pass
        if not truncate:
            self.fs.utime(path)

    def read_block(self, fn, offset, length, delimiter=None):
        # fsspec's asks the open file for its `size`.
        from fsspec.utils import read_block

        with self._open(fn) as file:
            size = file.raw.stat().st_size
            length = size - offset if length is None else min(length, size - offset)
            return read_block(file, offset, length, delimiter)

    def created(self, path):
        raise NotImplementedError("weft keeps no time of creation")

    def modified(self, path):
        at = self.fs.stat(self._strip_protocol(path)).st_mtime
        return datetime.datetime.fromtimestamp(at, tz=datetime.timezone.utc)


def _info(path, stat):
    is_dir, is_link = modes.S_ISDIR(stat.st_mode), modes.S_ISLNK(stat.st_mode)
    return {
        "name": path,
        "size": 0 if is_dir else stat.st_size,
        "type": "directory" if is_dir else "link" if is_link else "file",
        "mode": stat.st_mode,
        "ino": stat.st_ino,
        "mtime": stat.st_mtime,
        "uid": stat.st_uid,
        "gid": stat.st_gid,
    }


def _info_of(entry):
    """Of an entry of a directory. A symlink to a directory is a link, so that no walk goes in
    circles, as is one that leads nowhere."""
    own = entry.stat(follow_symlinks=False)
    if not entry.is_symlink():
        return _info(entry.path, own)
    try:
        led = entry.stat()
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        led = own
    return _info(entry.path, own if modes.S_ISDIR(led.st_mode) else led)


def _range(start, end, size):
    def place(at, default):
        at = default if at is None else at
        return min(max(at + size if at < 0 else at, 0), size)

    start, end = place(start, 0), place(end, size)
    return start, max(end - start, 0)


def _is_pattern(path):
    return isinstance(path, (str, os.PathLike)) and any(letter in os.fspath(path) for letter in "*?[")


def _raise_first(results):
    for result in results:
        if isinstance(result, OSError):
            raise result
