"""Functions that Triton's interpreter lacks."""

import importlib.util
import os
from typing import Any

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None:
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    multiply = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        """It multiplies the bits of bfloat16 numbers as if they were integers; float32 has room for them."""
        a, b = (self.create_fp_ext(t, tl.float32) if t.dtype.scalar == tl.bfloat16 else t for t in (a, b))
        return multiply(self, a, b, *rest)

    InterpreterBuilder.create_dot = create_dot
