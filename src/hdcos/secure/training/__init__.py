"""Training on shares: features, labels, weights and gradients, and nothing in between is revealed.

batches     which rows a step is made of
form        a network as units, and the scale of every tensor
activation  an activation with its derivative, from one opening
loss        the derivative of a loss
rule        what a step makes of a gradient: rate, momentum, decay
weights     the weights of a step, opened rounded and then in the whole ring
forward     from rows to logits
backward    from the loss's derivative to every parameter's step
step        one step of stochastic gradient descent, as a program of two parties
convert     a trained state as the shares that inference wants
targets     rows and targets of a run, checked, and as ring words
estimate    what a step will cost, and the least rate it can take
rates       learning rates of a run, none below what the arithmetic can take
watch       how a run does on the caller's own rows: loss, accuracy, divergence
plain       the same training in floats, for HD-cos networks
"""

from hdcos.secure.training.form import TrainingPlan as TrainingPlan
from hdcos.secure.training.form import training_plan as training_plan
from hdcos.secure.training.rule import Rule as Rule
from hdcos.secure.training.step import sgd_step as sgd_step
