"""Training on shares: features, labels, weights and gradients, and nothing in between is revealed.

plan      a network as blocks, and the scale of every tensor
forward   from rows to logits: the weights of a step, opened, and activations with their derivatives
comparing ReLU and the largest of windows, and gradients back through them
loss      the derivative of a loss
weights   rows and classes that count more than others
backward  from the loss's derivative to every parameter's step
rule      what a step makes of a gradient: rate, momentum, decay; the mean of weights
augment   images of a batch, mirrored and shifted by a public choice
step      one step of stochastic gradient descent, as a program of two parties, and its plan
convert   a trained state as the shares that inference wants
targets   rows and targets of a run, checked, and as ring words
shuffle   which rows each step takes: all of them shuffled, or blocks of them
permutation  an order of many rows that is never written down
rates     learning rates of a run, none below what the arithmetic can take
watch     how a run does on the caller's own rows: loss, accuracy, divergence
plain     the same training in floats, for networks of Hadamard-Diagonal and dense layers
"""

from hdcos.secure.training.plan import TrainingPlan as TrainingPlan
from hdcos.secure.training.plan import training_plan as training_plan
from hdcos.secure.training.rule import Rule as Rule
from hdcos.secure.training.step import sgd_step as sgd_step
