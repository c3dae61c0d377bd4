import json

import pytest

from duly.agent.reporting import task_protocol
from duly.agent.reporting.coalescer import MIN_INTERVAL_SECONDS, Coalescer
from duly.agent.reporting.task_rate import MAX_LINES_PER_SECOND, TaskRateLimiter
from duly.errors import DulyError
from duly.model.progress import MAX_TEXT_CHARS, Progress
from duly.wire import AttemptRef, Throttled

A, B = AttemptRef(1, 1, 10), AttemptRef(2, 1, 11)


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (b'{"progress": 0.4, "text": "resizing"}', Progress(0.4, "resizing")),
        (b' {"progress":0}\r', Progress(0)),
        (b'{"progress": 1, "text": null}', Progress(1)),
        (
            '{"progress": 0.5, "text": "%s"}' % ("ø" * MAX_TEXT_CHARS),
            Progress(0.5, "ø" * MAX_TEXT_CHARS),
        ),
    ],
)
def test_a_line_says_how_far_it_is(line, progress):
    assert task_protocol.read(line if isinstance(line, bytes) else line.encode()) == progress


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (b"", "malformed", "not valid JSON"),
        (b"half", "malformed", "not valid JSON"),
        (b'{"progress": 0.4', "malformed", "not valid JSON"),
        (b'{"progress": NaN}', "malformed", "not valid JSON"),
        (b'{"progress": Infinity}', "malformed", "not valid JSON"),
        (b'{"progress": 1e999}', "malformed", "out of range"),
        (b'{"progress": 0.4, "text": "\xff"}', "malformed", "not valid JSON"),
        (b'{"progress": 0.4, "text": "\\ud800"}', "malformed", "not valid JSON"),
        (b"[" * 8000, "malformed", "nested too deeply"),
        (b"0.4", "malformed", "The line is not a JSON object. Write it like {"),
        (b'["progress"]', "malformed", "The line is not a JSON object. Write it like {"),
        (b"{}", "invalid", "no known field (an empty object)"),
        (b'{"text": "so far"}', "invalid", "no known field ('text')"),
        (b'{"progres": 0.4}', "invalid", 'Write it like {"progress": 0.4, "text": "…"}.'),
        (
            b'{"stage": "x", "result": 1}',
            "invalid",
            "stage: this version of Duly does not support it",
        ),
        (b'{"stages": true}', "invalid", "stages: this version of Duly does not"),
        (b'{"checkpoint": true}', "invalid", "checkpoint: this version of Duly does not"),
        (b'{"throttled": "s3"}', "invalid", "throttled: the task does not use 's3'. Submit it"),
        (b'{"throttled": 7}', "invalid", 'Write it like {"throttled": "stripe", "retry_after"'),
        (b'{"submit": {"command": ["true"]}}', "invalid", "submit: this version of Duly does"),
        (b'{"progress": 0.4, "of": 10}', "invalid", "of: there is no such field"),
        (b'{"progress": "0.4"}', "invalid", "progress: it must be a number from 0 to 1"),
        (b'{"progress": true}', "invalid", "progress: it must be a number from 0 to 1"),
        (b'{"progress": null}', "invalid", "progress: it must be a number from 0 to 1"),
        (b'{"progress": -0.01}', "invalid", "progress: it must be a number from 0 to 1"),
        (b'{"progress": 40}', "invalid", "progress: it must be a number from 0 to 1"),
        (
            b'{"progress": %s}' % (b"9" * 400),
            "invalid",
            "progress: it must be a number from 0 to 1",
        ),
        (b'{"progress": %s}' % (b"9" * 5000), "malformed", "not valid JSON"),
        (b'{"progress": 0.4, "text": 4}', "invalid", "text: it must be text"),
        (b'{"progress": 0.4, "text": "a\\u0000b"}', "invalid", "NUL"),
        (
            b'{"progress": 0.4, "text": "%s"}' % (b"x" * 501),
            "invalid",
            "text: it has 501 characters",
        ),
    ],
)
def test_what_cannot_be_understood_is_answered_in_words(line, code, words):
    with pytest.raises(DulyError) as caught:
        task_protocol.read(line)
    answer = task_protocol.refusal(caught.value)
    assert answer.endswith(b"\n") and answer.count(b"\n") == 1
    told = json.loads(answer)["error"]
    assert (told["code"], told.keys()) == (code, {"code", "message"})
    assert words in told["message"]


