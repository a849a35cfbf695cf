"""The seconds that the parts of a job take, on standard error."""
import sys
import time

started = time.monotonic()


def part(name):
    """Says how long the part that ends here took."""
    global started
    now = time.monotonic()
    print(f"part {name} {now - started:.3f}", file=sys.stderr, flush=True)
    started = now
