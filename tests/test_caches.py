"""Nothing that is kept grows with what clients send: whatever has no bound has a reason to be small."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from hdcos.party.database import Database

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

DONE = "what is asked for now; it is taken out when it is answered, refused or given up"
HERE = "what a record in the database names; it goes with that"
CONNECTED = "connections that are open, whose number is bounded"
FEW = "workers, purposes of links or kinds of refusals, which operators and this package name"
ONE_CALLER = "what the one caller of `hdcos.local` keeps, of which clients at an address have none"
ONE_TASK = "of an object that lives as long as one network is compiled or one step is planned"
ONE_PLAN = "fields of one plan, whose positions are at most MOST_POSITIONS"
COLLECTIONS = {
    "link/doorman.py:Doorman._callers": "connections that have not said whom they want, at most MAX_PENDING",
    "link/doorman.py:Doorman._channels": FEW,
    "link/doorman.py:Doorman.counts": FEW,
    "link/listener.py:Listener._visitors": "connections whose handshake is under way, at most MAX_PENDING",
    "offline/dealer.py:Dealer._forgotten": "the last REMEMBERED names, of at most MOST_NAME characters",
    "offline/dealer.py:Dealer._scopes": "plans of at most MOST_OPEN positions; those of a party go with its link",
    "offline/dealer.py:_Scope._firsts": "positions of one plan, at most MOST_POSITIONS",
    "offline/dealer.py:_Scope.closed": "the two parties",
    "offline/dealer.py:_Scope.opened": "the two parties",
    "offline/dealer.py:_Scope.recorded": "the two parties",
    "offline/flat.py:Places._places": ONE_PLAN,
    "offline/ot/base.py:BaseReceiver._points": "choices of one setup",
    "offline/ot/base.py:BaseReceiver._scalars": "choices of one setup",
    "offline/ot/source.py:OtPool._drawn": ONE_PLAN,
    "offline/ot/source.py:OtSource._names": "the last REMEMBERED",
    "offline/ot/source.py:OtSource._pools": "scopes that are open, of models, functions and jobs",
    "offline/pool.py:Allocation._taken": ONE_PLAN,
    "offline/pool.py:MaterialPool._slabs": "material that was made and not used, as the operator gives",
    "offline/recorded.py:Recorded._arguments": "arguments of one function",
    "offline/shares.py:Corrections.places": ONE_PLAN,
    "party/allotment.py:Executions._blocks": "material that was made and not used, as the operator gives",
    "party/allotment.py:MaterialAllotment._claimed": "the last GRACE_S seconds",
    "party/allotment.py:MaterialAllotment._held": "masks of the material that is here; they expire",
    "party/allotment.py:Numbers._ends": "gaps in masks that have not expired",
    "party/allotment.py:Numbers._firsts": "gaps in masks that have not expired",
    "party/arrow.py:FetchedFile._kept": "row groups of one file, as many as it was told",
    "party/batcher.py:Batcher._matched": DONE,
    "party/batcher.py:Batcher._mine": DONE,
    "party/batcher.py:Batcher._news": DONE,
    "party/batcher.py:Batcher._refusals": DONE,
    "party/batcher.py:Batcher._running": DONE,
    "party/batcher.py:Batcher._theirs": DONE,
    "party/budget.py:Budget._known": HERE,
    "party/budget.py:Quota._left": "at most MOST_SET_ASIDE models",
    "party/engine.py:Engine._scopes": "the last REMEMBERED",
    "party/engine.py:Engine._waiting": DONE,
    "party/failures.py:Failures._waiting": "the last MOST_WAITING",
    "party/functions.py:Functions._asked": "at most MOST_OPEN",
    "party/http/api.py:Api._audit": "at most AUDIT_AT_ONCE, and what is on disk is taken out",
    "party/http/auth.py:Auth._clients": "clients that the operator allows; those of before are dropped",
    "party/http/auth.py:Waiting._lasting": "clients whose requests wait now",
    "party/http/auth.py:Waiting._of": "clients whose requests are held now",
    "party/http/auth.py:Waiting._requests": "clients whose requests are held now",
    "party/http/connections.py:Acceptor._handshakes": CONNECTED,
    "party/http/connections.py:Connections._count": CONNECTED,
    "party/http/connections.py:Connections._open": CONNECTED,
    "party/http/datasets.py:Datasets._completing": DONE,
    "party/http/datasets.py:Datasets._turns": "clients whose uploads are being completed",
    "party/http/meetings.py:Meeting.seats": "two clients",
    "party/http/meetings.py:Meetings._meetings": "at most MOST_MEETINGS",
    "party/http/meetings.py:Seat.waiting": "at most WAITING",
    "party/links.py:PeerListener._side_workers": FEW,
    "party/links.py:PeerListener._waiting": FEW,
    "party/local_front.py:MemoryStore._coming": ONE_CALLER,
    "party/local_front.py:MemoryStore._datasets": ONE_CALLER,
    "party/local_front.py:MemoryStore._jobs": ONE_CALLER,
    "party/local_front.py:MemoryStore._models": ONE_CALLER,
    "party/local_front.py:MemoryStore._reveals": ONE_CALLER,
    "party/local_front.py:MemoryStore.released": ONE_CALLER,
    "party/rates.py:Rates._noted": "the last OVER_S seconds, one for each EVERY_S",
    "party/relay.py:Relay._carried": "connections that are carried, at most MOST",
    "party/scheduler.py:Scheduler._alone": HERE,
    "party/scheduler.py:Scheduler._functions_there": "what the other party has open",
    "party/scheduler.py:Scheduler._mine": HERE,
    "party/scheduler.py:Scheduler._paused": HERE,
    "party/scheduler.py:Scheduler._step_s": HERE,
    "party/session.py:Session._crews": "jobs that run in one session",
    "party/side_link.py:SideLink.jobs": "jobs that run",
    "party/side_worker.py:SideWorker._asked": DONE,
    "party/side_worker.py:SideWorker._links": FEW,
    "party/side_worker.py:SideWorker._put_off": HERE,
    "party/side_worker.py:SideWorker._ready": HERE,
    "party/side_worker.py:SideWorker._running": DONE,
    "party/side_workers.py:SideWorkers._side_workers": FEW,
    "party/spool.py:Spool._held": "rows that are written to a file when they are many",
    "party/tallies.py:Tallies._open": "at most MOST_TALLIES of a client and MOST_BYTES of all, for FORGET_S",
    "party/tallies.py:_Open.ids": "at most MOST_OWNERS",
    "party/tallies.py:_Open.shares": "at most MOST_OWNERS, and MOST_BYTES of all",
    "party/training.py:Progress.before": "sections of a meter",
    "party/training.py:Progress.ended": "the last REMEMBERED",
    "party/training.py:Training.sums": "parameters of one network",
    "party/uploads.py:Uploads._busy": DONE,
    "party/uploads.py:Uploads._parts": HERE,
    "party/uploads.py:Uploads._said": HERE,
    "party/worker.py:Worker.jobs": "jobs that run",
    "party/worker.py:Worker.opened": HERE,
    "secure/compile.py:_Compiler.made": ONE_TASK,
    "secure/compile.py:_GraphCompiler.opened": ONE_TASK,
    "secure/training/backward.py:Backward.made": ONE_TASK,
    "secure/training/forward.py:Forward.biases": ONE_TASK,
    "secure/training/forward.py:Forward.waiting": ONE_TASK,
    "secure/training/forward.py:Weights._shares": ONE_TASK,
    "secure/training/shuffle.py:Epoch._drawn": "two blocks of one epoch",
    "secure/wiring.py:Wiring._stages": ONE_TASK,
}

TABLES = {
    "audit": "the last MOST_AUDITED",
    "datasets": "[limits] datasets of each owner; those of jobs go with the job",
    "expired": "the last MOST_EXPIRED of each owner",
    "failures": "models and jobs that are here; the others are dropped once a second",
    "grants": "[limits] grants of each owner",
    "jobs": "of each client MOST_JOBS that have not ended, and the last MOST_ENDED that have",
    "ledger": "the last MOST_RESERVED",
    "models": "of each client MOST_MODELS names, of each name MOST_VERSIONS and those that reveals wait for",
    "queries": "models that are here or being made, and the last MOST_COUNTED that are not",
    "reveals": "of each client MOST_PENDING that wait, and MOST_DECIDED and as many as waited that were decided",
    "tokens": "clients that the operator allows",
}
"""Of a party's database, and what bounds their rows."""


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


