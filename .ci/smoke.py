"""Use an installed skood as a stranger would; the environment has only what it needs.

``python -I .ci/smoke.py`` in that environment: -I keeps the folder of this file, the
working folder and PYTHONPATH off the path.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
import os
import pickle
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def check(holds, what):
    """Stop with a message unless something holds (-O would drop an assert)."""
    if not holds:
        sys.exit(f"smoke test failed: {what}")


def check_installed(skood):
    """The package is the installed one, and what is not required is not there."""
    site = Path(sysconfig.get_path("purelib")).resolve()
    place = Path(skood.__file__).resolve()
    check(place.is_relative_to(site), f"skood comes from {place}, not from {site}")
    for entry in map(Path, sys.path):
        inside = entry.resolve().is_relative_to(REPOSITORY)
        own = entry.resolve().is_relative_to(Path(sys.prefix).resolve())
        check(own or not inside, f"{entry} of the repository is on the path")
    check(not (site / "tests").exists(), "the wheel holds tests")
    check(version("skood") == skood.__version__, "metadata have another version")
    for name in ("matplotlib", "pandas", "pytest", "torch_geometric"):
        found = importlib.util.find_spec(name)
        check(found is None, f"{name} is here: this environment is not empty")


def check_names(skood):
    """Every public name of every public module can be had, without the extras."""
    for module in skood._SUBMODULES:
        room = importlib.import_module(f"skood.{module}")
        for name in getattr(room, "__all__", ()):
            getattr(room, name)


def check_commands():
    """Both commands tell the version."""
    for command in (
        [sys.executable, "-I", "-m", "skood"],
        [str(Path(sysconfig.get_path("scripts")) / "skood")],
    ):
        said = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True
        ).stdout
        check(version("skood") in said, f"{command} --version said {said!r}")


def check_work():
    """Detectors detect, a classifier rejects, and what was fitted is kept."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    from skood.datasets import load_digits_ood
    from skood.detectors import KNN, MSP, Energy, Mahalanobis, ViM
    from skood.nn import TorchClassifier
    from skood.persistence import dump, load
    from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    known = y != -1
    linear = LogisticRegression(max_iter=500)
    network = TorchClassifier(max_epochs=5, random_state=0)
    for detector in (
        KNN(n_neighbors=5),
        Mahalanobis(),
        MSP(linear),
        Energy(network),
        ViM(network),
    ):
        auroc = detector.fit(X[known], y[known]).score(X_test, y_test)
        check(auroc > 0.6, f"{detector} has an AUROC of {auroc}")
    rule = BoundedTPRFPR(tpr_min=0.8, fpr_max=0.2)
    model = RejectOptionClassifier(
        linear, ood_detector=KNN(n_neighbors=5), rule=rule, random_state=0
    ).fit(X, y)
    predicted = model.predict(X_test)
    accepted = predicted != -1
    check((predicted == y_test)[accepted].mean() > 0.9, "the classifier errs")
    check(accepted[y_test != -1].mean() > 0.6, "the classifier rejects ID samples")
    check(accepted[y_test == -1].mean() < 0.4, "the classifier accepts OOD samples")
    dump(model, "model.skood")
    for loaded in (load("model.skood"), pickle.loads(pickle.dumps(model))):
        check((loaded.predict(X_test) == predicted).all(), "a file changed a model")


def main():
    """Run all checks in a folder that has nothing."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        import skood

        check_installed(skood)
        check_names(skood)
        check_commands()
        check_work()
        os.chdir(REPOSITORY)  # Windows keeps a folder that someone is in
    print(f"skood {skood.__version__}: the wheel works in an empty environment")


if __name__ == "__main__":
    main()
