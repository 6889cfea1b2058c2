"""The last step of the fork server before it forks: the trials of the model that ships."""

import gc

import tests.kernel_trials  # noqa: F401
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig

ModelRunner.load(EngineConfig(num_threads=1))

# The garbage collector of a fork does not visit what was imported, nor copies its pages.
gc.collect()
gc.freeze()
