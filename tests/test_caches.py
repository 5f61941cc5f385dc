"""No cache grows with what clients send: each that has no bound has a reason why its keys are few."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "hdcos"

ONCE = "it takes no arguments"
OWN = "names in this package's own sources"
BLOCKS = "blocks of the bits that are compared, at most MOST_BLOCKS"
UNBOUNDED = {
    "api/bodies.py:_decoder": "types of this package's own requests and answers",
    "join/oprf.py:loops": ONCE,
    "link/pump.py:_is_known": ONCE,
    "nn/hadamard.py:sylvester": "powers of two up to the root of a layer's largest width",
    "offline/ot/session.py:loops": ONCE,
    "offline/sign_kinds.py:_products_of": BLOCKS,
    "party/mapped.py:_compiled": ONCE,
    "party/http/app.py:describe_interface": ONCE,
    "protocol/argmax.py:_pairs": "classes that are compared at once, 2 to MOST_AT_ONCE",
    "protocol/argmax.py:_wins": "classes that are compared at once, 2 to MOST_AT_ONCE",
    "protocol/fit.py:even_part": "functions and intervals of the table INTERVALS",
    "protocol/fit.py:saturating": "functions and intervals of the table INTERVALS, and LOGITS",
    "protocol/lifted.py:_integer_mask": "bits of a word, 1 to 64",
    "ring/backend.py:_compiled": "names of kernels",
    "ring/backend.py:_native": ONCE,
    "ring/backend.py:aes_implementation": ONCE,
    "ring/backend.py:implementation": ONCE,
    "ring/backend.py:streaming": ONCE,
    "ring/comparison.py:sign_products": BLOCKS,
    "ring/comparison.py:sign_rules": BLOCKS,
    "ring/cuda/kernels.py:_function": OWN,
    "ring/cuda/kernels.py:_module": OWN,
    "ring/cuda/kernels.py:_table": "bits and scales of the tables that `ring/trig.py` makes",
    "ring/cuda/sources.py:file_of": OWN,
    "ring/cuda/sources.py:kernels_of": OWN,
    "ring/cuda/sources.py:source": OWN,
    "ring/cuda/sources.py:substitution": ONCE,
    "ring/trig.py:_base": ONCE,
    "ring/trig.py:direct_table": "bits up to DIRECT_BITS, and scales of a word",
    "ring/trig.py:half_pi": ONCE,
    "ring/trig.py:high_table": ONCE,
    "ring/trig.py:table_hash": ONCE,
    "sharing/prg.py:_keep": "bits of a word, 1 to 64",
    "suggest/candidates.py:_least": "the candidates for one table, at its owner",
}


def unbounded() -> Iterator[str]:
    """File and name of each cache without a bound."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if any(map(_has_no_bound, node.decorator_list)):
                    yield f"{place}:{node.name}"
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
                made = node.value
                if isinstance(made, ast.Call) and (_has_no_bound(made.func) or _has_no_bound(made)):
                    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                    yield f"{place}:{getattr(target, 'attr', getattr(target, 'id', '?'))}"


def _has_no_bound(node: ast.AST) -> bool:
    """Of `cache`, and of lru_cache(None)."""
    if isinstance(node, ast.Call) and _name(node.func) == "lru_cache":
        sizes = [*node.args[:1], *(option.value for option in node.keywords if option.arg == "maxsize")]
        return any(isinstance(size, ast.Constant) and size.value is None for size in sizes)
    return _name(node) == "cache"


def _name(node: ast.AST) -> str:
    """`cache` of `cache` and of `functools.cache`, whose owner is a module and no object."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "functools":
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_every_cache_without_a_bound_has_few_keys() -> None:
    found = set(unbounded())
    assert not found - set(UNBOUNDED), "bound it (lru_cache), or say here why its keys are few"
    assert not set(UNBOUNDED) - found, "a reason for a cache that is not there"
