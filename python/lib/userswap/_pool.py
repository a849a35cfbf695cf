"""A pool: arrays that share a RAM budget."""
from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np

from . import _native
from ._files import fill, header_of
from ._progress import bar
from ._show import Usage, html, size

Size: TypeAlias = "int | str"
Shape: TypeAlias = "int | tuple[int, ...]"
Order: TypeAlias = Literal["C", "F"]
Swap: TypeAlias = "str | os.PathLike[str]"


class Pool:
    """Arrays that share a RAM budget; what does not fit is on swap devices.

    `ram` is a number of bytes, or text such as "2G", at least 16M. `swap` is one device or several, each
    "PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt]" or "mem:SIZE"; without any it is a temporary file. `compress` keeps pages
    compressed in at most so much of the budget before they go to a device ("auto": in as much as it brings), `encrypt` makes what
    is on devices unreadable, `ram_max` is what `ram` can be raised to at least. The other options are those of `userswap run`
    (docs/options.md). A pool is closed by `close` or at the end of a `with` block: then it makes no more
    arrays, and those that there are keep their memory, and the engine behind it, until the last one goes.

    >>> with Pool(ram="16M", swap="mem:64M") as pool:
    ...     a = pool.full((1000, 1000), 2.5)
    >>> pool.closed, float(a.mean())
    (True, 2.5)
    """

    def __init__(
        self,
        ram: Size,
        swap: Swap | Iterable[Swap] = (),
        *,
        fault: str = "thread",
        transfer: str = "auto",
        io: str = "auto",
        poll: str = "auto",
        on_full: str = "exceed",
        placement: str = "near",
        readahead: str = "stream",
        compress: Size | None = None,
        encrypt: bool = False,
        ram_max: Size | None = None,
        arena: Size = "256G",
        control: bool = False,
    ) -> None:
        specs = [swap] if isinstance(swap, (str, os.PathLike)) else list(swap)
        options = {
            "fault": fault,
            "transfer": transfer,
            "io": io,
            "poll": poll,
            "on_full": on_full,
            "placement": placement,
            "swap_ra_policy": readahead,
        }
        for name, word in options.items():
            if not isinstance(word, str):
                raise TypeError(f"{name.replace('swap_ra_policy', 'readahead')}={word!r} is not text")
        if not isinstance(encrypt, bool):
            raise TypeError(f"encrypt={encrypt!r} is neither True nor False")
        options["encrypt"] = "true" if encrypt else "false"
        options["arena"] = str(_bytes("arena", arena))
        if compress is not None:
            options["compress"] = compress if isinstance(compress, str) else str(_bytes("compress", compress))
        if ram_max is not None:
            options["ram_max"] = str(_bytes("ram_max", ram_max))
        if control:
            options["control"] = "on"
        devices = [("swap", os.fspath(spec)) for spec in specs]
        self._engine = _native.Engine(_bytes("ram", ram), devices + list(options.items()))

    def close(self) -> None:
        """Makes no more arrays; those that there are stay valid. Closing twice does nothing."""
        self._engine.close()

    @property
    def closed(self) -> bool:
        """Whether the pool was closed."""
        return self._engine.closed

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Arrays

    def empty(self, shape: Shape, dtype: Any = float, order: Order = "C") -> np.ndarray:
        """An array of this pool; as memory from the kernel, it is zero.

        Its memory is freed when the last array on it goes, views included. It pickles as any array does.

        >>> pool = Pool(ram="16M", swap="mem:64M")
        >>> a = pool.empty((3, 4), dtype="i4", order="F")
        >>> a.flags.f_contiguous, a.dtype, a.sum().item()
        (True, dtype('int32'), 0)
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise TypeError(
                f"dtype {kind!r} holds Python objects, which are outside every pool: use numbers, or text of a fixed "
                "length such as 'U16'"
            )
        if order not in ("C", "F"):
            raise ValueError(f"order {order!r} is not one of 'C' and 'F'")
        lengths = _lengths(shape)
        memory = self._engine.allocate(_array_bytes(lengths, kind))
        return np.ndarray(lengths, kind, buffer=np.asarray(memory), order=order)

    def zeros(self, shape: Shape, dtype: Any = float, order: Order = "C") -> np.ndarray:
        """As `empty`, for code that says what it means; takes no memory until it is used."""
        return self.empty(shape, dtype, order)

    def full(self, shape: Shape, fill_value: Any, dtype: Any = None, order: Order = "C") -> np.ndarray:
        """An array with one value everywhere; the dtype is the value's unless named.

        >>> Pool(ram="16M", swap="mem:64M").full(3, 7)
        array([7, 7, 7])
        """
        array = self.empty(shape, np.asarray(fill_value).dtype if dtype is None else dtype, order)
        array[...] = fill_value
        return array

    def from_file(
        self, path: Swap, dtype: Any = None, shape: Shape | None = None, offset: int = 0
    ) -> np.ndarray:
        """An array with the content of a file: of a .npy file, or with `dtype` of plain values from `offset` on.

        Without `shape` it has one axis, as long as the file has whole values.

        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     path = os.path.join(directory, "a.npy")
        ...     np.save(path, np.arange(6).reshape(2, 3))
        ...     Pool(ram="16M", swap="mem:64M").from_file(path)
        array([[0, 1, 2],
               [3, 4, 5]])
        """
        order: Order = "C"
        if dtype is None:
            if shape is not None or offset != 0:
                raise ValueError("a .npy file says its shape: leave shape and offset out, or give a dtype")
            dtype, shape, order, offset = header_of(path)
        kind = np.dtype(dtype)
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        held = os.stat(path).st_size - offset
        if shape is None:
            shape = max(held, 0) // max(kind.itemsize, 1)
        array = self.empty(shape, kind, order)
        if array.nbytes > held:
            raise ValueError(
                f"{os.fspath(path)} has {max(held, 0)} bytes from offset {offset} on, and the shape {array.shape} "
                f"of {kind} needs {array.nbytes}"
            )
        fill(array, path, offset)
        return array

    def numpy(self) -> AbstractContextManager[None]:
        """Within `with pool.numpy():` what numpy allocates is of this pool.

        That goes for the thread that runs the block (numpy keeps its allocator in a context variable), also within what it
        calls: pandas and scikit-learn allocate by numpy. The arrays may outlive the block and the pool.

        >>> with Pool(ram="16M", swap="mem:64M") as pool, pool.numpy():
        ...     a = np.arange(1_000_000)
        ...     pool.page_out(a) > 7_900_000
        True
        """
        return _allocating_by(self._engine.numpy_handler())

    # What is where

    def prefetch(self, array: np.ndarray, progress: bool | None = None) -> None:
        """Swaps an array or view in before it is needed, as far as the budget goes without reclaiming other pages.

        Ctrl-C ends the wait. `progress` shows a bar where tqdm is installed; by default it does for a long wait on a
        terminal.
        """
        layout = _layout(array)
        with bar("prefetch", array.nbytes, progress) as update:
            self._engine.prefetch(layout, update)

    def page_out(self, array: np.ndarray) -> int:
        """Swaps an array or view out now, and says how many bytes: of pages (4 KiB) that it shares with no others.

        >>> pool = Pool(ram="16M", swap="mem:64M")
        >>> a = pool.zeros((1024, 512))
        >>> pool.page_out(a[:2]), pool.page_out(a[:, 0])
        (8192, 0)
        """
        return self._engine.page_out(_layout(array))

    def pin(self, array: np.ndarray) -> None:
        """Swaps an array or view in, and keeps every page that it touches in RAM; pins nest. At most three quarters of the
        budget can be pinned. A pin goes with the memory, of small arrays too, which share pages with others."""
        self._engine.pin(_layout(array))

    def unpin(self, array: np.ndarray) -> None:
        """Undoes one `pin` of the same array or view."""
        self._engine.unpin(_layout(array))

    def discard(self, array: np.ndarray) -> None:
        """Makes an array or view zero, exactly; whole pages are forgotten without being read or written.

        >>> pool = Pool(ram="16M", swap="mem:64M")
        >>> a = pool.full((4, 3), 5)
        >>> pool.discard(a[1:3, :2]); a.tolist()
        [[5, 5, 5], [0, 0, 5], [0, 0, 5], [5, 5, 5]]
        """
        layout = _layout(array)
        if not array.flags.writeable:
            raise ValueError(f"the array of shape {array.shape} is read-only, and discard would change it")
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} holds references, which discard would forget: assign to it")
        self._engine.discard(layout)

    # The engine

    @property
    def ram(self) -> int:
        """The budget in bytes; set to another one, with text as well, it holds from then on."""
        return self.usage.ram

    @ram.setter
    def ram(self, ram: Size) -> None:
        self._engine.set_budget(_bytes("ram", ram))

    @property
    def usage(self) -> Usage:
        """What RAM and swap are used for at this moment, in bytes."""
        return Usage(**self._engine.usage())

    @property
    def counters(self) -> dict[str, int]:
        """Events since the start, named as in docs/options.md: `pswpin`, `pswpout`, `pgfault` …"""
        return self._engine.counters()

    def set(self, key: str, value: object) -> str:
        """Changes a setting of docs/control.md, and returns its value."""
        return self._engine.set(key, str(value))

    def swapon(self, device: Swap) -> None:
        """Takes one more swap device into use."""
        self._engine.swapon(os.fspath(device))

    def swapoff(self, device: Swap, progress: bool | None = None) -> None:
        """Empties a device and lets go of it. Interrupted by Ctrl-C, it stays in use, and nothing is lost."""
        with bar("swapoff", 0, progress) as update:
            self._engine.swapoff(os.fspath(device), update and _whole(update))

    def __repr__(self) -> str:
        if self.closed:
            return "<userswap.Pool, closed>"
        usage = self.usage
        return f"<userswap.Pool ram={size(usage.ram)} in use={size(usage.in_ram)} swapped={size(usage.swapped)}>"

    def _repr_html_(self) -> str:
        return html(None if self.closed else (self.usage, self.counters))


@contextmanager
def _allocating_by(handler: object) -> Iterator[None]:
    before = _native.set_handler(handler)
    try:
        yield
    finally:
        _native.set_handler(before)


def _whole(update: Any) -> Any:
    """A watcher of pages left, for a bar that is told bytes that are done."""
    done = 0

    def tell(left: int, total: int) -> None:
        nonlocal done
        now = (total - left) * 4096
        update(now - done)
        done = now

    return tell


def _bytes(name: str, value: Size) -> int:
    if isinstance(value, str):
        try:
            return _native.parse_size(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is neither a number of bytes nor text such as '2G'")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} is neither a number of bytes nor text such as '2G'") from None
    if not 0 < number < 1 << 50:
        raise ValueError(f"{name}={value!r} is not a size: use a number of bytes above 0, or text such as '2G'")
    return number


def _lengths(shape: Any) -> tuple[int, ...]:
    try:
        lengths = tuple(operator.index(length) for length in shape) if np.iterable(shape) else (operator.index(shape),)
    except TypeError:
        raise TypeError(f"shape {shape!r} is neither a whole number nor a tuple of them") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape {shape!r} has a negative length")
    return lengths


def _array_bytes(lengths: tuple[int, ...], kind: np.dtype) -> int:
    number = math.prod(lengths) * kind.itemsize
    if number >= 1 << 47:
        raise MemoryError(f"shape {lengths} of {kind} needs {number} bytes, more than there are addresses")
    return number


def _layout(array: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{type(array).__name__} is not a numpy.ndarray: of a DataFrame or Series, pass its .to_numpy()")
    return array.__array_interface__["data"][0], array.itemsize, array.shape, array.strides
