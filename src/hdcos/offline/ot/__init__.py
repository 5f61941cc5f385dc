"""Material without a dealer: the two parties make it between them with oblivious transfer.

Modules, each using only those before it:

product     what a generator of material asks for: one party's numbers times the other's vectors; batches and sizes
base        128 base transfers on edwards25519, and trees of seeds
reference   the hot loops in NumPy and `cryptography`: the specification of those that are compiled with AES
            instructions
session     any number of transfers from the base; products of private values
terms       products of shared values
kinds       how each kind of material is made
chunk       all positions of a plan, sharing rounds, and what they cost before anything is made
source      a source like the dealer's client, and its pools

Both parties in one thread, for tests, are in `hdcos.testing.ot_pair`.
"""

from hdcos.offline.ot.chunk import Traffic as Traffic
from hdcos.offline.ot.chunk import traffic as traffic
from hdcos.offline.ot.source import OtSource as OtSource
