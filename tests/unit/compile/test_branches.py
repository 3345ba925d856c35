"""Variants of a text by its undecided branches."""

from __future__ import annotations

from dotcu.compile.branches import variants


def words(text: str, *defined: str) -> list[str]:
    return [
        " ".join(word for word in variant.split() if not word.startswith("#") and word.isupper())
        for variant in variants(text.replace(";", "\n"), set(defined))
    ]


def test_a_text_without_branches_is_its_only_variant() -> None:
    assert list(variants("a\nb\n")) == ["a\nb\n"]


def test_each_branch_is_seen_once_with_neighbours_in_step() -> None:
    text = "#if a;A1;#elif b;A2;#else;A3;#endif;ALWAYS;#if c;B1;#else;B2;#endif"
    assert words(text) == ["A1 ALWAYS B1", "A2 ALWAYS B2", "A3 ALWAYS B1"]


def test_branches_within_branches_are_all_seen() -> None:
    text = "#if a;A;#if b;AB;#else;AC;#endif;#else;#if d;D;#else;E;#endif;#endif"
    assert words(text) == ["A AB", "A AC", "D", "E"]


def test_a_branch_without_an_else_is_always_seen() -> None:
    assert words("#if a;A;#endif;#if b;B1;#else;B2;#endif") == ["A B1", "A B2"]


def test_decided_branches_are_in_every_variant_or_in_none() -> None:
    text = "#ifdef k;KNOWN;#else;NEVER;#endif;#if a;A1;#else;A2;#endif"
    assert words(text, "k") == ["KNOWN A1", "KNOWN A2"]


def test_positions_stay() -> None:
    text = "#if a\nx\n#else\ny\n#endif\nz"
    assert all(len(variant) == len(text) and variant[-1] == "z" for variant in variants(text))
