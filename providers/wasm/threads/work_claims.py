"""Functions of a module with which threads share the work of a run (spmd.py). codegen/linear_memory.py defines the
words that they use."""

from __future__ import annotations

from pyruntime.codegen.linear_memory import AWAKE, DONE, EPOCH, POISON, SLEEPERS, STOP, TICKET, WAITING

from ..printer.assembler import Function, helper

GROUPS = 1 << 16  # a run has fewer groups
# Polls before sleeping, about 0.2 ms. With 0.05 ms threads sleep at uneven groups: MiniLM on two took 12.9 ms instead
# of 8.1 (one thread: 15.0). With 1 ms a helper on the leader's core takes too much of it: BERT-tiny took 2.1 ms, not
# 1.8.
SPIN = 200_000
KERNEL = ("i32",) * 4  # (args, begin, end, tid)
CHUNKS = 8  # of a call for each thread
PORTIONS = 16  # of a chunk; a run that may be stopped polls STOP between them


@helper("solo")
def solo(f: Function, args: int, work: int, kernel: int, tid: int, threads: int, epoch: int) -> None:
    """Run a group of one call."""
    total, chunk = f.locals("i32", 2)
    f.emit(work, threads).call(chunks).tee(total)
    with f.if_():
        f.emit(tid)
        with f.if_():
            f.emit(epoch).call(await_group)
            f.otherwise().emit(epoch, work).i32(4).emit("i32.sub").mem("i32.load").i32(1).emit("i32.shr_u")
            f.call(open_group)
        with f.block() as out, f.loop() as again:
            f.emit(tid, epoch, total).call(claim).tee(chunk).i32(0).emit("i32.lt_s").br_if(out)
            f.emit(args, work, kernel, tid, threads, chunk).call(piece).br(again)
        end_group(f, tid)
        f.otherwise().emit(tid, "i32.eqz")
        with f.if_():
            f.emit(args, work, kernel, threads).call(whole)


@helper("whole")
def whole(f: Function, args: int, work: int, kernel: int, threads: int) -> None:
    """The leader runs the whole call, unless it is shared."""
    f.emit(work, threads).call(chunks).emit("i32.eqz")
    with f.if_():
        trap_if_stopped(f)
        f.emit(args).i32(0).emit(work).mem("i32.load").i32(0).emit(kernel).call(portions)


@helper("portions")
def portions(f: Function, args: int, begin: int, end: int, tid: int, kernel: int) -> None:
    """Run work units of a call, in portions if the run may be stopped."""
    units, until = f.locals("i32", 2)
    f.emit(end, begin, "i32.sub").tee(units).i32(PORTIONS).emit("i32.div_u").i32(1).emit("i32.add", units)
    f.i32(STOP).mem("i32.atomic.load").emit("select").set(units)
    with f.loop() as again:
        f.emit(begin, units, "i32.add").tee(until).emit(end, until, end, "i32.lt_u", "select").set(until)
        f.emit(args, begin, until, tid, kernel).call_indirect(*KERNEL).emit(until).tee(begin)
        f.emit(end, "i32.lt_u").i32(STOP).mem("i32.atomic.load").i32(0).emit("i32.ge_s", "i32.and").br_if(again)


@helper("chunks", results=("i32",))
def chunks(f: Function, work: int, threads: int) -> None:
    """Return the number of chunks of a call, ceil(work / units); 0 if it is not shared."""
    f.emit(threads).i32(1).emit("i32.gt_u", work).i32(4).emit("i32.sub").mem("i32.load").emit("i32.and", "i32.eqz")
    with f.if_():
        f.i32(0).emit("return")
    f.emit(work).mem("i32.load").i32(1).emit("i32.sub", work, threads).call(chunk_units)
    f.emit("i32.div_u").i32(1).emit("i32.add")


@helper("chunk_units", results=("i32",))
def chunk_units(f: Function, work: int, threads: int) -> None:
    """Return the work units of a chunk, a multiple of those that one thread must run in order."""
    units, consecutive = f.locals("i32", 2)
    f.emit(work).mem("i32.load").emit(threads).i32(CHUNKS).emit("i32.mul", "i32.div_u").i32(1).emit("i32.add")
    f.set(units)
    f.emit(work).i32(4).emit("i32.sub").mem("i32.load").i32(2).emit("i32.shr_u").tee(consecutive)
    with f.if_():
        f.emit(units).i32(1).emit("i32.sub", consecutive, "i32.div_u").i32(1).emit("i32.add", consecutive, "i32.mul")
        f.set(units)
    f.emit(units)


@helper("piece")
def piece(f: Function, args: int, work: int, kernel: int, tid: int, threads: int, chunk: int) -> None:
    """Run a chunk of a call."""
    units, end = f.locals("i32", 2)
    f.emit(work, threads).call(chunk_units).tee(units).emit(chunk, "i32.mul").tee(chunk).emit(units, "i32.add").set(end)
    f.emit(args, chunk, end, work).mem("i32.load").emit(end, work).mem("i32.load").emit("i32.lt_u", "select")
    f.emit(tid, kernel).call(portions).emit(tid)
    with f.if_():
        f.call(finished)


