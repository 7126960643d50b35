#!/usr/bin/env python3
"""Share of a process's time in calls of `promote`, and its longest stalls, with busy loops beside it.

usage: measure.py HUGELEAF ROUNDS [FLAG...]     as root; writes one line of JSON a round to standard output
"""
import json, os, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from victim import victim

SIZE = 256 << 20


def main():
    hugeleaf, rounds, flags = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]
    try:
        for n in range(rounds):
            pid = victim(SIZE)
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
