"""Arithmetic modulo 2**64: the numbers every other layer computes with.

fixed           real numbers to ring words and back
trig            cosine and sine tables made of integers only, the same on every host
types           what kernels take: arrays, Blanks in their place, and the tuples of fused kernels
reference       each kernel in plain NumPy: the specification
reference_sign  the same of those behind comparisons
_native         the same kernels compiled for this processor (cpp/)
device          where arrays lie, and what a device offers
cuda            the same kernels for CUDA devices, compiled when they are called
backend         how a kernel is called: which of the two is in use, and what it accepts
kernels         the public functions that compute one thing
fused           the public functions that do several in one pass over memory
comparison      the public functions that tell whether an opened value is above its mask
"""

from hdcos.ring.backend import SlowKernels as SlowKernels
from hdcos.ring.backend import backend as backend
from hdcos.ring.backend import compact_dtype as compact_dtype
from hdcos.ring.backend import keep_memory as keep_memory
from hdcos.ring.backend import return_memory as return_memory
from hdcos.ring.backend import streaming as streaming
from hdcos.ring.comparison import dcf_share as dcf_share
from hdcos.ring.comparison import dcf_words as dcf_words
from hdcos.ring.comparison import sign_blocks as sign_blocks
from hdcos.ring.comparison import sign_combine as sign_combine
from hdcos.ring.comparison import sign_lookup as sign_lookup
from hdcos.ring.comparison import sign_products as sign_products
from hdcos.ring.comparison import sign_rules as sign_rules
from hdcos.ring.fixed import centred_sum as centred_sum
from hdcos.ring.fixed import decode as decode
from hdcos.ring.fixed import encode as encode
from hdcos.ring.fused import hadamard_back as hadamard_back
from hdcos.ring.fused import hadamard_cos as hadamard_cos
from hdcos.ring.fused import hadamard_cos_open as hadamard_cos_open
from hdcos.ring.fused import lifted_product as lifted_product
from hdcos.ring.fused import lifted_sums as lifted_sums
from hdcos.ring.fused import lifted_times as lifted_times
from hdcos.ring.fused import pool_sum as pool_sum
from hdcos.ring.fused import spread as spread
from hdcos.ring.kernels import conv2d as conv2d
from hdcos.ring.kernels import dither as dither
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
from hdcos.ring.trig import table_hash as table_hash
from hdcos.ring.types import Array as Array
from hdcos.ring.types import Blank as Blank
from hdcos.ring.types import HadamardGradient as HadamardGradient
from hdcos.ring.types import HadamardLayer as HadamardLayer
from hdcos.ring.types import Opening as Opening
from hdcos.ring.types import pick as pick
