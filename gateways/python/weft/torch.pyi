import os
from typing import Any, Callable, Iterator, Sequence

from . import FileSystem

def shuffled(count: int, seed: int, epoch: int = 0) -> list[int]: ...

class Dataset:
    fs: FileSystem
    paths: list[Any]
    def __init__(
        self,
        fs: FileSystem | str | os.PathLike[str],
        paths: Sequence[Any],
        decode: Callable[[Any, int], Any] | None = None,
        *,
        views: bool = False,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def __getitems__(self, indices: Sequence[int]) -> list[Any]: ...
    def batches(
        self, batch_size: int, *, seed: int | None = None, epoch: int = 0, prefetch: int = 2, drop_last: bool = False
    ) -> Iterator[list[Any]]: ...
