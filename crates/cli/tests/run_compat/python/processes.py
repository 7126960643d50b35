"""Several processes, by fork, by spawn and from a server, with shared memory; ends with status 3."""
import mmap
import multiprocessing
import os
import sys
from multiprocessing import shared_memory

SIZE = 40 << 20


def square(number):
    table = [str(number)] * 200_000
    return number * number + len(table)


def fill(name, number):
    memory = shared_memory.SharedMemory(name=name)
    part = SIZE // 4
    memory.buf[number * part : (number + 1) * part] = bytes([number + 1]) * part
    memory.close()


def main():
    kept = [str(i) * 3 for i in range(300_000)]
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(4) as pool:
            print(method, pool.map(square, range(40)))
        memory = shared_memory.SharedMemory(create=True, size=SIZE)
        workers = [context.Process(target=fill, args=(memory.name, i)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print([worker.exitcode for worker in workers])
        held = bytes(memory.buf[:SIZE])
        print([held.count(bytes([i + 1])) for i in range(4)])
        del held
        memory.close()
        memory.unlink()
    shared = mmap.mmap(-1, SIZE)
    pid = os.fork()
    if pid == 0:
        shared[0:5] = b"child"
        shared[SIZE - 5 :] = b"child"
        os._exit(4)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shared[0:5], shared[SIZE - 5 :])
    print(len("".join(kept)))
    sys.exit(3)


if __name__ == "__main__":
    main()
