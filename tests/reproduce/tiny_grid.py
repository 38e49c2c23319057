"""A grid of a few small networks: the whole study in a second."""

TINY = """
[data]
n = 240
train = 0.5

[training]
epochs = 8
batch_size = 60
learning_rates = [0.02, 0.05]
hidden = [[8], [6, 4]]

[[methods]]
name = "softmax"
title = "Softmax"
scores = ["entropy", "free_energy", "bernoulli_variance"]

[[methods]]
name = "ensemble"
title = "Deep ensemble"
members = [3]
scores = ["total_entropy", "aleatoric_entropy", "mutual_information"]

[[methods]]
name = "dropout"
title = "MC dropout"
dropout = [0.2]
samples = [4]
scores = ["total_entropy", "mutual_information", "predicted_class_variance"]

[[paper]]
metric = "uq_auc"
truth = "kendall_phi"
r = 0.9456
low = 0.9336
high = 0.9555
"""

TINY_OOD = (
    TINY.split("[[paper]]")[0]
    + """
[features]
shrinkage = 0.01
k = 5

[foreign]
across = 4.0
beyond = 5.0
around = 6.0
"""
)
