"""Texts that one generator writes at the same time: one run of the model reads a token of each (docs/adr/0070)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, get_ident

from pyruntime.api.decoder import Caches, Decoder, Row
from pyruntime.api.ort_value import OrtValue
from pyruntime.errors import ExecutionError, InvalidInput, PyRuntimeError
from pyruntime.native.execution.forks import in_children
from pyruntime.runtime.beams import BeamWriter
from pyruntime.runtime.writing import (
    AHEAD,
    BEYOND,
    BUSY,
    BUSY_HINT,
    Request,
    Sampling,
    Text,
    Waiting,
    Writer,
    shared_feeds,
    shared_groups,
)


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
    begin: Callable[[], None]
    is_whole: bool
    pieces: list[str] = field(default_factory=list)
    request: Request | None = None
    error: Exception | None = None
    is_begun: bool = False
    is_closed: bool = False
    read: int = 0
    caches: list[Caches] | None = None
    shared: Shared | None = None

    def proceed(self, request: Request | None = None, sampled: Sequence[float] = ()) -> None:
        """Add the tokens of a run, and find the next one."""
        if request is not None:
            self.read = len(request.tokens)
            for token in self.writer.accepted(request, list(sampled)):
                if piece := self.text.add(token):
                    self.pieces.append(piece)
                if self.text.is_ended:
                    break
        following = self.writer.request()
        if following is None and (rest := self.text.end()):
            self.pieces.append(rest)
        self.request = following  # last: a reader in another thread takes None for the end of the pieces

    def fail(self, error: Exception) -> None:
        if isinstance(error, ExecutionError):
            error.hint = error.hint or BEYOND
        self.error, self.request = error, None


def close(chats: Sequence[Chat]) -> None:
    """Nobody reads these texts any more. The next run forgets them."""
    for chat in chats:
        chat.is_closed = True


@dataclass(eq=False, slots=True)
class Shared:
    """Caches of several texts, a row for each."""

    chats: list[Chat]
    pasts: dict[str, OrtValue]

    def row(self, chat: Chat) -> Row:
        return Row(self.pasts, self.chats.index(chat), chat.read)


class TextBatch:
    """The texts that one generator writes now. Whoever needs a piece of one runs the model, for all of them; other
    threads wait.

    decoders: the model, and its draft if any. Their caches are those of `_current`, or of the last text that ended
    held: the text whose inputs and caches these are"""

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        self._decoders = decoders
        self._model = decoders[0]
        self._chats: list[Chat] = []
        self._current: Chat | None = None
        self.held: Text | None = None
        self._changed = Condition()
        self._owner: int | None = None  # the thread that runs the model
        in_children(self.after_fork)

    def add(self, chat: Chat) -> None:
        """Errors: those of a format"""
        chat.proceed()
        with self._changed:
            self._chats.append(chat)

    def advance(self, chat: Chat) -> None:
        """Return once the text is complete, or has a piece that somebody reads.

        Errors: those of its run; InvalidInput in the middle of a run by this thread"""

        def is_needed() -> bool:
            return chat.request is not None and (chat.is_whole or not chat.pieces)

        while is_needed():
            with self.turn(is_needed) as is_ours:
                if is_ours:
                    self._round(chat)
        if chat.error is not None and (chat.is_whole or not chat.pieces):
            raise chat.error

    @contextmanager
    def turn(self, is_needed: Callable[[], bool] = lambda: True) -> Iterator[bool]:
        """Wait until no other thread runs the model, or it is not needed any more: then False.

        Errors: InvalidInput in the middle of a run by this thread"""
        with self._changed:
            if self._owner == get_ident():
                raise InvalidInput(BUSY, hint=BUSY_HINT)
            while self._owner is not None and is_needed():
                self._changed.wait()
            is_ours = is_needed()
            if is_ours:
                self._owner = get_ident()
        try:
            if is_ours:
                self._sweep()
            yield is_ours
        finally:
            if is_ours:
                with self._changed:
                    self._owner = None
                    self._changed.notify_all()

    def enter(self, text: Text | None) -> None:
        """Let the decoders have the caches of this text, if it is being written; else of no such text. In a turn"""
        found = next((chat for chat in self._chats if chat.text is text), None)
        if found is not None:
            self._enter(found)
        elif self._current is not None:
            self._park()

    def own(self, text: Text) -> None:
        """Let the decoders have caches of this text alone, or none. In a turn"""
        self.enter(text)
        if self.held is not text:
            self._restart()
        for decoder in self._decoders:
            decoder.trim(text.so_far())

    def after_fork(self) -> None:
        """In a child, where other threads have ended: a run by one of them stays undone."""
        self._changed = Condition()
        if self._owner in (None, get_ident()):
            return
        for chat in self._chats:
            chat.fail(ExecutionError("the process was forked in the middle of a run", hint="begin the text again"))
        self._owner, self._current, self._chats = None, None, []
        self._restart()

    def _sweep(self) -> None:
        """Forget texts that are complete, have failed or are not read any more."""
        with self._changed:
            ended = [chat for chat in self._chats if chat.is_closed or chat.request is None]
            self._chats = [chat for chat in self._chats if chat not in ended]
        for chat in ended:
            if self._current is chat:
                self._current = None
                return
        self._keep([chat for chat in ended if chat.error is None])

    def _keep(self, ended: list[Chat]) -> None:
        """Keep the caches of one of these texts for the next one that begins alike, if that costs little."""
        alone = [chat for chat in ended if chat.shared is None or not {*chat.shared.chats} & {*self._chats}]
        try:
            if self._current is None and alone:
                self._enter(alone[-1])
        except PyRuntimeError:  # the memory, or the GPU, is lost
            self._restart()
        if self._current in alone:
            self._current = None

    def _round(self, asking: Chat) -> None:
        """One run for each text that goes on; those that can, share it."""
        going = [
            (chat, Waiting(chat.request, chat.read, chat.how))
            for chat in self._chats
            if chat.request is not None and (chat is asking or chat.is_whole or len(chat.pieces) < AHEAD)
        ]
        for group in shared_groups(self._model.layout, [waiting for _, waiting in going]):
            chats = [going[n][0] for n in group]
            if len(chats) == 1 or not self._share(chats):
                for chat in chats:
                    self._alone(chat)
        self._sweep()

    def _alone(self, chat: Chat) -> None:
        request = chat.request
        if request is None:
            return
        try:
            self._enter(chat)
            if not chat.is_begun:
                chat.begin()
                chat.text.reused = self._model.kept(chat.text.so_far(), 1)
                chat.is_begun = True
            self.held = chat.text
            found = self._decoders[-1 if request.of_draft else 0].sample(request, chat.how)
            chat.proceed(request, found)
            if request.beams and chat.request is None:
                self._model.narrow(request.tokens)
        except Exception as error:
            chat.fail(error)

    def _share(self, chats: list[Chat]) -> bool:
        """A run for several texts. False if it fails: then each reads its tokens again, so that only the text at fault
        ends."""
        requests = [chat.request for chat in chats if chat.request is not None]
        try:
            shared = self._gathered(chats)
            found = self._model.run_shared(shared_feeds(self._model.layout, requests, chats[0].how), shared.pasts)
        except BaseException as error:
            for chat in chats:
                chat.shared, chat.read = None, 0
            if not isinstance(error, Exception):
                raise
            return False
        for chat, request, token in zip(chats, requests, found, strict=True):
            try:
                chat.proceed(request, [token])
            except Exception as failed:
                chat.fail(failed)
        return True

    def _gathered(self, chats: list[Chat]) -> Shared:
        """The caches of just these texts."""
        shared = chats[0].shared
        if shared is not None and shared.chats == chats and all(chat.shared is shared for chat in chats):
            return shared
        if self._current is not None:
            self._park()
        made = Shared(chats, self._model.stacked([self._row(chat) for chat in chats]))
        for chat in chats:
            chat.shared, chat.caches = made, None
        return made

    def _row(self, chat: Chat) -> Row:
        if chat.shared is not None:
            return chat.shared.row(chat)
        return Row({} if chat.caches is None else chat.caches[0].pasts, 0, chat.read)

    def _enter(self, chat: Chat) -> None:
        """Let the decoders have the caches of this text. A text that begins continues those of the last one."""
        if self._current is chat:
            return
        begins = chat.caches is None and chat.shared is None
        if self._current is not None:
            self._park()
        elif not begins:
            self._restart()
        if chat.shared is not None:
            self._model.restore(chat.text.so_far()[: chat.read], self._model.stacked([chat.shared.row(chat)]))
        elif chat.caches is not None:
            for decoder, caches in zip(self._decoders, chat.caches, strict=True):
                decoder.put(caches)
        if not begins:
            self.held = chat.text
        chat.shared = chat.caches = None
        self._current = chat

    def _park(self) -> None:
        """Give the text that has the decoders caches of its own."""
        if self._current is not None:
            self._current.caches = [decoder.taken() for decoder in self._decoders]
        self._current = None
        self._restart()

    def _restart(self) -> None:
        self.held = None
        for decoder in self._decoders:
            decoder.restart()


__all__ = ["Chat", "TextBatch", "close"]
