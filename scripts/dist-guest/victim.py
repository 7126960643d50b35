# A server for scripts/dist-guest/inside.sh: holds MEGABYTES of random bytes, and reads them again and again. Writes the
# number of complete reads to FILE. Ends with status 1 as soon as a byte is another one.
import os
import sys
import time
import zlib

megabytes, file = int(sys.argv[1]), sys.argv[2]
memory = bytearray(megabytes << 20)
part = 1 << 20
for start in range(0, len(memory), part):
    memory[start : start + part] = os.urandom(part)
view = memoryview(memory)
expected = [zlib.crc32(view[start : start + part]) for start in range(0, len(memory), part)]
reads = 0
while True:
    for number, start in enumerate(range(0, len(memory), part)):
        if zlib.crc32(view[start : start + part]) != expected[number]:
            sys.exit(f"the memory at {start} was changed")
        # The emulated processors have other work.
        time.sleep(0.01)
    reads += 1
    with open(file + ".new", "w") as out:
        out.write(f"{reads}\n")
    os.replace(file + ".new", file)
