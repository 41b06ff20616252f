"""Room ``store``: the only room that reads and writes files of runs, one directory per run.

Raw tables are saved as Parquet after each cell.

::

    ROOT/                              $XDG_DATA_HOME/dbdyno, else ~/.local/share/dbdyno (mode 0700)
      .index.json                      outline of each run for lists; can be rebuilt
      .call-sizes.json                 calibrated sizes of calls
      .noise.json                      measured noise of machines and servers
      20261121-104501-lio-3f9a/        a run
        run.json  plan.json  environment.json
        cells/0003-lio-base-s4-r1/     a cell, written atomically
          manifest.json  cell.json  sessions.parquet  samples.parquet  ...
        parts/0003-lio-base-s4-r1/     tables derived of that cell, or of several from it on
          manifest.json  part.json  ledger.parquet  ledger.sessions.parquet  ...
        derived/                       tables of all cells; can be rebuilt, as parts can
          manifest.json  windows.parquet  rates.parquet  ...  findings.json  conclusions.json
        document.json                  the output of ``show``, built from these
        live.json  .watched            while it goes on: its progress; when somebody last looked at it
        snapshots/                     of the server, at both ends of each measurement
        triggers/0001.json             an action of a trigger that fired
        captures/                      captures of such actions, each a run
      snapshots/                       snapshots that the user took
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.store.files import parquet
    from dbdyno.store.fired import read_fired, write_fired
    from dbdyno.store.journal import FileJournal, LeftOver, left_over
    from dbdyno.store.listing import Listed, default_root, keep_shown, read_shown
    from dbdyno.store.overview import find_group, find_run
    from dbdyno.store.parts import Derived, Parts, conformed, finite
    from dbdyno.store.run import DamagedCell, Run
    from dbdyno.store.runs import RunStore
    from dbdyno.store.snapshots import SnapshotStore
    from dbdyno.store.suites import find_suite, remember_suite, suite_by_id, suite_records

lazy(__name__)
