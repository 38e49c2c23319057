"""Calls of the command line, in this process or in one of its own, and what must hold of them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from typing import NamedTuple
from unittest import mock

import pytest

from uqeval.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


def call(*args, env=None):
    """`uqeval …` in this process, through `main`, where errors become messages."""
    with mock.patch.dict(os.environ, env or {}):
        return _call(*args)


def _call(*args):
    out, err = io.StringIO(), io.StringIO()
    former, sys.argv = sys.argv, ["uqeval", *map(str, args)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            main()
    except SystemExit as stop:
        code = 0 if stop.code is None else stop.code
    finally:
        sys.argv = former
    return Result(code, out.getvalue(), err.getvalue())


def spawn(*args, env=None, **kwargs):
    """`uqeval …` in a process of its own."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [sys.executable, "-m", "uqeval.cli.main", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, env=base | {"PYTHONUTF8": "1"} | (env or {}), timeout=120, check=False, **kwargs
    )


def loaded(text):
    """What JSON of a command says, but for where it comes from: strict JSON, without `provenance`."""
    data = json.loads(text, parse_constant=pytest.fail)
    for one in data if isinstance(data, list) else [data]:
        one.pop("provenance", None)
    return data


def succeed(*args):
    result = call(*args)
    assert result.code == 0, result
    assert result.err == ""
    return result.out


def fail(*args):
    """The one message of a call that must fail as bad input does."""
    result = call(*args)
    assert result.code == 2, result
    assert result.out == ""
    assert "Traceback" not in result.err
    assert result.err.startswith("Error: ")
    assert result.err.endswith("\n")
    assert len(result.err.strip().splitlines()) == 1
    return result.err


def misuse(*args):
    """The message of a call with wrong options."""
    result = call(*args)
    assert result.code == 2, result
    assert result.out == ""
    assert "Traceback" not in result.err
    assert "Usage:" in result.err or "─ Error ─" in result.err
    return result.err
