"""Explanations in words of the constraints that a sample violates."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.logic.language._compiler import compile_formula, evaluate
from skood.logic.language._formulas import And, C, Equals, Iff, Implies, Not, Or, Same
from skood.utils._optional import import_pandas

# Values without a meaning unless the name of the concept is given.
_VAGUE = frozenset({"yes", "no", "true", "false", "none", "other", "unknown"})


def _word(value):
    """Return a name or a value as a word."""
    return str(value).replace("_", " ")


class Sample:
    """Facts about one sample: its codes of shape (n_concepts,), and the domains."""

    def __init__(self, codes, domains):
        self.domains = domains
        self.columns = np.asarray(codes)[:, None]
        self.values = {
            name: values[code]
            for (name, values), code in zip(domains.items(), codes, strict=True)
        }

    def truth(self, name, value):
        """Return whether a value states that the concept holds; None if not boolean."""
        if isinstance(value, bool):
            return value
        texts = [str(other).casefold() for other in self.domains[name]]
        yes_or_no = sorted(texts) in (["no", "yes"], ["false", "true"])
        return str(value).casefold() in ("yes", "true") if yes_or_no else None

    def state(self, name, value):
        """Return the phrase for a value of a concept; a string may stand alone."""
        said = self.truth(name, value)
        if said is not None:
            return _word(name) if said else f"not {_word(name)}"
        n_concepts = sum(value in values for values in self.domains.values())
        is_clear = isinstance(value, str) and any(map(str.isalpha, value))
        if is_clear and n_concepts == 1 and value.casefold() not in _VAGUE:
            return _word(value)
        return f"{_word(name)} {_word(value)}"

    def holds(self, formula):
        """Return whether a formula is true."""
        compiled = compile_formula(formula, self.domains)
        return bool(evaluate(compiled, self.columns, {})[0])


def _unique(phrases):
    """Join distinct phrases, negated ones last."""
    once = dict.fromkeys(phrases)
    return " and ".join(sorted(once, key=lambda phrase: phrase.startswith("not ")))


def fact(formula, sample):
    """Return a phrase for a sample in terms of a formula, "not octagon (triangle)"."""
    truth = sample.holds(formula)
    if isinstance(formula, (C, Equals, Same)):
        return _atom(formula, sample)
    if isinstance(formula, Not):
        return fact(formula.operand, sample)
    if isinstance(formula, Implies):
        if truth:  # described by its left side, or else by its right side
            left = sample.holds(formula.left)
            return fact(formula.right if left else formula.left, sample)
        return f"{fact(formula.left, sample)} and {fact(formula.right, sample)}"
    if isinstance(formula, Iff):
        return _unique([fact(formula.left, sample), fact(formula.right, sample)])
    operands = formula.operands
    if isinstance(formula, And) and not truth:
        operands = [operand for operand in operands if not sample.holds(operand)]
    elif isinstance(formula, Or) and truth:
        operands = [operand for operand in operands if sample.holds(operand)]
    elif isinstance(formula, Or) and _is_choice(operands):
        words = [sample.state(operand.name, operand.value) for operand in operands]
        actual = _word(sample.values[operands[0].name])
        return f"neither {' nor '.join(words)} ({actual})"
    return _unique(fact(operand, sample) for operand in operands)


def _is_choice(operands):
    """Return whether a formula requires one concept to have one of several values."""
    return all(
        isinstance(operand, Equals) and operand.equal for operand in operands
    ) and (len({operand.name for operand in operands}) == 1)


def _atom(formula, sample):
    """Return the phrase for the value that a concept has, and for its negation."""
    actual = sample.values[formula.name]
    if isinstance(formula, Same):
        other = sample.values[formula.other]
        names = _word(formula.name), _word(formula.other)
        if actual == other:
            return f"{names[0]} and {names[1]} both {_word(actual)}"
        return f"{names[0]} {_word(actual)} and {names[1]} {_word(other)}"
    if isinstance(formula, C):
        values = sample.domains[formula.name]
        requested = values[1]
        if values == [0, 1]:  # or [False, True]
            requested, actual = True, bool(actual)
    else:
        requested = formula.value
    if actual == requested or sample.truth(formula.name, actual) is not None:
        return sample.state(formula.name, actual)
    return f"not {sample.state(formula.name, requested)} ({_word(actual)})"


def offense(formula, sample):
    """Return the phrase for a violation, "stop sign, but not octagon (triangle)"."""
    if sample.holds(formula):
        return f"{fact(formula, sample)}, which is unusual"
    if isinstance(formula, Implies):
        return f"{fact(formula.left, sample)}, but {fact(formula.right, sample)}"
    if isinstance(formula, Iff):
        sides = formula.left, formula.right
        true, false = sides if sample.holds(formula.left) else sides[::-1]
        return f"{fact(true, sample)}, but {fact(false, sample)}"
    return fact(formula, sample)


def signed(contribution):
    """Format a contribution with its sign, small ones with one digit."""
    number = contribution + 0.0  # avoids -0
    return f"{number:+.1f}" if abs(number) >= 0.05 or not number else f"{number:+.1g}"


def explanation_frame(explanations, detector, X):
    """Return explanations as a pandas.DataFrame, with the index of `X` if any."""
    pd = import_pandas("explain")
    columns = {
        "score": [-row.outlier for row in explanations],
        "is_ood": [row.is_ood for row in explanations],
        "penalty": [row.penalty for row in explanations],
        "detector": [row.detector for row in explanations],
        "violated": ["; ".join(row.violated) for row in explanations],
        "sentence": [row.sentence for row in explanations],
    }
    for name in detector.knowledge_base_.concepts:
        columns[f"concept_{name}"] = [row.concepts[name] for row in explanations]
    for name in detector.knowledge_base_.names:
        columns[f"contribution_{name}"] = [
            row.contributions[name] for row in explanations
        ]
    return pd.DataFrame(columns, index=X.index if hasattr(X, "iloc") else None)
