"""A bar for long waits, where tqdm is installed."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Half a second of a fast disk: below, a bar would only flash.
BAR_MIN_BYTES = 1 << 30


@contextmanager
def bar(label: str, total: int, wanted: bool | None) -> Iterator[Callable[[int], Any] | None]:
    """What is to be told bytes that are done, or None where nothing is shown."""
    is_shown = wanted if wanted is not None else total >= BAR_MIN_BYTES and sys.stderr.isatty()
    make = _tqdm() if is_shown else None
    if make is None:
        yield None
        return
    with make(total=total or None, desc=label, unit="B", unit_scale=True, unit_divisor=1024) as shown:
        yield shown.update


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return None
    return tqdm
