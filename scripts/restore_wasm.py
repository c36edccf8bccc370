"""Writes the WebAssembly that restores an image of the interpreter's memory, in which it is included
(docs/design/startup.md#memory-image).

It works on the interpreter's memory, in which the image is after the allocator's chunks; addresses are in bytes.
JavaScript would be slower, because V8 cannot optimise its loops while its compiling threads are busy, as when a page
starts.
"""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.providers.wasm.printer.assembler import Function, Module

COLUMNS = 4  # words at the beginning of chunks that are columns
CURSORS = 4096  # places in the table of cursors: pairs of a part's type and the address of its next words
FLAGS = 7  # bits of a chunk's head besides its size
LINK_FLAGS = 3
LOWEST = 4096  # address of a type
TABLE_AT = 20  # bytes of a dict's keys before the table
FACTOR, SHIFT = 0x9E3779B1, 15  # of the checksum


def code(link: int, table: int) -> bytes:
    """link, table: the words that mark links of the garbage collector and tables of dicts."""
    module = Module()
    _checksum(module)
    _fill(module, link, table)
    _tables(module)
    made = module.to_bytes()
    rest = 3 + (-len(made) - 3) % 4  # a custom section of padding, so that the module consists of whole words
    return made + bytes([0, rest - 2]) + bytes(rest - 2)


def _checksum(module: Module) -> None:
    """(from, to) -> the checksum of these words: four sums, because each addition waits for the one before."""
    f = module.function("checksum", ["i32"] * 2, ["i32"])
    at, end = f.params
    sums = f.locals("i32", 4)
    for n, s in enumerate(sums):
        f.i32(n).set(s)

    def add(s: int, word: Callable[[], object]) -> None:
        f.emit(s)
        word()
        f.emit("i32.xor").i32(FACTOR).emit("i32.mul", s).i32(SHIFT).emit("i32.shr_u", "i32.xor").set(s)

    with f.block() as out, f.loop() as again:
        f.emit(end, at, "i32.sub").i32(16).emit("i32.lt_u").br_if(out)
        for n, s in enumerate(sums):
            add(s, lambda n=n: f.emit(at).mem("i32.load", 4 * n))  # type: ignore[misc]
        f.add(at, 16).br(again)
    with f.until(at, end, 4):
        add(sums[0], lambda: f.emit(at).mem("i32.load"))
    for s in sums[1:]:
        add(sums[0], lambda s=s: f.emit(s))  # type: ignore[misc]
    f.emit(sums[0])


# ── memory from the image ─────────────────────────────────────────────────────────────────────────────────────────

# Addresses of the parts of the image, each of which ends at the next; the contents, type by type, are last. cursors:
# memory for them, zeros; texts, tables: memory for a count and the addresses of strings without hashes and of dicts'
# keys without tables
FILL = ("runs heads column0 column1 column2 column3 parts contents cursors texts tables heap collected text").split()


def _fill(module: Module, link: int, table: int) -> None:
    f = module.function("fill", ["i32"] * len(FILL))
    p = dict(zip(FILL, f.params, strict=True))
    _add_runs(f, p)
    _set_cursors(f, p)
    at, count, first, before, end = f.locals("i32", 5)
    f.emit(p["heap"]).set(at).emit(p["collected"]).set(before).emit(p["column0"]).set(end)
    with f.until(p["heads"], end, 4):
        f.emit(at, p["heads"]).mem("i32.load").tee(count).mem("i32.store", 4)
        f.emit(count).i32(~FLAGS).emit("i32.and").i32(2).emit("i32.shr_u").i32(1).emit("i32.sub").set(count)
        f.emit(at).i32(8).emit("i32.add").set(first)
        _columns(f, p, first, count)
        f.emit(count).i32(COLUMNS).emit("i32.gt_u")
        with f.if_():
            _contents(f, p, first, count)
        _link(f, link, first, before)
        _note(f, p, table, first, count)
        f.emit(first, count).i32(2).emit("i32.shl", "i32.add").i32(4).emit("i32.sub").set(at)
    _join(f, before, p["collected"])


