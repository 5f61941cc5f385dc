"""The experiments of the paper, as lists of cells, and the trainer that runs each cell as one computation.

cells         one entry of a table: data set, activation, structure, optimiser; the runs behind it
experiments   the tables and figures of the paper as lists of cells
splits        the data sets as training and test rows
tasks         the same on a device, with batch size and epochs
batched       many models of one architecture as one computation
lenet.cu      the convolutions of LeNet-5 for many models, as CUDA kernels
lenet_stem    those kernels as a function with a gradient
optimizers    SGD and Adam with one learning rate per model
trainer       trains cells side by side
kernel        how well random cosine features estimate the Gaussian kernel
frozen        a linear classifier on random cosine features against the kernel
rounds        the rounds of each activation, from the planner
activations   the functions themselves, for their figure
secure        trained networks on whole test sets, on shares and in plaintext
criteo        embeddings and a network trained on Criteo's rows, or on generated ones
results       the file of results: one line per run
rows          trained models as lines of that file
run           an experiment from its name to its results
report        the results beside the paper's numbers, as Markdown and HTML

Trainer, kernel, frozen, criteo and run need PyTorch and NumPy beside hdcos.nn: no compiled extension and no
cryptography, so that they run on a machine where nothing can be installed (`python -m paper NAME`).
"""
