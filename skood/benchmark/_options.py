"""Options of the demo."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path

from skood.stats._ranks import check_level

_DEFAULT_LEFT_OUT = (8, 9)
_LARGEST_SEED = 2**32 - 1


def _check_count(name, value, least, most=math.inf):
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if not least <= value <= most:
        bounds = f"at least {least}" + f" and at most {most}" * (most < math.inf)
        raise ValueError(f"{name} must be {bounds}, got {value}.")


@dataclass
class Options:
    """Validated parameters of the demo; see `run_demo`."""

    id_data: str
    ood_data: str | None
    folder: Path | None
    left_out: tuple[int, ...]
    n_train: int | None
    n_test: int | None
    max_epochs: int | None
    tpr_min: float
    fpr_max: float
    random_state: int
    out: Path | None

    def __post_init__(self):
        for name in ("id_data", "ood_data"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "id_data"):
                raise TypeError(f"{name} must be the name of data, got {value!r}.")
        for name in ("folder", "out"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, Path(value).expanduser())
        if self.id_data == self.ood_data:
            raise ValueError(
                f"{self.id_data!r} cannot be both the ID and the OOD data; choose "
                "others, or leave classes of it out."
            )
        if self.left_out is None:
            self.left_out = _DEFAULT_LEFT_OUT if self.ood_data is None else ()
        if isinstance(self.left_out, Integral):
            self.left_out = (self.left_out,)
        self.left_out = tuple(self.left_out)
        if self.ood_data is not None and self.left_out:
            raise ValueError(
                f"The classes {self.left_out} were left out although the OOD data are "
                f"{self.ood_data!r}; give one or the other."
            )
        if self.ood_data is None and not self.left_out:
            raise ValueError(
                "There are no OOD samples: leave out at least one class, or give OOD "
                "data."
            )
        for name, least in (("n_train", 1), ("n_test", 3), ("max_epochs", 1)):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), least)
        _check_count("random_state", self.random_state, 0, _LARGEST_SEED)
        check_level(self.tpr_min, "tpr_min", "[]")
        check_level(self.fpr_max, "fpr_max", "[]")
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise NotADirectoryError(
                f"{self.out} is a file; results are written to a folder."
            )

    @property
    def ood_name(self):
        """Return the name of the OOD data."""
        if self.ood_data is not None:
            return self.ood_data
        return f"its classes {', '.join(map(str, self.left_out))}"

    def to_dict(self):
        """Return the options as plain numbers, strings and lists."""
        options = asdict(self)
        for name in ("folder", "out"):
            options[name] = None if options[name] is None else str(options[name])
        return options | {"left_out": [int(c) for c in self.left_out]}
