"""Preparation: the same on shares as pooled, as scikit-learn makes it, and nothing told but totals; bad tables by name.

`make prove SUITE=tables PART=columns ROWS=20000` takes a quick look.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hdcos
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos.errors import HdcosError
from hdcos.ring import Array
from hdcos.sharing.wide import add_wide, join_wide, split_wide
from hdcos.tables import Columns, Preparation
from hdcos.tables.fitting import measure

TABLES, TURNS = 20, 9
ROWS = int(os.environ.get("ROWS") or 200_000)
VALUES = ["Aarau", "Bern", "Chur", "Genève", "Zürich", "東京"]


def prove_columns(seed: int) -> Iterator[Line]:
    yield from _prove_equal(seed)
    yield from _prove_cluster(seed)
    yield from _prove_uniform(seed)
    yield from _prove_refusals(seed)
    yield from _prove_speed(seed)


def random_table(generator: np.random.Generator, rows: int) -> pd.DataFrame:
    """Numbers of any size with gaps, truths, dates, categories and a label."""
    size = 10.0 ** generator.integers(-8, 9, 3)
    offset = size * 10.0 ** generator.integers(-3, 4, 3)  # beyond that scikit-learn's own sums lose digits
    table = pd.DataFrame(
        {f"n{place}": generator.normal(offset[place], size[place], rows) for place in range(3)}
        | {
            "member": generator.choice(["yes", "no"], rows),
            "since": pd.Timestamp("2001-01-01") + pd.to_timedelta(generator.integers(0, 8000, rows), unit="D"),
            "city": generator.choice(VALUES, rows),
            "sick": generator.choice(["no", "yes"], rows),
        }
    )
    for name in ("n0", "n1", "city"):
        table.loc[generator.random(rows) < 0.1, name] = None
    return table


def declared() -> Columns:
    return Columns.of(
        {
            "n0": {"kind": "numeric", "missing": "mean", "clip": 1e6},
            "n1": {"kind": "numeric", "missing": "indicator", "clip": 1e6},
            "n2": {"kind": "numeric", "clip": 1e6},
            "member": "boolean",
            "since": {"kind": "date", "clip": 1e6},
            "city": {"kind": "category", "values": VALUES, "missing": "indicator", "unseen": "other", "least": 5},
            "sick": {"kind": "label", "classes": ["no", "yes"]},
        }
    )


def _split(table: pd.DataFrame, owners: int) -> list[pd.DataFrame]:
    return [table.iloc[place::owners] for place in range(owners)]


def _prove_equal(seed: int) -> Iterator[Line]:
    columns, differing, apart = declared(), 0, 0.0
    for number in range(TABLES):
        generator = np.random.default_rng([seed, number])
        table = random_table(generator, int(generator.integers(200, 2000)))
        parts = [measure(columns, part) for part in _split(table, int(generator.integers(2, 7)))]
        sides = zip(*(split_wide(part.numbers) for part in parts), strict=True)
        together = Preparation.of(parts[0].total(join_wide(*(add_wide(side) for side in sides))), len(parts))
        differing += not together.agrees(Preparation.fit(table, columns))
        apart = max(apart, float(np.abs(together.apply(table) - _scikit_learn(table)).max()))
    what = f"{TABLES} random tables, rows of 2 to 6 owners"
    yield exactly(f"{what}: preparations on shares that differ in a bit from that of the pooled rows", differing, 0)
    yield at_most(f"{what}: largest difference of a feature from scikit-learn's on pooled rows", apart, 1e-9)


def _scikit_learn(table: pd.DataFrame) -> Array:
    """The same features: gaps filled with the mean, numbers standardised, values one-hot."""
    numbers = make_pipeline(SimpleImputer(add_indicator=False), StandardScaler())
    plain = table.assign(
        since=(table["since"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1),
        city=table["city"].astype(object).where(table["city"].notna(), "zz"),
    )
    scaled = ColumnTransformer([("n", numbers, ["n0", "n1", "n2", "since"])]).fit_transform(plain)
    known = plain[["n0", "n1", "n2", "since"]].notna()
    for place, name in enumerate(known):  # scikit-learn's deviation is that of filled columns, ours of what was there
        scaled[:, place] *= np.sqrt(known[name].mean())
    hot = OneHotEncoder(categories=[[*VALUES, "zz"]], sparse_output=False).fit_transform(plain[["city"]])
    gaps, member = table["n1"].isna().to_numpy(float), (table["member"] == "yes").to_numpy(float)
    other = np.zeros(len(table))
    return np.column_stack(
        [scaled[:, 0], scaled[:, 1], gaps, scaled[:, 2], member, scaled[:, 3], hot[:, :-1], other, hot[:, -1]]
    )


def _prove_cluster(seed: int) -> Iterator[Line]:
    table, columns = random_table(np.random.default_rng(seed), 3000), declared()
    with hdcos.local() as cluster:
        names = ["north", "south", "east"]
        parts = [
            cluster.contribute(part, columns, name="all", owners=3, clients=names, owner=owner)
            for owner, part in zip(names, _split(table, 3), strict=True)
        ]
        made = [part.preparation() for part in parts]
    pooled = Preparation.fit(table, columns)
    yield exactly("3 owners through two parties: digests that they get", len({each.digest for each in made}), 1)
    yield exactly("3 owners through two parties: equal to the pooled preparation", made[0].agrees(pooled), True)


def _prove_uniform(seed: int) -> Iterator[Line]:
    """Bytes of what one party is sent, for two tables that have nothing in common."""
    columns, counts = declared(), []
    for number in (0, 1):
        statistics = measure(columns, random_table(np.random.default_rng([seed, 99, number]), 1000))
        sent = [share for _ in range(200) for share in split_wide(statistics.numbers)]
        counts.append(np.stack([np.bincount(share.view(np.uint8).ravel(), minlength=256) for share in sent]).sum(0))
    uniform = min(float(stats.chisquare(count).pvalue) for count in counts)
    same = float(stats.chi2_contingency(np.stack(counts)).pvalue)
    yield at_least("what a party is sent of two different tables: least p-value of uniform bytes", uniform, 1e-6)
    yield at_least("what a party is sent of two different tables: p-value of one distribution", same, 1e-6)


def _prove_refusals(seed: int) -> Iterator[Line]:
    table = random_table(np.random.default_rng(seed), 200)
    made = Preparation.fit(table, declared())
    changes: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
        "a column is missing": (lambda t: t.drop(columns="n2"), "n2"),
        "a column is unknown": (lambda t: t.assign(extra=1), "extra"),
        "a column is renamed": (lambda t: t.rename(columns={"city": "town"}), "town"),
        "a number is a text": (lambda t: t.assign(n2=["?!"] * len(t)), "'n2'"),
        "a number is a truth": (lambda t: t.assign(n2=True), "'n2'"),
        "a number is missing": (lambda t: t.assign(n2=np.nan), "'n2'"),
        "a number is infinite": (lambda t: t.assign(n2=np.inf), "'n2'"),
        "a truth is a number": (lambda t: t.assign(member=3), "'member'"),
        "a date is a text": (lambda t: t.assign(since="soon"), "'since'"),
        "a date is a number": (lambda t: t.assign(since=5), "'since'"),
        "a class is unseen": (lambda t: t.assign(sick="perhaps"), "perhaps"),
        "the label is missing": (lambda t: t.drop(columns="sick"), "sick"),
    }
    silent = 0
    for change, named in changes.values():
        try:
            made.rows(change(table), labels=True)
            silent += 1
        except HdcosError as error:
            silent += named not in str(error)
    yield exactly(f"of {len(changes)} tables that do not fit ({', '.join(changes)}): not refused by name", silent, 0)


def _prove_speed(seed: int) -> Iterator[Line]:
    """Seconds of the processor, in turns: what else the machine does counts for neither."""
    table = random_table(np.random.default_rng(seed), ROWS)
    columns = declared()
    turns = [
        (_seconds(lambda: Preparation.fit(table, columns).apply(table)), _seconds(lambda: _scikit_learn(table)))
        for _ in range(TURNS)
    ]
    ours, theirs = map(median, zip(*turns, strict=True))
    what = f"{ROWS:,} rows of 7 columns, fitted and prepared: processor time over scikit-learn's"
    yield at_most(f"{what}, {TURNS} turns", ours / theirs, 3.0)


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
