"""BestOf: the choice among detectors, with a valid false discovery rate."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.utils import check_random_state

from skood.combine import DOSStorey, Fisher
from skood.selection._scores import member_names, n_reference, split_reference
from skood.selection._step_up import Selection
from skood.stats._conformal import Calibration, check_pair
from skood.stats._fdp import bound_of_selection
from skood.stats._ranks import check_level
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._ties import loosened

# The lemma of all procedures that let the batch choose: for a sample j that is ID, the
# auxiliary selections are functions of the unordered set of the calibration samples and
# j, and of the other samples of the batch, while the p-value of j is super-uniform
# given these.


def auxiliary_counts(scores, calibration_scores, alpha):
    """Return R_j, the size of the Benjamini-Hochberg set with p_j = 0, shape (m,).

    The other p-values are relative to the n calibration samples and j, divided by
    n + 1. Takes O((m + n) log(m + n)) for all samples.
    """
    m, n = len(scores), len(calibration_scores)
    alpha = loosened(alpha)
    ranked = np.sort(scores)
    c = np.sort(calibration_scores).searchsorted(ranked, side="right")
    i = np.arange(1, m + 1)
    # of a sample above j or tied with it, the count includes j: its rank stays i
    reached = np.flatnonzero((c + 1) * m <= alpha * i * (n + 1))
    last = reached[-1] + 1 if len(reached) else 0
    # of a sample below j it does not, and the rank is i + 1, since p_j = 0 is the first
    below = np.where(c * m <= alpha * (i + 1) * (n + 1), i + 1, 1)
    best_below = np.maximum.accumulate(np.concatenate([[1], below]))
    n_less = ranked.searchsorted(scores, side="left")
    n_at_most = ranked.searchsorted(scores, side="right")
    # if `last` is the rank of j alone, the sample before it has this rank as well
    return np.maximum(best_below[n_less], np.where(last >= n_at_most, last, 0))


def xi_of(pruning, random_state):
    """Return xi of the pruning: 1, one uniform draw in (0, 1], or the given number."""
    if pruning == "none":
        return 1.0
    if pruning == "shared":
        return 1.0 - check_random_state(random_state).random_sample()
    return float(pruning)


def pruned(passed, counts, xi):
    """Return which samples that passed their test are selected, of shape (m,).

    R* = max{r : #{j passed : xi R_j <= r} >= r}; selected are those with
    xi R_j <= R*.
    """
    bounds = np.sort(xi * counts[passed])
    r = np.arange(len(bounds) + 1)
    n_within = bounds.searchsorted(loosened(r), side="right")
    largest = r[n_within >= r].max()
    return passed & (xi * counts <= loosened(largest))


class BestOf(SkoodEstimator):
    r"""Choice of the detector that selects most samples of a batch, with a valid rate.

    To apply several detectors to a batch, and to keep the one that selects most
    samples, has a false discovery rate far above :math:`\alpha`. Here each sample j has
    its own choice, which does not depend on whether j is a calibration sample. For
    detector k, let :math:`R_{jk}` be the size of the set that the procedure of
    Benjamini and Hochberg selects if j is counted as a further calibration sample, and
    :math:`p_j = 0`. The choice :math:`k_j` is the first detector with

    .. math:: R_{jk} \ge (1 - \tau) \max_{k'} R_{jk'},

    and j passes if :math:`m p_j \le \alpha R_j`, with :math:`R_j = R_{j k_j}` and its
    p-value under :math:`k_j`. With :math:`\xi` from `pruning`,

    .. math:: R^* = \max \Bigl\{r : \#\{j \text{ passes} : \xi R_j \le r\} \ge r\Bigr\},

    and the samples that pass with :math:`\xi R_j \le R^*` are selected. The false
    discovery rate is at most :math:`\alpha m_0 / m` for any dependence between the
    detectors. With one detector this is the procedure of Benjamini and Hochberg.

    Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    tau : float, default=0.2
        Fraction in [0, 1) of the largest number that counts as equal to it: the first
        such detector in the order of the user is chosen. Otherwise the choices of
        samples would differ by chance, and fewer samples are selected.

    pruning : {"shared", "none"} or float, default="shared"
        :math:`\xi`. "shared": one uniform draw, so that the rate is also an average
        over this draw. "none": 1, which selects a subset of these samples. A number in
        (0, 1]: for tests, without a guarantee.

    combiners : sequence of objects or None, default=None
        Combiners of p-values, such as :class:`~skood.combine.Fisher`: the statistic of
        each, for the p-values of a sample under all detectors, is a further candidate
        before the detectors. None: ``(DOSStorey(), Fisher())``, without `DOSStorey` for
        fewer than four detectors, and none for one detector.

    reference : float, default=0.3
        Fraction in (0, 1) of the held-out samples that give the p-values for the
        combiners. The other ones calibrate all candidates. Not used without combiners.

    See Also
    --------
    ClassifierFusion : A fused score that is learned from the batch.
    NoveltySelector : Fits detectors, and selects by this choice.

    Notes
    -----
    Takes O(K (m + n) log(m + n)) for K detectors, m samples in the batch and n
    calibration samples.

    References
    ----------
    .. [1] T. Bai, Y. Jin. Optimized conformal selection: powerful selective inference
       after conformity score optimization. arXiv:2411.17983, 2024.

    .. [2] Y. Jin, E. Candes. Model-free selective inference under covariate shift via
       weighted conformal p-values. arXiv:2307.09291, 2023.

    Examples
    --------
    Only the second of three detectors separates the OOD samples:

    >>> import numpy as np
    >>> from skood.selection import BestOf
    >>> rng = np.random.default_rng(0)
    >>> calibration, scores = rng.normal(size=(500, 3)), rng.normal(size=(100, 3))
    >>> scores[:20, 1] -= 5
    >>> batch = BestOf(combiners=()).select(scores, calibration, random_state=0)
    >>> int(batch.selected[:20].sum()), int(batch.selected[20:].sum())
    (20, 2)
    >>> str(batch.detector[0])
    '1'
    """

    _parameter_constraints: dict = {
        "tau": [Interval(Real, 0, 1, closed="left")],
        "pruning": [
            StrOptions({"shared", "none"}),
            Interval(Real, 0, 1, closed="right"),
        ],
        "combiners": ["array-like", tuple, None],
        "reference": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(self, tau=0.2, pruning="shared", combiners=None, reference=0.3):
        self.tau = tau
        self.pruning = pruning
        self.combiners = combiners
        self.reference = reference

    @fit_context(prefer_skip_nested_validation=True)
    def select(
        self,
        scores,
        calibration_scores,
        alpha=0.1,
        *,
        names=None,
        delta=None,
        random_state=None,
    ):
        """Select the OOD samples of a batch.

        Parameters
        ----------
        scores : array-like of shape (n_samples, n_detectors)
            Scores of the batch, high = ID.

        calibration_scores : array-like of shape (n_calibration, n_detectors)
            Scores of held-out ID samples.

        alpha : float, default=0.1
            The level of the false discovery rate, in (0, 1).

        names : list of str, default=None
            Names of the detectors; None: their indices.

        delta : float, default=None
            If given, `Selection.fdp_bound` is an upper bound on the fraction of ID
            samples among the selected ones that holds with probability 1 - delta. It is
            that of `fdp_bound` for all K candidates at once, each at delta / K.

        random_state : int, RandomState instance or None, default=None
            Draws the reference samples, and then the number of the pruning.

        Returns
        -------
        selection : Selection
            The selected samples. ``detector`` holds the name of the chosen candidate of
            each sample; ``n_calibration`` is the number of samples without reference.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        alpha = check_level(alpha)
        scores, held_out = check_pair(scores, calibration_scores)
        rng = check_random_state(random_state)
        names = member_names(names, scores.shape[1])
        candidates, calibration, test = self._candidates(names, held_out, scores, rng)
        xi = xi_of(self.pruning, rng)
        choices = best_of(test, calibration, alpha, self.tau)
        selected = pruned(choices["passed"], choices["counts"], xi)
        return Selection(
            selected=selected,
            pvalues=choices["pvalues"],
            alpha=alpha,
            n_calibration=len(calibration),
            detector=np.array(candidates)[choices["choice"]],
            fdp_bound=bound_of_selection(
                choices["ranks"], len(calibration), selected, delta, choices["choice"]
            ),
        )

    @fit_context(prefer_skip_nested_validation=True)
    def evalues(self, scores, calibration_scores, alpha=0.05, *, random_state=None):
        r"""Return the e-values of the samples of a batch, to average over splits.

        .. math:: e_j = \frac{m}{\alpha R_j} \, 1\{m p_j \le \alpha R_j\}

        has a mean of at most 1 for an ID sample.

        Parameters
        ----------
        scores : array-like of shape (n_samples, n_detectors)
            Scores of the batch, high = ID.

        calibration_scores : array-like of shape (n_calibration, n_detectors)
            Scores of held-out ID samples.

        alpha : float, default=0.05
            The level, in (0, 1).

        random_state : int, RandomState instance or None, default=None
            Draws the reference samples.

        Returns
        -------
        evalues : ndarray of shape (n_samples,), dtype float64
            The e-values, 0 for samples that do not pass.

        Raises
        ------
        TypeError, ValueError
            If an argument or parameter is invalid.
        """
        alpha = check_level(alpha)
        scores, held_out = check_pair(scores, calibration_scores)
        names = member_names(None, scores.shape[1])
        rng = check_random_state(random_state)
        _, calibration, test = self._candidates(names, held_out, scores, rng)
        choices = best_of(test, calibration, alpha, self.tau)
        return np.where(choices["passed"], len(test) / (alpha * choices["counts"]), 0.0)

    def _n_calibration(self, n_held_out, n_detectors):
        if not self._combiners(n_detectors):
            return n_held_out
        return n_held_out - n_reference(n_held_out, self.reference)

    def _combiners(self, n_detectors):
        if self.combiners is not None:
            return list(self.combiners)
        default = [DOSStorey()] if n_detectors >= 4 else []
        return [*default, Fisher()] if n_detectors > 1 else []

    def _candidates(self, names, held_out, scores, rng):
        """Return names, calibration scores and scores of all candidates."""
        combiners = self._combiners(len(names))
        if not combiners:
            return names, held_out, scores
        reference, calibration = split_reference(held_out, self.reference, rng)
        ranks = Calibration.of(reference)
        columns: tuple[list, list] = ([], [])
        for block, of in zip((calibration, scores), columns, strict=True):
            p = (1.0 + ranks.counts(block)) / (len(reference) + 1.0)
            of += [_statistic(combiner, p) for combiner in combiners]
            of += list(block.T)
        names = [*_distinct(combiners, names), *names]
        return names, np.stack(columns[0], axis=1), np.stack(columns[1], axis=1)


def _statistic(combiner, p):
    """Return a combiner's statistic of p-values, (n_samples,), small = OOD."""
    if len(p) == 0:
        return np.empty(0)
    q = np.asarray(combiner.statistic(p), dtype=np.float64)
    if np.isnan(q).any():
        raise ValueError(f"{combiner!r} gave NaN as the statistic of p-values.")
    return q


def _distinct(combiners, names):
    """Return names of the combiners, with a number where another part has the name."""
    taken, distinct = set(names), []
    for combiner in combiners:
        number, name = 2, type(combiner).__name__
        free = name
        while free in taken:
            free, number = f"{name}{number}", number + 1
        taken.add(free)
        distinct.append(free)
    return distinct


def best_of(scores, calibration, alpha, tau):
    """Return the choice, R_j, p-value and test of each sample, and all ranks.

    The choice and R_j use exact comparisons, p-values count scores as equal that differ
    by rounding only: they are at least as large, and hence super-uniform as well.
    """
    m, n_candidates = scores.shape
    n = len(calibration)
    counts = np.empty((n_candidates, m), dtype=np.intp)
    for k in range(n_candidates):
        counts[k] = auxiliary_counts(scores[:, k], calibration[:, k], alpha)
    most = counts.max(axis=0)
    choice = (loosened(counts) >= (1 - tau) * most).argmax(axis=0)
    samples = np.arange(m)
    ranks = 1 + Calibration.of(calibration).counts(scores)
    chosen_ranks, chosen_counts = ranks[samples, choice], counts[choice, samples]
    return {
        "choice": choice,
        "counts": chosen_counts,
        "ranks": ranks,
        "pvalues": chosen_ranks / (n + 1),
        "passed": chosen_ranks * m <= loosened(alpha) * chosen_counts * (n + 1),
    }
