"""What a plan costs, at the prices that an operator pays: a TOML file.

currency = "EUR"
core_hour = 0.04          # of one core
gb_hour = 0.005           # of one gigabyte of memory
disk_gb_month = 0.08      # of one gigabyte on disk
gb_out = 0.05             # of one gigabyte that leaves an organisation
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hdcos.api.bodies import convert, explain
from hdcos.errors import InputError
from hdcos.files import read_toml
from hdcos.planning.needs import Need

Price = Annotated[float, Meta(ge=0, lt=1e9)]
MONTH_H = 730.0


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """What things cost. Of the prices only that of a core must be there; what is left out costs nothing."""

    core_hour: Price
    currency: str = ""
    gb_hour: Price = 0.0
    disk_gb_month: Price = 0.0
    gb_out: Price = 0.0

    @classmethod
    def read(cls, path: Path) -> Prices:
        record = read_toml(path, "prices")
        try:
            return convert(record, cls)
        except msgspec.ValidationError:
            raise InputError(f"{path}: {explain(cls, record)}") from None

    def hour(self, need: Need) -> float:
        """What one organisation pays for an hour."""
        traffic = need.gbit_out / 8 * 3600 * self.gb_out
        disk = need.disk_gb * self.disk_gb_month / MONTH_H
        return need.cores * self.core_hour + need.memory_gb * self.gb_hour + disk + traffic
