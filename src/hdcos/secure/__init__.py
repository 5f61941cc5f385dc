"""Networks on shares: how each layer is computed, at which scale, and the programs the parties run.

tensor   a secret parameter as it is shared
stages   what a party does, one class per way of computing
layout   a network as a list of stages, every scale chosen
program  the programs: open the weights once, then infer
calibrate what reaches each activation, and the intervals that fit it
simulate both parties in one process, for choosing bits
"""

from hdcos.secure.layout import Layout as Layout
from hdcos.secure.layout import layout as layout
from hdcos.secure.program import infer as infer
from hdcos.secure.program import infer_pieces as infer_pieces
from hdcos.secure.program import open_weights as open_weights
from hdcos.secure.program import pieces as pieces
from hdcos.secure.tensor import Tensor as Tensor
