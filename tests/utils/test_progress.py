"""Tests of the progress of long work."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.utils._progress import progress


def all_uses(verbose):
    """Use progress in each way there is; return what the iterations gave."""
    given = [list(progress(3, desc="number", verbose=verbose))]
    given.append(list(progress((c for c in "abc"), desc="generator", verbose=verbose)))
    with progress("xyz", desc="sized", verbose=verbose) as bar:
        given.append(list(bar))
    with progress(4, desc="context", verbose=verbose) as bar:
        bar.update(3)
        bar.set_postfix(loss=0.25, lr="1e-3")
        bar.update()
    bar.close()  # closing twice does no harm
    return given


EXPECTED = [[0, 1, 2], ["a", "b", "c"], ["x", "y", "z"]]


def test_silent(capsys):
    assert all_uses(verbose=0) == EXPECTED
    assert capsys.readouterr() == ("", "")


def test_tqdm(capsys):
    assert all_uses(verbose=1) == EXPECTED
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("number: 100%", "generator: 3it", "sized: 100%", "context: 100%"):
        assert text in err
    assert "4/4" in err
    assert "loss=0.25, lr=1e-3" in err


def test_tqdm_does_not_redraw_for_values_alone(capsys):
    with progress(1000, desc="fast", verbose=1) as bar:
        for i in range(1000):
            bar.set_postfix(i=i)
            bar.update()
    assert capsys.readouterr().err.count("fast:") < 100
