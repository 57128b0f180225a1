"""Options of `solve` and `certify` as parameters of an estimator."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

from skood.decision._solver import INFEASIBLE, SOLVERS
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions

GUARANTEES = ("high_probability", "ltt", "expectation")


class Solver(SkoodEstimator):
    """Search for the best operating point: the options of :func:`solve`.

    Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    method : {"bnb", "exact", "grid"}, default="bnb"
        Search over angles.

    angles : {"quadrant", "full"}, default="quadrant"
        "quadrant": both scores count against acceptance.

    n_angles : int, default=360
        Number of angles of "grid", which "bnb" also evaluates.

    tol : float, default=1e-5
        Gap of the objective at which "bnb" stops.

    randomize : bool, default=False
        Accept samples at the threshold with a probability.

    infeasible : {"raise", "nearest"}, default="raise"
        Behavior if no rule meets the bounds. "nearest": return the rule closest to
        them, with a warning; not with a guarantee.

    See Also
    --------
    solve : The function, with a description of all options.
    RejectOptionClassifier : Has a solver as a parameter.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.rejection import RejectOptionClassifier, Solver
    >>> clf = RejectOptionClassifier(LogisticRegression(), solver=Solver(tol=1e-4))
    >>> clf.set_params(solver__randomize=True).solver
    Solver(randomize=True, tol=0.0001)
    """

    _parameter_constraints: dict = {
        "method": [StrOptions(set(SOLVERS))],
        "angles": [StrOptions({"quadrant", "full"})],
        "n_angles": [Interval(Integral, 2, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "randomize": ["boolean"],
        "infeasible": [StrOptions(set(INFEASIBLE))],
    }

    def __init__(
        self,
        method="bnb",
        *,
        angles="quadrant",
        n_angles=360,
        tol=1e-5,
        randomize=False,
        infeasible="raise",
    ):
        self.method = method
        self.angles = angles
        self.n_angles = n_angles
        self.tol = tol
        self.randomize = randomize
        self.infeasible = infeasible

    def _options(self):
        """Return the keyword arguments of `solve`."""
        options = self.get_params(deep=False)
        return {"solver": options.pop("method"), **options}


class Certificate(SkoodEstimator):
    r"""Kind of guarantee for new data: the options of :func:`certify`.

    Read more in the :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    method : {"high_probability", "ltt", "expectation"}, default="high_probability"
        Kind of guarantee.

    delta : float, default=0.1
        Probability, in (0, 1), that the guarantee fails.

    n_candidates : int, default=1
        Number of predictors, rules or random states from which a certified one is
        chosen with these calibration samples; `delta` is divided by it.

    split : float, default=0.4
        Share of the calibration samples that choose candidate rules; not for "ltt".

    n_angles : int, default=16
        Number of angles of "ltt".

    within : {"class", "predicted_class", "groups"} or None, default=None
        Bounds on the TPR and the risk then hold within every true class, within every
        predicted class, or within every group of the `groups` given to `fit`. Bounds
        within every true class hold for all class priors. None: for all ID samples
        together.

    thresholds : {"shared", "group"}, default="shared"
        "group": each predicted class, or each group, has its own threshold. Groups must
        then be given to `predict` as well, and samples of other groups are rejected.

    small_groups : {"raise", "pool", "skip"}, default="raise"
        What happens to groups with too few samples.

    schedule : {"each", "all"}, default="each"
        Guarantee of several certificates, of `fit` and of each call of `recalibrate`.
        "each": each certificate fails with a probability of at most `delta`. "all":
        any of them does, without an end: the m-th fails with a probability of at most
        :math:`6 \delta / (\pi^2 m^2)`, where refused ones count as well.

    See Also
    --------
    certify : The function, with a description of all options.
    RejectOptionClassifier : Has a guarantee as a parameter.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.rejection import Certificate, RejectOptionClassifier
    >>> clf = RejectOptionClassifier(
    ...     LogisticRegression(), guarantee=Certificate(delta=0.05)
    ... )
    >>> clf.set_params(guarantee__delta=0.01).guarantee
    Certificate(delta=0.01)
    """

    _parameter_constraints: dict = {
        "method": [StrOptions(set(GUARANTEES))],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "split": [Interval(Real, 0, 1, closed="neither")],
        "n_angles": [Interval(Integral, 2, None, closed="left")],
        "within": [StrOptions({"class", "predicted_class", "groups"}), None],
        "thresholds": [StrOptions({"shared", "group"})],
        "small_groups": [StrOptions({"raise", "pool", "skip"})],
        "schedule": [StrOptions({"each", "all"})],
    }

    def __init__(
        self,
        method="high_probability",
        *,
        delta=0.1,
        n_candidates=1,
        split=0.4,
        n_angles=16,
        within=None,
        thresholds="shared",
        small_groups="raise",
        schedule="each",
    ):
        self.method = method
        self.delta = delta
        self.n_candidates = n_candidates
        self.split = split
        self.n_angles = n_angles
        self.within = within
        self.thresholds = thresholds
        self.small_groups = small_groups
        self.schedule = schedule

    def _options(self, m=1):
        """Return the keyword arguments of `certify` for the m-th certificate."""
        options = self.get_params(deep=False)
        for name in ("within", "schedule"):
            del options[name]
        if self.schedule == "all":  # sums to delta over all m
            options["delta"] = 6 * self.delta / (math.pi * m) ** 2
        return {"guarantee": options.pop("method"), **options}
