"""A job of one kind of data: fills SIZE mebibytes, then uses them at random.

    job.py heap|json|sorted|noise SIZE USES

The last line on standard error says how long the uses took.
"""
import array, json, random, sys, time


def heap(size, numbers):
    """A dictionary, a tuple, strings and an integer for each record: about 500 bytes."""
    items = [{"name": "user%d" % i, "score": i * 7, "tags": ("a%d" % (i % 97), "b")} for i in range(size // 500)]
    return len(items), lambda i: items[i]["score"]


def texts(size, numbers):
    """JSON of about 4000 characters, read each time."""
    def row(number):
        return {"id": number, "user": "user%d" % numbers.randrange(10**6), "mail": "user%d@example.org" % (number % 40),
                "active": number % 3 == 0, "score": round(numbers.random() * 100, 2)}
    items = [json.dumps([row(i * 40 + k) for k in range(40)]) for i in range(size // 4000)]
    return len(items), lambda i: len(json.loads(items[i]))


def walk(kind, steps, size):
    """Eight bytes for each sum of the steps so far; one of each page is used."""
    values, total = array.array(kind, [0]) * (size // 8), 0
    for index in range(len(values)):
        total += steps()
        values[index] = total
    return len(values) // 512, lambda i: values[i * 512 + 77]


KINDS = {
    "heap": heap,
    "json": texts,
    "sorted": lambda size, numbers: walk("q", lambda: numbers.getrandbits(9), size),
    "noise": lambda size, numbers: walk("d", lambda: numbers.random() - 0.5, size),
}


def main():
    kind, size, uses = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3])
    numbers = random.Random(7)
    count, use = KINDS[kind](size, numbers)
    start = time.monotonic()
    for _ in range(uses):
        use(numbers.randrange(count))
    print("%.2f s" % (time.monotonic() - start), file=sys.stderr)


main()
