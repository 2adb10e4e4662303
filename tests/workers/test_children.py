"""Child processes: how they are forked and collected, what is said to them, and how much lies ready for them."""

import math
import os
import random
import signal
import socket

import psutil
import pytest

from toolfleet.workers.children.children import AHEAD_MAX, AHEAD_S, Pace
from toolfleet.workers.children.fork_server import ForkServer, ForkServerLost
from toolfleet.workers.children.words import Answer, Job, Words, answer_of, framed, job_of, packed
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.perform.endings import Ending

WITHIN_S = 30.0
SLOTS = 3


def answer_and_end(pipe, slot):
    """Say who it is, and end as it is told: with a status, by itself or not at all."""
    pipe.sendall(f"{os.getpid()} {slot}".encode())
    match pipe.recv(10):
        case b"raise":
            raise LookupError("in a child")
        case b"exit":
            raise SystemExit(7)
        case b"stay":
            signal.pause()


@pytest.fixture
def server():
    server = ForkServer(answer_and_end)
    yield server
    server.close()


def test_a_child_is_forked_for_its_slot_and_says_who_it_is(server):
    for slot in range(SLOTS):
        pid, pipe = server.fork(slot)
        with pipe:
            pipe.settimeout(WITHIN_S)
            assert pipe.recv(100) == f"{pid} {slot}".encode()
            assert psutil.Process(pid).ppid() == server.pid
            assert not pipe.get_inheritable()  # no program that is started here may hold it open


@pytest.mark.parametrize(("word", "status"), [(b"", 0), (b"exit", 7), (b"raise", 1)])
def test_it_is_told_with_what_a_child_has_ended(server, word, status):
    pid, pipe = server.fork(0)
    with pipe:
        pipe.settimeout(WITHIN_S)
        pipe.recv(100)
        pipe.sendall(word)
        pipe.shutdown(socket.SHUT_WR)
        assert pipe.recv(100) == b""
        assert server.collect(pid, within_s=WITHIN_S) == status


def test_a_child_that_stays_is_killed(server):
    pid, pipe = server.fork(0)
    with pipe:
        pipe.sendall(b"stay")
        assert server.collect(pid) == -signal.SIGKILL
        assert not psutil.pid_exists(pid)


def test_who_closes_the_server_ends_its_children(server):
    children = [server.fork(slot) for slot in range(SLOTS)]
    for _, pipe in children:
        pipe.sendall(b"stay")
    server.close()
    assert not [pid for pid, _ in children if psutil.pid_exists(pid)]
    for _, pipe in children:
        pipe.close()


def test_a_server_that_is_killed_says_so_at_the_next_request_and_at_once_to_who_listens(server):
    server.life.settimeout(WITHIN_S)
    os.kill(server.pid, signal.SIGKILL)
    assert server.life.recv(1) == b""
    with pytest.raises(ForkServerLost):
        server.fork(0)
    with pytest.raises(ForkServerLost):
        server.collect(1)


def test_a_child_has_nothing_open_of_its_siblings_so_each_pipe_ends_with_its_own(server):
    children = [server.fork(slot) for slot in range(SLOTS)]
    for _, pipe in children:
        pipe.settimeout(WITHIN_S)
        pipe.recv(100)
    first, pipe = children[0]
    os.kill(first, signal.SIGKILL)
    assert pipe.recv(100) == b""
    for _, pipe in children:
        pipe.close()


JOB = Job(3, Delivery("call", "tool", "text" * 1000, "mac", stream="s", entry_id="1-0"), is_common=True, news=b"new")
ANSWER = Answer(Ending.SETTLED, None, 0.25, 0.0, is_last=False)


def test_words_come_as_they_were_sent_wherever_they_are_cut():
    rng = random.Random(0)
    sent = [packed(JOB), framed(b""), packed(ANSWER)] * 20
    data = b"".join(sent)
    for _ in range(50):
        cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(200)))
        words = Words()
        come = [
            word for at, end in zip([0, *cuts], [*cuts, len(data)], strict=True) for word in words.take(data[at:end])
        ]
        assert [framed(word) for word in come] == sent


def test_a_word_says_what_it_was_made_of():
    come = list(Words().take(packed(JOB) + framed(b"") + packed(ANSWER)))
    assert job_of(come[0]) == JOB
    assert come[1] == b""
    assert answer_of(come[2]) == ANSWER


def test_nothing_is_taken_ahead_until_calls_have_shown_that_they_are_quick():
    pace = Pace(2)
    assert pace.ahead == 0
    pace.note(AHEAD_S / 5)
    assert pace.ahead == 10


def test_no_more_is_taken_ahead_than_so_many():
    pace = Pace(2)
    pace.note(1e-6)
    assert pace.ahead == AHEAD_MAX


def test_one_slow_call_ends_what_is_taken_ahead():
    pace = Pace(2)
    for _ in range(100):
        pace.note(AHEAD_S / 100)
    pace.note(60.0)
    assert pace.ahead == 0


def test_what_is_forgotten_is_learnt_again():
    pace = Pace(2)
    pace.note(AHEAD_S / 5)
    pace.forget()
    assert pace.ahead == 0
    assert pace.note(AHEAD_S / 5)
    assert pace.ahead == 10


def test_it_follows_calls_that_become_slower_by_and_by():
    pace = Pace(4)
    pace.note(AHEAD_S / 50)
    for _ in range(20 * AHEAD_MAX):
        pace.note(AHEAD_S / 2)
    assert math.isclose(pace.ahead, 8, abs_tol=2)
