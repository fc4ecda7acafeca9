import time

import pytest

from electra.preparation.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One ends. Two begins! Does three? Yes.", ["One ends.", "Two begins!", "Does three?", "Yes."]),
        ("A line\nanother line\n\n  a third  ", ["A line", "another line", "a third"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("(It rained.) It stopped.", ["(It rained.)", "It stopped."]),
        ("At dawn. “Why?” she asked. Nobody knew.", ["At dawn.", "“Why?” she asked.", "Nobody knew."]),
        ("J. R. R. Mole met the U.S. Army.", ["J. R. R. Mole met the U.S. Army."]),
        ("Am 3. Mai, nach Abs. 2 und No. 5. Danach nicht.", ["Am 3. Mai, nach Abs. 2 und No. 5. Danach nicht."]),
        ("It cost 3.50 in 1999. Now it costs more.", ["It cost 3.50 in 1999.", "Now it costs more."]),
        ("They were there. 5 men left.", ["They were there.", "5 men left."]),
        ("It rained, hailed etc. “and so on” here.", ["It rained, hailed etc. “and so on” here."]),
        ("Wait... what? Oh... Fine.", ["Wait... what?", "Oh...", "Fine."]),
        ("今天下雨。明天呢？「好！」她说。", ["今天下雨。", "明天呢？", "「好！」", "她说。"]),
        ("Это дом. Ёлка там. а тут нет", ["Это дом.", "Ёлка там. а тут нет"]),
        ("هذا بيت. ذلك كتاب.", ["هذا بيت.", "ذلك كتاب."]),
        (" \n \t\n", []),
    ],
)  # fmt: skip
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_no_character_but_white_space_is_lost() -> None:
    text = 'Rain. "Snow?" … Hail!\nSleet 4.\t2. Fog。雾！ . ? x . Y'
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def seconds(text: str) -> float:
    """Time of this thread on the processor; `re` does not count its steps."""
    began = time.thread_time()
    split_sentences(text)
    return time.thread_time() - began


@pytest.mark.parametrize("part", ["ab ", ".)", ".", "。", ". ", '. "', "a. b ", ".a", "?\"'", ".\u3000"])
def test_work_is_in_proportion_to_the_length(part: str) -> None:
    """16 times the length takes 16 times the time, or 256 times if the work grows with the square.

    Other processes can disturb the caches of a try, so one good try of three is enough. A bad one would have to
    make the least of five short texts four times as slow.
    """
    short, long = (part * (length // len(part)) for length in (2_000, 32_000))
    for _ in range(3):
        least = min(seconds(short) for _ in range(5))
        if (ratio := seconds(long) / least) < 4 * 16:
            return
    pytest.fail(f"16 times the length takes {ratio:.0f} times as long")