def growing() -> Iterator[str]:
    """File, class and attribute of each collection that an object of these packages begins empty and keeps, and what
    modules and classes themselves keep."""
    for path in sorted(
        path for package in ("api", "link", "offline", "party", "secure") for path in (PACKAGE / package).rglob("*.py")
    ):
        place = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text())
        yield from (f"{place}:{_name(target)}" for target, value in _assigned(tree.body) if _grows(value))
        for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            shared = [node for node in kind.body if isinstance(node, ast.Assign)]  # the others are fields
            yield from (f"{place}:{kind.name}.{name}" for name in _growing_fields(kind))
            yield from (f"{place}:{kind.name}.{_name(target)}" for target, value in _assigned(shared) if _grows(value))
            for method in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
                if method.name in ("__init__", "__post_init__"):
                    for target, value in _assigned(ast.walk(method)):
                        if isinstance(target, ast.Attribute) and _grows(value):
                            yield f"{place}:{kind.name}.{target.attr}"


def _growing_fields(kind: ast.ClassDef) -> Iterator[str]:
    """Fields that begin as empty collections, of records that change."""
    if any("frozen=True" in ast.unparse(decorator) for decorator in kind.decorator_list):
        return
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call) and _name(node.value.func) == "field":
            for option in node.value.keywords:
                if option.arg == "default_factory" and ast.unparse(option.value).partition("[")[0] in GROWING:
                    yield _name(node.target)


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and their values, those of tuples one by one."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=True)
                else:
                    yield target, node.value


def _grows(node: ast.expr) -> bool:
    """Whether it is an empty collection that has no bound of its own and keeps what it is given."""
    if isinstance(node, ast.Dict | ast.List):
        return not (node.keys if isinstance(node, ast.Dict) else node.elts)
    if not isinstance(node, ast.Call):
        return False
    made = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    if not isinstance(made, ast.Name) or made.id not in GROWING:
        return False
    return made.id == "defaultdict" or not (node.args or node.keywords)


GROWING = ("Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set")


def test_every_collection_that_is_kept_is_bounded_or_emptied() -> None:
    found = set(growing())
    assert not found - set(COLLECTIONS), "bound it, or say here what takes its keys out again"
    assert not set(COLLECTIONS) - found, "a reason for a collection that is not there"


def test_every_table_of_the_database_has_a_bound_on_its_rows(tmp_path: Path) -> None:
    with closing(Database(tmp_path)) as database:
        found = {row["name"] for row in database._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not found - set(TABLES), "bound its rows, and say here by what"
    assert not set(TABLES) - found, "a reason for a table that is not there"


def test_every_cache_without_a_bound_has_few_keys() -> None:
    found = set(unbounded())
    assert not found - set(UNBOUNDED), "bound it (lru_cache), or say here why its keys are few"
    assert not set(UNBOUNDED) - found, "a reason for a cache that is not there"
