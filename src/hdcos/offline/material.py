"""What a piece of material is: typed fields, an address, a plan.

A *kind* describes one unit: its fields, and how the dealt ones follow from the uniform ones. A *plan* lists
the kinds one execution of a program takes, in order; its position in that list is a unit's address within a
*scope* (one run, or one version of a model). Units are consumed in order and once.

Uniform fields cost no bandwidth: each party expands its share from a seed it shares with the dealer. Of a
dealt field party 0 expands its share likewise and party 1 receives the rest, `bits` per element. Keys are another
matter: a uniform field may be each party's own, and a dealt one the same for both, who both receive it (`Sharing`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from functools import cached_property, lru_cache
from math import prod
from typing import Any, ClassVar

from hdcos.errors import InputError
from hdcos.offline import limits
from hdcos.ring import Array, packed_size

Shape = tuple[int, ...]
Values = Mapping[str, Array]
Fields = tuple[Array, ...]
Ranges = Mapping[str, tuple[int, int]]
Precompute = Callable[[Fields, Callable[[int], Fields]], Fields]
"""What a party computes from a unit before the input arrives: its fields, and those of earlier positions."""
CHUNK_BYTES = 1 << 24
"""Material is dealt in chunks of about this size: large enough to be efficient, small enough to be ahead."""
MAX_ELEMENTS = 1 << 28
"""Of one field of one unit."""
MAX_AXES = 8


class Sharing(Enum):
    """What the two parties' words of a field have to do with each other."""

    SUM = "they add up to the value, modulo 2**bits"
    XOR = "their bits add up to those of the value"
    OWN = "nothing: each party's are its own; `derive` gets both as two fields, see `own_names`"
    COMMON = "they are the same, and both parties receive them"


def own_names(name: str) -> tuple[str, str]:
    """What `derive` calls the two parties' own words of a field."""
    return f"{name}0", f"{name}1"


@dataclass(frozen=True)
class Field:
    """One tensor of a unit, of `bits` bits each, shared by sums if nothing else is said."""

    name: str
    shape: Shape
    bits: int
    sharing: Sharing = Sharing.SUM

    @staticmethod
    def alike(shape: Shape, bits: int, *names: str) -> tuple[Field, ...]:
        return tuple(Field(name, shape, bits) for name in names)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def fills_its_type(self) -> bool:
        """Whether packed values are values as they lie in memory."""
        return self.bits in (8, 16, 32, 64)

    def check(self) -> None:
        """InputError unless this is a tensor somebody could want: plans arrive over the network."""
        sizes = (*self.shape, self.bits)
        if not all(type(n) is int and n >= 0 for n in sizes) or not 1 <= self.bits <= 64 or self.size > MAX_ELEMENTS:
            raise InputError(f"no material has a field of shape {self.shape} and {self.bits} bits")


@dataclass(frozen=True)
class Reference:
    """Another unit's address: a position in this scope's plan, or in that of the scope named.

    Within the scope, execution i refers to what the position gave execution i: unit by unit, its only unit for the
    `whole` execution, or all its `rows` at once. A reference to another scope is to the first unit of its position.
    Of a whole unit, read as one row of numbers, a `shape` means the tensor that begins at `start`.
    """

    position: int
    scope: str = ""
    whole: bool = False
    rows: bool = False
    start: int = 0
    shape: Shape | None = None

    @staticmethod
    @lru_cache(1 << 12)
    def of(
        position: int, whole: bool = False, rows: bool = False, start: int = 0, shape: Shape | None = None
    ) -> Reference:
        """A reference within the scope; equal ones are one object, as programs make the same ones in every run."""
        return Reference(position, "", whole, rows, start, shape)

    def check(self) -> None:
        """InputError unless this could be an address: plans arrive over the network."""
        if type(self.position) is not int or self.position < 0 or not isinstance(self.scope, str):
            raise InputError("a reference is to a position of a scope")
        if type(self.whole) is not bool or type(self.rows) is not bool:
            raise InputError("a reference is to a whole unit, to all rows, or to neither")
        if self.shape is not None and not all(type(size) is int and size >= 0 for size in (self.start, *self.shape)):
            raise InputError("a reference to a part says where it begins and its shape")

    def part(self, values: Values) -> Values:
        """What is meant of whole units, one behind the other."""
        if self.shape is None:
            return values
        end = self.start + prod(self.shape)
        flat = {name: array.reshape(len(array), prod(array.shape[1:])) for name, array in values.items()}
        if any(array.shape[1] < end for array in flat.values()):
            raise InputError(f"material refers to elements {self.start} to {end} of position {self.position}")
        return {name: array[:, self.start : end].reshape(-1, *self.shape) for name, array in flat.items()}


