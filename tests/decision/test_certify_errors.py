"""Tests of the errors of certified rules: the reason, and how many samples suffice."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest

from skood.exceptions import NotCertifiableError
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    certify,
    max_accepted_ood,
    min_accepted_id,
)
from tests.decision._scores import (
    GUARANTEES,
    certified,
    draw,
    increasing,
    samples_of,
)


def test_too_few_samples_of_a_kind():
    a, _, loss, a_ood, _ = increasing(n_id=10, n_ood=20)
    with pytest.raises(NotCertifiableError) as info:
        certify(BoundedTPRFPR(0.9, 0.1), samples_of(a, None, loss, a_ood + 100, None))
    assert str(info.value).startswith(
        "BoundedTPRFPR(fpr_max=0.1, tpr_min=0.9) is not certified by 10 ID and 20 OOD "
        "samples: 10 ID samples are too few for a TPR of 0.9 and 20 OOD samples are "
        "too few for an FPR of 0.1. About 29 ID and 29 OOD samples suffice"
    )
    # .9^29 < .05 < .9^28
    assert (info.value.n_id_needed, info.value.n_ood_needed) == (29, 29)


def test_only_id_samples_are_too_few():
    a = np.arange(10.0)
    with pytest.raises(NotCertifiableError, match=r"10 ID samples are too few") as info:
        certify(BoundedAbstention(0.9), samples_of(a, None, a, None, None))
    assert (info.value.n_id_needed, info.value.n_ood_needed) == (22, 0)  # .9^22 < .1


def test_no_threshold_does_both_until_there_are_more_samples():
    rng = np.random.default_rng(0)
    a, a_ood = rng.normal(size=100), rng.normal(1.9, size=80)
    loss = np.zeros(100)
    rule = BoundedTPRFPR(0.75, 0.2)
    with pytest.raises(NotCertifiableError) as info:
        certify(rule, samples_of(a, None, loss, a_ood, None))
    k, K = min_accepted_id(100, 0.75, 0.05), max_accepted_ood(80, 0.2, 0.05)
    assert (
        f"a TPR of 0.75 needs {k} of 100 ID samples accepted, an FPR of 0.2 allows {K} "
        f"of 80 OOD samples, and no threshold does both. About "
    ) in str(info.value)
    n_id, n_ood = info.value.n_id_needed, info.value.n_ood_needed
    assert n_id > 100 or n_ood > 80
    # copies of the rows have the same rates
    times = math.ceil(max(n_id / 100, n_ood / 80))
    point = certified(
        rule, np.tile(a, times), None, np.tile(loss, times), np.tile(a_ood, times), None
    )
    assert point.feasible


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_named_sizes_include_the_samples_that_choose(guarantee):
    a, b, loss, a_ood, b_ood = draw(np.random.default_rng(0), 40, 12)
    data = a, b, loss, a_ood + 9, b_ood + 9
    rule = BoundedTPRFPR(0.5, 0.06)
    with pytest.raises(NotCertifiableError, match="OOD samples are too few") as info:
        certify(rule, samples_of(*data), Certificate(guarantee), random_state=0)
    n = info.value.n_ood_needed
    n_certifying = n - int(0.4 * n)
    if guarantee == "expectation":
        assert (n_certifying + 1) * 0.06 >= 1 - 1e-9
    else:
        share = 0.05 / 16 if guarantee == "ltt" else 0.1
        assert (
            max_accepted_ood(n if guarantee == "ltt" else n_certifying, 0.06, share)
            >= 0
        )


@pytest.mark.parametrize(
    "rule",
    [BoundedTPRFPR(1.0, 0.5), BoundedTPRFPR(0.5, 0.0), BoundedAbstention(1.0)],
    ids=["tpr", "fpr", "coverage"],
)
def test_no_number_of_samples_suffices(rule):
    with pytest.raises(
        NotCertifiableError, match="No number of samples suffices"
    ) as info:
        certify(rule, samples_of(*increasing()))
    assert info.value.n_id_needed is None
    assert info.value.n_ood_needed is None


@pytest.mark.parametrize(("n_id", "n_ood"), [(1, 50), (50, 1)], ids=["id", "ood"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_single_sample_is_too_few_to_split(guarantee, n_id, n_ood):
    data = draw(np.random.default_rng(0), n_id, n_ood)
    with pytest.raises(NotCertifiableError, match="too few for "):
        certified(BoundedTPRFPR(0.6, 0.3), *data, random_state=0, guarantee=guarantee)


def test_rules_without_bounds_on_rates():
    rule = BoundedImprovement(0.1)
    message = "bounds of BoundedImprovement do not .* only guarantee='high_probability'"
    with pytest.raises(TypeError, match=message):
        certify(rule, samples_of(*increasing()), Certificate("ltt"))


def test_no_rule():
    with pytest.raises(TypeError, match=r"rule must be an instance of a rule.*0\.7"):
        certify(0.7, samples_of(*increasing()))


def test_prior_of_a_rule_without_precision():
    message = "such as BoundedPrecisionRecall; BoundedTPRFPR bounds no"
    with pytest.raises(ValueError, match=message):
        certify(BoundedTPRFPR(), samples_of(*increasing()), Certificate(ood_prior=0.3))


@pytest.mark.parametrize(
    "prior", [(0.3, 0.1), (0.1, 0.2, 0.3), (-5.0, 0.1)], ids=["order", "three", "low"]
)
def test_prior_that_is_no_interval(prior):
    with pytest.raises(
        ValueError, match=r"pair \(low, high\) with 0 <= low <= high, got"
    ):
        certified(BoundedPrecisionRecall(), *increasing(), ood_prior=prior)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guarantee": "always"}, "'method' parameter of Certificate must be a str"),
        (
            {"delta": 0},
            r"'delta' parameter of Certificate must be a float in the range \(",
        ),
        (
            {"split": 1.0},
            "'split' parameter of Certificate must be a float in the range",
        ),
        ({"n_angles": 1}, "'n_angles' parameter of Solver must be an int"),
        ({"ood_prior": "0.1"}, "'ood_prior' parameter of Certificate must be"),
        ({"solver": "best"}, "'method' parameter of Solver must be a str among"),
        ({"angles": "all"}, "'angles' parameter of Solver must be a str among"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_invalid_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        certified(BoundedTPRFPR(), *increasing(), **options)


@pytest.mark.parametrize(
    ("rule", "n", "message"),
    [
        (BoundedTPRFPR(1.0, 0.5), 100, "no number of ID samples certifies a TPR of 1"),
        (BoundedTPRFPR(0.5, 0.0), 100, "no number of OOD samples certifies an FPR"),
        (BoundedTPRFPR(0.9, 0.1), 1, "1 ID sample is too few for a TPR of 0.9 and 1"),
        (BoundedTPRFPR(0.9, 0.1), 2, "2 ID samples are too few .* 2 OOD samples are"),
    ],
)
def test_reasons(rule, n, message):
    rng = np.random.default_rng(0)
    a, a_ood = rng.normal(size=n), rng.normal(3.0, size=n)
    with pytest.raises(NotCertifiableError, match=message):
        certify(rule, samples_of(a, None, np.zeros(n), a_ood, None))


def test_sizes_are_from_the_samples_that_refused():
    rng = np.random.default_rng(41)
    c = rng.beta(6, 1.5, 1500)
    data = 1 - c, None, rng.random(1500) > c, None, None
    factors = []
    for seed in range(10):
        try:
            certify(BoundedImprovement(0.04), samples_of(*data), random_state=seed)
        except NotCertifiableError as error:
            factors.append(error.factor)
            text = str(error)
            if error.factor is not None and math.isnan(error.factor):
                assert "their number cannot be estimated" in text
                assert error.n_id_needed is None
            else:
                assert error.factor > 1.005
                assert error.n_id_needed > 1507
                assert "(1 times" not in text
    assert len(factors) >= 5
