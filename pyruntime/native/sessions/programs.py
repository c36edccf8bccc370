"""The Programs of a native session: each is loaded in an executor, with memory of its own."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, cast

from pyruntime.errors import InvalidInput
from pyruntime.exports import embed
from pyruntime.frontend.trace_graph import Spec, TensorSpec
from pyruntime.native.execution.executor import Executor
from pyruntime.native.execution.host_calls import StoredCalls
from pyruntime.native.gpu.device import adapter_choice, adapter_of, usable, warn_once
from pyruntime.native.sessions.compiler import Compiler
from pyruntime.native.sessions.feeds import constant_of, described
from pyruntime.native.sessions.program_file import Exported
from pyruntime.native.sessions.shared_weights import load_executor
from pyruntime.native.sessions.state_values import NativeStates
from pyruntime.onnx.graph import Graph
from pyruntime.placement.provider_list import allows_software, effective, known
from pyruntime.program.format import Program
from pyruntime.providers import BASE, ENGINES
from pyruntime.runtime.arena import WHOLE
from pyruntime.runtime.planner import PlanCounts
from pyruntime.session.model_source import about
from pyruntime.session.needs import Given
from pyruntime.session.specialisation import FOR_ALL, ProgramTable, Requirements, Specialiser, text_of_differing_dims
from pyruntime.session.states import SessionState, StateMachine


class Programs(Specialiser[Executor]):
    """The Programs of a model. has_fallback: whether it has no model, and can leave the GPU"""

    has_model = True

    def __init__(self, graph: Graph, compiler: Compiler, states: StateMachine) -> None:
        super().__init__(graph, compiler.warn)
        self.has_fallback = False
        self.has_states = any(w.is_state for w in graph.weights.values())
        self.keeps_one = False  # whether only the executor that runs has memory
        self.compiler = compiler
        self.states = states
        self.plan_counts = PlanCounts()
        self.state_values = NativeStates()
        self._values: ProgramTable[Executor] = ProgramTable()  # compute values that compilation needs

    def require_model(self, purpose: str, hint: str) -> None:
        """Errors: InvalidInput for a Program from a file"""
        if not self.has_model:
            raise InvalidInput(f"a compiled Program holds no model to {purpose}", hint=hint)

    # ── compiling ────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        self.states.enter(SessionState.RUNNING)
        super().prepare()

    def compile(self, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None) -> Executor:
        executor, outputs = self.compiler.load(self.graph, specs, constants, self.memory_left())
        if constants is None:
            self.outputs = outputs
        return self._counted(executor)

    def _counted(self, executor: Executor) -> Executor:
        executor.plan.counts = self.plan_counts
        return executor

    # ── some outputs alone ───────────────────────────────────────────────────────────────────────────────────────

    def about(self) -> dict[str, Any]:
        """What a file says about the model (`about`)."""
        return about(self.graph)

    def part(self, names: Sequence[str]) -> Programs:
        part = _Part(self.graph_for(names), self.compiler, self.states)
        part.whole, part.plan_counts, part.state_values = self, self.plan_counts, self.state_values
        self.share_needs(part)
        return part

    def can_run(self, program: Executor, names: Sequence[str], feeds: Collection[str]) -> bool:
        return program.can_run(names, feeds)

    def drop(self, program: Executor) -> None:
        self.state_values.drop([program])

    def describe(self, feeds: Mapping[str, Any]) -> dict[str, Given]:
        return {name: described(x) for name, x in feeds.items()}

    def evaluate(
        self, part: Graph, specs: Mapping[str, Spec], key: Hashable, constants: Mapping[str, TensorSpec],
        feeds: Mapping[str, Any],
    ) -> TensorSpec:  # fmt: skip
        """Compute the output of the part by a Program for it."""
        name = part.outputs[0].name
        executor = self._values.find(
            (name, key, tuple(constants.items())),
            lambda: self.compiler.load(part, specs, constants, self.memory_left())[0],
        )
        return constant_of(name, executor, feeds)

    def program(self, feeds: Mapping[str, Any]) -> Executor:
        return self._opened(super().program(feeds))

    def program_for_sizes(self, feeds: Mapping[str, Any]) -> Executor | None:
        found = super().program_for_sizes(feeds)
        return found and self._opened(found)

    def _opened(self, found: Executor) -> Executor:
        if found.is_closed:  # by `park`
            (key,) = [key for key, executor in self.table.items() if executor is found]
            found = self.table[key] = self._reload(found)
        return found

    def requirements_of(self, feeds: Mapping[str, Any] | None) -> Requirements:
        """`requirements` of the Program for these feeds, or for all, which is compiled if there is none yet."""
        if feeds is None:
            return self.requirements_for_all()
        self.program(feeds)  # finds what compilation needs
        return self.requirements(feeds)

    def forget(self) -> None:
        super().forget()
        self._values.clear()

    def restart(self) -> None:
        """Forget all Programs and close what they have on the GPU."""
        self.state_values.drop(self._all())
        for executor in self._all():
            if executor.gpu is not None:
                executor.gpu.host.close()
        self.forget()

    @property
    def bytes(self) -> int:
        """Memory of all executors, linear and on the GPU."""
        return sum(executor.memory_report().held for executor in self._all())

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _all(self) -> list[Executor]:
        others = [executor for part in self.parts.values() for executor in cast("Programs", part)._all()]
        return [*self.table.values(), *self._values.values(), *others]

    def memory_left(self, executor: Executor | None = None) -> int:
        """Return the bytes of linear memory that a new executor, or this one, may have. The memory of other executors
        is subtracted only if the limit is below the largest memory of WebAssembly."""
        limit = self.compiler.options.memory_limit
        if limit >= WHOLE:
            return limit
        return limit - sum(e.host.size for e in self._all() if e is not executor)

    def forget_others(self, running: Collection[Executor]) -> bool:
        """Close all executors except those that run, and close all twins. Returns whether there were any. Later runs
        compile their Programs again, or find them in the cache."""
        others = [e for e in self._all() if e not in running]
        others += [twin for executor in running for twin in executor.twins]
        self._keep([key for key, e in self.table.items() if e in running])
        for executor in others:
            self.state_values.leave(executor)
            executor.close()
        for executor in running:
            executor.twins.clear()
        return bool(others)

    def park(self) -> bool:
        """`free_others` of all executors."""
        has_held = self.free_others(None)
        self.parts.clear()
        return has_held

    def free_others(self, running: Executor | None) -> bool:
        """Free the memory of all executors but this one; returns whether they held any. They are loaded again when they
        next run."""
        held = [executor for executor in self._all() if executor is not running and not executor.is_closed]
        for executor in held:
            self.state_values.leave(executor)
            executor.close()
            executor.twins.clear()
        self._values.clear()
        for part in self.parts.values():
            cast("Programs", part)._values.clear()
        return bool(held)

    def _keep(self, keys: Sequence[Hashable]) -> None:
        """Forget the Programs with other keys, and the parts."""
        self.is_prepared = self.is_prepared and (FOR_ALL in keys or FOR_ALL not in self.table)
        for key in [key for key in self.table if key not in keys]:
            del self.table[key]
        self._values.clear()
        self.parts.clear()

    def after_fork(self, busy: Sequence[Executor] | None) -> None:
        """In a forked child: forget the executors that a thread of the parent was running (None: any of them). Their
        memory is not freed: to the child, a thread that only the parent has still seems to run in it."""
        found = {} if busy is None else self.table
        self._keep([key for key, e in found.items() if not {e, *e.twins} & {*(busy or ())}])

    def trim(self) -> None:
        """Load each Program whose memory has grown again, into a new memory. Forgets plans, and the executors of values
        that compilation needs."""
        if not self.is_prepared:
            return
        for executor in self._values.values():
            executor.close()
        self._values.clear()
        try:
            for part in self.parts.values():
                cast("Programs", part).trim()
            for key, executor in self.table.items():
                if executor.has_grown and not executor.is_closed:
                    self.table[key] = self._reload(executor)
        except BaseException:
            self.forget_others([])
            raise

    def _reload(self, old: Executor) -> Executor:
        """The same Program in a new memory. Closes the old one first: there may be no room for two."""
        self.state_values.leave(old)
        old.close()
        host = self.compiler.open_memory(old.host.threads)
        gpu = self.compiler.open_gpu() if old.gpu is not None else None
        made = type(old).load(old.program, host, old.sources, old.host_call, self.memory_left(old), gpu)
        return self._counted(made)


class _Part(Programs):
    """The Programs of some outputs. whole: those of all outputs, which share one limit of memory with them"""

    whole: Programs

    def memory_left(self, executor: Executor | None = None) -> int:
        return self.whole.memory_left(executor)


class ExportedProgram(Programs):
    """The Programs of a file that `export` wrote, of which one runs."""

    has_model = False

    def __init__(self, exported: Exported, graph: Graph, compiler: Compiler, states: StateMachine) -> None:
        super().__init__(graph, compiler, states)
        self._exported = exported
        self._on_gpu: Program | None = exported.program if "webgpu" in exported.header["modules"] else None
        self._without = None if self._on_gpu else exported.program

    def choose(self, providers: Sequence[Any] | None, outputs_on_gpu: bool, may_leave_gpu: bool) -> None:
        """Decide which Program of the file this session runs. providers: that the caller named. Errors: NoAdapter if
        the host can run none of them"""
        exported, compiler = self._exported, self.compiler
        compiler.adapter = choice = adapter_choice(providers or [], compiler.preset.saves_power)
        others = [name for name in known(providers or [BASE]) if name not in ENGINES]
        if others:
            compiler.warn(f'a Program from a file has no kernels for the provider "{others[0]}"')
        if "needs" in exported.header:
            self._without, _ = exported.half(None, "", True)
            self.has_fallback = self._without is not None
            base = [BASE] if self._without else []
            compiler.named = named = known(providers) if providers else ["webgpu", *base]
            adapter = None
            if "webgpu" in effective(named):
                allows = outputs_on_gpu or allows_software(providers or [])
                wanted = [name for name in named if name != BASE or base]
                timeout = compiler.options.gpu_timeout
                names, compiler.why_not_gpu = usable(wanted, timeout, choice, allows, may_leave_gpu)
                adapter = adapter_of(choice, timeout) if "webgpu" in names else None
            elif not base:
                text = "this Program runs on a GPU, which the session does not name"
                raise InvalidInput(text, hint='providers=["webgpu"], or export it for ["webgpu", "wasm"]')
            self._on_gpu = self._chosen(adapter, BASE in named and (may_leave_gpu or adapter is None))
        is_alone = "needs" in exported.header and BASE not in compiler.named
        compiler.set_providers([*(["webgpu"] if self._on_gpu else []), *([] if is_alone else [BASE])])

    def _chosen(self, adapter: Any, may_leave_gpu: bool) -> Program | None:
        """The Program for this GPU; None if one without a GPU runs. Warns if the GPU lacks what the first needs."""
        compiler = self.compiler
        found, why = self._exported.half(adapter, compiler.why_not_gpu, may_leave_gpu)
        if found is None:
            from pyruntime.providers.webgpu.adapter import NoAdapter

            raise NoAdapter(
                why, hint='providers=["webgpu", "wasm"] runs the Program without a GPU, if the file has one'
            )
        on_gpu = "needs" in found.header
        if why and adapter is not None:
            warn_once(f"{why}; the session runs on {'less of the GPU' if on_gpu else 'WebAssembly'}")
        compiler.why_not_gpu = why
        return found if on_gpu else None

    def prepare(self) -> None:
        self.states.enter(SessionState.RUNNING)
        compiler = self.compiler
        program = self._on_gpu if compiler.uses_gpu else self._without
        assert program is not None
        host = compiler.open_memory(program.header.get("threads", 1))
        gpu = compiler.open_gpu() if compiler.uses_gpu else None
        calls, limit = StoredCalls(program.header["host"]), self.memory_left()
        shares = compiler.options.share_weights
        executor = load_executor(program, host, self._exported.sources, calls, limit, gpu, shares)
        self.table[FOR_ALL] = self._counted(executor)
        self.is_prepared = True

    def export(self, weights: bool) -> bytes:
        """The file, with its weights if they are wanted."""
        program, sources = self._exported.program, self._exported.sources
        return (embed(program, sources) if weights else program).to_bytes()

    def uses(self) -> Mapping[str, Sequence[str]]:
        return self._exported.uses

    def about(self) -> dict[str, Any]:
        types = self._exported.header["types"]
        return {key: types[key] for key in ("uses", "unused", "metadata", "adapters") if key in types}

    def part(self, names: Sequence[str]) -> Programs:
        raise InvalidInput("this Program needs all its inputs for these outputs", hint="open the model instead")

    def split_differing_dims(self, differing: Mapping[str, Sequence[str]]) -> None:
        for dim, inputs in differing.items():
            text = text_of_differing_dims(dim, inputs)
            raise InvalidInput(text, hint="this Program was compiled for equal dims; open the model instead")
