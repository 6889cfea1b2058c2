"""The memory for keys and values: its contents."""

import torch

from engine.device.kv_cache import KVCache, LayerShape


def test_gathered_keys_and_values_are_those_written() -> None:
    device = torch.device("cpu")
    cache = KVCache({0: LayerShape(2, 3, 5)}, num_blocks=4, block_size=2, dtype=torch.bfloat16, device=device)
    keys, values = torch.randn(3, 2, 3).bfloat16(), torch.randn(3, 2, 5).bfloat16()
    cache.write(0, torch.tensor([6, 7, 2]), keys, values)
    k, v = cache.gather(0, torch.tensor([[3, 1]]))
    assert torch.equal(k[0, :, :3].transpose(0, 1), keys)
    assert torch.equal(v[0, :, :3].transpose(0, 1), values)
    assert not k[0, :, 3].any(), "slots that were never written are zero"
