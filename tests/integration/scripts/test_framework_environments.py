"""scripts/frameworks: wrong names, a machine without PyPI, and one where pip fails."""

# SPDX-License-Identifier: Apache-2.0

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import pytest

from harness import REPOSITORY


@pytest.fixture
def frameworks(tmp_path):
    """The script, with a cache and lock files of this test's own."""
    loader = SourceFileLoader("frameworks", str(REPOSITORY / "scripts" / "frameworks"))
    module = module_from_spec(spec_from_loader("frameworks", loader))
    loader.exec_module(module)
    module.CACHE, module.LOCKS = tmp_path / "cache", tmp_path / "locks"
    module.LOCKS.mkdir()
    (module.LOCKS / "tiny.txt").write_text("# A tiny one\nsix==1.17.0\n")
    return module


def test_without_pypi_nothing_is_left_and_the_status_is_its_own(frameworks, monkeypatch, capsys):
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0",
                        "PIP_NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert frameworks.main(["install", "tiny"]) == frameworks.NO_INDEX
    assert "PyPI cannot be reached, so tiny is not installed" in capsys.readouterr().err
    assert not (frameworks.CACHE / "tiny").exists()
    assert frameworks.main(["list"]) == 0
    assert "not installed  A tiny one" in capsys.readouterr().out
