"""Rows of torch datasets and loaders: which, in what order, with which labels."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from skood.utils._batches import labeled_rows
from skood.utils._torch_batches import DatasetRows, iter_batches, rows_of
from tests.nn._items import Items, Stream, as_arrays, loses_rows, one_too_few

X = np.arange(24.0).reshape(12, 2)
Y = np.arange(12) % 3


def batches(data):
    return [np.asarray(block).tolist() for block in iter_batches(data)]


def rows(data):
    return [row for block in batches(data) for row in block]


class Shuffled(Sampler):
    """A sampler of the user's own that torch's types do not tell to be random."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(torch.randperm(self.n).tolist())


# ---- which rows


class BatchItems(Dataset):
    """Items are batches already."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i >= 4:
            raise IndexError(i)
        return torch.from_numpy(X[3 * i : 3 * i + 3]), Y[3 * i : 3 * i + 3]


@pytest.mark.parametrize(
    "data",
    [
        Items(X),
        Items(X, Y),
        TensorDataset(torch.from_numpy(X)),
        TensorDataset(torch.from_numpy(X), torch.from_numpy(Y), torch.arange(12)),
        DataLoader(Items(X, Y), batch_size=5),
        DataLoader(Items(X, Y), batch_size=5, num_workers=1),
        DataLoader(Stream(Items(X, Y)), batch_size=5),
        DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=5),
        DataLoader(BatchItems(), batch_size=None),
        Stream(Items(X)),
        DatasetRows(Items(X)),
    ],
)
def test_all_samples_in_order(data):
    assert rows(data) == X.tolist()


def test_batches_of_a_loader_are_preserved():
    loader = DataLoader(Items(X), batch_size=5)
    assert [len(batch) for batch in batches(loader)] == [5, 5, 2]
    assert [len(batch) for batch in batches(rows_of(loader)[np.arange(7)])] == [5, 2]


def test_batch_sampler_of_the_user():
    sampler = BatchSampler(SequentialSampler(X), batch_size=7, drop_last=False)
    loader = DataLoader(Items(X), batch_sampler=sampler)
    assert [len(batch) for batch in batches(loader)] == [7, 5]
    lists = [[3, 1], [0], [2, 2, 5]]
    assert (
        rows(DataLoader(Items(X), batch_sampler=lists))
        == X[[3, 1, 0, 2, 2, 5]].tolist()
    )


@pytest.mark.parametrize(
    "chosen",
    [
        slice(2, 9, 3),
        np.array([5, 0, 0]),
        np.arange(12) % 2 == 0,
        (np.array([1, 2]), ...),
    ],
)
def test_samples_are_chosen_without_loading(chosen):
    items = Items(X, Y)
    part = rows_of(items)[chosen]
    kept = chosen[0] if isinstance(chosen, tuple) else chosen
    assert items.n_loaded == 0
    assert part.shape == (len(part),) == (len(X[kept]),)
    np.testing.assert_array_equal(np.asarray(part), X[kept])
    np.testing.assert_array_equal(part.labels(), Y[kept])
    assert items.n_loaded == len(part)  # labels were noted while rows were read


def test_known_labels_are_chosen_with_the_samples():
    items = Items(X, Y)
    data = rows_of(items)
    np.testing.assert_array_equal(data.labels(), Y)
    items.n_loaded = 0
    np.testing.assert_array_equal(data[3:5].labels(), Y[3:5])
    assert items.n_loaded == 0


def test_items_without_labels_are_loaded_once():
    items = Items(X)
    data = rows_of(items)
    assert data.labels() is None
    assert data[:3].labels() is None
    assert items.n_loaded == len(X)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (list("abcabcabcabc"), list("abcabcabcabc")),
        (["a", -1] * 6, ["a", -1] * 6),
        (torch.arange(12), list(range(12))),
        (np.arange(12, dtype=np.int32), list(range(12))),
        (np.eye(12, dtype=int), np.eye(12, dtype=int).tolist()),
    ],
    ids=["text", "mixed", "tensor", "numpy", "table"],
)
@pytest.mark.parametrize("in_loader", [False, True])
def test_labels(given, expected, in_loader):
    data = Items(X, given)
    if in_loader and not isinstance(given[1], int):
        data = DataLoader(data, batch_size=5)
    assert rows_of(data).labels().tolist() == expected


def test_bfloat16_becomes_float32():
    (block,) = iter_batches(TensorDataset(torch.ones(2, 3, dtype=torch.bfloat16)))
    assert block.dtype == np.float32


# ---- order


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"sampler": SubsetRandomSampler(range(12))},
        {"sampler": WeightedRandomSampler([1.0] * 12, 12)},
        {"sampler": Shuffled(12)},
        {"batch_sampler": BatchSampler(Shuffled(12), 5, False)},
        {"shuffle": True, "generator": torch.Generator().manual_seed(0)},
    ],
    ids=["shuffle", "subset", "weighted", "own", "own-batches", "generator"],
)
def test_shuffling_loaders_are_for_fit(options):
    loader = DataLoader(Items(X, Y), **options)
    message = "The DataLoader shuffles, so that results cannot be assigned to samples"
    with pytest.raises(ValueError, match=message):
        rows_of(loader)
    with pytest.raises(ValueError, match="Make one with shuffle=False"):
        rows(loader)
    actual = rows_of(loader, for_fit=True)
    assert (np.diff(actual.indices) >= 0).all()
    assert len(actual) == 12
    if not isinstance(loader.sampler, WeightedRandomSampler):
        assert np.asarray(actual).tolist() == X.tolist()
    np.testing.assert_array_equal(actual.labels(), Y[actual.indices])


def test_single_sample_cannot_be_shuffled():
    loader = DataLoader(Items(X[:1]), shuffle=True)
    assert rows(loader) == X[:1].tolist()


def test_generators_stay_as_they_are():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Items(X, Y), shuffle=True, generator=generator)
    before = generator.get_state(), torch.get_rng_state()
    rows_of(loader, for_fit=True).labels()
    rows(Items(X))
    assert torch.equal(generator.get_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


def test_dropped_samples():
    loader = DataLoader(Items(X), batch_size=5, drop_last=True)
    with pytest.raises(ValueError, match="leaves out the last 2 of 12 samples"):
        rows(loader)
    assert len(rows_of(loader, for_fit=True)) == 10
    assert len(rows(DataLoader(Items(X), batch_size=4, drop_last=True))) == 12
    sampler = BatchSampler(SequentialSampler(X), batch_size=5, drop_last=True)
    with pytest.raises(ValueError, match="leaves out the last 2 of 12 samples"):
        rows(DataLoader(Items(X), batch_sampler=sampler))
    stream = DataLoader(Stream(Items(X)), batch_size=5, drop_last=True)
    with pytest.raises(ValueError, match="leaves out the last samples of an iterable"):
        rows(stream)


# ---- what has no rows to choose among


@pytest.mark.parametrize(
    "data", [Stream(Items(X)), DataLoader(Stream(Items(X)))], ids=["data", "loader"]
)
def test_streams_cannot_be_indexed(data):
    with pytest.raises(TypeError, match="gives samples one after the other, and here"):
        rows_of(data, for_fit=True)


class Endless(Dataset):
    """It does not know its length."""

    def __getitem__(self, i):
        if i >= len(X):
            raise IndexError(i)
        return X[i]


def test_dataset_without_length():
    with pytest.raises(TypeError, match="Give a map-style dataset"):
        rows_of(Endless())
    assert rows(Endless()) == X.tolist()


# ---- what is no row


class Image:
    """As of a library that torch does not know."""


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"pixels": 1}, "an item with a dict"),
        ((Image(), 0), "an item with a tests.utils.test_torch_batches.Image"),
        ("text", "an item with a str"),
    ],
)
def test_items_that_are_no_arrays(item, named):
    with pytest.raises(TypeError, match=f"must be a tensor or an array.* got {named}"):
        rows(Subset([item, item], [0, 1]))


def test_batches_that_are_no_arrays():
    with pytest.raises(TypeError, match="got a batch with a dict"):
        rows(DataLoader(Subset([{"a": 1.0}], [0])))


@pytest.mark.parametrize(
    "item", [np.arange(2.0), (np.arange(2.0), 1), [np.arange(2.0)]]
)
def test_items_of_numpy(item):
    assert rows(Subset([item], [0])) == [[0.0, 1.0]]


def test_items_of_numpy_and_torch():
    assert rows(Subset([np.arange(2), torch.ones(2)], [0, 1])) == [[0, 1], [1, 1]]
    with pytest.raises(TypeError, match="got an item with a dict"):
        rows(Subset([np.arange(2), {"a": 1}], [0, 1]))


def test_batches_of_numpy():
    loader = DataLoader(Items(X, Y), batch_size=5, collate_fn=as_arrays)
    assert rows(loader) == X.tolist()
    assert rows_of(loader).labels().tolist() == Y.tolist()


def test_collate_that_loses_samples():
    loader = DataLoader(Items(X, Y), batch_size=6, collate_fn=loses_rows)
    with pytest.raises(
        ValueError, match="gave 5 samples for 6 items: there must be one"
    ):
        rows(loader)


def test_collate_that_loses_labels():
    loader = DataLoader(Items(X, Y), batch_size=6, collate_fn=one_too_few)
    with pytest.raises(
        ValueError, match="has 6 samples and 5 labels: there must be one"
    ):
        rows_of(loader).labels()


LABELS_OF_OTHER_KINDS = {
    "of items": Items(X, [{"boxes": [1, 2]}] * 12),
    "of a loader": DataLoader(Items(X, [{"a": 1, "b": 2}] * 12), batch_size=5),
    "of several lengths": Items(X, [[0] * (i % 3) for i in range(12)]),
}


@pytest.mark.parametrize(
    "data", LABELS_OF_OTHER_KINDS.values(), ids=LABELS_OF_OTHER_KINDS
)
def test_labels_are_not_looked_at_if_nobody_asks(data):
    assert rows(data) == X.tolist()
    given, y = labeled_rows(data, Y)
    assert rows(given) == X.tolist()
    assert y is Y


def test_labels_in_a_stream_are_not_looked_at():
    data = Stream(LABELS_OF_OTHER_KINDS["of a loader"].dataset)
    assert rows(DataLoader(data, batch_size=5)) == X.tolist()


def test_labels_of_several_lengths():
    data = LABELS_OF_OTHER_KINDS["of several lengths"]
    with pytest.raises(
        ValueError, match=r"a number or a text each, got \[\] in the fi"
    ):
        rows_of(data).labels()


def test_labels_of_a_few_items():
    data = ConcatDataset([Items(X[:6], Y[:6]), Items(X[6:])])
    with pytest.raises(ValueError, match="have labels and others have none"):
        rows_of(DataLoader(data, batch_size=6)).labels()
    assert None in rows_of(data).labels().tolist()  # which no fit takes
    assert rows(data) == X.tolist()


@pytest.mark.parametrize("data", [Items(X[:0]), Stream(Items(X[:0]))])
def test_no_samples(data):
    with pytest.raises(
        ValueError, match="X has no samples: the torch dataset gave none"
    ):
        rows(data)
