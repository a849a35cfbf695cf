"""Files into arrays, through memory of Python's own: a system call may not be served on memory that is swapped out."""
from __future__ import annotations

import io
import os
from typing import Any, BinaryIO, Literal

import numpy as np

# As much as keeps a disk busy, little enough to stay in a cache.
PART_BYTES = 4 << 20


def header_of(path: str | os.PathLike[str]) -> tuple[np.dtype, tuple[int, ...], Literal["C", "F"], int]:
    """The dtype, shape and order that a .npy file says, and where its values begin."""
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read: Any = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, is_fortran, dtype = read(_in_latin1(file) if version == (3, 0) else file)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is no .npy file ({error}): give a dtype to read plain values") from None
        return dtype, shape, "F" if is_fortran else "C", file.tell()


def _in_latin1(file: BinaryIO) -> BinaryIO:
    """The header of a file of version 3, in which names are UTF-8, as one of version 2, which numpy has a public reader for."""
    header = file.read(int.from_bytes(file.read(4), "little")).decode()
    # What is not ASCII is within the quotes of a name.
    escaped = header.encode("ascii", "backslashreplace")
    return io.BytesIO(len(escaped).to_bytes(4, "little") + escaped)


def fill(array: np.ndarray, path: str | os.PathLike[str], offset: int) -> None:
    """Reads an array without gaps from a file."""
    to = array.reshape(-1, order="A").view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
    part = np.empty(min(PART_BYTES, to.size), np.uint8)
    done = 0
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        while done < to.size:
            read = file.readinto(part[: to.size - done].data)
            if not read:
                raise EOFError(f"{os.fspath(path)} became shorter while it was read: {done} of {to.size} bytes")
            to[done : done + read] = part[:read]
            done += read
