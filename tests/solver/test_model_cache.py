"""Models are made once, kept until they are closed, and never mixed up; what is the caller's is not kept."""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
import weakref

import pytest

import tts
from tests.support.guard import LIMIT_S, program, run_at_once
from tts.backends.function import Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import ConfigError
from tts.models import registry
from tts.solver.model_cache import LOOP, ModelCache, Once, resolve

TOY = registry.get("toy")


def write(ask: Ask) -> str:
    return "A: 7"


@pytest.fixture
def loads(monkeypatch):
    """Every load of the toy from here on, each as slow as it takes the other threads to come."""
    seen = []
    make = ToyBackend.from_record

    def load(record):
        seen.append(record)
        threading.Event().wait(0.05)  # short on purpose
        return make(record)

    monkeypatch.setattr(ToyBackend, "from_record", load)
    tts.close()
    yield seen
    tts.close()


def test_what_a_model_is():
    backend = ToyBackend()
    assert resolve(backend, "transformers", "http://localhost") is backend
    assert resolve("toy", None, None) is resolve(TOY, None, None) is TOY
    assert resolve("toy", "transformers", None) == dataclasses.replace(TOY, backend="transformers")
    assert resolve("toy", "served", "http://localhost") == dataclasses.replace(
        TOY, backend="served", url="http://localhost"
    )
    assert resolve("toy", None, "http://localhost") == dataclasses.replace(
        TOY, backend="openai", url="http://localhost"
    )
    served = resolve("known-to-the-server-alone", None, "http://localhost")
    assert (served.name, served.backend, served.url) == ("known-to-the-server-alone", "openai", "http://localhost")
    assert isinstance(resolve(write, None, None), FunctionBackend)


@pytest.mark.parametrize("model", [None, 5, ToyBackend, ["toy"]])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ConfigError, match=r"record,.*function") as refused:
        resolve(model, None, None)
    assert refused.value.hint


def test_a_process_model_is_refused_by_name_and_by_record():
    for model in ("pocket-process", dataclasses.replace(TOY, readout="head.safetensors")):
        with pytest.raises(ConfigError, match="writes nothing"):
            resolve(model, None, None)


def test_a_record_is_loaded_once_and_equal_ones_are_one():
    kept = ModelCache()
    assert kept.backend(TOY) is kept.backend(dataclasses.replace(TOY))
    assert kept.backend(dataclasses.replace(TOY, task="text")) is not kept.backend(TOY)
    assert kept.task("arithmetic") is kept.task("arithmetic")
    assert ModelCache().backend(TOY) is not kept.backend(TOY)


def test_threads_that_ask_at_once_load_once(loads):
    solutions = run_at_once(*[lambda: tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4)")] * 4)
    assert [s.answer for s in solutions] == ["5"] * 4
    assert len(loads) == 1


def test_another_model_is_loaded_in_the_meantime():
    once, other = Once(), threading.Event()

    def slow(key):
        assert other.wait(LIMIT_S)
        return key

    def quick(key):
        other.set()
        return key

    assert run_at_once(lambda: once.get("slow", slow), lambda: once.get("quick", quick)) == ["slow", "quick"]


def test_what_could_not_be_made_is_tried_again():
    once: Once[str, str] = Once()
    with pytest.raises(OSError, match="no disk"):
        once.get("a", lambda key: (_ for _ in ()).throw(OSError("no disk")))
    assert once.get("a", lambda key: key) == "a"


def test_after_close_models_are_loaded_again(loads):
    def solve():
        return tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4)")

    first = solve()
    assert solve().trace.canonical() == first.trace.canonical()
    assert len(loads) == 1
    tts.close()
    tts.close()
    assert solve().trace.canonical() == first.trace.canonical()
    assert len(loads) == 2


def test_one_that_fails_to_close_does_not_keep_the_others_open(monkeypatch):
    closed = []

    async def close(self):
        closed.append(self)
        if len(closed) == 1:
            raise OSError("stuck")

    monkeypatch.setattr(ToyBackend, "close", close)
    kept = ModelCache()
    made = {kept.backend(TOY), kept.backend(dataclasses.replace(TOY, task="text"))}
    with pytest.raises(OSError, match="stuck"):
        kept.close()
    assert set(closed) == made
    assert kept.backend(TOY) not in made


