# The native half; programs use the package.
from typing import Any

VERSION: str

class FileSystem:
    def __init__(self, fs: str, key_file: str | None = None, timeout_seconds: int | None = None) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class File:
    def __getattr__(self, name: str) -> Any: ...

class Listing:
    def rows(self) -> list[tuple[bytes, int, int, tuple[int, ...] | None]]: ...
