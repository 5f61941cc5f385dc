"""The report: the results file beside the paper's numbers, as Markdown and as one HTML page.

published   the numbers of the paper
scores      runs summarised by cell: the best learning rate, as the paper reports it
document    headings, paragraphs, tables and figures, and how they are written
svg         line charts and grids
tables      the paper's tables beside ours
figures     its figures, and the pictures of training stability
claims      what the paper says, and whether these results bear it out
contradictions  where the paper prints two numbers, or says two things
costs       rounds of activations; what each model costs under two-party computation
kernels     the kernel lemma, frozen random features, and the kernel machine
secure      accuracy on shares beside plaintext accuracy; the ready network
varied      starts of training, random projections, generated rows
differences cells that differ from the paper, and the experiments that show why
build       all of it in order; writing and checking the files
"""
