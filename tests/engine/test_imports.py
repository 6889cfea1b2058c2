import subprocess
import sys

HEAVY = ("torch", "transformers", "tokenizers", "numpy")


def test_the_protocol_loads_no_torch() -> None:
    assert loaded_by("engine, engine.protocol, engine.local") == "[]"


def test_scheduling_loads_no_torch() -> None:
    assert (
        loaded_by(
            "engine.protocol.options, engine.scheduling.sequence, "
            "engine.scheduling.block_manager, engine.scheduling.scheduler"
        )
        == "[]"
    )


def loaded_by(modules: str) -> str:
    code = f"import {modules}, sys; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.strip()
