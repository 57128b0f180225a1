"""Certificates of candidate rules that a user chose."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import operator
from numbers import Real

import numpy as np
from sklearn.utils import check_random_state

from skood.decision._base_rule import BaseRule
from skood.decision._certified_path import RuleCertificate, sequence
from skood.decision._check_problem import check_problem
from skood.decision._distribution_shift import (
    check_guarantee,
    check_shift,
    statement_tests,
    with_margin,
)
from skood.decision._operating_point import OperatingPoint
from skood.decision._path_certificates import (
    certified,
    check_attainable,
    check_labels,
    check_path_losses,
    part_of,
)
from skood.decision._statements import text_of
from skood.exceptions import NotCertifiableError
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._ties import GUARD


def _checked_path(path):
    """Return candidates (theta, lam, scales) of a user's path."""
    found = []
    for one in path:
        if isinstance(one, OperatingPoint):
            if one.tau != 1 or one.has_two_thresholds or one.has_group_thresholds:
                raise ValueError(
                    "path must have rules with one threshold that accept all samples "
                    f"at it, got {one!r}."
                )
            found.append((one.theta, one.lam, one.scales))
        else:
            scales = tuple(one.get("scales", (1.0, 1.0)))
            found.append((float(one["theta"]), float(one["lam"]), scales))
    if not found:
        raise ValueError("path is empty; pass at least one rule.")
    return found


