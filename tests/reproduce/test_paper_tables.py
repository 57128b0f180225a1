"""Tests of the printed tables."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pytest

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import paper_table
from benchmarks.reproduce._paper_tables import paper_tables
from skood.datasets import paper_ood_splits

# Cells per table, as counted in the papers.
COUNTS = {
    "franc": [10, 144],
    "dsde": [104, 104, 91, 65, 91, 22],
    "mln": [128, 24, 80, 20, 12],
    "quam": [24, 24, 54],
    "epn": [
        *(126, 14, 22, 24, 42, 48, 48, 280, 280, 336, 336),
        *(224, 224, 112, 252, 336, 168, 224, 140, 140, 140, 15),
    ],
}


@pytest.mark.parametrize("paper", COUNTS)
def test_number_of_cells(paper):
    about = paper_tables()
    tables = about.table[about.paper == paper].tolist()
    frames = [paper_table(paper, table) for table in tables]
    assert [len(frame) for frame in frames] == COUNTS[paper]
    for frame in frames:
        assert not frame.duplicated(["row", "column"]).any()
        assert frame.value.notna().all() or frame.note[frame.value.isna()].all()


def test_all_cells_are_counted():
    assert sum(map(sum, COUNTS.values())) == 4528


def test_left_out_classes_of_epn():
    """Table 7 has the classes that `paper_ood_splits` leaves out."""
    cells = paper_table("epn", "7")
    names = {"AmazonPhotos": "AmazonPhoto", "CiteSeer": "CiteSeerFull"}
    compared = 0
    for cell in cells.itertuples():
        if not isinstance(cell.value, list):
            continue
        name = names.get(cell.row, cell.row)
        try:
            splits = paper_ood_splits(name)
        except ValueError:
            continue  # a graph without a reader
        assert list(splits[cell.column]) == cell.value, (cell.row, cell.column)
        compared += 1
    assert compared >= 20


def test_unknown_table():
    with pytest.raises(KeyError, match="no table '9' of 'franc', only 1, 2"):
        paper_table("franc", "9")
