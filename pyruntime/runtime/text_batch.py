"""Texts that one generator writes at the same time: one run of the model reads a token of each (docs/adr/0070)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyruntime.runtime.beams import BeamWriter
from pyruntime.runtime.decoder import CachedDecoder, Caches, Row, Signal, Tensor
from pyruntime.runtime.generation import Made
from pyruntime.runtime.writing import (
    AHEAD,
    Request,
    Sampling,
    Text,
    Waiting,
    Writer,
    shared_feeds,
    shared_groups,
)


@dataclass(eq=False, slots=True)
class Shared:
    """Caches of several texts, a row for each."""

    chats: list[Chat]
    pasts: dict[str, Tensor]


@dataclass(eq=False, slots=True)
class Chat:
    """A text that is being written.

    begin: gives the model this text's own inputs, before its first run
    is_whole: whether nobody reads it before it is complete
    pieces: of the text, which nobody has read; request: its next run, None if it is complete or has failed
    read: tokens in its caches; caches: one for each decoder if other texts use the decoders meanwhile
    shared: the caches of several texts, of which it has one row
    """

    text: Text
    writer: Writer | BeamWriter
    how: Sampling
    begin: Callable[[], Awaitable[None]]
    is_whole: bool
    signal: Signal = None
    pieces: list[str] = field(default_factory=list)
    request: Request | None = None
    error: Any = None
    is_begun: bool = False
    is_closed: bool = False
    read: int = 0
    caches: list[Caches] | None = None
    shared: Shared | None = None

    def proceed(self, request: Request | None, sampled: list[float]) -> None:
        """Add the tokens of a run, and find the next one."""
        if request is not None:
            self.read = len(request.tokens)
            for token in self.writer.accepted(request, sampled):
                piece = self.text.add(token)
                if piece != "":
                    self.pieces.append(piece)
                if self.text.is_ended:
                    break
        following = self.writer.request()
        rest = self.text.end() if following is None else ""
        if rest != "":
            self.pieces.append(rest)
        self.request = following  # last: a reader in another thread takes None for the end of the pieces

    def fail(self, error: Any) -> None:
        self.error = error
        self.request = None

    def row(self) -> Row:
        """Its caches, if other texts use the decoders."""
        if self.shared is not None:
            places = [n for n, chat in enumerate(self.shared.chats) if chat is self]
            return Row(self.shared.pasts, places[0], self.read)
        nothing: dict[str, Tensor] = {}
        return Row(nothing if self.caches is None else self.caches[0].pasts, 0, self.read)


def close(chats: list[Chat]) -> None:
    """Nobody reads these texts any more. The next run forgets them."""
    for chat in chats:
        chat.is_closed = True


class BatchHost(Protocol):
    """What TextBatch needs of its language."""

    async def begin(self, is_needed: Callable[[], bool]) -> bool:
        """Wait until nobody else has the decoders, or they are not needed any more: then False."""

    def end(self) -> None:
        """Let others have the decoders."""

    def told(self, error: Any) -> Any:
        """An error of a run as the caller gets it."""

    def is_stopped(self, signal: Signal) -> bool: ...
    def free(self, tensors: list[Tensor], used: list[Tensor]) -> None: ...


class TextBatch:
    """The texts that one generator writes now. Whoever needs a piece of one runs the model, for all of them; others
    wait.

    decoders: the model, and its draft if any. Their caches are those of `current`, or of the last text that ended
    held: the text whose inputs and caches these are"""

    def __init__(self, decoders: list[CachedDecoder], host: BatchHost) -> None:
        self.chats: list[Chat] = []
        self.current: Chat | None = None
        self.held: Text | None = None
        self._decoders = decoders
        self._host = host

    def add(self, chats: list[Chat]) -> None:
        """Errors: those of a format"""
        for chat in chats:
            chat.proceed(None, [])
        self.chats.extend(chats)

    async def advance(self, chat: Chat) -> None:
        """Return once the text is complete, or has a piece that somebody reads. Errors: those of its run"""

        def is_needed() -> bool:
            return chat.request is not None and (chat.is_whole or not chat.pieces)

        async def work() -> None:
            await self._round(chat)

        while is_needed():
            await self.turn(work, is_needed)
        if chat.error is not None and (chat.is_whole or not chat.pieces):
            raise chat.error

    async def turn(self, work: Callable[[], Awaitable[Any]], is_needed: Callable[[], bool] = lambda: True) -> Any:
        """The result of work with the decoders, once nobody else has them; None if it is not needed any more."""
        if not await self._host.begin(is_needed):
            return None
        try:
            await self._sweep()
            return await work()
        finally:
            self._host.end()

    async def enter(self, text: Text | None) -> None:
        """Let the decoders have the caches of this text, if it is being written; else of no such text. In a turn"""
        found = [chat for chat in self.chats if chat.text is text]
        if found:
            await self._enter(found[0])
        else:
            self._park()

    async def use_alone(self, text: Text) -> None:
        """Let the decoders have caches of this text alone, or none. In a turn"""
        await self.enter(text)
        if self.held is not text:
            self.restart()
        for decoder in self._decoders:
            await decoder.trim(text.so_far())

    async def _sweep(self) -> None:
        """Forget texts that are complete, have failed or are not read any more."""
        ended = [chat for chat in self.chats if chat.is_closed or chat.request is None]
        if not ended:
            return
        for n in reversed(range(len(self.chats))):  # in place, because other threads append
            if any(chat is self.chats[n] for chat in ended):
                del self.chats[n]

        async def work() -> None:
            if any(chat is self.current for chat in ended):
                self.current = None
            elif self.current is None:
                await self._keep([chat for chat in ended if chat.error is None])
            for chat in ended:
                chat.caches = None
                chat.shared = None

        await self._freeing([*self.chats, *ended], work)

    async def _keep(self, ended: list[Chat]) -> None:
        """Keep the caches of one of these texts for the next one that begins alike, if that costs little."""
        alone = [chat for chat in ended if not self._is_shared(chat)]
        try:
            if alone:
                await self._enter(alone[-1])
        except Exception:  # the memory, or the GPU, is lost
            self.restart()
        self.current = None

    def _is_shared(self, chat: Chat) -> bool:
        """Whether texts that are being written have caches in common with this one."""
        shared = chat.shared
        return shared is not None and any(any(one is other for other in shared.chats) for one in self.chats)

    async def _round(self, asking: Chat) -> None:
        """One run for each text that goes on; those that can, share it."""
        going: list[Chat] = []
        waiting: list[Waiting] = []
        for chat in self.chats:
            if chat.request is not None and (chat is asking or chat.is_whole or len(chat.pieces) < AHEAD):
                going.append(chat)
                waiting.append(Waiting(chat.request, chat.read, chat.how, self._host.is_stopped(chat.signal)))
        for group in shared_groups(self._decoders[0].layout, waiting):
            chats = [going[n] for n in group]
            if len(chats) == 1 or not await self._share(chats):
                for chat in chats:
                    await self._alone(chat)
        await self._sweep()

    async def _alone(self, chat: Chat) -> None:
        request = chat.request
        if request is None:
            return
        try:
            model = self._decoders[0]
            await self._enter(chat)
            if not chat.is_begun:
                await chat.begin()
                chat.text.reused = model.kept(chat.text.so_far(), 1)
                chat.is_begun = True
            self.held = chat.text
            decoder = self._decoders[-1] if request.of_draft else model
            chat.proceed(request, await decoder.sample(request, chat.how, chat.signal))
            if request.beams and chat.request is None:
                await model.narrow(request.tokens)
        except Exception as error:
            chat.fail(self._host.told(error))

    async def _share(self, chats: list[Chat]) -> bool:
        """A run for several texts. False if it fails: then each reads its tokens again, so that only the text at fault
        ends."""
        model = self._decoders[0]
        requests: list[Request] = []
        for chat in chats:
            if chat.request is not None:
                requests.append(chat.request)
        found: list[float] = []
        try:
            shared = await self._gathered(chats)
            found = await self.run_shared(shared, shared_feeds(model.layout, requests, chats[0].how))
        except Exception:
            pass
        finally:  # an interrupt of the process is no Exception
            if not found:
                await self._forget(chats)
        if not found:
            return False
        for n, chat in enumerate(chats):
            try:
                chat.proceed(requests[n], [found[n]])
            except Exception as error:
                chat.fail(self._host.told(error))
        return True

    async def run_shared(self, shared: Shared, made: list[Made]) -> list[float]:
        """A run of the model for several texts. Their caches become those that the model returns."""
        model = self._decoders[0]
        before = model.take()
        model.own.pasts = shared.pasts
        try:
            return await model.run(made, None)
        finally:
            shared.pasts = model.own.pasts
            model.own = before

    async def _forget(self, chats: list[Chat]) -> None:
        """These texts have no caches any more."""

        async def work() -> None:
            for chat in chats:
                chat.shared = None
                chat.read = 0

        await self._freeing(self.chats, work)

    async def _gathered(self, chats: list[Chat]) -> Shared:
        """The caches of just these texts."""
        shared = chats[0].shared
        if shared is not None and len(shared.chats) == len(chats):
            same = [chat for n, chat in enumerate(chats) if chat.shared is shared and shared.chats[n] is chat]
            if len(same) == len(chats):
                return shared
        self._park()
        made = Shared(chats, {})

        async def work() -> None:
            made.pasts = await self._decoders[0].stacked([chat.row() for chat in chats])
            for chat in chats:
                chat.shared = made
                chat.caches = None

        await self._freeing(self.chats, work)
        return made

    async def _enter(self, chat: Chat) -> None:
        """Let the decoders have the caches of this text. A text that begins continues those of the last one."""
        if self.current is chat:
            return
        begins = chat.caches is None and chat.shared is None
        if self.current is not None:
            self._park()
        elif not begins:
            self.restart()

        async def work() -> None:
            caches = chat.caches
            if chat.shared is not None:
                model = self._decoders[0]
                model.restore(chat.text.so_far()[: chat.read], await model.stacked([chat.row()]))
            elif caches is not None:
                for n, decoder in enumerate(self._decoders):
                    decoder.put(caches[n])
            if not begins:
                self.held = chat.text
            chat.shared = None
            chat.caches = None
            self.current = chat

        await self._freeing(self.chats, work)

    def _park(self) -> None:
        """Give the text that has the decoders caches of its own."""
        if self.current is not None:
            self.current.caches = [decoder.take() for decoder in self._decoders]
            self.held = None
        self.current = None

    def restart(self) -> None:
        self.held = None
        for decoder in self._decoders:
            decoder.restart()

    async def _freeing(self, chats: list[Chat], work: Callable[[], Awaitable[None]]) -> None:
        """Do work, and free tensors on the GPU that neither these texts nor the decoders use afterwards."""
        before, given = self._used(chats), self._given(chats)  # the caller frees what it gave
        try:
            await work()
        finally:
            self._host.free(before, [*self._used(chats), *given, *self._given(chats)])

    def _used(self, chats: list[Chat]) -> list[Tensor]:
        found = [tensor for caches in self._all_caches(chats) for tensor in caches.tensors()]
        for chat in chats:
            if chat.shared is not None:
                found.extend(chat.shared.pasts.values())
        return found

    def _given(self, chats: list[Chat]) -> list[Tensor]:
        return [tensor for caches in self._all_caches(chats) for tensor in caches.given.values()]

    def _all_caches(self, chats: list[Chat]) -> list[Caches]:
        found = [decoder.own for decoder in self._decoders]
        for chat in chats:
            if chat.caches is not None:
                found.extend(chat.caches)
        return found
