"""Training on shares: features, labels, weights and gradients, and nothing in between is revealed.

form   what can be trained, and the scale of every tensor
step   one step of stochastic gradient descent, as a program of two parties
"""

from hdcos.train.form import Form as Form
from hdcos.train.form import training_form as training_form
from hdcos.train.rule import Rule as Rule
from hdcos.train.step import sgd_step as sgd_step
