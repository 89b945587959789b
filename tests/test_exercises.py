"""Checked exercises: an empty answer fails, and so does a typical wrong one, with words that help.

That the solutions pass is asserted where they stand, in the notebooks; here it is checked that they are asserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from dpbook.exercises import Exercises, Wrong, calibrated, close, expect, number, private
from tests.studies.loading import BOOK, load_study

CHAPTERS = sorted(path.parent.name for path in BOOK.glob("*/grading.py"))
GRADING = {chapter: load_study(chapter, "grading") for chapter in CHAPTERS}
CHECKED = [(chapter, label) for chapter in CHAPTERS for label in GRADING[chapter].exercises.labels]
WRONG = [
    (chapter, label, name)
    for chapter in CHAPTERS
    for label, answers in GRADING[chapter].exercises.wrong_answers.items()
    for name in answers
]


def sections(chapter: str) -> dict[str, str]:
    """Return the text of the sections of a chapter, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((BOOK / chapter).glob("*.md"))}


def exercise_blocks(text: str) -> dict[str, str]:
    """Return the exercises of a section, by label."""
    found = re.findall(r"^(`{3,})\{exercise\}[^\n]*\n:label: (\S+)\n(.*?)^\1$", text, re.M | re.S)
    return {label: body for _, label, body in found}


# Every exercise of a chapter that has checks -------------------------------------------------------------------------


def test_chapter_1_has_thirty_checked_exercises_and_each_of_its_sections_some() -> None:
    files = {"index", "a-project"}  # no exercises, and exercises about files and what happens to them
    blocks = {name: exercise_blocks(text) for name, text in sections("background").items() if name not in files}
    checked = {name: [label for label, body in found.items() if "check(" in body] for name, found in blocks.items()}
    assert len(checked) == 11
    assert min(map(len, checked.values())) >= 2
    assert sum(map(len, checked.values())) >= 30


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_exercise_says_how_hard_it_is_and_how_long_it_takes(chapter: str) -> None:
    """In chapter 1; elsewhere in a section that has a checked exercise, so that the first is quickly written."""
    for name, text in sections(chapter).items():
        blocks, levels = exercise_blocks(text), []
        if chapter != "background" and not any("check(" in body for body in blocks.values()):
            continue
        for label, body in blocks.items():
            found = re.match(r"\n●{1,3} \d+ minutes\n", body)
            assert found, f"{label}: no line such as '●● 20 minutes' below the label"
            levels.append(found.group().count("●"))
        if name != "index":
            assert min(levels) == 1, f"{name}: no drill"
            assert levels == sorted(levels), f"{name}: the easy ones come first"


def test_two_exercises_have_numbers_of_each_students_own() -> None:
    exercises = GRADING["background"].exercises
    own = [label for label in exercises.labels if label in exercises._generated]
    assert len(own) >= 2
    for label in own:
        ada, grace = exercises.numbers(label, "Ada"), exercises.numbers(label, "Grace")
        assert ada != grace
        assert exercises.numbers(label, " ada ") == ada


@pytest.mark.parametrize(("chapter", "label"), CHECKED, ids=lambda value: str(value))
def test_a_checked_exercise_is_complete(chapter: str, label: str) -> None:
    """It stands in one section, whose text shows the check and whose notebook asserts that the solution passes."""
    found = [name for name, text in sections(chapter).items() if label in exercise_blocks(text)]
    assert len(found) == 1
    text = sections(chapter)[found[0]]
    assert f'check("{label}"' in exercise_blocks(text)[label]
    notebook = nbformat.read(BOOK / chapter / f"{found[0]}.ipynb", as_version=4)
    code = {cell.source: cell for cell in notebook.cells if cell.cell_type == "code"}
    (check,) = [cell for source, cell in code.items() if f'check("{label}"' in source]
    assert any("✓ Passed." in str(output) for output in check.outputs)
    (graded,) = [cell for source, cell in code.items() if f'grade("{label}"' in source]
    assert re.search(rf'assert grade\("{label}".*\)\.passed', graded.source)
    assert "remove-cell" in graded.metadata.tags
    assert label in GRADING[chapter].exercises._hidden
    assert GRADING[chapter].exercises.wrong_answers[label], "no typical wrong answer"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_exercise_with_a_check_block_is_registered(chapter: str) -> None:
    for text in sections(chapter).values():
        for label, body in exercise_blocks(text).items():
            assert ("check(" in body) == (label in GRADING[chapter].exercises.labels), label


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chapter", "label"), CHECKED, ids=lambda value: str(value))
@pytest.mark.parametrize(
    "empty", [..., None, lambda *_: ..., lambda *_: None], ids=["dots", "None", "def", "no return"]
)
def test_an_empty_answer_fails(chapter: str, label: str, empty: Any) -> None:
    verdict = GRADING[chapter].exercises.check(label, empty, student="reader")
    assert not verdict.passed
    if not callable(empty):
        assert "Nothing to check yet" in verdict.message


