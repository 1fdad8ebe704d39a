"""Tiers of tests and what they may cost, and where their processes keep what they derive.

`fast` gives confidence within a minute; without `-m` comes all that is neither `thorough` nor `slow`. `.ci/run` runs
the `thorough` tests behind those; `slow` ones take hours in all.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import children

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".pytest_cache" / "kept"
DEFAULT = "not slow and not thorough"
# Each of xdist's workers has a folder of its own, as JAX writes compiled programs without regard to other processes.
CACHE = KEPT / os.environ.get("PYTEST_XDIST_WORKER", "alone")
# Seconds of a processor that the tests of a tier may use in all, by what is given as `-m`; where `TEST_BUDGET` is set,
# so many times that, or they fail. A third is room for busy machines, where a processor gets less done in a second.
# What makes a tier cost more must become cheaper, or go to the next one.
BUDGETS = {"fast": 75.0, DEFAULT: 600.0, "thorough": 1800.0}
# Files and folders of the tier `fast`, and what in them takes too long for it.
FAST = (
    "tests/dsl",
    "tests/models",
    "tests/server/api/test_api.py",
    "tests/server/engine/test_engine.py",
    "tests/server/engine/test_faults.py",
    "tests/test_docs.py",
    "tests/test_habits.py",
    "tests/test_imports.py",
)
NOT_FAST = (
    "tests/dsl/lsp",
    "tests/dsl/program/verify/test_mutants.py",
    "tests/dsl/test_mutations.py",
    "tests/dsl/text/test_recover.py",
    "tests/dsl/text/test_format.py",
    "tests/models/packing/test_expert_banks.py",
    "tests/models/checkpoint/test_gguf.py",
    "tests/models/text",
    "tests/models/checkpoint/test_load.py",
    "tests/models/checkpoint/test_memory.py",
    "tests/models/packing/test_pack",
)
# Files whose every test is of the tier `thorough`: what they look at, tests of whole kernels and decoders use too.
THOROUGH = (
    "tests/backends/pallas/ops/test_attend.py",
    "tests/backends/pallas/aot/test_bill.py",
    "tests/backends/pallas/collectives/test_collectives.py",
    "tests/backends/pallas/cycles/test_counting.py",
    "tests/backends/pallas/emit/test_kernel_consecutive.py",
    "tests/backends/pallas/emit/test_kernel_movement.py",
    "tests/backends/pallas/ops/test_expert_dot.py",
    "tests/backends/pallas/ops/test_mix.py",
    "tests/backends/pallas/ops/test_ops.py",
    "tests/backends/pallas/ops/test_route.py",
    "tests/backends/pallas/runtime/test_stored.py",
    "tests/backends/pallas/layout/test_unpack.py",
    "tests/backends/reference/test_process.py",
    "tests/backends/reference/test_saved_rows.py",
    "tests/backends/reference/test_muse_spark.py",
    "tests/backends/reference/test_ops_attention.py",
    "tests/backends/reference/test_widths.py",
    "tests/dsl/text/test_recover.py",
)


def _keep() -> None:
    """The next run finds what is derived: compiled programs, checkpoints, bytecode where none is written elsewhere."""
    os.environ["XDG_CACHE_HOME"] = str(CACHE)
    checkpoints = CACHE / "mks" / "checkpoints"
    if not checkpoints.exists():
        (KEPT / "checkpoints").mkdir(parents=True, exist_ok=True)
        checkpoints.parent.mkdir(parents=True, exist_ok=True)
        checkpoints.symlink_to(KEPT / "checkpoints")
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(KEPT / "bytecode"))
        sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]


_keep()


def pytest_configure(config: pytest.Config) -> None:
    """Count what tests cost."""
    config.pluginmanager.register(_Costs(config), "costs")


def _is_fast(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return name.startswith(FAST) and not name.startswith(NOT_FAST)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Other files are not even imported for the fast tests."""
    other = config.option.markexpr == "fast" and collection_path.is_file() and not _is_fast(collection_path)
    return True if other else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests, and those of files that are thorough."""
    for item in items:
        if any(item.get_closest_marker(tier) for tier in ("thorough", "slow")):
            continue
        if item.path.relative_to(ROOT).as_posix() in THOROUGH:
            item.add_marker("thorough")
        elif _is_fast(item.path):
            item.add_marker("fast")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, tests of a file stay together, as they share what is made once, and costly files come first."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


class _Costs:
    """Counts the seconds of a processor that tests, their children included, use."""

    def __init__(self, config: pytest.Config) -> None:
        self.before = 0.0
        self.files: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()
        self.tier = str(config.option.markexpr)
        # xdist's workers report to the process that started them.
        self.shown = not hasattr(config, "workerinput")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Begin with a test."""
        self.before = children.used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Write down what a test's setup, call or teardown used."""
        report: Any = yield
        now = children.used()
        report.user_properties.append(("cpu", now - self.before))
        self.before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add it up, in the process that reports."""
        seconds = sum(value for name, value in report.user_properties if name == "cpu")
        self.files[report.nodeid.partition("::")[0]] += seconds
        self.tests[report.nodeid] += seconds

    @property
    def over(self) -> bool:
        """Whether the tier's tests used more than they may."""
        return self.files.total() > BUDGETS.get(self.tier, float("inf")) * float(os.environ.get("TEST_BUDGET", "1"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was used, and by whom most."""
        if not self.shown or (self.files.total() < 1 and not self.over):
            return
        budget = f" of {BUDGETS[self.tier]:.0f} s" if self.tier in BUDGETS else ""
        write = terminalreporter.write_line
        terminalreporter.section("processor")
        write(f"{self.files.total():.0f} s{budget}, {'too much' if self.over else 'not counting imports'}")
        for each in (self.files, self.tests):
            write("; ".join(f"{name} {seconds:.0f}" for name, seconds in each.most_common(8) if seconds >= 1))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where it is too much, if that is asked for."""
        children.stop()
        if self.shown and self.over and "TEST_BUDGET" in os.environ and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
