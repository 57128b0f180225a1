r"""
=============================
Detecting adversarial inputs
=============================

An adversarial input is changed slightly so that a network errs. Other networks
need not make the same error, so that it may have a high epistemic uncertainty.
Here images of digits are attacked in two ways, and five uncertainties of one
small convolutional network are used to detect them. The example shows that the
performance depends on the attack: entropy is good until the attack makes the network
confident, and then only methods with very different networks are left.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# The network
# -----------
#
# Dropout is for one of the methods only. One thread is enough for small networks.
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from skood.datasets import load_digits_ood
from skood.nn import TorchClassifier

X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=1000, test_size=100, stratify=y, random_state=0
)
network = TorchClassifier(
    module_params={"channels": (8, 8), "hidden": 32, "dropout": 0.2},
    lr=3e-3,
    max_epochs=30,
    random_state=0,
)
threads = threadpool_limits(limits=1)
given = network.fit(X_train, y_train)
print(f"accuracy on {len(X_test)} clean images: {given.score(X_test, y_test):.2f}")

# %%
# Two attacks
# -----------
#
# The fast gradient sign method (FGSM) takes one step of length :math:`\epsilon`, in
# each pixel, up the gradient of the loss. Projected gradient descent (PGD) takes many
# small ones, and stays within :math:`\epsilon` of the image. Gray values are in [0, 1].
import numpy as np
import torch
from torch.nn.functional import cross_entropy


def attack(X, y, epsilon, n_steps):
    """Change images so that their loss grows, each pixel by epsilon at most."""
    clean, codes = torch.as_tensor(X), torch.as_tensor(y)
    length = epsilon if n_steps == 1 else 2.5 * epsilon / n_steps
    images = clean.clone()
    for _ in range(n_steps):
        images.requires_grad_(True)
        loss = cross_entropy(given.module_(images), codes, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, images)
        images = images.detach() + length * gradient.sign()
        change = (images - clean).clamp(-epsilon, epsilon)
        images = (clean + change).clamp(0, 1)
    return images.numpy()


EPSILONS = (0.1, 0.2, 0.3)
attacked = {
    (name, epsilon): attack(X_test, y_test, epsilon, n_steps)
    for name, n_steps in {"FGSM": 1, "PGD": 20}.items()
    for epsilon in EPSILONS
}

# %%
# The first image of each kind, with the prediction of the network and its probability.
import matplotlib.pyplot as plt

shown = {("clean", ""): X_test, **attacked}
fig, axes = plt.subplots(3, len(shown), figsize=(10, 5), layout="constrained")
for column, ((name, epsilon), images) in zip(axes.T, shown.items(), strict=True):
    proba = given.predict_proba(images[: len(column)])
    for ax, image, p in zip(column, images, proba, strict=False):
        ax.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[], xlabel=f"{p.argmax()} ({p.max():.2f})")
    column[0].set_title(f"{name} {epsilon}")
plt.show()

# %%
# Five uncertainties
# ------------------
#
# All methods use the given network (setting "b"), frozen, so that nothing is trained
# except the five networks of the ensemble, from other seeds. Entropy is the
# aleatoric part in this setting. QUAM searches for the three most probable classes
# only, which saves two thirds of the time; everything else is the default.
from time import perf_counter

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skood.epistemic import QUAM, DeepEnsemble, Laplace, MCDropout

frozen = FrozenEstimator(given)
methods = {
    "MC dropout": MCDropout(frozen, random_state=0),
    "Laplace": Laplace(frozen, random_state=0),
    "deep ensemble": DeepEnsemble(
        clone(network), 5, reference=frozen, setting="b", random_state=1
    ),
    "QUAM": QUAM(frozen, targets=3, random_state=0),
}
for method in methods.values():
    method.fit(X_train, y_train)


def uncertainties(X):
    """Return the entropy, and the epistemic uncertainty by each method."""
    found = {name: method.predict_uncertainty(X) for name, method in methods.items()}
    entropy = found["QUAM"].aleatoric
    return {"entropy": entropy, **{name: u.epistemic for name, u in found.items()}}


start = perf_counter()
of_clean = uncertainties(X_test)
of_attacked = {key: uncertainties(images) for key, images in attacked.items()}
print(f"{perf_counter() - start:.0f} s for {len(shown) * len(X_test)} images")

# %%
# Clean or attacked?
# ------------------
#
# AUROC of attacked images against the clean ones they were made of, and the accuracy of
# the network on them. An attack that changes nothing has an AUROC of one half. With 100
# images of each kind, the standard error is about 0.03.
from skood.metrics import auroc

labels = np.r_[y_test, np.full(len(y_test), -1)]
table = {
    key: {name: auroc(labels, -np.r_[of_clean[name], u[name]]) for name in of_clean}
    for key, u in of_attacked.items()
}
print(f"{'':10}{'accuracy':>9}" + "".join(f"{name:>15}" for name in of_clean))
for (name, epsilon), row in table.items():
    accuracy = given.score(attacked[name, epsilon], y_test)
    values = "".join(f"{value:15.3f}" for value in row.values())
    print(f"{name:5} {epsilon:.1f} {accuracy:9.2f}{values}")

# %%
styles = {
    "entropy": ("k", "o", ":"),
    "MC dropout": ("#56B4E9", "v", "-."),
    "Laplace": ("#CC79A7", "^", "-."),
    "deep ensemble": ("#0072B2", "s", "--"),
    "QUAM": ("#D55E00", "D", "-"),
}
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, attack_name in zip(axes, ("FGSM", "PGD"), strict=True):
    for name, (color, marker, line) in styles.items():
        values = [table[attack_name, epsilon][name] for epsilon in EPSILONS]
        ax.plot(EPSILONS, values, color=color, marker=marker, ls=line, label=name)
    ax.set(title=attack_name, xlabel=r"$\epsilon$", xticks=EPSILONS)
    ax.grid(color="0.92")
axes[0].set_ylabel("AUROC, attacked against clean")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
plt.show()

# %%
# What happens in a search
# ------------------------
#
# :class:`~skood.epistemic.AdversarialModelDisplay` draws the searches for one image: a
# line for each target class of the search. First for the clean image
# on the left above, then for the result of PGD.
from skood.epistemic import AdversarialModelDisplay

for name, images in {"clean": X_test, "PGD 0.2": attacked["PGD", 0.2]}.items():
    display = AdversarialModelDisplay.from_estimator(methods["QUAM"], images[:1])
    said = given.predict(images[:1])[0]
    display.figure_.suptitle(f"{name}: a {y_test[0]}, called {said}")
plt.show()
threads.restore_original_limits()

# %%
# What is seen
# ------------
#
# Small changes (0.1) are detected by all scores about equally, because the network is
# no longer confident: AUROC of 0.78 to 0.86, QUAM being the last. If an attack
# continues until the network is confident in another class (PGD, 0.2 and 0.3), its
# entropy is weak (0.64) or useless (0.51), and so are models near it (MC dropout and
# Laplace: 0.50 to 0.62). Models that are farther away are better: the search of QUAM
# (0.71, 0.69), and most of all the networks that were trained separately, which the
# attack does not use (0.85, 0.73). The ensemble is the best for every attack. This is
# one network and 100 images, so that differences of a few hundredths are not
# significant.
