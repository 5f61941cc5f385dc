"""`hdcos train CONFIG.toml`: private training, from files on this machine or on data sets that owners uploaded.

[data]       train (a file, or several: rows of several owners), label, features (of NPZ files), weight (a column: how
             much each row counts), scale ("standard": columns of mean 0 and size 1, and with the squared loss labels
             too; the saved model takes rows as they are);
             or, on a cluster, rows (data sets of several owners with the same columns) or columns (data sets of several
             owners with the same rows, one of them with labels): names, or OWNER/NAME;
             test (a file of your own rows, which nobody else sees), or validation (the part of the rows of `train`,
             such as 0.2, that is kept out of training for that)
[columns]    what the columns of files of `train` are (`hdcos.tables.columns`), with [cells]: features and labels are
             made of them by all rows, and the preparation is written beside the configuration
[model]      ready (a ready model) or sizes (of an MLP), with activation, structure, seed; or file
[training]   epochs, batch_size, lr, loss, momentum, weight_decay, seed, scale_diagonals (false: at the common rate),
             schedule ("constant", "cosine", "linear"), warm_up (epochs in which the rate rises), flip (true: some of
             the images are mirrored), shift (pixels by which they move), average (epochs whose mean the weights are),
             shuffle ("rows" or "blocks"), patience (epochs without a better one on the test rows after which training
             stops; the model is that of the best), class_weight ("balanced", or a number for each class),
             checkpoint (a folder), checkpoint_every, watch (how many of your rows are predicted after each epoch, 256)
[output]     name: what the parties of a cluster call the trained model, which they keep; without it they keep nothing
             model (a file): the trained model is revealed to you and saved there

Security  this command sees the files that it is given and nothing of data sets that others uploaded. It learns what the
          parties say of a job: steps, times, costs, and predictions for its own test rows.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import click
import numpy as np

from hdcos import data, nn
from hdcos.checks import check_name, check_owned, split_owned
from hdcos.cli import common
from hdcos.cli.columns import keep_preparation, preparation_of
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.connect import connect
from hdcos.cluster.local import local
from hdcos.cluster.model import PrivateModel
from hdcos.data import read_table
from hdcos.errors import CheckpointMismatch, InputError, ModelError, PolicyRefused
from hdcos.files import read_toml
from hdcos.nn.models import READY
from hdcos.nn.prepared import Prepared
from hdcos.party.checkpoint import last_run, set_aside
from hdcos.suggest.scaling import NONE, Scaling, check_scalable
from hdcos.tables.columns import Columns
from hdcos.tables.preparation import Preparation, PreparedRows

WHOLE, NUMBER, TEXT = (int,), (int, float), (str,)
KEYS: dict[str, dict[str, tuple[type, ...]]] = {
    "data": {
        **{"train": (str, list), "rows": (str, list), "columns": (str, list), "validation": (float,)},
        **{"label": (str, int), "test_label": (str, int)},
        **dict.fromkeys(("test", "features", "weight", "scale"), TEXT),
    },
    "model": {"ready": TEXT, "sizes": (list,), "file": TEXT, "activation": TEXT, "structure": TEXT, "seed": WHOLE},
    "training": dict.fromkeys(
        ("epochs", "batch_size", "seed", "checkpoint_every", "watch", "warm_up", "shift", "average", "patience"), WHOLE
    )
    | {"class_weight": (str, list)}
    | dict.fromkeys(("lr", "momentum", "weight_decay"), NUMBER)
    | dict.fromkeys(("loss", "schedule", "shuffle", "checkpoint"), TEXT)
    | dict.fromkeys(("scale_diagonals", "flip"), (bool,)),
    "output": {"model": TEXT, "name": TEXT},
}
SOURCES = ("train", "rows", "columns")


@click.command(short_help="Train a network on shares of your data.")
@click.argument("config", type=common.FILE)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint that both parties hold.")
@click.option("--new", is_flag=True, help="Begin another run; the checkpoints of one that was cut off are set aside.")
@click.option(
    "--cluster",
    "path",
    help="The cluster file of a cluster to train on; else $HDCOS_CLUSTER for data sets that are there, and three "
    "processes here for files.",
)
@common.token_option
@common.json_option
def train(config: Path, resume: bool, new: bool, path: str | None, token_file: Path | None, as_json: bool) -> None:
    """Train a network on shares of the data that CONFIG names: files, on this machine or on a cluster, or data sets
    that their owners have uploaded to a cluster.

    A configuration whose run has ended is run again from the beginning.
    """
    if resume and (new or path):
        raise click.UsageError(
            "jobs on a cluster go on by themselves" if path else "--resume goes on with a run, --new begins another"
        )
    settings = read_config(config)
    folder, given, training = config.parent, settings["data"], dict(settings["training"])
    path = path or (None if "train" in given else os.environ.get("HDCOS_CLUSTER"))
    _check_place(config, settings, path)
    model = build_model(settings["model"], folder)
    x: Any = named_data(given)
    y: Any = None
    weights, scaling, prepared = None, None, None
    if "train" in given:
        prepared = _prepare(config, settings["columns"], given)
        model, x, y, weights = _read_files(model, folder, given, prepared)
        if given.get("scale", NONE) != NONE:
            check_scalable(model)
            regression = training.get("loss") == "squared" and model.output_shape == (1,)
            scaling = Scaling.of(given["scale"], x, y, regression)
            x, y = scaling.rows(x), scaling.targets(y)
    validation = None
    if "validation" in given:
        left, out = _hold_out(config, len(x), given["validation"], training.get("seed", 0))
        validation, x, y = (x[out], y[out]), x[left], y[left]
        weights = None if weights is None else weights[left]
    if "test" in given:
        test = _read(folder / given["test"], given.get("test_label", given.get("label")), given, prepared)
        if "weight" in given and given["weight"] in (test.columns or ()):
            test, _ = _take_weights(given["test"], test, given["weight"])
        validation = _rows(model, given["test"], test)
        if scaling is not None:
            validation = scaling.rows(validation[0]), scaling.targets(validation[1])
    kept = training.pop("checkpoint", None)
    if kept and path:
        raise InputError(
            f"{config}: the parties of a cluster keep checkpoints by themselves: leave `checkpoint` in [training] out"
        )
    where = {"resume" if resume else "checkpoint": folder / kept} if kept else {}
    if resume and not kept:
        raise InputError(f"{config}: nothing can be resumed: [training] names no checkpoint folder")
    saved, name = settings["output"].get("model"), settings["output"].get("name")
    if saved:
        common.check_output(folder / saved, config, *_files_read(given, folder))
    if where and not resume:
        _make_way(folder / kept, config, new)
    common.if_interrupted(lambda: _next_steps(config, folder / kept if where else None, path))
    with local() if path is None else connect(path, common.read_secret(token_file) if token_file else None) as cluster:
        if isinstance(x, tuple):
            _note_order(cluster, x)
        known: dict[str, Any] = {"validation": validation, "sample_weight": weights, "name": name}
        private = cluster.fit(model, x, y, **known, **where, **training)
        if saved:
            _save(private, folder / saved, path is not None and name is None, scaling)
        if path is not None and name is None:  # nobody named it, so nobody would find it
            private.delete()
    _show(private, saved, name, as_json)
    if path is not None and name is None and not as_json:
        click.echo("the parties keep nothing of it: `name` in [output] says what they call a model that they keep")
    if name is not None and scaling is not None and not as_json:
        click.echo("the parties' model takes scaled rows: the saved one takes them as they are")


def _check_place(config: Path, settings: dict[str, dict[str, Any]], path: str | None) -> None:
    """Whether what is named can be there: data sets and models by name are at parties of a cluster."""
    if path is None and "train" not in settings["data"]:
        raise InputError(
            f"{config}: `rows` and `columns` in [data] are data sets that their owners uploaded to a cluster: say "
            f"which, with --cluster or HDCOS_CLUSTER. `train` has files"
        )
    name = settings["output"].get("name")
    if name is None:
        return
    if path is None:
        raise InputError(
            f"{config}: `name` in [output] is what the parties of a cluster call the model: train there with "
            f"--cluster, or have it revealed and saved with `model`"
        )
    with common.about(f"{config}: `name` in [output]"):
        check_name(name, "model name")


def _read_files(
    model: nn.Network, folder: Path, given: dict[str, Any], prepared: Preparation | None
) -> tuple[nn.Network, np.ndarray, np.ndarray, np.ndarray | None]:
    """The network with the names of the files' columns; their rows, labels and weights, if they have some."""
    parts = [(name, _read(folder / name, given.get("label"), given, prepared)) for name in _files(given)]
    weights = None
    if "weight" in given:
        weighed = [_take_weights(name, table, given["weight"]) for name, table in parts]
        parts = [(name, table) for (name, _), (table, _) in zip(parts, weighed, strict=True)]
        weights = np.concatenate([column for _, column in weighed])
    for _, table in parts:  # the first file that has names says which
        model = model.remembering(table.columns)
    if prepared is not None:
        model = model.with_prepared([Prepared((), tuple(prepared.names), prepared.digest)])
    rows, labels = zip(*(_rows(model, name, table) for name, table in parts), strict=True)
    return model, np.concatenate(rows), np.concatenate(labels), weights


