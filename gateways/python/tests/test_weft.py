"""The package against a real file system: WEFT_TEST_FS names it, and it is empty."""

import array
import asyncio
import ctypes
import errno
import io
import os
import pickle
import stat
import subprocess
import sys
import threading
import unittest

import weft
import weft.aio
import weft.fsspec_impl
import weft.torch

NAME = os.environ["WEFT_TEST_FS"]


class Case(unittest.TestCase):
    """Each test has a directory of its own."""

    @classmethod
    def setUpClass(cls):
        cls.fs = weft.FileSystem(NAME, timeout=20)

    @classmethod
    def tearDownClass(cls):
        cls.fs.close()

    def setUp(self):
        self.dir = f"/{self.id().rsplit('.', 1)[1]}"
        self.fs.mkdir(self.dir)
        self.addCleanup(weft.fsspec_impl.WeftFileSystem(self.fs).rm, self.dir, recursive=True)

    def at(self, name):
        return f"{self.dir}/{name}"

    def fill(self, count):
        paths = [self.at(f"{number:03}") for number in range(count)]
        for number, path in enumerate(paths):
            self.fs.write_bytes(path, b"%d " % number * number)
        return paths, [b"%d " % number * number for number in range(count)]


class Names(Case):
    def test_names_and_attributes(self):
        fs = self.fs
        fs.makedirs(self.at("a/b/c"))
        fs.makedirs(self.at("a/b/c"), exist_ok=True)
        with self.assertRaises(FileExistsError):
            fs.makedirs(self.at("a/b/c"))
        self.assertEqual(fs.write_bytes(self.at("a/file"), b"12345"), 5)
        fs.symlink("file", self.at("a/link"))
        self.assertEqual(fs.readlink(self.at("a/link")), "file")
        self.assertEqual(fs.stat(self.at("a/link")).st_size, 5)
        self.assertTrue(stat.S_ISLNK(fs.lstat(self.at("a/link")).st_mode))
        fs.link(self.at("a/file"), self.at("a/second"))
        self.assertEqual(fs.stat(self.at("a/second")).st_nlink, 2)
        with self.assertRaises(FileExistsError):
            fs.rename(self.at("a/file"), self.at("a/second"), no_replace=True)
        fs.replace(self.at("a/second"), self.at("a/third"))
        entries = {entry.name: entry for entry in fs.scandir(self.at("a"))}
        self.assertEqual(sorted(entries), ["b", "file", "link", "third"])
        self.assertTrue(entries["b"].is_dir() and not entries["b"].is_file())
        self.assertTrue(entries["link"].is_symlink() and entries["link"].is_file())
        self.assertFalse(entries["link"].is_file(follow_symlinks=False))
        self.assertEqual(entries["link"].stat().st_size, 5)
        self.assertEqual(entries["file"].inode(), fs.stat(entries["file"]).st_ino)
        self.assertEqual(sorted(fs.listdir(self.at("a"))), sorted(entries))
        found = {top: (directories, sorted(files)) for top, directories, files in fs.walk(self.at("a"))}
        self.assertEqual(found[self.at("a")], (["b"], ["file", "link", "third"]))
        self.assertEqual(found[self.at("a/b/c")], ([], []))
        fs.chmod(self.at("a/file"), 0o640)
        fs.utime(self.at("a/file"), ns=(5, 1_500_000_000))
        attributes = fs.stat(self.at("a/file"))
        self.assertEqual((attributes.st_mode & 0o7777, attributes.st_atime_ns, attributes.st_mtime), (0o640, 5, 1.5))
        fs.utime(self.at("a/file"))
        self.assertGreater(fs.stat(self.at("a/file")).st_mtime, 1.6e9)
        fs.truncate(self.at("a/file"), 3)
        self.assertEqual(fs.read_bytes(self.at("a/file")), b"123")
        fs.setxattr(self.at("a/file"), "user.k", b"v\0w")
        self.assertEqual((fs.listxattr(self.at("a/file")), fs.getxattr(self.at("a/file"), "user.k")), (["user.k"], b"v\0w"))
        fs.removexattr(self.at("a/file"), "user.k")
        self.assertEqual(fs.listxattr(self.at("a/file")), [])
        self.assertTrue(fs.exists(self.at("a/file")) and not fs.exists(self.at("a/file/below")))
        capacity, free, _ = fs.statfs()
        self.assertGreaterEqual(capacity, free)

    def test_errors_are_those_of_python(self):
        fs = self.fs
        with self.assertRaises(FileNotFoundError) as caught:
            fs.stat(self.at("none"))
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertIn(self.at("none"), str(caught.exception))
        with self.assertRaises(IsADirectoryError):
            fs.open(self.dir)
        with self.assertRaises(NotADirectoryError):
            fs.write_bytes(self.at("x"), b"") or fs.listdir(self.at("x"))
        with self.assertRaises(OSError) as caught:
            fs.getxattr(self.at("x"), "user.none")
        self.assertEqual(caught.exception.errno, errno.ENODATA)
        for place in ("/no/such/place", ""):
            with self.assertRaises(OSError) as caught:
                weft.FileSystem(place)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        with fs.open(self.at("x"), "wb", buffering=0) as file, self.assertRaises(OSError) as caught:
            file.pread(1, 0)
        self.assertEqual(caught.exception.errno, errno.EBADF)
        with self.assertRaises(FileNotFoundError):
            fs.symlink("", self.at("link"))
        with self.assertRaises(FileNotFoundError):
            fs.open(self.at("new/."), "wb")
        for make in (lambda: fs.open(self.at(".."), "wb"), lambda: fs.write_bytes(self.at(".."), b"")):
            with self.assertRaises(IsADirectoryError):
                make()
        with self.assertRaises(FileExistsError):
            fs.open(self.at(".."), "xb")
        self.assertFalse(fs.exists(self.at("new")))
        for mode in ("", "rw", "q", "rbt", "rr", "b"):
            with self.assertRaises(ValueError):
                fs.open(self.at("x"), mode)

    def test_names_need_not_be_text(self):
        name = b"\xff\xfe"
        self.fs.write_bytes(os.fsencode(self.dir) + b"/" + name, b"x")
        self.assertEqual(self.fs.listdir(self.dir), [os.fsdecode(name)])
        self.assertEqual(self.fs.read_bytes(self.at(os.fsdecode(name))), b"x")


