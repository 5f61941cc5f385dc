"""`hdcos train CONFIG.toml`: private training on this machine, from files.

[data]       train (a file, or several: rows of several owners), label; test (a file), features (of NPZ files)
[columns]    what the columns of these files are (`hdcos.tables.columns`), with [cells]: features and labels are made of
             them by all rows, and the preparation is written beside the configuration
[model]      ready (a ready model) or sizes (of an MLP), with activation, structure, seed; or file
[training]   epochs, batch_size, lr, loss, momentum, weight_decay, seed, scale_diagonals (false: at the common rate),
             schedule ("constant", "cosine", "linear"), warm_up (epochs in which the rate rises), flip (true: some of
             the images are mirrored), shift (pixels by which they move), average (epochs whose mean the weights are),
             shuffle ("rows" or "blocks"),
             checkpoint (a folder), checkpoint_every, watch (how many of your rows are predicted after each epoch, 256)
[output]     model (a file): the trained model is revealed to you and saved there
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click
import numpy as np

from hdcos import data, nn
from hdcos.cli import common
from hdcos.cli.columns import keep_preparation, preparation_of
from hdcos.cluster.connect import connect
from hdcos.cluster.local import local
from hdcos.data import read_table
from hdcos.errors import CheckpointMismatch, InputError, ModelError
from hdcos.files import read_toml
from hdcos.nn.models import READY
from hdcos.nn.prepared import Prepared
from hdcos.party.checkpoint import last_run, set_aside
from hdcos.tables.columns import Columns
from hdcos.tables.preparation import Preparation, PreparedRows

WHOLE, NUMBER, TEXT = (int,), (int, float), (str,)
KEYS: dict[str, dict[str, tuple[type, ...]]] = {
    "data": {"train": (str, list), "test": TEXT, "label": (str, int), "test_label": (str, int), "features": TEXT},
    "model": {"ready": TEXT, "sizes": (list,), "file": TEXT, "activation": TEXT, "structure": TEXT, "seed": WHOLE},
    "training": dict.fromkeys(
        ("epochs", "batch_size", "seed", "checkpoint_every", "watch", "warm_up", "shift", "average"), WHOLE
    )
    | dict.fromkeys(("lr", "momentum", "weight_decay"), NUMBER)
    | dict.fromkeys(("loss", "schedule", "shuffle", "checkpoint"), TEXT)
    | dict.fromkeys(("scale_diagonals", "flip"), (bool,)),
    "output": {"model": TEXT},
}


@click.command(short_help="Train a network on shares of your data.")
@click.argument("config", type=common.FILE)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint that both parties hold.")
@click.option("--new", is_flag=True, help="Begin another run; the checkpoints of one that was cut off are set aside.")
@click.option("--cluster", "path", help="The cluster file of a cluster to train on; else three processes here.")
@common.token_option
@common.json_option
def train(config: Path, resume: bool, new: bool, path: str | None, token_file: Path | None, as_json: bool) -> None:
    """Train a network on shares of the data that CONFIG names, on this machine or on a cluster.

    A configuration whose run has ended is run again from the beginning.
    """
    if resume and (new or path):
        raise click.UsageError(
            "jobs on a cluster go on by themselves" if path else "--resume goes on with a run, --new begins another"
        )
    settings = read_config(config)
    folder, given, training = config.parent, settings["data"], dict(settings["training"])
    model = build_model(settings["model"], folder)
    names = [given["train"]] if isinstance(given["train"], str) else list(given["train"])
    prepared = _prepare(config, names, settings["columns"], given)
    parts = [(name, _read(folder / name, given.get("label"), given, prepared)) for name in names]
    for _, table in parts:  # the first file that has names says which
        model = model.remembering(table.columns)
    if prepared is not None:
        model = model.with_prepared([Prepared((), tuple(prepared.names), prepared.digest)])
    rows, labels = zip(*(_rows(model, name, table) for name, table in parts), strict=True)
    x, y = np.concatenate(rows), np.concatenate(labels)
    validation = None
    if "test" in given:
        test = _read(folder / given["test"], given.get("test_label", given.get("label")), given, prepared)
        validation = _rows(model, given["test"], test)
    kept = training.pop("checkpoint", None)
    if kept and path:
        raise InputError(
            f"{config}: the parties of a cluster keep checkpoints by themselves: leave `checkpoint` in [training] out"
        )
    where = {"resume" if resume else "checkpoint": folder / kept} if kept else {}
    if resume and not kept:
        raise InputError(f"{config}: nothing can be resumed: [training] names no checkpoint folder")
    saved = settings["output"].get("model")
    if saved:
        common.check_output(folder / saved)
    if where and not resume:
        _make_way(folder / kept, config, new)
    common.if_interrupted(lambda: _next_steps(config, folder / kept if where else None, path))
    with local() if path is None else connect(path, common.read_secret(token_file) if token_file else None) as cluster:
        private = cluster.fit(model, x, y, validation=validation, **where, **training)
        if saved:
            private.reveal().save(folder / saved)
    _show(private, saved, as_json)


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
        return "A job that was begun goes on at the parties: `hdcos jobs` shows it, --cancel ends it."
    if kept is None:
        return "Nothing of the run is kept: a `checkpoint` folder in [training] makes that --resume can go on with it."
    if last_run(kept) is None:
        return f"No checkpoint was written yet: begin again with `hdcos train {config}`."
    return f"Go on from the last checkpoint with `hdcos train {config} --resume`."


def _prepare(config: Path, names: list[str], declared: dict[str, Any], given: dict[str, Any]) -> Preparation | None:
    """What makes features of all files, if the configuration declares their columns."""
    if not declared:
        return None
    if clashing := {"label", "test_label", "features"} & set(given):
        raise InputError(f"{config}: [columns] says which column is the label: leave {sorted(clashing)} out of [data]")
    columns = Columns.from_record(declared)
    if columns.label is None:
        raise InputError(f"{config}: no column in [columns] is the label, and training needs one")
    return keep_preparation(Preparation.fit([config.parent / name for name in names], columns), preparation_of(config))


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
    for name, key in (("data", "train"), ("training", "epochs"), ("training", "batch_size"), ("training", "lr")):
        if key not in sections[name]:
            raise InputError(f"{path}: [{name}] lacks `{key}`")
    names = sections["data"]["train"]
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: `train` in [data] is the name of a file, or a list of names, got {names!r}")
    return {**sections, "columns": declared}


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


def _show(private: Any, saved: str | None, as_json: bool) -> None:
    online, offline = private.cost.online, private.cost.offline
    if as_json:
        epochs = [
            {"epoch": e.number, "seconds": e.seconds, "loss": e.loss, "accuracy": e.accuracy, "of": e.watched}
            for e in private.history
        ]
        cost = {"rounds": online.rounds, "bytes_sent": online.bytes_sent[0], "material_bytes": sum(offline.bytes_sent)}
        click.echo(json.dumps({"epochs": epochs, **cost, "model": saved}))
        return
    watched = next((epoch.watched for epoch in private.history if epoch.watched), "your rows")
    table = common.new_table("epoch", "seconds", "loss", f"accuracy of {watched}", texts=0)
    for epoch in private.history:
        loss = "-" if epoch.loss is None else f"{epoch.loss:.4g}"
        accuracy = "-" if epoch.accuracy is None else f"{epoch.accuracy:.2%}"
        table.add_row(str(epoch.number), f"{epoch.seconds:.1f}", loss, accuracy)
    common.show(table)
    click.echo(
        f"{online.rounds:,} rounds, {online.bytes_sent[0] / 1e6:,.1f} MB each way between the parties, "
        f"{sum(offline.bytes_sent) / 1e6:,.1f} MB of material"
    )
    if saved:
        click.echo(f"the trained model was revealed to you and saved as {saved}")
