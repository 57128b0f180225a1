"""What all estimators of skood share: the stamp of their pickles, and citations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import importlib
import inspect
import io
import pickle
import re
import warnings
from email.message import Message
from html import escape
from importlib import metadata
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skood
from skood.base import BaseDetector, UncertaintyDetector
from skood.combine import BaseCombiner, DetectorEnsemble, Fisher
from skood.detectors import KNN, MSP, Energy, Mahalanobis, MaxLogit, ViM
from skood.epistemic import QUAM, DeepEnsemble
from skood.exceptions import SkoodWarning
from skood.logic import ConstraintSearch, MLNDetector
from skood.metrics import paired_test
from skood.model_selection import IDOnly
from skood.monitor import ExchangeabilityMonitor
from skood.nn import FeatureExtractor, LinearHead, TorchClassifier
from skood.rectifiers import ReAct
from skood.rejection import BaseRule, BoundedPrecisionRecall, RejectOptionClassifier
from skood.selection import NoveltySelector
from skood.utils import citation
from skood.utils._estimator import (
    CitedReference,
    SkoodEstimator,
    _unique,
    parse_reference,
    references,
)
from skood.utils.discovery import all_estimators
from tests._loops import looped

X = np.random.default_rng(0).normal(size=(90, 3))
y = np.arange(90) % 3


@looped("cls", [cls for _, cls in all_estimators()])
def test_every_estimator_is_stamped(cls):
    """The base is there, and no class in between leaves its methods out."""
    assert cls.__mro__.index(SkoodEstimator) < cls.__mro__.index(BaseEstimator)
    stamped = object.__new__(cls)
    stamped.some_ = 1
    state = stamped.__getstate__()
    assert state["_skood_version"] == skood.__version__
    assert vars(stamped) == {"some_": 1}
    assert inspect.signature(cls.citation) == inspect.signature(KNN.citation)


@pytest.mark.parametrize("cls", [BaseDetector, BaseCombiner, BaseRule])
def test_subclasses_of_the_user_are_stamped(cls):
    assert issubclass(cls, SkoodEstimator)


@pytest.mark.parametrize(
    "estimator",
    [
        KNN(),
        make_pipeline(StandardScaler(), MSP(LogisticRegression())),
        TorchClassifier(max_epochs=1),
    ],
    ids=["KNN", "pipeline", "TorchClassifier"],
)
def test_same_version_is_quiet_and_leaves_nothing(estimator):
    fitted = clone(estimator).fit(X, y)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        for again in (
            pickle.loads(pickle.dumps(fitted)),
            joblib.load(file),
            copy.deepcopy(fitted),
            copy.copy(fitted),
        ):
            assert set(vars(again)) == set(vars(fitted))
            assert "_skood_version" not in vars(clone(again))


@pytest.mark.parametrize("other", ["0.0.7", "0.99.0.dev0", "1.1.0"])
def test_other_minor_version_warns(other, monkeypatch):
    here = skood.__version__
    with monkeypatch.context() as patch:
        patch.setattr(skood, "__version__", other)
        data = pickle.dumps(make_pipeline(StandardScaler(), KNN()).fit(X, y))
    message = (
        f"An estimator that skood {other} pickled is loaded by skood {here}: its "
        f"fitted attributes may have another meaning. Load it with skood {other}, fit "
        "it again, or compare predictions of some samples."
    )
    with pytest.warns(SkoodWarning, match=f"^{re.escape(message)}$") as caught:
        loaded = pickle.loads(data)
    assert [one.filename for one in caught] == [__file__]
    assert "_skood_version" not in vars(loaded[-1])
    np.testing.assert_array_equal(loaded.predict(X), loaded.fit(X, y).predict(X))


def test_other_patch_version_is_quiet(monkeypatch):
    data = pickle.dumps(KNN().fit(X))
    major, minor, _ = skood.__version__.split(".", 2)
    monkeypatch.setattr(skood, "__version__", f"{major}.{minor}.99")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(data)


def test_state_without_a_stamp_is_taken():
    fitted = KNN().fit(X)
    again = KNN()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.__setstate__(vars(fitted))
    np.testing.assert_array_equal(again.score_samples(X), fitted.score_samples(X))


def test_state_that_is_set_is_not_changed():
    state = KNN().__getstate__()
    KNN().__setstate__(state)
    assert state["_skood_version"] == skood.__version__


def test_skops_keeps_the_stamp(monkeypatch):
    skops_io = pytest.importorskip("skops.io")
    with monkeypatch.context() as patch:
        patch.setattr(skood, "__version__", "0.0.7")
        data = skops_io.dumps(KNN().fit(X))
    trusted = skops_io.get_untrusted_types(data=data)
    with pytest.warns(SkoodWarning, match=r"skood 0\.0\.7 pickled") as caught:
        skops_io.loads(data, trusted=trusted)
    assert [one.filename for one in caught] == [__file__]


def test_weights_are_not_printed():
    head = LinearHead(np.ones((10, 512)), np.zeros(10))
    text = repr(ViM(head, contamination=0.125))
    assert len(text) < 250
    assert "coef=array([[1., ..., 1.]," in text
    assert "contamination=0.125" in text
    # nested estimators are laid out in lines, as scikit-learn does it
    nested = KNN(LogisticRegression(C=0.5, max_iter=250), max_samples=0.25)
    lines = repr(make_pipeline(StandardScaler(), nested)).splitlines()
    assert len(lines) > 1
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize(
    ("estimator", "name", "before", "after"),
    [
        (MLNDetector([], [], fusion="product"), "fusion__gamma", "product", "product"),
        (
            ConstraintSearch(KNN(), search="gain"),
            "search__min_improvement",
            "gain",
            "gain",
        ),
        (RejectOptionClassifier(None, solver="grid"), "solver__tol", "grid", "grid"),
        (RejectOptionClassifier(None), "guarantee__delta", None, "high_probability"),
        (QUAM(None), "search__n_steps", None, None),
    ],
)
def test_nested_names_of_parts_that_are_none_or_text(estimator, name, before, after):
    part, option = name.split("__")
    assert getattr(estimator, part) == before
    estimator.set_params(**{name: 0.25})
    actual = getattr(estimator, part).get_params()
    assert actual[option] == 0.25
    assert after is None or after in actual.values()


def _same(X):
    return X


def _pipeline(*final):
    """Return a pipeline that scikit-learn draws only if it is fitted."""
    named = FunctionTransformer(_same, feature_names_out="one-to-one")
    columns = make_pipeline(StandardScaler(), named)
    columns = ColumnTransformer([("scaled", columns, ["x0", "x1", "x2"])])
    return make_pipeline(columns, *final)


_HEAD = _pipeline(LogisticRegression())
_ENSEMBLE = DeepEnsemble(_HEAD, n_members=2)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        MSP(_HEAD),
        KNN(_HEAD),
        ViM(_HEAD),
        _ENSEMBLE,
        DeepEnsemble(_pipeline(LinearRegression()), n_members=2),
        UncertaintyDetector(_ENSEMBLE),
        IDOnly(_pipeline()),
        FeatureExtractor(_HEAD),
        ExchangeabilityMonitor(MSP(_HEAD)),
        DetectorEnsemble([("msp", MSP()), ("knn", KNN())], estimator=_HEAD),
        NoveltySelector([("msp", MSP()), ("knn", KNN())], estimator=_HEAD),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_fitted_estimator_is_drawn_with_fitted_parts(estimator):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    fitted = clone(estimator).fit(frame, y)
    html = fitted._repr_html_()
    names = "estimator", "detector", "transformer"
    (name,) = (name for name in names if hasattr(fitted, name))
    part = getattr(fitted, f"{name}_")
    assert f"{name}: {type(part).__name__}" in html
    vars(fitted)[f"{name}_"] = clone(part)  # not fitted, so that text stands for it
    html = fitted._repr_html_()
    assert f"{name}: {type(part).__name__}" not in html
    assert escape(str(clone(part)).split("(")[0]) in html
    assert clone(estimator)._repr_html_()  # the parameters


@pytest.mark.parametrize("published", [False, True])
def test_drawn_estimator_links_to_its_page(published, monkeypatch):
    """By the metadata of the installed package; only skood's own estimators."""
    urls = ["Source, https://source.test", "Documentation, https://pages.test/"]
    installed = Message()
    for url in urls if published else ():
        installed["Project-URL"] = url
    monkeypatch.setattr(metadata, "metadata", lambda name: installed)
    page = "https://pages.test/generated/skood.detectors.KNN.html"
    assert KNN()._get_doc_link() == (page if published else "")
    assert (f'href="{page}' in KNN()._repr_html_()) == published
    without = type("KNN", (KNN,), {"__module__": "other"})
    assert without()._get_doc_link() == ""


# Estimators that are of no paper, and why.
OF_NO_PAPER = {
    "FeatureExtractor": "It computes what a network computes, and nothing else.",
    "GMM": "The mixture is one of scikit-learn, whose documentation says whom to cite.",
    "IDOnly": "It fits the transformer that is given, on the ID samples only.",
    "LinearHead": "It is a linear map with the weights that it is given.",
    "RuleSearchCV": "It is the grid search of scikit-learn, with fewer fits.",
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
    actual = {ref.text: ref for _, obj in _public() for ref in references(obj)}
    assert len(actual) > 90
    for text, reference in actual.items():
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
    actual = parse_reference(text)
    assert actual == CitedReference(text, authors, title, venue, year)


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
    actual = _keys(model.citation("bibtex"))
    assert actual[-1] == "skood"
    assert len(actual) == len(set(actual))
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
        assert {reference.key for reference in references(cls)} <= set(actual)


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


def test_references_name_all_authors():
    cited = [(name, ref) for name, cls in all_estimators() for ref in references(cls)]
    assert len(cited) > 80
    assert [(name, ref.key) for name, ref in cited if "et al" in ref.text] == []


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
