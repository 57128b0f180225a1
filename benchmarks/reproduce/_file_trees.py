"""Folders and archives of files, read in the same way."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import tarfile
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePath

from skood.utils._untrusted import (
    BoundedGzip,
    BoundedZip,
    check_unpacked_size,
    decoding,
)

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


class FileTree:
    """The files below a folder, on disk or in an archive.

    Parameters
    ----------
    path : Path
        A folder, or an archive (.tar, .tar.gz, .tgz, .zip).
    inside : str, default=""
        Folder inside of `path`.
    max_bytes : int, default=None
        Maximal size of the content of an archive.

    Attributes
    ----------
    names : list of str
        Paths of the files relative to the folder, sorted, without hidden files.
    """

    def __init__(self, path, inside="", max_bytes=None):
        self.path = path
        self._prefix = f"{inside}/" if inside else ""
        self.max_bytes = max_bytes

    @cached_property
    def names(self):
        """The files, listed on first use."""
        return sorted(_names(self.path, self._prefix, self.max_bytes))

    def __str__(self):
        return str(self.path / self._prefix)

    def _paths(self, names):
        """Return the paths of the named files on disk, or raise if one is outside."""
        if outside := [*filter(leaves_folder, names)]:
            raise ValueError(f"{self} has no file outside of it: {outside[0]!r}.")
        return [self.path / self._prefix / name for name in names]

    def signature(self, names):
        """Return what changes if the named files do: sizes, and times on disk."""
        paths = self._paths(names) if self.path.is_dir() else [self.path]
        return [(s.st_size, s.st_mtime_ns) for s in (path.stat() for path in paths)]

    def read(self, names):
        """Yield (position in `names`, content) of the files, in the archive's order."""
        paths = self._paths(names)
        if self.path.is_dir():
            for i, path in enumerate(paths):
                with decoding(path, "a readable file"):
                    content = path.read_bytes()
                yield i, content
            return
        wanted: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            wanted.setdefault(self._prefix + name, []).append(i)
        if absent := set(names).difference(self.names):
            raise FileNotFoundError(f"{self} has no file {min(absent)}.")
        for name, content in _contents(self.path, wanted, self.max_bytes):
            for i in wanted[name]:
                yield i, content

    def read_file(self, name, largest=None):
        """Return the content of one file, or raise; `largest` is its maximal size."""
        if name not in self.names:
            raise FileNotFoundError(f"{self} has no file {name}.")
        if largest is not None and self.path.is_dir():
            size = (self.path / self._prefix / name).stat().st_size
            if size > largest:
                raise ValueError(
                    f"{self}/{name} has {size} bytes, and the largest published file "
                    f"has less than {largest}. Copy or download it again."
                )
        return next(self.read([name]))[1]


def find_tree(root, folders, *, max_bytes=None):
    """Return the first of some folders below `root` that is there, or raise.

    Instead of a folder "a/b", an archive a.tar, a.tar.gz, a.tgz or a.zip with "a/b" or
    "b" inside is found as well.
    """
    path, folder = find_path(root, folders)
    if path.is_dir():
        return FileTree(path, max_bytes=max_bytes)
    tree = FileTree(path, folder, max_bytes)
    rest = folder.partition("/")[2]
    return tree if tree.names else FileTree(path, rest, max_bytes)


def find_path(root, folders):
    """Return the path of the first folder that is there or in an archive, or raise.

    The path is of the folder or the archive; the second value is the folder's name.
    """
    for folder in folders:
        if (root / folder).is_dir():
            return root / folder, folder
        for ending in _ARCHIVES:
            path = root / f"{folder.partition('/')[0]}{ending}"
            if path.is_file():
                return path, folder
    expected = " or ".join(str(root / folder) for folder in folders)
    raise FileNotFoundError(
        f"There is no {expected}, neither as a folder nor as an archive "
        f"({', '.join(_ARCHIVES)}) with the name of its first folder."
    )


def _names(path, prefix, max_bytes):
    """Return the relative names of the files of a folder or an archive."""
    if path.is_dir():
        base = path / prefix
        found = [
            file.relative_to(base).as_posix()
            for file in base.rglob("*")
            if file.is_file()
        ]
    else:
        members = _members(path, max_bytes)
        found = [name[len(prefix) :] for name in members if name.startswith(prefix)]
    return [name for name in found if not _is_hidden(name)]


def _is_hidden(name):
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def leaves_folder(name):
    """Return whether a relative path is of a file outside of its folder."""
    path = PurePath(name.replace("\\", "/"))
    return bool(path.anchor) or ".." in path.parts


def _members(path, max_bytes):
    """Return the names of the files of an archive, none outside of its folder."""
    with decoding(path, "a whole archive"):
        if path.suffix == ".zip":
            with BoundedZip(path, max_bytes) as archive:
                members = [m.filename for m in archive.infolist() if not m.is_dir()]
        else:
            with _open_tar(path, max_bytes) as archive:
                found = [m for m in archive if m.isfile()]
            members = [m.name for m in found]
            packed, unpacked = path.stat().st_size, sum(m.size for m in found)
            check_unpacked_size(unpacked, packed, max_bytes, name=path)
    members = [name.removeprefix("./") for name in members]
    if outside := [*filter(leaves_folder, members)]:
        raise ValueError(f"{path} has a member outside of its folder: {outside[0]!r}.")
    return members


@contextmanager
def _open_tar(path, max_bytes):
    """Yield a tar archive, decompressed by gzip if need be, in bounded memory."""
    with open(path, "rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream = BoundedGzip(path, max_bytes) if is_packed else file
        with stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            yield archive


def _contents(path, wanted, max_bytes):
    """Yield (name, content) of the wanted members of an archive, in its order."""
    read = _zip_contents if path.suffix == ".zip" else _tar_contents
    with decoding(path, "a whole archive"):
        yield from read(path, wanted, max_bytes)


def _zip_contents(path, wanted, max_bytes):
    with BoundedZip(path, max_bytes) as archive:
        for member in archive.infolist():
            if (name := member.filename.removeprefix("./")) in wanted:
                yield name, archive.read(member)


def _tar_contents(path, wanted, max_bytes):
    with _open_tar(path, max_bytes) as archive:
        for member in archive:
            name, file = member.name.removeprefix("./"), None
            if name in wanted and member.isfile():
                file = archive.extractfile(member)
            if file is not None:
                yield name, file.read()


def lines_of(content, path):
    """Return the lines of a text file in UTF-8, without empty ones, or raise."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}.") from error
    return [line for line in map(str.strip, text.splitlines()) if line]


def folder_of(root):
    """Return `root` as a path of an existing folder, or raise."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder.")
    return root
