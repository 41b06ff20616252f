"""Conditions of machine and server that spoil measurements, judged on recorded machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.observe_trees import unpack

from dbdyno.cli.doctor import check_lines
from dbdyno.conclude.machines import conditions as machine
from dbdyno.conclude.machines.conditions import JUDGES, machine_conditions
from dbdyno.conclude.run.quality import STEAL
from dbdyno.engines.postgres import conditions as postgres
from dbdyno.model.engine.condition import Condition, DirectFiles, ServerConditions
from dbdyno.model.engine.machine_facts import Busy, Flush, MachineFacts, ProcessUse, Steal
from dbdyno.model.schema.data_source import Step
from dbdyno.observe import flush_probe
from dbdyno.observe.conditions import clock_ns, machine_facts, shm_mount, steal
from dbdyno.observe.flush import mounted_at

GB = 1 << 30
SERVER = ServerConditions(
    direct_io=False,
    direct_setting="direct = off",
    shared_bytes=2 * GB,
    sessions=100,
    processes=140,
    huge_pages="try",
    huge_pages_needed=1100,
    shm_mount_bytes=24 << 20,
)


def conditions_of(
    facts: MachineFacts | None, server: ServerConditions | None = SERVER
) -> dict[str, Condition]:
    return {c.id: c for c in machine_conditions(facts, server, "it is elsewhere")}


def states(conditions: dict[str, Condition], *ids: str) -> list[str]:
    return [conditions[id].state for id in ids]


def test_a_machine_as_a_distribution_may_leave_it_has_twelve_checks_that_ask(tmp_path: Path) -> None:
    conditions = conditions_of(machine_facts(100, None, unpack("conditions-numa", tmp_path)))
    asking = {id: c.state for id, c in conditions.items() if c.asks}
    assert asking == {
        "clock-source": "worth a look",
        "huge-pages": "worth a look",
        "transparent-huge-pages": "worth a look",
        "swappiness": "worth a look",
        "overcommit": "worth a look",
        "cpu-governor": "worth a look",
        "numa-balancing": "worth a look",
        "zone-reclaim": "worth a look",
        "cpu-limit": "worth a look",
        "memory-limit": "bad",
        "process-limit": "bad",
        "steal": "bad",
    }
    assert all(conditions[id].why and conditions[id].cure for id in asking)
    assert conditions["cpu-governor"].value == "performance on 2 CPUs, powersave on 2 CPUs"
    assert conditions["cpu-limit"].value == "2 of 4 CPUs (/sys/fs/cgroup/system.slice/db.service)"
    assert conditions["huge-pages"].steps[0] == Step("sysctl -w vm.nr_hugepages=1100", "root")
    assert conditions["process-limit"].value.startswith("64 (")
    assert "140" in conditions["process-limit"].cure
    assert conditions["steal"].value == "8.0 % since boot"
    assert conditions["shared-memory-mount"].value.startswith("32.0 GiB")


def test_a_small_shared_memory_mount_of_a_container_asks_for_a_larger_one(tmp_path: Path) -> None:
    facts = machine_facts(1, None, unpack("conditions-container", tmp_path))
    assert (facts.shm_mount_bytes, facts.huge_mapped, facts.run_delay) == (64 << 20, True, False)
    conditions = conditions_of(facts)
    assert states(conditions, "shared-memory-mount", "run-queue-time") == ["worth a look", "bad"]
    assert states(conditions, "huge-pages", "swappiness", "steal", "clock-source") == ["ok"] * 4
    assert (
        states(conditions, "cpu-governor", "numa-balancing", "transparent-huge-pages")
        == ["not supported"] * 3
    )
    assert "--shm-size=1g" in conditions["shared-memory-mount"].cure
    less = conditions_of(facts, replace(SERVER, shm_mount_bytes=65 << 20))["shared-memory-mount"]
    assert less.state == "bad"


def test_an_empty_machine_has_a_state_for_each_check(tmp_path: Path) -> None:
    for server in (SERVER, None, ServerConditions()):
        conditions = conditions_of(machine_facts(None, None, tmp_path), server)
        assert list(conditions) == list(JUDGES)
        assert all(c.value for c in conditions.values())
        assert not any(c.asks for c in conditions.values())


def test_another_hosts_conditions_are_remote_but_for_what_was_probed() -> None:
    assert {(c.state, c.value) for c in conditions_of(None).values()} == {("remote", "it is elsewhere")}
    probed = MachineFacts(flush=Flush("/mnt", "nfs4", "", "", 900_000.0, 10))
    conditions = {c.id: c for c in machine_conditions(None, SERVER, "it is elsewhere", probed=probed)}
    assert states(conditions, "flush", "swappiness") == ["ok", "remote"]


@pytest.mark.parametrize(
    ("asked", "files", "state"),
    [
        (False, DirectFiles(0, 12), "ok"),
        (True, DirectFiles(12, 12), "ok"),
        (True, DirectFiles(11, 12), "bad"),
        (True, DirectFiles(0, 12), "bad"),
        (False, DirectFiles(3, 12), "worth a look"),
        (None, DirectFiles(0, 12), "not supported"),
        (True, DirectFiles(None, None, "not permitted", "run as root"), "unknown"),
        (True, None, "unknown"),
    ],
)
def test_direct_io_is_judged_by_what_was_asked_and_by_the_open_files(
    asked: bool | None, files: DirectFiles | None, state: str
) -> None:
    condition = conditions_of(MachineFacts(direct=files), replace(SERVER, direct_io=asked))["direct-io"]
    assert condition.state == state
    if condition.asks:
        assert f"O_DIRECT seen on {files.direct} of 12 open data files" in condition.value  # type: ignore[union-attr]
        assert condition.cure.startswith("restart the server, so that it opens its files anew")


def test_direct_io_that_waits_for_a_restart_asks_for_one() -> None:
    server = replace(SERVER, direct_pending=True)
    condition = conditions_of(MachineFacts(direct=DirectFiles(0, 12)), server)["direct-io"]
    assert (condition.state, condition.steps) == ("worth a look", (Step("restart the server"),))


def test_the_clock_is_judged_by_the_faster_of_two_loops() -> None:
    facts = MachineFacts(clocksource="tsc", clock_ns=30.0, server_clock={"program": "722.43 ns a loop"})
    condition = conditions_of(facts)["clock-source"]
    assert condition.state == "ok", "the program counts what others used on a busy machine"
    assert condition.value == "tsc: 30 ns a read (dbdyno's own loop); 722 ns a read (the server's program)"
    assert conditions_of(replace(facts, clock_ns=700.0))["clock-source"].state == "bad"
    assert conditions_of(replace(facts, clock_ns=None))["clock-source"].state == "bad"
    assert (
        conditions_of(replace(facts, clock_ns=200.0, server_clock={}))["clock-source"].state == "worth a look"
    )
    backwards = replace(facts, server_clock={"program": "the clock goes backwards: no figure"})
    assert conditions_of(backwards)["clock-source"].state == "bad"
    assert 1 <= clock_ns() < 1e6


@pytest.mark.parametrize(
    ("probe", "state"),
    [
        (Flush("/d", "ext4", "vda", "write back", 900_000.0, 500), "ok"),
        (Flush("/d", "xfs", "nvme0n1", "write through", 15_000.0, 500), "worth a look"),
        (Flush("/d", "overlay", "", "", 3_000.0, 500), "bad"),
        (Flush("/d", "tmpfs", "", "", 30_000.0, 500), "bad"),
        (Flush("/d", "ext4", "sda", "write back", 900_000.0, 500, "nobarrier"), "bad"),
        (Flush("/d", "ext4", "", "", None, 0, trouble="cannot write in /d"), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_flush_that_is_faster_than_storage_can_be_is_bad(probe: Flush | None, state: str) -> None:
    assert conditions_of(MachineFacts(flush=probe))["flush"].state == state


def test_a_real_probe_leaves_nothing_behind(disk_path: Path) -> None:
    flush = flush_probe(disk_path)
    assert (flush.trouble, flush.writes > 0, list(disk_path.iterdir())) == ("", True, [])
    assert flush.file_system and flush.median_ns
    assert "cannot write" in flush_probe(disk_path / "missing").trouble


def test_the_mount_of_a_directory_is_the_longest_and_latest_one() -> None:
    mounts = (
        "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,barrier=0\n"
        "25 24 8:2 / /data\\040base rw - xfs /dev/sdb rw,nobarrier\n"
        "26 24 8:3 / /data\\040base rw - xfs /dev/sdc rw,attr2\n"
    )
    assert mounted_at(mounts, Path("/data base/18")) == ("xfs", "/dev/sdc", "rw,rw,attr2")
    assert mounted_at(mounts, Path("/other")) == ("ext4", "/dev/sda1", "rw,relatime,rw,barrier=0")
    assert mounted_at("", Path("/other")) == ("", "", "")


def test_the_size_of_the_shared_memory_mount_is_read_in_its_units() -> None:
    line = "25 24 0:22 / /dev/shm rw,nosuid shared:2 - tmpfs tmpfs rw,size={}\n"
    assert shm_mount(line.format("1g"), None) == GB
    assert shm_mount(line.format("64k") + line.format("2048"), 1) == 2048
    assert shm_mount("", 4 * GB) is None


def test_the_steal_of_a_look_decides_if_it_was_long_enough() -> None:
    before, now = "cpu  100 0 0 900 0 0 0 0 0 0\n", "cpu  150 0 0 940 0 0 0 10 0 0\n"
    figures = steal(before, now, 0.3)
    assert figures is not None
    assert (figures.since_boot, figures.now) == (pytest.approx(10 / 1100), pytest.approx(0.1))
    assert conditions_of(MachineFacts(steal=figures))["steal"].state == "ok"
    assert conditions_of(MachineFacts(steal=figures._replace(look_s=60)))["steal"].state == "bad"
    assert steal("", "cpu  1 2 3 4\n", 1) is None


def test_the_screen_answers_first_and_is_80_columns_wide(tmp_path: Path) -> None:
    conditions = tuple(conditions_of(machine_facts(100, None, unpack("conditions-numa", tmp_path))).values())
    lines = list(check_lines(conditions, everything=False))
    assert lines[0].startswith("12 of 20 checks need a look: memory limit of the server (bad), ")
    assert [line for line in lines if len(line) > 80] == []
    everything = list(check_lines(conditions, everything=True))
    assert any(line.startswith("direct I/O") and "unknown" in line for line in everything)
    good = tuple(c for c in conditions if not c.asks)
    assert next(iter(check_lines(good, everything=False))) == "None of 8 checks asks for a look."
    assert list(check_lines((), everything=True)) == []


# -- the registries ---------------------------------------------------------------------------------


def test_each_entry_has_a_judge_and_a_cure() -> None:
    of_machine, of_server = machine.registry(), postgres.registry()
    assert list(of_machine) == list(JUDGES)
    assert not set(of_machine) & set(of_server)
    for id, entry in {**of_machine, **of_server}.items():
        assert entry.why.endswith("."), id
        assert entry.cure or entry.commands or "good" in entry.rule or id in _CURED, id


_CURED = {"data-checksums", "threads-per-core", "kernel"}
"""They ask for nothing."""


def test_the_threshold_of_steal_is_that_of_a_run() -> None:
    assert machine.STEAL == STEAL


def test_a_busy_machine_asks_for_a_look_and_names_who_uses_it() -> None:
    use = ProcessUse(712, 1, "cc1", "build", 900_000_000, 0)
    make = ProcessUse(20, 1, "make", "", 300_000_000, 280_000_000)
    busy = Busy(
        others=1.3, cpus=4, steal=0.02, span_s=1.0, largest=(use, make), hidden="no others are visible"
    )
    condition = conditions_of(MachineFacts(busy=busy))["other-processes"]
    assert condition.state == "worth a look"
    for part in (
        "1.30 of 4 CPUs (32 %)",
        "steal 2.0 %",
        "cc1 (pid 712, build) 0.90",
        "no others are visible",
    ):
        assert part in condition.value
    assert "make (pid 20; with its ended children) 0.30" in condition.value
    assert "all others 0.10" in condition.value, "the figures add up"
    assert "--wait-quiet" in condition.cure
    quiet = conditions_of(MachineFacts(busy=busy._replace(others=0.19)))["other-processes"]
    assert (quiet.state, quiet.cure) == ("ok", "")
    assert conditions_of(MachineFacts())["other-processes"].state == "unknown"


@pytest.mark.parametrize("total", [1.0, 1.655, 3.999, 0.4])
def test_the_cpus_of_all_processes_add_up(total: float) -> None:
    uses = tuple(
        ProcessUse(n, 1, f"p{n}", "", ns, 0) for n, ns in enumerate((333_333_333, 66_666_667, 3_000_000))
    )
    busy = Busy(others=total, cpus=4, steal=0.0, span_s=1.0, largest=uses)
    parts = [float(part.split()[-1]) for part in busy.names.split(", ")]
    assert float(busy.words.split()[0]) == round(sum(parts), 2)
    assert "p2" not in busy.names, "it used less than a hundredth"
    assert "others" not in busy._replace(all_cpus=False).names, "its processes used other CPUs, too"


def test_steal_that_a_hypervisor_does_not_report_is_unknown() -> None:
    none = Steal(0.0, 0.0, 60.0)
    hidden = MachineFacts(steal=none, virtualisation="virtual machine (Hyper-V)")
    assert conditions_of(hidden)["steal"].state == "unknown"
    for virtualisation in (None, "virtual machine (KVM)"):
        assert conditions_of(MachineFacts(steal=none, virtualisation=virtualisation))["steal"].state == "ok"


@pytest.mark.parametrize(
    ("file", "value", "state", "off"),
    [
        ("intel_pstate/no_turbo", "0", "worth a look", "1"),
        ("intel_pstate/no_turbo", "1", "ok", ""),
        ("cpufreq/boost", "1", "worth a look", "0"),
        ("cpufreq/boost", "0", "ok", ""),
    ],
)
def test_boost_is_switched_off_by_the_file_that_the_machine_has(
    tmp_path: Path, file: str, value: str, state: str, off: str
) -> None:
    place = tmp_path / "sys/devices/system/cpu" / file
    place.parent.mkdir(parents=True)
    place.write_text(f"{value}\n")
    condition = conditions_of(machine_facts(None, None, tmp_path))["cpu-boost"]
    assert condition.state == state
    assert [s.command for s in condition.steps] == (
        [f"sh -c 'echo {off} > /sys/devices/system/cpu/{file}'"] if off else []
    )
