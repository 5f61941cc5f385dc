"""A private kernel machine: its owner computes public cosine features of a row, two parties a linear layer."""

import numpy as np

import hdcos
from hdcos import nn

x, y = hdcos.data.digits("train")
images, labels = hdcos.data.digits("test")
# Everybody will know the bandwidth, one number that tells how far rows of yours lie from each other.
model = nn.models.kernel_machine(64, 10, features=1024, bandwidth=nn.models.median_distance(x))

with hdcos.local() as cluster:
    private = cluster.fit(model, x, y, epochs=5, batch_size=50, lr=0.02, momentum=0.9, seed=0)  # convex
    training = cluster.cost.online
    private.prepare(len(images))
    cluster.reset_cost()
    scores = private.predict(images)  # the parties say nothing to each other
    cost = cluster.cost.online

print(f"{training.rounds} rounds of training, {cost.rounds} of {len(images)} predictions")
print(f"accuracy on shares {np.mean(scores.argmax(1) == labels):.1%}")
