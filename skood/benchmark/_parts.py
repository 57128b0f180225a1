"""Training, validation and test samples of the demo."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os

import numpy as np
from sklearn.utils import Bunch

from skood.datasets import fetch_mnist, load_digits_ood, load_idx_images

OOD = -1
_MOST_TRAIN, _MOST_TEST = 7_000, 3_000
_TEST_FRACTION = 0.3


def load(name, folder, left_out=()):
    """Load "digits", "mnist" or a folder of IDX files; classes `left_out` are OOD.

    Returns a Bunch, see :func:`skood.datasets.load_idx_images`.
    """
    if name == "digits":
        return load_digits_ood(left_out, as_images=True)
    if folder is None:
        if name != "mnist":
            raise ValueError(
                f"{name!r} is read from IDX files, but no data folder was given; give "
                f"the parent of the folder {name!r} (--data DIR, or folder=)."
            )
        try:
            return fetch_mnist(left_out=left_out)
        except (ImportError, OSError) as exc:
            raise OSError(
                f"MNIST could not be fetched from OpenML ({exc}); give the folder that "
                "contains a folder 'mnist' of IDX files (--data DIR, or folder=)."
            ) from exc
    if not name or not (folder / name).is_dir():
        there = sorted(path.name for path in folder.iterdir() if path.is_dir())
        more = f" and {len(there) - 5} more" if len(there) > 5 else ""
        raise FileNotFoundError(
            f"{folder} contains no folder {name!r}, "
            f"only {there[:5] or 'no folders'}{more}."
        )
    return load_idx_images(folder / name, left_out=left_out)


def _check_folder(options):
    """Raise an error if the data folder is given but missing or not used."""
    if options.folder is None:
        return
    if not options.folder.is_dir():
        raise FileNotFoundError(f"{options.folder} is not a folder.")
    if {options.id_data, options.ood_data} <= {"digits", None}:
        raise ValueError(
            f"{options.folder} was given as data folder, but 'digits' come with "
            "scikit-learn; name the data in it (--id and --ood, id_data= and ood_data=)"
            "."
        )


def stratified_order(labels, rng):
    """Return indices in a random order with each class's fraction in every stretch.

    The j-th of the n samples of a class is at the position (j + u) / n, u random in [0,
    1).
    """
    place = np.empty(len(labels))
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        place[members] = (np.arange(len(members)) + rng.uniform()) / len(members)
    return np.argsort(place, kind="stable")


def _sizes(n_samples, options):
    """Return the numbers of ID samples to train on and to hold out."""
    n_train, n_test = options.n_train, options.n_test
    if n_test is None:
        n_test = min(_MOST_TEST, round(_TEST_FRACTION * n_samples))
        if n_train is not None:
            n_test = min(n_test, n_samples - n_train)
    if n_train is None:
        n_train = min(_MOST_TRAIN, n_samples - n_test)
    if n_train < 1 or n_test < 3 or n_train + n_test > n_samples:
        requested = [
            f"{n} ID samples to {what}"
            for n, what in ((options.n_train, "train on"), (options.n_test, "hold out"))
            if n is not None
        ]
        raise ValueError(
            f"{' and '.join(requested) or 'Training samples and 3 to hold out'} are "
            f"needed, but {options.id_data!r} has {n_samples} ID samples in all; at "
            "least 3 are held out."
        )
    return n_train, n_test


def _check_classes(X_train, y_train, options):
    """Raise an error unless there are classes with two distinct samples each."""
    classes, counts = np.unique(y_train, return_counts=True)
    if len(classes) < 2:
        raise ValueError(
            f"All ID training samples of {options.id_data!r} are of class "
            f"{classes[0]}; a classifier needs two classes. Leave fewer classes out, "
            "or train on more samples."
        )
    if counts.min() < 2:
        raise ValueError(
            f"Of the {len(y_train)} training samples only one is of class "
            f"{classes[counts.argmin()]}; at least two of each class are needed. "
            "Train on more samples."
        )
    first = {label: X_train[y_train == label][0] for label in classes}
    if all(np.array_equal(x, first[c]) for x, c in zip(X_train, y_train, strict=True)):
        raise ValueError(
            f"All ID training images of {options.id_data!r} in one class are the same; "
            "there is nothing to learn about how they vary. Look at the files."
        )


def _load_both(options):
    """Return images and labels of the ID samples, then of the OOD samples."""
    _check_folder(options)
    images = load(options.id_data, options.folder, options.left_out)
    is_id = ~images.is_ood
    X, y, X_ood, y_ood = (
        images.data[is_id],
        images.target[is_id],
        images.data[~is_id],
        images.target[~is_id],
    )
    if options.ood_data is not None:
        others = load(options.ood_data, options.folder)
        X_ood, y_ood = others.data, others.target
        if X.shape[1:] != X_ood.shape[1:]:
            raise ValueError(
                f"Images of {options.id_data!r} are of {X.shape[2]} x {X.shape[3]} "
                f"pixels, images of {options.ood_data!r} of {X_ood.shape[2]} x "
                f"{X_ood.shape[3]}; choose data of one size."
            )
    if len(X_ood) < 3:
        raise ValueError(
            f"{options.ood_name!r} has {len(X_ood)} OOD samples; at least 3 are needed."
        )
    return X, y, X_ood, y_ood


def prepare(options):
    """Load the data and split them; return a Bunch of samples, labels and `sizes`.

    OOD samples of the validation part are not in the table if there are enough;
    otherwise they are a third of the held-out OOD samples, and not in the test part
    `is_test`.
    """
    X, y, X_ood, y_ood = _load_both(options)
    n_train, n_test = _sizes(len(X), options)
    rng = np.random.RandomState(options.random_state)
    train, held = np.split(stratified_order(y, rng)[: n_train + n_test], [n_train])
    _check_classes(X[train], y[train], options)
    ood_order = stratified_order(y_ood, rng)
    ood_held = ood_order[:n_test]
    val, ood_val = held[: n_test // 3], ood_order[-(len(ood_held) // 3) :]
    if options.out is not None:
        _make_folder(options.out)
    is_test = np.concatenate([~np.isin(held, val), ~np.isin(ood_held, ood_val)])
    return Bunch(
        X_train=X[train],
        y_train=y[train],
        X_held=np.concatenate([X[held], X_ood[ood_held]]),
        y_held=np.concatenate([y[held], np.full(len(ood_held), OOD)]),
        is_test=is_test,
        X_val=np.concatenate([X[val], X_ood[ood_val]]),
        y_val=np.concatenate([y[val], np.full(len(ood_val), OOD)]),
        sizes={
            "train": {"id": n_train, "ood": 0},
            "held_out": {"id": n_test, "ood": len(ood_held)},
            "validation": {"id": len(val), "ood": len(ood_val)},
            "test": {
                "id": int(is_test[:n_test].sum()),
                "ood": int(is_test[n_test:].sum()),
            },
        },
    )


def _make_folder(folder):
    """Create the folder of the results before the computation."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written to.")
