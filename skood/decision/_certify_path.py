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
from skood.decision._distribution_shift import (
    check_guarantee,
    shifted,
    statement_tests,
    with_margin,
)
from skood.decision._operating_point import OperatingPoint
from skood.decision._options import checked_certificate
from skood.decision._path_certificates import (
    certified,
    check_attainable,
    check_path_losses,
)
from skood.decision._scored_samples import checked_samples
from skood.decision._statements import Part, text_of
from skood.exceptions import NotCertifiableError
from skood.utils._param_validation import validate_params
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
        "stakes": [Real, "array-like", None],
        "two_valued": ["boolean"],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def certify_path(
    rule,
    path,
    samples,
    certificate=None,
    *,
    stakes=None,
    two_valued=True,
    unlabeled=None,
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

    samples : ScoredSamples
        Samples with groups and sources, as for :func:`certify`. They must not have been
        used to choose the path.

    certificate : Certificate, default=None
        Its `delta`, `max_loss` and `shift` are used. None: ``Certificate()``.
        Importance weights need `stakes`, each at most one over the largest weighted
        loss.

    stakes : float or list of float, default=None
        Stakes of bets, one or one per statement, which makes `two_valued` false. They
        must not be so large that a bet can lose more than the wealth. None: stakes
        that follow the samples before, for the selective risk without weights.

    two_valued : bool, default=True
        Losses are 0 or `max_loss`; other losses count as `max_loss` if positive. False:
        the selective risk is tested by betting, which uses the size of losses.

    unlabeled : tuple (risk, ood) of array-like, default=None
        Scores of unlabeled samples in use, as for :func:`certify`.

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
    >>> from skood.rejection import BoundedTPRFPR, ScoredSamples, certify_path
    >>> rng = np.random.default_rng(0)
    >>> risk_id, risk_ood = rng.normal(size=500), rng.normal(3.0, size=300)
    >>> path = [{"theta": 0.0, "lam": lam} for lam in (1.4, 1.2, 1.1, 1.0, 0.8)]
    >>> rule = BoundedTPRFPR(tpr_min=0.8, fpr_max=0.1)
    >>> scores = risk_id, None, np.zeros(500), risk_ood, None
    >>> point = certify_path(rule, path, ScoredSamples.from_arrays(*scores))
    >>> point.lam, point.certificate.n_certified
    (1.0, 4)
    """
    certificate = checked_certificate(certificate)
    delta, max_loss = certificate.delta, certificate.max_loss
    samples = checked_samples(rule, samples)
    samples, unlabeled = shifted(samples, unlabeled, certificate.shift)
    own = type(rule)._point is not BaseRule._point
    check_guarantee(rule, samples, unlabeled, certificate, own)
    candidates = _checked_path(path)
    tv = certificate.shift.tv
    bounds = [with_margin(bound, tv, max_loss) for bound in rule.statements()]
    # in random order, so that bets are valid
    part = Part(samples, unlabeled).split(0.0, check_random_state(random_state))[1]
    check_path_losses(bounds, part.loss, max_loss)
    groups, sources = (
        None if one is None else np.unique(one).tolist()
        for one in (part.group, part.source)
    )
    is_two_valued = two_valued and stakes is None
    how = groups, sources, is_two_valued, certificate, part
    tests = statement_tests(rule, bounds, *how)
    check_attainable(tests)
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
    counts = *samples.sizes, len(candidates), len(found), (), (), pvalues
    about = RuleCertificate(delta, (), *counts)
    last = max(found)
    return certified(rule, part, tests, candidates[last], found[last], about)


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
