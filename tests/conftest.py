"""Fixtures shared by the tests."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of public inputs, or skip where it is absent."""
    folder = Path(os.environ.get("NEST_OPT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"public inputs not found at {folder} (set NEST_OPT_DATA to their folder)")
    return folder
