"""Checks the probes of a configuration: their files, and that they are probes of the model that has them."""

from collections.abc import Iterator

from engine.protocol import ProbeInfo
from engine.protocol.parts import load
from engine.sources.names import is_here
from proxy.deployment.engines import engine_config
from proxy.settings.did_you_mean import Fault, Place
from proxy.settings.model import ModelSettings


def probe_faults(place: Place, model: ModelSettings) -> Iterator[Fault]:
    """`place`: the model's. Reads the headers of the model's files, and the beginnings of its tensors."""
    try:
        probes_of(model)
    except (ImportError, NotImplementedError):
        return
    except (ValueError, OSError) as error:
        yield Fault((*place, "probes"), str(error))


def probes_of(model: ModelSettings) -> tuple[ProbeInfo, ...]:
    """Raises `ValueError` and `OSError` for probes that the model cannot have, as loading would;
    `NotImplementedError` for a model whose layers only loading can tell, `ImportError` without torch. Of the
    probes of a model on the hub, only the files are read."""
    if not model.local.probes:
        return ()
    from engine.execution.outline import Outline

    probes = load("engine.execution.probes.load:read_probes", "the code of probes")(model.local.probes)
    if not is_here(model.local.model):
        return tuple(probe.info for probe in probes)
    return Outline(engine_config(model)).probes()
