"""Arguments and output that commands which make models smaller share: models, samples, and how both models compare."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyruntime.cli import common
from pyruntime.errors import InvalidInput, not_found
from pyruntime.native.sessions.session import Session
from pyruntime.native.smaller.comparison import compare_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX model")
    parser.add_argument("out", type=Path, metavar="OUT", help="the new ONNX model")
    text = "an .npz file with arrays by input name, or a folder of such files"
    parser.add_argument("--samples", type=Path, required=True, metavar="PATH", help=text)
    text = "integers in the files of the samples: the right classes"
    parser.add_argument("--labels", metavar="NAME", help=text)


def read(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The samples. Rows of arrays are several samples if the model takes fewer at once. Errors: InvalidInput"""
    if not args.model.is_file():
        raise not_found(args.model)
    paths = sorted(args.samples.glob("*.npz")) if args.samples.is_dir() else [args.samples]
    if not paths:
        raise InvalidInput(f"{args.samples} has no .npz file", hint="numpy.savez(path, name=array) writes one")
    inputs = Session(args.model).get_inputs()
    sizes = {i.shape[0] for i in inputs if i.shape and isinstance(i.shape[0], int)}
    size = sizes.pop() if len(sizes) == 1 else 0
    found = []
    for path in paths:
        args.inputs = path
        arrays = common.feeds(args, inputs)
        count = max((len(x) for x in arrays.values() if x.ndim), default=1)
        step = size or max(count, 1)
        cut = {name for name, x in arrays.items() if x.ndim and len(x) == count}
        found += [
            {name: x[n : n + step] if name in cut else x for name, x in arrays.items()}
            for n in range(0, max(count - step, 0) + 1, step)
        ]
    return found


def feeds(given: list[dict[str, Any]], args: argparse.Namespace) -> list[Mapping[str, Any]]:
    """The samples without labels."""
    return [{name: x for name, x in each.items() if name != args.labels} for each in given]


def report(args: argparse.Namespace, given: list[dict[str, Any]]) -> str:
    found = compare_models(args.model, args.out, given, labels=args.labels)
    rows = [
        ["", "before", "after"],
        ["size", *map(common.size, found.size)],
        ["processor time of a run", *map(common.duration, found.seconds)],
        *([["labels that are right", *(f"{share:.1%}" for share in found.accuracy)]] if found.accuracy else []),
    ]
    same = f"{args.out}: the same class in {found.agreement:.1%}, error of the first output {found.error:.2g}"
    return f"{common.table(rows, 'lrr')}\n{same}"
