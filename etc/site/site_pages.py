"""What mkdocs does not do itself: pages where they are in the repository, manual pages, and a search that needs no server."""

# SPDX-License-Identifier: Apache-2.0

import json
import re
import subprocess
import sys
from pathlib import Path

from mkdocs.structure.files import File, Files

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from checks.documents import project_version  # noqa: E402
from checks.pages import anchor_of  # noqa: E402

MAN = re.compile(r"\b((?:slurm-|spank_)?bootstrap)</b>\((\d)\)")


def on_config(config):
    config.extra["version"] = project_version()
    config.repo_url = json.loads((TOP / "etc/publisher.json").read_text(encoding="utf-8"))["homepage"]
    config.mdx_configs["toc"] = {"slugify": lambda text, _: anchor_of(text, ())}
    # This one loads the index by a request, which a browser refuses to a page without a server.
    config.extra_javascript = [script for script in config.extra_javascript if str(script) != "search/main.js"]
    return config


def man_page(path):
    """As Markdown, so that its sections are in the search."""
    html = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", path], capture_output=True, text=True, check=True).stdout
    html = re.sub(r'<table class="(head|foot)">.*?</table>|</?section.*?>|</?div.*?>|<br/>\n|<p class="Pp"></p>\n', "", html, flags=re.S)
    html = MAN.sub(r'<a href="\1.\2.html">\1(\2)</a></b>', html)
    html = re.sub(r"<h(\d).*?<a.*?>(.*?)</a></h\d>", lambda h: f"\n{'#' * (int(h[1]) + 1)} {' '.join(h[2].split())}\n", html, flags=re.S)
    return f"# {path.stem}({path.suffix[1:]})\n{html}"


def on_files(files, config):
    own = Files([file for file in files if not file.is_documentation_page()])  # of the theme and of the search
    for path in [*TOP.glob("*.md"), TOP / "LICENSE", *(TOP / "etc").rglob("*.*")]:
        uri = path.relative_to(TOP).as_posix()
        if path.parent.name == "man":
            own.append(File.generated(config, f"{uri}.md", content=man_page(path)))
        elif path.is_file() and (path.suffix == ".md" or path.parent.name in ("examples", TOP.name)):
            own.append(File(uri, TOP, config.site_dir, False))
        elif path.suffix in (".js", ".css"):
            own.append(File.generated(config, f"site/{path.name}", abs_src_path=str(path)))
    own.get_file_from_path("etc/doc/index.md").dest_uri = "index.html"
    own.get_file_from_path("README.md").dest_uri = "README.html"
    return own


def on_page_markdown(markdown, page, config, **_):
    if config.repo_url:
        source = re.sub(r"(/man/.*)\.md$", r"\1", page.file.src_uri)
        page.edit_url = f"{config.repo_url.rstrip('/')}/edit/main/{source}"
    return re.sub(r"(\]\([^)]*man/[\w-]+\.\d)(?=[)#])", r"\1.md", markdown)


def on_post_build(config):
    index = Path(config.site_dir, "search/search_index.json")
    index.with_suffix(".js").write_text(f"const search_index = {index.read_text(encoding='utf-8')};\n", encoding="utf-8")
