"""What is released: the source distribution, the wheel and their metadata."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import skood

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Addresses of the project, none before it is published.
URLS = PROJECT.get("urls", {})

# Found in a clone, and not what anyone should get.
NEVER = re.compile(
    r"__pycache__|\.py[co]$|\.coverage|\.hypothesis|_cache/|\.venv|\.git/|\.git$"
    r"|doc/_build|doc/generated|doc/auto_examples|(?<!benchmarks/)results/|skood-out|\.skood$"
)


def _build(kind, source, out):
    """Let the backend build one distribution of a folder."""
    pytest.importorskip("hatchling")
    pytest.importorskip("hatch_fancy_pypi_readme")
    code = f"import hatchling.build as b; print(b.build_{kind}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dist")


@pytest.fixture(scope="module")
def sdist(folder):
    return _build("sdist", ROOT, folder)


@pytest.fixture(scope="module")
def wheel(folder):
    return _build("wheel", ROOT, folder)


def _sources():
    """The files of the package as they are here."""
    actual = (ROOT / "skood").rglob("*")
    paths = [path for path in actual if path.is_file()]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return {name for name in names if not NEVER.search(name)}


def _names(sdist):
    with tarfile.open(sdist) as archive:
        files = [member.name for member in archive if member.isfile()]
    top = sdist.name.removesuffix(".tar.gz")
    assert all(name.startswith(f"{top}/") for name in files)
    return {name.removeprefix(f"{top}/") for name in files}


def test_version_is_in_the_file_names(sdist, wheel):
    assert sdist.name == f"skood-{skood.__version__}.tar.gz"
    assert wheel.name == f"skood-{skood.__version__}-py3-none-any.whl"


def test_source_distribution_holds_what_developers_need(sdist):
    names = _names(sdist)
    assert _sources() <= names
    for name in (
        ".ci/run",
        ".ci/smoke.py",
        "CHANGELOG.md",
        "CITATION.cff",
        "LICENSE",
        "Makefile",
        "README.md",
        "constraints.txt",
        "constraints-oldest.txt",
        "doc/conf.py",
        "doc/user_guide/index.rst",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/test_release.py",
    ):
        assert name in names
    assert {name.split("/")[0] for name in names if "/" in name} == {
        ".ci",
        "benchmarks",
        "doc",
        "examples",
        "skood",
        "tests",
    }
    assert [name for name in names if NEVER.search(name)] == []


def test_wheel_holds_the_package_and_nothing_else(wheel):
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"skood-{skood.__version__}.dist-info"
    about = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL")}
    about |= {f"{info}/entry_points.txt", f"{info}/licenses/LICENSE"}
    assert names == _sources() | about


def test_wheel_of_the_source_distribution_is_the_same(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        # Python 3.11.0 to 3.11.3 have no filters
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safely)
    (source,) = tmp_path.iterdir()
    out = tmp_path / "out"
    out.mkdir()
    again = _build("wheel", source, out)
    with ZipFile(wheel) as first, ZipFile(again) as second:
        assert first.namelist() == second.namelist()
        for name in first.namelist():
            assert first.read(name) == second.read(name), name


def test_metadata(wheel):
    metadata = pytest.importorskip("packaging.metadata")
    with ZipFile(wheel) as archive:
        raw = archive.read(f"skood-{skood.__version__}.dist-info/METADATA")
        command = archive.read(f"skood-{skood.__version__}.dist-info/entry_points.txt")
    actual = metadata.Metadata.from_email(
        raw, validate=True
    )  # raises if one is invalid
    assert str(actual.version) == skood.__version__
    assert actual.license_expression == PROJECT["license"] == "BSD-3-Clause"
    assert actual.license_files == ["LICENSE"]
    assert actual.description_content_type == "text/markdown"
    # without images; relative links are text, or links to the repository
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"\]\((?!https?:)", readme)
    readme = re.sub(r"!\[[^]]*\]\(.*?\)\s*", "", readme, flags=re.S)
    link = rf"[\1]({URLS['Source']}/blob/main/\2)" if "Source" in URLS else r"\1"
    readme = re.sub(r"\[([^]]+)\]\((?!https?:)(.*?)\)", link, readme, flags=re.S)
    assert actual.description == readme
    assert "](" not in actual.description.replace("](http", "")
    assert str(actual.requires_python) == PROJECT["requires-python"]
    extras = set(PROJECT["optional-dependencies"])
    assert set(actual.provides_extra) == extras
    required = [str(need) for need in actual.requires_dist if need.marker is None]
    assert len(required) == len(PROJECT["dependencies"])
    assert b"skood = skood.__main__:main" in command


def test_pre_commit_has_the_version_of_ruff():
    path = ROOT / ".pre-commit-config.yaml"
    if not path.exists():
        pytest.skip("only in the source tree")
    version = re.search(r"ruff-pre-commit\n +rev: v(.+)", path.read_text())[1]
    assert f"\nruff=={version}\n" in (ROOT / "constraints.txt").read_text()


# --- what makes the environments ----------------------------------------------------

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def _tools(folder, **scripts):
    """A copy of .ci/uv whose environment has these programs only."""
    tools, env = folder / ".venv-uv" / "bin", folder / "env" / "bin"
    for place in (folder / ".ci", tools, env):
        place.mkdir(parents=True)
    (folder / "constraints.txt").write_text("uv==1.2\n")
    (folder / ".venv-uv" / ".installed").write_text("uv==1.2\n")
    programs = {tools / name: line for name, line in scripts.items()}
    for path, line in (programs | {env / "python": 'echo "$@"'}).items():
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    return shutil.copy(ROOT / ".ci" / "uv", folder / ".ci")


@needs_bash
def test_without_uv_pip_installs(tmp_path):
    script = _tools(tmp_path)
    options = ["--build-constraint", "b.txt", "--constraint", "c.txt"]
    options += ["--python", tmp_path / "env", "--editable", ".[a,b]"]
    said = subprocess.run(
        [script, "pip", "install", *options], capture_output=True, text=True, check=True
    ).stdout
    pip = "-m pip --disable-pip-version-check"
    assert said == f"{pip} install --constraint c.txt --editable .[a,b]\n"
    asked = subprocess.run([script, "lock"], capture_output=True, text=True)
    assert (asked.returncode, asked.stderr) == (2, ".ci/uv: pip cannot do: lock\n")


@needs_bash
def test_uv_looks_where_pip_does(tmp_path):
    """Settings of the machine and of the user, the environment's first."""
    configured = (
        "global.cert='/c.pem'",
        r"global.extra-index-url='\na\nb'",
        "global.find-links='/w'",
        ":env:.find-links='/x /y'",
    )
    (tmp_path / "list").write_text("\n".join(configured) + "\n")
    script = _tools(
        tmp_path,
        python=f"cat '{tmp_path / 'list'}'",
        uv='echo "$SSL_CERT_FILE|$UV_INDEX|$UV_FIND_LINKS|$UV_DEFAULT_INDEX|$*"',
    )
    for given, cert in (({}, "/c.pem"), ({"SSL_CERT_FILE": "/mine"}, "/mine")):
        said = subprocess.run(
            [script, "venv", "there"],
            env={"PATH": os.environ["PATH"], **given},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert said == f"{cert}|a b|/x,/y||venv there\n"


# --- what belongs together ----------------------------------------------------------


def _bounds(requirements):
    """Lower bounds by name."""
    return dict(re.match(r"([\w.-]+)>=(.+)$", need).groups() for need in requirements)


def _pins(name):
    """Pinned versions of a constraints file."""
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and line[0] != "#")


