"""A model as its files describe it: layers, labels and shapes, without the weights' numbers.

It takes no memory, and a second. A check of settings asks it whether the model would load.
"""

import torch

from engine.execution.model_runner import max_model_len_of
from engine.execution.scoring import scorer_of
from engine.models.heads import Labels
from engine.models.load import load_model
from engine.protocol import ProbeInfo
from engine.protocol.options import EngineConfig
from engine.sources.files import config_of

_META = torch.device("meta")
_ANY_KERNELS = {"cpu_kernels": "torch", "attention_backend": "auto"}
"""Nothing is computed."""


class Outline:
    """The outline of `config.model`."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ValueError` if the engine cannot serve the model as `config` asks, `OSError` if the model
        is not found, and `NotImplementedError` for weights whose form depends on their numbers."""
        hf_config = config_of(config.model, trust_remote_code=config.trust_remote_code)
        text_config = hf_config.get_text_config()
        self.max_model_len = max_model_len_of(text_config, config)
        self.vocab_size = int(text_config.vocab_size)
        self._config = config.model_copy(update=_ANY_KERNELS)
        self._hidden_size = int(text_config.hidden_size)
        try:
            self._model = load_model(self._config, hf_config, self.max_model_len, _META)
        except RuntimeError as error:  # torch's, of operators that ask for numbers
            raise NotImplementedError(str(error)) from error

    @property
    def labels(self) -> Labels | None:
        """The labels that the model classifies tokens by. None: it generates."""
        return self._model.labels

    def probes(self) -> tuple[ProbeInfo, ...]:
        """The probes of the configuration. Raises `ValueError` for a file that is not a probe and for a probe
        of another model, `OSError` for a file that cannot be read."""
        probes = scorer_of(self._config, self._hidden_size, self._model.dtype, _META)
        if probes is None:
            return ()
        self._model.watch(probes)
        return probes.infos
