"""A process for measurements to move."""
import mmap, os, time


def victim(size):
    """Starts a process that holds private memory on base pages, and returns its id once all is touched."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        held.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            held[at] = 1
        held.madvise(mmap.MADV_HUGEPAGE)
        os.write(write, b"x")
        time.sleep(3600)
        os._exit(0)
    os.read(read, 1)
    return pid
