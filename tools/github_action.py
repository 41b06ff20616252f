#!/usr/bin/env python3
"""The steps of the GitHub Action in action.yml: ``install`` and ``measure``.

It needs the standard library only, since it installs dbdyno. Whatever a workflow says comes by environment
variables, INPUT_RUN for the input ``run``, and never within the text of a shell. Files of the runner
(GITHUB_OUTPUT, GITHUB_STEP_SUMMARY, GITHUB_PATH) may be missing: then nothing is written there, and a step
can be tried anywhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

SUMMARY_BYTES = 1_000_000
"""A job's summary may have 1 MiB."""
MODES = ("baseline", "refs")
FILES = (".whl", ".tar.gz", ".zip")
"""Endings of packages that are files: wheels, and sources that pip builds."""
LONGEST_NAME = 60
"""Characters of a run's name."""


_WHOLE = "all of it: "
_WHERE = f"{_WHOLE}the summary of this job"
"""In place of a command or a file of the runner, which is gone when the log is read."""


class Fault(Exception):
    """What the user has to correct, with the exit code of the step."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def given(name: str, default: str = "") -> str:
    """Returns an input of the action, without blanks around it."""
    return os.environ.get(f"INPUT_{name.upper().replace('-', '_')}", "").strip() or default


def given_words(name: str) -> list[str]:
    """Returns the words of an input as a shell splits them. Raises Fault if a quote is open."""
    try:
        return shlex.split(given(name), comments=True)
    except ValueError as error:
        raise Fault(f"input {name}: {str(error).lower()} in {given(name)!r}") from None


def given_boolean(name: str) -> bool:
    """Returns a boolean input. Raises Fault for any word but true and false."""
    word = given(name, "false").lower()
    if word not in ("true", "false"):
        raise Fault(f"input {name}: {given(name)!r} is neither true nor false")
    return word == "true"


def append(file: str, text: str) -> None:
    """Appends to a file of the runner, which an environment variable names."""
    if path := os.environ.get(file):
        with Path(path).open("a", encoding="utf-8") as opened:
            opened.write(text)


def output(name: str, value: object) -> None:
    """Sets an output of the step. A value of several lines could set others, and is refused."""
    text = str(value)
    if "\n" in text or "\r" in text:
        raise Fault(f"the output {name} would have several lines: {text!r}")
    append("GITHUB_OUTPUT", f"{name}={text}\n")


def annotate(kind: str, message: str) -> None:
    """Prints a remark that GitHub shows beside the job. Its characters must not be read as a command."""
    text = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{kind} title=dbdyno::{text}", flush=True)


# -- install --


def install() -> None:
    """Installs dbdyno into an environment of its own, whose programs later steps find."""
    folder = Path(os.environ.get("RUNNER_TEMP", ".")).absolute() / "dbdyno"
    venv.create(folder, with_pip=True)
    package = given("package")
    if not package or package.startswith("-"):
        raise Fault(f"package {package!r} is neither a wheel nor a requirement")
    file, bracket, extras = package.partition("[") if package.endswith("]") else (package, "", "")
    if file.endswith(FILES) and "://" not in file:
        path = Path(file)
        files = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if len(files) != 1:
            raise Fault(f"package {package!r}: {len(files)} such files here")
        package = f"{files[0].absolute()}{bracket}{extras}"
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--", package], check=False).returncode:
        raise Fault(f"pip cannot install {package!r}")
    append("GITHUB_PATH", f"{folder / 'bin'}\n")


# -- measure --


class Measure:
    """Measures the two sides, compares them, and says how it ended."""

    def __init__(self) -> None:
        self.workspace = Path(os.environ.get("GITHUB_WORKSPACE", ".")).absolute()
        self.temporary = Path(os.environ.get("RUNNER_TEMP", self.workspace)).absolute()
        self.store = self._store()
        self.program = os.environ.get("DBDYNO_PROGRAM", "dbdyno")
        self.mode = given("mode", MODES[0])
        if self.mode not in MODES:
            raise Fault(f"mode {self.mode!r}: it is {' or '.join(MODES)}")
        self.required = given_boolean("require-baseline")
        self.run_words = given_words("run")
        if not self.run_words:
            raise Fault("run is empty: give the words of dbdyno run, as in lio --sessions 1,8 --repeats 5")
        lines = [line.strip() for line in given("fail-on").splitlines()]
        rules = [word for line in lines if line for word in ("--fail-on", line)]
        self.names: list[str] = []
        self.compare_words = [*given_words("compare"), *rules]

    def _store(self) -> Path:
        """Returns the folder of the runs. Raises Fault if it is not within the workspace, links followed."""
        store = self.workspace / given("store", ".dbdyno")
        if self.workspace.resolve() not in store.resolve().parents:
            raise Fault(f"input store: {given('store')!r} is not a folder within the workspace")
        return store

    def dbdyno(
        self, *words: str, cwd: Path | None = None, quiet: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs dbdyno with the store of this action. What is not captured goes to the log."""
        env = {**os.environ, "DBDYNO_STORE": str(self.store)}
        sys.stdout.flush()
        return subprocess.run(
            [self.program, *words],
            cwd=cwd or self.workspace,
            env=env,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            check=False,
        )

    def check_rules(self) -> None:
        """Raises Fault for words of compare that are wrong, before anything is measured: they are read before
        the runs, and there are none of these names."""
        done = self.dbdyno("compare", "no-such-run", "nor-such-a-run", *self.compare_words, quiet=True)
        if done.returncode != 4:  # the store has no such run
            raise Fault(done.stderr.strip(), done.returncode)

    def stored(self, run: str) -> tuple[str, str] | None:
        """Returns id and name of a stored run; None if there is none. Raises Fault for any other error."""
        done = self.dbdyno("show", "--claims", "--json", "--", run, quiet=True)
        if done.returncode == 4:  # the store has no such run
            return None
        if done.returncode:
            raise Fault(f"dbdyno show {run}: {done.stderr.strip()}", done.returncode)
        info = json.loads(done.stdout)["run"]
        return str(info["id"]), str(info.get("name") or "")

    def words_in(self, tree: Path) -> list[str]:
        return [w.replace("{tree}", str(tree)) for w in self.run_words]

    def check_run(self, tree: Path, side: str) -> None:
        """Raises Fault for words of run, or a recipe, that are wrong, before anything is built. A file that
        is missing may be one that the build makes, and the server one that it starts."""
        places = [w.split("=")[-1] for w in self.words_in(tree) if str(tree) in w]
        if given("build") and not all(Path(place).exists() for place in places):
            return
        done = self.dbdyno("run", *self.words_in(tree), "--dry-run", cwd=tree, quiet=True)
        if done.returncode == 2:
            raise Fault(f"dbdyno run of {side}, exit code 2: {done.stderr.strip()}")

    def measured(self, tree: Path, side: str, name: str) -> str:
        """Builds what is measured in ``tree``, measures it, and returns the id of the run. ``name`` is that
        of the run unless the words of run have one."""
        env = {**os.environ, "DBDYNO_TREE": str(tree), "DBDYNO_SIDE": side}
        if build := given("build"):
            self._shell("build", build, tree, env)
        try:
            named = any(w == "--name" or w.startswith("--name=") for w in self.run_words)
            words = [] if named or not name else ["--name", name]
            tag = ("--tag", f"action-{side}")
            done = self.dbdyno("run", *self.words_in(tree), *words, *tag, cwd=tree)
            if done.returncode:
                raise Fault(f"dbdyno run of {side} failed with exit code {done.returncode}", done.returncode)
        finally:
            if stop := given("stop"):
                self._shell("stop", stop, tree, env)
        if (run := self.stored("last")) is None:
            raise Fault(f"the run of {side} is not in {self.store}", 4)
        return run[0]

    def _shell(self, name: str, command: str, tree: Path, env: dict[str, str]) -> None:
        sys.stdout.flush()
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=tree, env=env, check=False)
        if done.returncode:
            raise Fault(f"{name} in {tree} failed with exit code {done.returncode}")

    def sides(self) -> tuple[str | None, str]:
        """Returns the ids of the two runs; the first is None if there is no baseline yet."""
        self.store.mkdir(parents=True, exist_ok=True)
        if self.mode == "baseline":
            baseline = self.stored(given("baseline", "last"))
            if baseline is None and self.required:
                raise Fault(f"no baseline {given('baseline', 'last')} in {self.store}", 4)
            self.check_run(self.workspace, "head")
            name = name_of(own_ref(), self._git("rev-parse", "HEAD") or "")
            self.names = [(baseline or ("", ""))[1], name]
            return baseline[0] if baseline else None, self.measured(self.workspace, "head", name)
        trees: list[Path] = []
        try:
            for side, ref in (("base", given("base")), ("head", given("head", "HEAD"))):
                commit = self._commit(ref, side)
                self.names.append(name_of(own_ref() if ref == "HEAD" else ref, commit))
                trees.append(self._tree(commit, side))
            for tree, side in zip(trees, ("base", "head"), strict=True):
                self.check_run(tree, side)
            base, head = (
                self.measured(*each) for each in zip(trees, ("base", "head"), self.names, strict=True)
            )
        finally:
            for tree in trees:
                self._git("worktree", "remove", "--force", str(tree))
        return base, head

    def _commit(self, ref: str, side: str) -> str:
        """Returns the commit of a ref, of the remote if there is none here."""
        if not ref:
            raise Fault(f"mode refs: {side} is empty")
        for name in (ref, f"origin/{ref}"):
            commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            if commit is not None:
                return commit
        raise Fault(f"no ref {ref!r} here: does actions/checkout have fetch-depth: 0?")

    def _tree(self, commit: str, side: str) -> Path:
        """Returns a folder with the files of a commit."""
        tree = self.temporary / f"dbdyno-{side}-{os.getpid()}"
        if self._git("worktree", "add", "--detach", str(tree), commit) is None:
            raise Fault(f"git cannot check out {commit} at {tree}")
        return tree

    def _git(self, *words: str) -> str | None:
        done = subprocess.run(
            ["git", *words], cwd=self.workspace, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def compared(self, base: str, head: str) -> int:
        """Compares the runs, writes summary and outputs, and returns the exit code."""
        page, markdown = self.store / "comparison.html", self.temporary / "dbdyno-comparison.md"
        words = ("compare", base, head, *self.compare_words)
        done = self.dbdyno(*words, "--json", "-o", str(markdown), quiet=True)
        print(re.sub(rf"^{_WHOLE}.*", _WHERE, done.stderr, flags=re.MULTILINE), end="", flush=True)
        if done.returncode not in (0, 7):
            raise Fault(
                f"dbdyno compare, exit code {done.returncode}: {done.stderr.strip()}", done.returncode
            )
        gate = json.loads(done.stdout).get("gate", {"verdict": "passed", "summary": []})
        self.dbdyno(*words, "-o", str(page), quiet=True)
        sides = zip(("A is the base", "B is the head"), self.names, (base, head), strict=True)
        which = "; ".join(f"{side}, {named(name, run)}" for side, name, run in sides)
        append("GITHUB_STEP_SUMMARY", limited(f"{which}.\n\n{markdown.read_text(encoding='utf-8')}"))
        output("report", page)
        output("verdict", gate["verdict"])
        lines = [_WHERE if line.startswith(_WHOLE) else line for line in gate["summary"]]
        if gate["verdict"] == "failed":
            annotate("error", "\n".join(lines))
        elif gate["verdict"] == "cannot tell":
            annotate("warning", "\n".join(lines))
        return done.returncode

    def all(self) -> int:
        """Measures and compares, and returns the exit code of the step."""
        output("store", self.store)
        self.check_rules()
        base, head = self.sides()
        output("head-run", head)
        output("base-run", base or "")
        if base is None:
            text = f"There is no baseline in {self.store} yet: run {head} is the first."
            annotate("warning", text)
            append("GITHUB_STEP_SUMMARY", f"{text}\n")
            output("verdict", "no baseline")
            return 0
        return self.compared(base, head)


def named(name: str, run: str) -> str:
    """Returns a run's name with its id: `` `main@3f9a1c2` (run 20261130-...)``; ``run ID`` without a name."""
    return f"`{name.replace('`', '')}` (run {run})" if name else f"run {run}"


def own_ref() -> str:
    """Returns the branch of a request, or the ref that is built; "" outside of GitHub."""
    return os.environ.get("GITHUB_HEAD_REF") or os.environ.get("GITHUB_REF_NAME", "")


def name_of(ref: str, commit: str) -> str:
    """Returns ``main@3f9a1c2``, or the commit alone if a run cannot have the ref in its name."""
    text = f"{ref}@{commit[:10]}" if ref and commit else ref or commit[:10]
    return text if len(text) <= LONGEST_NAME and "~" not in text and ref != "last" else commit[:10]


def limited(text: str) -> str:
    """Returns the text as far as a summary may be long."""
    raw = text.encode()
    if len(raw) <= SUMMARY_BYTES:
        return f"{text}\n"
    return f"{raw[:SUMMARY_BYTES].decode(errors='ignore')}\n\n(cut off; the report has all of it)\n"


def main(words: list[str]) -> int:
    try:
        if words == ["install"]:
            install()
            return 0
        if words == ["measure"]:
            return Measure().all()
        raise Fault("install or measure")
    except Fault as fault:
        annotate("error", str(fault))
        append("GITHUB_STEP_SUMMARY", f"```\n{str(fault).replace('```', '')}\n```\n")
        return fault.code
    except OSError as error:  # a program that is not installed, a folder that cannot be written
        annotate("error", str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
