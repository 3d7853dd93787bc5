"""What the figures depend on: the machine, the versions, the server's settings."""

import importlib.metadata
import os
import platform
from pathlib import Path

import psycopg

# Paths, names and languages of the machine at hand, which say nothing about speed.
_LEFT_OUT = (
    *("%directory%", "%file%", "%directories%", "application_name", "unix_socket%", "listen_addresses", "port"),
    *("lc_%", "DateStyle", "%timezone", "TimeZone", "default_text_search_config"),
)
_PACKAGES = ("numpy", "psycopg", "faiss-cpu", "gaoya", "simhash")

Environment = dict[str, str]


def describe_machine() -> Environment:
    """Return what every figure depends on: name and value, in the order in which they are printed."""
    found = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def describe_server(connection: psycopg.Connection) -> Environment:
    """Return what figures of searches depend on besides."""
    found = {"PostgreSQL": _value(connection, "SHOW server_version")}
    found["simsql schema"] = _value(connection, "SELECT simsql.version()")
    found["settings"] = ", ".join(
        f"{name} = {value}"
        for name, value in connection.execute(
            "SELECT name, current_setting(name) FROM pg_settings"
            " WHERE source NOT IN ('default', 'override', 'session', 'client')"
            " AND name NOT LIKE ALL (%s) ORDER BY name",
            [list(_LEFT_OUT)],
        )
    )
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        found[name] = _value(connection, f"SHOW {name}")
    return found


def _value(connection: psycopg.Connection, statement: str) -> str:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return str(row[0])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
