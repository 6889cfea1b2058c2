"""The seam between an engine and the rest of Weir: values only, no torch, no HTTP.

An `Engine` takes a `GenerationRequest` and yields `Delta`s:

    async with aclosing(engine.generate(request)) as deltas:
        async for delta in deltas:
            print(delta.text)

All values that cross the seam are immutable. Closing the iterator cancels the engine's work on the request.
Sending a `Rewind` into it rewinds an output to an earlier token. Weir's own engines feed deltas by calls
(`engine.protocol.flow`).
"""

from engine.protocol.deltas import Channel as Channel
from engine.protocol.deltas import Delta as Delta
from engine.protocol.deltas import Deltas as Deltas
from engine.protocol.deltas import FinishReason as FinishReason
from engine.protocol.deltas import Rewind as Rewind
from engine.protocol.deltas import Token as Token
from engine.protocol.deltas import ToolCall as ToolCall
from engine.protocol.deltas import TopLogprob as TopLogprob
from engine.protocol.deltas import Usage as Usage
from engine.protocol.engine import Engine as Engine
from engine.protocol.engine import ModelInfo as ModelInfo
from engine.protocol.errors import CallerLimitError as CallerLimitError
from engine.protocol.errors import DeadEngineError as DeadEngineError
from engine.protocol.errors import EngineError as EngineError
from engine.protocol.errors import LogitsProcessorError as LogitsProcessorError
from engine.protocol.errors import QueueFullError as QueueFullError
from engine.protocol.errors import RequestError as RequestError
from engine.protocol.errors import ShutdownError as ShutdownError
from engine.protocol.errors import TextTooLongError as TextTooLongError
from engine.protocol.fields.sampling_params import SamplingParams as SamplingParams
from engine.protocol.probe_info import Calibration as Calibration
from engine.protocol.probe_info import ProbeInfo as ProbeInfo
from engine.protocol.probe_info import PromptScores as PromptScores
from engine.protocol.probe_info import Scores as Scores
from engine.protocol.probe_info import Smoothing as Smoothing
from engine.protocol.request import ROLES as ROLES
from engine.protocol.request import Endpoint as Endpoint
from engine.protocol.request import GenerationRequest as GenerationRequest
from engine.protocol.request import Prompt as Prompt
from engine.protocol.stats import EngineStats as EngineStats
from engine.protocol.tokenizer import TextTokens as TextTokens
from engine.protocol.tokenizer import Tokenizer as Tokenizer