def test_of_a_flood_only_the_newest_goes_out_and_the_last_one_always():
    news = Coalescer()
    assert news.wait(0.0) is None
    assert news.say(A, Progress(0.1))
    assert not news.say(A, Progress(0.2))
    assert news.wait(0.0) == 0.0
    assert news.take(0.0) == [(A, Progress(0.2))]
    assert news.wait(0.1) is None
    for step in range(3, 9):
        news.say(A, Progress(step / 10))
    assert news.take(0.5) == []
    assert news.wait(0.5) == pytest.approx(MIN_INTERVAL_SECONDS - 0.5)
    assert news.take(MIN_INTERVAL_SECONDS) == [(A, Progress(0.8))]
    assert news.wait(MIN_INTERVAL_SECONDS) is None


def test_attempts_do_not_wait_for_each_other():
    news = Coalescer()
    news.say(A, Progress(0.1))
    news.take(0.0)
    news.say(A, Progress(0.2))
    news.say(B, Progress(0.3))
    assert news.wait(0.1) == 0.0
    assert news.take(0.1) == [(B, Progress(0.3))]


def test_what_could_not_be_sent_is_tried_again_unless_there_is_something_newer():
    news = Coalescer()
    news.say(A, Progress(0.1))
    [(ref, progress)] = news.take(0.0)
    news.put_back(ref, progress)
    assert news.take(MIN_INTERVAL_SECONDS) == [(A, Progress(0.1))]
    news.say(A, Progress(0.2))
    news.put_back(A, Progress(0.1))
    assert news.take(2 * MIN_INTERVAL_SECONDS) == [(A, Progress(0.2))]
    news.forget(A)
    news.put_back(A, Progress(0.2))
    assert news.wait(3 * MIN_INTERVAL_SECONDS) is None


def test_who_says_too_much_is_heard_in_the_next_second():
    speaker = TaskRateLimiter()
    assert speaker.pause(MAX_LINES_PER_SECOND, 10.0) == 0.0
    assert speaker.pause(1, 10.25) == pytest.approx(0.75)
    assert speaker.pause(1, 11.0) == 0.0


@pytest.mark.parametrize(
    ("line", "throttled"),
    [
        (b'{"throttled": "s3", "retry_after": 2}', Throttled("s3", 2.0)),
        (b'{"throttled": "stripe"}', Throttled("stripe", 0.0)),
        (b'{"throttled": "stripe", "retry_after": 1e9}', Throttled("stripe", 3600.0)),
    ],
)
def test_a_line_says_what_has_throttled_it(line, throttled):
    assert task_protocol.read(line, ("s3", "stripe")) == throttled


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"throttled": "gcs"}', "throttled: the task does not use 'gcs'. It uses s3 and stripe."),
        (b'{"throttled": "s3", "retry_after": -1}', "retry_after: it must be a number"),
        (b'{"throttled": "s3", "retry_after": true}', "retry_after: it must be a number"),
        (b'{"throttled": "s3", "retry_after": "2"}', "retry_after: it must be a number"),
        (b'{"throttled": "s3", "progress": 1}', "progress: there is no such field"),
    ],
)
def test_throttling_that_makes_no_sense_is_refused(line, words):
    with pytest.raises(DulyError) as refused:
        task_protocol.read(line, ("s3", "stripe"))
    assert words in refused.value.message
