"""`hdcos train`: from files to a trained model, and kind errors before anything starts."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from hdcos import data, nn
from hdcos.cli import main
from hdcos.cli.train import read_config
from hdcos.party.checkpoint import Checkpoints

CONFIG = """
[data]
train = ["north.csv", "south.csv"]
test = "test.npz"
label = "digit"
test_label = "y"

[model]
sizes = [64, 64, 10]
seed = 3

[training]
epochs = 2
batch_size = 100
lr = 1.0
momentum = 0.5
schedule = "cosine"
seed = 1
checkpoint = "kept"
checkpoint_every = 5

[output]
model = "trained.safetensors"
"""

REGRESSION = """
[data]
train = "rows.csv"
test = "rows.csv"
label = "price"
[model]
sizes = [3, 32, 1]
structure = "dense"
[training]
epochs = 8
batch_size = 20
lr = 0.1
loss = "squared"
seed = 1
[output]
model = "trained.safetensors"
"""


@pytest.fixture
def folder(tmp_path):
    x, y = data.digits("train")
    header = ",".join([*(f"pixel{i}" for i in range(64)), "digit"])
    for name, rows in (("north", slice(0, 300)), ("south", slice(300, 700))):
        table = np.column_stack([x[rows], y[rows]])
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header=header, comments="", fmt="%.6g")
    images, labels = data.digits("test")
    np.savez(tmp_path / "test.npz", x=images, y=labels)
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["train", *map(str, arguments)])


def test_files_of_two_owners_become_a_model_and_a_report(folder) -> None:
    result = run(folder / "config.toml", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert [epoch["epoch"] for epoch in report["epochs"]] == [1, 2]
    trained = nn.load(folder / "trained.safetensors")
    images, labels = data.digits("test")
    assert (trained(images).argmax(1) == labels).mean() == pytest.approx(report["epochs"][-1]["accuracy"], abs=0.01)
    again = run(folder / "config.toml", "--resume")
    assert again.exit_code == 0, again.output
    assert "saved as trained.safetensors" in again.output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epochs = 2", "epoch = 2", "does not know ['epoch']"),
        ("epochs = 2", "", "lacks `epochs`"),
        ("[output]", "[out]", "unknown sections"),
        ("sizes = [64, 64, 10]", "", "exactly one"),
        ("sizes = [64, 64, 10]", 'ready = "vgg"', "no ready model"),
        ("sizes = [64, 64, 10]", "sizes = [60, 64, 10]", "the network takes 60"),
        ('schedule = "cosine"', 'schedule = "steps"', "no schedule"),
        ('label = "digit"', 'label = "class"', "no column 'class'"),
        ("north.csv", "west.csv", "DataMissing"),
        ("epochs = 2", "epochs = [", "not a TOML file"),
        ("lr = 1.0", "lr = -1.0", "positive"),
        ("lr = 1.0", 'lr = "1.0"', "`lr` in [training] is a str"),
        ("sizes = [64, 64, 10]", "sizes = 5", "`sizes` in [model] is a int"),
        ("seed = 1", "seed = -1", "seed"),
        ("seed = 1", "seed = true", "`seed` in [training] is a bool, not a int"),
        ("seed = 1", "flip = 1", "`flip` in [training] is a int, not a bool"),
        ("seed = 1", "flip = true", "for images"),
        ("seed = 1", "average = 3", "a run of 2 epochs has no 3"),
    ],
)
def test_mistakes_are_named(folder, old, new, words) -> None:
    (folder / "config.toml").write_text(CONFIG.replace(old, new, 1))
    result = run(folder / "config.toml")
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output


def test_options_may_be_true_or_false(folder) -> None:
    path = folder / "config.toml"
    path.write_text(CONFIG.replace("seed = 1", "scale_diagonals = false\nflip = true\nshift = 2\nwarm_up = 1"))
    options = read_config(path)["training"]
    assert (options["scale_diagonals"], options["flip"]) == (False, True)
    assert (options["shift"], options["warm_up"]) == (2, 1)


def test_a_finished_configuration_is_run_again_and_its_checkpoints_are_kept(folder) -> None:
    (folder / "config.toml").write_text(CONFIG.replace("epochs = 2", "epochs = 1"))
    first = run(folder / "config.toml")
    assert first.exit_code == 0, first.output
    before = sorted(path.name for path in (folder / "kept" / "party0").iterdir())
    second = run(folder / "config.toml", "--json")
    assert second.exit_code == 0, second.output
    assert len(json.loads(second.stdout)["epochs"]) == 1
    assert f"Note: the checkpoints of the last run are now in {folder / 'kept.1'}" in second.stderr.splitlines()
    assert sorted(path.name for path in (folder / "kept.1" / "party0").iterdir()) == before
    last = sorted((folder / "kept" / "party0").glob("step-*"))[-1]
    last.unlink()
    (folder / "kept" / "party1" / last.name).unlink()  # as if it had been cut off
    refused = run(folder / "config.toml")
    assert refused.exit_code == 1
    assert "ended at step 5 of 7" in refused.stderr
    assert "--resume" in refused.stderr
    assert run(folder / "config.toml", "--new").exit_code == 0
    assert (folder / "kept.2").is_dir()


def test_a_run_that_is_writing_is_not_set_aside(folder) -> None:
    words = {"w": np.zeros(1, np.uint64)}
    parts = [Checkpoints.of(folder / "kept", rank) for rank in (0, 1)]
    for part in parts:
        part.lock()
        part.save(7, words, {"run": "r", "attempt": 1, "settings": {"total_steps": 7}})
    result = run(folder / "config.toml")
    for part in parts:
        part.unlock()
    assert result.exit_code == 1
    assert "another run is writing" in result.stderr
    assert (folder / "kept").is_dir()


def test_numbers_are_learned_from_a_file_by_the_squared_loss(folder) -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (400, 3))
    y = x @ [1.5, -2.0, 0.5] + 0.25
    table = np.column_stack([x, y])
    np.savetxt(folder / "rows.csv", table, delimiter=",", header="a,b,c,price", comments="", fmt="%.6g")
    (folder / "config.toml").write_text(REGRESSION)
    result = run(folder / "config.toml", "--json")
    assert result.exit_code == 0, result.output
    epochs = json.loads(result.stdout)["epochs"]
    assert epochs[-1]["accuracy"] is None, "numbers are no classes"
    trained = nn.load(folder / "trained.safetensors")
    assert np.mean((trained(x)[:, 0] - y) ** 2) < 0.1 * y.var()
    assert epochs[-1]["loss"] == pytest.approx(0.5 * np.mean((trained(x)[:, 0] - y) ** 2), abs=0.01)
    (folder / "config.toml").write_text(REGRESSION.replace('loss = "squared"', ""))
    refused = run(folder / "config.toml")
    assert refused.exit_code == 1
    assert "loss='squared'" in refused.stderr


def test_nothing_is_resumed_without_a_folder(folder) -> None:
    (folder / "config.toml").write_text(CONFIG.replace('checkpoint = "kept"\n', ""))
    result = run(folder / "config.toml", "--resume")
    assert result.exit_code == 1
    assert "names no checkpoint folder" in result.output


def test_a_schedule_that_falls_to_nothing_is_noted_once_and_trains_to_its_end(tmp_path) -> None:
    """The README's configuration for forty epochs: its last rates are below what the arithmetic can take."""
    rows = np.random.default_rng(0).uniform(-1, 1, (128, 30))
    table = np.column_stack([rows, rows[:, 0] > 0])
    header = ",".join([*(f"x{number}" for number in range(30)), "sick"])
    np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header=header, comments="")
    (tmp_path / "config.toml").write_text(
        '[data]\ntrain = "rows.csv"\nlabel = "sick"\n[model]\nsizes = [30, 64, 64, 1]\n[training]\nepochs = 40\n'
        'batch_size = 128\nlr = 0.05\nmomentum = 0.9\nschedule = "cosine"\nwatch = 32\n'
    )
    result = run(tmp_path / "config.toml")
    assert result.exit_code == 0, result.output
    assert result.output.count("Note: the learning rate falls to 7.7e-05 and is kept at 0.00015") == 1
    assert "accuracy of training rows" in result.output


