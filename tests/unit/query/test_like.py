"""`like`: three implementations say the same, and none takes its time."""

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.query.like import ANY, Pattern, compiled
from milepost.query.mask.text import matcher

CHARACTERS = st.sampled_from(["a", "b", "%", "_", "é", "😀", ".", "\\", "\n", "^", "$", "(", "[", "\0"])
TEXTS = st.text(CHARACTERS, max_size=12)


def naive(pattern: Pattern, text: str) -> bool:
    """All ways to match, by dynamic programming over both lengths."""
    size = len(pattern.characters)
    reached = [[False] * (len(text) + 1) for _ in range(size + 1)]
    for k in range(size + 1):
        for i in range(len(text) + 1):
            here = k == i == 0
            if k and i and pattern.characters[k - 1] in (ANY, text[i - 1]):
                here |= reached[k - 1][i - 1]
            if i and k in pattern.runs:
                here |= reached[k][i - 1]
            reached[k][i] = here
    return reached[size][len(text)]


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=6))
def test_matchers_agree(pattern: str, texts: list[str]) -> None:
    like = compiled(pattern, None)
    expected = [naive(like, text) for text in texts]
    assert [like.matches(text) for text in texts] == expected
    assert matcher(like)(pa.array(texts)).tolist() == expected


@given(TEXTS, TEXTS, TEXTS)
def test_pieces_of_a_text_are_found_in_it(start: str, middle: str, end: str) -> None:
    def literally(text: str) -> str:
        return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

    text = start + middle + end
    for pattern in (f"{start}%{end}", f"%{middle}%", f"{start}%", f"%{end}", f"%{middle}%{end}", start + middle + end):
        parts = [literally(part) for part in pattern.split("%")] if "%" not in text else None
        like = compiled("%".join(parts), "\\") if parts is not None else compiled(literally(text), "\\")
        assert like.matches(text)
        assert matcher(like)(pa.array([text])).tolist() == [True]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%%", "abc", True),
        ("_", "😀", True),
        ("__", "😀", False),
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("ab%bc", "abc", False),
        ("%a_c%", "xxabcxx", True),
        ("a.c", "abc", False),
        ("%\n%", "a\nb", True),
        ("_%_", "a", False),
        ("_%_", "ab", True),
    ],
)
def test_examples(pattern: str, text: str, matches: bool) -> None:
    like = compiled(pattern, None)
    assert like.matches(text) is matches
    assert matcher(like)(pa.array([text])).tolist() == [matches]


@pytest.mark.parametrize("pattern", ["%a" * 20 + "%b", "%_a" * 300 + "%b", "_" * 1000, "%a%_" * 250, "a%" * 500])
def test_time_is_linear(pattern: str) -> None:
    # A backtracking matcher would need more steps than there are atoms for the first of these.
    like = compiled(pattern, None)
    texts = pa.array(["a" * 20_000] * 5)
    start = time.process_time()
    expected = like.matches("a" * 20_000)
    assert matcher(like)(texts).tolist() == [expected] * 5
    assert time.process_time() - start < 5


def test_pieces() -> None:
    assert compiled("abc", None).pieces == ("abc",)
    assert compiled("a%b%%c", None).pieces == ("a", "b", "c")
    assert compiled("%a%", None).pieces == ("", "a", "")
    assert compiled("a_", None).pieces is None
    assert compiled("a!%!_", "!").pieces == ("a%_",)
    assert compiled("a%%b", None) == compiled("a%b", None)
