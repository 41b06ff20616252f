"""Scripts as they are common in the field, and retries, against pgbench with the same text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.driving import start, tables
from tests.db.pgbench import program
from tests.db.test_script_sessions import _ask, _errors, _load, _run

if TYPE_CHECKING:
    from tests.conftest import Servers

pytestmark = pytest.mark.db

FIELD = """\\set a 1 + \\\r
   2\r
\t\\set b :a * 2\r
/* nested /* ; ' */ " */ insert into seen values ('[1:2] ' || (array[1,2,3])[1:2]::text);\r
insert into seen values ('cast ' || :a::int::text || E' it\\'s; ' || $q$ d;q $q$ || '12:34:56'::time::text);
do $$ begin insert into seen values ('a;b'); perform 1; end $$;
select :b::int as b, null::int as nothing, 'x y' as "T" \\gset p_
\\if :p_b > 5 and not :p_b is null
insert into seen values ('b ' || :p_b::text)
\\elif 1 / 0
select 1 / 0;
\\else
select 1 / 0;
\\endif
\\if false
\\if 1 / 0
\\endif
\\endif
create or replace function pg_temp.f(x int) returns int language sql as 'select case when x > 0 then 1 end';
insert into seen values (pg_temp.f(x := :a::int)::text || :größe::text);
\\sleep :b us
\\sleep 1ms
insert into seen values ('last')"""
PIPELINE = """\\startpipeline
insert into seen values ('p1 ' || :größe::text);
\\set größe :größe + 1
insert into seen values ('p2 ' || :größe::text);
\\endpipeline
"""
COMPOUND = """select 1 as a \\; select 2 as two, 3 as three \\gset p_
\\set x :p_two + :p_three
insert into seen values (':x') \\; insert into seen values (':unset');
select generate_series(1, 3) as last \\; select 7 as seven \\aset
insert into seen values ('":last" :seven');
"""


@pytest.mark.parametrize(
    ("version", "protocol", "text"),
    [
        (14, "prepared", FIELD),
        (15, "extended", PIPELINE),
        (16, "simple", FIELD),
        (17, "extended", FIELD),
        (17, "prepared", PIPELINE),
        (18, "simple", COMPOUND),
    ],
)
def test_scripts_of_the_field_write_what_they_write_under_pgbench(
    servers: Servers, tmp_path: Path, version: int, protocol: str, text: str
) -> None:
    dsn = str(servers.dsn(version))
    fresh, look = "drop table if exists seen; create table seen (v text)", "select v from seen"
    _ask(dsn, fresh)
    assert _errors(_run(dsn, text, protocol=protocol, calls=2, variables={"größe": "5"})) == []
    ours = _ask(dsn, look)
    _ask(dsn, fresh)
    script = tmp_path / "field.sql"
    script.write_text(text, encoding="utf-8", newline="")
    words = ["-n", "-M", protocol, "-D", "größe=5", "-f", str(script), "-t", "2", dsn]
    subprocess.run([program(), *words], check=True, capture_output=True)
    assert ours == _ask(dsn, look) and len(ours) > 3


EACH_THIRD = """do $$ begin
if nextval('tries') % 3 <> 0 then raise serialization_failure; end if;
end $$;
"""


@pytest.mark.parametrize("protocol", ["simple", "prepared"])
@pytest.mark.parametrize("tries", [1, 2, 3, 4])
def test_retries_and_failures_are_counted_as_pgbench_counts_them(
    servers: Servers, tmp_path: Path, tries: int, protocol: str
) -> None:
    """A sequence is not rolled back, so it is certain which tries fail."""
    dsn = str(servers.dsn(15))
    fresh = "drop sequence if exists tries; create sequence tries"
    _ask(dsn, fresh)
    result = _run(dsn, EACH_THIRD, protocol=protocol, calls=6, max_tries=tries)
    (row,) = result["scripts"].rows(named=True)
    _ask(dsn, fresh)
    script = tmp_path / "third.sql"
    script.write_text(EACH_THIRD)
    words = ["-n", "-M", protocol, "-f", str(script), "-t", "6", f"--max-tries={tries}", dsn]
    output = subprocess.run([program(), *words], check=True, capture_output=True, text=True).stdout
    names = {"failed transactions": "errors", "transactions retried": "retried", "retries": "retries"}
    theirs = {
        ours: int(number[1])
        for words, ours in names.items()
        if (number := re.search(rf"number of {words}: (\d+)", output))
    }
    assert theirs["errors"] > 0 or tries > 2
    assert {name: row[name] for name in theirs} == theirs, output


def test_tries_without_a_limit_end_with_the_window(servers: Servers) -> None:
    text = "do $$ begin perform pg_sleep(0.002); raise deadlock_detected; end $$;"
    load = _load(str(servers.dsn(18)), text, calls=None, max_tries=0)
    start(load, 0.3)
    result = tables(load)
    ((code, _),) = _errors(result)
    assert code == "40P01" and result["scripts"]["retries"].sum() > 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select 1 \\gset", "is no name for a variable: SELECT ... AS name"),
        ("select generate_series(1, 2) as a \\gset", "needs exactly one row, the statement returned 2"),
        ("\\set t null\n\\sleep :t us", "variable :t"),
    ],
)
def test_what_pgbench_refuses_at_run_time_is_an_error(
    servers: Servers, tmp_path: Path, text: str, words: str
) -> None:
    dsn = str(servers.dsn(18))
    ((code, message),) = _errors(_run(dsn, text))
    assert code == "-----" and words in message
    script = tmp_path / "wrong.sql"
    script.write_text(text)
    done = subprocess.run(
        [program(), "-n", "-f", str(script), "-t", "1", dsn], check=False, capture_output=True
    )
    assert done.returncode == 2
