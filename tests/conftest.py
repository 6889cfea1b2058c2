"""How the tests look for what breaks.

The suite tries the same examples at every run, so that it says the same of the same code. The profile `all`,
which `make test-all` uses, tries fifty times as many. The profile `search` looks for new ones: run pytest
with `--hypothesis-profile search`, and keep a failure that it finds as an `@example`. The profile `mutants`,
which `tools.mutants` uses, looks for no simpler example of a failure.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from tests.processes import obey_interrupts
from tests.sampling import leave_to_the_whole_suite
from tests.serving import serving

obey_interrupts()  # tests send SIGINT to themselves and to processes that they start

# Where there is no GPU, Triton's interpreter runs its kernels. It is asked for before anybody imports Triton.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Tests run beside each other, so a second thread of a small model mostly waits. Without this variable, each
# server also tries numbers of threads at its start, for seconds.
os.environ["OMP_NUM_THREADS"] = "1"

# Behind the variables: it imports torch.
import tests.kernel_trials  # noqa: E402, F401

# Modules and tests live to the end, so the garbage collector never visits them.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_the_whole_suite(items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# Time is no measure on a machine that does other things as well.
timeless = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("weir", timeless, max_examples=10, derandomize=True)
hypothesis.settings.register_profile("all", timeless, max_examples=500, derandomize=True)
hypothesis.settings.register_profile("search", timeless, max_examples=2000)
found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutants", timeless, max_examples=10, derandomize=True, phases=found)
hypothesis.settings.load_profile("weir")


@pytest.fixture(scope="session", autouse=True)
def kept_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What tests keep of models' files takes no place of what the developer's servers keep."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.sources.kept.cache_folder", lambda: folder)
        yield folder


@pytest.fixture(scope="session")
def text_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder: see `tests.hooks.builtin.classifiers`."""
    from tests.hooks.builtin.classifiers import train_text_classifier

    folder = tmp_path_factory.mktemp("texts")
    train_text_classifier(folder)
    return folder


@pytest.fixture(scope="session")
def token_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.hooks.builtin.classifiers import train_token_classifier

    folder = tmp_path_factory.mktemp("tokens")
    train_token_classifier(folder)
    return folder


@pytest.fixture(scope="session")
def plain_server() -> Iterator[Callable[[], str]]:
    """The base URL of a server without options, started once."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(serving()))


@pytest.fixture(scope="module")
def weir_serve(plain_server: Callable[[], str]) -> Iterator[Callable[..., str]]:
    """`weir_serve("--hook", ...)`: the base URL of a server with these options. A module's tests share it."""
    with ExitStack() as stack:

        @cache
        def start(*options: str) -> str:
            return stack.enter_context(serving(*options)) if options else plain_server()

        yield start


@pytest.fixture
def restore_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One key of placeholders for this process and for workers."""
    from hooks.detect import placeholders

    monkeypatch.setenv(placeholders.KEY, "a key of the operator's")
    placeholders.operator_key.cache_clear()
    yield
    placeholders.operator_key.cache_clear()
