"""SkoodEstimator: base class of all estimators of skood, and their citations.

References are parsed from docstrings, as text or BibTeX.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import re
import unicodedata
from dataclasses import dataclass
from functools import wraps

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr
from sklearn.utils._pprint import _EstimatorPrettyPrinter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skood.utils._optional import project_url
from skood.utils._param_validation import InvalidParameterError
from skood.utils._warnings import warn

_STAMP = "_skood_version"  # present in pickled states only

# The module of scikit-learn's private class differs between versions.
_VisualBlock = estimator_html_repr.__globals__["_VisualBlock"]


def _is_fitted(estimator):
    """Return whether an object is a fitted estimator."""
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def with_aliases(init):
    """Make a constructor raise an error with the name to use for an alias."""

    @wraps(init)
    def checked(self, *args, **params):
        self._check_aliases(params, TypeError)
        init(self, *args, **params)

    return checked


class SkoodEstimator(BaseEstimator):
    """Base class of estimators, with a `citation`, and skood's version in pickles.

    ``_default_parts`` maps parameters that hold a part, an estimator with parameters,
    to the class of the part. None stands for a part with its defaults, a str for a part
    with this first argument. ``_aliases`` maps other names of parameters, such as those
    in a paper, to the names to set; the constructor has the decorator `with_aliases`.
    """

    _default_parts: dict = {}
    _aliases: dict = {}
    _doc_link_module = "skood"

    @property
    def _doc_link_template(self):
        """Template of the links of a drawn estimator, empty before publication."""
        pages = project_url("Documentation")
        page = "/generated/{estimator_module}.{estimator_name}.html"
        return pages and pages.rstrip("/") + page

    def __repr__(self, N_CHAR_MAX=700):
        # The weights of a head are parameters: print a few numbers only.
        with np.printoptions(threshold=8, edgeitems=1, precision=3):
            return super().__repr__(N_CHAR_MAX)

    def _drawn_parts(self):
        """Return the parts that a notebook shows for the fitted estimator, by name."""
        return {
            name: getattr(self, f"{name}_", estimator)
            for name, estimator in self.get_params(deep=False).items()
            if hasattr(estimator, "get_params")
            and hasattr(estimator, "fit")
            and not isinstance(estimator, type)
        }

    # Without it, scikit-learn draws parameters: unfitted parts of a fitted estimator,
    # whose names of features may raise errors.
    @available_if(lambda self: _is_fitted(self) and bool(self._drawn_parts()))
    def _sk_visual_block_(self):
        """Return the picture of the fitted parts; text stands for other parts."""
        names, parts = [], []
        for name, estimator in self._drawn_parts().items():
            drawn = not isinstance(estimator, str) and _is_fitted(estimator)
            names.append(f"{name}: {type(estimator).__name__}" if drawn else name)
            parts.append(estimator if drawn else str(estimator))
        return _VisualBlock(
            "parallel", parts, names=names, name_details=list(map(str, parts))
        )

    def __getstate__(self):
        from skood import __version__

        return {**super().__getstate__(), _STAMP: __version__}

    def __setstate__(self, state):
        state = dict(state)
        if _STAMP in state:
            _check_version(state.pop(_STAMP))
        super().__setstate__(state)

    def set_params(self, **params):
        """Set parameters.

        Parameters
        ----------
        **params : dict
            Parameters, and nested ones as ``part__name``, also of a part that is None
            or a str.

        Returns
        -------
        self : object
            The estimator.
        """
        self._check_aliases(params)
        for name in self._default_parts:
            if any(key.startswith(f"{name}__") for key in params):
                value = params.get(name, getattr(self, name))
                params = {**params, name: self._as_part(name, value)}
        return super().set_params(**params)

    def _check_aliases(self, params, error=ValueError):
        """Raise an error with the name to use if `params` has an alias."""
        for alias in self._aliases.keys() & params.keys():
            raise error(
                f"{type(self).__name__} has no parameter {alias!r}. Its name is "
                f"{self._aliases[alias]!r}: use "
                f"set_params({self._aliases[alias]}={params[alias]!r})."
            )

    def _as_part(self, name, value):
        """Return a part for a value of its parameter."""
        if value is None:
            return self._default_parts[name]()
        return self._default_parts[name](value) if isinstance(value, str) else value

    def _part(self, name, **defaults):
        """Return the part of a parameter, or its default; raise if it is not valid.

        With `defaults` it is a copy, with these in place of parameters that are None.
        """
        component = self._as_part(name, getattr(self, name))
        component._validate_params()
        if not defaults:
            return component
        params = component.get_params(deep=False)
        params = {key: value for key, value in params.items() if value is not None}
        return type(component)(**{**defaults, **params})

    def citation(self, format="text"):
        """Return the references to cite for this estimator, and skood.

        Parameters
        ----------
        format : {"text", "bibtex"}, default="text"
            One line per reference, or a BibTeX entry.

        Returns
        -------
        text : str
            See :func:`skood.utils.citation`.
        """
        return citation(self, format=format)


class _InvalidOptionError(ValueError, TypeError):
    """A parameter of a rule or of options is out of its range, or of another type."""


def check_options(options):
    """Raise if a parameter of a rule, or of other options, is not valid."""
    try:
        options._validate_params()
    except InvalidParameterError as error:
        # scikit-learn's decorator of functions would replace the name of the class
        raise _InvalidOptionError(str(error)) from None


class BaseOptions(SkoodEstimator):
    """Base class of options that a function takes as one object."""

    @classmethod
    def _checked(cls, options):
        """Return valid options, the defaults for None, or raise."""
        if options is None:
            return cls()
        if not isinstance(options, cls):
            raise TypeError(f"Expected a {cls.__name__} or None, got {options!r}.")
        check_options(options)
        return options


# Without this, nested estimators are printed in one line: scikit-learn's private
# printer finds the layout by the __repr__ method.
_EstimatorPrettyPrinter._dispatch[SkoodEstimator.__repr__] = (
    _EstimatorPrettyPrinter._pprint_estimator
)


def _check_version(written):
    """Warn if another minor version wrote a state, which may be incompatible."""
    from skood import __version__

    if str(written).split(".")[:2] != __version__.split(".")[:2]:
        warn(
            f"An estimator that skood {written} pickled is loaded by skood "
            f"{__version__}: its fitted attributes may have another meaning. Load it "
            f"with skood {written}, fit it again, or compare predictions of some "
            "samples."
        )


_TITLE = "skood: classifiers that know when not to answer"
_AUTHORS = "The skood developers"

# Words that are skipped as the first word of a title in a key.
_SMALL_WORDS = {"a", "an", "the", "on", "in", "of", "for", "to"}

# Venues other than journals.
_PROCEEDINGS = re.compile(r"[A-Z][A-Za-z]*[A-Z]s?( Workshops)?$")  # ICML, NeurIPS
_JOURNALS_IN_CAPITALS = {"JMLR", "TMLR"}
_PUBLISHER = re.compile(r"Springer|Press$|Chapman")


def citation(obj, format="text"):
    """Return the references to cite for an object.

    These are the references in its docstring, the references of its parts (nested
    estimators, members, rule or combiner, and, once it is fitted, the defaults of
    parameters that are None), and skood itself. Parts from other packages are not
    cited.

    Every estimator of skood has this function as a method as well.

    Parameters
    ----------
    obj : object
        An estimator, fitted or not, a class, or a function of skood.

    format : {"text", "bibtex"}, default="text"
        One line per reference, or a BibTeX entry. Its key consists of the first author,
        the year and the title, and is the same in every version of skood.

    Returns
    -------
    text : str
        The references without duplicates, skood last.

    Raises
    ------
    ValueError
        If `format` is unknown.

    Examples
    --------
    >>> from skood.detectors import KNN, MSP
    >>> from skood.utils import citation
    >>> print(citation(MSP()))
    D. Hendrycks and K. Gimpel. "A baseline for detecting misclassified and ...
    The skood developers. "skood: classifiers that know when not to answer". Version ...
    >>> print(citation(KNN, format="bibtex"))
    @inproceedings{sun2022out,
      author = {Sun, Y. and Ming, Y. and Zhu, X. and Li, Y.},
      title = {{Out-of-distribution detection with deep nearest neighbors}},
      booktitle = {ICML},
      year = {2022},
    }
    <BLANKLINE>
    @software{skood,
      author = {{The skood developers}},
      title = {{skood: classifiers that know when not to answer}},
      version = {...},
    }
    """
    from skood import __version__

    if format not in ("text", "bibtex"):
        raise ValueError(f"format must be 'text' or 'bibtex', got {format!r}.")
    cited = _unique(_cited(obj))
    if format == "text":
        software = f'{_AUTHORS}. "{_TITLE}". Version {__version__}.'
        return "\n".join([*(reference.text for reference in cited), software])
    fields = {
        "author": f"{{{_AUTHORS}}}",
        "title": f"{{{_TITLE}}}",
        "version": __version__,
    }
    software = _entry("software", "skood", fields)
    return "\n\n".join([*(reference.bibtex() for reference in cited), software])


def _cited(obj):
    """Yield the references in docstrings of an object, then of its parts."""
    if not _is_estimator(obj):
        yield from references(obj)
        return
    todo, seen = [obj], set()
    while todo:
        item = todo.pop(0)
        if isinstance(item, (list, tuple)):
            todo.extend(item)
        elif isinstance(item, dict):
            todo.extend(item.values())
        elif _is_estimator(item) and id(item) not in seen:
            seen.add(id(item))
            bases = (base.__module__.split(".")[0] for base in type(item).__mro__)
            if "skood" in bases:
                yield from references(type(item))
            todo.extend(item.get_params(deep=False).values())
            todo.extend(
                value
                for name, value in sorted(vars(item).items())
                if name.endswith("_") and not name.startswith("_")
            )


def _is_estimator(obj):
    return hasattr(obj, "get_params") and not isinstance(obj, type)


def _unique(cited):
    """Return references with distinct keys; of two texts for a key, the longer."""
    unique: dict[str, CitedReference] = {}
    for reference in cited:
        known = unique.get(reference.key)
        if known is None or len(known.text) < len(reference.text):
            unique[reference.key] = reference
    return list(unique.values())


def references(obj):
    """Return the references of a numpydoc docstring, in their order."""
    doc = inspect.getdoc(obj) or ""
    sections = re.split(r"^(\S.*)\n-{3,}$", doc, flags=re.MULTILINE)
    if "References" not in sections:
        return []
    text = sections[sections.index("References") + 1]
    items = re.split(r"^\.\. \[\w+\]\s", text, flags=re.MULTILINE)
    return [parse_reference(" ".join(item.split())) for item in items[1:]]


@dataclass(frozen=True)
class CitedReference:
    """A reference and its parts."""

    text: str
    authors: tuple = ()
    title: str = ""
    venue: str = ""
    year: str = ""

    @property
    def key(self):
        """BibTeX key: first author, year and first word of the title."""
        if not self.authors:
            return "-".join(_ascii_words(self.text)[:8])
        surname = "".join(_ascii_words(_last_name_first(self.authors[0]).split(",")[0]))
        words = [w for w in _ascii_words(self.title) if w not in _SMALL_WORDS]
        return f"{surname}{self.year}{words[0]}"

    def bibtex(self):
        """Return the BibTeX entry."""
        if not self.authors:
            return _entry("misc", self.key, {"note": _escaped(self.text)})
        kind, place = _kind_and_place(self.venue)
        fields = {
            "author": _escaped(" and ".join(map(_last_name_first, self.authors))),
            "title": f"{{{_escaped(self.title)}}}",
            **{name: _escaped(value) for name, value in place.items()},
            "year": self.year,
        }
        return _entry(kind, self.key, fields)


def parse_reference(text):
    """Parse *authors. title. venue, year.*, the title with or without quotation marks.

    Names are *A. B. Surname*. Another form gives a reference with the text alone.
    """
    match = re.match(r'(.+?)[.,]? "([^"]+)"[.,]? (.+)', text) or re.match(
        # a full stop after two letters does not belong to an initial
        r"(.+?\w\w)\. (.+?)\. (.+)",
        text,
    )
    if match is None:
        return CitedReference(text)
    years = list(re.finditer(r"\b(?:1[89]|20)\d\d\b", match[3]))
    if not years:
        return CitedReference(text)
    names = re.split(r",? and |, ", re.sub(r",? et al\.?$", ", others", match[1]))
    return CitedReference(
        text,
        authors=tuple(names),
        title=match[2].rstrip(".,"),
        venue=match[3][: years[-1].start()].strip(" ,."),
        year=years[-1][0],
    )


def _last_name_first(name):
    """Convert *J.-H. Kim* to the unambiguous *Kim, J.-H.*."""
    initials = re.match(r"((?:[A-Z]\.[- ]?)+)(?<=[. ])(.+)", name)
    if initials:
        return f"{initials[2].strip()}, {initials[1].strip()}"
    first_names, _, surname = name.rpartition(" ")
    return f"{surname}, {first_names}" if first_names else name


def _kind_and_place(venue):
    """Return the type of an entry, and the venue."""
    if preprint := re.match(r"arXiv:([\d.]+)$", venue):
        return "misc", {"eprint": preprint[1], "archiveprefix": "arXiv"}
    if not venue:
        return "misc", {}
    if _PUBLISHER.search(venue):
        return "book", {"publisher": venue}
    if venue.startswith("Handbook"):
        return "incollection", {"booktitle": venue}
    if _PROCEEDINGS.match(venue) and venue not in _JOURNALS_IN_CAPITALS:
        return "inproceedings", {"booktitle": venue}
    venue, _, pages = re.sub(r", (\d+-\d+)$", r"|\1", venue).partition("|")
    journal, _, volume = re.sub(r" (\d+)$", r"|\1", venue).partition("|")
    place = {"journal": journal, "volume": volume, "pages": pages}
    return "article", {name: value for name, value in place.items() if value}


def _ascii_words(text):
    """Return lowercase words without accents, split at hyphens."""
    text = text.lower().replace("ø", "o").replace("ł", "l").replace("ß", "ss")
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.findall(r"[a-z0-9]+", plain)


def _escaped(text):
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def _entry(kind, key, fields):
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
