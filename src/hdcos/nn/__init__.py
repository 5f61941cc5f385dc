"""Networks as plain specifications: read, save and evaluate them in NumPy, share them, train them in PyTorch.

layer         what a layer is, and what a linear one is made of; the registry of layer types
hadamard      layers around the orthonormal transform: Hadamard-Diagonal, P H D, random projection and features
dense         dense, low-rank and circulant layers
convolution   convolution, pooling, flattening
activations   elementwise functions and their names
comparing     what layers that compare have in common
public        public random numbers that every host derives alike
columns       tables with named columns, and their order
limits        how large a network from outside may be
sequential    a network and its parameters, also from PyTorch
storage       model files
models        ready and trained networks
torch_modules networks as PyTorch modules and back, and the layers that PyTorch lacks (extra: torch)
"""

from hdcos.nn import models as models
from hdcos.nn.activations import GELU as GELU
from hdcos.nn.activations import Cos as Cos
from hdcos.nn.activations import ExpM1 as ExpM1
from hdcos.nn.activations import GrowingCos as GrowingCos
from hdcos.nn.activations import HardTanh as HardTanh
from hdcos.nn.activations import LeakyReLU as LeakyReLU
from hdcos.nn.activations import PolyReLU3 as PolyReLU3
from hdcos.nn.activations import ReLU as ReLU
from hdcos.nn.activations import ReLU6 as ReLU6
from hdcos.nn.activations import Sigmoid as Sigmoid
from hdcos.nn.activations import SiLU as SiLU
from hdcos.nn.activations import Sin as Sin
from hdcos.nn.activations import Softplus as Softplus
from hdcos.nn.activations import Square as Square
from hdcos.nn.activations import Tanh as Tanh
from hdcos.nn.activations import activation as activation
from hdcos.nn.convolution import AvgPool2d as AvgPool2d
from hdcos.nn.convolution import Conv2d as Conv2d
from hdcos.nn.convolution import Flatten as Flatten
from hdcos.nn.convolution import MaxPool2d as MaxPool2d
from hdcos.nn.dense import Circulant as Circulant
from hdcos.nn.dense import Dense as Dense
from hdcos.nn.dense import LowRank as LowRank
from hdcos.nn.hadamard import PHD as PHD
from hdcos.nn.hadamard import HadamardDiagonal as HadamardDiagonal
from hdcos.nn.hadamard import RandomFeatures as RandomFeatures
from hdcos.nn.hadamard import RandomProjection as RandomProjection
from hdcos.nn.layer import Layer as Layer
from hdcos.nn.layer import layer_from_json as layer_from_json
from hdcos.nn.sequential import Sequential as Sequential
from hdcos.nn.sequential import from_torch as from_torch
from hdcos.nn.sequential import parameter_groups as parameter_groups
from hdcos.nn.storage import load as load
