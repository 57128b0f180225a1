"""Loader of scikit-learn's handwritten digits with left-out classes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from skood.utils._param_validation import validate_params


def _left_out_labels(left_out, classes):
    """Return `left_out` as a sorted tuple of known, distinct integers."""
    if isinstance(left_out, str) and left_out == "all":
        return tuple(int(c) for c in classes)
    labels = (left_out,) if isinstance(left_out, Integral) else tuple(left_out)
    known = {int(c) for c in classes}
    unknown = [c for c in labels if c not in known]
    if unknown:
        raise ValueError(
            f"left_out={left_out!r} names {unknown}, which are no classes of this "
            f"data set. Choose among {sorted(known)}."
        )
    if len(set(labels)) < len(labels):
        raise ValueError(
            f"left_out={left_out!r} names a class twice. Name each class once."
        )
    if len(labels) == len(known) > 0:
        raise ValueError(
            f"left_out={left_out!r} leaves out all {len(known)} classes, so that no "
            "in-distribution sample remains. Keep at least one class."
        )
    return tuple(sorted(int(c) for c in labels))


def ood_bunch(images, labels, *, left_out, ood_label, scale, as_images, descr):
    """Return the Bunch of a loader: gray images (n, height, width), integer labels.

    For `left_out`, `ood_label` and `as_images` see `load_idx_images`; gray values are
    divided by `scale`.
    """
    classes = np.unique(labels)
    left_out = _left_out_labels(left_out, classes)
    target = labels.astype(np.int64)
    is_ood = np.isin(target, np.asarray(left_out, dtype=np.int64))
    if ood_label is not None:
        id_classes = sorted({int(c) for c in classes} - set(left_out))
        if ood_label in id_classes:
            raise ValueError(
                f"ood_label={ood_label!r} is one of the classes that are kept, "
                f"{id_classes}. Use a number that is no class, such as -1."
            )
        target[is_ood] = ood_label
    n_samples, height, width = images.shape
    data = images.astype(np.float32)
    data /= np.float32(scale)
    shape = (n_samples, 1, height, width) if as_images else (n_samples, height * width)
    return Bunch(
        data=data.reshape(shape),
        target=target,
        is_ood=is_ood,
        left_out=left_out,
        target_names=classes.astype(np.int64),
        DESCR=descr,
    )


@validate_params(
    {
        "left_out": [Integral, "array-like"],
        "scaled": ["boolean"],
        "as_images": ["boolean"],
        "ood_label": [Integral, None],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_digits_ood(
    left_out=(7, 8, 9),
    *,
    scaled=True,
    as_images=False,
    ood_label=None,
    return_X_y=False,
):
    """Load scikit-learn's digits with some classes out-of-distribution.

    The 1797 gray images of 8 x 8 pixels come from
    :func:`sklearn.datasets.load_digits`, in the same order; nothing is downloaded.
    The samples of the classes in `left_out` are OOD: near OOD, since they are digits
    as well.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    left_out : int or sequence of int, default=(7, 8, 9)
        The classes whose samples are OOD. Empty: none.

    scaled : bool, default=True
        Whether to divide gray values by 16, so that they lie in [0, 1].

    as_images : bool, default=False
        Whether `data` has shape (1797, 1, 8, 8), as for convolutional networks,
        instead of (1797, 64).

    ood_label : int, default=None
        Target of OOD samples. None: their target is the digit, which is sufficient
        for an estimator fitted on the other samples, since a label outside its
        `classes_` is OOD.

    return_X_y : bool, default=False
        Whether to return `(data, target)` instead of a Bunch.

    Returns
    -------
    digits : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (1797, 64) or (1797, 1, 8, 8), dtype float32
            Gray values.
        target : ndarray of shape (1797,), dtype int64
            The digit, or `ood_label` for OOD samples if it was given.
        is_ood : ndarray of shape (1797,), dtype bool
            True for samples of the left-out classes.
        left_out : tuple of int
            The left-out classes, sorted.
        target_names : ndarray of shape (10,)
            All digits.
        DESCR : str
            Description and source of the data.

    (data, target) : tuple if ``return_X_y=True``
        The two arrays.

    Raises
    ------
    ValueError
        If `left_out` contains an unknown class, a class twice, or all classes; if
        `ood_label` is a class that is not left out.

    See Also
    --------
    skood.model_selection.LeaveClassesOut : Leave out each class in turn.
    load_idx_images : The same for image files on disk.

    Examples
    --------
    >>> from skood.datasets import load_digits_ood
    >>> digits = load_digits_ood(left_out=(8, 9), ood_label=-1)
    >>> digits.data.shape, int(digits.is_ood.sum())
    ((1797, 64), 354)
    >>> digits.target[:10]
    array([ 0,  1,  2,  3,  4,  5,  6,  7, -1, -1])
    """
    digits = load_digits()
    bunch = ood_bunch(
        digits.images,
        digits.target,
        left_out=left_out,
        ood_label=ood_label,
        scale=16.0 if scaled else 1.0,
        as_images=as_images,
        descr=(
            "The digits of sklearn.datasets.load_digits; the samples of the classes in "
            "`left_out` are out-of-distribution.\n\n" + digits.DESCR
        ),
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