def test_oldest_versions_are_the_lower_bounds():
    extras = PROJECT["optional-dependencies"]
    needed = _bounds(PROJECT["dependencies"])
    for extra in ("plot", "faiss", "graph", "persistence", "dask"):
        needed |= _bounds(extras[extra])
    pins = _pins("constraints-oldest.txt")
    del needed["torch"]  # CI has one version only
    for name, bound in needed.items():
        assert (pins[name] + ".0").startswith(bound + "."), name


def test_constraints_pin_all_that_is_used():
    pins = _pins("constraints.txt")
    extras = PROJECT["optional-dependencies"]
    needed = _bounds([*PROJECT["dependencies"], *extras["test"], *extras["doc"]])
    assert set(needed) <= set(pins)


def test_extras_are_tested():
    extras = PROJECT["optional-dependencies"]
    tested = _bounds(extras["test"])
    for extra in ("plot", "graph", "faiss", "dask", "persistence"):
        for name, bound in _bounds(extras[extra]).items():
            assert tested[name] == bound, name


def test_citation_file():
    text = (ROOT / "CITATION.cff").read_text()
    cited = dict(re.findall(r"^([\w-]+): (.+)$", text, flags=re.M))
    name, summary = PROJECT["name"], PROJECT["description"].split(":")[0]
    assert cited["title"] == f'"{name}: {summary[0].lower()}{summary[1:]}"'
    assert cited["version"] == skood.__version__
    assert cited["license"] == PROJECT["license"]
    authors = re.findall(r'^  - name: "(.+)"$', text, flags=re.M)
    assert authors == [author["name"] for author in PROJECT["authors"]]
    assert cited.get("url") == URLS.get("Homepage")
    assert cited.get("repository-code") == URLS.get("Source")


def test_no_promise_of_types():
    """Public functions are not annotated: type checkers must not trust ours."""
    assert not (ROOT / "skood" / "py.typed").exists()
