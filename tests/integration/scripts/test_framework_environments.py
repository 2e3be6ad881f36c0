"""scripts/frameworks: wrong names, a machine without PyPI, and one where pip fails."""

# SPDX-License-Identifier: Apache-2.0

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness import load_script


@pytest.fixture
def frameworks(tmp_path):
    """The script, with this test's own cache and lock files."""
    module = load_script("frameworks")
    module.CACHE, module.LOCKS = tmp_path / "cache", tmp_path / "locks"
    module.LOCKS.mkdir()
    (module.LOCKS / "tiny.txt").write_text(f"# A tiny one\nsix==1.17.0 --hash=sha256:{64 * 'a'}\n")
    return module


def ask_the_index_at(url, monkeypatch):
    for name, value in {"PIP_INDEX_URL": url, "PIP_FIND_LINKS": "", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(name, value)


def test_without_pypi_nothing_is_left_and_the_status_is_its_own(frameworks, monkeypatch, capsys):
    ask_the_index_at("http://127.0.0.1:9/simple", monkeypatch)
    assert frameworks.main(["install", "tiny"]) == frameworks.NO_INDEX
    assert "PyPI cannot be reached, so tiny is not installed" in capsys.readouterr().err
    assert not (frameworks.CACHE / "tiny").exists()
    assert frameworks.main(["list"]) == 0
    assert "not installed  A tiny one" in capsys.readouterr().out


@pytest.mark.parametrize("has_six, reason", [(False, "Could not find a version"), (True, "THESE PACKAGES DO NOT MATCH THE HASHES")])
def test_a_package_that_pypi_does_not_have_or_has_changed_is_an_error(frameworks, monkeypatch, capsys, tmp_path, has_six, reason):
    for name, file in {"pip": "pip-1.0-py3-none-any.whl", **({"six": "six-1.17.0-py3-none-any.whl"} if has_six else {})}.items():
        (tmp_path / "simple" / name).mkdir(parents=True)
        (tmp_path / "simple" / name / "index.html").write_text(f'<!DOCTYPE html><a href="{file}">{name}</a>')
        (tmp_path / "simple" / name / file).write_text("other bytes than those of the lock")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask_the_index_at(f"http://127.0.0.1:{server.server_port}/simple", monkeypatch)
        assert frameworks.main(["install", "tiny"]) == 1
        server.shutdown()
    assert f"pip cannot install tiny:\nERROR: {reason}" in capsys.readouterr().err
    assert not (frameworks.CACHE / "tiny").exists()
