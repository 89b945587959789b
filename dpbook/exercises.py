"""Exercises that a program can check: a chapter's register of checks, and the questions that checks ask.

An exercise ends in a number, an array, a function, a mechanism or a posterior. Its public check helps while one works
on it; its hidden tests grade, with other numbers. The checks of a chapter are in ``book/<chapter>/checks.py``.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpbook.audit import audit
from dpbook.diagnostics import calibrate

__all__ = ["Exercises", "Verdict", "Wrong", "calibrated", "close", "expect", "number", "private"]

Function = TypeVar("Function", bound=Callable[..., Any])

_NOTHING = "Nothing to check yet: put your answer where the dots are."


class Wrong(Exception):
    """What a check raises about an answer that does not hold, with a message that helps its author.

    Examples
    --------
    >>> from dpbook.exercises import Wrong
    >>> raise Wrong("A replaced record changes two cells.")
    Traceback (most recent call last):
    dpbook.exercises.Wrong: A replaced record changes two cells.

    Explained in :doc:`/book/how-to-use`.
    """


@dataclass(frozen=True)
class Verdict:
    """What a check found; a notebook shows it as a line of text.

    Parameters
    ----------
    exercise : str
        The exercise's label.
    passed : bool
        Whether the answer holds.
    message : str
        What to tell whoever answered.

    Examples
    --------
    >>> from dpbook.exercises import Verdict
    >>> Verdict("ex-one", False, "Give a number.")
    ✗ Not yet. Give a number.

    Explained in :doc:`/book/how-to-use`.
    """

    exercise: str
    passed: bool
    message: str = ""

    def __repr__(self) -> str:
        return f"{'✓ Passed.' if self.passed else '✗ Not yet.'} {self.message}".strip()


class Exercises:
    """The checked exercises of a chapter.

    Three decorators register functions under an exercise's label. ``public`` takes the function that helps; it raises
    :class:`Wrong` where an answer does not hold, and may return a remark on one that does. ``hidden`` takes the one
    that grades, which also gets a generator for numbers that nobody can look up. ``generated`` takes the function that
    makes a student's own numbers from a generator; the checks of such an exercise get them as a last argument.
    ``wrong`` enters answers that people give, so that a test can see that each fails and is told why.

    Examples
    --------
    >>> from dpbook.exercises import Exercises, close
    >>> exercises = Exercises()
    >>> @exercises.public("ex-double")
    ... def double(answer):
    ...     close(answer(3), 6, "Twice 3 is 6.")
    >>> @exercises.hidden("ex-double")
    ... def double_of_anything(answer, rng):
    ...     x = rng.normal()
    ...     close(answer(x), 2 * x, f"It fails for {x:.3f}.")
    >>> exercises.check("ex-double", lambda x: x + 3)
    ✓ Passed.
    >>> exercises.grade("ex-double", lambda x: x + 3).passed
    False
    >>> exercises.wrong("ex-double", square=(lambda x: x**2, "Twice 3"))
    >>> exercises.check("ex-double", ...)
    ✗ Not yet. Nothing to check yet: put your answer where the dots are.

    Numbers of each student's own, from a name:

    >>> @exercises.generated("ex-half")
    ... def half_numbers(rng):
    ...     return {"n": int(rng.integers(100))}
    >>> @exercises.public("ex-half")
    ... def half(answer, given):
    ...     close(answer, given["n"] / 2, "Divide by two.")
    >>> mine = exercises.numbers("ex-half", "Ada")
    >>> exercises.check("ex-half", mine["n"] / 2, student="Ada").passed
    True
    >>> exercises.labels
    ['ex-double', 'ex-half']

    Explained in :doc:`/book/how-to-use`.
    """

    def __init__(self) -> None:
        self._public: dict[str, Callable[..., Any]] = {}
        self._hidden: dict[str, Callable[..., Any]] = {}
        self._generated: dict[str, Callable[[np.random.Generator], Mapping[str, Any]]] = {}
        self.wrong_answers: dict[str, dict[str, tuple[Any, str]]] = {}

    @property
    def labels(self) -> list[str]:
        """The labels of the exercises, in the order in which they were written."""
        return list(self._public)

    def public(self, label: str) -> Callable[[Function], Function]:
        """Return a decorator that registers the check that helps with the exercise ``label``."""
        return _into(self._public, label)

    def hidden(self, label: str) -> Callable[[Function], Function]:
        """Return a decorator that registers the tests that grade the exercise ``label``."""
        return _into(self._hidden, label)

    def generated(self, label: str) -> Callable[[Function], Function]:
        """Return a decorator that registers the function that makes each student's numbers for ``label``."""
        return _into(self._generated, label)

    def wrong(self, label: str, **answers: tuple[Any, str]) -> None:
        """Enter typical wrong ``answers`` to ``label``, by name, each with words of the message that it deserves."""
        self.wrong_answers[label] = answers

    def numbers(self, label: str, student: str) -> dict[str, Any]:
        """Return the own numbers of a ``student`` for the exercise ``label``, by name; the same every time.

        A student is a name or a number, as the instructor asks for it; case and spaces around it do not matter.
        """
        if not isinstance(student, str) or not student.strip():
            raise TypeError(f"student must be a name, got {student!r}")
        return dict(self._generated[label](_rng(label, student.strip().lower())))

    def check(self, label: str, answer: Any, *, student: str | None = None) -> Verdict:
        """Return whether an ``answer`` to ``label`` holds as far as the public check goes, and what to look at if not.

        Dots mean that there is no answer yet; ``student`` is whose numbers the exercise has, where all have their own.
        """
        if label not in self._public:
            raise ValueError(f"label must be one of {', '.join(self.labels)}, got {label!r}")
        return self._verdict(self._public[label], label, answer, student)

    def grade(self, label: str, answer: Any, *, student: str | None = None, secret: int = 0) -> Verdict:
        """Return whether an ``answer`` to ``label`` passes the public check and the hidden tests.

        ``student`` as for :meth:`check`; ``secret`` is the seed of the hidden tests' numbers: another, and they differ.
        """
        found = self.check(label, answer, student=student)
        if not found.passed:
            return found
        return self._verdict(self._hidden[label], label, answer, student, _rng(label, secret))

    def _verdict(self, test: Callable[..., Any], label: str, answer: Any, student: str | None, *more: Any) -> Verdict:
        """Run a test; whatever it or the answer raises is a finding."""
        if _is_empty(answer):
            return Verdict(label, False, _NOTHING)
        if label in self._generated:
            if student is None:
                return Verdict(label, False, "This exercise has numbers of your own: say whose, student=...")
            more = (*more, self.numbers(label, student))
        try:
            remark = test(_watched(answer), *more)
        except Wrong as wrong:
            return Verdict(label, False, str(wrong))
        except Exception as error:
            return Verdict(label, False, f"Your answer raised {type(error).__name__}: {error}")
        return Verdict(label, True, remark or "")


