"""Colors, axes and styles of displays."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager

from skood.utils._optional import import_optional

# Colors of Okabe and Ito, which are distinguishable for color-blind readers; lines also
# differ in their dashes, histograms in their hatching.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)))


@contextmanager
def get_axes(ax, owner):
    """Yield the axes to draw on; None makes a new figure, closed on an error."""
    if ax is not None:
        yield ax
        return
    plt = import_optional("matplotlib.pyplot", f"{owner}.plot", "plot")
    figure, ax = plt.subplots()
    try:
        yield ax
    except BaseException:
        plt.close(figure)
        raise


class BaseDisplay:
    """Base class of displays, whose parameters, axes and artists are attributes."""

    @contextmanager
    def _axes(self, ax):
        """Yield the axes to draw on, then store them and their figure."""
        with get_axes(ax, type(self).__name__) as ax:
            yield ax
        self.ax_, self.figure_ = ax, ax.figure

    @contextmanager
    def _panels(self, axes, shape, size):
        """Yield the axes to draw on; None makes a new figure with an array of them."""
        if axes is not None:
            yield axes
            return
        with get_axes(None, type(self).__name__) as first:
            figure = first.figure
            figure.clear()
            figure.set_layout_engine("constrained")
            figure.set_size_inches(*size)
            yield figure.subplots(*shape, squeeze=False)


def long_names(kwargs, *, patch=False):
    """Return keyword arguments of an artist by their long names: color for c."""
    from matplotlib import lines, patches
    from matplotlib.cbook import normalize_kwargs

    artist = patches.Polygon if patch else lines.Line2D
    return normalize_kwargs(kwargs, artist)
