"""Ways to save an estimator and load it again."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import pickle

import joblib
import pytest


def by_pickle(estimator):
    return pickle.loads(pickle.dumps(estimator))


def by_joblib(estimator):
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


def by_skops(estimator):
    skops_io = pytest.importorskip("skops.io")
    data = skops_io.dumps(estimator)
    return skops_io.loads(data, trusted=skops_io.get_untrusted_types(data=data))
