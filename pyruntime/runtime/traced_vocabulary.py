"""The vocabulary of traced functions: losses and optimisers that users write in Python or JavaScript.

A trace is JSON: a list of nodes [name, operands, settings], the last of which is "return". An operand is a number, a
list of numbers (a constant of one axis), or the place of an earlier node as a text."""

from __future__ import annotations

# methods that compute element by element, and how many operands they have besides their tensor
ELEMENTWISE: dict[str, int] = {
    "abs": 0, "neg": 0, "exp": 0, "log": 0, "sqrt": 0, "square": 0, "sign": 0, "floor": 0, "round": 0, "sin": 0,
    "cos": 0, "tanh": 0, "erf": 0, "sigmoid": 0, "relu": 0, "softplus": 0, "logical_not": 0, "add": 1, "sub": 1,
    "mul": 1, "div": 1, "pow": 1, "minimum": 1, "maximum": 1, "eq": 1, "ne": 1, "lt": 1, "le": 1, "gt": 1, "ge": 1,
    "logical_and": 1, "logical_or": 1, "where": 2,
}  # fmt: skip
# other methods, and their parameters by position
SHAPED: dict[str, list[str]] = {
    "sum": ["axes", "keepdims"], "mean": ["axes", "keepdims"], "max": ["axes", "keepdims"], "min": ["axes", "keepdims"],
    "softmax": ["axis"], "log_softmax": ["axis"], "reshape": ["shape"], "transpose": ["axes"], "unsqueeze": ["axes"],
    "squeeze": ["axes"], "one_hot": ["classes"], "detach": [], "matmul": ["other"], "pick": ["labels"],
}  # fmt: skip
TENSORS = ["other", "labels"]  # parameters that are tensors
NEEDED = ["other", "labels", "shape", "classes"]
LISTS = ["axes", "shape"]
MOST_RANK = 6  # of weights: functions of optimisers are traced once for each rank from 0 on


def methods() -> list[str]:
    return [*ELEMENTWISE.keys(), *SHAPED.keys()]


def misuse(name: str, given: list[str], count: int) -> str:
    """What is wrong with a call of a method, or "". given: names of the arguments that a SHAPED method gets; count: of
    the arguments of others"""
    if name in ELEMENTWISE:
        wanted = ELEMENTWISE[name]
        return "" if count == wanted else f"{name} takes {wanted} arguments, not {count}"
    known = SHAPED[name]
    for each in given:
        if each not in known:
            return f'{name} takes {", ".join(known) if len(known) > 0 else "nothing"}, not "{each}"'
    missing = [each for each in known if each in NEEDED and each not in given]
    return f"{name} needs {missing[0]}" if len(missing) > 0 else ""
