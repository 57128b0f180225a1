"""Files that are written as a whole, and limits of what is unpacked."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import errno
import os
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from skood.benchmark._cells import write_arrays
from skood.detectors import KNN
from skood.persistence import dump
from skood.utils._files import replacing, write_text
from skood.utils._untrusted import check_unpacked_size
from tests._forks import forked

posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


def _names(folder):
    return sorted(one.name for one in folder.iterdir())


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(str(path)) as stream:
        stream.write(b"abc")
        assert not path.exists()
        stream.seek(1)
        assert stream.read() == b"bc"
    assert path.read_bytes() == b"abc"
    write_text(path, "ü\udc80\n")
    assert path.read_bytes() == "ü?\n".encode()
    assert _names(tmp_path) == ["a.txt"]


def test_a_long_name(tmp_path):
    """The file that is written first has a name of its own, which is short."""
    path = tmp_path / ("a" * 255)
    write_text(path, "whole")
    assert path.read_text() == "whole"


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_permissions_are_preserved(tmp_path, mode):
    path = tmp_path / "a"
    path.write_text("secret")
    path.chmod(mode)
    with replacing(path) as stream:
        (unfinished,) = (one for one in tmp_path.iterdir() if one != path)
        assert _mode(unfinished) & ~mode == 0  # nobody else can open it meanwhile
        stream.write(b"new")
    assert _mode(path) == mode
    assert path.read_text() == "new"


@posix
def test_permissions_of_a_new_file_are_those_of_open(tmp_path):
    (tmp_path / "opened").touch()
    write_text(tmp_path / "a", "text")
    assert _mode(tmp_path / "a") == _mode(tmp_path / "opened")


@posix
def test_a_link_is_followed(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to("a")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    assert _names(tmp_path) == ["a", "link"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as stream:
        stream.write(b"half")
        raise error
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["a"]


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "no" / "a", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_text(tmp_path / "folder", "text")
    assert _names(tmp_path) == ["folder"]


@posix
def test_devices_and_pipes_are_not_replaced(tmp_path):
    """A user with all rights could: /dev/null would become a file for all processes."""
    path = tmp_path / "a"
    os.mkfifo(path)
    for name in (path, tmp_path / "link"):
        if name != path:
            name.symlink_to(path)
        with pytest.raises(OSError, match="Not a regular file") as info:
            write_text(name, "text")
        assert info.value.errno == errno.EINVAL
    assert path.is_fifo()
    assert _names(tmp_path) == ["a", "link"]


@posix
def test_a_full_disk(tmp_path):
    """A limit on the size of files stands for the disk: writing raises the OSError."""
    pytest.importorskip("skops.io")
    path = tmp_path / "a"
    detector = KNN(n_neighbors=1).fit(np.random.default_rng(0).normal(size=(400, 8)))
    path.write_text("old")
    path.chmod(0o600)

    def write_all():
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit))
        for write in (
            lambda: dump(detector, path),
            lambda: write_text(path, "x" * 10**5),
            lambda: write_arrays(path, x=np.ones(10**5)),
        ):
            with pytest.raises(OSError) as error:
                write()
            assert error.value.errno == errno.EFBIG

    assert forked(write_all) == 0
    assert _names(tmp_path) == ["a"]
    assert path.read_text() == "old"
    assert _mode(path) == 0o600


def test_two_processes_write_the_same_file(tmp_path):
    code = """
        import sys
        from skood.utils._files import write_text

        for _ in range(200):
            write_text(sys.argv[1], sys.argv[2] * 20_000)
        """
    path = tmp_path / "report.html"
    jobs = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), path, letter])
        for letter in "ab"
    ]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0]
    assert path.read_text() in ("a" * 20_000, "b" * 20_000)
    assert _names(tmp_path) == ["report.html"]


def test_limits():
    check_unpacked_size(64 * 2**20, 1, name="a")
    check_unpacked_size(10**9, 10**7, name="a")
    check_unpacked_size(10**9, 1, 10**9, name="a")
    for unpacked, packed, limit in [
        (64 * 2**20 + 1, 1, None),
        (10**9 + 1, 10**7, None),
        (11, 10, 10),
    ]:
        expected = rf"a has {packed} bytes and unpacks to {unpacked} or more, and at mo"
        with pytest.raises(ValueError, match=expected + r".*larger max_bytes\.$"):
            check_unpacked_size(unpacked, packed, limit, name="a")
