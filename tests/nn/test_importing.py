"""PyTorch modules become networks that compute the same, and what has no counterpart is refused, all of it, by name."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks.random_modules import Generator
from benchmarks.residual import ResNet
from hdcos import nn
from hdcos.errors import HdcosWarning, ModelError
from hdcos.nn.importing.build import APPROXIMATED, EXACT, REFUSED
from hdcos.nn.importing.simplify import CLIENT
from hdcos.protocol import fit
from hdcos.secure.estimate import estimate, total
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private

tnn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::hdcos.errors.HdcosWarning", "ignore:Using padding='same'")


class Calls(tnn.Module):
    """A function as a module, to be traced."""

    def __init__(self, function: Any, **parts: tnn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def trained(module: tnn.Module) -> tnn.Module:
    """With statistics of BatchNorm that are not those of a new module."""
    module.double().eval()
    for part in module.modules():
        if isinstance(part, tnn.BatchNorm1d | tnn.BatchNorm2d):
            part.running_mean.uniform_(-0.3, 0.3)
            part.running_var.uniform_(0.5, 2.0)
            with torch.no_grad():
                part.weight.uniform_(0.5, 1.5)
                part.bias.uniform_(-0.3, 0.3)
    return module


def assert_same(module: tnn.Module, model: nn.Network, x: np.ndarray, tolerance: float = 1e-10) -> None:
    expected = module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(model(x), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("seed", range(30))
def test_a_random_module_computes_the_same_and_its_files_too(seed: int, tmp_path: Path) -> None:
    module, shape = Generator(seed).module()
    x = np.random.default_rng(seed).normal(size=(3, *shape))
    conversion = nn.convert(module, x)
    assert_same(module[0], conversion.model, x)
    conversion.model.save(tmp_path / "model")
    np.testing.assert_array_equal(nn.load(tmp_path / "model")(x), conversion.model(x))


@pytest.mark.parametrize("seed", range(30, 35))
def test_a_random_module_on_shares_is_within_the_bound_that_follows_from_its_bits(seed: int) -> None:
    module, shape = Generator(seed).module()
    x = np.random.default_rng(seed).normal(size=(2, *shape))
    model = nn.from_torch(module, x).calibrate(x).model
    assert (np.abs(simulate_private(model, x) - model(x)) <= error_bound(model, x)).all()


@pytest.mark.parametrize("seed", range(12))
def test_a_random_module_with_a_part_that_is_not_known_is_refused_by_its_name(seed: int) -> None:
    module, shape, name = Generator(seed).spoilt()
    with pytest.raises(ModelError, match=rf"layer \S+ \({name}\) "):
        nn.from_torch(module, shape)


def test_a_residual_network_with_batch_norm_is_imported_exactly() -> None:
    torch.manual_seed(0)
    module = trained(ResNet())
    x = np.random.default_rng(0).normal(size=(2, 1, 28, 28))
    model = nn.from_torch(module, torch.from_numpy(x))
    assert isinstance(model, nn.Graph)
    kinds = [layer.kind for layer in model.layers]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "Conv2d": 21, "ReLU": 19, "Add": 9, "AvgPool2d": 1, "Flatten": 1, "Dense": 1,
    }  # fmt: skip
    assert_same(module, model, x)


# ---- BatchNorm


@pytest.mark.parametrize(
    ("parts", "shape", "kinds"),
    [
        ([tnn.Conv2d(2, 3, 3, padding=1), tnn.BatchNorm2d(3)], (2, 6, 6), ["Conv2d"]),
        ([tnn.Conv2d(2, 3, 3), tnn.AvgPool2d(2), tnn.BatchNorm2d(3)], (2, 6, 6), ["Conv2d", "AvgPool2d"]),
        ([tnn.Linear(4, 3, bias=False), tnn.BatchNorm1d(3)], (4,), ["Dense"]),
        ([tnn.BatchNorm1d(4), tnn.Linear(4, 3)], (4,), ["Dense"]),
        ([tnn.BatchNorm2d(4), tnn.Conv2d(4, 6, 3, groups=2)], (4, 6, 6), ["Conv2d"]),
        ([tnn.BatchNorm2d(2), tnn.Flatten(), tnn.Linear(18, 3)], (2, 3, 3), ["Flatten", "Dense"]),
        ([tnn.BatchNorm2d(2), tnn.Conv2d(2, 3, 3, padding=1)], (2, 6, 6), ["Affine", "Conv2d"]),
        ([tnn.BatchNorm2d(2), tnn.ReLU()], (2, 6, 6), ["Affine", "ReLU"]),
        ([tnn.Linear(4, 4), tnn.BatchNorm1d(4, affine=False), tnn.BatchNorm1d(4)], (4,), ["Dense"]),
    ],
)  # fmt: skip
def test_batch_norm_is_folded_before_or_behind_or_stays(parts, shape, kinds) -> None:
    torch.manual_seed(1)
    module = tnn.Sequential(*parts)
    for part in parts:
        if isinstance(part, tnn.BatchNorm1d) and not part.affine:
            part.running_mean.uniform_(-1, 1)
    if all(getattr(part, "affine", True) for part in parts):
        trained(module)
    model = nn.from_torch(module.double(), shape)
    assert [layer.kind for layer in model.layers] == kinds
    assert_same(module.eval(), model, np.random.default_rng(1).normal(size=(3, *shape)), 1e-12)


def test_single_precision_folds_to_a_millionth() -> None:
    torch.manual_seed(2)
    module = trained(tnn.Sequential(tnn.Conv2d(3, 8, 3), tnn.BatchNorm2d(8))).float()
    x = np.random.default_rng(2).normal(size=(2, 3, 8, 8)).astype(np.float32)
    expected = module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(nn.from_torch(module, x)(x), expected, atol=1e-5, rtol=0)
    assert_same(module.double(), nn.from_torch(module, x), x.astype(np.float64), 1e-6)


def test_batch_norm_that_two_layers_read_is_not_folded_into_one_of_them() -> None:
    torch.manual_seed(3)
    module = trained(
        Calls(lambda m, x: m.out(m.bn(m.fc(x)) + torch.tanh(m.fc(x))), fc=tnn.Linear(4, 4), bn=tnn.BatchNorm1d(4),
              out=tnn.Linear(4, 2))
    )  # fmt: skip
    assert_same(module, nn.from_torch(module, (4,)), np.random.default_rng(0).normal(size=(3, 4)))
    shared = trained(Calls(lambda m, x: (lambda y: m.bn(y) + y)(m.fc(x)), fc=tnn.Linear(4, 4), bn=tnn.BatchNorm1d(4)))
    assert_same(shared, nn.from_torch(shared, (4,)), np.random.default_rng(0).normal(size=(3, 4)))


# ---- functions, shapes and constants


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x * 2 - 1, (4,)),
        (lambda x: (1 - x) / 3, (4,)),
        (lambda x: -x + torch.arange(4.0, dtype=torch.float64), (4,)),
        (lambda x: (x - torch.ones(2, 1, 1, dtype=torch.float64)) * 0.5, (2, 4, 4)),
        (lambda x: x @ torch.eye(4, 3, dtype=torch.float64) + 1, (4,)),
        (lambda x: x**2 + x, (4,)),
        (lambda x: torch.cat([x, x.abs(), torch.square(x)], dim=-1), (4,)),
        (lambda x: x + x, (4,)),
        (lambda x: x.unsqueeze(1).squeeze(1).contiguous(), (4,)),
        (lambda x: x.permute(0, 2, 1), (1, 4)),
        (lambda x: functional.adaptive_max_pool2d(x, 2).flatten(1), (2, 6, 6)),
        (lambda x: functional.adaptive_avg_pool2d(x, (2, None)), (2, 6, 2)),
        (lambda x: x.view(x.shape[0], 2, x.size(1) // 2), (8,)),
        (lambda x: functional.dropout(x, training=False) + 1, (4,)),
        (lambda x: functional.hardsigmoid(x) + functional.prelu(x, torch.tensor([0.25], dtype=torch.float64)), (4,)),
    ],
)  # fmt: skip
def test_functions_methods_and_operators_are_read(function, shape) -> None:
    module = Calls(lambda m, x: function(x))
    assert_same(module, nn.from_torch(module, shape), np.random.default_rng(5).normal(size=(3, *shape)))


class Odd(tnn.Linear):
    """A subclass that computes something else, and has an argument that is not needed."""

    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        return -super().forward(x) if not twice else x


def test_a_subclass_is_read_by_what_it_computes() -> None:
    torch.manual_seed(0)
    module = tnn.Sequential(tnn.Linear(4, 4), Odd(4, 4), tnn.ReLU()).double()
    model = nn.from_torch(module)
    assert [layer.kind for layer in model.layers] == ["Dense", "Dense", "ReLU"]
    assert_same(module, model, np.random.default_rng(0).normal(size=(3, 4)))


@pytest.mark.parametrize(
    "convolution",
    [
        tnn.Conv2d(2, 3, (3, 5), padding=(1, 2)),
        tnn.Conv2d(2, 3, (1, 3), padding="same"),
        tnn.Conv2d(2, 3, 4, padding="same"),
        tnn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2),
        tnn.Conv2d(2, 2, 3, dilation=2, groups=2),
        tnn.AvgPool2d((3, 1), stride=1, padding=(1, 0)),
        tnn.Sequential(tnn.ZeroPad2d((0, 1, 0, 1)), tnn.Conv2d(2, 3, 3, stride=2)),
    ],
    ids=repr,
)
def test_convolutions_of_every_kind_are_made_square(convolution) -> None:
    module = tnn.Sequential(convolution, tnn.ReLU()).double()
    model = nn.from_torch(module, (2, 8, 8))
    assert [layer.kind for layer in model.layers] == ["Conv2d", "ReLU"]
    assert_same(module, model, np.random.default_rng(0).normal(size=(3, 2, 8, 8)))


def test_a_program_of_torch_export_is_read() -> None:
    torch.manual_seed(0)
    module = trained(
        tnn.Sequential(
            tnn.Conv2d(1, 4, 3, padding=1), tnn.BatchNorm2d(4), tnn.ReLU(), tnn.MaxPool2d(2), tnn.Flatten(),
            tnn.Dropout(), tnn.Linear(64, 3),
        )
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 8))
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(module, (torch.from_numpy(x),), dynamic_shapes=({0: rows},))
    assert_same(module, nn.from_torch(program, x), x)


def test_parametrised_weights_are_read_as_they_are_and_hooks_are_refused() -> None:
    torch.manual_seed(0)
    module = tnn.Sequential(tnn.utils.parametrizations.weight_norm(tnn.Linear(4, 3))).double()
    assert_same(module, nn.from_torch(module, (4,)), np.ones((2, 4)))
    module[0].register_forward_hook(lambda part, inputs, output: output * 2)
    with pytest.raises(ModelError, match=r"layer 0 \(ParametrizedLinear\) has hooks, which are not traced"):
        nn.from_torch(module, (4,))


def test_the_module_is_left_as_it_was() -> None:
    module = tnn.Sequential(tnn.Linear(4, 4), tnn.BatchNorm1d(4), tnn.Dropout(), Calls(lambda m, x: x + torch.ones(4)))
    module[2].eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    attributes = {name: set(vars(part)) for name, part in module.named_modules()}
    nn.from_torch(module, np.ones((1, 4)))
    assert [part.training for part in module] == [True, True, False, True]
    assert {name: set(vars(part)) for name, part in module.named_modules()} == attributes
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


# ---- what is refused


def test_all_refusals_are_told_at_once_with_remedies() -> None:
    module = tnn.Sequential(
        tnn.Linear(4, 4),
        tnn.LayerNorm(4),
        tnn.ELU(),
        tnn.Linear(4, 4),
        Calls(lambda m, x: x * torch.tanh(x)),
        tnn.ReLU(),
    )
    with pytest.raises(ModelError) as caught:
        nn.from_torch(module, (4,))
    lines = str(caught.value).splitlines()
    assert [line.split(")")[0] for line in lines] == ["layer 1 (LayerNorm", "layer 2 (ELU", "layer mul (mul"]
    assert "BatchNorm" in lines[0]
    assert "LeakyReLU" in lines[1]
    conversion = nn.convert(module, (4,))
    assert [fate.verdict for fate in conversion.report.refused] == [REFUSED] * 3
    assert conversion.report.total is None


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (tnn.Conv2d(2, 2, 3, stride=(1, 2)), r"stride \(1, 2\)"),
        (tnn.Conv2d(2, 2, 3, padding_mode="circular", padding=1), "padding_mode='circular'"),
        (tnn.Conv2d(2, 2, (3, 5)), "kernels of 3 x 5"),
        (tnn.AvgPool2d((2, 3)), r"stride \(2, 3\)"),
        (tnn.AvgPool2d(2, ceil_mode=True), "ceil_mode"),
        (tnn.AvgPool2d(2, divisor_override=3), "divides by 3"),
        (tnn.AvgPool2d(3, 1, 1, count_include_pad=False), "count_include_pad=True"),
        (tnn.MaxPool2d(3, stride=(2, 1)), r"pools windows of 3 x 3 at stride \(2, 1\)"),
        (tnn.MaxPool2d((2, 3)), "pools windows of 2 x 3"),
        (tnn.MaxPool2d(2, padding=(0, 1)), "padding"),
        (tnn.MaxPool2d(2, dilation=2), "dilation 2"),
        (tnn.MaxPool2d(2, ceil_mode=True), "ceil_mode"),
        (tnn.MaxPool2d(2, return_indices=True), "2 results"),
        (tnn.LeakyReLU(1.5), "slope must be a number from -1 to 1"),
        (tnn.PReLU(2), "another slope"),
        (tnn.BatchNorm2d(2, track_running_stats=False), "normalises by the rows of each batch"),
        (tnn.Softplus(threshold=1), "is linear from 1 on"),
        (tnn.AdaptiveAvgPool2d(4), "AdaptiveAvgPool2d"),
    ],
    ids=repr,
)
def test_a_layer_that_is_not_quite_known_says_what_is_not(module: tnn.Module, message: str) -> None:
    part = type(module).__name__
    if part == "PReLU":
        tnn.init.uniform_(module.weight)
    with pytest.raises(ModelError, match=rf"layer 0 \({part}\) .*{message}"):
        nn.from_torch(tnn.Sequential(module), (2, 9, 7))


def branching(m: Any, x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Calls(branching), r"the module cannot be traced .*control flow.*torch\.onnx\.export"),
        (Calls(lambda m, x: (x, x)), "does not return one tensor"),
        (Calls(lambda m, x: torch.ones(2)), "does not return one tensor"),
        (Calls(lambda m, x: x), "computes nothing"),
        (Calls(lambda m, x: x / len(x.unbind(0))), "gives|traced"),
        (Calls(lambda m, x: x * x.size(0)), r"layer mul \(mul\) computes with the number of rows"),
        (Calls(lambda m, x: x - x.mean(0)), r"layer mean \(mean\) gives"),
        (Calls(lambda m, x: x.view(2, 4)), "cannot be run on 3 rows"),
        (Calls(lambda m, x: x.view(-1, 2)), r"\(view\) gives shape \(4, 2\) for 2 rows"),
        (Calls(lambda m, x: x.t()), r"\(t\) gives"),
        (tnn.Linear(5, 2), r"cannot be run on \d rows of shape \(4,\)"),
        (tnn.Sequential(tnn.Flatten(0)), r"layer 0 \(Flatten\) gives"),
        (tnn.Bilinear(4, 4, 2), "takes|cannot be traced|traced"),
        ({"weight": torch.ones(2)}, "a state dict has parameters but no network"),
        (3, "takes a torch.nn.Module, got int"),
    ],
)
def test_what_cannot_be_read_is_a_named_error(module: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        nn.from_torch(module, (4,))


def test_weights_that_are_no_numbers_are_refused_by_name() -> None:
    module = tnn.Sequential(tnn.Linear(4, 4), tnn.ReLU(), tnn.Linear(4, 2))
    with torch.no_grad():
        module[2].bias[1] = torch.nan
    with pytest.raises(ModelError, match=r"layer 2 \(Linear\) has a bias with NaN or infinity in it"):
        nn.from_torch(module)


def test_a_change_in_place_that_a_trace_does_not_show_is_noticed() -> None:
    def changed(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.fc(x)
        y.add_(1.0)
        return torch.relu(y)

    with pytest.raises(ModelError, match="in place"):
        nn.from_torch(Calls(changed, fc=tnn.Linear(4, 4)), (4,))


def test_examples_and_shapes_are_checked() -> None:
    module = tnn.Linear(4, 2)
    assert nn.from_torch(module, np.zeros((1, 4))).input_shape == (4,)
    assert nn.from_torch(module, torch.zeros(7, 4)).input_shape == (4,)
    assert nn.from_torch(module, [4]).input_shape == (4,)
    for example, message in ((np.zeros(4), "rows along its first axis"), ((0,), "whole numbers of at least 1")):
        with pytest.raises(ModelError, match=message):
            nn.from_torch(module, example)
    with pytest.raises(ModelError, match="pass one"):
        nn.from_torch(module, np.zeros((1, 4)), input_shape=(5,))


def test_warnings_name_the_line_of_the_caller() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        nn.from_torch(tnn.Sequential(tnn.Linear(3, 2), tnn.Tanh()))
    assert [(each.category, Path(each.filename).name) for each in told] == [(HdcosWarning, Path(__file__).name)]


# ---- the report


def test_the_report_says_what_became_of_each_part_and_what_it_costs() -> None:
    torch.manual_seed(0)
    module = trained(
        tnn.Sequential(
            tnn.Conv2d(1, 2, 3), tnn.BatchNorm2d(2), tnn.ReLU(), tnn.Dropout(), tnn.Flatten(), tnn.Linear(72, 8),
            tnn.Tanh(), tnn.Linear(8, 3), tnn.Softmax(1),
        )
    )  # fmt: skip
    conversion = nn.convert(module, (1, 8, 8))
    report = conversion.report
    told = [(line.fate.source, line.fate.verdict, line.fate.layer) for line in report.lines]
    assert told == [
        ("Conv2d", EXACT, 0), ("BatchNorm2d", EXACT, 0), ("ReLU", EXACT, 1), ("Dropout", EXACT, None),
        ("Flatten", EXACT, 2), ("Linear", EXACT, 3), ("Tanh", APPROXIMATED, 4), ("Linear", EXACT, 5),
        ("Softmax", CLIENT, None),
    ]  # fmt: skip
    notes = {line.fate.source: line.fate.note for line in report.lines}
    assert notes["BatchNorm2d"] == "folded into 0"
    assert notes["Softmax"] == "results are logits"
    error = float(notes["Tanh"].split()[1])
    x = np.linspace(-4, 4, 1001)
    assert np.abs(fit.series("tanh", 4)(x) - np.tanh(x)).max() <= error < 2e-3
    whole = total(estimate(conversion.model))
    assert report.total is not None
    assert (report.total.rounds, report.total.online_bytes) == (whole.online.rounds, whole.online.bytes_sent)
    assert report.total.material_bytes == whole.offline.bytes_sent
    priced = [line.price.rounds for line in report.lines if line.price is not None]
    assert sum(priced) == whole.online.rounds
    assert "approximated" in str(conversion)
    assert str(conversion).splitlines()[0].split()[:3] == ["operation", "type", "result"]


def test_files_of_pytorch_are_loaded_only_where_they_are_trusted(tmp_path: Path) -> None:
    module = tnn.Sequential(tnn.Linear(3, 2), tnn.ReLU())
    path = tmp_path / "net.pt"
    torch.save(module, path)
    with pytest.raises(ModelError, match=r"net\.pt may hold a module, and loading one runs the code.*--trust"):
        nn.convert(path)
    assert nn.convert(path, trust=True).model.layers == (nn.Dense(3, 2), nn.ReLU())
    torch.save(module.state_dict(), path)
    with pytest.raises(ModelError, match=r"net\.pt holds a state dict, which has parameters but no network"):
        nn.convert(path)
    with pytest.raises(ModelError, match="a state dict has parameters but no network"):
        nn.convert(path, trust=True)
    path.write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=r"net\.pt is truncated, damaged or no file of PyTorch"):
        nn.convert(path, trust=True)
    with pytest.raises(ModelError, match="neither"):
        nn.convert(tmp_path / "net.bin")
    with pytest.raises(ModelError, match="no model file"):
        nn.convert(tmp_path / "missing.pt")


def test_relu_is_replaced_by_a_cosine_in_a_copy() -> None:
    module = tnn.Sequential(
        tnn.Linear(3, 3), tnn.ReLU(), tnn.Sequential(tnn.LeakyReLU(), tnn.Linear(3, 2)), tnn.ReLU6()
    )
    replaced = nn.replace_relu(module)
    kinds = [layer.kind for layer in nn.from_torch(replaced).layers]
    assert kinds == ["Dense", "Cos", "Cos", "Dense", "Cos"]
    assert isinstance(module[1], tnn.ReLU)
    assert replaced[0].weight is not module[0].weight
    before, after = (nn.convert(each).report.total for each in (module, replaced))
    assert after.rounds < before.rounds
    assert after.material_bytes < before.material_bytes
    with pytest.raises(ModelError, match=r"calls relu as functions.*torch\.nn\.ReLU\(\)"):
        nn.replace_relu(Calls(lambda m, x: torch.relu(x)))