def _add_runs(f: Function, p: dict[str, int]) -> None:
    """Add the words of runs: number of words to skip, number of words, the words."""
    (at, left), runs = f.locals("i32", 2), p["runs"]
    with f.block() as out, f.loop() as again:
        f.emit(runs, p["heads"], "i32.ge_u").br_if(out)
        f.emit(at, runs).mem("i32.load").i32(2).emit("i32.shl", "i32.add").set(at)
        f.emit(runs).mem("i32.load", 4).set(left).add(runs, 8)
        with f.block() as done, f.loop() as more:
            f.emit(left, "i32.eqz").br_if(done)
            f.emit(at, at).mem("i32.load").emit(runs).mem("i32.load").emit("i32.add").mem("i32.store")
            f.add(at, 4).add(runs, 4).add(left, -1).br(more)
        f.br(again)
    f.release(at, left)


def _cursor(f: Function, p: dict[str, int], key: int, slot: int) -> None:
    """slot = the place of this type's cursor, or the first free place at or after it."""
    f.emit(key).i32(12).emit("i32.shr_u", key, "i32.xor").i32(3).emit("i32.shl").set(slot)
    with f.block() as found, f.loop() as again:
        f.emit(slot).i32(8 * (CURSORS - 1)).emit("i32.and", p["cursors"], "i32.add").tee(slot)
        f.mem("i32.load", 4).emit("i32.eqz").br_if(found)
        f.emit(slot).mem("i32.load").emit(key, "i32.eq").br_if(found)
        f.emit(slot, p["cursors"], "i32.sub").i32(8).emit("i32.add").set(slot).br(again)


def _set_cursors(f: Function, p: dict[str, int]) -> None:
    key, slot, at = f.locals("i32", 3)
    f.emit(p["contents"]).set(at)
    with f.until(p["parts"], p["contents"], 8):
        f.emit(p["parts"]).mem("i32.load").set(key)
        _cursor(f, p, key, slot)
        f.emit(slot, key).mem("i32.store").emit(slot, at).mem("i32.store", 4)
        f.emit(at, p["parts"]).mem("i32.load", 4).i32(2).emit("i32.shl", "i32.add").set(at)
    f.release(key, slot, at)


def _columns(f: Function, p: dict[str, int], first: int, count: int) -> None:
    for n in range(COLUMNS):
        f.emit(count).i32(n).emit("i32.gt_u")
        with f.if_():
            f.emit(first, p[f"column{n}"]).mem("i32.load").mem("i32.store", 4 * n).add(p[f"column{n}"], 4)


def _contents(f: Function, p: dict[str, int], first: int, count: int) -> None:
    """Copy the words of a chunk after its columns: the next words of the part for its object's type."""
    key, slot, source, to, end = f.locals("i32", 5)
    _type_in(f, p, first, key)
    _cursor(f, p, key, slot)
    f.emit(slot).mem("i32.load", 4).set(source)
    f.emit(first).i32(4 * COLUMNS).emit("i32.add").set(to)
    f.emit(first, count).i32(2).emit("i32.shl", "i32.add").set(end)
    with f.until(to, end, 4):
        f.emit(to, source).mem("i32.load").mem("i32.store").add(source, 4)
    f.emit(slot, source).mem("i32.store", 4)
    f.release(key, slot, source, to, end)


def _type_in(f: Function, p: dict[str, int], first: int, key: int) -> None:
    """Push the type of the object at the chunk's beginning or after the collector's links; 0 if there is none."""
    f.i32(0).set(key)
    for offset in (12, 4):
        with f.scratch("i32", 1) as (word,):
            f.emit(first).mem("i32.load", offset).tee(word).emit(key, word).i32(LOWEST).emit("i32.gt_u")
            f.emit(word, p["heap"], "i32.lt_u", "i32.and", "select").set(key)


def _link(f: Function, link: int, first: int, before: int) -> None:
    at = f.local("i32")
    for offset in (0, 8):
        f.emit(first).mem("i32.load", offset).i32(~LINK_FLAGS).emit("i32.and").i32(link).emit("i32.eq")
        with f.if_():
            f.emit(first).i32(offset).emit("i32.add").set(at)
            _join(f, before, at)
            f.emit(at).set(before)
    f.release(at)


def _join(f: Function, before: int, after: int) -> None:
    """Link two objects, given the addresses of their links."""
    for one, other, offset in ((before, after, 0), (after, before, 4)):
        f.emit(one, other, one).mem("i32.load", offset).i32(LINK_FLAGS).emit("i32.and", "i32.or")
        f.mem("i32.store", offset)


