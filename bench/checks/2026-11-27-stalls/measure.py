#!/usr/bin/env python3
"""Share of a process's time in calls of `promote`, and its longest stalls, with busy loops beside it.

usage: measure.py HUGELEAF ROUNDS [FLAG...]     as root; writes one line of JSON a round to standard output
"""
import json, mmap, os, subprocess, sys, time

SIZE = 256 << 20


def victim():
    """A process that holds private memory on base pages."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        held = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        held.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, SIZE, mmap.PAGESIZE):
            held[at] = 1
        held.madvise(mmap.MADV_HUGEPAGE)
        os.write(write, b"x")
        time.sleep(3600)
        os._exit(0)
    os.read(read, 1)
    return pid


def main():
    hugeleaf, rounds, flags = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]
    try:
        for n in range(rounds):
            pid = victim()
            command = [hugeleaf, "promote", "--json", *flags, str(pid)]
            answer = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            keys = ["seconds", "moving_seconds", "held_back_seconds", "calls", "longest_stall_seconds",
                    "calls_over_bound", "calls_over_twice_bound"]
            row = {key: answer[key] for key in keys}
            row["done_bytes"] = answer["totals"]["done_bytes"]
            row["share"] = row["moving_seconds"] / row["seconds"]
            row["load"] = os.getloadavg()[0]
            row["command"] = " ".join(["hugeleaf", *command[1:-1], "PID"])
            print(json.dumps(row), flush=True)
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()


main()
