"""Makes the kernels of the layers that `equal_layers` left out, from those of the layers before: in optimised form, as
if the passes had seen all layers. Kernels of three equal layers show what changes from layer to layer, and whether
anything else does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from pyruntime.compiler.equal_layers import MODEL, Layers
from pyruntime.compiler.pipeline import Work
from pyruntime.frontend.trace_graph import Spec, TensorSpec, symbolic_dims
from pyruntime.ir.copies import Copies, can_copy
from pyruntime.ir.form import Form
from pyruntime.ir.kernel import Alias, Kernel, Leaf, Loops, Tensor
from pyruntime.ir.room import Room
from pyruntime.ir.symbol import ROOM, Symbol
from pyruntime.onnx.graph import Weight
from pyruntime.passes.cleanup.used_symbols import symbols_of

BEFORE, FIRST = MODEL - 1, MODEL - 2  # the layers that are compared with the model
COMPARED = (FIRST, BEFORE, MODEL)


class NotEqual(Exception):
    """Layers differ after the passes."""


@dataclass(slots=True)
class _Section:
    """Neighbours in a list that belong to the three layers, by layer. at: the place of those of the next layer in the
    list; reverse: later layers come first"""

    of: dict[int, list[Any]]
    at: int
    reverse: bool


@dataclass(slots=True)
class _Step:
    """From one layer to the next, by uid. made: of tensors that the layer's kernels make, the next layer's; read: of
    tensors of the layer before that they read, those that the next layer reads; constants: the next layer's own"""

    made: dict[int, Tensor] = field(default_factory=dict)
    read: dict[int, Tensor] = field(default_factory=dict)
    constants: list[Tensor] = field(default_factory=list)


