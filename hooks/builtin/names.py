"""Names of people, places and organisations: `--hook names`.

A small model that ships finds them in eight languages as they stream: it holds a name until the word after
it. A pipeline of spaCy may take its place.
"""

from collections.abc import Sequence
from typing import Annotated, Unpack

from pydantic import Field

from hooks import checked
from hooks.builtin.name_model.detector import RunDetector, spacy_detector
from hooks.builtin.name_model.model import Kind, shipped
from hooks.detect.argument_types import Count, Share
from hooks.detect.detector import Detector
from hooks.detect.rules import Allowed
from hooks.detect.span_guard import SpanGuard, SpanOptions

THRESHOLD = 0.75
"""The default of `threshold`, chosen on drawn texts that no figure is measured on."""


class Names(SpanGuard):
    """Finds names of people, places and organisations, by a small model that ships or by spaCy."""

    @checked
    def __init__(
        self,
        *,
        entities: Annotated[Sequence[Kind], Field(min_length=1)] = ("PERSON",),
        threshold: Share = THRESHOLD,
        allow: Sequence[str] = (),
        pipeline: str | None = None,
        max_sentence: Count = 400,
        **options: Unpack[SpanOptions],
    ) -> None:
        """`entities`: the kinds to find. `threshold`: the least probability of a name that counts, for the
        model that ships. `allow`: the texts that are no finds, and patterns between slashes as `/^Ada/`.

        `pipeline`: a pipeline of spaCy that finds the names, as `en_core_web_sm`; it judges whole sentences
        of `max_sentence` characters at most. None: the model that ships.

        Raises `ValueError` for a pipeline that is not installed.
        """
        allowed = Allowed(allow)
        detector: Detector
        if pipeline is None:
            detector = RunDetector(shipped(), entities, threshold, allowed)
        else:
            detector = spacy_detector(pipeline, entities, allowed, max_sentence)
        options.setdefault("at_cut", "release")
        super().__init__(detector, **options)
        self.thread_safe = pipeline is None
