"""Concepts of handwritten digits, such as parity and loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from skood.datasets._digits_ood import ood_bunch
from skood.utils._labels import check_labels, ood_mask, put_label
from skood.utils._optional import import_pandas
from skood.utils._param_validation import validate_params

_DOMAINS = {
    "class": [str(digit) for digit in range(10)],
    "parity": ["even", "odd"],
    "has_loop": ["no", "yes"],
    "size": ["small", "large"],
    "has_curve": ["no", "yes"],
}
_WITH_LOOP = (0, 6, 8, 9)  # 4 is written with an open top
_WITHOUT_CURVE = (1, 4, 7)
_TABLE = np.array(
    [
        (
            str(digit),
            _DOMAINS["parity"][digit % 2],
            _DOMAINS["has_loop"][digit in _WITH_LOOP],
            _DOMAINS["size"][digit >= 5],
            _DOMAINS["has_curve"][digit not in _WITHOUT_CURVE],
        )
        for digit in range(10)
    ]
)


def as_concept_frame(concepts, names, caller):
    """Return concepts as a data frame with named columns."""
    pd = import_pandas(f"{caller} with as_frame=True")
    return pd.DataFrame(concepts, columns=list(names))


def check_concept_label(ood_label, domains):
    """Raise an error if the label of OOD samples is a value of a concept."""
    for name, values in domains.items():
        if ood_label in values:
            raise ValueError(
                f"ood_label={ood_label!r} is a value of the concept {name!r}. Use "
                "another label, such as -1 or 'ood'."
            )


@validate_params(
    {"y": ["array-like"], "ood_label": [Integral, str], "as_frame": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def digit_concepts(y, *, ood_label=-1, as_frame=False):
    """Return concepts of digits: parity, loops, size and curves.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Digits, integers from 0 to 9, such as the labels of MNIST; or `ood_label`.

    ood_label : int or str, default=-1
        Label of OOD samples, which is set for all their concepts.

    as_frame : bool, default=False
        Whether to return a pandas.DataFrame.

    Returns
    -------
    concepts : ndarray or DataFrame of shape (n_samples, 5)
        Strings, or `ood_label`: `class` ("0" to "9"), `parity` ("even", "odd"),
        `has_loop` ("no"; "yes" for 0, 6, 8 and 9), `size` ("small" below 5, "large")
        and `has_curve` ("yes"; "no" for 1, 4 and 7).

    Raises
    ------
    ValueError
        If `y` has other values, or `ood_label` is the value of a concept.

    ImportError
        If ``as_frame=True`` and pandas is not installed.

    See Also
    --------
    load_digit_concepts : The same for the images that come with scikit-learn.

    Examples
    --------
    >>> from skood.datasets import digit_concepts
    >>> digit_concepts([3, 8, -1]).tolist()  # doctest: +NORMALIZE_WHITESPACE
    [['3', 'odd', 'no', 'small', 'yes'],
     ['8', 'even', 'yes', 'large', 'yes'],
     [-1, -1, -1, -1, -1]]
    """
    check_concept_label(ood_label, _DOMAINS)
    y = check_labels(y)
    is_ood = ood_mask(y, ood_label=ood_label)
    unknown = ood_mask(y, classes=np.arange(10)) & ~is_ood
    if unknown.any():
        raise ValueError(
            f"y must hold digits, integers from 0 to 9, or ood_label={ood_label!r}. "
            f"Got {y[unknown].tolist()[0]!r} in sample {int(np.argmax(unknown))}."
        )
    codes = np.where(is_ood, 0, y).astype(np.int64)
    concepts = put_label(_TABLE[codes], is_ood, ood_label)
    if as_frame:
        return as_concept_frame(concepts, _DOMAINS, "digit_concepts")
    return concepts


@validate_params(
    {
        "left_out": [Integral, "array-like"],
        "ood_label": [Integral, str],
        "as_images": ["boolean"],
        "as_frame": ["boolean"],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def load_digit_concepts(
    left_out=(), *, ood_label=-1, as_images=False, as_frame=False, return_X_y=False
):
    """Load scikit-learn's digits with concepts and the rules between them.

    The 1797 gray images of 8 x 8 pixels come from
    :func:`sklearn.datasets.load_digits`, in the same order; nothing is downloaded. A
    rule for each digit gives the concepts of :func:`digit_concepts`.

    Read more in the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    left_out : int or sequence of int, default=()
        The digits whose samples are OOD.

    ood_label : int or str, default=-1
        Label of OOD samples, in `target` and in all concepts.

    as_images : bool, default=False
        Whether `data` has shape (1797, 1, 8, 8), as for convolutional networks,
        instead of (1797, 64).

    as_frame : bool, default=False
        Whether `concepts` is a pandas.DataFrame.

    return_X_y : bool, default=False
        Whether to return `(data, concepts)` instead of a Bunch.

    Returns
    -------
    digits : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (1797, 64) or (1797, 1, 8, 8), dtype float32
            Gray values in [0, 1].
        concepts : ndarray or DataFrame of shape (1797, 5)
            Strings: class, parity, has_loop, size and has_curve; or `ood_label`.
        target : ndarray of shape (1797,)
            The first column of `concepts`: "0" to "9", or `ood_label`.
        concept_names : list of str
            The names of the columns.
        domains : dict
            The values of each concept, a list of str, without the left-out digits.
        constraints : list of str
            A rule for each digit that is not left out, such as ``"class=3 ->
            parity=odd and has_loop=no and size=small and has_curve=yes"``.
        is_ood : ndarray of shape (1797,), dtype bool
            True for samples of the left-out digits.
        digit : ndarray of shape (1797,), dtype int64
            The digit, also of OOD samples.
        left_out : tuple of int
            The left-out digits, sorted.
        DESCR : str
            Description and source of the data.

    (data, concepts) : tuple if ``return_X_y=True``
        The images and their concepts.

    Raises
    ------
    ValueError
        If `left_out` contains an unknown digit, a digit twice, or all digits; if
        `ood_label` is the value of a concept.

    ImportError
        If ``as_frame=True`` and pandas is not installed.

    See Also
    --------
    digit_concepts : The concepts of other digits, such as the ones of MNIST.
    load_digits_ood : The digits without concepts.

    Examples
    --------
    >>> from skood.datasets import load_digit_concepts
    >>> digits = load_digit_concepts(left_out=(8, 9))
    >>> digits.data.shape, int(digits.is_ood.sum())
    ((1797, 64), 354)
    >>> digits.concepts[3].tolist()
    ['3', 'odd', 'no', 'small', 'yes']
    """
    check_concept_label(ood_label, _DOMAINS)
    raw = load_digits()
    bunch = ood_bunch(
        raw.images,
        raw.target,
        left_out=left_out,
        ood_label=None,
        scale=16.0,
        as_images=as_images,
        descr=raw.DESCR,
    )
    concepts = put_label(_TABLE[bunch.target], bunch.is_ood, ood_label)
    target = concepts[:, 0].copy()
    if as_frame:
        concepts = as_concept_frame(concepts, _DOMAINS, "load_digit_concepts")
    if return_X_y:
        return bunch.data, concepts
    id_digits = [digit for digit in range(10) if digit not in bunch.left_out]
    names = list(_DOMAINS)
    return Bunch(
        data=bunch.data,
        target=target,
        concepts=concepts,
        concept_names=names,
        domains={
            **{name: list(values) for name, values in _DOMAINS.items()},
            "class": [str(digit) for digit in id_digits],
        },
        constraints=[
            f"class={digit} -> "
            + " and ".join(
                f"{name}={value}"
                for name, value in zip(names[1:], _TABLE[digit, 1:], strict=True)
            )
            for digit in id_digits
        ],
        is_ood=bunch.is_ood,
        digit=bunch.target,
        left_out=bunch.left_out,
        DESCR=(
            "The digits of sklearn.datasets.load_digits with concepts; the samples of "
            "the digits in `left_out` are out-of-distribution.\n\n" + raw.DESCR
        ),
    )