class LayerCopies:
    """specs: of the graph's inputs; asked: weights whose elements the compiler has read, by name. Errors: NotEqual"""

    def __init__(self, layers: Layers, work: Work, specs: Mapping[str, Spec], asked: Mapping[str, Weight]) -> None:
        self.layers, self.specs, self.traced = layers, specs, work.traced
        if self.traced.updates:
            raise NotEqual
        self._check_weights(asked)
        self.lists = (work.init.kernels, work.main.kernels)
        self.sections = [self._sections(kernels, map(_label, kernels)) for kernels in self.lists]
        self.guards = self._sections(self.traced.guards, [g[2] for g in self.traced.guards])
        self.kernels = {n: [k for found in self.sections for s in found for k in s.of[n]] for n in COMPARED}
        if not all(can_copy(k) for n in COMPARED for k in self.kernels[n]):
            raise NotEqual
        self.made = {n: {t.uid for k in self.kernels[n] for t in k.outputs} for n in COMPARED}
        self.renamed: dict[int, tuple[Mapping[str, str], Copies]] = {}
        self.leaves = {name: t for n in COMPARED for k in self.kernels[n] for name, t in _leaves(k)}
        self.symbols = {s for n in COMPARED for k in self.kernels[n] for s in symbols_of(k)}
        self._check_carried()
        for n in (FIRST, BEFORE):
            self._check_values(n)
        first, self.step = self._step(FIRST), self._step(BEFORE)
        if any(first.made.get(uid) is not t for uid, t in self.step.read.items()):
            raise NotEqual
        self._check_readers()

    def _check_weights(self, asked: Mapping[str, Weight]) -> None:
        for n in self.layers.copied:
            for x, y in self.layers.names(n).items():
                if x in asked and x != y and asked[x].read() != self.layers.graph.weights[y].read():
                    raise NotEqual

    def _check_carried(self) -> None:
        """From layer to layer, values pass through a tensor that is stored. If a layer is fused into the next one, as
        one of Tanh alone is, the kernel after them all has the nodes of the traced layers only. Errors: NotEqual"""
        stored = self.made[MODEL] | self.made[BEFORE] | self.traced.known
        makers = {x: node for node in self.layers.nodes(MODEL) for x in node.outputs}
        before = {x for node in self.layers.nodes(BEFORE) for x in node.outputs}
        of_model = self.layers.names(MODEL, BEFORE)
        todo = [of_model[x] for node in self.layers.nodes(MODEL) for x in node.inputs if x in before]
        seen: set[str] = set()
        while todo:
            x = todo.pop()
            t = self.traced.values.get(x)
            if x in seen or isinstance(t, Tensor) and t.uid in stored:
                continue
            seen.add(x)
            if x in before:
                raise NotEqual
            todo += makers[x].inputs if x in makers else ()

    def _check_values(self, layer: int) -> None:
        """Compare the values of this layer and the next one: their shapes and, where the compiler knows them, their
        elements. Errors: NotEqual"""
        names = self.layers.names(layer + 1, layer)
        copies = self._copies(layer + 1, layer, {})
        for x, y in names.items():
            a, b = self._value(x), self._value(y)
            if x != y and copies.value(a) != b:
                raise NotEqual
        for s in self.guards:
            if [_guard(g, copies, names) for g in s.of[layer]] != s.of[layer + 1]:
                raise NotEqual

    def _check_readers(self) -> None:
        """Of the three layers, kernels outside of them read no constants and no feeds, and only the model's results."""
        inside = {id(k) for n in COMPARED for k in self.kernels[n]}
        made = self.made[FIRST] | self.made[BEFORE]
        own = {x for n in COMPARED for x, y in self.layers.names(n + 1, n).items() if x != y}
        for kernel in (k for kernels in self.lists for k in kernels if id(k) not in inside):
            if any(t.uid in made for t in kernel.inputs) or any(name in own for name, _ in _leaves(kernel)):
                raise NotEqual
            if any(t.uid in self.made[MODEL] for t in kernel.inputs) and not can_copy(kernel):
                raise NotEqual

    def _sections(self, found: Sequence[Any], labels: Iterable[str]) -> list[_Section]:
        groups: list[tuple[int | None, int, int]] = []  # layer, start, end
        for tag, group in groupby(map(self.layers.layer_of, labels)):
            start = groups[-1][2] if groups else 0
            groups.append((tag, start, start + sum(1 for _ in group)))
        sections = []
        for n, (tag, start, end) in enumerate(groups):
            if tag == MODEL:
                before, after = groups[max(n - 2, 0) : n + 1], groups[n : n + 3][::-1]
                reverse = [g[0] for g in before] != [*COMPARED]
                near = after if reverse else before
                if [g[0] for g in near] != [*COMPARED] or len({g[2] - g[1] for g in near}) > 1:
                    raise NotEqual
                parts = {layer: list(found[a:b]) for layer, a, b in near if layer is not None}
                sections.append(_Section(parts, start if reverse else end, reverse))
        if any(sum(g[0] == layer for g in groups) != len(sections) for layer in COMPARED):
            raise NotEqual
        return sections

    # ── what changes from layer to layer ─────────────────────────────────────────────────────────────────────────

    def _renaming(self, names: Mapping[str, str]) -> dict[Symbol, Symbol]:
        """The symbols of a layer's inputs, by those of another one. names: of its values, by those of the other"""
        found: dict[Any, Any] = {}
        for x, y in names.items():
            a, b = self.specs.get(x), self.specs.get(y)
            if x != y and isinstance(a, TensorSpec) and isinstance(b, TensorSpec):
                for d, e in zip(symbolic_dims((x,), a), symbolic_dims((y,), b), strict=True):
                    if found.setdefault(d, e) != e:
                        raise NotEqual
        found |= {s: s._replace(name=names[s.name]) for s in self.symbols if s.origin == ROOM and s.name in names}
        return {a: b for a, b in found.items() if a != b}

    def _copies(self, layer: int, like: int, of: dict[int, Tensor]) -> Copies:
        return Copies(of, self._renaming(self.layers.names(layer, like)), self.layers.labels(layer, like))

    def _step(self, layer: int) -> _Step:
        """Compare a layer with the next one."""
        one, two = self.kernels[layer], self.kernels[layer + 1]
        names = self.layers.names(layer + 1, layer)
        own = {
            t.uid: self._leaf_of(names[name]) for k in one for name, t in _leaves(k) if names.get(name, name) != name
        }
        copies = self._copies(layer + 1, layer, own)
        copied = [copies.copy(k) for k in one]
        pairs = _pairs(copied, two)
        step = _Step()
        fresh = {t.uid for k in copied for t in k.outputs}
        before = self.made.get(layer - 1)
        for x, y in pairs.values():
            if x.uid in fresh or x is y or isinstance(x.kernel, Leaf) and x.kernel.kind == "scratch":
                continue
            if y.uid in self.made[layer] and (before is None or x.uid in before):
                step.read[x.uid] = y
            elif _equal_constants(x, y):
                step.constants.append(y)
            else:
                raise NotEqual
        for k, own_kernel in zip(one, two, strict=True):
            step.made |= {a.uid: b for a, b in zip(k.outputs, own_kernel.outputs, strict=True)}
        return step

    def _value(self, name: str) -> tuple[Any, ...]:
        """The shape of a value in the trace, and its elements if the compiler knows them."""
        t, tracer = self.traced.values.get(name), self.traced.tracer
        if not isinstance(t, Tensor) or tracer is None:
            return () if t is None else (id(t),)
        return (t.shape, tuple(tracer.known(t) or ()) if t.uid in self.traced.known else None)

    def _leaf_of(self, name: str) -> Tensor:
        if name not in self.leaves:
            raise NotEqual
        return self.leaves[name]

    # ── the other layers ─────────────────────────────────────────────────────────────────────────────────────────

    def add(self) -> None:
        """Add the kernels, feeds, outputs and guards of the layers that were not traced."""
        guards = self.guards
        made: list[list[list[Any]]] = [[] for found in (*self.sections, guards) for _ in found]  # sections, then layers
        feeds = {f.path: f for f in self.traced.feeds}
        outputs = dict(self.traced.outputs)
        previous: dict[int, Tensor] = {}
        for n in self.layers.copied:
            copies, names = self._layer(n, previous), self.layers.names(n)
            sections = [s for found in self.sections for s in found]
            for place, s in enumerate(sections):
                made[place].append([copies.copy(k) for k in s.of[MODEL]])
            for place, s in enumerate(guards, len(sections)):
                made[place].append([_guard(g, copies, names) for g in s.of[MODEL]])
            for f in self.traced.feeds:
                if (name := names.get(f.path[0], f.path[0])) != f.path[0]:
                    spec: Any = self.specs[name]
                    room = None if f.room is None else _room(f.room, copies)
                    feeds[name,] = replace(
                        f, path=(name,), tensor=self._own(f.tensor, name, copies), spec=spec, room=room
                    )
            self._add_outputs(names, copies, outputs)
            self.renamed[n] = names, copies
            previous = copies.of
        self._insert(made, guards, previous)
        self.traced.feeds[:] = [feeds[v.name,] for v in self.layers.graph.inputs if (v.name,) in feeds]
        self.traced.outputs.clear()
        self.traced.outputs.update({v.name: outputs[v.name] for v in self.layers.graph.outputs})

    def _layer(self, n: int, previous: Mapping[int, Tensor]) -> Copies:
        """Copies for a layer. previous: tensors of the layer before, by uid of the model's"""
        of = {}
        for t in self.step.read.values():
            like = self.step.made[t.uid]
            of[t.uid] = previous.get(like.uid, like)
        copies = self._copies(n, MODEL, of)
        names = self.layers.names(n)
        for k in self.kernels[MODEL]:
            for name, t in _leaves(k):
                if names.get(name, name) != name:
                    self._own(t, names[name], copies)
        for t in self.step.constants:
            self._own(t, "", copies)
        return copies

    def _own(self, t: Tensor, name: str, copies: Copies) -> Tensor:
        """The leaf of this name that a layer has in place of the model's."""
        if t.uid not in copies.of:
            like = t.kernel
            assert isinstance(like, Leaf)
            value = (name,) if like.kind == "feed" else like.value
            if isinstance(value, Weight):
                value = replace(self.layers.graph.weights[name], dtype=value.dtype, shape=value.shape)
            leaf = replace(like, value=value)
            leaf.outputs = (Tensor(copies.dims(t.shape), t.dtype, leaf, 0, name or t.name),)
            copies.of[t.uid] = leaf.out
        return copies.of[t.uid]

    def _add_outputs(self, names: Mapping[str, str], copies: Copies, outputs: dict[str, Any]) -> None:
        rooms = self.traced.rooms
        for like, t in list(self.traced.outputs.items()):
            if names.get(like, like) != like and isinstance(t, Tensor):
                if t.uid not in copies.of:
                    raise NotEqual
                own = outputs[names[like]] = copies.of[t.uid]
                if t.uid in rooms:
                    rooms[own.uid] = _room(rooms[t.uid], copies)

    def _insert(self, made: list[list[list[Any]]], guards: list[_Section], last: dict[int, Tensor]) -> None:
        """Put the copies into the lists. last: the tensors of the last copied layer, by uid of the model's"""
        copies = Copies({uid: t for uid, t in last.items() if uid in self.made[MODEL]})
        inside = {id(k) for k in self.kernels[MODEL]}
        for kernels in self.lists:
            for n, k in enumerate(kernels):
                if id(k) not in inside and any(t.uid in copies.of for t in k.inputs):
                    kernels[n] = copies.rewired(k)
        rest = iter(made)
        for found, sections in zip((*self.lists, self.traced.guards), (*self.sections, guards), strict=True):
            new = [(s, next(rest)) for s in sections]
            for s, layers in reversed(new):
                found[s.at : s.at] = [x for part in (layers[::-1] if s.reverse else layers) for x in part]  # type: ignore

    def outputs(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of the graph with the shapes that they have in traces. shown: those of the short graph"""
        found = dict(shown)
        for names, copies in self.renamed.values():
            for like, t in shown.items():
                if names.get(like, like) != like:
                    found[names[like]] = Tensor(copies.dims(t.shape), t.dtype, t.kernel)
        return found

    def report(self, entries: Sequence[Any]) -> list[Any]:
        """The entries of a `NodeReport` of the short graph, and those of the copied layers."""
        layers = self.layers
        start = layers.first + MODEL * layers.period
        like = entries[start - layers.period : start]
        out = list(entries[:start])
        for n in (MODEL, *layers.copied):
            labels = {a: b for d in (-1, 0, 1) for a, b in layers.labels(n + d, BEFORE + d).items()}
            out += [_relabelled(e, labels) for e in like]
        labels = layers.labels(layers.last - 1)  # which the last layer follows
        return [*out, *[_relabelled(e, labels) for e in entries[start + layers.period :]]]


def _relabelled(entry: Any, labels: Mapping[str, str]) -> Any:
    """An entry of a `NodeReport` with labels of other nodes."""
    if isinstance(entry, str):
        return labels.get(entry, entry)
    return [labels.get(entry[0], entry[0]), entry[1], *[labels.get(x, x) for x in entry[2:]]]


def _label(kernel: Kernel) -> str:
    """The label of its node, or the name of the weight that it converts for several nodes."""
    return kernel.node or next((name for name, _ in _leaves(kernel)), "")


def _leaves(kernel: Kernel) -> list[tuple[str, Tensor]]:
    """The weights and feeds that a kernel reads, with their names."""
    found = [(t.kernel, t) for t in kernel.inputs if isinstance(t.kernel, Leaf)]
    named = [
        (leaf.value.name if isinstance(leaf.value, Weight) else leaf.value[0], t)
        for leaf, t in found
        if isinstance(leaf.value, Weight) or leaf.kind == "feed"
    ]
    return named


def _pairs(one: Sequence[Kernel], two: Sequence[Kernel]) -> dict[int, tuple[Tensor, Tensor]]:
    """Tensors of equal kernels, by uid of the first. Errors: NotEqual"""
    if [_outside_form(k) for k in one] != [_outside_form(k) for k in two]:
        raise NotEqual
    found: list[tuple[Tensor, Tensor]] = []
    for x, y in zip(one, two, strict=True):
        if not isinstance(x, Alias):
            a, b = Form([x]), Form([y])
            if a.key() != b.key() or a.names != b.names:
                raise NotEqual
            found += zip(a.tensors, b.tensors, strict=True)
        found += zip((*x.inputs, *x.outputs), (*y.inputs, *y.outputs), strict=True)
        if isinstance(x, Loops) and isinstance(y, Loops):
            found += zip(x.bases, y.bases, strict=True)
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    for t, own in found:
        if pairs.setdefault(t.uid, (t, own))[1] is not own:
            raise NotEqual
    return pairs


def _outside_form(k: Kernel) -> Any:
    """What the form of a kernel does not contain, besides tensors."""
    own = (k.name, k.unit_is_row, len(k.bases)) if isinstance(k, Loops) else ()
    return type(k), k.node, k.is_backward, own, len(k.inputs), [(t.dtype, t.shape) for t in k.outputs]


def _equal_constants(a: Tensor, b: Tensor) -> bool:
    x, y = a.kernel, b.kernel
    if not isinstance(x, Leaf) or not isinstance(y, Leaf) or x.kind != y.kind or x.kind != "constant":
        return False
    return (a.dtype, a.shape, x.flushed, repr(x.value)) == (b.dtype, b.shape, y.flushed, repr(y.value))


def _guard(guard: Any, copies: Copies, names: Mapping[str, str]) -> Any:
    """A guard for the nodes of another layer. names: of its values, by those that the text may mention"""
    condition, text, node, *rest = guard
    for x in (x for x in names if names[x] != x and f'"{x}"' in text):
        text = text.replace(f'"{x}"', f'"{names[x]}"')
    return (copies.dim(condition), text, copies.labels[node], *rest)


def _room(room: Room, copies: Copies) -> Room:
    optional = [None if d is None else copies.dim(d) for d in (room.least, room.mixed, room.undo)]
    return Room(room.axis, copies.dim(room.places), copies.dims(room.shape), *optional)
