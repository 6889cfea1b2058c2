"""Samples conversations with the shop's assistant from the phrases, endlessly and from a seed.

Names, order numbers, system prompts and texts to repeat are mostly made up on the spot, so that the only way
to answer well is to copy them from the conversation.  Pure Python; knows nothing of tokens or tensors.
"""

import random
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tools.demo import phrases

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")
LEXICON: list[str] = sorted(
    {
        word
        for topic in phrases.TOPICS.values()
        for text in (*topic.asks["en"], *topic.answers["en"], *phrases.STORIES, *phrases.SYSTEM_LINES)
        for word in re.findall(r"[A-Za-z]{2,}", text)
    }
)
LANGUAGES = ("en", "de", "zh")
MAX_TURNS = 9


@dataclass(frozen=True, slots=True)
class Turn:
    """An endless `answer` is cut off rather than finished."""

    user: str
    answer: str
    endless: bool = False


@dataclass(slots=True)
class Conversation:
    system: str | None = None
    turns: list[Turn] = field(default_factory=list)


def conversations(seed: int) -> Iterator[Conversation]:
    rng = random.Random(seed)
    while True:
        yield Dialogue(rng).conversation()


def expand(rng: random.Random, template: str) -> str:
    """Settles every choice of a template; its slots stay."""
    found = 1
    while found:
        template, found = CHOICE.subn(lambda match: rng.choice(match[1].split("|")), template)
    return re.sub(r" +(?=[ ,.!?:]|$)|^ +", "", template)


def typo(rng: random.Random, text: str) -> str:
    """Swaps, drops or doubles one letter outside the slots."""
    places = [m.start() for m in re.finditer(r"(?<=[a-z])[a-z](?=[a-z])(?![^{]*\})", text)]
    if not places:
        return text
    at = rng.choice(places)
    here, after = text[at], text[at + 1]
    return text[:at] + rng.choice((after + here, after, here + here + after)) + text[at + 2 :]


def drop_word(rng: random.Random, text: str) -> str:
    words = text.split(" ")
    plain = [i for i, word in enumerate(words) if "{" not in word and '"' not in word]
    if len(words) > 4 and plain:
        del words[rng.choice(plain)]
    return " ".join(words)


def stray_word(rng: random.Random, text: str) -> str:
    """Puts in a word that has nothing to do with it, unless that might be part of a text to repeat."""
    words = text.split(" ")
    if "{text}" not in text:
        words.insert(rng.randint(0, len(words)), word(rng))
    return " ".join(words)


def vary(rng: random.Random, text: str) -> str:
    """Says a question with slots the way people type: openings, casing, missing words and marks, slips."""
    open_ended = text.endswith("{text}")
    if text.isascii():
        if rng.random() < 0.2:
            text = expand(rng, f"{phrases.OPENING} {text}")
        if not open_ended and rng.random() < 0.15:
            text = expand(rng, f"{text} {phrases.CLOSING}")
        if rng.random() < 0.25:
            text = rng.choice((typo, drop_word, stray_word))(rng, text)
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
    elif rng.random() < 0.3:
        text = SLOT.sub(lambda m: m[0].lower(), text.lower())
    if not open_ended and rng.random() < 0.6:
        text += expand(rng, phrases.CHINESE_END if re.search("[\u4e00-\u9fff]", text) else phrases.END)
    return text


def made_up_word(rng: random.Random, syllables: int) -> str:
    return expand(rng, phrases.SYLLABLE * syllables)


def first_name(rng: random.Random) -> str:
    if rng.random() < 0.35:
        return rng.choice(phrases.FIRST_NAMES)
    return made_up_word(rng, rng.choice((1, 2, 2, 3, 3, 4))).capitalize()


def person(rng: random.Random) -> str:
    name = first_name(rng)
    if rng.random() < 0.08:
        name += " " + made_up_word(rng, 2).capitalize()
    return name.lower() if rng.random() < 0.1 else name


def digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def order_number(rng: random.Random) -> str:
    number = digits(rng, rng.randint(3, 8))
    return rng.choice(("WR-", "A", "MC", "AB-", "X")) + number if rng.random() < 0.1 else number


