"""Two owners train one model from records they may not pool: the same people, different columns."""

import numpy as np

import hdcos
from hdcos import nn

x, y = hdcos.data.digits("train")
images, labels = hdcos.data.digits("test")
top, bottom = x[:, :32], x[:, 32:]  # one owner has the upper half of each image, the other the lower half

with hdcos.local() as cluster:
    cluster.upload(top, name="first-owner")
    cluster.upload(bottom, y, name="second-owner", outputs=10)  # who also has the labels
    model = nn.Sequential([nn.HadamardDiagonal(64, 256, bandwidth=4.0), nn.Cos(), nn.HadamardDiagonal(256, 10)])
    private = cluster.fit(model, ("first-owner", "second-owner"), epochs=12, batch_size=50, lr=5.0, seed=0)
    scores = private.predict(images)

print(f"accuracy of the model nobody holds: {np.mean(scores.argmax(1) == labels):.1%}")