@helper("open")
def open_group(f: Function, epoch: int, wake: int) -> None:
    """The leader opens a group. From now on threads can claim its chunks, and no longer those of earlier groups."""
    f.i32(DONE).i32(0).mem("i32.atomic.store")
    f.i32(TICKET).emit(epoch, "i64.extend_i32_u").i64(32).emit("i64.shl").mem("i64.atomic.store")
    f.emit(wake).i32(SLEEPERS).mem("i32.atomic.load").i32(0).emit("i32.ne", "i32.and")
    with f.if_():
        f.i32(EPOCH).i32(-1).mem("memory.atomic.notify").emit("drop")


@helper("await")
def await_group(f: Function, epoch: int) -> None:
    """A helper waits until that group is open or past."""
    looks, seen = f.locals("i32", 2)
    with f.block() as out:
        with f.loop() as again:
            f.i32(EPOCH).mem("i32.atomic.load").tee(seen).emit(epoch, "i32.sub").i32(0).emit("i32.ge_s").br_if(out)
            f.emit(looks).i32(1).emit("i32.add").tee(looks).i32(SPIN).emit("i32.lt_u").br_if(again)
            f.i32(SLEEPERS).i32(1).mem("i32.atomic.rmw.add").emit("drop")
            f.i32(EPOCH).emit(seen).i64(-1).mem("memory.atomic.wait32").emit("drop")
            f.i32(SLEEPERS).i32(1).mem("i32.atomic.rmw.sub").emit("drop").br(again)


@helper("claim", results=("i32",))
def claim(f: Function, tid: int, epoch: int, total: int) -> None:
    """Return the number of a chunk, claimed for this thread; -1 if the group has none left or the run is to stop. The
    leader takes the first, helpers the last, so that a thread has the same rows in call after call."""
    ticket, low, front, back = f.local("i64"), *f.locals("i32", 3)
    f.i32(STOP).mem("i32.atomic.load").i32(0).emit("i32.lt_s")
    with f.if_():
        f.i32(-1).emit("return")
    with f.loop() as again:
        f.i32(TICKET).mem("i64.atomic.load").tee(ticket).i64(32).emit("i64.shr_u", "i32.wrap_i64", epoch, "i32.ne")
        f.emit(ticket, "i32.wrap_i64").tee(low).i32(0xFFFF).emit("i32.and").tee(front)
        f.emit(low).i32(16).emit("i32.shr_u").tee(back).emit("i32.add", total, "i32.ge_u", "i32.or")
        with f.if_():
            f.i32(-1).emit("return")
        f.i32(TICKET).emit(ticket, ticket).i64(1 << 16).i64(1).emit(tid, "select", "i64.add")
        f.mem("i64.atomic.rmw.cmpxchg").emit(ticket, "i64.ne").br_if(again)
    f.emit(total, back, "i32.sub").i32(1).emit("i32.sub", front, tid, "select")


@helper("finished")
def finished(f: Function) -> None:
    """A helper counts a chunk as done."""
    f.i32(DONE).i32(1).mem("i32.atomic.rmw.add").emit("drop")
    f.i32(WAITING).mem("i32.atomic.load")
    with f.if_():
        f.i32(DONE).i32(-1).mem("memory.atomic.notify").emit("drop")


@helper("join")
def join(f: Function) -> None:
    """The leader waits until the chunks that helpers have claimed are done. The count may be higher: `poison` adds
    one for a thread that failed, in a chunk or before."""
    looks, claimed, seen = f.locals("i32", 3)
    f.i32(TICKET).mem("i32.atomic.load").i32(16).emit("i32.shr_u").set(claimed)
    with f.block() as out, f.loop() as again:
        f.i32(DONE).mem("i32.atomic.load").tee(seen).emit(claimed, "i32.ge_u").br_if(out)
        f.emit(looks).i32(1).emit("i32.add").tee(looks).i32(SPIN).emit("i32.lt_u")
        f.i32(AWAKE).mem("i32.load").emit("i32.or").br_if(again)
        f.i32(WAITING).i32(1).mem("i32.atomic.store")
        f.i32(DONE).emit(seen).i64(-1).mem("memory.atomic.wait32").emit("drop")
        f.i32(WAITING).i32(0).mem("i32.atomic.store").br(again)


def end_group(f: Function, tid: int) -> None:
    """The leader waits for the group's end, and traps if a thread has failed or the host has stopped the run."""
    f.emit(tid, "i32.eqz")
    with f.if_():
        f.call(join)
        trap_if_stopped(f)
        f.i32(POISON).mem("i32.atomic.load")
        with f.if_():
            f.emit("unreachable")


def trap_if_stopped(f: Function) -> None:
    """The leader traps if the host has stopped the run."""
    f.i32(STOP).mem("i32.atomic.load").i32(0).emit("i32.lt_s")
    with f.if_():
        f.emit("unreachable")


@helper("poison", export=True)
def poison(f: Function, tid: int) -> None:
    """Record that thread tid has failed. The leader waits for the chunks of others, then ends the run."""
    f.i32(POISON).i32(0).emit(tid).i32(1).emit("i32.add").mem("i32.atomic.rmw.cmpxchg").emit("drop", tid)
    with f.if_():
        f.call(finished).emit("return")
    f.i32(TICKET).i32(-1).mem("i32.atomic.rmw16.or_u").emit("drop")  # so that nothing is left to claim
    f.call(join)
    f.i32(EPOCH).mem("i32.atomic.load").i32(GROUPS).emit("i32.add").i32(1).call(open_group)
