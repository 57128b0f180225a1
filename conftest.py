"""Collection of the examples in the modules of skood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib import import_module
from pathlib import Path

_ROOT = Path(__file__).parent


def pytest_collect_file(file_path):
    """Import a module under its name before pytest does it from its file.

    ``--import-mode=importlib`` imports the packages of a file, which may import the
    file, and then the file once more: two modules with different classes.
    """
    if file_path.suffix == ".py" and file_path.is_relative_to(_ROOT / "skood"):
        parts = file_path.relative_to(_ROOT).with_suffix("").parts
        if parts[-1] not in ("__main__", "__init__"):
            import_module(".".join(parts))
