"""Material without a dealer: the two parties make it between them with oblivious transfer.

Modules, each using only those before it:

arrays      array operations for arrays and Blanks alike
product     what a maker asks for: one party's numbers times the other's vectors; batches and sizes
base        128 base transfers on edwards25519
tree        all seeds but one
reference   the hot loops in NumPy and `cryptography`: the specification
native      the same loops compiled, with AES instructions
kernels     which of the two is in use
extension   any number of transfers from the base
wire        talking without a socket
session     both extensions; products of private values
terms       products of shared values
trig        cosine and sine of a random angle
matrices    every bilinear operation as one matrix product
kinds       how each kind of material is made
chunk       all positions of a plan, sharing rounds
estimate    what it costs, before anything is made
pool        a pool of what was made
source      a source like the dealer's client

Both parties in one thread, for tests, are in `hdcos.testing.ot_pair`.
"""

from hdcos.offline.ot.estimate import Traffic as Traffic
from hdcos.offline.ot.estimate import traffic as traffic
from hdcos.offline.ot.source import OtSource as OtSource
