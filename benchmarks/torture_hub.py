"""Damaged and hostile files of others, thousands of them, in the hands of the loader (`make torture` prints the table).

Held means: refused in words, or read as something whole (nobody can know of one flipped bit in a weight), in less than
20 seconds and 1 GB, and nothing in the file ran. Failed is everything else: a traceback, a crash, a hang.
"""

import argparse
import gc
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
from tests.forks import start, wait
from tests.hub.damage import Target, attempt, damaged, make_targets

MOST_SECONDS, MOST_BYTES = 20.0, 2**30
CHUNK = 25


def try_chunk(target: Target, seeds: range, output: Path, canary: Path) -> dict[int, str]:
    """In a child, what went wrong with each; what a child did not live to say is said here."""

    def work() -> int:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        gc.freeze()  # what is there already is not looked through again after each file
        whole = target.path.read_bytes()
        with output.open("a") as said:
            for seed in seeds:
                chance = random.Random(f"{target.path.name} {target.folder.name} {seed}")
                how, data = damaged(target, whole, chance, canary)
                begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                said.write(f"{seed}\t{how}\t")
                said.flush()
                problem = attempt(target, data, canary)
                grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
                if time.monotonic() - begun > MOST_SECONDS or grown > MOST_BYTES:
                    problem = f"{time.monotonic() - begun:.0f} s and {grown // 2**20} MB"
                said.write(f"{problem or ''}\n".replace("\n", " ").rstrip() + "\n")
                said.flush()
                canary.unlink(missing_ok=True)
                gc.collect()
        return 0

    output.unlink(missing_ok=True)
    whole = target.path.read_bytes()
    code = wait(start(work, output.with_suffix(".log")), seconds=CHUNK * MOST_SECONDS)
    target.path.write_bytes(whole)
    found: dict[int, str] = {}
    for line in output.read_text().splitlines() if output.exists() else []:
        seed, how, problem = [*line.split("\t", 2), "", ""][:3]
        found[int(seed)] = f"{how}: {problem}" if problem else ""
    if code:
        last = max(found, default=seeds[0])
        found[last] = f"the process ended with {code} ({found.get(last, '')})"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=100, help="for each of about 25 files")
    tries = parser.parse_args().tries
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    rows: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        root, canary = Path(folder) / "folders", Path(folder) / "ran"
        root.mkdir()
        for target in make_targets(root):
            count = rows.setdefault(target.kind, Counter(tried=0, held=0, failed=0))
            left = range(tries)
            while left:
                found = try_chunk(target, left[:CHUNK], Path(folder) / "said", canary)
                done = max(found, default=left[0])
                for seed, problem in found.items():
                    count.update(tried=1, held=not problem, failed=bool(problem))
                    if problem:
                        print(f"{target.folder.name}/{target.name}, {seed}: {problem}", file=sys.stderr)
                left = range(done + 1, tries)
    print("| files | damaged | held | failed |\n|---|---|---|---|")
    for kind, count in [*rows.items(), ("all", sum(rows.values(), Counter()))]:
        print(f"| {kind} | {count['tried']:,} | {count['held']:,} | {count['failed']:,} |")


if __name__ == "__main__":
    main()
