"""Learning in parts: batches give what one fit gives."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import (
    FDBD,
    MSP,
    NCI,
    SHE,
    SSD,
    CADRef,
    CARef,
    Mahalanobis,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.detectors._common._partial_fit import RowSample
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from skood.nn._outputs import Head, NetworkOutputs
from tests._instances import output_detectors
from tests._loops import looped
from tests.detectors.test_cadref import LOGIT_SCORES

# Few rows give singular covariances, of which the detectors warn.
pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

_HEAD = FrozenEstimator(
    LinearHead(
        np.random.default_rng(3).normal(size=(3, 4)), [3.0, 2.0, 4.0], ["a", "b", "c"]
    )
)

DETECTORS = [
    Mahalanobis(),
    Mahalanobis(tied=False),
    Mahalanobis(_HEAD),
    RelativeMahalanobis(),
    SSD(),
    Residual(_HEAD, n_components=2),
    ViM(_HEAD, n_components=2),
    SHE(_HEAD),
    SHE(_HEAD, metric="cosine"),
]

each_detector = pytest.mark.parametrize("detector", DETECTORS, ids=repr)


def _data(n_samples=90, seed=0, offset=100.0):
    """Features far from the origin, whose classes a head mostly predicts."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, 4)) * [1, 2, 3, 4]
    y = _HEAD.predict(X)
    X[:, 3] += offset / 10
    X += offset * (rng.normal(size=(1, 4)) if offset else 0)
    y[:6] = list("abcabc")
    return X, y


def _learnable(detector):
    """Data on which a detector can be fitted."""
    if isinstance(detector, SHE):
        return _data(offset=0.0)
    return _data()


def _attributes(detector):
    return {
        name: value
        for name, value in vars(detector).items()
        if name.endswith("_") and not name.startswith("_") and name != "estimator_"
    }


def _assert_equal_fits(got, expected, X):
    """Scores, threshold and attributes agree to rounding."""
    scores = expected.score_samples(X)
    atol = 1e-9 * np.abs(scores).max()
    np.testing.assert_allclose(got.score_samples(X), scores, rtol=1e-9, atol=atol)
    attributes = _attributes(expected)
    assert set(_attributes(got)) == set(attributes)
    for name, value in attributes.items():
        if name in ("classes_", "feature_names_in_"):
            np.testing.assert_array_equal(getattr(got, name), value)
            continue
        tiny = 1e-9 * np.abs(value).max()
        np.testing.assert_allclose(getattr(got, name), value, rtol=1e-9, atol=tiny)


@each_detector
@looped("size", [1, 7, 90])
@looped("order", ["mixed", "by class"])
def test_batches_equal_a_single_fit(detector, size, order):
    X, y = _learnable(detector)
    if size == 1:  # each sample costs a factorization
        X, y = X[:20], y[:20]
    if order == "by class":
        indices = np.argsort(y, kind="stable")
        X, y = X[indices], y[indices]
    detector = clone(detector)
    for start in range(0, len(X), size):
        indices = slice(start, start + size)
        assert detector.partial_fit(X[indices], y[indices]) is detector
    _assert_equal_fits(detector, clone(detector).fit(X, y), X)


_CENTERED = [FDBD(), NCI(alpha=0.0), CARef()]  # by means of features


@pytest.mark.parametrize(
    "detector",
    [*_CENTERED, *(CADRef(logit_score=one) for one in LOGIT_SCORES)],
    ids=repr,
)
@pytest.mark.parametrize("to_input", [np.asarray, csr_array])
def test_calls_of_any_size_equal_a_single_fit(detector, to_input):
    X = to_input(_data(offset=0.0)[0])
    detector = clone(detector).set_params(estimator=_HEAD)
    for indices in (slice(0, 1), slice(1, 40), slice(40, 90)):
        detector.partial_fit(X[indices])
    whole = clone(detector).fit(X)
    for name in ("mean_", "location_", "mean_logit_score_"):
        if hasattr(whole, name):
            np.testing.assert_allclose(
                getattr(detector, name), getattr(whole, name), rtol=1e-12, atol=1e-13
            )
    np.testing.assert_allclose(detector.score_samples(X), whole.score_samples(X))
    assert detector.offset_ == pytest.approx(whole.offset_, rel=1e-12)


