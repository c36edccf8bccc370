"""python -m bench chat --several: chats of one generator that are written at the same time, beside one after the other.

Natively, on one thread, a decoder of 15 M random weights in float32 and in 4 bits: tokens a second of processor time of
all chats, with their short prompts, which run alone in both; and MB of the session's tensors. The ways take turns; the
texts must be equal.
"""

from __future__ import annotations

from statistics import median
from threading import Thread
from time import process_time

from bench import machine
from kit import zoo
from pyruntime import SessionOptions, TextGenerator

MODELS = {"float32": "llama_mini", "4 bits": "llama_mini.nb4"}
COUNTS, PROMPT, TOKENS = (1, 2, 4, 8), 32, 64


def main(rounds: int) -> int:
    print(f"{machine.processor()}; medians of {rounds}; prompts of 1 to {PROMPT} tokens, {TOKENS} more of each")
    print(f"{'':14}tokens a second{'':17}MB\n{'weights':8}{'chats':>6}", end="")
    print(f"{'one by one':>12}{'together':>10}{'ratio':>7}{'one by one':>12}{'together':>10}")
    are_equal = True
    for weights, name in MODELS.items():
        for count in COUNTS:
            plain, several = _opened(name), _opened(name)
            speeds: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds + 1):  # the first compiles
                alone, slow = _written(plain, count, False)
                together, fast = _written(several, count, True)
                are_equal = are_equal and alone == together
                speeds[0].append(slow)
                speeds[1].append(fast)
            one, all_ = (median(found[1:]) for found in speeds)
            first, second = (writer._model.session.memory().peak / 1e6 for writer in (plain, several))
            print(f"{weights:8}{count:6}{one:12.0f}{all_:10.0f}{all_ / one:7.2f}{first:12.1f}{second:10.1f}")
            plain.release()
            several.release()
    print("all texts are equal" if are_equal else "TEXTS DIFFER")
    return 0 if are_equal else 1


def _opened(name: str) -> TextGenerator:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return TextGenerator(zoo.materialize(name), options=options)


def _written(writer: TextGenerator, count: int, is_together: bool) -> tuple[list[list[int]], float]:
    """The texts, and tokens a second."""
    found: dict[int, list[int]] = {}

    def write(n: int) -> None:
        found[n] = writer.generate([n + 1, *range(5, 5 + PROMPT * n // count)], max_tokens=TOKENS).tokens

    writer.reset()
    start = process_time()
    if is_together:
        threads = [Thread(target=write, args=(n,)) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for n in range(count):
            write(n)
            writer.reset()
    return [found[n] for n in range(count)], count * TOKENS / (process_time() - start)