def _into(register: dict[str, Any], label: str) -> Callable[[Function], Function]:
    """Return a decorator that enters a function once."""
    if label in register:
        raise ValueError(f"label must be new, got {label!r} twice")

    def enter(function: Function) -> Function:
        register[label] = function
        return function

    return enter


def _rng(*labels: object) -> np.random.Generator:
    """Return a generator of its own for an exercise and a student or a secret."""
    return np.random.default_rng([zlib.crc32(str(label).encode()) for label in labels])


def _is_empty(answer: Any) -> bool:
    """Say whether an answer is still the dots that stood there, or nothing, in whole or in part."""
    if answer is None or answer is ...:
        return True
    return isinstance(answer, (tuple, list)) and any(part is None or part is ... for part in answer)


def _watched(answer: Any) -> Any:
    """Return an answer; a function that returns nothing says so when it is called."""
    if not callable(answer):
        return answer

    @functools.wraps(answer)
    def call(*args: Any, **options: Any) -> Any:
        result = answer(*args, **options)
        if _is_empty(result):
            raise Wrong(_NOTHING)
        return result

    return call


# The questions that checks ask ---------------------------------------------------------------------------------------


def expect(condition: Any, message: str) -> None:
    """Raise :class:`Wrong` unless a condition holds.

    Parameters
    ----------
    condition : bool
        What must hold.
    message : str
        What helps where it does not.

    Examples
    --------
    >>> from dpbook.exercises import expect
    >>> expect(1 < 2, "Order.")

    Explained in :doc:`/book/how-to-use`.
    """
    if not condition:
        raise Wrong(message)


def number(answer: Any, name: str = "The answer") -> float:
    """Return an answer as a float; raise :class:`Wrong` where it is no finite number.

    Parameters
    ----------
    answer : float
        What was answered.
    name : str, default "The answer"
        What it is called in the message.

    Returns
    -------
    float
        The same number.

    Examples
    --------
    >>> from dpbook.exercises import number
    >>> number(3)
    3.0

    Explained in :doc:`/book/how-to-use`.
    """
    try:
        value = float(answer)
    except (TypeError, ValueError):
        raise Wrong(f"{name} must be a number, got {answer!r}.") from None
    expect(np.isfinite(value), f"{name} must be finite, got {value}.")
    return value


