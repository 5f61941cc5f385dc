"""A program that runs again and again on a device: recorded the second time, and from then on repeated.

Between two rounds a program launches dozens of kernels, and to launch one takes longer than it runs. Programs never
look at what they compute, so one with the same plan and the same public numbers launches the same kernels, on arrays
of the same shapes, every time. What lies between two rounds is therefore recorded once (`ring.device.Recorder`), and
then one launch does it.

Security  every run has material and inputs of its own, which are copied to where the recorded run had them; the
          messages are, word for word, those that the program would send. Whatever a run left behind is overwritten by
          the next one before anything is sent. Public numbers are part of the recording, so `key` must name all of
          them: another key is another recording. Nothing that was drawn is ever repeated: words that a program puts
          on the device while it runs, such as fresh noise, end the recording, and it then runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from hdcos.generators import advance
from hdcos.offline import Allocation
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Message, Packed, Reply, Rounds, Talk, cut_reply, packed
from hdcos.ring import Array
from hdcos.ring.device import Device, Recorder, contiguous, to_host
from hdcos.ring.kernels import check_padding

T = TypeVar("T")
Words = Mapping[str, Array]
Body = Callable[[Party, Words], Rounds[T]]
"""A program, of words that lie where the party computes."""


class Repeated(Generic[T]):
    """Runs of one program, one after the other, wherever a party computes."""

    def __init__(self, device: Device | None) -> None:
        self._device = device
        self._key: Hashable = None
        self._runs = 0
        self._recording: Recording[T] | None = None

    @property
    def recorded(self) -> bool:
        """Whether later runs repeat what was recorded."""
        return self._recording is not None

    def run(self, key: Hashable, rank: int, body: Body[T], words: Words, allocation: Allocation) -> Talk[T]:
        """The result of a program on words of this machine; its arrays are of this machine, too."""
        if key != self._key:
            self._key, self._runs, self._recording = key, 0, None
        self._runs += 1
        if self._device is not None and self._runs == 2:  # the first run compiled what there is to compile
            recording: Recording[T] = Recording(self._device)
            made = yield from recording.record(rank, body, words, allocation)
            self._recording = recording if recording.complete else None  # another one would hold memory for nothing
            return made
        if self._recording is not None:
            return (yield from self._recording.repeat(words, allocation))
        placed = words if self._device is None else {name: self._device.put(x) for name, x in words.items()}
        result = yield from packed(body(Party(rank, allocation), placed))
        allocation.finish()
        return _map(to_host, result)


class Round:
    """One that was recorded: what it sends, and the room that its answer is read from."""

    def __init__(self, message: Message, recorder: Recorder) -> None:
        self.sizes = [part.packed_bytes for part in message]
        self._ends = [(int(part.values.size), part.bits) for part in message]
        self._make = recorder.room
        self._room: Array | None = None
        steps = [(part.step or "round", size) for part, size in zip(message, self.sizes, strict=True)]
        self.message = Packed(list(cut_reply(self.sizes, recorder.room(sum(self.sizes)))), steps, self._allocate)

    def _allocate(self, size: int) -> Array:
        """Memory that ends with the answer: the same every time."""
        if self._room is None:
            self._room = self._make(size)
        return self._room

    def hear(self, payload: Array) -> Array:
        """What the peer sent, where it is read from."""
        for part, (count, bits) in zip(cut_reply(self.sizes, payload), self._ends, strict=True):
            check_padding(part, count, bits)
        room = self._allocate(payload.size)
        answer = room[room.size - payload.size :]
        if answer.ctypes.data != payload.ctypes.data:
            answer[:] = payload
        return answer


class Recording(Generic[T]):
    """A program as it ran once on a device."""

    def __init__(self, device: Device) -> None:
        self._recorder: Recorder = device.recorder()
        self._device = device
        self._inputs: dict[str, tuple[Array, Array]] = {}
        """Of each input: a room of this machine, and its mirror on the device."""
        self._whole: Array | None = None
        self._material: list[tuple[Array, ...]] = []
        """Where it lies on the device; in one piece, if it came so."""
        self._rounds: list[Round] = []
        self._ended = False

    @property
    def complete(self) -> bool:
        """Whether it can be repeated."""
        return self._ended and self._recorder.complete

    def record(self, rank: int, body: Body[T], words: Words, allocation: Allocation) -> Talk[T]:
        """Run a program, and keep what it launched."""
        recorder = self._recorder
        for name, x in words.items():
            self._inputs[name] = recorder.room(x.nbytes).view(x.dtype).reshape(x.shape), recorder.mirror(x)
        if allocation.whole is not None:
            places, whole = allocation.whole
            self._whole = recorder.mirror(whole)
            self._material = places.cut(self._whole)
        else:
            (piece,) = allocation.pieces
            self._material = [tuple(recorder.mirror(x) for x in fields) for fields in piece]
        self._fill(words, allocation)
        source = allocation.mirror(self._material)
        ended: list[T] = []
        with recorder.segment():
            for room, mirror in self._inputs.values():
                recorder.upload(mirror, room)
            program = body(Party(rank, source), {name: mirror for name, (_, mirror) in self._inputs.items()})
            said = self._advance(program, None, ended)
        while said:
            made = said[0]
            heard = made.hear((yield made.message))
            answer = recorder.mirror(heard)
            with recorder.segment():
                recorder.upload(answer, heard)
                said = self._advance(program, cut_reply(made.sizes, answer), ended)
            self._rounds.append(made)
        source.finish()
        self._result, self._ended = ended[0], True
        return _map(np.copy, self._result)

    def _advance(self, program: Rounds[T], reply: Reply | None, ended: list[T]) -> list[Round]:
        """The next round of a program; its result, where there is none."""
        results: list[T] = []
        said = advance(program, reply, results.append)
        ended += [_map(self._fetch, result) for result in results]
        return [self._round(message) for message in said]

    def _round(self, message: Message) -> Round:
        """Have the parts of a round packed and copied to this machine."""
        made = Round(message, self._recorder)
        for part, buffer in zip(message, made.message.buffers, strict=True):
            values = contiguous(part.values).reshape(-1)
            self._recorder.download(buffer, self._device.kernels.pack(values, part.bits))
        return made

    def _fetch(self, x: Array) -> Array:
        """Have a result copied to this machine; the copy has its words when the segment is done."""
        room: Array = self._recorder.room(x.nbytes).view(x.dtype).reshape(x.shape)
        self._recorder.download(room, contiguous(x))
        return room

    def _fill(self, words: Words, allocation: Allocation) -> None:
        """Put inputs and material where the recorded run has them."""
        for name, (room, _) in self._inputs.items():
            room[...] = words[name]
        if self._whole is not None and allocation.whole is not None:
            self._recorder.copy([(self._whole, allocation.whole[1])])
            return
        (piece,) = allocation.pieces
        pairs = zip(self._material, piece, strict=True)
        self._recorder.copy(pair for mirrors, fields in pairs for pair in zip(mirrors, fields, strict=True))

    def repeat(self, words: Words, allocation: Allocation) -> Talk[T]:
        """The same with other inputs and other material."""
        self._fill(words, allocation)
        for number, made in enumerate(self._rounds):
            self._recorder.repeat(number)
            made.hear((yield made.message))
        self._recorder.repeat(len(self._rounds))
        return _map(np.copy, self._result)


def _map(function: Callable[[Array], Array], result: T) -> T:
    """A result with each of its arrays made into another one: of what has words, these."""
    made: Any = result
    if hasattr(result, "words"):
        made = replace(made, words=function(made.words))
    elif isinstance(result, Mapping):
        made = {name: _map(function, x) for name, x in result.items()}
    elif isinstance(result, tuple):
        made = tuple(_map(function, x) for x in result)
    else:
        made = function(made)
    kept: T = made
    return kept