def _files(given: dict[str, Any]) -> list[str]:
    return [given["train"]] if isinstance(given["train"], str) else list(given["train"])


def _files_read(given: dict[str, Any], folder: Path) -> list[Path]:
    """The tables that a configuration names."""
    names = [*(_files(given) if "train" in given else []), *([given["test"]] if "test" in given else [])]
    return [folder / name for name in names]


def _hold_out(config: Path, count: int, part: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows to train on, and those that show how well it goes: drawn by the seed, here, where all of them are."""
    rows = round(part * count)
    if not 0 < rows < count:
        raise InputError(f"{config}: `validation` in [data] keeps {rows} of {count} rows out: take some, and not all")
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[rows:]), np.sort(order[:rows])


def named_data(given: dict[str, Any]) -> list[str] | tuple[str, ...]:
    """The data sets that [data] names, as `fit` takes them: a list of rows, or a tuple of columns."""
    names = given.get("rows") or given.get("columns") or []
    names = [names] if isinstance(names, str) else names
    return tuple(names) if "columns" in given else list(names)


def _note_order(cluster: Cluster, names: tuple[str, ...]) -> None:
    """Say that rows of several owners are put side by side as they come, where nobody has joined them."""
    joined = {item["name"] for item in cluster.datasets() if item.get("join")}
    if len(names) > 1 and not any(split_owned(name)[1] in joined for name in names):
        click.echo(
            f"Note: the rows of {' and '.join(names)} are put side by side in the order in which they were uploaded. "
            f"Nobody has checked that it is the same",
            err=True,
        )


def _save(private: PrivateModel, place: Path, passing: bool, scaling: Scaling | None) -> None:
    """Have the model revealed. One that nobody named is kept for as long as its operators need to decide."""
    try:
        trained = private.reveal()
        (trained if scaling is None else scaling.unscaled(trained)).save(place)
    except PolicyRefused as error:
        if not passing:
            raise
        then = f"`hdcos reveal {private.name} --output {place}` with that request, then `hdcos forget {private.name}`"
        raise PolicyRefused(f"{error}. The parties keep the model as {private.name} until then: {then}") from error


def _make_way(kept: Path, config: Path, new: bool) -> None:
    """Set aside what a run that has ended left, or any if asked: a run has its checkpoints for itself."""
    found = last_run(kept)
    if found is None:
        return
    done, steps = found
    if done < steps and not new:
        raise CheckpointMismatch(
            f"{kept} holds a run that ended at step {done} of {steps}: go on with `hdcos train {config} --resume`, or "
            f"begin another with --new, which sets it aside"
        )
    click.echo(f"Note: the checkpoints of the last run are now in {set_aside(kept)}", err=True)


def _next_steps(config: Path, kept: Path | None, cluster: str | None) -> str:
    """What to do after Ctrl-C."""
    if cluster:
        return (
            "A job that was begun goes on at the parties, who remove the rows that came with it when it ends: "
            "`hdcos jobs` shows it, --cancel ends it, and `hdcos forget` removes the model that it made."
        )
    if kept is None:
        return "Nothing of the run is kept: a `checkpoint` folder in [training] makes that --resume can go on with it."
    if last_run(kept) is None:
        return f"No checkpoint was written yet: begin again with `hdcos train {config}`."
    return f"Go on from the last checkpoint with `hdcos train {config} --resume`."


def _take_weights(name: str, table: data.Table | PreparedRows, weight: str) -> tuple[data.Table, np.ndarray]:
    """A file's rows without the column of their weights, and that."""
    if table.columns is None or weight not in table.columns:
        raise InputError(f"{name} has no column {weight!r} for `weight` in [data]; it has {list(table.columns or ())}")
    place = table.columns.index(weight)
    others = tuple(column for column in table.columns if column != weight)
    return data.Table(np.delete(table.x, place, axis=1), table.y, others), table.x[:, place]


def _prepare(config: Path, declared: dict[str, Any], given: dict[str, Any]) -> Preparation | None:
    """What makes features of all files, if the configuration declares their columns."""
    if not declared:
        return None
    if clashing := {"label", "test_label", "features", "weight", "scale"} & set(given):
        raise InputError(f"{config}: [columns] says what columns are: leave {sorted(clashing)} out of [data]")
    columns = Columns.from_record(declared)
    if columns.label is None:
        raise InputError(f"{config}: no column in [columns] is the label, and training needs one")
    files = [config.parent / name for name in _files(given)]
    return keep_preparation(Preparation.fit(files, columns), preparation_of(config))


def _read(
    path: Path, label: str | int | None, given: dict[str, Any], prepared: Preparation | None
) -> data.Table | PreparedRows:
    if prepared is not None:
        return prepared.rows(path, labels=True)
    return read_table(path, label, given.get("features"))


def _rows(model: nn.Network, name: str, table: data.Table | PreparedRows) -> tuple[np.ndarray, np.ndarray]:
    """A file's rows as the network takes them, columns by their names, and its labels, which it must have."""
    if table.y is None:
        raise InputError(f"{name} has no labels: `label` in [data] says where they are")
    width, wanted = math.prod(table.x.shape[1:]), math.prod(model.input_shape)
    with common.about(name):
        if width != wanted and (table.columns is None or model.feature_names is None):
            raise InputError(f"the file has {width} features, the network takes {wanted}")
        return model.rows(table), table.y


def read_config(path: Path) -> dict[str, dict[str, Any]]:
    """The sections of a configuration; InputError names what does not belong there."""
    record = read_toml(path, "a configuration of training")
    declared: dict[str, Any] = {name: record.pop(name) for name in ("columns", "cells") if name in record}
    sections: dict[str, dict[str, Any]] = {name: record.pop(name, {}) for name in KEYS}
    if record:
        raise InputError(
            f"{path}: unknown sections {sorted(record)}; there are {', '.join([*KEYS, 'columns', 'cells'])}"
        )
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise InputError(f"{path}: [{name}] is a table, written once")
        unknown = set(section) - set(KEYS[name])
        if unknown:
            raise InputError(f"{path}: [{name}] does not know {sorted(unknown)}; it knows {sorted(KEYS[name])}")
        for key, value in section.items():
            if not isinstance(value, KEYS[name][key]) or (isinstance(value, bool) and bool not in KEYS[name][key]):
                wanted = " or ".join(kind.__name__ for kind in KEYS[name][key])
                raise InputError(f"{path}: `{key}` in [{name}] is a {type(value).__name__}, not a {wanted}")
    given = [key for key in SOURCES if key in sections["data"]]
    if not given:
        raise InputError(f"{path}: [data] lacks `train` (files), or `rows` or `columns` (data sets on a cluster)")
    if len(given) > 1:
        raise InputError(f"{path}: [data] takes one of `train`, `rows` and `columns`, not {' and '.join(given)}")
    for key in ("epochs", "batch_size", "lr"):
        if key not in sections["training"]:
            raise InputError(f"{path}: [training] lacks `{key}`")
    names, what = sections["data"][given[0]], "file" if given == ["train"] else "data set"
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: `{given[0]}` in [data] is the name of a {what}, or a list of names, got {names!r}")
    if "test" in sections["data"] and "validation" in sections["data"]:
        raise InputError(f"{path}: [data] takes `test` or `validation`, not both")
    if what == "data set":
        _check_named(path, sections["data"], [names] if isinstance(names, str) else names)
    if declared and what == "data set":
        raise InputError(f"{path}: [columns] is about files: owners prepare what they upload themselves")
    return {**sections, "columns": declared}


def _check_named(path: Path, given: dict[str, Any], names: list[str]) -> None:
    """Data sets by name, each once; labels were uploaded with them."""
    for name in names:
        with common.about(path):
            check_owned(name)
    if len(set(names)) != len(names):
        raise InputError(f"{path}: a data set is named twice in [data]")
    if "validation" in given:
        raise InputError(
            f"{path}: `validation` in [data] is a part of files. Whether rows that others uploaded are predicted well "
            f"is for their owners to say: show rows of your own, with `test`"
        )
    if "test" not in given and (stray := [key for key in ("label", "test_label", "features") if key in given]):
        raise InputError(f"{path}: `{stray[0]}` in [data] is about files: data sets were uploaded with their labels")
    if unused := [key for key in ("weight", "scale") if key in given]:
        raise InputError(f"{path}: `{unused[0]}` in [data] is about files: owners prepare what they upload themselves")


def build_model(section: dict[str, Any], folder: Path) -> nn.Network:
    """A ready model, an MLP of given sizes, or a saved one."""
    kinds = [key for key in ("ready", "sizes", "file") if key in section]
    if len(kinds) != 1:
        raise InputError("[model] takes exactly one of `ready`, `sizes` and `file`")
    options = {key: section[key] for key in ("activation", "structure", "seed") if key in section}
    if kinds == ["file"]:
        return nn.load(folder / section["file"])
    if kinds == ["ready"] and section["ready"] not in READY:
        raise ModelError(f"no ready model is called {section['ready']!r}: choose from {', '.join(READY)}")
    try:
        return nn.models.mlp(section["sizes"], **options) if "sizes" in section else READY[section["ready"]](**options)
    except ModelError as error:
        raise ModelError(f"[model]: {error}") from error


def _show(private: Any, saved: str | None, name: str | None, as_json: bool) -> None:
    online, offline = private.cost.online, private.cost.offline
    if as_json:
        epochs = [
            {"epoch": e.number, "seconds": e.seconds, "loss": e.loss, "accuracy": e.accuracy, "of": e.watched}
            for e in private.history
        ]
        cost = {"rounds": online.rounds, "bytes_sent": online.bytes_sent[0], "material_bytes": sum(offline.bytes_sent)}
        click.echo(
            json.dumps({"epochs": epochs, "best_epoch": private.best_epoch, **cost, "model": saved, "name": name})
        )
        return
    watched = next((epoch.watched for epoch in private.history if epoch.watched), "your rows")
    table = common.new_table("epoch", "seconds", "loss", f"accuracy of {watched}", texts=0)
    for epoch in private.history:
        loss = "-" if epoch.loss is None else f"{epoch.loss:.4g}"
        accuracy = "-" if epoch.accuracy is None else f"{epoch.accuracy:.2%}"
        table.add_row(str(epoch.number), f"{epoch.seconds:.1f}", loss, accuracy)
    common.show(table)
    if private.best_epoch is not None:
        common.say(f"the model is that of epoch {private.best_epoch}, which did best on your {watched}")
    common.say(
        f"{online.rounds:,} rounds, {online.bytes_sent[0] / 1e6:,.1f} MB each way between the parties, "
        f"{sum(offline.bytes_sent) / 1e6:,.1f} MB of material"
    )
    if saved:
        common.say(f"the trained model was revealed to you and saved as {saved}")
    if name:
        common.say(f"the parties keep the trained model as {name}")
