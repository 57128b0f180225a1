"""
===================================
Generated pictures of traffic signs
===================================

``make_traffic_signs`` draws signs with concepts and the rules between them. This file
has no figures.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np
from _sign_glyphs import GLYPHS, UNSEEN_GLYPHS
from _sign_images import (
    COLORS,
    SHAPES,
    SIDE,
    STYLES,
    Camera,
    draw_backgrounds,
    draw_noise,
    draw_signs,
    draw_textures,
    put_obstacles,
)
from sklearn.utils import Bunch, check_random_state

from skood.datasets._digit_concepts import as_concept_frame, check_concept_label
from skood.utils._labels import put_label
from skood.utils._param_validation import Interval, validate_params

_OOD_KINDS = ("color", "shape", "pictogram", "texture", "noise", "natural")
_WITHOUT_SIGN = ("texture", "noise", "natural")
_CHUNK = 64  # images that are drawn at once

# class: (color, shape, style, pictogram)
_SIGNS = {
    "stop": ("red", "octagon", "frame", "stop"),
    "yield": ("red", "inverted_triangle", "rim", ""),
    "no_entry": ("red", "circle", "plain", "bar"),
    "no_vehicles": ("red", "circle", "rim", ""),
    "speed_20": ("red", "circle", "rim", "20"),
    "speed_30": ("red", "circle", "rim", "30"),
    "speed_50": ("red", "circle", "rim", "50"),
    "speed_80": ("red", "circle", "rim", "80"),
    "speed_120": ("red", "circle", "rim", "120"),
    "danger": ("red", "triangle", "rim", "exclamation"),
    "curve_left": ("red", "triangle", "rim", "curve_left"),
    "curve_right": ("red", "triangle", "rim", "curve_right"),
    "pedestrians": ("red", "triangle", "rim", "walker"),
    "turn_left": ("blue", "circle", "frame", "turn_left"),
    "turn_right": ("blue", "circle", "frame", "turn_right"),
    "ahead": ("blue", "circle", "frame", "ahead"),
    "roundabout": ("blue", "circle", "frame", "roundabout"),
    "parking": ("blue", "square", "frame", "p"),
    "one_way": ("blue", "square", "frame", "long_arrow"),
    "zone_30": ("white", "square", "plain", "30"),
    "detour": ("yellow", "square", "plain", "detour"),
    "fire_extinguisher": ("red", "square", "frame", "extinguisher"),
    "railway": ("yellow", "circle", "plain", "cross"),
    "priority_road": ("yellow", "diamond", "frame", ""),
    "end_of_priority": ("yellow", "diamond", "frame", "thick_line"),
    "end_of_limits": ("white", "circle", "plain", "thin_lines"),
    "flammable": ("red", "diamond", "frame", "flame"),
    "keep_dry": ("blue", "diamond", "frame", "drops"),
    "toxic": ("white", "diamond", "plain", "skull"),
}
_CLASSES = tuple(_SIGNS)
_DOMAINS = {"class": _CLASSES, "color": COLORS, "shape": SHAPES}
_LOOKS = np.array(  # codes of shape, color, style and pictogram of each class
    [
        (
            SHAPES.index(shape),
            COLORS.index(color),
            STYLES.index(style),
            list(GLYPHS).index(glyph),
        )
        for color, shape, style, glyph in _SIGNS.values()
    ]
)


def _other_looks(column, n_values):
    """Return, for each class, looks that differ in one column from all classes."""
    known = {tuple(look) for look in _LOOKS.tolist()}
    others = []
    for look in _LOOKS:
        changed = np.tile(look, (n_values, 1))
        changed[:, column] = np.arange(n_values)
        others.append(np.array([c for c in changed if tuple(c.tolist()) not in known]))
    return others


def _count_kinds(n_samples, ood):
    """Return the number of samples of each kind of OOD."""
    if isinstance(ood, Mapping):
        unknown = [kind for kind in ood if kind not in _OOD_KINDS]
        if unknown:
            raise ValueError(
                f"ood names {unknown}, which are no kinds of OOD signs. Choose among "
                f"{list(_OOD_KINDS)}."
            )
        wrong = {
            kind: fraction
            for kind, fraction in ood.items()
            if not (isinstance(fraction, Real) and 0 <= float(fraction) <= 1)
        }
        if wrong or sum(ood.values()) > 1 + 1e-9:
            raise ValueError(
                "ood must give each kind its fraction of the samples, numbers from 0 "
                f"to 1 whose sum is at most 1. Got {dict(ood)!r}."
            )
        fractions = np.cumsum([ood.get(kind, 0.0) for kind in _OOD_KINDS])
        # rounded together: never more samples than `n_samples`
        return np.diff(np.rint(fractions * n_samples).astype(int), prepend=0)
    total = round(ood * n_samples)
    return np.array(
        [len(part) for part in np.array_split(range(total), len(_OOD_KINDS))]
    )


def _draw_looks(classes, kinds, rng):
    """Return codes (n_samples, 4) of shape, color, style and pictogram of each sign."""
    looks = _LOOKS[classes]
    for kind, column, n_values in (
        ("shape", 0, len(SHAPES)),
        ("color", 1, len(COLORS)),
    ):
        others = _other_looks(column, n_values)
        for row in np.flatnonzero(kinds == kind):
            choices = others[classes[row]]
            looks[row] = choices[rng.integers(len(choices))]
    rows = kinds == "pictogram"
    drawn = len(GLYPHS) + rng.integers(len(UNSEEN_GLYPHS), size=rows.sum())
    looks[rows, 3] = drawn
    return looks


def _draw_images(images, looks, kinds, settings, rng):
    """Draw a block of images, in place."""
    camera = Camera(settings["lighting"], settings["blur"], settings["noise"])
    images[:] = draw_backgrounds(len(images), settings["clutter"], rng)
    for kind, draw in (("texture", draw_textures), ("noise", draw_noise)):
        rows = kinds == kind
        images[rows] = draw(rows.sum(), rng)
    rows = ~np.isin(kinds, _WITHOUT_SIGN)
    signs = images[rows]
    shape, color, style, glyph = looks[rows].T
    draw_signs(signs, shape, color, style, glyph, settings["rotation"], rng)
    images[rows] = signs
    put_obstacles(images, settings["occlusion"], rng)
    camera.take(images, rng)


@validate_params(
    {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "ood": [Interval(Real, 0, 1, closed="both"), Mapping],
        "rotation": [Interval(Real, 0, 180, closed="both")],
        "occlusion": [Interval(Real, 0, 1, closed="both")],
        "clutter": [Interval(Real, 0, 10, closed="both")],
        "lighting": [Interval(Real, 0, 10, closed="both")],
        "blur": [Interval(Real, 0, 1, closed="both")],
        "noise": [Interval(Real, 0, 1, closed="both")],
        "ood_label": [Integral, str],
        "as_frame": ["boolean"],
        "return_X_y": ["boolean"],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_traffic_signs(
    n_samples=2000,
    *,
    ood=0.0,
    rotation=12.0,
    occlusion=0.25,
    clutter=1.0,
    lighting=1.0,
    blur=1.0,
    noise=0.06,
    ood_label=-1,
    as_frame=False,
    return_X_y=False,
    random_state=None,
):
    r"""Generate pictures of traffic signs, with concepts and the rules between them.

    Color images of 32 x 32 pixels show signs of 29 classes on roads: `class`, `color`
    and `shape` of each are known, and a rule for each class gives its color and its
    shape. OOD samples violate the rules (a blue stop sign, a square one), have
    pictograms of no class, or show no sign at all.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of images. All classes are equally likely.

    ood : float or mapping of kinds to floats, default=0.0
        Fraction of OOD samples. A number is divided equally among all kinds. Kinds:

        - "color": a sign of one of the classes, in a color of another;
        - "shape": a sign of one of the classes, in another shape;
        - "pictogram": a sign with color and shape of one of the classes, and an unknown
          pictogram, such as a star;
        - "texture": gratings and checkers that fill the image;
        - "noise": random colors of pixels or blocks;
        - "natural": a background without a sign.

    rotation : float, default=12.0
        Largest rotation of signs, in degrees.

    occlusion : float, default=0.25
        Probability that a branch or a pole hides a part of the image.

    clutter : float, default=1.0
        Amount of clutter behind the sign, at most 10. 0: only sky and ground.

    lighting : float, default=1.0
        Strength of darkness, gradients and casts of the light, and haze; at most 10.

    blur : float, default=1.0
        Strength of blur, at most 1.

    noise : float, default=0.06
        Largest standard deviation of the noise of pixels, which differs from image to
        image; at most 1.

    ood_label : int or str, default=-1
        Label of OOD samples, in `target` and in all concepts; not a class, color or
        shape.

    as_frame : bool, default=False
        Whether `concepts` and `drawn` are pandas.DataFrames.

    return_X_y : bool, default=False
        Whether to return `(data, concepts)` instead of a Bunch.

    random_state : int, RandomState instance or None, default=None
        Determines the images. Pass an int for reproducible output.

    Returns
    -------
    signs : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (n_samples, 3, 32, 32), dtype float32
            Red, green and blue, in [0, 1].
        concepts : ndarray or DataFrame of shape (n_samples, 3)
            Names of class, color and shape, or `ood_label` three times.
        target : ndarray of shape (n_samples,)
            The first column of `concepts`: names of classes, or `ood_label`.
        concept_names : list of str
            ``["class", "color", "shape"]``.
        domains : dict
            The values of each concept, a list of str.
        constraints : list of str
            A rule for each class, such as
            ``"class=stop -> color=red and shape=octagon"``.
        is_ood : ndarray of shape (n_samples,), dtype bool
            True for OOD samples.
        ood_kind : ndarray of shape (n_samples,)
            The kind of an OOD sample; "id" for ID samples.
        drawn : ndarray or DataFrame of shape (n_samples, 3)
            Contents of the picture, also of OOD samples: the class of the
            pictogram, color and shape. "" if there is none.
        DESCR : str
            Description of the data.

    (data, concepts) : tuple if ``return_X_y=True``
        The images and their concepts.

    Raises
    ------
    ValueError
        If `ood` contains an unknown kind, or fractions that are negative or sum to
        more than 1; if `ood_label` is one of the values of a concept.

    ImportError
        If ``as_frame=True`` and pandas is not installed.

    See Also
    --------
    load_digit_concepts : Concepts of handwritten digits.

    Notes
    -----
    A sign is an edge at a signed distance, a rim, a ground and a pictogram made of
    strokes; it is rotated, scaled, moved and seen from the side, over a random
    background. An obstacle may hide a part; light, haze, blur and noise follow.
    Arrays are of strings if `ood_label` is a string, else of objects.

    The number of samples of each kind is exact: `n_samples` times its fraction, rounded
    such that the sum is exact.
    """
    check_concept_label(ood_label, _DOMAINS)
    counts = _count_kinds(n_samples, ood)
    seed = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint32)
    rng = np.random.default_rng(seed)
    kinds = np.array(("id", *_OOD_KINDS))
    kinds = rng.permutation(kinds.repeat([n_samples - counts.sum(), *counts]))
    classes = rng.integers(len(_CLASSES), size=n_samples)
    looks = _draw_looks(classes, kinds, rng)
    settings = {
        "rotation": rotation,
        "occlusion": occlusion,
        "clutter": clutter,
        "lighting": lighting,
        "blur": blur,
        "noise": noise,
    }
    data = np.empty((n_samples, 3, SIDE, SIDE), dtype=np.float32)
    for start in range(0, n_samples, _CHUNK):
        rows = slice(start, start + _CHUNK)
        _draw_images(data[rows], looks[rows], kinds[rows], settings, rng)
    drawn = _names_of_drawn(classes, looks, kinds)
    is_ood = kinds != "id"
    concepts = put_label(drawn, is_ood, ood_label)
    target = concepts[:, 0].copy()
    if as_frame:
        concepts, drawn = (
            as_concept_frame(table, _DOMAINS, "make_traffic_signs")
            for table in (concepts, drawn)
        )
    if return_X_y:
        return data, concepts
    return Bunch(
        data=data,
        target=target,
        concepts=concepts,
        concept_names=list(_DOMAINS),
        domains={name: list(values) for name, values in _DOMAINS.items()},
        constraints=[
            f"class={name} -> color={color} and shape={shape}"
            for name, (color, shape, _, _) in _SIGNS.items()
        ],
        is_ood=is_ood,
        ood_kind=kinds,
        drawn=drawn,
        DESCR=(
            f"{n_samples} drawn images of traffic signs of {len(_CLASSES)} classes, "
            f"{is_ood.sum()} of them out-of-distribution."
        ),
    )


def _names_of_drawn(classes, looks, kinds):
    """Return class, color and shape of the content of each image as strings."""
    columns = (
        np.where(kinds == "pictogram", "", np.array(_CLASSES)[classes]),
        np.array(COLORS)[looks[:, 1]],
        np.array(SHAPES)[looks[:, 0]],
    )
    drawn = np.stack(columns, axis=1)
    drawn[np.isin(kinds, _WITHOUT_SIGN)] = ""
    return drawn
