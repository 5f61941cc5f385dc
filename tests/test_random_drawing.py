"""What is drawn for the proof of bombs: every layer and every kind of material, with all their numbers."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import fields
from typing import Any

import pytest

from benchmarks.random_networks import ACTIVATIONS, OF_ANY_SHAPE, OF_IMAGES, OF_ROWS, random_architecture
from benchmarks.random_plans import random_plan
from hdcos.errors import HdcosError, InputError
from hdcos.nn.joins import Join
from hdcos.nn.layer import Layer
from hdcos.nn.network import Network
from hdcos.offline.limits import check
from hdcos.offline.material import Kind, Plan
from hdcos.secure import compile_network

ARCHITECTURES, COMPILED, PLANS = 12_000, 2500, 8000
HUGE = 1 << 12


@pytest.fixture(scope="module")
def architectures() -> list[dict[str, Any]]:
    draw = random.Random(5)
    return [random_architecture(draw) for _ in range(ARCHITECTURES)]


@pytest.fixture(scope="module")
def plans() -> list[list[dict[str, Any]]]:
    draw = random.Random(6)
    return [random_plan(draw) for _ in range(PLANS)]


def values(records: list[dict[str, Any]], key: str) -> dict[str, dict[str, list[Any]]]:
    """By kind and field, all that was drawn."""
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for name, value in record.items():
            found[record[key]][name].append(value)
    return found


def test_layers_of_every_kind_can_be_drawn() -> None:
    drawers = {**ACTIVATIONS, **OF_ANY_SHAPE, **OF_IMAGES, **OF_ROWS}
    joins = {name for name, kind in Layer.registry.items() if issubclass(kind, Join)}
    assert drawers.keys() | joins == Layer.registry.keys()


def test_layers_of_every_kind_are_drawn_and_compiled_alone_and_in_graphs(architectures) -> None:
    compiled: dict[bool, set[str]] = {True: set(), False: set()}
    for record in architectures[:COMPILED]:
        try:
            compile_network(Network.outline(record))
        except HdcosError:
            continue
        compiled["inputs" in record] |= {layer["type"] for layer in record["layers"]}
    assert compiled[True] == Layer.registry.keys()
    assert compiled[True] - compiled[False] == {"Add", "Concat"}


def test_every_field_of_a_layer_is_drawn_with_other_values_than_its_own(architectures) -> None:
    drawn = values([layer for record in architectures for layer in record["layers"]], "type")
    for name, kind in Layer.registry.items():
        for item in fields(kind):
            found = [value for value in drawn[name][item.name] if value != item.default]
            assert len({str(value) for value in found}) > (item.name != "compare"), (name, item.name)


@pytest.mark.parametrize("name", ["groups", "dilation", "terms", "blocks", "kernel_size", "stride", "padding"])
def test_numbers_of_layers_are_right_and_wrong(architectures, name: str) -> None:
    found = [layer[name] for record in architectures for layer in record["layers"] if name in layer]
    assert any(type(value) is int and value > 1 for value in found)
    assert any(type(value) is not int or value > HUGE for value in found)


def test_material_of_every_kind_is_drawn_as_a_dealer_takes_it(plans) -> None:
    taken: set[str] = set()
    for records in plans:
        for count in range(len(records), 0, -1):
            try:
                check(Plan.from_json(records[:count]))
            except InputError:
                continue
            taken |= {record["kind"] for record in records[:count]}
            break
    assert taken == Kind.registry.keys()


def test_numbers_of_material_are_small_and_huge(plans) -> None:
    drawn = values([record for records in plans for record in records], "kind")
    numbers = [(name, item.name) for name, kind in Kind.registry.items() for item in fields(kind) if item.type == "int"]
    assert {"groups", "dilation", "terms", "term"} <= {name for _, name in numbers}
    for kind, name in numbers:
        found = [value for value in drawn[kind][name] if type(value) is int]
        assert len(set(found)) > 2, (kind, name)
        assert min(map(abs, found)) <= 5, (kind, name)
        assert max(found) > HUGE, (kind, name)
