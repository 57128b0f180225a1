"""Customers of a company, which stay or leave, and rows of other kinds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from scipy.special import expit
from sklearn.utils import Bunch, check_random_state

from skood.utils._optional import import_pandas
from skood.utils._param_validation import Interval, validate_params

_OOD_KINDS = "new plan", "other currency", "test account"
_SPEND = {"basic": 20.0, "plus": 45.0, "premium": 90.0}  # monthly, by plan


@validate_params(
    {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "ood": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
        "return_X_y": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def make_churn(n_samples=2000, *, ood=0.0, random_state=None, return_X_y=False):
    """Generate a table of customers who stay or leave, with samples of unknown kinds.

    The table has a date, categories, counts and missing values. 22 % of the customers
    leave, and the Bayes error is 0.138. See the :ref:`User Guide <datasets>`.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of rows.

    ood : float, default=0.0
        Fraction of rows that are not customers, a third of each kind.

    random_state : int, RandomState instance or None, default=None
        Seed of the generator.

    return_X_y : bool, default=False
        Whether to return `(data, target)` instead of a Bunch.

    Returns
    -------
    churn : :class:`~sklearn.utils.Bunch`, or the tuple (data, target)
        `data` is a :class:`pandas.DataFrame`, `target` an array of "stay", "leave" and
        "unknown", `kind` of "customer", "new plan", "other currency", "test account".

    Examples
    --------
    >>> from skood.datasets import make_churn
    >>> X, y = make_churn(ood=0.1, random_state=0, return_X_y=True)
    >>> print(X.iloc[:2, 1:].round(1).to_string(index=False), y[:2])
     plan region  monthly_spend  support_calls  days_idle
    basic  north           24.7              3       11.4
    basic  north          424.3              0        0.3 ['stay' 'unknown']
    """
    pd = import_pandas("make_churn")
    rng, n = check_random_state(random_state), n_samples
    tenure = 1 + np.floor(rng.gamma(2, 14, n))
    plan = rng.choice(list(_SPEND), n, p=(0.5, 0.35, 0.15)).astype(object)
    region = rng.choice(("north", "south", "east", "west"), n, p=(0.4, 0.3, 0.2, 0.1))
    spend = np.array([_SPEND[name] for name in plan]) * np.exp(
        0.25 * rng.normal(size=n)
    )
    spend[rng.random(n) < 0.05] = np.nan
    calls = rng.poisson(np.where(plan == "basic", 1.4, 0.8))
    idle = rng.exponential(3.0 + 3.0 * calls)
    logit = -2.6 + 0.9 * calls + 0.16 * idle - 0.04 * tenure - 0.7 * (plan == "premium")
    target = np.where(rng.random(n) < expit(logit), "leave", "stay").astype(object)
    kind = np.full(n, "customer", dtype=object)
    unknown = rng.permutation(n)[: round(ood * n)]
    target[unknown] = "unknown"
    for name, indices in zip(_OOD_KINDS, np.array_split(unknown, 3), strict=True):
        kind[indices] = name
    new, currency, test = (kind == name for name in _OOD_KINDS)
    plan[new], tenure[new] = "student", rng.randint(1, 4, new.sum())
    spend[new] = 8.0 * np.exp(0.1 * rng.normal(size=new.sum()))
    spend[currency] *= 25.0
    calls[test], idle[test] = 30 + rng.poisson(20, test.sum()), 0.0
    signup = pd.Timestamp("2025-01-01") - pd.to_timedelta(30 * tenure, unit="D")
    columns = signup, plan, region, spend, calls, idle
    names = "signup", "plan", "region", "monthly_spend", "support_calls", "days_idle"
    data = pd.DataFrame(dict(zip(names, columns, strict=True)))
    return (data, target) if return_X_y else Bunch(data=data, target=target, kind=kind)