@pytest.mark.parametrize("detector", _CENTERED, ids=repr)
def test_means_far_from_the_origin(detector):
    """Sums of the features would round what they differ in."""
    rng = np.random.default_rng(0)
    Z, coef = 1e6 + 1e-3 * rng.normal(size=(5000, 6)), 1e3 * rng.normal(size=(4, 6))
    head = FrozenEstimator(LinearHead(coef, -coef @ Z.mean(axis=0)))
    whole, steps = (clone(detector).set_params(estimator=head) for _ in range(2))
    whole.fit(Z)
    for start in range(0, len(Z), 700):
        steps.partial_fit(Z[start : start + 700])
    np.testing.assert_allclose(
        steps.score_samples(Z), whole.score_samples(Z), rtol=1e-9
    )
    if isinstance(detector, CARef):
        predicted = head.predict(Z)
        actual, groups = whole.location_, [Z[predicted == k] for k in range(4)]
    else:
        actual, groups = [whole.mean_], [Z]
    exact = [
        [float(sum(map(Fraction, column)) / len(column)) for column in group.T]
        for group in groups
    ]
    np.testing.assert_allclose(actual, exact, rtol=2.3e-16)


@pytest.mark.parametrize(
    "detector", [Mahalanobis(), Mahalanobis(tied=False), SSD(), ViM(_HEAD)], ids=repr
)
def test_batches_without_labels(detector):
    X, _ = _data()
    detector = clone(detector)
    for start in range(0, len(X), 20):
        detector.partial_fit(X[start : start + 20])
    _assert_equal_fits(detector, clone(detector).fit(X), X)
    if detector.estimator is None:
        assert not hasattr(detector, "classes_")
    else:
        assert detector.classes_.tolist() == ["a", "b", "c"]


@each_detector
def test_partial_fit_continues_a_fit(detector):
    X, y = _learnable(detector)
    detector = clone(detector).fit(X[:50], y[:50])
    detector.partial_fit(X[50:], y[50:])
    _assert_equal_fits(detector, clone(detector).fit(X, y), X)


@each_detector
def test_fit_starts_anew(detector):
    X, y = _learnable(detector)
    detector = clone(detector).partial_fit(3 * X[:60], y[:60]).fit(X, y)
    expected = clone(detector).fit(X, y)
    np.testing.assert_array_equal(detector.score_samples(X), expected.score_samples(X))
    assert set(vars(detector)) == set(vars(expected))


@each_detector
def test_a_pickle_goes_on(detector):
    X, y = _learnable(detector)
    first = clone(detector).partial_fit(X[:50], y[:50])
    loaded = pickle.loads(pickle.dumps(first))
    first.partial_fit(X[50:], y[50:])
    loaded.partial_fit(X[50:], y[50:])
    np.testing.assert_array_equal(loaded.score_samples(X), first.score_samples(X))
    assert loaded.offset_ == first.offset_


@each_detector
def test_known_ood_samples_are_left_out(detector):
    X, y = _learnable(detector)
    both = np.insert(X, [3, 40, 80], 1e3, axis=0)
    labels = np.insert(y.astype("<U3"), [3, 40, 80], "zzz")
    detector = clone(detector).set_params(ood_label="zzz")
    for start in range(0, len(both), 31):
        indices = slice(start, start + 31)
        detector.partial_fit(both[indices], labels[indices])
    _assert_equal_fits(detector, clone(detector).fit(X, y), X)


