"""A heap with a garbage collector: trees that point in circles are replaced at random, and a collection looks at all.

gc_heap.py PROCESSES BYTES REPLACEMENTS     bytes and replacements of each process

Filled, each process waits for SIGUSR1; after its replacements and its collection it waits again, and then checks everything.
"""
import array
import gc
import os
import random
import signal
import sys
import time

CONTENT_BYTES = 1024
# What a node takes with its content, about.
NODE_BYTES = 1152
NODES = 16


class Node:
    __slots__ = ("parent", "children", "number", "content")

    def __init__(self, parent, number):
        self.parent = parent
        self.children = ()
        self.number = number
        self.content = content(number)


def content(number):
    return number.to_bytes(8, "little") * (CONTENT_BYTES // 8)


def tree(number):
    root = Node(None, number)
    root.children = tuple(Node(root, number + child) for child in range(1, NODES))
    return root


def check(root, number):
    for node in (root, *root.children):
        if node.number != number or node.content != content(number):
            sys.exit(f"Data wrong in node {number}")
        number += 1


def wait():
    print(f"Read Process {os.getpid()} is waiting signal", flush=True)
    signal.sigwait([signal.SIGUSR1])


def work(size, replacements):
    count = max(size // (NODES * NODE_BYTES), 1)
    numbers = array.array("Q", range(0, count * NODES, NODES))
    trees = [tree(number) for number in numbers]
    draw = random.Random(1)
    wait()
    begin = time.monotonic()
    for number in range(count * NODES, (count + replacements) * NODES, NODES):
        index = draw.randrange(count)
        check(trees[index], numbers[index])
        trees[index], numbers[index] = tree(number), number
    found = gc.collect()
    micros = max(int((time.monotonic() - begin) * 1e6), 1)
    rate = replacements * 1_000_000 // micros
    print(f"{replacements} operations / {micros} usecs = {rate} operations/s", flush=True)
    wait()
    for root, number in zip(trees, numbers):
        check(root, number)
    if found < replacements * NODES:
        sys.exit(f"{found} objects collected, {replacements * NODES} were garbage")


def main(processes, size, replacements):
    # Only the collection that is asked for: both sides do the same.
    gc.disable()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if processes == 1:
        work(size, replacements)
        return
    children = set()
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            work(size, replacements)
            return
        children.add(child)
    while children:
        child, status = os.wait()
        children.discard(child)
        if status:
            # The others might wait for a signal that comes only when all do.
            for other in children:
                os.kill(other, signal.SIGKILL)
            sys.exit(f"process {child} ended with {os.waitstatus_to_exitcode(status)}")


main(*map(int, sys.argv[1:]))
