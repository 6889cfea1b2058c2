"""A stand-in for the capture of a CUDA graph. It holds what a graph holds: operators and addresses.

A capture records torch's operators, and the kernels in Triton that its interpreter runs. A replay calls these
again, and no other code: whatever Python decided or read stays as it was. The memory that a capture makes
belongs to a pool. Graphs of a pool write over each other's memory, so each replay begins with garbage there.

A capture fails where CUDA's would, or where a replay would go wrong: the host reads from the device or
copies to it, a shape follows from numbers, or an operator reads memory that another graph has made. A replay
fails if memory was freed that its operators read.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from engine.execution.cuda_graphs import Run

WAITING = "_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "item"
"""Operators whose results the host waits for, or whose shapes follow from numbers."""
READING = "tolist", "numpy", "cpu", "__array__", "__dlpack__"
"""Methods by which the host reads without an operator."""
GARBAGE = 0x7F
"""A byte: eight of them are no index of any tensor, four are a number near the largest float."""


class RefuseToWait(TorchDispatchMode):
    """Raises at an operator that waits for a CUDA device, or that copies from the host."""

    copies_are_refused = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.partition(".")[0]
        assert name.lstrip("_") not in {w.lstrip("_") for w in WAITING}, f"the host waits for {name}"
        has_mask = name.lstrip("_").startswith("index") and any(map(_is_mask, tree_flatten(args[1:2])[0]))
        assert not has_mask, f"the shape of {name} follows from numbers"
        is_copy = self.copies_are_refused and name in ("lift_fresh", "lift_fresh_copy")
        assert not is_copy, "the host copies to the device"
        return function(*args, **kwargs or {})


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


@contextlib.contextmanager
def host_is_refused() -> Iterator[None]:
    """The host reads nothing from tensors, not even without an operator."""

    def refused(name: str) -> Callable[..., Any]:
        def read(*_: Any, **__: Any) -> Any:
            raise AssertionError(f"the host reads from the device by {name}")

        return read

    with contextlib.ExitStack() as stack:
        for name in READING:
            stack.enter_context(mock.patch.object(Tensor, name, refused(name)))
        yield


class RecordingPool:
    """Implements `engine.execution.cuda_graphs.Capture`. Its captures share one pool of memory."""

    def __init__(self) -> None:
        self._recordings: list[_Recording] = []
        self.num_replays = 0

    def __call__(self, run: Run) -> Run:
        run()  # as `GraphCapture` does
        recording = _Recording({s for other in self._recordings for s in other.storages})
        with recording.watching_kernels(), host_is_refused(), recording:
            logits = run()
        self._recordings.append(recording)

        @torch.inference_mode()
        def replay() -> Tensor:
            self.num_replays += 1
            for other in self._recordings:
                other.spoil()
            recording.replay()
            return logits

        return replay


class _Memory:
    """A tensor that a recording does not keep alive, as a graph does not."""

    def __init__(self, tensor: Tensor) -> None:
        self._storage = StorageWeakRef(tensor.untyped_storage())
        self._layout = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._dtype = tensor.dtype

    def tensor(self) -> Tensor:
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)
        assert storage is not None, "a graph reads memory that was freed"
        return torch.empty(0, dtype=self._dtype).set_(storage, *self._layout)


class _Recording(RefuseToWait):
    copies_are_refused = True

    def __init__(self, of_others: set[int]) -> None:
        super().__init__()
        self._of_others = of_others
        self._calls: list[tuple[Callable[..., Any], Any, Any, list[Tensor | None]]] = []
        self.storages: dict[int, torch.UntypedStorage] = {}
        """The memory that the recorded operators have made."""
        self._known: set[int] = set()
        """Other memory that they have read."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = self._as_memory(args), self._as_memory(kwargs or {})
        out = super().__torch_dispatch__(function, types, args, kwargs)
        made = [self._if_made(t) for t in tree_flatten(out)[0] if isinstance(t, Tensor)]
        self._calls.append((function, *given, made))
        return out

    def _if_made(self, tensor: Tensor) -> Tensor | None:
        """The result of an operator. None: it lies in memory that was there before."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._known:
            return None
        self.storages.setdefault(storage._cdata, storage)
        return tensor

    def _as_memory(self, given: Any) -> Any:
        return tree_map_only(Tensor, self._one_as_memory, given)

    def _one_as_memory(self, tensor: Tensor) -> Any:
        if tensor.layout != torch.strided:
            return tensor  # weights in oneDNN's own layout, which no GPU has
        address = tensor.untyped_storage()._cdata
        if address in self.storages:
            return tensor
        assert address not in self._of_others, "a graph reads memory that another graph has made"
        self._known.add(address)
        return _Memory(tensor)

    @contextlib.contextmanager
    def watching_kernels(self) -> Iterator[None]:
        """Record the kernels that Triton's interpreter runs."""
        try:
            from triton.runtime.interpreter import InterpretedFunction
        except ImportError:
            yield
            return
        launch = InterpretedFunction.run

        def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
            self._calls.append((_launched, (kernel, *self._as_memory(args)), self._as_memory(kwargs), []))
            _launched(kernel, *args, **kwargs)

        def _launched(kernel: Any, *args: Any, **kwargs: Any) -> None:
            # The interpreter itself computes with torch, on the host.
            with _disable_current_modes(), mock.patch.multiple(Tensor, **_METHODS):
                launch(kernel, *args, **kwargs)

        with mock.patch.object(InterpretedFunction, "run", run):
            yield

    def spoil(self) -> None:
        for storage in self.storages.values():
            if storage.nbytes():
                torch.empty(0, dtype=torch.uint8).set_(storage).fill_(GARBAGE)

    def replay(self) -> None:
        for function, args, kwargs, outs in self._calls:
            given = tree_map_only(_Memory, _Memory.tensor, (args, kwargs))
            found = [t for t in tree_flatten(function(*given[0], **given[1]))[0] if isinstance(t, Tensor)]
            for out, new in zip(outs, found, strict=True):
                if out is not None and out.untyped_storage()._cdata != new.untyped_storage()._cdata:
                    assert out.shape == new.shape, f"the shape of {function} follows from numbers"
                    out.copy_(new)


_METHODS = {name: getattr(Tensor, name) for name in READING}
