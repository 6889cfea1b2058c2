"""Real tokenizers: texts in many scripts come back whole, and streamed text is the whole text."""

import random
from pathlib import Path

import pytest

from engine.protocol import Token
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import LocalTokenizer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPTS = {
    "Latin": "aàáâäæbcçdðeéèêfghiíjklmnñoóöøœpqrsßtþuúüvwxyýzž",
    "Greek": "αάβγδεέζηήθιίκλμνξοόπρσςτυύφχψωώ",
    "Cyrillic": "абвгґдеёєжзиійїклмнопрстуўфхцчшщъыьэюя",
    "Armenian": "աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ",
    "Hebrew": "אבגדהוזחטיכךלמםנןסעפףצץקרשתְִֵֶַָֹּ",
    "Arabic": "ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهويًٌَُِّْپچژگ",
    "Devanagari": "अआइईउऊएकखगघचजटडतदनपबमयरलवशसहािीुूेैोौंः्",
    "Bengali": "অআইঈউএকখগঘচজটডতদনপবমযরলশসহািীুূেৈোৌং্",
    "Gujarati": "અઆઇઈઉએકખગઘચજટડતદનપબમયરલવશસહાિીુૂેૈોૌં્",
    "Tamil": "அஆஇஈஉஊஎஏகஙசஞடணதநபமயரலவழளறனாிீுூெேைொோ்",
    "Telugu": "అఆఇఈఉఊఎకఖగఘచజటడతదనపబమయరలవశసహాిీుూెేైొో్",
    "Thai": "กขคงจชซญดตถทธนบปผฝพฟมยรลวศสหอฮะาิีึืุูเแโไ่้",
    "Khmer": "កខគឃងចឆជញដតថទធនបផពមយរលវសហអាិីុូេែោំះ្",
    "Tibetan": "ཀཁགངཅཆཇཉཏཐདནཔཕབམཙཚཛཝཞཟཡརལཤསཧིེོུ་",
    "Georgian": "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
    "Ethiopic": "ሀሁሂሃለሉሊላመሙሚማረሩሪራሰሱሲሳቀቁቂቃበቡቢባተቱቲታነኑኒና",
    "Hangul": "가각간나다라마바사아자차카타파하거너더러머버서어저고노도로모보소오조한글",
    "Kana": "あいうえおかがきぎくけこさしすせそたちつてとなにぬねのはばぱアイウエオカキクケコー",
    "Han": "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会龘𠮷",
    "Emoji": "😀🎉👍🏽👩\u200d💻🇫🇷❤\ufe0f🧑🏿\u200d🚀1\ufe0f\u20e3☺🫶🏴",
}
NUMBER = 100
"""Texts of each script."""
BETWEEN = (" ", " ", " ", "  ", ", ", ".\n", "\n\n", "\t", "-", " 2026 ", "")


def drawn(letters: str, rng: random.Random) -> str:
    words = ("".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(rng.randint(1, 12)))
    return "".join(word + rng.choice(BETWEEN) for word in words)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_texts_of_twenty_scripts_come_back_streamed_and_whole(
    name: str, request: pytest.FixtureRequest
) -> None:
    model: Path = request.getfixturevalue(name)
    tokenizer, rng = LocalTokenizer.load(str(model)), random.Random(5)
    assert len(SCRIPTS) == 20
    for script, letters in SCRIPTS.items():
        for text in (drawn(letters, rng) for _ in range(NUMBER)):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.decode(ids) == text, script
            stream = Detokenizer(tokenizer.fast, whole_texts=tokenizer.whole_texts)
            pieces = [token.text for i in ids for token in stream.decode(Token(i, ""))]
            pieces += [token.text for token in stream.flush()]
            assert "".join(pieces) == text, script