@validate_params(
    {
        "path": ["array-like"],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "max_loss": [Interval(Real, 0, None, closed="neither")],
        "stakes": [Real, "array-like", None],
        "two_valued": ["boolean"],
        "unlabeled": [tuple, list, None],
        "sample_weight_id": ["array-like", None],
        "sample_weight_ood": ["array-like", None],
        "weights": [StrOptions({"importance", "frequency"})],
        "weight_max": [Interval(Real, 0, None, closed="neither"), None],
        "tv": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def certify_path(
    rule,
    path,
    risk_id,
    ood_id,
    loss_id,
    risk_ood,
    ood_ood,
    *,
    delta=0.1,
    max_loss=1.0,
    group_id=None,
    source_ood=None,
    stakes=None,
    two_valued=True,
    unlabeled=None,
    sample_weight_id=None,
    sample_weight_ood=None,
    weights="importance",
    weight_max=None,
    tv=0.0,
    random_state=None,
):
    r"""Certify rules of one's own, in their order, on samples that did not choose them.

    The rules are tested one after the other, the safest should be first. The last one
    before the first that is not certified is returned; with a probability of at least
    ``1 - delta`` all statements of `rule` hold for it on new data. Read more in the
    :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    rule : BaseRule
        The rule whose bounds are certified.

    path : list of OperatingPoint or dict
        Candidates, as operating points or mappings with `theta`, `lam` and `scales`.

    risk_id, ood_id, loss_id, risk_ood, ood_ood : array-like
        Scores and losses, as for :func:`certify`. They must not have been used to
        choose the path.

    delta : float, default=0.1
        Probability, in (0, 1), that the guarantee fails.

    max_loss : float, default=1.0
        Largest possible loss.

    group_id : array-like of shape (n_id,), default=None
        Groups; statements about ID samples must hold in each.

    source_ood : array-like of shape (n_ood,), default=None
        Sources; statements about OOD samples must hold for each.

    stakes : float or list of float, default=None
        Stakes of bets, one or one per statement, which makes `two_valued` false. They
        must not be so large that a bet can lose more than the wealth. None: stakes
        that follow the samples before, for the selective risk without weights.

    two_valued : bool, default=True
        Losses are 0 or `max_loss`; other losses count as `max_loss` if positive. False:
        the selective risk is tested by betting, which uses the size of losses.

    unlabeled, sample_weight_id, sample_weight_ood, weights, weight_max, tv
        Description of the distributions in use, as for :func:`certify`. Importance
        weights need `stakes`, each at most one over the largest weighted loss.

    random_state : int, RandomState instance or None, default=None
        Draws the order in which bets are placed on the samples, so that their given
        order, which may be sorted, does not matter. p-values that are no bets do not
        depend on it.

    Returns
    -------
    point : OperatingPoint
        The rule, with its `certificate`, whose ``path_pvalues`` has the p-values of all
        candidates: within each statement, its groups or sources in sorted order.

    Raises
    ------
    NotCertifiableError
        If the first candidate is not certified.
    ValueError
        As :func:`certify`; if `path` is empty, or if a statement needs stakes.

    See Also
    --------
    certify : Chooses the path on a part of the samples.

    Notes
    -----
    The p-value of a candidate is the largest one of its statements
    (intersection-union test), and candidates are tested at the full `delta` until the
    first is not certified (fixed sequence), so that neither the number of statements
    nor the length of the path weakens the tests.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, certify_path
    >>> rng = np.random.default_rng(0)
    >>> risk_id, risk_ood = rng.normal(size=500), rng.normal(3.0, size=300)
    >>> path = [{"theta": 0.0, "lam": lam} for lam in (1.4, 1.2, 1.1, 1.0, 0.8)]
    >>> rule = BoundedTPRFPR(tpr_min=0.8, fpr_max=0.1)
    >>> point = certify_path(rule, path, risk_id, None, np.zeros(500), risk_ood, None)
    >>> point.lam, point.certificate.n_certified
    (1.0, 4)
    """
    problem = check_problem(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood)
    labels = check_labels(problem, group_id, source_ood)
    given = (sample_weight_id, sample_weight_ood), weights, weight_max, tv, unlabeled
    problem, labels, shift = check_shift(problem, labels, *given)
    own = type(rule)._point is not BaseRule._point
    check_guarantee(rule, "high_probability", shift, labels, problem, own)
    candidates = _checked_path(path)
    bounds = [with_margin(bound, tv, max_loss) for bound in rule.statements()]
    check_path_losses(bounds, problem.loss_id, max_loss)
    groups, sources = (
        None if one is None else np.unique(one).tolist()
        for one in (labels.group, labels.source)
    )
    is_two_valued = two_valued and stakes is None
    how = groups, sources, is_two_valued, max_loss, shift
    tests = statement_tests(rule, bounds, *how)
    check_attainable(tests)
    part = _permuted(part_of(problem, labels, shift), check_random_state(random_state))
    given = _stakes_of(tests, stakes, [part.sizes(test) for test in tests])
    found, failed = sequence(
        part, tests, candidates, lambda k: given, delta, stop=False
    )
    pvalues = np.array([{**found, **failed}[k] for k in range(len(candidates))])
    if not found:
        worst = int(np.argmax(pvalues[0] > delta))
        raise NotCertifiableError(
            f"The first rule of the path is not certified: {text_of(tests[worst])} has "
            f"a p-value of {pvalues[0, worst]:.3g}, which is above delta={delta:g}."
        )
    certificate = RuleCertificate(
        delta,
        (),
        problem.size_id,
        problem.size_ood,
        len(candidates),
        len(found),
        path_pvalues=pvalues,
    )
    last = max(found)
    return certified(rule, part, tests, candidates[last], found[last], certificate)


def _permuted(part, rng):
    """Return the samples in random order, so that bets on them are valid."""
    sizes = len(part.loss), len(part.ood[0]), len(part.new[0]) if part.new else 0
    return part.take(*map(rng.permutation, sizes))


def _stakes_of(tests, stakes, sizes):
    """Return the stakes of each test from the parameter of `certify_path`."""
    if stakes is None:
        for test in tests:
            if test.needs_stakes:
                raise ValueError(
                    f"stakes must be given for the statement {text_of(test)}, which is "
                    f"tested by betting on a sum; certify() chooses them on a part of "
                    f"the samples."
                )
        return [None] * len(tests)
    if isinstance(stakes, Real):
        stakes = [stakes] * len(tests)
    if len(stakes) != len(tests):
        raise ValueError(
            f"stakes must be a number, or have one for each of {len(tests)} "
            f"statements; got {len(stakes)}."
        )
    return [_stake_of(*one) for one in zip(tests, stakes, sizes, strict=True)]


def _stake_of(test, stake, sizes):
    """Return the stakes of a test, or raise if a bet could lose more than there is."""
    if not test.bets:
        return None
    stakes = test.given_stakes(stake, *sizes)
    worst = max(map(operator.mul, stakes, test.largest_losses))
    if stake < 0 or worst > 1 + GUARD:
        most = math.inf if worst <= 0 else stake / worst
        raise ValueError(
            f"The stake of the statement {text_of(test)} must be in [0, {most:.4g}], "
            f"or its test would not be valid; got {stake!r}."
        )
    return stakes if len(stakes) > 1 else stakes[0]