@each_detector
def test_failures_change_nothing(detector, monkeypatch):
    X, y = _learnable(detector)
    detector = clone(detector).partial_fit(X[:60], y[:60])
    before, scores = dict(vars(detector)), detector.score_samples(X)
    broken = X[60:].copy()
    broken[1, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        detector.partial_fit(broken, y[60:])
    with pytest.raises(ValueError, match="X has 3 features"):
        detector.partial_fit(X[60:, :3], y[60:])
    with pytest.raises(ValueError, match="ood_label='a'"):
        clone(detector).set_params(ood_label="a").partial_fit(X[:9], ["a"] * 9)
    with pytest.raises(ValueError, match="No in-distribution samples to fit"):
        detector.partial_fit(X[60:], np.full(30, -1))
    with pytest.raises(
        ValueError, match="every call of partial_fit or in none: it was given"
    ):
        detector.partial_fit(X[60:])

    def interrupt(*args):
        raise KeyboardInterrupt

    for method in ("_settle", "_set_offset"):
        with monkeypatch.context() as patch:
            patch.setattr(type(detector), method, interrupt)
            with pytest.raises(KeyboardInterrupt):
                detector.partial_fit(X[60:], y[60:])
    assert set(vars(detector)) == set(before)
    assert all(vars(detector)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(detector.score_samples(X), scores)
    # and the batch that failed can be given again
    detector.partial_fit(X[60:], y[60:])
    _assert_equal_fits(detector, clone(detector).fit(X, y), X)


def test_labels_in_a_few_calls_only():
    X, y = _data()
    detector = SSD().partial_fit(X)
    with pytest.raises(ValueError, match=r"in every call .* it was not given before"):
        detector.partial_fit(X, y)


def test_a_first_call_that_fails_leaves_nothing():
    X, y = _data()
    detector = Mahalanobis()
    with pytest.raises(ValueError, match="No in-distribution samples"):
        detector.partial_fit(X, np.full(len(X), -1))
    assert vars(detector) == vars(Mahalanobis())
    detector.partial_fit(X[:, :3], y)  # so another width is welcome
    assert detector.n_features_in_ == 3


@pytest.mark.parametrize(
    "detector",
    [Mahalanobis(), Mahalanobis(tied=False), RelativeMahalanobis(), SSD()],
    ids=repr,
)
def test_too_few_samples_wait_for_more(detector):
    X, y = _data()
    detector = clone(detector).partial_fit(X[:1], y[:1])
    for method in (detector.score_samples, detector.decision_function):
        with pytest.raises(NotFittedError):
            method(X)
    assert not hasattr(detector, "offset_")
    with pytest.raises(ValueError, match="Give"):
        clone(detector).fit(X[:1], y[:1])
    detector.partial_fit(X[1:], y[1:])
    _assert_equal_fits(detector, clone(detector).fit(X, y), X)


def test_residual_waits_for_rank():
    X, _ = _data()
    detector = Residual(_HEAD, n_components=2).partial_fit(X[:2])
    with pytest.raises(NotFittedError):
        detector.score_samples(X)
    detector.partial_fit(X[2:])
    _assert_equal_fits(detector, clone(detector).fit(X), X)


def test_more_samples_can_make_it_wait_again():
    """A class without a correct row turns up."""
    X, y = _data(offset=0.0)
    known = (y != "c") & (_HEAD.predict(X) == y)
    detector = SHE(_HEAD).partial_fit(X[known], y[known])
    assert np.isfinite(detector.offset_)
    wrong = X[_HEAD.predict(X) == "a"][:1]
    detector.partial_fit(wrong, ["c"])
    assert not hasattr(detector, "offset_")
    rest = _HEAD.predict(X) == "c"
    detector.partial_fit(X[rest], ["c"] * rest.sum())
    assert np.isfinite(detector.score_samples(X)).all()


@pytest.mark.parametrize(
    "detector, says",
    [
        (Mahalanobis(LogisticRegression()), "Got estimator=LogisticRegression"),
        (ViM(), r"ViM.partial_fit needs a classifier that is fitted already"),
        (SHE(), "SHE.partial_fit needs a classifier .*FrozenEstimator"),
        (Residual(), "or the head of skood.nn.split. Got estimator=None"),
        (
            Mahalanobis(covariance=LedoitWolf()),
            r"LedoitWolf\(\) needs all samples at on",
        ),
        (SSD(covariance=LedoitWolf()), "SSD.partial_fit needs covariance=None"),
    ],
    ids=repr,
)
def test_no_partial_fit_where_samples_cannot_be_added(detector, says):
    assert not hasattr(detector, "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        detector.partial_fit([[0.0]])
    cause = caught.value.__cause__
    assert isinstance(cause, AttributeError)
    with pytest.raises(AttributeError, match=says):
        raise cause


def test_parameters_are_validated():
    X, y = _data()
    with pytest.raises(ValueError, match="'contamination' parameter of Mahalanobis"):
        Mahalanobis(contamination=2.0).partial_fit(X, y)


def test_names_of_the_features_are_those_of_the_first_call():
    X, y = _data()
    frame = pd.DataFrame(X, columns=list("pqrs"))
    detector = Mahalanobis().partial_fit(frame[:50], y[:50])
    detector.partial_fit(frame[50:], y[50:])
    assert list(detector.feature_names_in_) == list("pqrs")
    with pytest.raises(ValueError, match="feature names should match"):
        detector.partial_fit(frame[["q", "p", "r", "s"]], y)


# ---------------------------------------------------------------------------------
# More rows than are kept for the threshold.


@pytest.mark.parametrize(
    "detector",
    [Mahalanobis(), Mahalanobis(tied=False), RelativeMahalanobis(), SHE(_HEAD)],
    ids=repr,
)
def test_many_samples(detector):
    X, y = _data(n_samples=7000, offset=0.0)
    expected = clone(detector).fit(X, y)
    for size in (1900, 5500):
        parts = clone(detector)
        for start in range(0, len(X), size):
            parts.partial_fit(X[start : start + size], y[start : start + size])
        _assert_equal_fits(parts, expected, X[:500])
    scores = expected.score_samples(X)
    assert abs(np.mean(scores < expected.offset_) - 0.05) < 0.01


def test_alpha_of_vim_comes_from_the_stored_sample():
    X, _ = _data(n_samples=9000, offset=0.0)
    whole = ViM(_HEAD, n_components=2).fit(X)
    cuts = [(4000, 5000, 9000), (1, 8999, 9000)]
    collected = []
    for cut in cuts:
        vim = ViM(_HEAD, n_components=2)
        for start, stop in zip((0, *cut[:-1]), cut, strict=True):
            vim.partial_fit(X[start:stop])
        np.testing.assert_array_equal(vim.origin_, whole.origin_)
        collected.append(vim.alpha_)
    assert collected[0] == pytest.approx(collected[1], rel=1e-9)
    assert collected[0] == pytest.approx(whole.alpha_, rel=0.03)
    assert collected[0] != pytest.approx(whole.alpha_, rel=1e-6)


@each_detector
def test_memory_does_not_grow(detector):
    detector = clone(detector)
    sizes = []
    for seed in range(4):
        X, y = _data(n_samples=5000, seed=seed, offset=0.0)
        detector.partial_fit(X, y)
        sizes.append(len(pickle.dumps(detector)))
    assert max(sizes[1:]) <= 1.001 * sizes[0]


def _outputs(samples):
    samples = np.asarray(samples, dtype=np.float64)
    return NetworkOutputs(
        samples[:, None], np.stack([samples, -samples], axis=1), Head(None, None)
    )


def _kept(sample):
    outputs = sample.outputs()
    np.testing.assert_array_equal(outputs.logits[:, 0], outputs.features[:, 0])
    return outputs.features[:, 0]


@pytest.mark.parametrize(
    "cuts", [[], [1], [10, 11, 12], [3, 25, 80], list(range(1, 100))]
)
def test_sample_does_not_depend_on_the_cuts(cuts):
    indices = np.arange(100)
    expected = _kept(RowSample(20).updated(_outputs(indices)))
    sample = RowSample(20)
    for block in np.split(indices, cuts):
        sample = sample.updated(_outputs(block))
        assert len(_kept(sample)) == min(20, sample.n_seen)
    assert sample.n_seen == 100
    np.testing.assert_array_equal(_kept(sample), expected)
    assert np.all(np.diff(expected) > 0)


def test_sample_stores_few_samples_entirely():
    sample = RowSample(20).updated(_outputs([5, 3])).updated(_outputs([4]))
    np.testing.assert_array_equal(_kept(sample), [5, 3, 4])
    head = Head(np.eye(2), np.zeros(2))
    assert sample.outputs().head is None
    assert sample.outputs(head).head is head


def test_sample_is_uniform():
    """Rows from the first, the middle and the last part are equally frequent."""
    counts = np.histogram(
        _kept(RowSample(2000).updated(_outputs(np.arange(20_000)))), bins=8
    )[0]
    # binomial: 250 in each, standard deviation 15
    assert np.all(np.abs(counts - 250) < 60)


def test_an_update_leaves_the_old_sample_as_it_is():
    sample = RowSample(20).updated(_outputs(np.arange(30)))
    before = _kept(sample).copy()
    first, second = (sample.updated(_outputs(np.arange(30, 90))) for _ in range(2))
    np.testing.assert_array_equal(_kept(first), _kept(second))
    np.testing.assert_array_equal(_kept(sample), before)
    assert sample.n_seen == 30


def test_sample_without_the_new_batch():
    """All of its rows may have larger numbers than those kept."""
    sample = RowSample(1)
    for start in range(50):
        sample = sample.updated(_outputs([start]))
    numbers = np.random.RandomState(0).random_sample(50)
    np.testing.assert_array_equal(_kept(sample), [np.argmin(numbers)])


def test_warnings_name_the_line_of_the_user():
    X, _ = _data()
    X[1, 0] = X[0, 0]  # no variance within the classes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Mahalanobis().partial_fit(X[:3], ["a", "a", "b"])
    assert [w.category for w in caught] == [SkoodWarning] * 2
    assert "singular" in str(caught[0].message)
    assert "none can be left out" in str(caught[1].message)
    assert [w.filename for w in caught] == [__file__] * 2


_OTHER_HEAD = FrozenEstimator(LinearHead(np.eye(3, 4), classes=["a", "b", "c"]))
_OTHER_VALUES = {
    "estimator": _OTHER_HEAD,
    "logit_score": "msp",
    "max_logit": False,
    "tied": False,
}


@pytest.mark.parametrize(
    "detector, name",
    [
        (one.set_params(estimator=_HEAD), name)
        for one in output_detectors()
        if hasattr(one, "_added")
        for name in one._sums_need
    ],
    ids=lambda one: getattr(type(one), "__name__", one),
)
def test_parameters_of_the_sums_cannot_change_between_the_parts(detector, name):
    X, y = _data(offset=0.0)
    detector = clone(detector).partial_fit(X, y)
    before, value = detector.score_samples(X), detector.get_params()[name]
    changed = clone(detector).set_params(**{name: _OTHER_VALUES[name]})
    with pytest.raises(ValueError, match=f"(?s){name}=.* was set after samples"):
        detector.set_params(**{name: _OTHER_VALUES[name]}).partial_fit(X, y)
    detector.set_params(**{name: value})
    np.testing.assert_array_equal(detector.score_samples(X), before)
    assert np.isfinite(before).all()
    changed.fit(X, y).partial_fit(X, y)


def test_detector_without_partial_fit_stores_no_samples():
    X, y = np.random.default_rng(0).normal(size=(3000, 20)), np.arange(3000) % 3
    goes_on = Mahalanobis().fit(X, y)
    ends = Mahalanobis(covariance=EmpiricalCovariance()).fit(X, y)
    assert len(pickle.dumps(goes_on)) > X.nbytes
    assert len(pickle.dumps(ends)) < X.nbytes / 10


def test_names_of_columns_are_stored_where_a_frozen_head_has_none():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    y = np.arange(60) % 3
    head = FrozenEstimator(LinearHead(np.eye(3)))
    for detector in (Mahalanobis(head), MSP(head), ViM(head, n_components=1)):
        detector.fit(frame, y)
        assert list(detector.feature_names_in_) == list("abc")
        expected = detector.score_samples(frame)
        np.testing.assert_array_equal(
            clone(detector).fit(frame.to_numpy(), y).score_samples(frame), expected
        )
        turned = frame[list("cab")]
        with pytest.raises(ValueError, match="feature names should match"):
            detector.score_samples(turned)
        if hasattr(detector, "partial_fit"):
            with pytest.raises(ValueError, match="feature names should match"):
                detector.partial_fit(turned, y)
        detector.fit(frame.to_numpy(), y)
        assert not hasattr(detector, "feature_names_in_")
