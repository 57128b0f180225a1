"""Measured statements of the comparison page: skood beside MAPIE, puncc and monitors.

::

    pip install MAPIE puncc crepes river frouros
    python benchmarks/peers.py [--only rules alarms discoveries] [--draws 60]

A package that is not installed is left out. Printed are:

- rules: samples drawn as one mixture with 15 % OOD samples, and either at most 15 % of
  the accepted samples wrong or OOD, or a precision of .95 and a recall of .75 for ID
  samples, at a confidence of 90 %: how often a rule is certified, how often it breaks a
  bound, and the mean fraction of accepted samples (0 without a rule), for ``certify``
  (the precision with the known prior) and for MAPIE's
  ``BinaryClassificationController`` with 72 pairs of thresholds;
- alarms: normal scores, 300 calibration samples, a level of 1 %: streams of 10,000
  samples without a change that raise an alarm, the median delay after a shift of half a
  standard deviation at sample 1,001 among streams without an earlier alarm, and
  microseconds for a sample;
- discoveries: means of the false discovery proportion and of the rate of false alarms
  of puncc's ``SplitCAD`` and of ``select_novelties``, 50 OOD samples among 1,000.

``benchmarks/monitors.py --only alarms delays`` prints other bets on sequential ranks.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import time
import warnings

import numpy as np
from sklearn.ensemble import IsolationForest

from skood.combine import conformal_pvalues
from skood.exceptions import NotCertifiableError
from skood.monitor import ExchangeabilityMonitor
from skood.rejection import (
    BoundedErrorRate,
    BoundedPrecisionRecall,
    Certificate,
    ScoredSamples,
    certify,
)
from skood.selection import select_novelties

PRIOR, ERROR_MAX = 0.15, 0.15


def mixture(rng, n):
    """Return the risk and OOD scores of a mixture, its wrong and its OOD samples."""
    ood = rng.random(n) < PRIOR
    z, noise, distance = rng.normal(size=(3, n))
    wrong = rng.random(n) > 1 / (1 + np.exp(-1.2 - 1.6 * z))
    risk = -np.where(ood, 0.6 + 1.3 * noise, 1 + 1.5 * z + 0.7 * noise)
    return np.column_stack([risk, distance + 2 * ood]), wrong, ood


def rules(n_draws):
    """Certified rules on mixtures, by skood and by MAPIE."""
    try:
        from mapie.risk_control import BinaryClassificationController
    except ImportError:
        print("rules: MAPIE is not installed")
        return
    new, new_wrong, new_ood = mixture(np.random.default_rng(1), 200_000)
    cuts = [
        np.quantile(new[:, j], np.linspace(0, 1, n + 1)[1:])
        for j, n in enumerate((9, 8))
    ]
    grid = np.array([(s, t) for s in cuts[0] for t in cuts[1]])
    precision_recall = BoundedPrecisionRecall(0.95, 0.75, ood_prior=PRIOR)

    def accepted(scores, s, t):
        return ((scores[:, 0] <= s) & (scores[:, 1] <= t)).astype(int)

    def by_skood(rule, scores, wrong, ood, seed):
        loss = 1.0 * (wrong & ~ood & (rule is not precision_recall))
        sampling = "separate" if rule is precision_recall else "mixture"
        samples = ScoredSamples(*scores.T, loss, ood)
        certificate = Certificate(delta=0.1, sampling=sampling)
        try:
            point = certify(rule, samples, certificate, random_state=seed)
            return point.accept(*new.T)
        except NotCertifiableError:
            return None

    def by_mapie(rule, scores, wrong, ood, seed):
        risks, bounds, target = ["precision"], [1 - ERROR_MAX], ~(wrong | ood)
        if rule is precision_recall:
            risks, bounds, target = ["precision", "recall"], [0.95, 0.75], ~ood
        controller = BinaryClassificationController(
            accepted,
            risk=risks if len(risks) > 1 else risks[0],
            target_level=bounds if len(bounds) > 1 else bounds[0],
            confidence_level=0.9,
            best_predict_param_choice="recall",
            list_predict_params=grid,
        )
        best = controller.calibrate(scores, target.astype(int)).best_predict_param
        return None if best is None else accepted(new, *best)

    for n in (600, 2000):
        for rule in (BoundedErrorRate(ERROR_MAX), precision_recall):
            for name, method in (("skood", by_skood), ("MAPIE", by_mapie)):
                rng, certified, violated, fraction = np.random.default_rng(0), 0, 0, 0.0
                for seed in range(n_draws):
                    accepts = method(rule, *mixture(rng, n), seed)
                    if accepts is None:
                        continue
                    certified, fraction = certified + 1, fraction + accepts.mean()
                    if rule is precision_recall:
                        recall = accepts[~new_ood].mean()
                        broken = np.average(new_ood, weights=accepts) > 0.05
                        violated += bool(broken or recall < 0.75)
                    else:
                        error = np.average(new_wrong | new_ood, weights=accepts)
                        violated += bool(error > ERROR_MAX)
                print(
                    f"rules, {n} samples, {type(rule).__name__}, {name}: certified "
                    f"{certified / n_draws:.0%}, violated {violated / n_draws:.0%}, "
                    f"accepted {fraction / n_draws:.2f}",
                    flush=True,
                )


def monitored(calibration, scores, seed):
    monitor = ExchangeabilityMonitor(random_state=seed).fit(calibration)
    return monitor.update(scores) >= np.log(100)


def crepes_jumper(calibration, scores, seed):
    from crepes.martingales import SimpleJumper, semi_online_p_values

    p = semi_online_p_values(np.r_[calibration, scores], seed=seed)
    capital = np.asarray(
        SimpleJumper().apply(p[len(calibration) :], return_index=False)
    )
    return capital[-len(scores) :] >= 100


def river_detector(name, **options):
    def alarms(calibration, scores, seed):
        from river import drift

        detector, raised = getattr(drift, name)(**options), []
        for score in np.r_[calibration, scores]:
            detector.update(score)
            raised.append(detector.drift_detected)
        return np.array(raised[len(calibration) :])

    return alarms


def frouros_page_hinkley(calibration, scores, seed):
    from frouros.detectors.concept_drift import PageHinkley

    detector, raised = PageHinkley(), []
    for score in np.r_[calibration, scores]:
        detector.update(value=score)
        raised.append(detector.status["drift"])
    return np.array(raised[len(calibration) :])


MONITORS = {
    "skood, ExchangeabilityMonitor": monitored,
    "crepes, semi-online p-values, SimpleJumper": crepes_jumper,
    "river, ADWIN(delta=0.01)": river_detector("ADWIN", delta=0.01),
    "river, KSWIN(alpha=0.01)": river_detector("KSWIN", alpha=0.01, seed=0),
    "river, PageHinkley()": river_detector("PageHinkley"),
    "frouros, PageHinkley()": frouros_page_hinkley,
}


def alarms(n_draws):
    """False alarms, delays and costs of monitors."""
    for name, alarms_of in MONITORS.items():
        rng, found, delays = np.random.default_rng(0), 0, []
        try:
            start = time.process_time()
            for seed in range(n_draws):
                stream = rng.normal(size=300), rng.normal(size=10_000)
                found += bool(alarms_of(*stream, seed).any())
            cost = 1e6 * (time.process_time() - start) / (10_300 * n_draws)
            for seed in range(n_draws):
                scores = rng.normal(size=4000) - 0.5 * (np.arange(4000) >= 1000)
                raised = np.flatnonzero(alarms_of(rng.normal(size=300), scores, seed))
                if len(raised) == 0 or raised[0] >= 1000:
                    delays.append(raised[0] - 999 if len(raised) else np.inf)
        except ImportError:
            print(f"alarms, {name}: not installed")
            continue
        delay = f"{np.median(delays):g} ({len(delays)} streams)" if delays else "-"
        print(
            f"alarms, {name}: {found} of {n_draws} false, delay {delay}, {cost:.1f} us",
            flush=True,
        )


def discoveries(n_draws):
    """The levels that puncc's SplitCAD and select_novelties keep."""
    rates = {"puncc, SplitCAD": [], "skood, select_novelties": []}
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        train, new = rng.normal(size=(2, 1000, 2))
        new[:50] += 3.0
        ood = np.arange(1000) < 50
        forest = IsolationForest(random_state=seed).fit(train[:700])
        score = forest.score_samples
        p = conformal_pvalues(score(new), score(train[700:]))
        chosen = select_novelties(p, 300, alpha=0.1)
        selections = {"skood, select_novelties": getattr(chosen, "selected", chosen)}
        try:
            from deel.puncc.anomaly_detection import SplitCAD
            from deel.puncc.api.prediction import BasePredictor

            class Predictor(BasePredictor):
                def predict(self, X):
                    return -self.model.score_samples(X)

            method = SplitCAD(Predictor(forest, is_trained=True), train=False)
            method.fit(z_calib=train[700:])
            selections["puncc, SplitCAD"] = method.predict(new, alpha=0.1)
        except ImportError:
            pass
        for name, selected in selections.items():
            selected = np.asarray(selected, dtype=bool)
            proportion = np.mean(~ood[selected]) if selected.any() else 0.0
            rates[name].append((proportion, selected[~ood].mean()))
    for name, values in rates.items():
        if values:
            fdp, fpr = np.mean(values, axis=0)
            print(f"discoveries, {name}: FDP {fdp:.2f}, false alarms {fpr:.3f}")


PARTS = {"rules": rules, "alarms": alarms, "discoveries": discoveries}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--draws", type=int, default=60)
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    for part in arguments.only:
        PARTS[part](arguments.draws)


if __name__ == "__main__":
    main()