def close(answer: ArrayLike, expected: ArrayLike, message: str, *, within: float = 1e-6) -> None:
    """Raise :class:`Wrong` unless numbers agree.

    Parameters
    ----------
    answer : array-like
        What was answered.
    expected : array-like
        What holds.
    message : str
        What helps where they differ.
    within : float, default 1e-6
        The relative difference that is allowed.

    Examples
    --------
    >>> from dpbook.exercises import close
    >>> close(0.3, 0.1 + 0.2, "Add them up.")

    Explained in :doc:`/book/how-to-use`.
    """
    got, wanted = np.asarray(answer, dtype=float), np.asarray(expected, dtype=float)
    shapes = f"It should have the shape {wanted.shape}, and has {got.shape}."
    expect(got.shape == wanted.shape, shapes)
    expect(np.allclose(got, wanted, rtol=within, atol=within * 1e-3), message)


def private(
    mechanism: Callable[..., Any], data: Any, neighbour: Any, *, epsilon: float, trials: int, seed: int, **options: Any
) -> None:
    """Raise :class:`Wrong` where an audit refutes that a mechanism is epsilon-private on a pair of data sets.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(data, rng)``, or with ``batched=True`` ``mechanism(data, rng, trials)``.
    data, neighbour : object
        Two data sets that differ in one record.
    epsilon : float
        What is claimed.
    trials : int
        Runs on each data set.
    seed : int
        Of the runs.
    **options
        Passed on to :func:`dpbook.audit.audit`, ``delta`` and ``batched`` for example.

    Examples
    --------
    >>> from dpbook.exercises import private
    >>> def release(count, rng, trials):
    ...     return count + rng.laplace(scale=1.0, size=trials)
    >>> private(release, 3, 4, epsilon=1.0, trials=4000, seed=1, batched=True)

    Explained in :doc:`/book/how-to-use`.
    """
    found = audit(mechanism, data, neighbour, trials=trials, rng=np.random.default_rng(seed), **options)
    refuted = f"An audit refutes it: for two neighbours its epsilon is at least {found.epsilon:.2f}"
    expect(found.epsilon <= epsilon, f"{refuted}, and {epsilon:g} was promised.")


def calibrated(
    infer: Callable[..., ArrayLike],
    *,
    prior: Callable[[np.random.Generator, int], ArrayLike],
    simulate: Callable[[Any, np.random.Generator], ArrayLike],
    trials: int,
    seed: int,
    level: float = 1e-3,
    contraction: float = 0.2,
) -> None:
    """Raise :class:`Wrong` where simulation-based calibration rejects a posterior, or it ignores what it is given.

    Parameters
    ----------
    infer : callable
        ``infer(data, rng)`` returns draws of one parameter, given what one trial produced.
    prior : callable
        ``prior(rng, trials)`` draws that parameter.
    simulate : callable
        ``simulate(parameter, rng)`` produces what is released, one value for each trial.
    trials : int
        Simulated releases.
    seed : int
        Of the simulation.
    level : float, default 1e-3
        The probability of rejecting a posterior that is right.
    contraction : float, default 0.2
        How much narrower than the prior a posterior that has learned something is: one less the ratio of variances.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbook.exercises import calibrated
    >>> calibrated(
    ...     lambda x, rng: rng.beta(1 + x, 11 - x, size=100),
    ...     prior=lambda rng, trials: rng.uniform(size=trials),
    ...     simulate=lambda theta, rng: rng.binomial(10, theta),
    ...     trials=300,
    ...     seed=1,
    ... )

    Explained in :doc:`/book/how-to-use`.
    """
    found = calibrate(
        lambda rng, size: {"theta": prior(rng, size)},
        lambda parameters, rng: simulate(parameters["theta"], rng),
        lambda data, rng: {"theta": np.array([infer(x, rng) for x in np.asarray(data)])},
        trials,
        rng=np.random.default_rng(seed),
    )
    ranks = found.ranks["theta"]
    outside = float(np.mean((ranks < 0.05) | (ranks > 0.95)))
    p = min(found.p_values.values())
    where = f"the truth lies outside the central 90 % of the draws in {outside:.0%} of {trials} simulated releases"
    expect(found.passed(level), f"A calibration test rejects it: {where}, and its ranks are not uniform (p = {p:.1g}).")
    learned = found.contraction["theta"] > contraction
    expect(learned, "It passes the calibration test, but so does the prior: it learns nothing.")