@dataclass(frozen=True)
class Work:
    """What it takes to deal material: words in memory at once, and multiplications."""

    words: int = 0
    multiplications: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.words + other.words, self.multiplications + other.multiplications)

    def __mul__(self, times: int) -> Work:
        return Work(self.words * times, self.multiplications * times)


class Kind:
    """One type of material; subclasses are frozen dataclasses of JSON values."""

    name: ClassVar[str]
    registry: ClassVar[dict[str, type[Kind]]] = {}
    ranges: ClassVar[Ranges] = {}
    """The least and the largest value of its numbers."""
    dealer_only: ClassVar[bool] = False
    """Whether two parties cannot make it by themselves."""
    shape: Shape

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            Kind.registry[cls.name] = cls

    def uniform(self) -> tuple[Field, ...]:
        """The tensors of one unit that each party expands from its seed."""
        return ()

    def dealt(self) -> tuple[Field, ...]:
        """The tensors of one unit that `derive` computes."""
        return ()

    def fields(self) -> tuple[Field, ...]:
        """The tensors of one unit, in the order `take` returns them."""
        return (*self.uniform(), *self.dealt())

    def coins(self) -> tuple[Field, ...]:
        """Uniform tensors of one unit that the dealer draws; others see no more of them than what `derive` makes."""
        return ()

    def references(self) -> tuple[Reference, ...]:
        """The units whose plain values `derive` needs."""
        return tuple(value for value in vars(self).values() if isinstance(value, Reference))

    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """The fields of each of these units that `derive` takes; all have the shape of the mask."""
        return (("mask",),) * len(self.references())

    def check(self) -> None:
        """InputError if a number is out of its range: kinds arrive over the network, and `fields` trusts them."""
        check_shape(self, self.shape)
        for name, (low, high) in self.ranges.items():
            check_range(self, low, high, name)

    def fits(self, *masks: Shape) -> bool:
        """Whether the masks of the units it refers to have shapes that make up its own."""
        return not masks

    def extra(self, *masks: Shape | None) -> Work:
        """What `derive` takes for one unit besides the fields; the shapes of masks in other scopes are not known."""
        return Work()

    @property
    def elementwise(self) -> bool:
        """Whether `derive` works element by element, so that a whole unit may as well be repeated for each row."""
        return True

    @property
    def over_rows(self) -> bool:
        """Whether it is one unit, made of all rows of what it refers to."""
        return False

    def derive(self, uniform: Values, *referred: Values) -> Values:
        """The dealt fields of n units at once (leading axis n) from plain values. Only a dealer calls this."""
        return {}

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.name, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_json(record: Any) -> Kind:
        try:
            record = dict(record)
            kind = Kind.registry[record.pop("kind")]
            known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
            if unknown := sorted(set(record) - set(known)):
                raise InputError(f"material kind {kind.name} has no {unknown}")
            made = kind(**{name: _freeze(value) for name, value in record.items()})
            if len(made.references()) != list(known.values()).count("Reference"):
                raise InputError(f"{kind.name}: what it refers to is given by position and scope")
            made.check()
            for item in made.fields():
                item.check()
            return made
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not a kind of material: {type(error).__name__} {error}") from error


def check_range(kind: Kind, low: int, high: int, name: str) -> None:
    """InputError unless this number of a kind lies in a range."""
    value = getattr(kind, name)
    if type(value) is not int or not low <= value <= high:
        raise InputError(f"{kind.name}: {name} is a whole number from {low} to {high}, got {str(value)[:40]}")


def check_shape(kind: Kind, shape: Any, what: str = "shape") -> None:
    """InputError unless this is a shape: a few whole numbers."""
    if not isinstance(shape, tuple) or len(shape) > MAX_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"{kind.name}: {what} is a list of at most {MAX_AXES} whole numbers, got {str(shape)[:40]}")


def check_pool(kind: Kind, pool: Any, units: int) -> None:
    """InputError unless windows of units are as many units as there are."""
    check_shape(kind, pool, "pool")
    if pool and (len(pool) != 4 or 0 in pool or pool[1] % pool[3] or pool[2] % pool[3] or prod(pool[:3]) != units):
        raise InputError(f"{kind.name}: pool is channels, height, width and window of {units} units, got {pool}")


def _freeze(value: Any) -> Any:
    """JSON lists as tuples, references as References."""
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, Mapping):
        reference = Reference(**{name: _freeze(item) for name, item in value.items()})
        reference.check()
        return reference
    return value


@dataclass(frozen=True)
class Need:
    """One position of a plan: `units` units of a kind per execution."""

    kind: Kind
    units: int


@dataclass(frozen=True)
class Slot:
    """A field of a position of a plan, `units` times in each execution."""

    position: int
    units: int
    field: Field

    def count(self, executions: int) -> int:
        """Values in a number of executions."""
        return executions * self.units * self.field.size

    def shape(self, executions: int) -> tuple[int, ...]:
        return (executions * self.units, *self.field.shape)


