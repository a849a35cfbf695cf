"""A program of many pages that forks: how long fork takes, and until the child has ended by _exit or has called exec.

forks.py BYTES FORKS     prints a line of JSON: the medians of FORKS forks of each kind, in seconds
"""
import json
import os
import statistics
import sys
import time

PAGE_BYTES = 4096


def timed(child):
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        child()
    returned = time.perf_counter()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"
    return returned - begin, time.perf_counter() - begin


def main(size, forks):
    pages = range(0, size, PAGE_BYTES)
    memory = bytearray(size)
    for page in pages:
        memory[page : page + 8] = (page + 1).to_bytes(8, "little")
    exits = [timed(lambda: os._exit(0)) for _ in range(forks)]
    execs = [timed(lambda: os.execv("/bin/true", ["true"])) for _ in range(forks)]
    for page in pages:
        assert memory[page : page + 8] == (page + 1).to_bytes(8, "little"), f"page {page} is wrong"
    middle = lambda runs, part: statistics.median(run[part] for run in runs)
    print(json.dumps({"returns_s": middle(exits, 0), "exit_s": middle(exits, 1), "exec_s": middle(execs, 1)}))


main(*map(int, sys.argv[1:]))
