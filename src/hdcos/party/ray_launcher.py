"""Workers on the machines of a party's own Ray cluster (extra `hdcos[ray]`): placed by Ray, which collects their logs.

An actor starts the worker as a process of its machine and says where it listens; it ends with the actor, and the actor
with the node that asked for it. One that is lost is not restarted by Ray: its node asks for another. Ray is on no path
of a round or a sum: workers talk to each other, to their node and to the dealer over links of their own. The other
organisation has a Ray cluster of its own, and neither knows the other's.

Security  anybody who reaches Ray's ports runs code on the party's machines. A cluster that is started here, `local`,
          listens on loopback alone, or it is ended again. One of several machines listens on all their addresses,
          whichever it is started with: a firewall keeps its ports for the party's own network. A worker's key is made
          by its process and stays there: what travels over Ray is its public part and then the certificate.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from time import monotonic, sleep
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from hdcos.errors import HdcosError, InputError, PeerLost
from hdcos.link import Doorman, split_name
from hdcos.party.launcher import LOCAL, Address, Placement, Settings
from hdcos.party.ray_folder import RayFolder
from hdcos.party.ray_host import RayHost
from hdcos.party.relay import Relay
from hdcos.ring.device import Place

ASK_S, START_S, PAUSE_S, ATTEMPTS = 5.0, 60.0, 0.3, 3
GIVEN = "cuda:0"
"""The GPU that Ray set aside for a worker, whichever it is: its process is shown no other."""


class RayWorker:
    """A worker that Ray placed somewhere."""

    def __init__(self, doorman: Doorman, name: str, settings: Settings, port: int, gpus: float) -> None:
        limit = monotonic() + START_S
        while True:
            self._actor: Any = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")(RayHost).remote()
            try:
                self.address: Address
                self.address, public = ray.get(self._actor.start.remote(port), timeout=limit - monotonic())
                ray.get(self._actor.begin.remote(settings(public)), timeout=ASK_S)
                break
            except RayError as error:
                ray.kill(self._actor)
                # Ray may not know yet that the machine which it chose is gone: it chooses another one soon.
                if not isinstance(error, RayActorError) or monotonic() > limit:
                    raise PeerLost(f"Ray did not start {name} within {START_S:g} s: {type(error).__name__}") from None
                sleep(PAUSE_S)
            except HdcosError:
                ray.kill(self._actor)
                raise
        self._relay = Relay(doorman, name, self.address)

    def state(self) -> str:
        try:
            return str(ray.get(self._actor.state.remote(), timeout=ASK_S))
        except RayError as error:
            return f"its Ray actor is gone ({type(error).__name__})"

    def stop(self) -> None:
        self._relay.close()
        ray.kill(self._actor)


class RayLauncher:
    """Starts workers as actors of the Ray cluster at an address; `local` starts one on this machine."""

    def __init__(self, placement: Placement, doorman: Doorman, place: Place) -> None:
        self._doorman, self._first_port, address = doorman, placement.first_port, placement.ray
        self._place, self._gpus = place, placement.gpus
        self._folder: RayFolder | None = None
        for left in reversed(range(ATTEMPTS if address == LOCAL else 1)):
            try:
                self._begin(address)
                return
            except Exception as error:  # a port was taken, the machine is slow: Ray raises all kinds
                ray.shutdown()
                if self._folder is not None:
                    self._folder.remove()
                if not left:
                    why = f"{type(error).__name__}: {error}"
                    raise InputError(f"no Ray cluster answers at {address} ({why})") from None

    def _begin(self, address: str) -> None:
        known = {"logging_level": logging.WARNING, "log_to_driver": True}
        if address == LOCAL:
            self._folder = RayFolder()
            # Workers are few: Ray need not have a process ready for each core.
            few = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
            ray.init(
                address=LOCAL, include_dashboard=False, _temp_dir=str(self._folder.path), _system_config=few, **known
            )
            if not ip_address(self.host).is_loopback:
                raise InputError(f"it listens at {self.host}, where others may reach it")
        else:
            ray.init(address=address, **known)

    @property
    def host(self) -> str:
        """The address of this machine that workers reach it by."""
        return str(ray.util.get_node_ip_address())

    def start(self, name: str, settings: Settings) -> RayWorker:
        index = split_name(name)[1]
        port = self._first_port + index if self._first_port else 0
        if self._place.of_worker(index).name == "cpu":
            return RayWorker(self._doorman, name, settings, port, 0)

        def with_device(public: bytes) -> Mapping[str, Any]:
            known = settings(public)
            return {**known, "place": {**known["place"], "name": GIVEN}}

        return RayWorker(self._doorman, name, with_device, port, self._gpus)
