"""Networks as plain specifications: read, save and evaluate them in NumPy, share them, train them in PyTorch.

layer         what a layer is, and what a linear one is made of; the registry of layer types
hadamard      layers around the orthonormal transform: Hadamard-Diagonal, P H D, random projection and features
dense         dense, low-rank and circulant layers
convolution   convolution, pooling, flattening
affine        a weight and a bias for each channel
activations   elementwise functions and their names
comparing     what layers that compare have in common
public        public random numbers that every host derives alike
columns       tables with named columns, and their order
limits        how large a network from outside may be
joins         layers that read several values: sums, one after the other
passing       layers that leave every number as it is
network       a network and its parameters: a chain of layers, or a graph
pytorch       the way to what knows PyTorch, and learning rates for it
importing     networks that were made elsewhere: PyTorch modules, ONNX files
storage       model files
models        ready and trained networks
torch_modules networks as PyTorch modules, and the layers that PyTorch lacks (extra: torch)
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
from hdcos.nn.affine import Affine as Affine
from hdcos.nn.convolution import AdaptiveAvgPool2d as AdaptiveAvgPool2d
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
from hdcos.nn.importing import convert as convert
from hdcos.nn.importing import from_onnx as from_onnx
from hdcos.nn.importing import from_torch as from_torch
from hdcos.nn.importing import replace_relu as replace_relu
from hdcos.nn.joins import Add as Add
from hdcos.nn.joins import Concat as Concat
from hdcos.nn.layer import Layer as Layer
from hdcos.nn.layer import layer_from_json as layer_from_json
from hdcos.nn.network import Graph as Graph
from hdcos.nn.network import Network as Network
from hdcos.nn.network import Sequential as Sequential
from hdcos.nn.passing import Dropout as Dropout
from hdcos.nn.passing import Identity as Identity
from hdcos.nn.passing import Reshape as Reshape
from hdcos.nn.pytorch import parameter_groups as parameter_groups
from hdcos.nn.storage import load as load
