"""Who used the CPUs between two readings, of /proc trees written by hand as proc_pid_stat(5) says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from dbdyno.kernel import cpu_use
from dbdyno.kernel.cpu_use import below, busy_between, named, others, read, used

TICK = 10_000_000  # ns: 100 a second


def stat(name: str, parent: int, own: int, ended: int = 0, start: int = 50, state: str = "S") -> str:
    """Fields 3 to 22; times in ticks, all of them as user time."""
    return f"7 ({name}) {state} {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {ended} 0 20 0 1 0 {start}\n"


def tree(root: Path, processes: dict[int, str], cpus: tuple[str, ...]) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    for pid, line in processes.items():
        (root / f"proc/{pid}").mkdir(parents=True)
        (root / f"proc/{pid}/stat").write_text(line)
    (root / "proc/12/status").write_text("Name:\tcc1\nUid:\t1000\t4242\t1000\t1000\n")
    (root / "proc/stat").write_text("cpu  1 1 1 1 1 1 1 1 0 0\n" + "\n".join(cpus) + "\nctxt 5\n")
    return root


def readings(root: Path) -> tuple[cpu_use.Reading, cpu_use.Reading]:
    """One second: dbdyno (10) and its child (11) use 0.3 s, cc1 0.6 s; make's child 21 ends with 0.2 s more
    than it had; 30 begins; a process that lives for a moment uses 0.1 s."""
    first = read(
        tree(
            root,
            {
                1: stat("init", 0, 5),
                10: stat("dbdyno", 1, 100),
                11: stat("child", 10, 40),
                12: stat("cc1", 1, 1000),
                20: stat("make) (x", 1, 3, ended=500),
                21: stat("sh", 20, 70, ended=10),
                22: stat("gone", 21, 1),
                40: stat("old", 1, 9, start=60),
            },
            ("cpu0 100 0 100 0 0 0 0 5 0 0", "cpu1 100 0 100 0 0 0 0 5 0 0"),
        )
    )
    last = read(
        tree(
            root,
            {
                1: stat("init", 0, 5),
                10: stat("dbdyno", 1, 110, ended=15),
                11: stat("child", 10, 45),
                12: stat("cc1", 1, 1060),
                20: stat("make) (x", 1, 3, ended=500 + 70 + 10 + 1 + 20),
                30: stat("new", 1, 7),
                31: stat("dead", 1, 99, state="X"),
                40: stat("new life", 1, 8, start=900),
            },
            ("cpu0 160 0 110 0 0 0 0 7 0 0", "cpu1 150 0 102 0 0 0 0 8 0 0"),
        )
    )
    return first, last._replace(at_ns=first.at_ns + 1_000_000_000)


def test_processes_are_ranked_by_their_time_and_that_of_their_ended_children(tmp_path: Path) -> None:
    first, last = readings(tmp_path)
    ours = below(last.processes, [10])
    assert ours == {10, 11}
    ranked = named(last, others(used(first, last), ours), tmp_path)
    assert [(p.pid, p.name, p.cpu_ns // TICK, p.ended_ns // TICK) for p in ranked] == [
        (12, "cc1", 60, 0),
        (20, "make) (x", 20, 20),
        (40, "new life", 8, 0),
        (30, "new", 7, 0),
    ]
    assert [p.user for p in ranked] == ["4242", "", "", ""], "nobody is in the tree's password file"


def test_a_zombie_has_its_time_until_its_parent_reaps_it(tmp_path: Path) -> None:
    cpus = ("cpu0 100 0 100 0 0 0 0 5 0 0",)
    shell = {12: stat("cc1", 1, 0), 20: stat("sh", 1, 3)}
    begun = read(tree(tmp_path, shell | {21: stat("job", 20, 10)}, cpus))
    ended = read(tree(tmp_path, shell | {21: stat("job", 20, 50, state="Z")}, cpus))
    reaped = read(tree(tmp_path, shell | {20: stat("sh", 1, 3, ended=50)}, cpus))

    def ticks(first: cpu_use.Reading, last: cpu_use.Reading) -> list[tuple[int, int]]:
        return [(i.pid, ns // TICK) for i, ns, _ in others(used(first, last), set())]

    assert ticks(begun, ended) == [(21, 40)]
    assert ticks(ended, reaped) == [], "the shell got what was the job's before"
    assert ticks(begun, reaped) == [(20, 40)]


def test_others_have_what_the_machine_used_without_dbdyno(tmp_path: Path) -> None:
    first, last = readings(tmp_path)
    busy = busy_between(first, last, [10], tmp_path)
    assert busy is not None
    # 122 ticks busy, of which dbdyno, its child and its ended child used 10 + 5 + 15
    assert (round(busy.others, 6), busy.cpus) == (0.92, 2)
    assert busy.share == busy.others / 2
    assert busy.steal == 0.025
    assert [p.pid for p in busy.largest] == [12, 20, 40]


def test_waiting_for_a_cpu_is_a_share_of_the_time_between_two_readings(tmp_path: Path) -> None:
    first, last = readings(tmp_path)
    assert first.waited_ns is None, "a kernel without pressure"
    assert (unknown := busy_between(first, last, [10], tmp_path)) is not None and unknown.waited is None
    (tmp_path / "proc/pressure").mkdir()
    (tmp_path / "proc/pressure/cpu").write_text(
        "some avg10=1.00 avg60=2.00 avg300=3.00 total=750000\nfull total=9\n"
    )
    now = read(tmp_path)
    assert now.waited_ns == 750_000_000
    earlier = now._replace(at_ns=now.at_ns - 1_000_000_000, waited_ns=500_000_000)
    busy = busy_between(earlier, now, [10], tmp_path)
    assert busy is not None and busy.waited == 0.25


def test_only_the_lines_of_the_cpus_that_may_be_used_count(tmp_path: Path) -> None:
    root = tree(tmp_path, {12: stat("cc1", 1, 1)}, ("cpu0 1 0 2 9 9 4 8 5 0 0", "cpu7 10 0 20 0 0 0 0 6 0 0"))
    assert [(r.busy_ns, r.steal_ns, r.cpus) for r in (read(root, {0}), read(root, {7}), read(root))] == [
        (15 * TICK, 5 * TICK, 1),
        (30 * TICK, 6 * TICK, 1),
        (45 * TICK, 11 * TICK, 2),
    ]
    assert [read(root, cpus).all_cpus for cpus in ({0}, {0, 7}, set())] == [False, True, True]
    assert read(root, {99}).cpus == 2, "a container that numbers its CPUs in its own way"


def test_without_the_machines_figures_nothing_is_concluded(tmp_path: Path) -> None:
    for content in (None, "", "cpu 1 2 3\n", "cpu0 1 2 3\n"):
        if content is not None:
            (tmp_path / "proc").mkdir(exist_ok=True)
            (tmp_path / "proc/stat").write_text(content)
        reading = read(tmp_path)
        assert reading.busy_ns is None
        assert busy_between(reading, reading._replace(at_ns=reading.at_ns + 1), [1], tmp_path) is None


def test_a_reading_that_takes_too_long_ends_and_says_so() -> None:
    whole, part = read(), read(most_ns=0)
    assert whole.whole
    assert not part.whole
    assert len(part.processes) < len(whole.processes)


def test_other_pid_namespaces_and_hidden_processes_are_named(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    own = tmp_path / "proc/self"
    (own / "ns").mkdir(parents=True)
    assert cpu_use.hidden(tmp_path) == ""
    (own / "ns/pid").symlink_to("pid:[4026531836]")
    (own / "mountinfo").write_text("22 1 0:21 / /proc rw - proc proc rw,hidepid=invisible\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "hidepid=invisible" in cpu_use.hidden(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cpu_use.hidden(tmp_path) == "", "root sees all"
    (own / "ns/pid").unlink()
    (own / "ns/pid").symlink_to("pid:[4026532177]")
    assert "outside of this container" in cpu_use.hidden(tmp_path)


def test_a_busy_process_of_this_machine_is_seen_with_its_user_and_without_its_arguments() -> None:
    code = "import sys\nprint(1, flush=True)\nwhile True: pass"
    with subprocess.Popen(
        [sys.executable, "-c", code, "--password=secret"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            first = read()
            own = next(p for i, p in first.processes.items() if i.pid == process.pid)
            while True:  # until it has used a tick, however busy the machine is
                time.sleep(0.05)
                last = read()
                identity = next(i for i in last.processes if i.pid == process.pid)
                if last.processes[identity].own_ns > own.own_ns:
                    break
            use = next(p for p in named(last, others(used(first, last), frozenset())) if p.pid == process.pid)
        finally:
            process.kill()
    assert use.cpu_ns == last.processes[identity].own_ns - own.own_ns
    assert "secret" not in repr(use)
    assert use.user
    assert os.getpid() in below(last.processes, [os.getppid()])