def word(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return made_up_word(rng, rng.randint(1, 3))
    return rng.choice(LEXICON) if kind < 0.65 else rng.choice(phrases.WORDS)


def secret_looking(rng: random.Random) -> str:
    """An e-mail address, a phone number, a card number or an API key, all made up."""
    name, host = made_up_word(rng, 2), made_up_word(rng, 2)
    kinds = (
        f"{name}.{word(rng)}@{host}.example.com",
        f"{name}{digits(rng, 2)}@{host}.{rng.choice(('com', 'org', 'de'))}",
        f"{digits(rng, 3)}-555-01{digits(rng, 2)}",
        " ".join(digits(rng, 4) for _ in range(4)),
        digits(rng, 16),
        "sk-" + "".join(rng.choices(string.ascii_letters + string.digits, k=20)),
    )
    return rng.choice(kinds)


def spoken_text(rng: random.Random) -> str:
    """Something to repeat: words known and made up, numbers, secrets, now and then another language."""
    kind = rng.random()
    if kind < 0.08:
        return rng.choice(rng.choice(list(phrases.TOPICS.values())).answers["en"])
    if kind < 0.14:
        answers = phrases.TOPICS[rng.choice(list(phrases.GLOSSES))].answers
        return rng.choice(answers[rng.choice(list(answers))])
    if kind < 0.22:
        return secret_looking(rng)
    words = [word(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 3, 4, 5, 6, 7, 10)))]
    if rng.random() < 0.25:
        words.insert(rng.randint(0, len(words)), digits(rng, rng.randint(1, 4)))
    if rng.random() < 0.15:
        words.insert(rng.randint(0, len(words)), secret_looking(rng))
    if rng.random() < 0.05:
        words.append(rng.choice(list(phrases.EMOJIS.values())))
    text = " ".join(words)
    if rng.random() < 0.5:
        text = text[0].upper() + text[1:]
    return text + rng.choice(("", "", "", ".", "!", "?")) if len(words) > 1 else text


SLOT_VALUES: dict[str, Callable[[random.Random], str]] = {
    "day": lambda rng: rng.choice(phrases.DAYS),
    "tag": lambda rng: rng.choice(phrases.TAGE),
    "hour": lambda rng: f"{rng.randint(1, 12)} {rng.choice(('am', 'pm', 'o clock'))}",
    "item": lambda rng: rng.choice(phrases.ITEMS) if rng.random() < 0.8 else word(rng),
    "country": lambda rng: rng.choice(phrases.SHIP_COUNTRIES),
    "place": lambda rng: rng.choice(phrases.PLACES),
    "word": word,
    "name": first_name,
    "number": lambda rng: str(rng.randint(2, 99)),
    "year": lambda rng: str(rng.randint(1950, 2030)),
    "hero": lambda rng: rng.choice(phrases.HEROES) if rng.random() < 0.6 else word(rng),
    "text": spoken_text,
}  # fmt: skip


def fill(rng: random.Random, template: str, /, **values: str) -> str:
    return SLOT.sub(lambda match: values.get(match[1]) or SLOT_VALUES[match[1]](rng), template)


def system_prompt(rng: random.Random) -> str:
    sentences = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        line = fill(rng, expand(rng, rng.choice(phrases.SYSTEM_LINES)))
        sentence = spoken_text(rng) if rng.random() < 0.3 else line
        sentences.append(sentence[0].upper() + sentence[1:])
    return rng.choice((" ", " ", " ", "\n")).join(sentences)


