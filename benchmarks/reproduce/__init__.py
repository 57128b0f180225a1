"""Tables of five papers, computed with skood: values beside the printed ones, verdicts.

From a clone of the repository::

    python -m benchmarks.reproduce PAPER [TABLE ...] --data DIR --out DIR
    python -m benchmarks.reproduce PAPER --small --out DIR

PAPER is franc, dsde, mln, quam or epn, or openood for the benchmark of that name, with
near and far OOD sets and covariate-shifted ID sets. DIR of ``--data`` has the files as
their owners publish them; a table whose files are absent is skipped with their names,
which ``--list`` prints. ``--small`` needs no files, takes seconds, and never has a
verdict on the paper. After an interruption the same command continues. ``--help`` has
all options.

How the file of a paper looks
=============================

``benchmarks/reproduce/PAPER.py`` defines ``PAPER``, a `Paper`, and uses the public
interface of skood only. A paper has experiments, an experiment has tables, and a table
is a function from prepared parts to rows::

    class Parts:                          # one network or split, and one seed
        def __init__(self, run, seed):    # cheap: called even if nothing is left to do
            self.run, self.seed = run, seed

        @cached_property
        def network(self):                # work is done where it is first needed
            ...

    def table_2(parts):
        for name in DETECTORS:
            yield Row(f"MNIST/{name}", partial(measure, parts, name))

    def measure(parts, name):             # columns as printed in the paper
        return {"notMNIST/AUROC": 0.97, "notMNIST/OSCR": (0.96, 0.95, 0.97)}

    PAPER = Paper(
        name="franc",
        experiments=[
            Experiment(
                "MNIST", Parts, {"2": table_2}, needs=("mnist", "notmnist"), seeds=3
            ),
        ],
        small=[Experiment("digits", SmallParts, {"2": table_2}, seeds=3)],
        claims=[Claim("pairs have the smaller risk", "2", gains)],
    )

- Names of rows and columns that are names in `paper_table` are compared with the paper;
  others are reported without a verdict. A value is a number, None ("unable"), or a
  number with the ends of its 95 % interval over samples, such as a bootstrap interval.
  With several seeds intervals over seeds replace it.
- A finished row is in the journal ``OUT/records.jsonl`` and is not computed again. Its
  key is the hash of the data files that the experiment needs, of the code of skood and
  of the paper's file, the `recipe` of the experiment, the seed, and `depends` of the
  row. So the rows of a table may be computed in any order, or not at all: what they
  share belongs to the parts.
- ``run`` is a `Run`: ``run.images(name, subset)`` reads a data set, ``run.network`` and
  ``run.features`` store networks and features in ``OUT/networks`` and
  ``OUT/features``; ``run.placed`` sets the device of a detector; ``run.methods`` are
  the user's own (``--method NAME=module:object``)
  and ``own_method`` fills in the network. Yield a row for each, with the method as
  ``depends``.
- With ``--recipe printed`` an experiment has ``run.recipe`` "printed", whose settings
  `printed_recipe` returns, and a key and cells of its own; ``recipes`` of an experiment
  that has no settings is ("ours",). `own_choices` lists what a paper does not state
  or ours changes.
- A `Claim` is a function from `Records` to paired differences, one for each run
  (averaged over further axes), positive in its favor. The page lists them as paired
  tests with Holm's correction. With ``always=True`` it is an identity that must hold
  in each run, not a test. ``--small`` fails if a mean difference is not positive (for
  identities: if one is negative).
- `needs` are names of data sets (``_files.py``); names that start with "?" are
  optional and count for the key only. ``cannot_follow`` of a paper has reasons for
  cells that the paper does not determine; ``figures`` draws a table, ``notes`` are
  shown above it.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from benchmarks.reproduce._jobs import reproduce
from benchmarks.reproduce._paper import Claim, Experiment, Paper, Row, own_method
from benchmarks.reproduce._paper_tables import paper_table
from benchmarks.reproduce._recipes import own_choices, printed_recipe

__all__ = [
    "Claim",
    "Experiment",
    "Paper",
    "Row",
    "own_choices",
    "own_method",
    "paper_table",
    "printed_recipe",
    "reproduce",
]
