"""Two-party protocols as generators, one file each. Talking is a `yield`; nothing here knows a socket.

rounds       what a protocol is, and its price; `together`, `named`
party        who runs it, where its material comes from, and the opening that all protocols share
precision    how exactly a cosine is computed
reveal       open a value to both parties
opening      open a value under a mask, rounding on the way; lift it back to the whole ring
masked       masked values and their products, without a round
beaver       products of shares in one round
lifted       values opened once, rounded and lifted, in elementwise products
hadamard     Hadamard-Diagonal layers, fused with the cosine before them
phase        a phase that is kept for the backward pass
gradient     the gradient of a Hadamard-Diagonal layer, fused with the cosine before it
polynomial   public polynomials in one round
cosine       cosine and sine in one round
growing_cos  x cos x in one round
fourier      any trigonometric series in one round
cos_paper    the paper's Algorithm 1, two rounds
intervals    where series are right; the cubic that stands in for ReLU
fitted       series that were fitted once, as integers
fit          the series of functions: fitted ones, those in closed form, and new fits
catalogue    all functions by name
drive        a protocol over a link
plan         a protocol over shapes: material, rounds, bytes

Simulations of both parties are in `hdcos.testing`.
"""
