"""Correlated randomness: what it is, how it is dealt, and how each party keeps and spends it.

bilinear      products that masks are multiplied with
limits        how much one plan may ask of a dealer
material      what a piece of material is: fields, addresses, plans
kinds         the kinds that protocols take
lifted_kinds  the kinds for values that are opened rounded and lifted
sign_kinds    the kinds for comparisons
shares        a party's shares of many fields, expanded from its seed
pool          a party's material of one scope, spent once
dealer        makes material for two parties
source        what a party needs from a source of material; a dealer behind a link
ot            the two parties make it themselves, by oblivious transfer
"""

from hdcos.offline.dealer import Dealer as Dealer
from hdcos.offline.kinds import FusedTrig as FusedTrig
from hdcos.offline.kinds import GrowingTrig as GrowingTrig
from hdcos.offline.kinds import Mask as Mask
from hdcos.offline.kinds import MaskProduct as MaskProduct
from hdcos.offline.kinds import Powers as Powers
from hdcos.offline.kinds import RoundingMask as RoundingMask
from hdcos.offline.kinds import TrigPair as TrigPair
from hdcos.offline.lifted_kinds import LiftedPowers as LiftedPowers
from hdcos.offline.lifted_kinds import LiftedTimesMask as LiftedTimesMask
from hdcos.offline.lifted_kinds import LiftedTimesTrig as LiftedTimesTrig
from hdcos.offline.lifted_kinds import LiftedTotal as LiftedTotal
from hdcos.offline.material import Field as Field
from hdcos.offline.material import Kind as Kind
from hdcos.offline.material import Need as Need
from hdcos.offline.material import Plan as Plan
from hdcos.offline.material import Reference as Reference
from hdcos.offline.pool import Allocation as Allocation
from hdcos.offline.pool import MaterialPool as MaterialPool
from hdcos.offline.sign_kinds import BitProduct as BitProduct
from hdcos.offline.sign_kinds import BitTimesMask as BitTimesMask
from hdcos.offline.sign_kinds import CountTable as CountTable
from hdcos.offline.sign_kinds import RandomBit as RandomBit
from hdcos.offline.sign_kinds import SignKeys as SignKeys
from hdcos.offline.sign_kinds import SignTables as SignTables
