"""Data sets of small files for PyTorch, which need not be installed: a `DataLoader` takes anything
with `__len__`, `__getitem__` and `__getitems__`.

    paths = [entry.path for entry in fs.scandir("/train")]
    loader = torch.utils.data.DataLoader(weft.torch.Dataset(fs, paths, decode), batch_size=256, shuffle=True)

A batch is one `read_many`. `batches` goes through a data set without a loader: shuffled by a seed,
with batches read ahead by a thread.
"""

import queue
import random
import threading

from ._filesystem import FileSystem

__all__ = ["Dataset", "shuffled"]


def shuffled(count, seed, epoch=0):
    """The numbers below `count` in an order that follows from seed and epoch, everywhere the same."""
    order = list(range(count))
    random.Random(f"weft {seed} {epoch}").shuffle(order)
    return order


class Dataset:
    """Files as a sequence. `decode(bytes, index)` makes samples of them, in the worker that reads;
    with `views` it is given a read-only `memoryview` instead, and nothing is copied before.

    It can be sent to other processes and used in forked ones: each opens the file system itself.
    """

    def __init__(self, fs, paths, decode=None, *, views=False):
        self.fs = fs if isinstance(fs, FileSystem) else FileSystem(fs)
        self.paths = list(paths)
        self.decode = decode
        self.views = views

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        files = self.fs.read_many([self.paths[index] for index in indices], views=self.views)
        if self.decode is None:
            return files
        return [self.decode(file, index) for file, index in zip(files, indices)]

    def batches(self, batch_size, *, seed=None, epoch=0, prefetch=2, drop_last=False):
        """Yields lists of samples; without a seed in their order. `prefetch` batches are read ahead."""
        if batch_size < 1 or prefetch < 0:
            raise ValueError("batches: a batch has at least one sample, and no negative number is read ahead")
        order = range(len(self)) if seed is None else shuffled(len(self), seed, epoch)
        lists = [list(order[at : at + batch_size]) for at in range(0, len(order), batch_size)]
        if drop_last and lists and len(lists[-1]) < batch_size:
            lists.pop()
        if prefetch == 0:
            return map(self.__getitems__, lists)
        return self._ahead(lists, prefetch)

    def _ahead(self, lists, prefetch):
        ready = queue.Queue(prefetch)
        ends = threading.Event()

        def put(item):
            while not ends.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    pass

        def read():
            try:
                for indices in lists:
                    if ends.is_set():
                        return
                    put((self.__getitems__(indices), None))
                put((None, None))
            except BaseException as error:  # whatever it is, it is the caller's
                put((None, error))

        thread = threading.Thread(target=read, name="weft-prefetch", daemon=True)
        thread.start()
        try:
            while True:
                batch, error = ready.get()
                if error is not None:
                    raise error
                if batch is None:
                    return
                yield batch
        finally:
            ends.set()
            thread.join()
