"""Sentences as people's facts are: names, places, habits, numbers, and words with a long tail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

_SLOTS = {
    "name": "Anna Ben Carla Dmitri Elif Farid Greta Hiro Ines Jonas Kavita Lena Marek Nadia "
    "Omar Priya Quentin Rosa Sven Tomás Ulla Viktor Wanda Ximena Yusuf Zoë Aylin "
    "Bruno Chiara Dario Emeka Fatima Goran Helga Ivan Jasmin Karim Lucia Mina Noor "
    "Olga Paolo Ruth Samir Tova",
    "relation": "sister brother mother father cousin neighbour colleague flatmate partner "
    "teacher landlord trainer daughter son nephew accountant doctor manager "
    "grandmother apprentice",
    "city": "Lisbon Kraków Oslo Nairobi Toronto Bergen Valencia Ghent Kyoto Montréal Izmir "
    "Tallinn Bologna Leeds Porto Marseille Gdańsk Hamburg Cork Basel Trieste "
    "Utrecht Malmö Quito Hanoi Adelaide Austin Halifax Accra Tbilisi Ljubljana "
    "Aarhus",
    "food": "lentils oysters rye-bread miso peanuts goat-cheese mushrooms cardamom kimchi "
    "tofu strawberries gluten anchovies okra sourdough halloumi tahini beetroot "
    "mussels dumplings saffron chickpeas rhubarb walnuts celery papaya coriander "
    "buckwheat",
    "hobby": "bouldering linocut kayaking origami sourdough-baking cello chess birdwatching "
    "ceramics calligraphy woodturning beekeeping astronomy fencing embroidery "
    "sailing photography tango letterpress orienteering gardening weaving "
    "marathon-running improv drumming screenprinting",
    "project": "mural podcast zine greenhouse dashboard prototype exhibition documentary "
    "newsletter database website storyboard synthesizer bookshop quilt festival "
    "translation archive thesis videogame almanac choir workshop telescope "
    "residency catalogue",
    "tool": "Blender Photoshop spreadsheet notebook tablet typewriter loom kiln camera "
    "drone printer laptop sketchbook microscope soldering-iron projector metronome "
    "sewing-machine scanner plotter",
    "trait": "quiet bright patient colourful minimal humorous detailed formal playful "
    "concise warm precise gentle bold careful nostalgic sober experimental rustic "
    "geometric muted vivid",
    "topic": "typography allergies taxes insurance vaccination recycling budgets deadlines "
    "copyright lighting acoustics composition grammar nutrition navigation "
    "irrigation licensing ergonomics insulation perspective harmony fermentation "
    "accessibility logistics bookkeeping mentoring",
    "pet": "beagle tabby parrot tortoise rabbit greyhound ferret canary spaniel gecko hamster pony",
    "illness": "migraine asthma tendonitis hay-fever insomnia vertigo eczema backache",
    "month": "January February March April May June July August September October November "
    "December",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "part": "morning noon afternoon evening night weekend",
}

_CORE = (
    "{name} lives in {city} with a {pet} called {name2} and works on a {trait} {project}",
    "{name} is allergic to {food} and avoids {food2} since the trouble with {illness}",
    "{name} prefers {trait} drafts and asks for {trait2} comments on the {project}",
    "the {relation} of {name} moved from {city} to {city2} because of a {project} about {topic}",
    "{name} practises {hobby} every {day} {part} and wants to try {hobby2}",
    "{name} bought a {tool} in {city} for {number} euros to finish the {project}",
    "the deadline of the {project} is {day} the {small} of {month} according to {name}",
    "{name} teaches {topic} to {number} students in {city} and dislikes {trait} slides",
    "{name} saves every version of the {project} in folder {code} on the {tool}",
    "{name} and the {relation} plan to travel to {city} in {month} for {hobby}",
    "{name} takes medicine for {illness} at {small} in the {part} and skips {food}",
    "the {project} of {name} needs {number} pages about {topic} and a {trait} cover",
)
_MORE = (
    "and {name2} should be told before {month}",
    "but not when the {relation} visits from {city2}",
    "because {topic2} was neglected in {month}",
    "which {name2} calls the most {trait2} part of the {part}",
    "as agreed under reference {code}",
    "after a long talk about {topic2} and {food2}",
    "although the {tool} broke on the {small} of {month}",
    "and hopes that {number} people come to see it in {city2}",
)


def _long_tailed(words: Sequence[str]) -> tuple[Sequence[str], list[float]]:
    """The words and their cumulative weights: the nth is drawn as often as 1/n says."""
    return words, list(accumulate(1 / place for place in range(1, len(words) + 1)))


_DRAWN = {name: _long_tailed(words.split()) for name, words in _SLOTS.items()}


class _Slots(dict[str, str]):
    """Fills a template: each slot by its name, a trailing 2 being another draw of the same."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def __missing__(self, slot: str) -> str:
        if slot == "number":
            return str(self._chance.randint(11, 990))
        if slot == "small":
            return str(self._chance.randint(1, 28))
        if slot == "code":
            return f"{self._chance.choice('ABCDEFGH')}{self._chance.randint(100, 9999)}"
        words, weights = _DRAWN[slot.removesuffix("2")]
        return self._chance.choices(words, cum_weights=weights)[0].replace("-", " ")


def sentence(seed: int) -> str:
    """The sentence of this number: always the same, of 12 to 30 words."""
    chance = random.Random(seed)
    slots = _Slots(chance)
    text = chance.choice(_CORE).format_map(slots)
    parts = chance.sample(_MORE, len(_MORE))
    while len(text.split()) < chance.randint(12, 20):
        text += " " + parts.pop().format_map(slots)
    words = text.split()[:28]
    return f"{words[0][0].upper()}{' '.join(words)[1:]}, item {seed}."


def question(text: str, seed: int) -> str:
    """What somebody might type who looks for ``text``: three to six of its words."""
    chance = random.Random(seed)
    words = [word.strip(",.") for word in text.split()[:-2]]
    telling = [word for word in dict.fromkeys(words) if len(word) > 4] or words
    return " ".join(chance.sample(telling, min(len(telling), chance.randint(3, 6))))
