"""The options of the driver for sending calls, and the scripts of these calls."""

from __future__ import annotations

from pydantic import Field, model_validator

from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.literals import Protocol as Protocol
from dbdyno.model.plan.pacing import Strict

MOST = 2**31 - 1
"""Maximum of tries, weights and the scale, as in pgbench."""
MOST_SCRIPTS = 100
"""Maximum number of scripts of an experiment or a variant."""
MAX_VARIANTS = 1000
"""Maximum number of variants, combinations of parameters, phases, and processes observed by pid."""
MOST_SERVER_TEXT = 4096
"""Maximum length of the text that names a variant's server, as of a path."""
MOST_NAMES = 1000
"""Maximum number of variables, parameters or settings."""


class DriverSpec(Strict):
    """How the driver sends calls. Left out: the default (in a variant: as the experiment says)."""

    protocol: Protocol | None = flagged("driver.protocol")
    """prepared (once a session, the default), extended (parsed with each call), or simple queries."""
    pipeline: bool | None = None
    """All statements of a call in one go: one round trip."""
    validation: str | None = None
    """A statement sent before each statement of the call, such as SELECT 1; empty: none."""
    think: str | None = None
    """Pause from the end of a call to the session's next: 10ms, exponential 10ms, or uniform 5ms 15ms."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Threads of the driver; at most one a session is of use."""
    rounds: bool | None = None
    """All sessions begin a call together, and the next when all have ended. Each call is kept."""
    max_tries: int | None = flagged("driver.max_tries", le=MOST)
    """A call of a script that fails by a serialization failure or deadlock is tried so often in all; 0: until
    it succeeds or the measurement ends."""
    reconnect: bool | None = flagged("driver.reconnect")
    """Scripts only: a new connection for each call."""
    allow_shell: bool | None = flagged("driver.allow_shell")
    """Scripts may run shell commands on this machine: \\shell, \\setshell."""


class DriverSetup(Strict):
    """The resolved options of the driver for the calls of a cell."""

    protocol: Protocol = "prepared"
    pipeline: bool = False
    validation: str | None = None
    threads: int | None = None
    rounds: bool = False
    max_tries: int = 1
    reconnect: bool = False
    allow_shell: bool = False

    @classmethod
    def of(cls, spec: DriverSpec) -> DriverSetup:
        """Returns the options with defaults filled in."""
        return cls(
            protocol=spec.protocol or "prepared",
            pipeline=bool(spec.pipeline),
            validation=spec.validation or None,
            threads=spec.threads,
            rounds=bool(spec.rounds),
            max_tries=1 if spec.max_tries is None else spec.max_tries,
            reconnect=bool(spec.reconnect),
            allow_shell=bool(spec.allow_shell),
        )

    def words(self) -> list[str]:
        """Returns the options that differ from the default, in a few words each."""
        parts = [str(self.protocol)] if self.protocol != "prepared" else []
        parts += ["pipelined"] if self.pipeline else []
        parts += [f"validated by {self.validation}"] if self.validation else []
        parts += [f"{self.threads} driver thread(s)"] if self.threads else []
        parts += ["in rounds"] if self.rounds else []
        parts += [f"up to {self.max_tries or 'any number of'} tries"] if self.max_tries != 1 else []
        parts += ["a connection for each call"] if self.reconnect else []
        return [*parts, *(["shell commands allowed"] if self.allow_shell else [])]


class ScriptSpec(Strict):
    """A script of a mix: a file, or one that comes with the engine."""

    file: str | None = None
    """SQL file, relative to the recipe."""
    builtin: str | None = None
    """A script that comes with the engine: tpcb-like, simple-update, select-only; a unique prefix will do."""
    weight: int = Field(default=1, ge=0, le=MOST)
    """How often it is chosen, relative to the others; 0: never."""

    @model_validator(mode="after")
    def _one(self) -> ScriptSpec:
        if (self.file is None) == (self.builtin is None):
            raise ValueError("a script is either a file or a builtin")
        return self


class PlannedScript(Strict):
    """A script with its text."""

    name: str  # the file's, or the builtin's
    text: str
    weight: int = 1
    builtin: bool = False
