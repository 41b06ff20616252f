"""The words of runs of commands in place of those of databases: one table for claims, documents and screens.

A session is there a slot that runs commands one after another: so many sessions are so many jobs at once. A
call is an execution. What has the time is not the session but the tasks of its processes.
"""

from __future__ import annotations

import re
from functools import lru_cache

_N = r"(\d[\d,.]*)"
_PHRASES = (
    (
        "from sending a call until the server is ready again, by the driver's clock",
        "from the start of a program to its end, by the launcher's clock",
    ),
    (
        "processes while all sessions were connected and made no calls, caches after the last session",
        "processes before the first execution, caches after the last one",
    ),
    ("after the last one had left", "after the last one"),
    (r"calls of a session / (.*) over the sessions", r"calls of a slot / \1 over all slots"),
    (r" A task that is runnable while its session bears .* by the joint table", ""),
    (r"\bfield (\d) of the session's task\b", r"field \1 of each task"),
    ("the session's wall time", "the tasks' wall time"),
    ("sessions were neither", "tasks were neither"),
    (r"\bwhat each further session fails\b", "what each further job fails"),
    (r"\bin step with the sessions\b", "in step with the jobs at once"),
    (r", the client on top\b", ""),
    (r"\bthe time asleep, or at the client, lies\b", "the time asleep lies"),
    (r"^The server's cache: not supported\.$", ""),
    (r"\bthe tasks of server, driver and dbdyno\b", "the tasks of commands, launcher and dbdyno"),
    (r"\brun, run queue, sleep and client\b", "run, run queue and sleep"),
    # loads
    (r"\bat one job at a time\b", "with one job at a time"),
    (rf"\bat {_N} jobs at once\b", r"with \1 jobs at once"),
    (r"\bat 1 session\b", "with one job at a time"),
    (r"\bAt 1 session\b", "With one job at a time"),
    (rf"\bat {_N} sessions\b", r"with \1 jobs at once"),
    (rf"\bAt {_N} sessions\b", r"With \1 jobs at once"),
    (r"\b1 session\b", "one job at a time"),
    (rf"\b{_N} sessions\b", r"\1 jobs at once"),
    (r"\b(against|by|number of) sessions\b", r"\1 jobs at once"),
    (r"\bfewer sessions\b", "fewer jobs at once"),
    # whose time it is
    (r"\b([Ss])ession time\b", lambda m: f"{'T' if m[1] == 'S' else 't'}ask time"),
    (r"\bDB time\b", "task time"),
    (r"\bDB CPU\b", "CPU"),
    (r"\btime of active sessions\b", "time of the tasks"),
    (r"\bas high as the sessions are many\b", "as high as there were tasks"),
    (
        r"\b([Ss])essions( wait| waited| used| use| slept| spent)\b",
        lambda m: f"{_cased('tasks', m[1])}{m[2]}",
    ),
    (r"\bone is spent on what a further session is\b", "one is spent on what a further job is"),
    (r"\ba further session\b", "a further job"),
    (r"\bthe sessions' (tasks|processes|stack)\b", r"the commands' \1"),
    (r"\bby the sessions\b", "by the commands"),
    (r"\b(all|of|for) the sessions\b", r"\1 the commands"),
    (r"\bsingle sessions\b", "single slots"),
    # executions
    (r"\b([Rr])esponse times?( of (a|single) calls?)?\b", lambda m: _cased("duration", m[1])),
    (r"\b([Aa]) call\b(?!-)", lambda m: f"{m[1]}n execution"),
    (r"(?<![-=\w])(?<!system )(?<!System )([Cc])alls?(?=[\s/.,;:)]|$)", lambda m: _execution(m)),
    (r" or a shorter --call-target", ""),
    # who is measured, and how
    (r"the server's activity view", "the states of the tasks in /proc"),
    (r"the server's own processes", "the launcher of the commands"),
    (r"\bServer processes\b", "The launcher, and what runs aside"),
    (
        r"\bBackground processes of the server used\b",
        "The launcher, and what prepares and verifies executions, used",
    ),
    (
        r"% of the server's CPU time; the sessions' accounts\b",
        "% of all CPU time here; the commands' accounts",
    ),
    (r"\bneed the server's processes on this host\b", "need the commands' processes on this host"),
    (r"\bthe server's (processes|tasks|control groups)\b", r"the commands' \1"),
    (r"\brestart the server\b", "run again"),
    (r"\bthe server's cache, ", ""),
    (r"^Sessions, microstates\b", "Tasks of the jobs, microstates"),
    (r"\bshares of waits\b", "shares of reasons of sleep"),
    (r"\bserver CPU\b", "CPU"),
    (r"\bclient CPU of a call\b", "dbdyno's CPU"),
    (r"\bclient CPU\b", "dbdyno's own CPU"),
    (r"\bThe server can do\b", "It can do"),
    (r"\blimited by the client\b", "limited by dbdyno itself"),
    (r"\bthis kernel or server version does not offer it\b", "commands have none"),
    (r"\bthe wait events of this server version are not known\b", "commands have none"),
    (r"\bwhere this server keeps the ids of statements is not known\b", "commands have none"),
    (r"\bno such word of this server is known\b", "commands have none"),
    (r"\bTop (\d+) events\b", r"The \1 largest parts of task time"),
    (r"\bTop events\b", "Largest parts of task time"),
    (r"\bEvery wait event\b", "Every reason of sleep"),
    (r"\bWait events\b", "Reasons of sleep"),
    (r"\bno wait event\b", "running or runnable"),
    (r"\bwait events?\b", "reason of sleep"),
)
_EXACT = {
    "Sessions": "Jobs at once",
    "sessions": "jobs at once",
    "sess": "jobs",
    "response": "duration",
    "call": "execution",
    "helpers, CPUs": "launcher and aside, CPUs",
    "driver, CPUs": "dbdyno, CPUs",
    "driver starved, %": "dbdyno starved, %",
    "event": "part",
    "Server": "Engine",
}
"""Headings and cells that are just this."""


def _cased(word: str, first: str) -> str:
    return word.capitalize() if first.isupper() else word


def _execution(found: re.Match[str]) -> str:
    return _cased("executions" if found[0].lower() == "calls" else "execution", found[1])


_PRIVATE = 0xE000  # Unicode has no characters there
_COMPILED = tuple((re.compile(pattern), put) for pattern, put in _PHRASES)


@lru_cache(4096)
def in_words(text: str, *kept: str) -> str:
    """A sentence or a heading in the words of commands; ``kept``: parts of it that stay as they are."""
    if text in _EXACT:
        return _EXACT[text]
    marks = {chr(_PRIVATE + n): own for n, own in enumerate(sorted(kept, key=len, reverse=True))}
    for mark, own in marks.items():
        text = re.sub(rf"(?<!\w){re.escape(own)}(?!\w)", mark, text)
    for pattern, put in _COMPILED:
        text = pattern.sub(put, text)
    return "".join(marks.get(c, c) for c in text) if marks else text


def name_in_words(text: str) -> str:
    """A cell: whole names alone, as it may be what a user calls something."""
    found = _EXACT.get(text)
    if found is None and text in ("no wait event", "DB CPU", "DB time"):
        found = in_words(text)
    return re.sub(rf"^(1|{_N}) sessions?(?=$|,)", lambda m: in_words(m[0]), text) if found is None else found
