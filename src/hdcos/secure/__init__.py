"""Networks on shares: how each layer is computed, at which scale, and the programs the parties run.

stages       what a party does, one class per way of computing, and the secret parameters it needs
activations  the same of activations, each with its derivative
reader       layers as both compilers read them, for inference and for training
wiring       a graph cut into chains, and which stage reads which value
compile      a network as a list of stages, every scale chosen
program      the programs: open the weights once, then infer; their plans over shapes
answers      how a result leaves a party: with noise, rounded; how many queries of one row are answered safely
gain         whether a model's weights are such that the number holds that is stated for its network
labels       the label of each row instead: a comparison on shares, after which nothing else leaves
estimate     what inference will cost, layer by layer
calibrate    what reaches each activation, and the intervals that fit it
training     training on shares
"""

from hdcos.secure.compile import CompiledNetwork as CompiledNetwork
from hdcos.secure.compile import compile_network as compile_network
from hdcos.secure.program import infer as infer
from hdcos.secure.program import join_pieces as join_pieces
from hdcos.secure.program import open_weights as open_weights
from hdcos.secure.program import pieces as pieces
from hdcos.secure.stages import Tensor as Tensor
