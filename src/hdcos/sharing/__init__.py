"""Additive secret sharing: seeds, shares, splitting and joining."""

from hdcos.sharing.prg import SEED_BYTES as SEED_BYTES
from hdcos.sharing.prg import Stream as Stream
from hdcos.sharing.prg import derive as derive
from hdcos.sharing.prg import fresh_seed as fresh_seed
from hdcos.sharing.share import Public as Public
from hdcos.sharing.share import Share as Share
from hdcos.sharing.share import join as join
from hdcos.sharing.share import refresh as refresh
from hdcos.sharing.share import split as split
