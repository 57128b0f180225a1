"""Products of many cases as loops, each within one test."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import inspect

import pytest


def looped(names, values):
    """Like ``pytest.mark.parametrize``, but with all values in one test.

    A failure has a note with the values of its case. Fixtures are shared by the cases.
    The test is skipped if each of its cases is.
    """
    names = names.replace(",", " ").split() if isinstance(names, str) else names
    values = [value if len(names) > 1 else (value,) for value in values]
    assert values, names

    def decorate(test):
        @functools.wraps(test)
        def loop(**arguments):
            skipped = []
            for value in values:
                case = dict(zip(names, value, strict=True))
                try:
                    test(**arguments, **case)
                except pytest.skip.Exception as error:
                    skipped.append(error)
                except BaseException as error:
                    error.add_note(f"in the case {case!r}")
                    raise
            if len(skipped) == len(values):
                raise skipped[0]

        signature = inspect.signature(test)
        parameters = signature.parameters.values()
        loop.__signature__ = signature.replace(
            parameters=[one for one in parameters if one.name not in names]
        )
        return loop

    return decorate
