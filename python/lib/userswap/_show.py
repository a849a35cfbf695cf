"""What a pool looks like: usage, sizes, and the table of a notebook."""
from __future__ import annotations

from html import escape
from typing import NamedTuple


class Usage(NamedTuple):
    """What RAM and swap are used for, in bytes.

    >>> Usage(*range(10)).in_ram
    7
    """

    ram: int
    "The budget."
    resident: int
    "Mapped in arrays."
    cached: int
    "In RAM, not mapped: about to leave, or read ahead."
    compressed: int
    "Held by compressed pages; these count as swapped."
    writing: int
    "Being written to a device."
    free: int
    "Taken from the kernel, and unused."
    spare: int
    "Not taken from the kernel yet."
    debt: int
    "In use beyond the budget, which was made smaller or had to be exceeded."
    swapped: int
    "On swap devices."
    swap: int
    "Room on swap devices, used or not."

    @property
    def in_ram(self) -> int:
        """Content of arrays that is in RAM."""
        return self.resident + self.cached + self.writing


def size(number: int) -> str:
    """Bytes for the eye.

    >>> size(3 << 29), size(100), size(0)
    ('1.5G', '100', '0')
    """
    for shift, letter in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if number >> shift:
            return f"{number / (1 << shift):.1f}".removesuffix(".0") + letter
    return str(number)


def html(now: tuple[Usage, dict[str, int]] | None) -> str:
    """The table of a notebook; None is a closed pool."""
    if now is None:
        return "<b>userswap.Pool</b>, closed"
    usage, counters = now
    rows = [
        ("in RAM", _bar(usage.in_ram, usage.ram)),
        ("swapped", _bar(usage.swapped, usage.swap)),
        *([("compressed", f"{size(usage.compressed)} of RAM")] if usage.compressed else []),
        ("faults", f"{counters['pgfault']:,}, of which {counters['pgmajfault']:,} read"),
        ("pages in / out", f"{counters['pswpin']:,} / {counters['pswpout']:,}"),
    ]
    cells = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th><td>{cell}</td></tr>" for name, cell in rows)
    return f"<table><caption><b>userswap.Pool</b></caption>{cells}</table>"


def _bar(used: int, most: int) -> str:
    return f"<progress value='{used}' max='{max(most, 1)}'></progress> {size(used)} of {size(most)}"
