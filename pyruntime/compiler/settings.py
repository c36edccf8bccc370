"""The options of a session, checked and converted for the compiler."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from pyruntime.codegen.choices import Choices, Chosen
from pyruntime.compiler.fixed_dims import with_fixed_dims
from pyruntime.compiler.user_passes import Pipeline
from pyruntime.frontend.budget import Budget
from pyruntime.onnx.graph import Graph
from pyruntime.onnx.sampling import with_sampling
from pyruntime.options import SessionOptions, program_options
from pyruntime.passes.cleanup.graph_pruning import with_outputs


class Settings:
    """Passes, schedules and limits of all compilations of a session.

    Errors: InvalidInput for a pass, a knob or a knob's value that the compiler does not know."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.pipeline = Pipeline(options.graph_optimization_level, options.disabled_passes)
        self.choices = Choices(options.choices)

    def prepare(self, graph: Graph) -> Graph:
        """The graph of a model with sizes for its dims, with sampling, with the outputs that the options name, and
        after the passes on graphs. Errors: InvalidInput for a size or an output that does not fit the model."""
        options = self.options
        sized = graph.with_dims(options.free_dimension_overrides)
        if options.sample_from:
            sized = with_fixed_dims(sized)
        found = with_sampling(sized, options.sample_from, options.sample_positions, options.sample_masks)
        return self.pipeline.graph(found if options.outputs is None else with_outputs(found, options.outputs))

    def budget(self) -> Budget:
        """Return the budget of a compilation that starts now."""
        return Budget(self.options.compile_time_limit, self.options.code_size_limit)

    @property
    def cache_key(self) -> dict[str, Any]:
        """The options on which a Program depends."""
        return program_options(self.options)

    def with_choices(self, chosen: Chosen) -> Settings:
        """The same settings with other schedules."""
        other = copy(self)
        other.options, other.choices = replace(self.options, choices=chosen), Choices(chosen)
        return other
