"""What counts as the arguments of a call."""

import pytest

from engine.protocol.call_arguments import is_whole_object


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ("{}", True),
        (' {"a": {}} ', True),
        (r'{"a": "\ud83d"}', True),
        (r'{"a": "\ude00 and on"}', True),
        ('{"a": NaN}', False),
        ('{"a": "\n"}', False),
        ('{"a": 1,}', False),
        ("[{}", False),
        ('"}', False),
        ("{" * 9000 + "}" * 9000, False),
    ],
)
def test_a_whole_object_is_json_that_clients_read(text: str, is_whole: bool) -> None:
    assert is_whole_object(text) is is_whole
