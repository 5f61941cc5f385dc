"""Arithmetic modulo 2**64: the numbers every other layer computes with.

fixed      real numbers to ring words and back
trig       cosine and sine tables made of integers only, the same on every host
checks     what the kernels accept, and the errors they raise
types      the types that signatures name, and the tuples that fused kernels take
blank      arrays that have a shape and a type but no values, for cost planning
reference  each kernel in plain NumPy: the specification
_native    the same kernels compiled for this processor (cpp/)
backend    which of the two is in use
kernels    the public functions: validate, plan or compute
lifted     the public functions of lifted values and pooled units
"""

from hdcos.ring.backend import SlowKernels as SlowKernels
from hdcos.ring.backend import backend as backend
from hdcos.ring.backend import keep_memory as keep_memory
from hdcos.ring.backend import streaming as streaming
from hdcos.ring.blank import Blank as Blank
from hdcos.ring.checks import compact_dtype as compact_dtype
from hdcos.ring.fixed import centred_sum as centred_sum
from hdcos.ring.fixed import decode as decode
from hdcos.ring.fixed import encode as encode
from hdcos.ring.kernels import conv2d as conv2d
from hdcos.ring.kernels import dither as dither
from hdcos.ring.kernels import hadamard_back as hadamard_back
from hdcos.ring.kernels import hadamard_cos as hadamard_cos
from hdcos.ring.kernels import hadamard_cos_open as hadamard_cos_open
from hdcos.ring.kernels import matmul as matmul
from hdcos.ring.kernels import modulo as modulo
from hdcos.ring.kernels import pack as pack
from hdcos.ring.kernels import packed_size as packed_size
from hdcos.ring.kernels import rotate as rotate
from hdcos.ring.kernels import round_open as round_open
from hdcos.ring.kernels import table_phase as table_phase
from hdcos.ring.kernels import trig_combine as trig_combine
from hdcos.ring.kernels import trig_words as trig_words
from hdcos.ring.kernels import unpack as unpack
from hdcos.ring.kernels import unpack_sum as unpack_sum
from hdcos.ring.kernels import walsh_hadamard as walsh_hadamard
from hdcos.ring.lifted import lifted_product as lifted_product
from hdcos.ring.lifted import lifted_sums as lifted_sums
from hdcos.ring.lifted import lifted_times as lifted_times
from hdcos.ring.lifted import pool_sum as pool_sum
from hdcos.ring.lifted import spread as spread
from hdcos.ring.trig import table_hash as table_hash
from hdcos.ring.types import Array as Array
from hdcos.ring.types import HadamardGradient as HadamardGradient
from hdcos.ring.types import HadamardLayer as HadamardLayer
from hdcos.ring.types import Opening as Opening
