"""File systems and open files, as Python expects them."""

import atexit
import errno
import io
import os
import stat as modes
import weakref
from typing import NamedTuple

from . import _native

_OPEN = weakref.WeakSet()


class Stat(NamedTuple):
    """Attributes, under the names of `os.stat_result`."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int

    @property
    def st_atime(self):
        return self.st_atime_ns / 1e9

    @property
    def st_mtime(self):
        return self.st_mtime_ns / 1e9

    @property
    def st_ctime(self):
        return self.st_ctime_ns / 1e9


class DirEntry:
    """An entry of a directory; it is an `os.PathLike`."""

    __slots__ = ("_fs", "_kind", "_stat", "_inode", "name", "path")

    def __init__(self, fs, directory, row):
        name, self._kind, self._inode, attributes = row
        self.name = os.fsdecode(name)
        self.path = os.path.join(directory, self.name)
        self._fs = fs
        self._stat = None if attributes is None else Stat(*attributes)

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<weft.DirEntry {self.name!r}>"

    def inode(self):
        return self._inode

    def is_symlink(self):
        return modes.S_ISLNK(self._kind)

    def is_dir(self, *, follow_symlinks=True):
        return self._is(modes.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        return self._is(modes.S_ISREG, follow_symlinks)

    def _is(self, test, follow_symlinks):
        if not (follow_symlinks and self.is_symlink()):
            return test(self._kind)
        try:
            return test(self._fs.stat(self.path).st_mode)
        except FileNotFoundError:
            return False

    def stat(self, *, follow_symlinks=True):
        if self._stat is None or (follow_symlinks and self.is_symlink()):
            return self._fs.stat(self.path, follow_symlinks=follow_symlinks)
        return self._stat


class RawFile(io.RawIOBase):
    """An open file without a buffer. `pread` and its relatives may be used by many threads."""

    def __init__(self, file, name, mode, readable, writable, append):
        super().__init__()
        self._file = file
        self._readable, self._writable, self._append = readable, writable, append
        self._at = 0
        self.name, self.mode = name, mode
        if append:
            self._at = self.stat().st_size

    def __repr__(self):
        return f"<weft.RawFile {self.name!r} mode={self.mode!r}>"

    def readable(self):
        return self._readable

    def writable(self):
        return self._writable

    def seekable(self):
        return True

    def tell(self):
        self._checkClosed()
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        self._checkClosed()
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self.stat().st_size
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence ({whence})")
        if offset < 0:
            raise ValueError("negative seek position")
        self._at = offset
        return offset

    def readinto(self, buffer):
        self._checkReadable()
        got = self._file.pread_into(buffer, self._at)
        self._at += got
        return got

    def readall(self):
        self._checkReadable()
        data = self._file.pread(max(self.stat().st_size - self._at, 0), self._at)
        self._at += len(data)
        return data

    def write(self, data):
        self._checkWritable()
        written = self._file.pwrite(data, self._at)
        self._at = self.stat().st_size if self._append else self._at + written
        return written

    def pread(self, size, offset):
        """Up to `size` bytes at `offset`; the position stays."""
        return self._file.pread(size, offset)

    def preadinto(self, buffer, offset):
        """Reads at `offset` into anything with a buffer; returns the number of bytes."""
        return self._file.pread_into(buffer, offset)

    def pwrite(self, data, offset):
        """Writes at `offset` whatever has a buffer; returns the number of bytes."""
        return self._file.pwrite(data, offset)

    def read_list(self, ranges):
        """The bytes of many ranges `(offset, size)`, in one message to each data server."""
        return self._file.read_list([(offset, size) for offset, size in ranges])

    def truncate(self, size=None):
        self._checkWritable()
        size = self._at if size is None else size
        self._file.truncate(size)
        return size

    def stat(self):
        self._checkClosed()
        return Stat(*self._file.stat())

    def fsync(self, data_only=False):
        """Brings what was written to stable storage."""
        self._file.sync(data_only)

    def close(self):
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()

    def _checkClosed(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _checkReadable(self):
        self._checkClosed()
        if not self._readable:
            raise io.UnsupportedOperation("not readable")

    def _checkWritable(self):
        self._checkClosed()
        if not self._writable:
            raise io.UnsupportedOperation("not writable")


def _bytes(path):
    return os.fsencode(path)


class FileSystem:
    """A file system, by a state directory, a config file, `weft://HOST:PORT/NAME` or a mount point.

    Each call takes `timeout` seconds at most (30 if not given). A forked child opens it anew by
    itself at its next call; files that its parent has open it cannot use.
    """

    def __init__(self, fs, *, key_file=None, timeout=None):
        self._arguments = (os.fspath(fs), None if key_file is None else os.fspath(key_file), timeout)
        self._closed = False
        self._process = None
        self._native = None
        self._own()
        _OPEN.add(self)

    def _own(self):
        """The native half, which belongs to this process."""
        if self._process == os.getpid():
            return self._native
        if self._closed:
            raise ValueError("the file system is closed")
        native = _native.FileSystem(*self._arguments)
        # Who comes second opens it in vain; the parent's lock may be held for ever.
        self._native, self._process = native, os.getpid()
        return native

    def __reduce__(self):
        return _reopen, self._arguments

    def __repr__(self):
        # fsspec takes objects for the same if they look the same: each has its own key, and an end.
        return f"<weft.FileSystem {self._arguments[0]!r} at {id(self):#x}>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Tells the servers what is not open any more. Open files stay usable."""
        self._closed = True
        if self._native is not None and self._process == os.getpid():
            self._native.close()

    def stat(self, path, *, follow_symlinks=True):
        return Stat(*self._own().stat(_bytes(path), follow_symlinks))

    def lstat(self, path):
        return self.stat(path, follow_symlinks=False)

    def exists(self, path):
        try:
            self.stat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise
        return True

    def listdir(self, path="/"):
        """The names in a directory, in no order."""
        return [os.fsdecode(row[0]) for row in self._rows(path, False)]

    def scandir(self, path="/", *, with_stat=True):
        """The entries of a directory, in no order; attributes come with the names."""
        directory = os.fsdecode(path)
        for row in self._rows(path, with_stat):
            yield DirEntry(self, directory, row)

    def _rows(self, path, with_attrs):
        listing = self._own().list(_bytes(path), with_attrs)
        while rows := listing.rows():
            yield from rows

    def walk(self, top="/"):
        """As `os.walk`, from above; symlinks are not followed."""
        directories, files = [], []
        for entry in self.scandir(top, with_stat=False):
            (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        yield top, directories, files
        for name in directories:
            yield from self.walk(os.path.join(top, name))

    def mkdir(self, path, mode=0o777):
        self._own().mkdir(_bytes(path), mode)

    def makedirs(self, path, mode=0o777, exist_ok=False):
        parent = os.path.dirname(os.fsdecode(path).rstrip("/"))
        if parent.strip("/") and not self.exists(parent):
            self.makedirs(parent, mode, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not modes.S_ISDIR(self.stat(path).st_mode):
                raise

    def remove(self, path):
        self._own().unlink(_bytes(path))

    unlink = remove

    def rmdir(self, path):
        self._own().rmdir(_bytes(path))

    def rename(self, source, target, *, no_replace=False):
        """Moves a name, over another one if there is one, unless `no_replace`."""
        self._own().rename(_bytes(source), _bytes(target), no_replace)

    def replace(self, source, target):
        self.rename(source, target)

    def link(self, path, name):
        self._own().link(_bytes(path), _bytes(name))

    def symlink(self, target, path):
        self._own().symlink(_bytes(target), _bytes(path))

    def readlink(self, path):
        return os.fsdecode(self._own().readlink(_bytes(path)))

    def truncate(self, path, size):
        self._own().truncate(_bytes(path), size)

    def chmod(self, path, mode):
        self._own().chmod(_bytes(path), mode)

    def utime(self, path, times=None, *, ns=None):
        """As `os.utime`; without times that of the servers."""
        if times is not None and ns is not None:
            raise ValueError("utime: either times or ns")
        if times is not None:
            ns = tuple(int(time * 1e9) for time in times)
        self._own().utime(_bytes(path), ns)

    def getxattr(self, path, name):
        return self._own().getxattr(_bytes(path), _bytes(name))

    def setxattr(self, path, name, value):
        self._own().setxattr(_bytes(path), _bytes(name), bytes(memoryview(value)))

    def listxattr(self, path):
        return [os.fsdecode(name) for name in self._own().listxattr(_bytes(path))]

    def removexattr(self, path, name):
        self._own().removexattr(_bytes(path), _bytes(name))

    def statfs(self):
        """Bytes that the data servers can hold, bytes still free, and the number of objects."""
        return self._own().statfs()

    def read_many(self, paths, *, return_exceptions=False, views=False):
        """The bytes of whole files, in the order of their paths: up to 1024 small ones at a time
        cost one message to each metadata server and one to each data server. The first error is
        raised; with `return_exceptions` errors are in the list, each in place of its file. With
        `views` a file is a read-only `memoryview` of the memory that the answer was received into:
        nothing is copied. One view keeps the memory of its whole answer, up to 8 MiB."""
        if isinstance(paths, (str, bytes)):
            raise TypeError("read_many takes several paths; of one file: read_bytes")
        files = self._own().read_many([_bytes(path) for path in paths], bool(views))
        if not return_exceptions:
            for file in files:
                if isinstance(file, OSError):
                    raise file
        return files

    def read_bytes(self, path):
        return self.read_many([path])[0]

    def write_bytes(self, path, data):
        """Makes or replaces a file; returns the number of bytes."""
        return self.put(path, data)

    def put(self, path, data, *, permissions=0o666, exclusive=False):
        """Makes or replaces a file; returns the number of bytes. In a directory with the hint
        `inline_limit` a small file is one message behind the walk to its directory, and others see
        the old content or the new one."""
        view = memoryview(data)
        # Bytes in the order of C: an array without elements, or a part of one, must be copied.
        view = view.cast("B") if view.nbytes and view.c_contiguous else memoryview(view.tobytes())
        if len(view) > 1 << 20:
            with self.open(path, "xb" if exclusive else "wb", buffering=0, permissions=permissions) as file:
                return file.write(view)
        self._own().put(_bytes(path), bytes(view), permissions, exclusive)
        return len(view)

    def open(self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *, permissions=0o666):
        """Opens a file as the built-in `open` does; with `buffering=0` a `RawFile`."""
        kinds = set(mode)
        is_text = "b" not in kinds
        main = kinds & set("rwax")
        if len(kinds) != len(mode) or kinds - set("rwaxbt+") or len(main) != 1 or {"b", "t"} <= kinds:
            raise ValueError(f"invalid mode: {mode!r}")
        if not is_text and not (encoding is errors is newline is None):
            raise ValueError("a binary file has no encoding, errors or newline")
        if is_text and buffering == 0:
            raise ValueError("a text file needs a buffer")
        (main,) = main
        readable, writable = main == "r" or "+" in kinds, main != "r" or "+" in kinds
        native = self._own().open_file(
            _bytes(path),
            read=readable,
            write=writable,
            append=main == "a",
            truncate=main == "w",
            exclusive=main == "x",
            make=None if main == "r" else permissions,
        )
        raw = RawFile(native, path, mode, readable, writable, main == "a")
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else 1 << 18
        kind = io.BufferedRandom if readable and writable else io.BufferedReader if readable else io.BufferedWriter
        buffered = kind(raw, size)
        return io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1) if is_text else buffered


def _reopen(fs, key_file, timeout):
    return FileSystem(fs, key_file=key_file, timeout=timeout)


@atexit.register
def _close_all():
    for fs in list(_OPEN):
        fs.close()