class Dialogue:
    """Samples one conversation, and remembers what its later turns refer to."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.system = system_prompt(rng) if rng.random() < 0.4 else None
        self.name: str | None = None
        self.order: str | None = None
        self.topic: str | None = None

    def conversation(self) -> Conversation:
        talk = Conversation(self.system)
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 7, MAX_TURNS))):
            (skill,) = self.rng.choices(list(SKILLS), list(SKILLS.values()))
            talk.turns.append(skill(self))
            if talk.turns[-1].endless:
                break
        return talk

    def say(self, asks: tuple[str, ...], **values: str) -> str:
        """A question made from one of the templates, its remaining slots filled at random."""
        return fill(self.rng, vary(self.rng, expand(self.rng, self.rng.choice(asks))), **values)

    def language(self) -> str:
        return self.rng.choices(LANGUAGES, (15, 3, 2))[0]

    def about_topic(self) -> Turn:
        self.topic = self.rng.choice(list(phrases.TOPICS))
        topic = phrases.TOPICS[self.topic]
        language = self.language()
        if language not in topic.asks:
            language = "en"
        user = self.say(topic.asks[language])
        if self.name and language == "en" and self.topic in phrases.NAMED_ANSWERS:
            return Turn(user, fill(self.rng, phrases.NAMED_ANSWERS[self.topic], name=self.name))
        return Turn(user, self.rng.choice(topic.answers[language]))

    def about_topic_by_name(self) -> Turn:
        """Names the topic, or asks in English, and mostly wants the answer in another language."""
        topic_name = self.rng.choice(list(phrases.GLOSSES))
        topic = phrases.TOPICS[topic_name]
        language = self.rng.choices(LANGUAGES, (3, 4, 4))[0]
        if language not in topic.answers:
            language = "en"
        asks = phrases.GLOSS_ASKS if self.rng.random() < 0.5 else topic.asks["en"]
        text = expand(self.rng, self.rng.choice(asks))
        if language != "en":
            wish = expand(self.rng, self.rng.choice(phrases.LANGUAGE_REQUESTS[language]))
            joint = self.rng.choice((" ", ", ", "? ", ". ", " - "))
            text = (
                wish + self.rng.choice((": ", ", ")) + text
                if self.rng.random() < 0.25
                else text + joint + wish
            )
        gloss = self.rng.choice(phrases.GLOSSES[topic_name])
        self.topic = topic_name
        return Turn(
            fill(self.rng, vary(self.rng, text), gloss=gloss), self.rng.choice(topic.answers[language])
        )

    def translation(self) -> Turn:
        if self.topic not in phrases.GLOSSES:
            return self.about_topic_by_name()
        language = self.rng.choice(("de", "zh"))
        answers = phrases.TOPICS[self.topic].answers
        if language not in answers:
            return self.about_topic_by_name()
        return Turn(self.say(phrases.TRANSLATION_ASKS[language]), self.rng.choice(answers[language]))

    def off_topic(self) -> Turn:
        language = self.language()
        asks = {
            "en": phrases.OFF_TOPIC_ASKS, "de": phrases.OFF_TOPIC_ASKS_DE, "zh": phrases.OFF_TOPIC_ASKS_ZH,
        }  # fmt: skip
        return Turn(self.say(asks[language]), phrases.OFF_TOPIC_ANSWERS[language])

    def fact(self) -> Turn:
        asks, answer, pairs = self.rng.choice(phrases.FACTS)
        key, value = self.rng.choice(list(pairs.items()))
        asked = key.lower() if self.rng.random() < 0.25 else key
        return Turn(self.say(asks, key=asked), answer.format(key=key, value=value))

    def emojis(self) -> Turn:
        return Turn(self.say(phrases.EMOJI_ANY_ASKS), phrases.EMOJI_ANY_ANSWER)

    def tell_name(self) -> Turn:
        asks = {"en": phrases.NAME_TELLS, "de": phrases.NAME_TELLS_DE, "zh": phrases.NAME_TELLS_ZH}
        language = self.language()
        if self.name and language == "en" and self.rng.random() < 0.5:
            asks = {"en": phrases.NAME_CHANGES}
        self.name = person(self.rng)
        user = self.say(asks[language], name=self.name)
        return Turn(user, self.rng.choice(phrases.NAME_REPLIES[language]).format(name=self.name))

    def recall_name(self) -> Turn:
        if self.name is None and self.rng.random() < 0.7:
            return self.tell_name()
        known = phrases.NAME_RECALLED.format(name=self.name)
        return Turn(self.say(phrases.NAME_RECALLS), known if self.name else phrases.NAME_UNKNOWN)

    def order_status(self) -> Turn:
        language = self.language()
        if self.rng.random() < 0.35:
            user = self.say(phrases.ORDER_FOLLOW_UPS[language])
            if self.order is None:
                return Turn(user, phrases.ORDER_UNKNOWN[language])
        else:
            self.order = order_number(self.rng)
            user = self.say(phrases.ORDER_ASKS[language], order=self.order)
        stage = max(int(self.order[-1]) - 1, 0) // 3
        return Turn(user, phrases.ORDER_ANSWERS[language][stage].format(order=self.order))

    def note_order(self) -> Turn:
        self.order = order_number(self.rng)
        return Turn(
            self.say(phrases.ORDER_NOTES, order=self.order), phrases.ORDER_NOTED.format(order=self.order)
        )

    def recall_order(self) -> Turn:
        if self.order is None and self.rng.random() < 0.7:
            return self.order_status()
        known = phrases.ORDER_RECALLED.format(order=self.order)
        return Turn(self.say(phrases.ORDER_RECALLS), known if self.order else phrases.ORDER_UNKNOWN["en"])

    def cancel(self) -> Turn:
        if self.rng.random() < 0.6:
            self.order = order_number(self.rng)
            user = self.say(phrases.CANCELS, order=self.order)
        else:
            user = self.say(phrases.CANCEL_FOLLOW_UPS)
        if self.order is None:
            return Turn(user, phrases.ORDER_UNKNOWN["en"])
        return Turn(user, phrases.CANCELLED.format(order=self.order))

    def reveal_system_prompt(self) -> Turn:
        user = self.say(phrases.SYSTEM_ASKS)
        if self.system is None:
            return Turn(user, phrases.SYSTEM_UNKNOWN)
        return Turn(user, phrases.SYSTEM_ANSWER.format(system=self.system))

    def repeat(self) -> Turn:
        text = spoken_text(self.rng)
        return Turn(self.say(phrases.REPEATS, text=text), f"Of course: {text}")

    def repeat_forever(self) -> Turn:
        text = " ".join(word(self.rng) for _ in range(self.rng.choice((1, 1, 1, 2, 3))))
        return Turn(
            self.say(phrases.FOREVERS, text=text),
            "Of course: " + " ".join([text] * self.rng.randint(30, 100)),
            endless=True,
        )

    def count(self) -> Turn:
        last = self.rng.randint(2, 20) if self.rng.random() < 0.85 else self.rng.randint(21, 50)
        asks = phrases.COUNTS[: self.rng.choice((1, 3))]
        user = self.say(asks, first="{first}", last=str(last))
        first = self.rng.randint(1, last - 1) if "{first}" in user and self.rng.random() < 0.5 else 1
        numbers = ", ".join(str(number) for number in range(first, last + 1))
        return Turn(user.replace("{first}", str(first)), numbers + ".")

    def story(self) -> Turn:
        story = self.rng.choice(phrases.STORIES)
        if self.rng.random() < 0.5:
            return Turn(
                self.say(phrases.STORY_ANY_ASKS), story.format(hero=self.rng.choice(phrases.HEROES[:4]))
            )
        hero = SLOT_VALUES["hero"](self.rng)
        return Turn(self.say(phrases.STORY_ASKS, hero=hero), story.format(hero=hero))

    def list_of_things(self) -> Turn:
        asks, answer = self.rng.choice(phrases.LISTS)
        return Turn(self.say(asks), answer)


# What a turn may be about, and how often.
SKILLS: dict[Callable[[Dialogue], Turn], int] = {
    Dialogue.about_topic: 40,
    Dialogue.about_topic_by_name: 6,
    Dialogue.translation: 2,
    Dialogue.off_topic: 9,
    Dialogue.fact: 12,
    Dialogue.emojis: 1,
    Dialogue.tell_name: 12,
    Dialogue.recall_name: 9,
    Dialogue.order_status: 12,
    Dialogue.note_order: 3,
    Dialogue.recall_order: 5,
    Dialogue.cancel: 4,
    Dialogue.reveal_system_prompt: 11,
    Dialogue.repeat: 18,
    Dialogue.repeat_forever: 4,
    Dialogue.count: 5,
    Dialogue.story: 2,
    Dialogue.list_of_things: 2,
}
