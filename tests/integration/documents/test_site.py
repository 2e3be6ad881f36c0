"""The site of scripts/docs in a real browser, from its files: searches for errors, widths, links, pictures in build/site-pictures."""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import socket
import subprocess
import urllib.parse

import pytest

from browser import Browser
from harness import REPOSITORY, succeed_here

PHONE = 375  # pixels
# A pasted error, and the begin of the heading that explains it.
SEARCHES = {
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set":
        "environment variable RANK expected",
    "KeyError: 'LOCAL_RANK'": "KeyError: 'LOCAL_RANK'",
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (node001, 29500)":
        "The client socket has timed out",
    "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE":
        "The server socket has failed to listen",
    "torch.distributed.DistBackendError: NCCL error in ProcessGroupNCCL.cpp:1691, Duplicate GPU detected : rank 1 and rank 0 both on "
    "CUDA device 4000": "Duplicate GPU detected",
    "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000)":
        "Watchdog caught collective operation timeout",
    "RuntimeError: CUDA error: invalid device ordinal": "CUDA error: invalid device ordinal",
    "DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0": "wait timeout after",
    "use_libuv was requested but PyTorch was build without libuv support": "use_libuv was requested",
    "terminate called without an active exception": "terminate called without",
    "gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ib0": "Unable to find address for",
    "Gloo connectFullMesh failed with gloo/transport/tcp/pair.cc:144 no error": "Gloo connectFullMesh failed",
    "Unable to resolve hostname to a (local) address": "Unable to resolve hostname",
    "NCCL WARN Bootstrap : no socket interface found": "Bootstrap : no socket interface found",
    "srun: error: plugin_load_from_file: Incompatible Slurm plugin /usr/lib/slurm/spank_bootstrap.so version (23.11.4)":
        "Incompatible Slurm plugin",
    "srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1": "Warning: can't run 1 processes",
    "srun: unrecognized option '--bootstrap=on'": "srun: unrecognized option",
    "bootstrap: StepId=3.0: NOT SET UP: srun cannot see \"train\"": "srun cannot see \"train\"",
    "bootstrap: warning: StepId=8.0: task 5 (node002, local rank 1) failed first: exit code 1": "task 5 (node002, local rank 1) failed first",
    "socket.gaierror: [Errno -2] Name or service not known": "Name or service not known",
    "AttributeError: 'NoneType' object has no attribute 'get'": "'NoneType' object has no attribute",
    "MASTER_PORT 25000 on node001 is already in use by another program": "is already in use by another program",
}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def site(environments):
    environments("site")
    succeed_here([REPOSITORY / "scripts" / "docs", REPOSITORY / "build" / "site-tested"])
    return REPOSITORY / "build" / "site-tested"


@pytest.fixture(scope="module")
def browser():
    if not shutil.which("chromedriver"):
        line = ["apt-get", "install", "-y", "--no-install-recommends", "chromium", "chromium-driver", "fonts-dejavu-core"]
        assert subprocess.run(line, stdout=subprocess.DEVNULL).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    browser = Browser(port)
    yield browser
    browser.close()


def search(browser, site, text):
    browser.open(f"{(site / 'search.html').as_uri()}?{urllib.parse.urlencode({'q': text})}")
    return browser.run("return [...document.querySelectorAll('#mkdocs-search-results article a')].map(link => link.textContent)")


@pytest.mark.parametrize("text", SEARCHES)
def test_a_search_for_an_error_leads_to_its_heading(browser, site, text):
    found = search(browser, site, text)
    assert any(heading.startswith(SEARCHES[text]) for heading in found[:3]), found[:5]


def test_a_search_without_a_result_prints_that(browser, site):
    assert search(browser, site, "qwertzuiop") == []
    assert "No results" in browser.run("return document.getElementById('mkdocs-search-results').textContent")


def test_no_page_is_wider_than_a_phone(browser, site):
    browser.be_as_wide_as(PHONE)
    widths = {}
    for page in sorted(site.rglob("*.html")):
        browser.open(page.as_uri())
        widths[page.name] = browser.run("return document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > PHONE} == {}
    browser.open((site / "404.html").as_uri())
    browser.run("document.querySelector('h1').style.width = '500px'")  # the control
    assert browser.run("return document.documentElement.scrollWidth") > PHONE


def test_no_link_is_broken(site):
    """mkdocs checks links in Markdown; this also checks those of manual pages and of the theme."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    broken = []
    for page, text in pages.items():
        for link in set(re.findall(r'(?:href|src)="([^"#]*(?:#[^"]*)?)"', text)):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_file() or anchor and target in pages and f'id="{anchor}"' not in pages[target]:
                broken.append((page.name, link))
    assert broken == []


def test_a_publisher_sets_the_edit_links_in_one_place(site, tmp_path):
    """A link without a target is an error."""
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", REPOSITORY, copy], check=True)
    for path in ("scripts", "etc", "README.md"):
        subprocess.run(["cp", "-r", REPOSITORY / path, copy], check=True)
    settings = copy / "etc" / "publisher.json"
    settings.write_text(settings.read_text().replace('"homepage": ""', '"homepage": "https://forge.example/us/slurm-bootstrap"'))
    subprocess.run([copy / "scripts" / "docs"], check=True, capture_output=True)
    for page, source in ("index", "etc/doc/index.md"), ("etc/man/bootstrap.3", "etc/man/bootstrap.3"), ("README", "README.md"):
        text = (copy / "build" / "site" / f"{page}.html").read_text()
        assert f"https://forge.example/us/slurm-bootstrap/edit/main/{source}" in text
    (copy / "README.md").write_text("# A\n[b](none.md)\n")
    assert subprocess.run([copy / "scripts" / "docs"], capture_output=True).returncode == 1


def test_pictures_of_the_site_are_taken(browser, site):
    """A person looks at them."""
    folder = REPOSITORY / "build" / "site-pictures"
    folder.mkdir(exist_ok=True)
    browser.be_as_wide_as(1200)
    search(browser, site, next(iter(SEARCHES)))
    browser.take_picture(folder / "search.png")
    for name, page, width in ("start", "index.html", 1200), ("install", "etc/doc/install.html", 1200), ("phone", "etc/doc/users.html", PHONE):
        browser.be_as_wide_as(width)
        browser.open((site / page).as_uri())
        browser.take_picture(folder / f"{name}.png")
