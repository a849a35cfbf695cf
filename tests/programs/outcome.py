"""What a run under userswap is called, held against the native one."""
import dataclasses
import signal

# Of the memory of the processes that outgrow their budget; less than this counts as unmanaged.
SHARE_LEAST = 0.5


@dataclasses.dataclass
class Verdict:
    """A word for the table, and whether the check fails over it."""
    word: str
    is_bad: bool
    detail: str = ""


def ended(run):
    """How a run ended, in words."""
    if run.timed_out:
        return "hung"
    if run.status < 0 or run.status > 128:
        number = -run.status if run.status < 0 else run.status - 128
        try:
            return f"died of {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"ended with status {run.status}"


def messages(run):
    """What userswap said during the run, the last line first."""
    return [line for line in reversed(run.stderr.splitlines()) if "userswap" in line]


def last_words(run):
    said = messages(run) or list(reversed(run.stderr.strip().splitlines()))
    return said[0].strip() if said else "nothing was said"


def share(run):
    """The part of the memory of large processes that is managed; None where none outgrew its budget."""
    whole = run.managed + run.unmanaged
    return run.managed / whole if whole else None


def judge(native, run, must_be_refused, budget):
    if run.status == 126 and "userswap: " in run.stderr:
        return Verdict("refused", not must_be_refused, last_words(run))
    if must_be_refused:
        return Verdict("not refused", True, last_words(run))
    fits = native.peak_bytes <= budget or run.stats and not any(stats["pswpout"] for stats in run.stats)
    return unlike(native, run) or unmanaged(native, run, budget) or Verdict("same, fits" if fits else "same", False)


def unlike(native, run):
    """Where the run is not what the native one is."""
    if run.timed_out:
        return Verdict("hangs", True, last_words(run))
    if run.status != native.status:
        return Verdict(ended(run).replace("ended with", "ends with").replace("died", "dies"), True, last_words(run))
    if run.stdout != native.stdout:
        return Verdict("differs", True, difference(native.stdout, run.stdout))
    if run.left and not native.left:
        return Verdict("leaves processes", True, " ".join(run.left))
    if any(stats["pages_lost"] for stats in run.stats):
        return Verdict("loses pages", True, last_words(run))
    return None


def unmanaged(native, run, budget):
    """Where it is, and its memory is not managed."""
    part = share(run)
    if part is None and not run.stats and native.peak_bytes > 2 * budget:
        part = 0.0
    is_shared = run.shared > max(run.managed + run.unmanaged, budget)
    if is_shared or part is not None and part < SHARE_LEAST:
        words = ("manage", "outside the budget", "outside its budget")
        said = any(word in line for line in messages(run) for word in words)
        detail = f"{run.shared >> 20} MiB of shared memory" if is_shared else f"{part:.0%} managed"
        return Verdict("unmanaged, said" if said else "unmanaged, silent", not said, detail)
    return None


def difference(native, run):
    left, right = (text.decode("utf-8", "replace").splitlines() for text in (native, run))
    for number, (mine, other) in enumerate(zip(left, right), 1):
        if mine != other:
            return f"line {number}: natively {mine[:80]!r}, here {other[:80]!r}"
    return f"{len(left)} lines natively, {len(right)} here"