@dataclass(frozen=True)
class Plan:
    """The material one execution takes, position by position."""

    needs: tuple[Need, ...]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """All fields of all positions, in order."""
        return self._slots(lambda kind: kind.fields())

    @cached_property
    def uniform(self) -> tuple[Slot, ...]:
        """The fields that each party expands, in order."""
        return self._slots(lambda kind: kind.uniform())

    @cached_property
    def coins(self) -> tuple[Slot, ...]:
        """What the dealer draws for itself, in order."""
        return self._slots(lambda kind: kind.coins())

    @cached_property
    def corrected(self) -> tuple[Slot, ...]:
        """The dealt fields as they are sent: the widest first of those that need no unpacking, then the others."""
        dealt = self._slots(lambda kind: kind.dealt())
        return tuple(sorted(dealt, key=lambda slot: -slot.field.bits if slot.field.fills_its_type else 0))

    @cached_property
    def common(self) -> tuple[Slot, ...]:
        """Those of them that party 0 is sent too, in the same order."""
        return tuple(slot for slot in self.corrected if slot.field.sharing is Sharing.COMMON)

    def sent(self, rank: int) -> tuple[Slot, ...]:
        """What a party receives from a dealer."""
        return self.corrected if rank else self.common

    def behind(self, slots: Sequence[Slot]) -> frozenset[int]:
        """The positions that these fields are derived from, their own among them."""
        wanted, found = [slot.position for slot in slots], set[int]()
        while wanted:
            position = wanted.pop()
            if position not in found:
                found.add(position)
                wanted += [ref.position for ref in self.needs[position].kind.references() if not ref.scope]
        return frozenset(found)

    def _slots(self, choose: Callable[[Kind], tuple[Field, ...]]) -> tuple[Slot, ...]:
        return tuple(
            Slot(position, need.units, item) for position, need in enumerate(self.needs) for item in choose(need.kind)
        )

    def to_json(self) -> list[dict[str, Any]]:
        return [{**need.kind.to_json(), "units": need.units} for need in self.needs]

    @classmethod
    def from_json(cls, records: Any) -> Plan:
        if not isinstance(records, Sequence) or isinstance(records, str):
            raise InputError("a plan is a list of needs")
        limits.check_count(records)
        needs: list[Need] = []
        for record in records:
            if not isinstance(record, Mapping) or type(record.get("units")) is not int or record["units"] < 0:
                raise InputError("each need of a plan states its units")
            kind = Kind.from_json({k: v for k, v in record.items() if k != "units"})
            needs.append(Need(kind, record["units"]))
        plan = cls(tuple(needs))
        limits.check(plan)
        return plan

    @cached_property
    def execution_bytes(self) -> int:
        """Payload from the dealer for one execution."""
        return self.packed_bytes(1)

    @cached_property
    def work(self) -> Work:
        """What dealing one execution takes: every number is there up to four times, as shares, as it is, and packed."""
        total = Work()
        for need in self.needs:
            references = need.kind.references()
            rows = [self.needs[reference.position].units for reference in references if reference.rows]
            masks = [limits.mask_shape(self, reference) for reference in references]
            total += Work(4 * need.units * sum(item.size for item in (*need.kind.fields(), *need.kind.coins())))
            total += need.kind.extra(*masks) * max(rows, default=need.units)
        return total

    @property
    def words(self) -> int:
        """Numbers of one execution, in all fields."""
        return sum(slot.count(1) for slot in self.slots)

    @cached_property
    def one_by_one(self) -> bool:
        """Whether a unit serves a whole execution in a way that executions must be dealt singly."""
        return any(
            ref.whole and not ref.scope and not need.kind.elementwise
            for need in self.needs
            for ref in need.kind.references()
        )

    @cached_property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).digest()

    def chunks(self, executions: int) -> Iterator[int]:
        """How many executions are dealt at a time."""
        step = 1 if self.one_by_one else max(1, min(CHUNK_BYTES // max(1, self.execution_bytes), limits.at_once(self)))
        while executions > 0:
            yield min(step, executions)
            executions -= step

    def dealt_bytes(self, executions: int, rank: int = 1) -> int:
        """Payload from the dealer to a party for a number of executions."""
        return sum(self.packed_bytes(count, rank) for count in self.chunks(executions))

    def sent_bytes(self, executions: int) -> int:
        """Payload from the dealer to both parties together."""
        return sum(self.dealt_bytes(executions, rank) for rank in (0, 1))

    def packed_bytes(self, executions: int, rank: int = 1) -> int:
        """One chunk: each field of each position is packed by itself."""
        return sum(packed_size(slot.count(executions), slot.field.bits) for slot in self.sent(rank))