def _note(f: Function, p: dict[str, int], table: int, first: int, count: int) -> None:
    """Collect the address of an ASCII string, whose hash can be computed from its text, or of a dict's keys."""
    with f.scratch("i32", 1) as (size,):
        f.emit(first).mem("i32.load", 8).i32(32).emit("i32.add").i32(~7).emit("i32.and").i32(2).emit("i32.shr_s")
        f.i32(1).emit("i32.sub").tee(size).i32(3).emit(size).i32(3).emit("i32.gt_s", "select", count, "i32.eq")
    f.emit(first).mem("i32.load", 4).emit(p["text"], "i32.eq", "i32.and")
    f.emit(first).mem("i32.load", 16).i32(0x60).emit("i32.and").i32(0x60).emit("i32.eq", "i32.and")
    with f.if_():
        _push(f, p["texts"], first)
    f.emit(count).i32(TABLE_AT // 4).emit("i32.gt_u", first).mem("i32.load", TABLE_AT).i32(table)
    f.emit("i32.eq", "i32.and")
    with f.if_():
        _push(f, p["tables"], first)


def _push(f: Function, list_: int, address: int) -> None:
    with f.scratch("i32", 1) as (count,):
        f.emit(list_, list_).mem("i32.load").i32(1).emit("i32.add").tee(count).mem("i32.store")
        f.emit(list_, count).i32(2).emit("i32.shl", "i32.add", address).mem("i32.store")


# ── tables of dicts ───────────────────────────────────────────────────────────────────────────────────────────────


def _tables(module: Module) -> None:
    """(addresses, end): write the tables of the dicts' keys at these addresses, with the number of each entry: open
    addressing, in the order of the entries. Source: build_indices_generic and build_indices_unicode of CPython's
    Objects/dictobject.c
    """
    widths = [_table(module, size) for size in (1, 2, 4)]
    f = module.function("tables", ["i32"] * 2)
    at, end = f.params
    keys, sizes, entries = f.locals("i32", 3)
    with f.until(at, end, 4):
        f.emit(at).mem("i32.load").tee(keys).mem("i32.load", 4).set(sizes)
        f.emit(keys).i32(TABLE_AT).emit("i32.add").i32(1)
        f.emit(sizes).i32(8).emit("i32.shr_u").i32(0xFF).emit("i32.and", "i32.shl", "i32.add").set(entries)
        f.emit(keys).i32(TABLE_AT).emit("i32.add").i32(-1).emit(entries, keys, "i32.sub")
        f.i32(TABLE_AT).emit("i32.sub", "memory.fill")
        for n, make in enumerate(widths):
            f.emit(sizes).i32(8).emit("i32.shr_u").i32(0xFF).emit("i32.and")
            f.emit(sizes).i32(0xFF).emit("i32.and", "i32.sub").i32(n).emit("i32.eq")
            with f.if_():
                f.emit(keys, entries, sizes).call(make)


def _table(module: Module, size: int) -> Function:
    """(keys, entries, sizes): write the entries' numbers, each of `size` bytes."""
    f = module.function(f"table{size}", ["i32"] * 3, export=False)
    keys, entry, sizes = f.params
    mask, step, n, count, key, hash_, at, place = f.locals("i32", 8)
    load = {1: "i32.load8_s", 2: "i32.load16_s", 4: "i32.load"}[size]
    store = {1: "i32.store8", 2: "i32.store16", 4: "i32.store"}[size]
    f.i32(1).emit(sizes).i32(0xFF).emit("i32.and", "i32.shl").i32(1).emit("i32.sub").set(mask)
    f.i32(8).i32(12).emit(sizes).i32(0xFF0000).emit("i32.and", "select").set(step)  # key, value; before them a hash?
    f.emit(keys).mem("i32.load", 16).set(count)
    with f.until(n, count):
        f.emit(entry, step, "i32.add").tee(entry).i32(8).emit("i32.sub").mem("i32.load").tee(key)
        with f.if_():  # else the entry was deleted
            f.emit(key).i32(12).emit("i32.add", entry).i32(12).emit("i32.sub", step).i32(8).emit("i32.eq", "select")
            f.mem("i32.load").set(hash_)
            f.emit(hash_, mask, "i32.and").set(at)
            with f.block() as free, f.loop() as again:
                f.emit(keys, at).i32(size.bit_length() - 1).emit("i32.shl", "i32.add").tee(place).mem(load, TABLE_AT)
                f.i32(-1).emit("i32.eq").br_if(free)
                f.emit(hash_).i32(5).emit("i32.shr_u").set(hash_)
                f.emit(at).i32(5).emit("i32.mul", hash_, "i32.add").i32(1).emit("i32.add", mask, "i32.and").set(at)
                f.br(again)
            f.emit(place, n).mem(store, TABLE_AT)
    return f
