"""Classify digits that no machine sees with a network that no machine holds."""

import numpy as np

import hdcos

model = hdcos.nn.models.digits()
images, labels = hdcos.data.digits("test")

with hdcos.local() as cluster:
    private = cluster.share(model)  # weights are split here
    private.prepare(len(images))  # offline, before the images exist
    scores = private.predict(images)  # online: two rounds
    cost = cluster.cost.online

print(f"accuracy on shares    {np.mean(scores.argmax(1) == labels):.1%}")
print(f"accuracy in plaintext {np.mean(model(images).argmax(1) == labels):.1%}")
print(f"{cost.rounds} rounds, {cost.bytes_sent[0] / len(images):.0f} bytes an image each way")
