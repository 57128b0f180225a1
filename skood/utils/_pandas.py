"""Import of the optional dependency pandas."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

__all__ = ["import_pandas"]


def import_pandas(method):
    """Import pandas, an optional dependency, for a method that returns a data frame.

    Raises an ImportError that names `method` if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{method} returns a pandas.DataFrame, and pandas is not installed: "
            "pip install pandas."
        ) from error
    return pandas
