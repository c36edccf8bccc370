"""A decoder's session with the keys and values of the tokens that it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.api.ort_value import OrtValue
from pyruntime.api.session import InferenceSession
from pyruntime.arguments import shown
from pyruntime.errors import DeviceLost, InvalidInput
from pyruntime.frontend.feed_checks import type_name
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, dtype_of, from_python
from pyruntime.onnx.graph import TensorType
from pyruntime.runtime.batching import Declared
from pyruntime.runtime.decoder import CachedDecoder, Row, decoder_layout
from pyruntime.runtime.generation import Made, encoder_feeds
from pyruntime.runtime.saved_text import HALVES, SavedTensor, from_halves
from pyruntime.runtime.writing import MOST
from pyruntime.session.run_options import RunOptions

TYPES = {type_name(TensorType(dtype, None)): dtype for dtype in dt.ALL}
Arrays = Mapping[str, Any]


class Decoder(CachedDecoder):
    """session: with the option sample_positions; given: inputs besides those of a text, such as an encoder's states,
    whose arrays may come later (None); adapters: of its runs, with weights
    continued: caches that names do not pair, with the outputs that continue them

    Errors: InvalidInput for a model that cannot generate."""

    def __init__(
        self, session: InferenceSession, given: Arrays | None = None, adapters: Mapping[str, float] | None = None,
        continued: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._made_of = session, given or {}, adapters or {}, continued or {}
        inputs, outputs = _declared(session.get_inputs()), _declared(session.get_outputs())
        hint = "export it as a decoder with a KV cache, for example with Optimum"
        more = "inputs={name: array} gives what stays the same in all runs, caches={name: output} continues a cache"
        layout = decoder_layout(inputs, outputs, list(given or ()), continued or {}, hint, more)
        found = session.metadata.custom_metadata_map.get("context_length", "")
        context = int(found) if found.isdecimal() and int(found) > 0 else MOST
        super().__init__(_Host(session, adapters or {}), layout, list(given or ()), context)
        self.session = session
        self.give(given or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle` and `copy`: as it was opened, without caches."""
        return Decoder, self._made_of


