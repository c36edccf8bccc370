"""Attention by blocks of keys: a workgroup computes some rows of the result, without a matrix of scores in memory.

For each block of keys an invocation computes the scores of its own keys, and reads each key once for all rows, so that
the query heads that share keys share their loads. The exponentials lie in workgroup memory; then an invocation adds up
its own elements of the values. Sums, and the largest score so far, are float32 (online softmax,
https://arxiv.org/abs/1805.02867).

On GPUs, if a run has few rows, workgroups also share the keys of a row: each handles a part, and a second kernel joins
the parts.

This file decides whether attention runs in this way, and in which sizes; attention_blocks.py writes the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Kernel
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from ..printer.loops import GROUP
from .attention_chain import Chain, find

MOST_ROWS = 8
# On the CPU, reads of workgroup memory take as long as those of caches. With at most FEW_ROWS rows, an invocation
# therefore uses them for twice as many keys, and twice as many values if these have at least WIDE elements: fewer
# would leave too many sums to join. Milliseconds of processor time on llvmpipe, before -> after (2026-11-27): 2 caches
# of 8192 keys of 32, 4 rows: 7.1 -> 6.5; of 64: 12.8 -> 8.6; 4 caches of 512 keys of 64, 128 rows: 48 -> 40
FEW_ROWS = 4
WIDE = 64
KEYS = 4  # of an invocation at once: each element of a query is loaded once for them
SHARED = 16384  # bytes of workgroup memory that every adapter has, so that an exported Program needs no more


class Form(NamedTuple):
    """block: keys of a block, if workgroup memory suffices; fills: workgroups that fill a GPU: runs with fewer divide
    the keys; always: whether runs of many rows are one kernel, too. The numbers were not measured on a GPU yet"""

    block: int = 512
    fills: int = 512
    always: bool = True


# What `tune` tries. The last one is tried together with the schedule of contractions that is usual on GPUs.
FORMS = {
    "split_below_128": Form(fills=128),
    "split_below_2048": Form(fills=2048),
    "blocks_of_256": Form(block=256),
    "three_kernels": Form(always=False),
}


def form(adapter: Adapter) -> Form:
    return FORMS[adapter.attention] if adapter.attention else Form(always=not adapter.software)


class Sizes(NamedTuple):
    """rows: rows of a workgroup; block: keys of a block; part: keys of a workgroup; keys: those whose scores an
    invocation computes at once; vectors: of neighbouring values, whose sums an invocation has"""

    rows: int
    block: int
    part: AnyDim
    keys: int
    vectors: int


def sizes(chain: Chain, adapter: Adapter) -> Sizes | None:
    """The sizes that fit in workgroup memory; None if no block fits."""
    extent = chain.scores.out.shape[-2]
    known, factor, own = isinstance(extent, int), _factor(extent), form(adapter)
    rows = next((n for n in range(MOST_ROWS, 1, -1) if factor % n == 0), min(4, factor) if known else 4)
    rest = min(adapter.shared_bytes, SHARED) // 4 - rows * (chain.size + GROUP) - GROUP
    fits = min(own.block, rest // rows)
    if fits < GROUP * KEYS:
        return None
    doubles = adapter.software and rows <= FEW_ROWS
    keys = 2 * KEYS if doubles and fits >= GROUP * 2 * KEYS else KEYS
    vectors = 2 if doubles and chain.width >= WIDE else 1
    block = fits // (GROUP * keys) * GROUP * keys
    tiles = sh.size(chain.scores.out.shape[:-2]) * sh.ceildiv(extent, rows)
    whole = sh.compare("ge", tiles, own.fills)
    part = chain.length if adapter.software else sh.select(whole, chain.length, block)
    return Sizes(rows, block, part, keys, vectors)


class Joint(NamedTuple):
    """Attention whose kernels run as one. runs: 1, or a dim, 1 in runs in which they do; sizes: see Sizes"""

    chain: Chain
    sizes: Sizes
    runs: AnyDim


def joints(
    kernels: Sequence[Kernel], private: Collection[int], chosen: Callable[[str], Adapter]
) -> dict[int, Joint]:  # fmt: skip
    """The attention among the kernels of a segment, by the id of each kernel that is a part of it. private: see
    `provider.CodeWriter.segment`; chosen: the adapter with the schedules that are chosen for a node"""
    found: dict[int, Joint] = {}
    for chain in find(kernels, private):
        joint = _joint(chain, chosen(chain.last.node))
        if joint is not None:
            found |= {id(k): joint for k in chain.kernels}
    return found


def _joint(chain: Chain, adapter: Adapter) -> Joint | None:
    """None if the products and the softmax always run apart. On software adapters one kernel computes the tokens of
    decoders, where it saves dispatches. For more rows, register tiles are faster there.

    Milliseconds of the three kernels -> of this, best of 7 (SwiftShader, 8 heads of 64) and median processor time
    (llvmpipe, 4 heads of 64; 2026-11-27, a busy machine), as many rows as keys: SwiftShader, 64 rows: 7.3 -> 134, 256
    rows: 103 -> 1079; llvmpipe, 16 rows: 2.4 -> 8.1, 64: 3.2 -> 17, 256: 17 -> 74, 1024: 240 -> 632. Tokens of
    llama_mini behind 8192 positions take llvmpipe as long both ways."""
    rows, keys = chain.scores.out.shape[-2:]
    length, few = sh.estimate(chain.length), len(chain.read) + 2 <= adapter.storage_buffers  # the result, fault record
    ends = not adapter.iterations or 2 * length <= adapter.iterations
    found = sizes(chain, adapter)
    if not (few and ends and found):
        return None
    if form(adapter).always:
        return Joint(chain, found, 1)
    token = _factor(rows)
    decodes = sh.symbols(rows) and sh.symbols(keys - rows) and token <= FEW_ROWS
    return Joint(chain, found, sh.compare("le", rows, token)) if decodes else None


def _factor(extent: AnyDim) -> int:
    """The largest known factor: for a dim of a decoder, the heads that share keys."""
    return extent if isinstance(extent, int) else math.gcd(*[c for _, c in extent.terms])
