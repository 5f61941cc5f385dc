"""Two real ends of a link in one process, and a way to run them at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hdcos.link import Emulation, Identity, Link, Listener, connect


@pytest.fixture(scope="session")
def nodes() -> dict[str, Identity]:
    return {name: Identity.create(name) for name in ("party 0", "party 1", "dealer")}


@pytest.fixture(scope="session")
def both() -> Callable[..., tuple[Any, ...]]:
    """Run functions at the same time; a result is what the function returned or the exception it raised."""

    def run(*functions: Callable[[], Any]) -> tuple[Any, ...]:
        results: list[Any] = [None] * len(functions)

        def call(place: int) -> None:
            try:
                results[place] = functions[place]()
            except BaseException as error:
                results[place] = error

        threads = [threading.Thread(target=call, args=(place,)) for place in range(len(functions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a side hangs"
        return tuple(results)

    return run


@pytest.fixture(params=["compiled", "plain"])
def either_pump(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test with the compiled pump of links, and with that of `link.tls`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr("hdcos.link.tls.open_pump", lambda *known: None)
        yield


@pytest.fixture
def tls_pair(nodes: dict[str, Identity], both: Any) -> Iterator[Callable[..., tuple[Link, Link]]]:
    """Makes the links of party 0 and party 1 to each other, over TLS on 127.0.0.1."""
    made: list[Link] = []

    def make(timeout_s: float | None = 10.0, emulation: Emulation | None = None) -> tuple[Link, Link]:
        zero, one = nodes["party 0"], nodes["party 1"]
        options: Any = {"link_timeout_s": timeout_s, "emulation": emulation}
        with Listener(zero, {one.certificate: "party 1"}, **options) as listener:
            links = both(
                lambda: listener.accept(10.0),
                lambda: connect(one, {zero.certificate: "party 0"}, "127.0.0.1", listener.port, 10.0, **options),
            )
        for link in links:
            assert isinstance(link, Link), link
            made.append(link)
        return links[0], links[1]

    yield make
    for link in made:
        link.close()
