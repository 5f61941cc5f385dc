"""Time of a training step here over another commit's, in alternating turns: `python -m benchmarks.against COMMIT`.

The other commit is checked out and installed under build/against. What can be switched off may also be compared with
this very commit without it (`compare(HERE, work, PLAIN_LINKS)`). A cluster of each is kept open, and only one of the
two works at any time; the machine's speed changes, so the second of a turn is the first of the next one and each turn
gives a ratio of its own. Where a process's arrays lie in memory makes kernels faster or slower by 30 %: clusters are
begun again several times, and the median over all turns is given.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PLAIN_LINKS = HERE / "benchmarks/plain_links"
"""On the path of Python: links are pumped by Python instead of compiled code."""
CLUSTERS, TURNS = 16, 4
STEPS = {"higgs": 150, "lenet5": 6}


class Side:
    """A cluster of one checkout, in a process that takes as many steps as it is told. `path` is searched first."""

    def __init__(self, folder: Path, work: str, *path: Path):
        self._process = subprocess.Popen(
            [folder / ".venv/bin/python", __file__, "--work", work],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, folder)))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.steps(STEPS[work])  # whatever is built at the first step is not measured

    def steps(self, count: int) -> tuple[float, float]:
        """Seconds by the clock, and processor seconds of both parties and the dealer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return answer["seconds"], answer["cpu_s"]

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def checkout(commit: str) -> Path:
    """The other commit, installed; as it is if it is there."""
    folder = HERE / "build/against" / commit
    if not (folder / ".venv/bin/python").exists():
        subprocess.run(["git", "worktree", "add", "--force", "--detach", folder, commit], cwd=HERE, check=True)
        subprocess.run(["make", ".venv/.dev"], cwd=folder, check=True, stdout=sys.stderr)
    return folder


def compare(other: Path, work: str, *path: Path, clusters: int = CLUSTERS) -> dict[str, Any]:
    turns = []
    for _ in range(clusters):
        sides = [Side(HERE, work), Side(other, work, *path)]
        for turn in range(TURNS):
            taken = {number: sides[number].steps(STEPS[work]) for number in ((0, 1) if turn % 2 else (1, 0))}
            turns.append([taken[0], taken[1]])
        for side in sides:
            side.close()
    ratios = [here[0] / there[0] for here, there in turns]
    low, _, high = quantiles(ratios, n=4)
    return {
        "work": work,
        "here_ms": 1e3 * median(here[0] for here, _ in turns) / STEPS[work],
        "there_ms": 1e3 * median(there[0] for _, there in turns) / STEPS[work],
        "ratio": median(ratios),
        "quartiles": [low, high],
        "cpu_ratio": median(here[1] / there[1] for here, there in turns),
    }


def work(name: str) -> Iterator[dict[str, float]]:
    """What a side does: as many steps as each line that it reads says."""
    from benchmarks import training as there
    from hdcos import data, local, nn

    x, y = data.higgs() if name == "higgs" else data.mnist("train")
    batch = 256 if name == "higgs" else 128
    model = nn.models.higgs_mlp() if name == "higgs" else nn.models.lenet5()
    x, y = x[: 100 * batch], y[: 100 * batch]
    with local() as cluster:
        cluster.upload(x, y, name="rows", outputs=model.output_shape[0])
        begin = vars(there).get("Training") or vars(there)["_Training"]  # its name in earlier commits
        training = begin(cluster, model, batch, (TURNS + 1) * STEPS[name] // 100 + 1)
        for line in sys.stdin:
            before_s = _cpu_seconds(cluster)
            yield {"seconds": training.steps(int(line)), "cpu_s": _cpu_seconds(cluster) - before_s}


def _cpu_seconds(cluster: Any) -> float:
    cluster.cost  # noqa: B018  waits until the material that was ordered is there
    total = 0
    for pid in cluster.pids.values():
        total += sum(int(ticks) for ticks in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        for answer in work(sys.argv[2]):
            print(json.dumps(answer), flush=True)
    else:
        for name in STEPS:
            print(json.dumps(compare(checkout(sys.argv[1]), name)), flush=True)