@pytest.mark.parametrize(("chapter", "label", "name"), WRONG, ids=lambda value: str(value))
def test_a_typical_wrong_answer_fails_with_a_message_that_helps(chapter: str, label: str, name: str) -> None:
    answer, words = GRADING[chapter].exercises.wrong_answers[label][name]
    verdict = GRADING[chapter].exercises.check(label, answer, student=GRADING[chapter].STUDENT)
    assert not verdict.passed
    assert re.search(words, verdict.message), verdict.message
    assert "raised" not in verdict.message
    assert not GRADING[chapter].grade(label, answer, student=GRADING[chapter].STUDENT).passed


# The questions that checks ask ---------------------------------------------------------------------------------------


def test_a_label_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match=r"label must be one of .*ex-definition-most.*got 'ex-nowhere'"):
        GRADING["background"].exercises.check("ex-nowhere", 1)


def test_an_answer_that_raises_is_told_so() -> None:
    exercises = Exercises()
    exercises.public("ex-a")(lambda answer: close(answer(0), 1, "One."))
    verdict = exercises.check("ex-a", lambda x: 1 / x)
    assert repr(verdict) == "✗ Not yet. Your answer raised ZeroDivisionError: division by zero"


def test_the_hidden_tests_of_another_secret_have_other_numbers() -> None:
    seen: list[float] = []
    exercises = Exercises()
    exercises.public("ex-a")(lambda answer: None)
    exercises.hidden("ex-a")(lambda answer, rng: seen.append(rng.random()))
    for secret in (1, 1, 2):
        assert exercises.grade("ex-a", 1, secret=secret).passed
    assert seen[0] == seen[1] != seen[2]


def test_an_exercise_with_own_numbers_asks_whose() -> None:
    verdict = GRADING["background"].exercises.check("ex-mechanisms-scale", 1.0)
    assert not verdict.passed
    assert "student=" in verdict.message
    with pytest.raises(TypeError, match="student must be a name, got ''"):
        GRADING["background"].exercises.numbers("ex-mechanisms-scale", "")


def test_an_exercise_is_registered_once() -> None:
    exercises = Exercises()
    exercises.public("ex-a")(lambda answer: None)
    with pytest.raises(ValueError, match="label must be new, got 'ex-a' twice"):
        exercises.public("ex-a")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda: expect(False, "no"), "no"),
        (lambda: number("one", "n"), "n must be a number, got 'one'"),
        (lambda: number(np.nan), "must be finite"),
        (lambda: close([1, 2], [1, 2, 3], "no"), r"shape \(3,\), and has \(2,\)"),
        (lambda: close(1, 1.1, "not quite", within=0.01), "not quite"),
    ],
)
def test_a_question_that_is_answered_wrongly_raises_with_its_message(question: Callable[[], None], words: str) -> None:
    with pytest.raises(Wrong, match=words):
        question()


def noisy(scale: float) -> Callable[..., Any]:
    return lambda count, rng, trials: count + rng.laplace(scale=scale, size=trials)


def test_a_mechanism_with_half_the_noise_is_refuted() -> None:
    """The right one passes with probability 0.999 at least; seeds are fixed."""
    how: dict[str, Any] = {"epsilon": 1.0, "trials": 20_000, "seed": 1, "batched": True}
    private(noisy(1.0), 0, 1, **how)
    with pytest.raises(Wrong, match=r"at least 1\.[5-9]"):
        private(noisy(0.5), 0, 1, **how)


def test_a_posterior_that_is_too_narrow_is_rejected_and_a_lazy_one_too() -> None:
    """At level 0.001, seeds fixed."""
    how: dict[str, Any] = {
        "prior": lambda rng, trials: rng.normal(size=trials),
        "simulate": lambda theta, rng: rng.normal(theta, 1.0),
        "trials": 300,
        "seed": 3,
    }
    calibrated(lambda x, rng: rng.normal(x / 2, np.sqrt(0.5), size=100), **how)
    with pytest.raises(Wrong, match="calibration test rejects"):
        calibrated(lambda x, rng: rng.normal(x / 2, 0.5, size=100), **how)
    with pytest.raises(Wrong, match="learns nothing"):
        calibrated(lambda x, rng: rng.normal(size=100), **how)


def test_the_notebooks_of_a_chapter_import_the_check_where_its_exercises_begin() -> None:
    for chapter in CHAPTERS:
        for name, text in sections(chapter).items():
            if any("check(" in body for body in exercise_blocks(text).values()):
                assert Path(BOOK / chapter / "checks.py").exists()
                after = text.split("\n## Exercises\n", 1)[1]
                assert "from checks import check" in after.split("{exercise}", 1)[0], name


def test_how_to_use_shows_what_a_check_says() -> None:
    page = (BOOK / "how-to-use.md").read_text(encoding="utf-8")
    found = re.search(r'^check\("(.*)", release\)\n(.*)$', page, re.M)
    assert found is not None
    grading = GRADING["background"]
    answer, _ = grading.exercises.wrong_answers[found.group(1)]["sensitivity_1"]
    assert repr(grading.exercises.check(found.group(1), answer)) == found.group(2)
