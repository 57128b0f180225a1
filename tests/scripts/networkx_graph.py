"""Unknown nodes of a networkx graph: attributes as features, a network, a detector."""

import networkx as nx
import numpy as np
from sklearn.frozen import FrozenEstimator

from skood.detectors import Energy
from skood.graph import GraphClassifier, NodeSet, Propagation

rng = np.random.default_rng(0)
groups = ["chess", "tennis", "music"]
graph = nx.random_partition_graph([60, 60, 60], 0.15, 0.01, seed=0)
for node in graph:
    group = graph.nodes[node]["block"]
    graph.nodes[node].update(
        club=groups[group],
        age=rng.normal(30 + 10 * group, 5),
        interests=rng.normal(2 * np.eye(3)[group], 1),
    )

nodes = NodeSet.from_networkx(graph, ["age", "interests"], labels="club")
nodes = nodes.with_features(nodes.features / nodes.features.std(axis=0))
y = nodes.labels
known = y != "music"  # a club without labels
train = known & (rng.uniform(size=len(y)) < 0.5)

network = GraphClassifier("gcn", random_state=0).fit(nodes[train], y[train])
accuracy = network.score(nodes[known & ~train], y[known & ~train])
energy = Energy(FrozenEstimator(network))
detector = Propagation(energy, scheme="gnnsafe").fit(nodes[train], y[train])
auroc = detector.score(nodes[~train], y[~train])
print(f"accuracy {accuracy:.2f}, AUROC of members of another club {auroc:.2f}")
assert accuracy > 0.9
assert auroc > 0.7
