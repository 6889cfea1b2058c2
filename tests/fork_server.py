"""The last step of the fork server before it forks: the trials of the model that ships."""

import tests.kernel_trials  # noqa: F401
from engine.config import EngineConfig
from engine.execution.model_runner import ModelRunner

ModelRunner.load(EngineConfig(num_threads=1))