def test_closing_in_the_library_s_own_thread_is_refused():
    kept = ModelCache()
    backend = kept.backend(TOY)

    async def closing():
        with pytest.raises(ConfigError, match=r"asyncio\.to_thread\(tts\.close\)"):
            kept.close()

    assert run_at_once(lambda: LOOP.run(closing())) == [None]
    assert kept.backend(TOY) is backend


class Alike(ToyBackend):
    def __repr__(self) -> str:
        return "a model"


class AlikeFunction:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, ask: Ask) -> str:
        return self.text

    def __repr__(self) -> str:
        return "a function"


def test_models_that_look_alike_are_not_mixed_up():
    right, wrong = (Alike(ToyLanguage(accuracy=accuracy)) for accuracy in (1.0, 0.0))
    answers = [tts.solve("3 + 4", 90, backend=b, task="arithmetic", strategy="single").answer for b in (right, wrong)]
    assert answers[0] == "7"
    assert answers[1] != "7"
    functions = [AlikeFunction("A: 7"), AlikeFunction("A: 8")]
    assert [tts.solve("3 + 4", 90, backend=f, task="arithmetic", strategy="single").answer for f in functions] == [
        "7",
        "8",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: lambda ask: "A: 7", ToyBackend])
def test_a_model_of_the_caller_s_is_gone_with_its_last_use(make):
    model = make()
    assert tts.solve("3 + 4", 90, backend=model, task="arithmetic", strategy="single").answer == "7"
    seen = weakref.ref(model)
    del model
    for _ in range(100):  # the loop's thread may still hold the last call
        gc.collect()
        run_at_once(lambda: tts.solve("1 + 1", 90, model="toy", strategy="single"))
        if seen() is None:
            return
    pytest.fail("it is still there")


FORK = """
import os, signal, sys, threading
import tts
from tts.backends.toy import ToyBackend
from tts.solver import Solver

STRATEGY = "best_of_n(n=4)"
solver = Solver("toy")
before = [tts.solve("3 + 4 - 2", 400, model="toy", strategy=STRATEGY), solver.solve("3 + 4 - 2", 400, strategy=STRATEGY)]
sample, begun, stay = ToyBackend.sample, threading.Event(), threading.Event()

def held(self, request):
    begun.set()
    stay.wait()
    return sample(self, request)

# the model is in the middle of another thread's search when the process forks
ToyBackend.sample = held
other = threading.Thread(target=lambda: tts.solve("1 + 1", 90, model="toy", strategy="single"))
other.start()
begun.wait()
child = os.fork()
signal.alarm(60)  # nobody else would end a child that hangs
ToyBackend.sample = sample
if child:
    stay.set()
    other.join()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
after = [tts.solve("3 + 4 - 2", 400, model="toy", strategy=STRATEGY), solver.solve("3 + 4 - 2", 400, strategy=STRATEGY)]
tts.close()
assert [s.trace.canonical() for s in before] == [s.trace.canonical() for s in after]
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_solves_as_its_parent_does():
    end = program(FORK)
    assert (end.stdout, end.stderr, end.returncode) == ("0\n", "", 0)


def test_a_record_without_a_name_is_refused_where_no_server_can_tell_it():
    with pytest.raises(ConfigError, match=r"model.*named,.*'toy'"):
        resolve(dataclasses.replace(TOY, name=""), None, None)


class SizedBackend(ToyBackend):
    @classmethod
    def from_record(cls, record, **options):
        raise TypeError("size must be a number")


def test_options_that_a_backend_does_not_take_are_named_with_its_reason():
    record = dataclasses.replace(TOY, backend=f"{__name__}:SizedBackend", options=(("size", "large"),))
    with pytest.raises(ConfigError, match="options size='large'"):
        ModelCache().backend(record)
