#!/usr/bin/env python3
"""Anonymous memory of hugeleaf's commands when they print: their output goes to a full pipe, on which they wait.

usage: measure.py HUGELEAF     as root; writes one line of JSON a command to standard output
"""
import json, os, re, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from victim import victim

SIZE = 1 << 30


def waits(pid):
    with open(f"/proc/{pid}/wchan") as file:
        return "pipe" in file.read()


def kib(pid, name):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M).group(1))


def heap(pid):
    """Anonymous memory outside the mappings of files: what is not relocations."""
    total, named = 0, False
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            words = line.split()
            if re.match(r"^[0-9a-f]+-", line):
                named = len(words) > 5 and words[5].startswith("/")
            elif words[0] == "Anonymous:" and not named:
                total += int(words[1])
    return total


def main():
    hugeleaf, pid = sys.argv[1], victim(SIZE)
    try:
        for words in (["status"], ["mem"], ["why", str(pid)], ["promote", str(pid)]):
            read, write = os.pipe()
            os.set_blocking(write, False)
            try:
                while True:
                    os.write(write, bytes(4096))
            except BlockingIOError:
                os.set_blocking(write, True)
            command = subprocess.Popen([hugeleaf, *words], stdout=write, stderr=subprocess.DEVNULL)
            while command.poll() is None and not waits(command.pid):
                time.sleep(0.01)
            row = {"command": words[0], "anonymous_kib": kib(command.pid, "Anonymous"), "heap_and_stacks_kib": heap(command.pid)}
            print(json.dumps(row), flush=True)
            command.kill()
            command.wait()
            os.close(read)
            os.close(write)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


main()
