"""What a cluster must have for a load: a simulation over costs that were measured.

events         time, processors whose cores are taken by turns, and threads that do one thing after another
figures        seconds of processor time as measured, in a file: of every ready network, or of yours
costs          what a batch and a step cost: rounds and bytes exactly, seconds from the figures
machines       a cluster in a simulation: what a batch or a step takes of a pair, a dealer and the lines
serving        predictions: arrivals, and batches as a free pair takes them
training       steps of data-parallel training
needs          what organisations need, and what limits them
serving_plan   the fewest pairs, dealers and cores that carry a load of predictions
training_plan  the fewest that end a run of training in time
prices         what that costs, at an operator's prices
slices         how long a thread keeps its core, and processes that share one, on this machine
measure        makes the figures, on a cluster of this machine

Nothing here is secret: figures and plans know shapes and times, never rows or weights.
"""
