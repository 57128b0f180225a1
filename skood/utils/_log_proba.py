"""Log-probabilities of any classifier, normalized."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

# Smaller logarithms of sums of probabilities are not corrected.
_NORMALIZED = 1e-12


def normalized(log_proba, name="log_proba"):
    """Normalize log-probabilities up to rounding, or raise for larger deviations.

    They have the shape (..., n_classes), and are called `name` in the error. Returns
    the log-probabilities and the probabilities.
    """
    with np.errstate(over="ignore", divide="ignore"):
        proba = np.exp(log_proba)
        total = np.log(np.sum(proba, axis=-1, keepdims=True))
    if np.isnan(total).any():
        raise ValueError(
            f"{name} has NaN among the probabilities: logits overflow. Scale X, or "
            "look at the outputs of the network."
        )
    if np.any(np.abs(np.expm1(total)) > 1e-3):
        raise ValueError(
            f"{name} must hold the logarithms of probabilities, but these sum to "
            f"{float(np.exp(total.min())):.3g} to {float(np.exp(total.max())):.3g}. "
            "Pass np.log(predict_proba(X)), or scipy.special.log_softmax(logits, -1)."
        )
    # rounding of the input is not corrected: confident predictions would lose digits
    total[np.abs(total) < _NORMALIZED] = 0.0
    if not total.any():
        return log_proba, proba
    log_proba = log_proba - total
    return log_proba, np.exp(log_proba)


def log_proba_of(estimator, X):
    """Return float64 log-probabilities of a fitted classifier in the best precision.

    From its logits, log-probabilities or probabilities; ``-inf`` where one is zero.
    Float32 outputs are normalized as well.
    """
    if hasattr(estimator, "predict_logits"):
        logits = np.asarray(estimator.predict_logits(X), dtype=np.float64)
        shifted = logits - logits.max(axis=1, keepdims=True)  # SciPy's is slow for few
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    with np.errstate(divide="ignore"):
        if hasattr(estimator, "predict_log_proba"):
            log_p = np.asarray(estimator.predict_log_proba(X), dtype=np.float64)
        else:
            log_p = np.log(np.asarray(estimator.predict_proba(X), dtype=np.float64))
    return normalized(log_p, f"What {type(estimator).__name__} predicts")[0]
