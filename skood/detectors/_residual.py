"""Norm of the residual of features outside the principal space (Residual)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._explain import ReferencePoints
from skood.detectors._common._principal_space import PrincipalSpace, added_scatter
from skood.utils._array_api import to_host
from skood.utils._param_validation import Interval, StrOptions


class Residual(OutputDetector):
    r"""Negative norm of the residual outside the principal space (Residual) [1]_.

    .. math:: s(x) = -\lVert (z - u) N \rVert_2, \qquad u = -W^+ b

    where W, b are weights and biases of the linear head, and the columns of N are the
    eigenvectors of :math:`\sum_i (z_i - u)(z_i - u)^\top`, a sum over the training
    samples, outside the principal space. Features in float32 are projected in float32.
    `partial_fit` adds samples, and `explain` returns the contributions of the features
    to the residual.

    The eigenvectors are computed from squares: if the distance of features from u is r
    times their spread, the relative error is about :math:`2 \cdot 10^{-16} r^2`, and
    `partial_fit` agrees with `fit` to this precision only.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and head are used; cloned and fitted unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features,
        and a linear head is fitted on ``(X, y)``.

    n_components : "auto", int or float, default="auto"
        Dimension of the principal space: "auto" is 512 for 1,024 or more features,
        256 for 512 or more, else half of them (and half of the rank, with a
        warning, if training features have no rank beyond that); a float in (0, 1)
        is the fraction of the squared length that it must explain.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    n_components_ : int
        Dimension of the principal space.

    origin_ : ndarray of shape (n_features,)
        The origin u.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    ViM : Combines the residual with the energy of the logits.

    References
    ----------
    .. [1] H. Wang, Z. Li, L. Feng, W. Zhang. "ViM: Out-of-distribution with
       virtual-logit matching". CVPR 2022.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import Residual
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> detector = Residual(LogisticRegression(max_iter=500)).fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.76
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "n_components": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "head"})

    def __init__(
        self,
        estimator=None,
        *,
        n_components="auto",
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.n_components = n_components

    def _begin(self, outputs, y):
        self.origin_ = outputs.head.origin

    def _added(self, sums, chunk, labels):
        return added_scatter(sums, chunk, self.origin_)

    def _settle(self, outputs, y):
        self._settle_space()

    def _settle_space(self):
        self._space = PrincipalSpace(self._sums, self.origin_, self.n_components)
        self.n_components_ = self._space.dimension

    def _removed(self, sums, chunk):
        return sums - added_scatter(None, chunk, self.origin_)

    _without_each = OutputDetector._without_blocks

    def _score_outputs(self, outputs):
        return -self._space.residuals(outputs)

    def _onnx_score(self, outputs):
        return -self._space.onnx_residuals(outputs.features)

    def _explained(self, outputs):
        columns = {"residual": to_host(self._space.residuals(outputs))}
        gaps = self._space.residual_vectors(outputs.features)
        return (
            columns,
            gaps**2,
            ReferencePoints(outputs.features - gaps, "other columns"),
        )
