"""Reports of made-up documents: plain data, for tests of the page."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from zlib import crc32

from simsql.fingerprint import simhash, similarity
from simsql.hamming import hamming_distance
from simsql.report import Closeness, ReportedMember, RunReport

# Sentences from which documents are put together.
_HARBOUR = """
The harbour office opens at six, an hour before the first ferry leaves for the islands.
Tickets are sold on board in summer, and at the white kiosk beside the fish market in winter.
Dogs travel free of charge, but they have to stay on the lower deck during the crossing.
When the wind is stronger than force eight, the captain may turn back without warning.
Bicycles are tied to the railing with the yellow ropes that hang near the gangway.
A crossing takes forty minutes, and a little longer when the tide runs against the boat.
The café on the upper deck serves soup, dark bread and the strongest coffee on the coast.
Luggage that is left behind is kept for three weeks in the shed behind the lighthouse.
Children under ten need no ticket if they can name the three islands from north to south.
The last boat back waits for the evening bus, even if the bus is late again.
Seals rest on the sandbank to the left, so bring field glasses if you have a pair.
In fog the ship sounds its horn every two minutes, and the bell on the pier answers.
Letters for the islands go into the red box, which is emptied just before departure.
Please keep the stairs free, because the crew has to reach the anchor at any moment.
Maps of the footpaths can be had from the machine next to the timetable for one coin.
Fishermen sell what they have caught straight from their boats on Friday mornings.
""".strip().split("\n")
_WORDS = {
    "summer": "spring",
    "white": "green",
    "soup": "stew",
    "forty": "fifty",
    "red": "blue",
    "Friday": "Monday",
}
_TITLES = ("ferry notes", "visitor guide", "island letter", "timetable", "deck rules", "harbour news")

TEXTS = {"a.txt": "One two three four five six seven.", "b.txt": "One two 3 four five six seven."}
_LIBRARY_ARABIC = (
    "تفتح المكتبة أبوابها في {} صباحا، ويمكن {} قراءة الكتب القديمة في القاعة الكبيرة."
    " لا يسمح بإخراج المخطوطات من المبنى، لكن النسخ الرقمية متاحة للجميع دون مقابل."
    " وفي المساء يجتمع القراء حول {} ليتحدثوا عن القصائد التي أحبوها."
    " توجد الخرائط في الطابق الثاني بجانب النافذة، ومن يبحث عن رسالة قديمة يسأل أمين الأرشيف."
    " يرجى ترك الحقائب عند المدخل وعدم التحدث بصوت عال بين الرفوف."
)
ARABIC = {
    "ar/1.txt": _LIBRARY_ARABIC.format("الثامنة", "للزوار", "الشاي"),
    "ar/2.txt": _LIBRARY_ARABIC.format("التاسعة", "للطلاب", "القهوة"),
}
_LIBRARY_CHINESE = (
    "图书馆每天早上{}点开门，{}可以在大厅里阅读古籍。手稿不能带出大楼，但是电子版向所有人免费开放。"
    "地图放在二楼的窗户旁边，想找旧信的人可以问档案员。请把背包留在入口处，在书架之间说话要轻声。"
    "晚上大家围着茶桌谈论自己喜欢的诗歌，周末还有孩子们的故事会。"
)
CHINESE = {
    "zh/1.txt": _LIBRARY_CHINESE.format("八", "读者"),
    "zh/2.txt": _LIBRARY_CHINESE.format("九", "学生"),
}

Compare = Callable[[str, str], Closeness]


def measure(a: str, b: str) -> Closeness:
    """Return how close two texts are, as a run measures it."""
    return Closeness(hamming_distance(simhash(a) or 0, simhash(b) or 0), similarity(a, b))


@dataclass
class Sample:
    """Clusters of texts by id. The first text of each is the representative, and the one that is kept."""

    clusters: Sequence[Mapping[str, str]]
    compare: Compare = measure
    drop: float = 0.7
    alone: int = 0
    """Documents that are in no cluster."""
    texts: list[str | None] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    """Documents whose text was read."""

    def report(self, **options: Any) -> RunReport:
        shown = {"date": "2026-11-23 16:20 UTC", "recipe": "words12-log-1", "distance": "10"}
        shown |= {"similarity": "0.6", "drop similarity": str(self.drop)}
        command = "simsql dedup texts --distance 10 --report report.html"
        given = {"options": shown, "command": command, **options}
        documents = sum(map(len, self.clusters)) + self.alone
        return RunReport(
            documents, clusters=self._members(), read_text=self._read, drop_similarity=self.drop, **given
        )

    def _read(self, document: int) -> str | None:
        self.reads.append(document)
        return self.texts[document]

    def _similarity(self, *documents: int) -> float | None:
        return self.compare(*(self.texts[document] or "" for document in documents)).similarity

    def _kind(self, *documents: int) -> str:
        texts = [self.texts[document] or "" for document in documents]
        masked = {re.sub(r"\d+", "0", text) for text in texts}
        return "identical" if len({*texts}) == 1 else "numbers" if len(masked) == 1 else "similar"

    def _members(self) -> Iterator[list[ReportedMember]]:
        for cluster in self.clusters:
            first = len(self.texts)
            self.texts.extend(cluster.values())
            members = []
            for document, (name, text) in enumerate(cluster.items(), first):
                itself = Closeness(0, 1.0)
                close = itself if document == first else self.compare(cluster[next(iter(cluster))], text)
                dropped = document > first and (close.similarity or 0) >= self.drop
                decision = "dropped" if dropped else "kept" if document > first else "representative"
                kept, to_kept = (first, close) if dropped else (document, itself)
                kind = self._kind(first, document) if dropped else None
                drops = [other for other in members if other.decision == "dropped"]
                similarities = [self._similarity(other.document, document) for other in drops] if dropped else []
                found = ReportedMember(document, name, name, decision, kept, to_kept, close, name)
                members.append(replace(found, kind=kind, similarities=similarities))
            yield members


@cache
def harbour_clusters(count: int = 60) -> list[dict[str, str]]:
    """Clusters of English documents, and one in Arabic and one in Chinese, as the defaults of a run find them."""
    chance = random.Random(3)
    clusters: list[dict[str, str]] = []
    while len(clusters) < count:
        sentences = chance.sample(_HARBOUR, 8)
        texts = [" ".join(sentences)]
        for _ in range(chance.choice((1, 1, 1, 1, 2, 2, 3, 6))):
            text = texts[0]
            for old, new in chance.sample(list(_WORDS.items()), chance.choice((0, 1, 3, 5))):
                text = text.replace(f" {old}", f" {new}")
            if chance.random() < 0.4:
                text = text.replace(chance.choice(sentences), chance.choice(_HARBOUR))
            close = measure(texts[0], text)
            if close.distance <= 10 and (close.similarity or 0) >= 0.6:
                texts.append(text)
        if len(texts) > 1:
            number = len(clusters) + 1
            clusters.append(
                {f"{chance.choice(_TITLES)} {number}{'abcdefg'[n]}.txt": t for n, t in enumerate(texts)}
            )
    return [*clusters[:2], ARABIC, CHINESE, *clusters[2:]]


def plain_clusters(count: int, words: int = 100, seed: int = 1) -> Sample:
    """Many clusters of two to five texts that differ in a few words. What is said of them is not measured."""
    chance = random.Random(seed)
    vocabulary = ["".join(chance.choices("bdfgklmnprst", k=3)) + chance.choice("aeiou") for _ in range(4000)]
    clusters = []
    for number in range(1, count + 1):
        text = chance.choices(vocabulary, k=words)
        size = chance.choice((2, 2, 2, 3, 5))
        clusters.append(
            {f"articles/{number}-{copy}.txt": " ".join([*text[copy:], f"copy{copy}"]) for copy in range(size)}
        )
    return Sample(
        clusters, compare=lambda a, b: Closeness(crc32(b.encode()) % 11, 1 - crc32(b.encode()) % 13 / 20)
    )
