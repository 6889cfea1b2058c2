import subprocess
import sys

LOADS = """
import sys
import torch
from engine.protocol.demo import MODEL_DIR
from engine.sources.transformers_files import read_config, read_tokenizer

read_config(MODEL_DIR), read_tokenizer(MODEL_DIR)
assert torch.distributed.is_available()
print([name for name in ("sympy", "torch.distributed.tensor") if name in sys.modules])
"""


def test_a_model_is_read_without_what_transformers_needs_for_several_processes() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True)

    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