def test_rows_are_weighed_and_the_best_epoch_is_kept(folder) -> None:
    """A weight of 0 takes a class out of what is learned, be it that of its rows or that of the class."""
    x, y = data.digits("train")
    header = ",".join([*(f"pixel{i}" for i in range(64)), "counts", "digit"])
    table = np.column_stack([x[:400], (y[:400] != 3).astype(float), y[:400]])
    np.savetxt(folder / "rows.csv", table, delimiter=",", header=header, comments="", fmt="%.6g")
    path, weight = folder / "config.toml", 'weight = "counts"\n[model]'
    text = (
        CONFIG.replace('["north.csv", "south.csv"]', '"rows.csv"').replace("[model]", weight).replace("= 100", "= 20")
    )
    more = "patience = 2\nclass_weight = [1, 1, 1, 1, 1, 0, 1, 1, 1, 1]\n"
    path.write_text(text.replace('checkpoint = "kept"\ncheckpoint_every = 5\n', more))
    result = run(path, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["best_epoch"] == min(report["epochs"], key=lambda epoch: epoch["loss"])["epoch"]
    images, labels = data.digits("test")
    guessed = nn.load(folder / "trained.safetensors")(images).argmax(1)
    assert not np.isin(guessed, [3, 5]).any()
    assert (guessed == labels)[~np.isin(labels, [3, 5])].mean() > 0.6
    path.write_text(CONFIG.replace("[model]", weight))
    assert "no column 'counts' for `weight`" in run(path).output.replace("\n", " ")
    path.write_text(CONFIG.replace("[model]", 'scale = "wide"\n[model]'))
    assert "not by 'wide'" in run(path).output.replace("\n", " ")
