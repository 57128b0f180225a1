"""Certificates of candidate rules that a user chose."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import operator
from numbers import Real

import numpy as np
from sklearn.utils import check_random_state

from skood.decision._base_rule import as_requested
from skood.decision._certified_path import RuleCertificate, sequence
from skood.decision._distribution_shift import (
    check_guarantee,
    checked_unlabeled,
    statement_tests,
    weighted,
    with_margin,
)
from skood.decision._operating_point import OperatingPoint
from skood.decision._options import checked_certificate
from skood.decision._path_certificates import (
    certified,
    check_attainable,
    check_path_losses,
    described,
)
from skood.decision._scored_samples import checked_samples
from skood.decision._statements import TestedSamples, text_of
from skood.exceptions import NotCertifiableError
from skood.stats._rate_tests import is_sorted
from skood.utils._param_validation import validate_params
from skood.utils._ties import GUARD


def _checked_path(path):
    """Return candidates (theta, lam, scales) of a user's path."""
    candidates = []
    for point in path:
        if isinstance(point, OperatingPoint):
            if point.tau != 1 or point.has_two_thresholds or point.has_group_thresholds:
                raise ValueError(
                    "path must have rules with one threshold that accept all samples "
                    f"at it, got {point!r}."
                )
            candidates.append((point.theta, point.lam, point.scales))
        else:
            scales = tuple(point.get("scales", (1.0, 1.0)))
            candidates.append((float(point["theta"]), float(point["lam"]), scales))
    if not candidates:
        raise ValueError("path is empty; pass at least one rule.")
    return candidates


@validate_params(
    {
        "path": ["array-like"],
        "stakes": [Real, "array-like", None],
        "two_valued": ["boolean"],
        "starts": ["array-like"],
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
    starts=(0,),
):
    r"""Certify rules of one's own, in their order, on samples that did not choose them.

    The rules are tested one after the other, the safest should be first, until one is
    not certified. The last certified one is returned; with a probability of at least
    ``1 - delta`` all statements of `rule` hold for it on new data. Read more in the
    :ref:`User Guide <guarantees_details>`.

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
        Scores of unlabeled samples in deployment, as for :func:`certify`.

    random_state : int, RandomState instance or None, default=None
        Draws the order in which bets are placed on the samples, so that their given
        order, which may be sorted, does not matter. p-values that are no bets do not
        depend on it. With ``sampling="mixture"``, None keeps the given order, which
        must be the order of arrival.

    starts : list of int, default=(0,)
        Candidates at which tests start, each with an equal fraction of `delta`. After
        one that is not certified, tests continue at the next start.

        .. versionadded:: 0.2

    Returns
    -------
    point : OperatingPoint
        The rule, with its `certificate`, whose ``path_pvalues`` has the p-values of all
        candidates: within each statement, its groups or sources in sorted order.

    Raises
    ------
    NotCertifiableError
        If no candidate is certified.
    ValueError
        As :func:`certify`; if `path` is empty, if a statement needs stakes, or if the
        order of bets on a mixture is not known, since samples are sorted.

    See Also
    --------
    certify : Chooses the path on a part of the samples.

    Notes
    -----
    Candidates are tested as in "path" in the notes of :func:`certify`: neither the
    number of statements nor the length of the path weakens the tests. With J starts the
    level of a candidate is :math:`\delta / J` at a start, else 0, plus the level of the
    one before if that is certified. Until a false candidate is certified, the level at
    a false one is at most the sum of the fractions since the false one before; these
    sum to :math:`\delta`.

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
    samples = checked_samples(rule, samples, certificate, unlabeled)
    if unlabeled is not None:
        unlabeled = checked_unlabeled(unlabeled, samples.ood is not None)
    if samples.weight is not None:
        samples = weighted(samples, unlabeled, certificate.shift)
    check_guarantee(rule, samples, unlabeled, certificate)
    candidates = _checked_path(path)
    starts = np.unique(starts)
    if not (starts.size and np.isin(starts, range(len(candidates))).all()):
        raise ValueError(
            f"starts must be indices of the {len(candidates)} rules of the path, got "
            f"{starts.tolist()}."
        )
    tv, together = certificate.shift.tv, certificate.sampling == "mixture"
    bounds = [with_margin(bound, tv, max_loss) for bound in rule.statements()]
    two_valued = two_valued and stakes is None
    if not together or random_state is not None:  # in random order: bets are valid
        rng = check_random_state(random_state)
        samples = samples.split(0.0, rng, together=together)[1]
    elif not two_valued:
        _check_order(samples)
    if rule.error_rates or any(map(operator.attrgetter("loss"), bounds)):
        check_path_losses(samples, max_loss)
    labels = [
        None if label is None else np.unique(label).tolist()
        for label in (samples.by_kind("group")[0], samples.by_kind("source")[1])
    ]
    how = two_valued, certificate, samples, unlabeled
    tested = TestedSamples(
        statement_tests(rule, bounds, labels, *how), samples, unlabeled
    )
    if not tested.tests:
        raise ValueError(f"{as_requested(rule)} has no bound that a path could break.")
    check_attainable(tested.tests)
    of_tests = _stakes_of(tested.tests, stakes, tested.sizes)
    passed, failed = sequence(
        tested,
        candidates,
        lambda k: of_tests,
        delta / len(starts),
        weights=np.isin(np.arange(len(candidates)), starts),
        stop=False,
    )
    pvalues = np.array([{**passed, **failed}[k] for k in range(len(candidates))])
    if not passed:
        first, limit = starts[0], delta / len(starts)
        worst = int(np.argmax(pvalues[first] > limit))
        several = f" / {len(starts)} starts" if len(starts) > 1 else ""
        raise NotCertifiableError(
            f"The {'first' if first == 0 else 'starting'} rule of the path is not "
            f"certified: {text_of(tested.tests[worst])} has a p-value of "
            f"{pvalues[first, worst]:.3g}, which is above delta={delta:g}{several}.",
            factor=math.nan,
        )
    about = described(samples, unlabeled, certificate.shift)
    about |= {"n_candidates": len(candidates), "n_certified": len(passed)}
    of_path = RuleCertificate(delta, (), **about, path_pvalues=pvalues)
    last = max(passed)
    return certified(rule, tested, candidates[last], passed[last], of_path)


def _check_order(samples):
    """Raise if the order of samples, in which bets are placed, depends on them."""
    for name in ("is_ood", "risk", "ood", "loss"):
        values = getattr(samples, name)
        if values is not None and is_sorted(values):
            raise ValueError(
                f"The samples are sorted by {name}, but bets on a mixture require the "
                "order of arrival. Pass ScoredSamples in this order, ID and OOD "
                "samples interleaved; or random_state, which draws an order."
            )


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
    return list(map(_stake_of, tests, stakes, sizes))


def _stake_of(test, stake, sizes):
    """Return the stakes of a test, or raise if a bet could lose more than there is."""
    if not test.bets:
        return None
    stakes = test.stakes_per_sample(stake, *sizes)
    worst = max(map(operator.mul, stakes, test.largest_losses))
    if stake < 0 or worst > 1 + GUARD:
        most = math.inf if worst <= 0 else stake / worst
        raise ValueError(
            f"The stake of the statement {text_of(test)} must be in [0, {most:.4g}], "
            f"or its test would not be valid; got {stake!r}."
        )
    return stakes if len(stakes) > 1 else stakes[0]
