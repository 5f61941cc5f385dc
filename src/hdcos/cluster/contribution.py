"""One owner's part in a preparation that several owners of rows make together.

Security  what leaves this owner is additive shares of its statistics, one to each party, each uniform alone. What it
          gets are both parties' shares of the totals, and nothing while an owner is missing. `tables.statistics` says
          what the totals tell, and `party.tallies` what the parties see.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hdcos.checks import check_name, check_whole
from hdcos.cluster.transport import Transport
from hdcos.errors import DataMissing, HandshakeError, HdcosError, PeerLost
from hdcos.sharing.wide import join_wide, split_wide
from hdcos.tables.columns import Columns
from hdcos.tables.fitting import measure, require_agreed
from hdcos.tables.preparation import Preparation
from hdcos.tables.reading import Source
from hdcos.tables.statistics import Statistics

LOOK_S = 0.25
WAIT_S = 600.0


NOT_WITHDRAWN = (
    "the totals may have been told to the others, and rows that are changed and contributed again would tell the "
    "difference. `hdcos prepare ... --collect` fetches the totals"
)


class Contribution:
    """Statistics that this owner has given, and the preparation that they become part of."""

    def __init__(self, transport: Transport, name: str, statistics: Statistics, owner: str | None = None) -> None:
        self._transport, self.name, self._statistics, self._owner = transport, name, statistics, owner
        self.withdrawn = False
        """Whether it was taken back at both parties."""

    @classmethod
    def make(
        cls,
        transport: Transport,
        source: Source,
        columns: Columns,
        name: str,
        owners: int,
        clients: Sequence[str] = (),
        owner: str | None = None,
    ) -> Contribution:
        """Sum the rows here, and give each party its share of the sums."""
        check_name(name)
        check_whole(owners, "owners", 2)
        require_agreed(columns)
        statistics = measure(columns, source)
        statistics.check_sharing()
        made = cls(transport, name, statistics, owner)
        record: dict[str, Any] = {
            "id": secrets.token_hex(16),
            "agreement": columns.digest,
            "numbers": len(statistics.numbers),
            "owners": int(owners),
            "clients": list(clients),
        }
        shares = [{"share": words} for words in split_wide(statistics.numbers)]
        before = made._known()
        try:
            transport.contribute(name, owner, record, shares)
        except BaseException:
            if not before:
                made._give_up()
            raise
        return made

    @classmethod
    def made_before(cls, transport: Transport, columns: Columns, name: str, owner: str | None = None) -> Contribution:
        """One whose process has ended since: its totals can still be collected for a while."""
        require_agreed(columns)
        found = cls(transport, check_name(name), Statistics.of(columns, []), owner)
        found.contributed()
        return found

    def contributed(self) -> list[str]:
        """The owners who have contributed, at both parties."""
        zero, one = self._transport.contributions(self.name, self._owner)
        return [owner for owner in zero["contributed"] if owner in one["contributed"]]

    def preparation(self, wait_s: float = WAIT_S) -> Preparation:
        """The preparation, once all owners have contributed. If some have not come by then, this contribution is
        withdrawn, and PeerLost says who has come."""
        deadline = time.monotonic() + wait_s
        try:
            while True:
                zero, one = self._transport.contributions(self.name, self._owner)
                if zero["complete"] and one["complete"] and zero["ids"] == one["ids"]:
                    return self._collect(zero["ids"], zero["owners"])
                if time.monotonic() > deadline:
                    break
                time.sleep(LOOK_S)
        except BaseException:
            self._give_up()
            raise
        self._give_up()
        raise PeerLost(self._who_is_missing(zero, one, wait_s))

    def withdraw(self) -> None:
        """Take it back; refused once an owner was told the totals."""
        self._transport.withdraw(self.name, self._owner)
        self.withdrawn = True

    def _collect(self, ids: list[str], owners: int) -> Preparation:
        (zero, share0), (one, share1) = self._transport.totals(self.name, self._owner)
        if zero["ids"] != ids or one["ids"] != ids:
            raise HandshakeError(
                f"the parties have sums of different contributions to {self.name!r}: agree on another name, and begin "
                f"again"
            )
        return Preparation.of(self._statistics.total(join_wide(share0, share1)), owners)

    def _known(self) -> bool:
        """Whether this owner has a part in it at a party already: that stays, whatever becomes of another attempt."""
        try:
            self._transport.contributions(self.name, self._owner)
        except DataMissing:
            return False
        return True

    def _give_up(self) -> None:
        with suppress(HdcosError):  # told already, never begun, or out of reach: the parties forget it by themselves
            self.withdraw()

    def _who_is_missing(self, zero: dict[str, Any], one: dict[str, Any], wait_s: float) -> str:
        here = [owner for owner in zero["contributed"] if owner in one["contributed"]]
        came = (
            f"{len(here)} of {zero['owners']} owners ({', '.join(here) or 'none'}) contributed to {self.name!r} within "
            f"{wait_s:g} s"
        )
        if not self.withdrawn:
            return f"{came}, and yours could not be withdrawn: {NOT_WITHDRAWN}"
        return (
            f"{came}, and yours was withdrawn: have the others run `hdcos prepare FILE --columns COLUMNS.toml "
            f"--with {self.name} --owners {zero['owners']}` at the same time, and try again"
        )
