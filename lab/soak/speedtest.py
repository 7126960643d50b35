#!/usr/bin/env python3
"""SQLite's own speedtest1, bare and under `run --sqlite`, taking turns: which parts gain and which lose.

    lab/soak/speedtest.py --program speedtest1 --out FOLDER [--hugeleaf PROGRAM] [--sqlite SIZE] [--pairs N] [-- ARGUMENT...]

The program comes with SQLite's sources (test/speedtest1.c) and is to be linked with the shared library. ARGUMENTs are its own,
as in `--size 100`. Prints bare over run for each part: the geometric mean of all pairs with its interval (95 %, by resampling
pairs). Parts below 50 ms are not shown: speedtest1 counts milliseconds. Writes FOLDER/samples.tsv, a line a part and run.
"""

import argparse, math, os, random, re, statistics, subprocess, sys, tempfile

LINE = re.compile(r"^\s*(\d+ - .*?|TOTAL)\.{2,}\s+(\d+\.\d+)s$")
ARMS = ("bare", "run")


def once(command, folder):
    """Seconds of each part."""
    database = os.path.join(folder, "speed.db")
    for leftover in os.listdir(folder):
        os.remove(os.path.join(folder, leftover))
    out = subprocess.run(command + [database], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    parts = (LINE.match(line) for line in out.stdout.splitlines())
    return {m[1].strip(): float(m[2]) for m in parts if m}


def interval(ratios):
    """Geometric mean, and where 95 % of the means of resampled pairs are."""
    logs = [math.log(r) for r in ratios]
    draw = random.Random(1)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(4000))
    return [math.exp(x) for x in (statistics.fmean(logs), means[100], means[-101])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--hugeleaf", default="target/release/hugeleaf")
    parser.add_argument("--sqlite", default="256M")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", required=True)
    parser.add_argument("arguments", nargs="*")
    args = parser.parse_args()
    bare = [os.path.abspath(args.program)] + args.arguments
    run = [os.path.abspath(args.hugeleaf), "run", "--sqlite", args.sqlite, "--"] + bare
    os.makedirs(args.out, exist_ok=True)
    seen = {}
    with open(os.path.join(args.out, "samples.tsv"), "w") as out, tempfile.TemporaryDirectory() as folder:
        print("pair\tarm\tpart\tseconds", file=out)
        for pair in range(args.pairs):
            for arm in ARMS if pair % 2 == 0 else ARMS[::-1]:
                for part, seconds in once(bare if arm == "bare" else run, folder).items():
                    seen.setdefault(part, {}).setdefault(arm, []).append(seconds)
                    print(pair, arm, part, seconds, sep="\t", file=out, flush=True)
            if sys.stderr.isatty():
                print(f"\rpair {pair + 1} of {args.pairs}", end="", file=sys.stderr)
    print(f"{'BARE / RUN':24}{'SECONDS':>9}  PART")
    for part, of in seen.items():
        seconds = statistics.median(of["bare"])
        if seconds >= 0.05:
            ratio, low, high = interval([b / max(r, 0.001) for b, r in zip(of["bare"], of["run"])])
            print(f"{f'{ratio:.3f} [{low:.3f}, {high:.3f}]':24}{seconds:9.3f}  {part}")


main()