class _Host:
    """The session of a decoder, and its tensors (`OrtValue`)."""

    def __init__(self, session: InferenceSession, adapters: Mapping[str, float]) -> None:
        self._session, self._adapters = session, adapters
        self._types = {x.name: TYPES[x.type] for x in session.get_inputs() if x.type in TYPES}
        # In a page, tensors of bfloat16 have the type uint16
        self.types = {name: "uint16" if dtype is dt.BF16 else dtype.name for name, dtype in self._types.items()}

    @property
    def about(self) -> list[str]:
        return [self._session.metadata.graph_name, self._session.metadata.producer_name]

    async def run(self, feeds: dict[str, OrtValue], made: list[Made], names: list[str], signal: None) -> list[OrtValue]:
        values = feeds | {x.name: self._value(x.name, x.dims, x.values) for x in made}
        options = RunOptions()
        for name, weight in self._adapters.items():
            options.add_active_adapter(name, weight)
        found: list[OrtValue] = self._session.run_with_ort_values(names, values, options)
        return found

    async def numbers(self, tensor: OrtValue, rows: int) -> list[float]:
        found: list[float] = tensor.numpy()[-rows:].ravel().tolist()
        return found

    async def plain_numbers(self, name: str, tensor: OrtValue) -> list[float]:
        array = tensor.numpy()
        if form := HALVES.get(self.types[name]):
            return from_halves(array.view(np.uint16).ravel().tolist(), form)
        found: list[float] = array.ravel().tolist()
        return found

    async def first(self, tensor: OrtValue, count: int, axis: int) -> OrtValue:
        return tensor.first(count, axis)

    async def joined(self, name: str, rows: list[Row], batch: int, axis: int) -> OrtValue:
        parts = []
        for one in rows:
            part = np.moveaxis(one.pasts[name].numpy(), batch, 0)[one.row : one.row + 1]
            part = np.moveaxis(part, 0, batch)
            if axis >= 0:
                first = max(0, part.shape[axis] - one.count)
                part = part[(slice(None),) * axis + (slice(first, None),)]
            parts.append(part)
        dims = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
        dims[batch] = len(parts)
        whole = np.zeros(dims, parts[0].dtype)
        for n, part in enumerate(parts):
            place = [slice(dim - size, None) for dim, size in zip(dims, part.shape, strict=True)]
            place[batch] = slice(n, n + 1)
            whole[tuple(place)] = part
        return OrtValue(whole, self._types[name])

    async def bytes_of(self, tensor: OrtValue) -> Any:
        return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)

    def sizes(self, tensor: OrtValue) -> list[int]:
        return list(tensor.shape())

    def byte_size(self, name: str) -> int:
        return int(NUMPY[self._types[name].name].itemsize)

    def converted(self, name: str, given: Any) -> OrtValue:
        """An array that the caller gives, with the input's element type. Errors: InvalidInput"""
        try:
            made = np.asarray(given)
            if dtype_of(made) is not self._types[name]:
                return self._value(name, made.shape, made.ravel().tolist())
            return OrtValue.ortvalue_from_numpy(made)
        except (TypeError, ValueError, OverflowError) as e:
            raise InvalidInput(f'the input "{name}" cannot be {shown(given)}', hint="an array of numbers") from e

    def zeros(self, name: str, dims: list[int]) -> OrtValue:
        return OrtValue.ortvalue_from_shape_and_type(dims, self._types[name].code)

    def read(self, saved: SavedTensor, body: memoryview) -> OrtValue:
        dtype = self._types[saved.name]
        array = np.frombuffer(body[saved.first : saved.last], NUMPY[dtype.name]).reshape(saved.dims)
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array, dtype.code)

    def is_lost(self, error: Any) -> bool:
        return isinstance(error, DeviceLost)

    def free(self, tensors: list[OrtValue], used: list[OrtValue]) -> None:
        """Python counts references."""

    def _value(self, name: str, dims: Sequence[int], values: Sequence[float]) -> OrtValue:
        """A tensor of the input's element type."""
        array = from_python((dims, list(values)), self._types[name])
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array, self._types[name].code)


def _declared(values: Sequence[Any]) -> list[Declared]:
    return [Declared(x.name, x.shape) for x in values]


class Encoder:
    """A session whose outputs are inputs of a decoder, computed once for each text.

    Errors: InvalidInput if no output is an input of the decoder"""

    def __init__(self, session: InferenceSession, decoder: InferenceSession) -> None:
        self.session = session
        self._inputs = [x.name for x in session.get_inputs()]
        outputs = _declared(session.get_outputs())
        self._feeds = encoder_feeds(self._inputs, outputs, [x.name for x in decoder.get_inputs()])
        self.given = [x.feed for x in self._feeds]  # the decoder's inputs
        if all(x.is_mask for x in self._feeds):
            names = ", ".join(x.name for x in outputs)
            raise InvalidInput(
                f"no output of the encoder is an input of the decoder: {names}", hint="give it as inputs"
            )

    def run(self, arrays: Arrays) -> dict[str, Any]:
        """The decoder's inputs: outputs of a run, and those of the arrays that the encoder does not read.

        Errors: those of a run"""
        own = {name: x for name, x in arrays.items() if name in self._inputs}
        others = {name: x for name, x in arrays.items() if name not in own}
        if not own:
            return others
        names = [x.output for x in self._feeds if not x.is_mask]
        made = dict(zip(names, self.session.run(names, own), strict=True))
        for x in self._feeds:
            seen = own.get(x.output)
            others[x.feed] = (
                made[x.output] if not x.is_mask else np.ones(made[names[0]].shape[:2]) if seen is None else seen
            )
        return others
