"""Detectors compared on CSV files by one command, without Python code."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from skood.benchmark import main

rng = np.random.default_rng(0)
table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["height", "width", "weight"])
table["color"] = rng.choice(["blue", "red"], 300)
table.loc[::10, "width"] = np.nan
shifted = table[:80].assign(weight=table["weight"] + 6)
painted = table[:80].assign(color="pink")
kind = np.where(table["height"] + (table["color"] == "red") > 0.5, "a", "b")
table.assign(kind=kind).to_csv("known.csv", index=False)
shifted.to_csv("shifted.csv", index=False)
painted.to_csv("painted.csv", index=False)

command = "compare --id known.csv --label kind --ood shifted.csv --ood painted.csv"
command += " --detectors MSP,Mahalanobis --out results --quiet"
assert main(command.split()) == 0  # as: skood compare --id known.csv ...

page = Path("results/report.html").read_text()
aurocs = pd.read_csv("results/table.csv").query("metric == 'auroc'")
values = aurocs.set_index(["detector", "ood"])["value"]
assert values["Mahalanobis"].min() > 0.98
for (detector, name), value in values.items():
    assert re.search(rf"{detector}.*{value:.3f}", page, re.DOTALL), (detector, name)
