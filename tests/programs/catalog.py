"""What is run: one file per program in workloads/, which says in its first lines what it needs and how it is started.

A line such as `# needs: redis-server` (after any comment sign) is a header; headers end at the first line that is none.

  row NAME: COMMAND   a row of the table; a file can have several
  needs: PROGRAM …    programs, `python:MODULE` or `file:PATH`, without which the rows are not tested
  build: COMMAND      run once beforehand, in the directory {build}
  users: USER …       root, user (an ordinary one); both where nothing is said
  expect: refused     `run` must refuse it with status 126
  known USER/FAULT: OUTCOME, why   what is known not to work, so that the check does not fail over it
  short:              belongs to the short form

COMMAND and {file}, {build}: a shell line, the workload, the directory with what was built. The working directory is an
empty one. What a workload prints must be the same in every run.
"""
import dataclasses
import os
import re
import shutil
import subprocess

WORKLOADS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workloads")
HEADER = re.compile(r"^(?:#|//|--|;+|%)?\s*(row [^:]+|needs|build|users|expect|known [^:]+|short):\s*(.*)$")
# Python modules do not come from the distribution: a virtual environment has them.
PYTHON = os.environ.get("USERSWAP_PROGRAMS_PYTHON", "python3")
# Where programs of servers are that no ordinary user's PATH has.
SERVER_PATHS = ["/usr/sbin", "/sbin", "/usr/local/sbin", *(
    f"/usr/lib/postgresql/{version}/bin" for version in range(20, 11, -1))]


@dataclasses.dataclass
class Workload:
    """A file of workloads/."""
    file: str
    rows: list = dataclasses.field(default_factory=list)
    needs: list = dataclasses.field(default_factory=list)
    build: str = ""
    users: list = dataclasses.field(default_factory=lambda: ["root", "user"])
    refused: bool = False
    known: dict = dataclasses.field(default_factory=dict)
    short: bool = False


@dataclasses.dataclass
class Row:
    """A program, or one way to start it."""
    name: str
    command: str
    workload: Workload

    def shell_line(self, build):
        line = self.command.replace("{file}", self.workload.file).replace("{build}", build)
        return line.replace("{python}", PYTHON)


def read(path):
    workload = Workload(path)
    with open(path, encoding="utf-8") as text:
        for line in text:
            if line.startswith("#!"):
                continue
            header = HEADER.match(line.strip())
            if not header:
                break
            add(workload, header[1], header[2].strip())
    if not workload.rows:
        raise SystemExit(f"{path}: has no row: begin it with a line \"# row NAME: COMMAND\"")
    return workload


def add(workload, key, value):
    if key.startswith("row "):
        workload.rows.append(Row(key[4:], value, workload))
    elif key.startswith("known "):
        workload.known[key[6:]] = value
    elif key == "needs":
        workload.needs += value.split()
    elif key == "users":
        workload.users = value.split()
    elif key == "build":
        workload.build = value
    elif key == "expect":
        workload.refused = value == "refused"
    elif key == "short":
        workload.short = True


def all_rows():
    """Every row, in the order of the files' names."""
    files = sorted(os.listdir(WORKLOADS))
    return [row for name in files for row in read(os.path.join(WORKLOADS, name)).rows]


def search_path():
    return os.pathsep.join([os.environ.get("PATH", "/usr/bin:/bin"), *SERVER_PATHS])


def missing(workload):
    """What the workload needs and this machine does not have."""
    return [need for need in workload.needs if not exists(need)]


def exists(need):
    kind, _, name = need.partition(":")
    if kind == "python" and name:
        found = subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True, check=False)
        return found.returncode == 0
    if kind == "file" and name:
        return os.path.exists(name)
    return shutil.which(need, path=search_path()) is not None


def prepare(workload, directory):
    """Builds what the workload runs; what the compiler says if it cannot."""
    os.makedirs(directory, exist_ok=True)
    if not workload.build:
        return None
    line = workload.build.replace("{file}", workload.file).replace("{build}", directory)
    done = subprocess.run(["bash", "-ec", line], cwd=directory, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()[-300:]
