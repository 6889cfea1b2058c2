"""The last step of the fork server before it forks: what many of its forks would do again."""

import gc

import tests.kernel_trials  # noqa: F401
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets

ModelRunner.load(EngineConfig(num_threads=1))  # the trials of the model that ships
Pii(), Secrets()

# The garbage collector of a fork does not visit what was imported, nor copies its pages.
gc.collect()
gc.freeze()