class Files(Case):
    def test_files_are_those_of_python(self):
        path = self.at("text")
        with self.fs.open(path, "w", encoding="utf-8") as file:
            print("eins", "zwei ä", sep="\n", file=file)
        with self.fs.open(path, encoding="utf-8") as file:
            self.assertEqual(list(file), ["eins\n", "zwei ä\n"])
        with self.fs.open(path, "ab") as file:
            self.assertEqual(file.tell(), 13)
            file.write(b"3")
        with self.fs.open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            self.assertEqual(file.read(), b"3")
            file.seek(0)
            file.write(b"EINS")
            file.truncate(5)
            file.seek(0)
            self.assertEqual(file.read(), b"EINS\n")
        with self.assertRaises(FileExistsError):
            self.fs.open(path, "x")
        with self.fs.open(path, "rb") as file, self.assertRaises(io.UnsupportedOperation):
            file.write(b"")
        with self.assertRaises(ValueError):
            file.read()
        big = os.urandom(3_000_001)
        with self.fs.open(path, "wb") as file:
            file.write(big)
        with self.fs.open(path, "rb") as file:
            self.assertEqual(file.read(), big)
            self.assertEqual((file.read(), file.readline()), (b"", b""))

    def test_buffers_of_any_kind(self):
        numbers = array.array("d", [1.5, 2.5, 3.5])
        with self.fs.open(self.at("numbers"), "w+b", buffering=0) as file:
            self.assertEqual(file.write(numbers), 24)
            back = array.array("d", bytes(32))
            self.assertEqual(file.preadinto(back, 0), 24)
            self.assertEqual(list(back), [1.5, 2.5, 3.5, 0.0])
            part = memoryview(bytearray(16))[8:]
            self.assertEqual((file.preadinto(part, 8), bytes(part)), (8, numbers.tobytes()[8:16]))
            with self.assertRaises(BufferError):
                file.preadinto(b"constant", 0)
            with self.assertRaises(BufferError):
                file.preadinto(memoryview(bytearray(16))[::2], 0)
            self.assertEqual(file.pread(100, 16), numbers.tobytes()[16:])
            self.assertEqual(file.read_list([(16, 8), (0, 4), (20, 100), (500, 1)]),
                             [numbers.tobytes()[16:], numbers.tobytes()[:4], numbers.tobytes()[20:], b""])
            with self.assertRaises(MemoryError):
                file.read_list([(0, 1 << 62)])
            file.fsync()
            file.fsync(data_only=True)
        part = memoryview(b"0a1b2c")[1::2]
        without_elements = ((ctypes.c_char * 3) * 0)()
        self.assertEqual([self.fs.put(self.at("part"), data) for data in (part, without_elements)], [3, 0])
        self.assertEqual(self.fs.read_bytes(self.at("part")), b"")
        self.assertEqual([self.fs.put(self.at("part"), part), self.fs.read_bytes(self.at("part"))], [3, b"abc"])
        with self.assertRaises(TypeError):
            self.fs.setxattr(self.at("part"), "user.a", 5)

    def test_threads_read_at_once(self):
        paths, contents = self.fill(60)
        wrong = []

        def read():
            for _ in range(5):
                if self.fs.read_many(paths) != contents:
                    wrong.append(threading.get_ident())

        threads = [threading.Thread(target=read) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])

    def test_appends_follow_each_other(self):
        other = weft.FileSystem(NAME)
        self.addCleanup(other.close)

        def append(fs, word):
            with fs.open(self.at("log"), "ab", buffering=0) as file:
                for number in range(25):
                    file.write(b"%s %d\n" % (word, number))

        threads = [threading.Thread(target=append, args=one) for one in ((self.fs, b"a"), (self.fs, b"b"), (other, b"c"))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        lines = self.fs.read_bytes(self.at("log")).splitlines()
        for word in (b"a", b"b", b"c"):
            self.assertEqual([line for line in lines if line.startswith(word)], [b"%s %d" % (word, number) for number in range(25)])
        self.assertEqual(len(lines), 75)

    def test_contents_beside_inodes(self):
        self.fs.setxattr(self.dir, "user.weft.inline_limit", b"4096")
        contents = [bytes([number]) * (1500 * number) for number in range(4)]
        paths = [self.at(f"whole{number}") for number in range(4)]
        for path, data in zip(paths, contents):
            self.assertEqual(self.fs.write_bytes(path, b"before"), 6)
            self.assertEqual(self.fs.put(path, memoryview(data)), len(data))
        self.assertEqual(self.fs.read_many(paths), contents)
        with self.fs.open(paths[1], "ab") as file:
            file.write(b"more")
        self.assertEqual(self.fs.read_bytes(paths[1]), contents[1] + b"more")
        with self.assertRaises(FileExistsError):
            self.fs.put(paths[2], b"x", exclusive=True)
        with self.assertRaises(IsADirectoryError):
            self.fs.put(self.dir, b"x")
        self.fs.symlink("whole2", self.at("link"))
        self.fs.put(self.at("link"), b"through a link")
        self.assertEqual(self.fs.read_bytes(paths[2]), b"through a link")

    def test_many_files(self):
        paths, contents = self.fill(300)
        self.assertEqual(self.fs.read_many(paths), contents)
        self.assertEqual(self.fs.read_many([]), [])
        # Its letters are no paths.
        self.assertRaises(TypeError, self.fs.read_many, paths[0])
        with self.assertRaises(FileNotFoundError):
            self.fs.read_many([paths[3], self.at("none")])
        found = self.fs.read_many([paths[3], self.at("none"), self.dir], return_exceptions=True)
        self.assertEqual(found[0], contents[3])
        self.assertIsInstance(found[1], FileNotFoundError)
        self.assertIsInstance(found[2], IsADirectoryError)
        views = self.fs.read_many(paths + [self.at("none")], return_exceptions=True, views=True)
        self.assertIsInstance(views.pop(), FileNotFoundError)
        self.assertTrue(all(isinstance(view, memoryview) and view.readonly for view in views))
        # A view outlives its list, its neighbours and the file.
        third = views[3][1:]
        del views
        self.fs.remove(paths[3])
        self.assertEqual(third, contents[3][1:])
        with self.assertRaises(TypeError):
            third[0] = 0

    def test_other_processes(self):
        self.fs.write_bytes(self.at("shared"), b"mine")
        copy = pickle.loads(pickle.dumps(self.fs))
        self.assertEqual(copy.read_bytes(self.at("shared")), b"mine")
        copy.close()
        with self.assertRaises(ValueError):
            copy.stat("/")
        children = []
        for number in range(3):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    self.fs.write_bytes(self.at(f"child{number}"), b"%d" % number)
                    status = 0 if self.fs.read_bytes(self.at("shared")) == b"mine" else 2
                    self.fs.close()
                finally:
                    os._exit(status)
            children.append(child)
        self.assertEqual([os.waitpid(child, 0)[1] for child in children], [0, 0, 0])
        self.assertEqual(self.fs.read_many([self.at(f"child{number}") for number in range(3)]), [b"0", b"1", b"2"])

    def test_a_program_that_does_not_close_ends(self):
        program = f"import weft; fs = weft.FileSystem({NAME!r}); fs.open({self.at('left')!r}, 'wb', buffering=0).write(b'x')"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        self.assertEqual(self.fs.read_bytes(self.at("left")), b"x")


class Aio(Case):
    def test_calls_can_be_awaited(self):
        paths, contents = self.fill(20)

        async def main():
            async with weft.aio.FileSystem(NAME) as fs:
                found = await asyncio.gather(*(fs.read_bytes(path) for path in paths), fs.read_many(paths))
                self.assertEqual(found, contents + [contents])
                self.assertEqual(len(await fs.scandir(self.dir)), 20)
                with self.assertRaises(FileNotFoundError):
                    await fs.stat(self.at("none"))

        asyncio.run(main())


class Torch(Case):
    def test_data_sets(self):
        paths, contents = self.fill(50)
        data = weft.torch.Dataset(self.fs, paths)
        self.assertEqual((len(data), data[7], data.__getitems__([3, 1])), (50, contents[7], [contents[3], contents[1]]))
        self.assertEqual([len(batch) for batch in data.batches(20)], [20, 20, 10])
        self.assertEqual([len(batch) for batch in data.batches(20, drop_last=True, prefetch=0)], [20, 20])
        orders = [[one for batch in data.batches(8, seed=4, epoch=epoch, prefetch=3) for one in batch] for epoch in (0, 0, 1)]
        self.assertEqual(orders[0], orders[1])
        self.assertNotEqual(orders[0], orders[2])
        self.assertEqual(sorted(orders[0]), sorted(contents))
        sized = weft.torch.Dataset(self.fs, paths, decode=lambda file, index: (index, len(file)))
        self.assertEqual(sized[9], (9, len(contents[9])))
        kinds = weft.torch.Dataset(self.fs, paths, decode=lambda file, index: type(file), views=True)
        self.assertIs(kinds[9], memoryview)
        early = data.batches(5, prefetch=1)
        next(early)
        early.close()
        self.assertFalse([thread for thread in threading.enumerate() if thread.name == "weft-prefetch"])
        broken = weft.torch.Dataset(self.fs, paths + [self.at("none")])
        with self.assertRaises(FileNotFoundError):
            list(broken.batches(10))
        self.assertEqual(weft.torch.shuffled(6, 1), weft.torch.shuffled(6, 1))


class Fsspec(Case):
    def test_the_methods_of_fsspec(self):
        fs = weft.fsspec_impl.WeftFileSystem(self.fs)
        url = f"weft://{self.dir}"
        fs.mkdir(f"{url}/a/b")
        fs.pipe_file(f"{url}/a/one", b"0123456789")
        fs.pipe_file(f"{url}/a/two", b"")
        with self.assertRaises(FileExistsError):
            fs.pipe_file(f"{url}/a/one", b"", mode="create")
        self.assertEqual(fs.ls(f"{url}/a", detail=False), [self.at("a/b"), self.at("a/one"), self.at("a/two")])
        kinds = {info["name"]: (info["type"], info["size"]) for info in fs.ls(self.at("a"))}
        self.assertEqual(kinds[self.at("a/b")], ("directory", 0))
        self.assertEqual(kinds[self.at("a/one")], ("file", 10))
        self.assertEqual(fs.info(f"{url}/a/one")["size"], 10)
        self.assertEqual(fs.ls(f"{url}/a/one", detail=False), [self.at("a/one")])
        self.assertTrue(fs.isdir(f"{url}/a") and fs.isfile(f"{url}/a/one") and not fs.exists(f"{url}/none"))
        self.assertEqual(fs.cat_file(f"{url}/a/one", 2, -3), b"23456")
        self.assertEqual(fs.cat(f"{url}/a/one"), b"0123456789")
        names = [self.at("a/one"), self.at("a/two")]
        self.assertEqual(fs.cat(names), dict(zip(names, [b"0123456789", b""])))
        self.assertEqual(fs.cat(names + [self.at("none")], on_error="omit"), dict(zip(names, [b"0123456789", b""])))
        got = fs.cat_ranges([names[0], names[1], names[0], self.at("none")], [1, 0, None, 0], [3, 5, 2, 1])
        self.assertEqual(got[:3], [b"12", b"", b"01"])
        self.assertIsInstance(got[3], FileNotFoundError)
        with fs.open(f"{url}/a/one", "rb") as file:
            self.assertEqual(file.read(4), b"0123")
        fs.cp_file(f"{url}/a/one", f"{url}/a/copy")
        fs.mv(f"{url}/a/copy", f"{url}/moved")
        self.assertEqual(fs.cat_file(f"{url}/moved"), b"0123456789")
        fs.rm(f"{url}/a", recursive=True)
        self.assertEqual(fs.ls(url, detail=False), [self.at("moved")])

    def test_links_that_lead_nowhere(self):
        fs = weft.fsspec_impl.WeftFileSystem(self.fs)
        self.fs.write_bytes(self.at("file"), b"x")
        for name, target in {"gone": "none", "circle": "circle", "through": "file/below", "good": "file"}.items():
            self.fs.symlink(target, self.at(name))
        self.fs.symlink(".", self.at("itself"))
        kinds = {os.path.basename(info["name"]): info["type"] for info in fs.ls(self.dir)}
        nowhere = dict.fromkeys(("gone", "circle", "through"), "link")
        self.assertEqual(kinds, nowhere | {"file": "file", "good": "file", "itself": "link"})
        for name in nowhere:
            self.assertFalse(fs.isdir(self.at(name)) or fs.isfile(self.at(name)) or fs.exists(self.at(name)))
        self.assertFalse(self.fs.exists(self.at("circle")))
        self.assertEqual(fs.info(self.at("itself"))["type"], "directory")

    def test_files_are_touched(self):
        fs = weft.fsspec_impl.WeftFileSystem(self.fs)
        fs.touch(self.at("a"), truncate=False)
        fs.pipe_file(self.at("a"), b"bytes")
        self.fs.utime(self.at("a"), (1, 1))
        fs.touch(self.at("a"), truncate=False)
        self.assertEqual(fs.cat_file(self.at("a")), b"bytes")
        self.assertGreater(self.fs.stat(self.at("a")).st_mtime, 1)
        fs.touch(self.at("a"))
        self.assertEqual(fs.cat_file(self.at("a")), b"")

    def test_fsspec_itself(self):
        try:
            import fsspec
        except ImportError:
            self.skipTest("fsspec is not installed")
        fsspec.register_implementation("weft", weft.fsspec_impl.WeftFileSystem, clobber=True)
        with fsspec.open(f"weft://{self.dir}/a", "wb", fs=NAME) as file:
            file.write(b"by url")
        fs = fsspec.filesystem("weft", fs=NAME)
        self.assertEqual(fs.cat(f"{self.dir}/a"), b"by url")
        self.assertEqual(fs.glob(f"{self.dir}/*"), [f"{self.dir}/a"])
        self.assertEqual(fs.cat(f"{self.dir}/*"), {f"{self.dir}/a": b"by url"})
        fs.makedirs(f"{self.dir}/tree/below")
        fs.pipe_file(f"{self.dir}/tree/below/deep", b"deep")
        fs.pipe_file(f"{self.dir}/tree/top", b"top")
        fs.copy(f"{self.dir}/tree", f"{self.dir}/twin", recursive=True)
        self.assertEqual(fs.find(f"{self.dir}/twin"), [f"{self.dir}/twin/below/deep", f"{self.dir}/twin/top"])
        self.fs.symlink("circle", self.at("tree/circle"))
        self.fs.symlink("..", self.at("tree/above"))
        names = [f"{self.dir}/tree/{name}" for name in ("above", "below/deep", "circle", "top")]
        self.assertEqual(fs.find(f"{self.dir}/tree"), names, "a link that leads nowhere hides nothing")
        self.assertEqual(fs.read_block(f"{self.dir}/tree/below/deep", 1, 2), b"ee")
        self.assertEqual(fs.read_block(f"{self.dir}/tree/below/deep", 2, None), b"ep")
        with self.assertRaises(OSError):
            fs.rm(f"{self.dir}/twin", recursive=True, maxdepth=1)
        self.assertTrue(fs.exists(f"{self.dir}/twin/below/deep"), "deeper than it was said")
        fs.pipe_file(f"{self.dir}/twin/t*", b"literally")
        fs.pipe_file(f"{self.dir}/twin/two", b"")
        fs.rm(f"{self.dir}/twin/t*")
        self.assertEqual(fs.ls(f"{self.dir}/twin", detail=False), [f"{self.dir}/twin/below", f"{self.dir}/twin/two"])
        fs.rm(f"{self.dir}/twin/t*")
        with self.assertRaises(FileNotFoundError):
            fs.rm(f"{self.dir}/twin/t*")
        with self.assertRaises(NotImplementedError), fs.transaction:
            fs.open(f"{self.dir}/twin/in a transaction", "wb")
        self.assertEqual(fs.find(f"{self.dir}/twin"), [f"{self.dir}/twin/below/deep"], "nothing is half done")
        fs.rm(f"{self.dir}/twin", recursive=True)
        self.assertFalse(fs.exists(f"{self.dir}/twin"))


if __name__ == "__main__":
    unittest.main()
