"""Short scripts as a user would write them; each ends with asserts on numbers."""

import re
import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
OPTIONAL = {"catboost", "lightgbm", "networkx", "pandas", "pyod", "xgboost"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path, tmp_path, monkeypatch):
    imported = re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
    for name in sorted(OPTIONAL.intersection(imported)):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
