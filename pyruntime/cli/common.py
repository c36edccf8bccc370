"""Common parts of the commands: options, sessions, feeds, and the printing of numbers and tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from pyruntime.cli.parser import Parser, threads
from pyruntime.cli.progress import doing
from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.native.sessions.session import Session
from pyruntime.options import SessionOptions
from pyruntime.placement.provider_list import AUTO, available

TYPES = {"float": "float32", "double": "float64"}


def parser(
    name: str, description: str, examples: dict[str, str], model: Callable[[str], Path | str] = Path
) -> argparse.ArgumentParser:
    """A parser with the options of all commands that compile a model. model: converts the argument MODEL"""
    out = Parser(name, description, examples)
    out.add_argument("model", type=model, metavar="MODEL", help="an ONNX model, or a Program written by `export`")
    out.add_argument(
        "--provider",
        default="wasm",
        metavar="NAME",
        help="preferred provider: wasm (default), webgpu, auto (the faster), or an installed one",
    )
    out.add_argument("--threads", type=threads, default=0, metavar="N", help="threads of a kernel (default 1)")
    out.add_argument("--level", default="all", help="optimisation: disabled, basic, extended, layout or all (default)")
    out.add_argument("--choices", type=Path, metavar="C.json", help="schedules from `tune --save`")
    return out


def add_feeds(out: argparse._ActionsContainer) -> None:
    out.add_argument("--inputs", type=Path, metavar="X.npz", help="arrays by input name")
    out.add_argument("--random", action="store_true", help="random inputs with a fixed seed")
    out.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="size of a named dim (default 1)")


def session(args: argparse.Namespace, adapters: Mapping[str, Any] | None = None) -> Session:
    options, providers = session_options(args)
    options.adapters = adapters or {}
    if not isinstance(args.model, Path):
        raise InvalidInput(
            f"{args.model} is an address, and this needs the whole model", hint="download the model first"
        )
    try:
        with doing(f"compiling {args.model.name}"):
            return Session(args.model, options, providers)
    except InvalidModel as error:
        raise error.at(str(args.model)) from None


def session_options(args: argparse.Namespace) -> tuple[SessionOptions, list[Any]]:
    """Options and providers of a session for the model. Errors: InvalidInput"""
    if isinstance(args.model, Path) and not args.model.is_file():
        raise InvalidInput(f"{args.model} is not a file", hint="the path of an .onnx model is expected")
    check_provider(args.provider)
    options = SessionOptions(graph_optimization_level=args.level, intra_op_num_threads=args.threads)
    options.choices = None if args.choices is None else _read(args.choices)
    if args.provider in ("wasm", AUTO):
        return options, [args.provider]
    return options, [("webgpu", {"allow_software": True}) if args.provider == "webgpu" else args.provider, "wasm"]


def check_provider(name: str) -> None:
    known = [*available(), AUTO]
    if name not in known:
        raise InvalidInput(f'provider "{name}" is not known', hint=f"there are {', '.join(known)}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}", hint="`pyruntime tune` writes it") from None


def feeds(args: argparse.Namespace, inputs: Sequence[NodeArg], default_random: bool = True) -> dict[str, Any]:
    """Arrays from the file of `--inputs`, or random ones. Errors: InvalidInput if the model has inputs, and neither
    `--inputs` nor `--random` (or `default_random`) is given"""
    if args.inputs is not None:
        try:
            file = np.load(args.inputs)
        except (ValueError, EOFError, BadZipFile):  # NumPy's message is always about pickles
            file = None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InvalidInput(f"{args.inputs} is not an .npz file", hint="numpy.savez(path, name=array) writes one")
        try:
            with file:
                return dict(file)
        except ValueError as error:
            raise InvalidInput(f"{args.inputs}: {error}") from None
    if inputs and not args.random and not default_random:
        names = ", ".join(i.name for i in inputs)
        raise InvalidInput(f"the model has inputs: {names}", hint="give them with --inputs X.npz, or use --random")
    given, known = dims(args), {str(d) for i in inputs for d in i.shape if isinstance(d, str)}
    if unknown := [*given.keys() - known]:
        raise InvalidInput(f'--dim: no input has a dim "{unknown[0]}"', hint=f"there are {sorted(known)}")
    return {i.name: random_array(i, given) for i in inputs}


def dims(args: argparse.Namespace) -> dict[str, int]:
    return dict(_dim(text) for text in args.dim)


def _dim(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.isdigit():
        raise InvalidInput(f'--dim "{text}" is not of the form NAME=N', hint="for example --dim batch=8")
    return name, int(value)


def random_array(argument: NodeArg, dims: Mapping[str, int]) -> np.ndarray:
    """Normally distributed floats; 0 and 1 for integers (they may be indices) and bools; strings "a"."""
    shape = [d if isinstance(d, int) else dims.get(d or "", 1) for d in argument.shape]
    kind = argument.type.removeprefix("tensor(").removesuffix(")")
    name = TYPES.get(kind, kind)
    rng = np.random.default_rng(0)
    if name == "string":
        return np.full(shape, "a", dtype=object)
    if name in ("float16", "float32", "float64"):
        return np.asarray(rng.standard_normal(shape), name)
    if name == "bool" or name.startswith(("int", "uint")) and hasattr(np, name):
        return np.asarray(rng.integers(0, 2, shape), name)
    raise InvalidInput(f'--random cannot make input "{argument.name}" of type {argument.type}')


# ── printing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def table(rows: Sequence[Sequence[object]], align: str = "") -> str:
    """Rows as aligned columns. align: a letter for each column, r for right. The last column is not padded."""
    texts = [[str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = align.ljust(len(widths), "l")

    def line(row: list[str]) -> str:
        cells = [c.rjust(w) if a == "r" else c.ljust(w) for c, w, a in zip(row, widths, right, strict=False)]
        return "  " + "  ".join(cells).rstrip()

    return "\n".join(map(line, texts))


def size(count: float) -> str:
    """A number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} us"
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def shape(dims: Sequence[object]) -> str:
    return f"[{', '.join('?' if d is None else str(d) for d in dims)}]"


def short(label: str, limit: int = 60) -> str:
    """A node's label without its opset, cut to `limit` characters."""
    text = label.rpartition(" (opset")[0] or label
    return text if len(text) <= limit else text[: limit - 1] + "…"
