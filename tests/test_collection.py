"""Python's collector of cycles stops while models compile."""

import gc
import os
import threading

import pytest

from pyruntime.compiler import collection
from pyruntime.compiler.collection import without_collection


def test_it_starts_when_the_last_compilation_ends():
    inside, leave = threading.Event(), threading.Event()

    @without_collection()
    def other():
        inside.set()
        leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with pytest.raises(KeyError), without_collection():
        raise KeyError
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_it_stays_stopped_for_a_program_that_stopped_it():
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_it_starts_in_the_child_of_a_fork():
    with without_collection():
        child = os.fork()
        if not child:
            os._exit(not gc.isenabled())
        assert os.waitpid(child, 0)[1] == 0


def test_it_waits_for_a_host_that_calls_it_when_idle(monkeypatch):
    with collection.without_collection(until_idle=True):
        pass
    assert gc.isenabled()
    monkeypatch.setattr(collection._Compilations, "called", False)  # restored
    collection.collect_when_idle()
    try:
        with collection.without_collection(until_idle=True), collection.without_collection():
            pass
        assert not gc.isenabled()
        with collection.without_collection(until_idle=True):
            collection.collect()
            assert not gc.isenabled()
        collection.collect()
        assert gc.isenabled()
        with collection.without_collection():
            pass
        assert gc.isenabled()
    finally:
        gc.enable()
