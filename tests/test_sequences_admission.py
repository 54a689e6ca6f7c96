"""Which messages become tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robopos.sequences import Admission, Verdict

S = 1_000_000_000


def verdicts(admission: Admission, *messages: tuple[int, float]) -> list[Verdict]:
    return [admission.push(stream, round(time_s * S)) for stream, time_s in messages]


def test_messages_in_order_are_admitted_and_the_newest_is_the_reference():
    admission = Admission(1.0, None, [None, None])
    assert verdicts(admission, (0, 0.0), (1, 0.5), (0, 0.4)) == [Verdict.ADMITTED] * 3
    assert admission.newest_ns == round(0.5 * S)


def test_a_long_silence_starts_a_segment():
    admission = Admission(1.0, None, [None])
    assert verdicts(admission, (0, 0.0), (0, 1.0), (0, 2.5)) == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.GAP]
    assert admission.newest_ns == round(2.5 * S)


def test_a_clock_that_steps_back_starts_a_segment_from_the_earlier_time():
    admission = Admission(1.0, None, [None])
    assert verdicts(admission, (0, 100.0), (0, 2.0), (0, 2.1))[1:] == [Verdict.CLOCK_JUMP, Verdict.ADMITTED]
    assert admission.newest_ns == round(2.1 * S)


def test_late_messages_are_dropped_beyond_the_limit_only():
    admission = Admission(1.0, 0.2, [None])
    assert verdicts(admission, (0, 1.0), (0, 0.8), (0, 0.79)) == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.LATE]


def test_thinning_keeps_the_first_message_after_the_interval_of_each_stream():
    admission = Admission(1.0, None, [10.0, None])
    got = verdicts(admission, (0, 0.0), (0, 0.05), (1, 0.06), (0, 0.1), (0, 0.19), (0, 0.2))
    kept = [Verdict.ADMITTED, Verdict.THINNED, Verdict.ADMITTED, Verdict.ADMITTED, Verdict.THINNED, Verdict.ADMITTED]
    assert got == kept


def test_a_message_without_a_finite_value_changes_nothing():
    admission = Admission(1.0, None, [None])
    admission.push(0, 0)
    assert admission.push(0, 50 * S, measured=False) is Verdict.EMPTY
    assert admission.newest_ns == 0


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5 * S)), min_size=1, max_size=40))
def test_times_moved_by_any_number_of_nanoseconds_give_the_same_verdicts(messages: list[tuple[int, int]]):
    shift = 1_700_000_000_123_456_789
    here, there = (Admission(1.0, 0.3, [20.0, None]) for _ in range(2))
    for stream, time_ns in messages:
        assert here.push(stream, time_ns) == there.push(stream, time_ns + shift)
