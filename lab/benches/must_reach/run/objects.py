"""A gigabyte of small objects: tuples, dictionaries, strings, numbers. It grows, says "ready",
waits for a line, and then looks them up at random.

usage: objects.py OBJECTS LOOKUPS
"""

import random
import sys
import time

count, lookups = int(sys.argv[1]), int(sys.argv[2])


def record(i):
    return (i, "row number %d of many" % i, {"a": i * 3, "b": i * 0.5, "c": str(i)}, [i + 1, i + 2, i + 3])


start = time.monotonic()
records = {}
for i in range(count):
    records["key %d" % i] = record(i)
print("rate grow %f" % (count / (time.monotonic() - start)), flush=True)
print("ready", flush=True)
sys.stdin.readline()

draw = random.Random(1)
start = time.monotonic()
total = 0
for _ in range(lookups):
    number, text, fields, others = records["key %d" % int(draw.random() * count)]
    total += number + len(text) + fields["a"] + others[1]
print("rate work %f" % (lookups / (time.monotonic() - start)))
print("check %d" % total)
