"""Keys after a name that ends in "key": a random value is one, and what else has such a name is none."""

import pytest

from benchmarks.detection import cut_by
from hooks.builtin.secrets import Secrets
from tests.hooks.builtin.streams import said

ALL = Secrets()
V = "70x6tezndca5dqlm5tnn7s03bm6c27jt"

FOUND = f"""
currencyscoop_key: "{V}"
export FOO_KEY={V}
https://x.example/v?key={V}&page=2
Your API2CART key is 2afddb81c04e19b7a6d3f5508e9c7721.
Using Key={V}
"fooKey": "{V}"
{{\\"foo_key\\": \\"{V}\\"}}
foo-key={V}
--acme-key {V} --verbose
ENV ACME_KEY {V}
FOOKEY="{V}"
FOO_KEY_2={V}
X-Foo-Key: {V}
set FOO_KEY "{V}"
#define FOO_KEY "{V}"
FOO_KEY\t{V}
Your key: **{V}**
https://x.example/v?appkey={V}
{{"foo_key": {{"value": "{V}"}}}}
<key>FooKey</key><string>{V}</string>
<key>FooToken</key><string>{V}</string>
The key for acme is {V}, I think.
| FOO_KEY | {V} |
os.environ["FOO_KEY"] = "{V}"
<FooKey>{V}</FooKey>
<add key="ApiKey" value="{V}"/>
<add key="Maps.Key" value="{V}" />
<add value="{V}" key="ApiKey"/>
<param name="acmeKey" type="string" value="{V}"/>
<string name="foo_key">{V}</string>
<setting name="FooKey" serializeAs="String"><value>{V}</value></setting>
<property><name>fs.acme.secret</name><value>{V}</value></property>
<name>fs.acme.key</name>\\n  <value>{V}</value>
"""
PASSES = f"""
primary_key: user_id
sort_key=created_at
sort_key=1732182645123456789
foreign key (user_id)
primaryKey: {V}
cache_key = f"user:{{uid}}:profile"
cache_key: "2afddb81c04e19b7a6d3f5508e9c7721"
key: value
key 2afddb81*
key: {V}*.log
<key>CacheKey</key><string>{V}</string>
key: my-app-config-production-v2
key = value_of_something_long
key: linux-node-modules-3f2a9c1
key: ${{{{ runner.os }}}}-build-${{{{ hashFiles("x") }}}}
key=lambda row: row.name
key="Ctrl+Shift+P"
key = get_value_for_key_2("abc")
KEY = settings.SECRET_FIELD_NAME_12
public_key = "9Dmzk4p4WGeLKs1Pu8QvKUpRLgFLfRYD9AJKjbKTXit"
s3 key: uploads/2024/11/21/photo-4411.jpg
idempotency_key: 550e8400-e29b-41d4-a716-446655440000
key=550e8400-e29b-41d4-a716-446655440000
gpg key 4AEE18F83AFDEB23
Press any key: Enter1234567890123
monkey={V}
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
partition_key=2024-11-21T00:00:00
<add key="{V}" value="on"/>
site key: 6LeIxAcTAAAAAJcZVRqyHh71UMIEGNQ_MXjiZKhI
key = "abcdefghijklmnop0123"
key: sha512-oqVuAfXRKap7fdgcCY5uykM6R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC
ssh key: AAAAB3NzaC1yc2EAAAADAQABAAABAQC7
key: 0x7fffc0de1234abcd5678
private_key: Ed25519PrivateKey
fake_key = "{V}"
"""


def lines(texts: str) -> list[str]:
    return [line.replace("\\n", "\n") if "<name>" in line else line for line in texts.strip().split("\n")]


@pytest.mark.parametrize("text", lines(FOUND))
def test_a_random_value_after_such_a_name_is_taken_out_alone(text: str) -> None:
    value = V if V in text else "2afddb81c04e19b7a6d3f5508e9c7721"
    for pieces in ([text], list(text)):
        assert said(ALL, pieces) == text.replace(value, "[PASSWORD]")


@pytest.mark.parametrize("text", lines(PASSES))
def test_what_else_has_such_a_name_passes(text: str) -> None:
    assert cut_by(ALL.detector, text) == []
