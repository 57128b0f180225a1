"""Whom to cite."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skood
from skood.combine import DetectorEnsemble, Fisher
from skood.detectors import KNN, MSP, Energy, Mahalanobis, MaxLogit
from skood.metrics import paired_test
from skood.rectifiers import ReAct
from skood.rejection import BoundedPrecisionRecall, RejectOptionClassifier
from skood.utils import citation
from skood.utils._estimator import CitedReference, _unique, parse_reference, references
from skood.utils.discovery import all_estimators
from tests._loops import looped

# Estimators that are of no paper, and why.
OF_NO_PAPER = {
    "FeatureExtractor": "It computes what a network computes, and nothing else.",
    "GMM": "The mixture is one of scikit-learn, whose documentation says whom to cite.",
    "IDOnly": "It fits the transformer that is given, on the ID samples only.",
    "LinearHead": "It is a linear map with the weights that it is given.",
    "SklearnDetector": "The method is that of the outlier detector that is given.",
    "TorchClassifier": "It trains the module that it is given, by cross-entropy.",
    "UncertaintyDetector": "The method is that of the classifier that is given.",
}


def _public():
    """Every public class and function, by module and name."""
    for room in skood._SUBMODULES:
        module = importlib.import_module(f"skood.{room}")
        for name in getattr(module, "__all__", ()):
            yield f"{room}.{name}", getattr(module, name)


def _keys(text):
    return re.findall(r"^@\w+\{([^,]+),$", text, flags=re.MULTILINE)


# --- over all of skood ----------------------------------------------------------------


@looped("cls", [cls for _, cls in all_estimators()])
def test_every_method_has_a_paper(cls):
    reason = OF_NO_PAPER.get(cls.__name__)
    assert bool(references(cls)) == (reason is None)
    if reason is not None:
        assert len(reason.split()) >= 6 and reason.endswith(".")


def test_every_reference_can_be_taken_apart():
    found = {ref.text: ref for _, obj in _public() for ref in references(obj)}
    assert len(found) > 90
    for text, reference in found.items():
        assert reference.authors, text
        assert all(1 < len(name) < 40 for name in reference.authors), text
        assert not any(re.search(r'[",:]| and ', name) for name in reference.authors)
        assert len(reference.title.split()) >= 2, text
        assert 1900 < int(reference.year) < 2030, text
        assert not re.search(r"\d{4}|\"", reference.venue.partition(":")[0]), text


def test_keys_of_papers_differ():
    titles = {}
    for _, obj in _public():
        for reference in references(obj):
            assert re.fullmatch(r"[a-z]+\d{4}[a-z0-9]+", reference.key)
            plain = "".join(re.findall(r"\w", reference.title.lower()))
            assert titles.setdefault(reference.key, plain) == plain, reference.text


def test_bibtex_of_all_is_sound():
    for name, obj in _public():
        if not callable(obj):
            continue
        text = citation(obj, format="bibtex")
        depth = 0
        for sign in re.findall(r"(?<!\\)[{}]", text):
            depth += 1 if sign == "{" else -1
            assert depth >= 0, name
        assert depth == 0, name
        entries = text.split("\n\n")
        assert len(_keys(text)) == len(set(_keys(text))) == len(entries)
        for entry in entries:
            assert re.fullmatch(r"@\w+\{.+,\n(  [a-z]+ = \{.+\},\n)+\}", entry), entry


# --- one reference --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, authors, title, venue, year",
    [
        (
            'A. B. Ünal and J.-H. Kim. "On this. And that". ICML 2020.',
            ("A. B. Ünal", "J.-H. Kim"),
            "On this. And that",
            "ICML",
            "2020",
        ),
        (
            "S. Della Pietra, J. Ba. Why us? A view. IEEE Letters 3, 12-19, 1997.",
            ("S. Della Pietra", "J. Ba"),
            "Why us? A view",
            "IEEE Letters 3, 12-19",
            "1997",
        ),
        (
            'P. Veličković et al., "Graphs 2017 and after", arXiv:2001.01234, 2018.',
            ("P. Veličković", "others"),
            "Graphs 2017 and after",
            "arXiv:2001.01234",
            "2018",
        ),
        (
            'L. One, M. Two, and N. Three. "Points inside the marks." 1984. Lemma 3.',
            ("L. One", "M. Two", "N. Three"),
            "Points inside the marks",
            "",
            "1984",
        ),
    ],
)
def test_parts_of_a_reference(text, authors, title, venue, year):
    found = parse_reference(text)
    assert found == CitedReference(text, authors, title, venue, year)


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "S. Della Pietra, J. Jøsang. The A & B. Machine Learning 28, 41-75, 1997.",
            "@article{dellapietra1997b,\n"
            "  author = {Della Pietra, S. and Jøsang, J.},\n"
            "  title = {{The A \\& B}},\n"
            "  journal = {Machine Learning},\n"
            "  volume = {28},\n"
            "  pages = {41-75},\n"
            "  year = {1997},\n"
            "}",
        ),
        (
            'P. Jøsang et al. "An end of 50 % noise". arXiv:2411.01487, 2024.',
            "@misc{josang2024end,\n"
            "  author = {Jøsang, P. and others},\n"
            "  title = {{An end of 50 \\% noise}},\n"
            "  eprint = {2411.01487},\n"
            "  archiveprefix = {arXiv},\n"
            "  year = {2024},\n"
            "}",
        ),
        (
            "Jin-Hee Cho, Plato. Some dialogue. Springer, 1932.",
            "@book{cho1932some,\n"
            "  author = {Cho, Jin-Hee and Plato},\n"
            "  title = {{Some dialogue}},\n"
            "  publisher = {Springer},\n"
            "  year = {1932},\n"
            "}",
        ),
    ],
)
def test_bibtex_of_a_reference(text, expected):
    assert parse_reference(text).bibtex() == expected


@pytest.mark.parametrize(
    "venue, kind, field",
    [
        ("NeurIPS", "inproceedings", "booktitle"),
        ("CVPR Workshops", "inproceedings", "booktitle"),
        ("JMLR", "article", "journal"),
        ("Biometrika", "article", "journal"),
        ("Princeton University Press", "book", "publisher"),
        ("Handbook of Markov chain Monte Carlo", "incollection", "booktitle"),
    ],
)
def test_where_it_appeared(venue, kind, field):
    entry = parse_reference(f"A. Bee. Some title. {venue}, 2001.").bibtex()
    assert entry.startswith(f"@{kind}{{bee2001some,")
    assert f"  {field} = {{{venue}}},\n" in entry


def test_reference_that_is_written_otherwise():
    class Own(KNN):
        """A class of a user.

        References
        ----------
        .. [1] See my_page & the blog, it says all in more than eight words
        """

    undated = "A. Bee. A page on this. My blog."
    assert parse_reference(undated) == CitedReference(undated)
    assert citation(Own()).splitlines()[0].startswith("See my_page & the blog, it")
    entry = citation(Own(), format="bibtex").split("\n\n")[0]
    assert entry == (
        "@misc{see-my-page-the-blog-it-says-all,\n"
        "  note = {See my\\_page \\& the blog, it says all in more than eight words},\n"
        "}"
    )


# --- what is gathered -----------------------------------------------------------------


def test_single_detector():
    text = citation(MSP())
    first, last = text.splitlines()
    assert first == (
        'D. Hendrycks and K. Gimpel. "A baseline for detecting misclassified and '
        'out-of-distribution examples in neural networks". ICLR 2017.'
    )
    assert last == (
        'The skood developers. "skood: classifiers that know when not to answer". '
        f"Version {skood.__version__}."
    )
    assert MSP().citation() == citation(MSP) == text
    assert MSP().citation(format="bibtex") == citation(MSP, format="bibtex")


def test_parts_at_any_depth_each_once():
    ensemble = DetectorEnsemble(
        [
            ("a", make_pipeline(StandardScaler(), ReAct(), Mahalanobis())),
            ("b", GridSearchCV(KNN(), {"n_neighbors": [1, 2]})),
            ("c", FrozenEstimator(Energy(LogisticRegression()))),
            ("d", KNN()),
            ("off", "drop"),
        ],
        combiner=Fisher(),
    )
    model = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=ensemble,
        rule=BoundedPrecisionRecall(precision_min=0.9, recall_min=0.5),
    )
    found = _keys(model.citation("bibtex"))
    assert found[-1] == "skood"
    assert len(found) == len(set(found))
    for cls in (
        RejectOptionClassifier,
        BoundedPrecisionRecall,
        DetectorEnsemble,
        Fisher,
        ReAct,
        Mahalanobis,
        KNN,
        Energy,
    ):
        assert {reference.key for reference in references(cls)} <= set(found)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_fitted_parts_that_were_left_out():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 3)), np.arange(600) % 3
    ensemble = DetectorEnsemble(
        [("a", MaxLogit()), ("b", MSP())],
        estimator=LogisticRegression(),
        random_state=0,
    ).fit(X, y)
    fitted = _keys(citation(ensemble, format="bibtex"))
    own = {reference.key for reference in references(type(ensemble.combiner_))}
    assert own <= set(fitted)
    assert "hendrycks2022scaling" in fitted


def test_dictionaries_of_parts():
    search = GridSearchCV(KNN(), {"estimator": [MSP(), Energy()]})
    keys = set(_keys(citation(search, format="bibtex")))
    assert {"hendrycks2017baseline", "liu2020energy", "sun2022out"} <= keys


def test_the_longer_text_of_a_paper():
    long = parse_reference("J. Geng et al. DSDE: more. arXiv:2411.01487, 2024.")
    short = parse_reference("J. Geng et al. DSDE: more. 2024.")
    assert _unique([short, long, short]) == [long]


def test_function_and_what_has_no_references():
    first = citation(paired_test).splitlines()[0]
    assert first.startswith(("A. I. Bandos", "E. S. Venkatraman"))
    assert citation(StandardScaler()).count("\n") == 0
    assert citation(LogisticRegression()).startswith("The skood developers")


def test_unknown_format():
    with pytest.raises(
        ValueError, match=r"format must be 'text' or 'bibtex', got 'apa'\."
    ):
        citation(KNN(), format="apa")


def test_citation_file_says_the_same():
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    own = citation(LogisticRegression(), format="bibtex")
    title = re.search(r'^title: "(.+)"$', text, flags=re.MULTILINE)[1]
    authors = re.findall(r'^  - name: "(.+)"$', text, flags=re.MULTILINE)
    assert f"title = {{{{{title}}}}}" in own
    assert f"author = {{{{{' and '.join(authors)}}}}}" in own
