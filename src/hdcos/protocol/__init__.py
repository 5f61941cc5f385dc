"""Two-party protocols as generators, one file each. Talking is a `yield`; nothing here knows a socket.

rounds       what a protocol is; `together`, `named`
party        who runs it and where its material comes from
price        what a protocol says it costs
reveal       open a value to both parties
opening      open a value under a mask, rounding on the way; lift it back to the whole ring
masked       masked values and their products, without a round
beaver       products of shares in one round
lifted       values opened once, rounded and lifted, in elementwise products
hadamard     Hadamard-Diagonal layers, fused with the cosine before them
polynomial   public polynomials in one round
cosine       cosine and sine in one round
growing_cos  x cos x in one round
fourier      any trigonometric series in one round
cos_paper    the paper's Algorithm 1, two rounds
intervals    where series are right
saturating   tanh and the sigmoid on wide intervals, in closed form
fit          the series of functions; least-squares fits of series and of ReLU
catalogue    all functions by name
drive        a protocol over a link
plan         a protocol over shapes: material, rounds, bytes
simulate     both parties in one thread, for tests
"""
