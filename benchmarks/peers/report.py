"""The comparison with peers as tables, as sentences and as a plot, all made from the recorded results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Results = Mapping[str, Any]
Record = Mapping[str, Any]

TRUST = {"hdcos": "dealer with a party", "CrypTen": "third party with a party", "SPU": "party 0"}
"""Who could decrypt everything, beside both parties together."""
SETTINGS = {
    "hdcos": "`hdcos.local()`: a dealer, two parties and the caller, each a process, TLS between them",
    "CrypTen": "two parties and a trusted third party, each a process, gloo without encryption, 16 fraction bits",
    "SPU": "two parties, each a process, Semi2k over 64 bits with triples from its trusted first party, brpc without "
    "encryption, 18 fraction bits",
}
BRIEF = (
    "cosine of 128 x 1024",
    "4 x 1024 MLP, batch 1",
    "4 x 1024 MLP, batch 128",
    "LeNet-5, batch 128",
    "LeNet-5 training step, batch 128",
    "Higgs training step, batch 128",
)
COLUMNS: dict[str, Callable[[Record], float | None]] = {
    "wall time": lambda record: record["wall_s"],
    "online": lambda record: record["online_s"],
    "sent per party": lambda record: record["party_bytes"],
    "dealt": lambda record: record["dealer_bytes"],
    "rounds": lambda record: record["rounds"],
    "largest error": lambda record: record["error"],
}
COMPARED = ("wall time", "sent per party", "rounds", "largest error")
COLOURS = {"hdcos": "#2a78d6", "CrypTen": "#d9822b", "SPU": "#3f9d6c"}
INK = "#808080"
"""Text and lines that can be read on white and on black."""


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size(count: float | None) -> str:
    """Bytes in the unit that suits them."""
    if not count:
        return "-"
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} kB"


def cells(record: Record) -> list[str]:
    """The figures of one record in the order of COLUMNS."""
    rounds = f"{record['rounds']:g}"
    sizes = size(record["party_bytes"]), size(record["dealer_bytes"])
    return [duration(record["wall_s"]), duration(record["online_s"]), *sizes, rounds, f"{record['error']:.1e}"]


def works(results: Results) -> list[str]:
    return list(dict.fromkeys(record["work"] for record in results["records"]))


def of_work(results: Results, work: str) -> list[Record]:
    return [record for record in results["records"] if record["work"] == work]


def quickest(results: Results, work: str, system: str) -> Record | None:
    """The way in which a system does this work in the least time."""
    found = [record for record in of_work(results, work) if record["system"] == system]
    return min(found, key=lambda record: float(record["wall_s"]), default=None)


def lines(results: Results) -> Iterator[str]:
    """What a terminal shows after a run."""
    for record in results["records"]:
        yield f"{record['work']:34}{record['system']:9}{record['way']:28}" + "".join(f"{c:>11}" for c in cells(record))


def table(results: Results) -> str:
    """Every measurement; the best of each kind of figure in bold where systems differ."""
    found = [
        f"| work | system | computed with | {' | '.join(COLUMNS)} | could decrypt everything |",
        f"|---|---|---|{'---:|' * len(COLUMNS)}---|",
    ]
    for work in works(results):
        records = of_work(results, work)
        best = {name: _best(records, name) for name in COMPARED}
        if not any(record["system"] == "hdcos" for record in records):
            found.append(f"| {work} | hdcos | not measured yet |{' - |' * len(COLUMNS)} - |")
        for record in records:
            shown = [
                f"**{cell}**" if record is best.get(name) else cell
                for name, cell in zip(COLUMNS, cells(record), strict=True)
            ]
            system = record["system"]
            found.append(f"| {work} | {system} | {record['way']} | {' | '.join(shown)} | {TRUST[system]} |")
    return "\n".join([*found, "", *notes(results)])


def _best(records: list[Record], name: str) -> Record:
    return min(records, key=lambda record: COLUMNS[name](record) or 0.0)


def brief(results: Results) -> str:
    """Wall times alone, six rows: each system in the way that is quickest for it."""
    systems = list(results["versions"])
    found = [f"| everything included | {' | '.join(systems)} |", f"|---|{'---:|' * len(systems)}"]
    for work in BRIEF:
        times = []
        for system in systems:
            record = quickest(results, work, system)
            times.append("-" if record is None else f"{duration(record['wall_s'])} ({record['way']})")
        found.append(f"| {work} | {' | '.join(times)} |")
    return "\n".join(found)


def notes(results: Results) -> Iterator[str]:
    """How it was measured, who is trusted, and where a peer is better."""
    for system, versions in results["versions"].items():
        others = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "version")
        yield f"- **{system} {versions['version']}** ({others}): {SETTINGS[system]}."
    yield (
        f"- Wall time is from plaintext inputs at the caller to plaintext results there (training: until the step is "
        f"done), dealing included; medians of {results['turns']} alternating turns; work of more than "
        f"{results['slow_s']:g} s was done once. Starting processes, compiling programs and sharing weights came "
        f"before. Training is per step with the logistic loss; sharing the rows is included, and planning with hdcos."
    )
    yield (
        "- Online is what remains when the material is there; CrypTen and SPU make theirs on the way and cannot tell "
        "it apart, and hdcos deals while it trains. Bytes are those on TCP connections, of the party that sent more; "
        "rounds are those that each system counts."
    )
    yield (
        "- Errors are the largest differences to floating point in any run: of results, or of parameters after the "
        "steps of a run, of which hdcos takes 20 times as many as the peers. hdcos adds noise to the answers of "
        "networks on purpose ([Security](security.md))."
    )
    yield (
        "- A dealer knows every mask and sees no message: together with a party it knows everything. SPU's trusted "
        "first party is one of the two. hdcos without a dealer and SPU with Cheetah need neither, at many times "
        "the cost."
    )
    yield from better(results)
    yield (
        f"- Measured on {results['machine']}, load {results['load']:.1f} at the end, by `{results['command']}` at "
        f"commit {results['commit']}, seed {results['seed']}."
    )


def better(results: Results) -> Iterator[str]:
    """One sentence for each peer: where it has the better figure than every way of hdcos."""
    for system in results["versions"]:
        if system == "hdcos":
            continue
        found = []
        for name in COMPARED:
            won = [work for work in works(results) if _wins(of_work(results, work), system, name)]
            if won:
                found.append(f"{name} ({'; '.join(won)})")
        wins = ", ".join(found) if found else "none of these figures"
        yield f"- {system} is better than hdcos in: {wins}."


def _wins(records: list[Record], system: str, name: str) -> bool:
    """Whether a system is best, also where hdcos cannot do the work at all."""
    mine = [COLUMNS[name](record) or 0.0 for record in records if record["system"] == "hdcos"]
    theirs = [COLUMNS[name](record) or 0.0 for record in records if record["system"] == system]
    return bool(theirs) and (not mine or min(theirs) < min(mine))


def draw(results: Results, path: Path) -> None:
    """Wall times as bars on a logarithmic scale, one group for each piece of work."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    settings = {"svg.fonttype": "none", "svg.hashsalt": "hdcos", "font.family": "sans-serif", "font.size": 11}
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    with pyplot.rc_context({**settings, **colours}):
        figure, axes = pyplot.subplots(figsize=(8.5, 6.2))
        names, systems = works(results), list(results["versions"])
        thick = 0.8 / len(systems)
        for place, system in enumerate(systems):
            for row, work in enumerate(names):
                record, height = quickest(results, work, system), row + (place - 1) * thick
                if record is None:
                    axes.text(axes_start(results), height, f" {system}: none yet", va="center", fontsize=9)
                    continue
                label = system if row == 0 else None
                axes.barh(height, record["wall_s"], thick * 0.9, color=COLOURS[system], label=label)
                axes.text(record["wall_s"] * 1.08, height, duration(record["wall_s"]), va="center", fontsize=9)
        axes.set_xscale("log")
        longest = max(record["wall_s"] for record in results["records"])
        axes.set_xlim(axes_start(results), longest * 5)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("seconds, everything included (logarithmic; shorter is better)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=len(systems), frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)


def axes_start(results: Results) -> float:
    """Where bars begin: a logarithmic axis has no zero."""
    return float(min(record["wall_s"] for record in results["records"])) / 3
