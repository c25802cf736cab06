"""Secrets out of foreign text: whole, in part, and at any place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.providers.redaction import MASK, PART_CHARACTERS, redactor, safe_preview, unredacted

KEY = "sk-test-ABCDEFGH12345678"
OTHER = "pw]^-\\[x"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("nothing here", "nothing here"),
        (KEY, MASK),
        (f"{KEY}{KEY}", MASK),
        (f"key={KEY}.", f"key={MASK}."),
        (f"{KEY} {KEY}", f"{MASK} {MASK}"),
        (f"starts {KEY[:12]}…", f"starts {MASK}…"),
        (f"ends …{KEY[-12:]}", f"ends …{MASK}"),
        (f"cut {KEY[5:18]} out", f"cut {MASK} out"),
        (f"too little {KEY[:11]}!", f"too little {KEY[:11]}!"),
        (f"a{KEY}b", f"a{MASK}b"),
        (f"{KEY}{OTHER}{KEY}", MASK),
        (f"[{OTHER}]", f"[{MASK}]"),
    ],
)
def test_a25_keys_and_their_parts_are_masked(text: str, kept: str) -> None:
    """A whole key goes, and every piece of one that gives it away; the rest stays as it was."""
    assert redactor([KEY, OTHER, None, ""])(text) == kept


def test_without_secrets_nothing_is_changed() -> None:
    """Placeholders are no secrets: masking `x` would garble every text."""
    assert redactor([None, "", "x", "abc"]) is unredacted


@given(
    secrets=st.lists(st.text(alphabet="ab-]", min_size=4, max_size=20), max_size=3),
    text=st.text(alphabet="ab-] ", max_size=80),
)
def test_masked_is_what_lies_within_a_part(secrets: list[str], text: str) -> None:
    """Every character that belongs to a part is gone, every other one is kept in its order."""
    covered = [False] * len(text)
    for secret in secrets:
        size = min(PART_CHARACTERS, len(secret))
        parts = {secret[i : i + size] for i in range(len(secret) - size + 1)}
        for start in range(len(text) - size + 1):
            if text[start : start + size] in parts:
                covered[start : start + size] = [True] * size
    expected = "".join(
        "" if hidden and i and covered[i - 1] else MASK if hidden else text[i]
        for i, hidden in enumerate(covered)
    )
    assert redactor(secrets)(text) == expected


def test_a_preview_is_redacted_before_it_is_cut() -> None:
    """A key that the cut would leave a piece of is gone as a whole."""
    text = "x" * 490 + KEY
    assert "sk-" not in safe_preview(text, redactor([KEY]))
