"""Two-party protocols as generators, one file each. Talking is a `yield`; nothing here knows a socket.

rounds       what a protocol is, and its price; `together`, `named`; a protocol over a link
party        who runs it, where its material comes from, and the opening that all protocols share
opening      open a value under a mask, rounding on the way; lift it back to the whole ring; open it to both parties
masked       products of masked values, without a round, and of shares, in one
cosine       cosine and sine in one round, how exactly, and the phase that is kept for a backward pass
lifted       values opened once, rounded and lifted, in elementwise products
hadamard     Hadamard-Diagonal layers, fused with the cosine before them
gradient     the gradient of a Hadamard-Diagonal layer, fused with the cosine before it
polynomial   public polynomials in one round
growing_cos  x cos x in one round
fourier      any trigonometric series in one round
bent         GELU, SiLU and Softplus: x/2 and a series, in one round
cos_paper    the paper's Algorithm 1, two rounds
sign         signs and comparisons, two or three rounds
relu         ReLU, absolute values, maxima and clipping, in the same rounds
argmax       the place of the largest, one round more
selection    comparisons that keep their bits, for gradients
intervals    where series are right; the cubic that stands in for ReLU
fit          the series of functions: those kept as integers, those in closed form, and new fits
catalogue    all functions by name
plan         a protocol over shapes: material, rounds, bytes

Simulations of both parties are in `hdcos.testing`.
"""
