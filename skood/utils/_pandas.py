"""pandas, where it is installed."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

__all__ = ["import_pandas"]


def import_pandas(method):
    """Import pandas, which skood does not require, or say who needs it.

    Parameters
    ----------
    method : str
        The method that returns a data frame.

    Returns
    -------
    pandas : module
        The module.

    Raises
    ------
    ImportError
        If pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{method} returns a pandas.DataFrame, and pandas is not installed: "
            "pip install pandas."
        ) from error
    return pandas
