"""The ring kernels on a CUDA device, compiled when they are first called; CuPy has the arrays and the compiler.

sources  the text of the kernels, *.cu, with the constants that they share with the tables
kernels  each kernel by its name in `reference`: what is launched, and for which arrays
device   a device by its name: is it there, does memory suffice, and what crosses to it
"""

from hdcos.ring.cuda.device import check_device as check_device
from hdcos.ring.cuda.device import open_device as open_device
from hdcos.ring.cuda.device import read_number as read_number
