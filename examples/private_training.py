"""Train a network on rows and labels that no machine sees, and look at it only with your own test rows."""

import numpy as np

import hdcos
from hdcos import nn

x, y = hdcos.data.digits("train")
images, labels = hdcos.data.digits("test")
# Random Fourier features to begin with, and a dense layer on top: both are trained, diagonals at their own rate.
model = nn.Sequential([nn.HadamardDiagonal(64, 128, bandwidth=3.0), nn.Cos(), nn.Dense(128, 10)])

with hdcos.local() as cluster:
    private = cluster.fit(model, x, y, epochs=10, batch_size=50, lr=0.2, momentum=0.9, seed=0)
    scores = private.predict(images)  # the model stays in shares
    cost = cluster.cost.online

before, after = (np.mean(guess.argmax(1) == labels) for guess in (model(images), scores))
print(f"accuracy before {before:.1%}, after {after:.1%}")
print(f"{cost.rounds} rounds, {cost.bytes_sent[0] / 1e6:.0f} MB each way")
