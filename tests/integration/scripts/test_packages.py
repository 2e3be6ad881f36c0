"""Packages as an administrator uses them: installed on a copy of this machine, switched on, used on a cluster, switched off in
an emergency, upgraded and removed while steps run. The tests in documents/ run the lines of the README."""

import json
import re
import shutil
import subprocess
import tarfile

import pytest

from harness import REPOSITORY, load_script, run_here, succeed_here
from throwaway_machine import ThrowawayMachine

LINK = "/etc/slurm/plugstack.conf.d/zz-bootstrap.conf"
STEP = ["srun", "-N2", "--ntasks-per-node=2", "--gres=gpu:2"]
SHOW = ["sh", "-c", "echo task $SLURM_PROCID ${RANK:-none}"]
SWITCH_ON = f"ln -s /usr/share/slurm-bootstrap/bootstrap.conf {LINK}"
RELEASE = REPOSITORY / "build" / "dist"
NAMES = ["libbootstrap-dev", "libbootstrap0", "slurm-bootstrap", "slurm-bootstrap-near", "slurm-bootstrap-plugin"]


def names_in(packages):
    """The names of packages. A release's compiler has no hwloc, so a site builds the package of `near` itself."""
    return [name for name in NAMES if packages != RELEASE or name != "slurm-bootstrap-near"]


def make_packages(generator, folder):
    """Makes packages from the existing build, in seconds."""
    succeed_here(["cpack", "--config", "build/release/CPackConfig.cmake", "-G", generator, "-B", str(folder)], cwd=REPOSITORY)


@pytest.fixture(scope="module")
def packages(request, tmp_path_factory):
    """The folder of all packages; with --full those that `scripts/release` makes from the last commit."""
    if not request.config.getoption("--full"):
        folder = tmp_path_factory.mktemp("packages")
        make_packages("DEB", folder)
        if shutil.which("rpmbuild"):
            make_packages("RPM", folder)
        return folder
    head = run_here(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, check=True).stdout.strip()
    # `git archive` writes the commit there.
    made_of = [tarfile.open(path).pax_headers["comment"] for path in RELEASE.glob("*.tar.gz")]
    if made_of != [head]:
        clone = tmp_path_factory.mktemp("release") / "clone"
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
        shutil.rmtree(RELEASE, ignore_errors=True)
        subprocess.run(["scripts/release", "--dry-run", "--out", RELEASE], cwd=clone, check=True)
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=RELEASE, check=True)
    return RELEASE


@pytest.fixture(scope="module")
def deb_packages(packages):
    found = {path.name.split("_")[0]: path for path in packages.glob("*_amd64.deb")}
    assert sorted(found) == names_in(packages)
    return found


@pytest.fixture
def machine():
    try:
        machine = ThrowawayMachine()
    except OSError as error:
        pytest.skip(f"no overlay over this machine: {error}")
    yield machine
    machine.close()


@pytest.fixture
def cluster(cluster_factory, machine, tmp_path):
    """Has the plugstack.conf of Debian's Slurm, which includes a folder."""
    plugstack = REPOSITORY / "build" / f"plugstack.{tmp_path.name}"
    plugstack.write_text("include /etc/slurm/plugstack.conf.d/*.conf\n")
    cluster = cluster_factory("packages")
    cluster.prefix = machine.enter
    cluster.up("--cpus", "8", "--plugstack", str(plugstack), "--set", "SlurmctldParameters=enable_configless")
    # The hosts of a cluster see another folder at /etc/slurm; this shows it to the administrator, too.
    (cluster.state / "etc" / "plugstack.conf.d").mkdir()
    machine.succeed(["mount", "--bind", cluster.state / "etc", "/etc/slurm"])
    yield cluster
    plugstack.unlink()
    assert cluster.close() == ""
    cluster.prefix = []  # the machine has ended before the cluster is closed again


def ranks(cluster, *options):
    """The value of RANK in each task."""
    done = cluster.succeed([*STEP, *options, *SHOW])
    tasks = sorted(line.split()[1:] for line in done.stdout.splitlines())
    assert [task[0] for task in tasks] == list("0123")
    return [task[1] for task in tasks]


def start(cluster, program, *options):
    """A step whose tasks have all begun, so that the plugin is loaded."""
    step = cluster.start([*STEP, *options, "sh", "-c", f"echo started; {program}"])
    assert [step.stdout.readline() for _ in range(4)] == ["started\n"] * 4
    return step


NOTHING, ALL = ["none"] * 4, list("0123")


def test_packages_are_installed_used_and_removed(cluster, machine, deb_packages, figure):
    assert ranks(cluster) == NOTHING
    machine.succeed(["apt-get", "install", "-y", *deb_packages.values()])
    assert ranks(cluster) == NOTHING, "the installation switched it on"

    machine.succeed(SWITCH_ON)
    assert ranks(cluster) == ALL
    table = cluster.run([*STEP, "--bootstrap=explain", "true"]).stderr
    assert "MASTER_PORT" in table and "nothing is set" not in table
    assert "RANK" in cluster.run([*STEP, "-N1", "-n1", "slurm-bootstrap", "explain"]).stdout
    library = cluster.run([*STEP, "--bootstrap-preload", "sh", "-c", "awk '/libbootstrap/ { print $NF; exit }' /proc/self/maps"])
    owner = machine.succeed(["dpkg", "-S", library.stdout.split()[0]])
    assert owner.startswith("libbootstrap0:")
    trained = cluster.run([*STEP, "python3", "/usr/share/doc/slurm-bootstrap/examples/train_ddp.py"], timeout=120)
    assert trained.returncode == 0 and "4 ranks" in trained.stdout, trained.stderr
    for page in ("slurm-bootstrap.1", "bootstrap.3", "slurm-bootstrap.7", "spank_bootstrap.8"):
        assert machine.run(["test", "-s", f"/usr/share/man/man{page[-1]}/{page}"]).returncode == 0, page
    for page in ("README.md", "etc/doc/install.md", "etc/examples/train_ddp.py"):
        assert machine.run(["test", "-s", f"/usr/share/doc/slurm-bootstrap/{page}"]).returncode == 0, page

    # The emergency switch while a step runs: this step continues, and the next one is not set up.
    running = start(cluster, "sleep 4; echo task $SLURM_PROCID $RANK")
    machine.succeed(f"rm {LINK}")
    assert ranks(cluster, "--overlap") == NOTHING
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 0, stderr
    assert sorted(stdout.split("\n"))[-4:] == [f"task {rank} {rank}" for rank in range(4)]

    # Removal also removes the link, which would lead nowhere.
    machine.succeed(SWITCH_ON)
    assert ranks(cluster) == ALL
    machine.succeed("apt-get remove -y slurm-bootstrap-plugin libbootstrap0")
    assert machine.run(["test", "-L", LINK]).returncode != 0
    assert ranks(cluster) == NOTHING
    # The pages in /usr/share/doc belong to the package that remains.
    left = machine.run("dpkg -L slurm-bootstrap-plugin libbootstrap0; "
                       "find /usr /etc -path /usr/share/doc -prune -o -name '*spank_bootstrap*' -newer /proc/1 -print")
    assert "spank_bootstrap" not in left.stdout
    assert idle_nodes(cluster) == 2
    figure("C4", "packages", got="installed, used, switched off, removed by apt on a cluster; 0 nodes drained", met=True, is_full=True)


def idle_nodes(cluster):
    return cluster.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"]).stdout.split().count("idle")


def next_version(machine, package, where):
    """The same package as a newer release, with different files."""
    script = f"""set -e
      rm -rf {where}; dpkg-deb -R {package} {where}
      sed -i 's/^Version: .*/&+next/; s/(= \\([^)]*\\))/(= \\1+next)/' {where}/DEBIAN/control
      for file in $(find {where}/usr -name 'spank_bootstrap.so' -o -name 'libbootstrap.so.0.*'); do printf next >>$file; done
      dpkg-deb -b {where} {where}.deb"""
    machine.succeed(script)
    return f"{where}.deb"


def test_an_upgrade_or_a_removal_under_running_steps_does_no_harm(cluster, machine, deb_packages):
    ours = [deb_packages["libbootstrap0"], deb_packages["slurm-bootstrap-plugin"]]
    machine.succeed(["apt-get", "install", "-y", *ours])
    machine.succeed(SWITCH_ON)
    # The step runs long enough that its task_exit and exit hooks run after their file was replaced. The ranks have the preload.
    program = "sleep 6; test $RANK = $SLURM_PROCID && echo whole; exit $((RANK == 3 ? 3 : 0))"
    upgraded = start(cluster, program, "--bootstrap-preload")
    fresh = [next_version(machine, path, f"/var/tmp/next{i}") for i, path in enumerate(ours)]
    machine.succeed(["dpkg", "-i", *fresh])
    assert machine.run(["test", "-L", LINK]).returncode == 0, "an upgrade switched it off"
    assert ranks(cluster, "--overlap", "--bootstrap-preload") == ALL
    removed = start(cluster, program)
    machine.succeed("dpkg -r slurm-bootstrap-plugin libbootstrap0")
    for step in (upgraded, removed):
        stdout, stderr = step.communicate(timeout=60)
        assert stdout.count("whole") == 4, stderr
        assert step.returncode == 3 and "task 3 (node002, local rank 1) failed first" in stderr
    assert ranks(cluster) == NOTHING
    assert idle_nodes(cluster) == 2
    for node in cluster.nodes:
        assert not re.search(r"segfault|signal 11|\babort(?!ing)", cluster.log(f"slurmd.{node}"), re.IGNORECASE)


# slurmd as on a node without Slurm's configuration; this host alone has an empty file system in its place.
CONFIGLESS = """own=$(cat /run/slurm/slurmd.pid) && kill $own && while kill -0 $own 2>&-; do sleep 0.1; done
                mount -t tmpfs none /etc/slurm && unset SLURM_CONF && slurmd --conf-server head:6817 -N node001"""


def test_a_configless_node_has_the_plugin_by_its_name(cluster, machine, deb_packages):
    machine.succeed(["apt-get", "install", "-y", *[path for name, path in deb_packages.items() if "dev" not in name]])
    cluster.write_plugstack("optional spank_bootstrap.so\n")
    cluster.succeed(["sh", "-c", CONFIGLESS], user="root", node="node001")
    cluster.run(["scontrol", "reconfigure"], user="root")
    assert ranks(cluster) == ALL
    done = cluster.run(["env", "-u", "SLURM_CONF", "slurm-bootstrap", "check", "--local"], node="node001")
    assert done.returncode == 0 and "/slurm-wlm/spank_bootstrap.so" in done.stdout, done.stdout + done.stderr


def test_a_file_that_is_gone_stops_no_removal(cluster, machine, deb_packages):
    """An administrator has removed the files by hand, but not the link."""
    machine.succeed(["apt-get", "install", "-y", deb_packages["libbootstrap0"], deb_packages["slurm-bootstrap-plugin"]])
    machine.succeed(SWITCH_ON)
    assert ranks(cluster) == ALL
    machine.succeed("rm $(dpkg -L slurm-bootstrap-plugin | grep spank_bootstrap.so)")
    assert ranks(cluster) == NOTHING
    machine.succeed("rm /usr/share/slurm-bootstrap/bootstrap.conf")
    assert ranks(cluster) == NOTHING


def test_removal_names_the_lines_that_stay(cluster, machine, deb_packages):
    ours = [deb_packages["libbootstrap0"], deb_packages["slurm-bootstrap-plugin"]]
    machine.succeed(["apt-get", "install", "-y", *ours])
    line = machine.succeed("grep ^optional /usr/share/slurm-bootstrap/bootstrap.conf").strip()

    # Without the file, a required line ends every srun: the package stays until the line is removed.
    required = line.replace("optional", "required")
    machine.succeed(f"{SWITCH_ON} && echo '{required}' > /etc/slurm/plugstack.conf.d/own.conf")
    refused = machine.run("dpkg -r slurm-bootstrap-plugin")
    assert refused.returncode != 0 and f"/etc/slurm/plugstack.conf.d/own.conf:1:{required}" in refused.stderr, refused.stderr
    assert machine.run(["test", "-L", LINK]).returncode == 0, "a refused removal switched it off"
    assert ranks(cluster) == ALL

    machine.succeed(f"echo '{line} when=asked' > /etc/slurm/plugstack.conf.d/own.conf")
    removed = machine.run("dpkg -r slurm-bootstrap-plugin")
    assert removed.returncode == 0 and f"/etc/slurm/plugstack.conf.d/own.conf:1:{line} when=asked" in removed.stderr
    assert "bootstrap.conf:" not in removed.stderr
    assert machine.run(["test", "-L", LINK]).returncode != 0
    assert ranks(cluster) == NOTHING

    # The control: the harm that the refusal prevents.
    machine.succeed(f"echo '{required}' > /etc/slurm/plugstack.conf.d/own.conf")
    assert cluster.run(["srun", "true"]).returncode != 0


def test_the_plugin_needs_its_release_of_slurm(deb_packages):
    fields = run_here(["dpkg", "-f", deb_packages["slurm-bootstrap-plugin"], "Depends"], check=True).stdout
    bounds = re.findall(r"slurm-wlm-basic-plugins \((\S+) ([^)]+)\)", fields)
    installed = run_here(["slurmd", "-V"], check=True).stdout.split()[1]
    release = ".".join(installed.split(".")[:2])

    def fits(version):
        return all(subprocess.run(["dpkg", "--compare-versions", version, *bound], check=False).returncode == 0 for bound in bounds)

    year, month = map(int, release.split("."))
    assert len(bounds) == 2
    assert fits(f"{release}.0-1") and fits(f"{release}.99-1") and fits(f"{release}.8-4+deb12u3")
    assert not fits(f"{year}.{month + 6:02}.0-1") and not fits(f"{year - 1}.11.9-1")


@pytest.mark.skipif(not shutil.which("rpmbuild"), reason="needs rpmbuild")
def test_rpm_packages_work_and_leave_nothing(cluster, machine, packages):
    files = sorted(map(str, packages.glob("*.x86_64.rpm")))
    assert len(files) == len(names_in(packages)), files
    told = machine.succeed(["rpm", "-qp", "--qf", "%{PACKAGER}|%{URL}\\n", *files]).splitlines()
    assert all(line.startswith("slurm-bootstrap developers|") for line in told) and len(told) == len(files)
    command = next(file for file in files if "/slurm-bootstrap-1" in file)
    assert {"README.md", "CHANGELOG.md", "SECURITY.md"} <= {path.split("/")[-1] for path in
                                                             machine.succeed(["rpm", "-qlp", command]).split()}
    needs = machine.succeed(["rpm", "-qp", "--requires", *[file for file in files if "plugin" in file]])
    assert re.search(r"^slurm >= \d\d\.\d\d$", needs, re.MULTILINE)
    assert re.search(r"^slurm < \d\d\.\d\d$", needs, re.MULTILINE)
    # rpm does not know this machine's Slurm, and Debian's rpm up to 4.18 needs an option.
    own = re.findall("--force-debian", machine.run("rpm --help").stdout)[:1]
    machine.succeed(["rpm", "-i", *own, "--nodeps", *files])
    assert ranks(cluster) == NOTHING, "the installation switched it on"
    machine.succeed(SWITCH_ON)
    assert ranks(cluster) == ALL
    own = LINK.replace("bootstrap.conf", "own.conf")
    machine.succeed(f"sed s/^optional/required/ {LINK} > {own}")
    assert f"{own}:" in machine.run("rpm -e --nodeps slurm-bootstrap-plugin").stderr
    assert ranks(cluster) == ALL, "rpm removed what a line requires"
    machine.succeed(f"rm {own}; rpm -e --nodeps slurm-bootstrap-plugin libbootstrap0")
    assert machine.run(["test", "-L", LINK]).returncode != 0
    assert ranks(cluster) == NOTHING


SPEC = """Name: slurm
Version: {version}
Release: 1
Summary: -
License: -
BuildArch: noarch
{provides}
%description
-
%files
"""


@pytest.mark.skipif(not shutil.which("rpmbuild"), reason="needs rpmbuild")
def test_rpm_takes_the_plugin_beside_its_own_slurm_alone(packages, tmp_path):
    """In a separate rpm database, in which one package provides Slurm, glibc and the shell."""
    ours = [path for path in packages.glob("*.rpm") if re.search("plugin.*x86_64|libbootstrap0.*x86_64", path.name)]
    needs = run_here(["rpm", "-qp", "--requires", *ours], check=True).stdout.split("\n")
    others = {need for need in needs if need.startswith(("lib", "ld-", "rtld", "/")) and not need.startswith("libbootstrap0")}
    provides = "".join(f"Provides: {need}\n" for need in sorted(others))
    release = next(need.split()[-1] for need in needs if need.startswith("slurm >="))
    for version, is_taken in ((f"{release}.8", True), ("21.08.8", False), ("99.05.0", False)):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "slurm.spec").write_text(SPEC.format(version=version, provides=provides))
        subprocess.run(["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {folder}", "--define", f"_rpmdir {folder}",
                        folder / "slurm.spec"], check=True, capture_output=True)
        rpm = ["rpm", "--dbpath", folder / "db"]
        subprocess.run([*rpm, "-i", "--nodeps", "--justdb", next(folder.rglob("slurm-*.rpm"))], check=True, capture_output=True)
        done = run_here([*rpm, "-i", "--test", "--justdb", *ours])
        assert (done.returncode == 0) == is_taken, done.stderr
        assert is_taken or re.search(r"slurm [<>]=? \S+ is needed by slurm-bootstrap-plugin", done.stderr)


@pytest.mark.full
def test_the_wheel_of_a_release_starts_a_world_without_the_plugin(cluster, machine, packages):
    [wheel] = packages.glob("*x86_64.whl")
    machine.succeed(f"/usr/bin/python3 -m venv /opt/venv && /opt/venv/bin/pip install --quiet --no-index {wheel}")
    done = cluster.run([*STEP, "/opt/venv/bin/slurm-bootstrap", "run", *SHOW])
    assert sorted(done.stdout.splitlines()) == [f"task {rank} {rank}" for rank in range(4)], done


def test_a_release_takes_no_folder_that_holds_something(tmp_path):
    (tmp_path / "kept").write_text("of somebody else")
    for out in (".", "kept"):
        done = run_here([REPOSITORY / "scripts/release", "--dry-run", "--out", out], cwd=tmp_path)
        assert done.returncode == 2 and "is no empty folder; name one" in done.stderr, done.stderr
    assert (tmp_path / "kept").exists()


@pytest.fixture
def release():
    return load_script("release")


REAL = {"homepage": "https://host.tld/it", "contact": "Jane <jane@host.tld>", "files": "https://host.tld/it/blob/v{version}",
        "namespace": "https://host.tld/spdx", "signing_key": ""}


@pytest.mark.parametrize("change, names", [
    ({}, ""), ({"homepage": "https://example.org/it"}, "homepage"), ({"contact": "the developers"}, "contact"), ({"files": ""}, "files")])
def test_a_release_needs_a_real_publisher(release, tmp_path, monkeypatch, change, names):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/publisher.json").write_text(json.dumps(REAL | change))
    monkeypatch.setattr(release, "TOP", tmp_path)
    assert release.read_publisher(is_dry=True) == REAL | change
    if names:
        with pytest.raises(SystemExit, match=f"etc/publisher.json has no real {names}; "):
            release.read_publisher(is_dry=False)
    else:
        assert release.read_publisher(is_dry=False) == REAL


def test_a_release_is_verified_by_the_lines_of_its_own_notes(release, tmp_path, monkeypatch):
    """With a gpg key for this test. Controls: a changed file, and changed sums."""
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(keys))
    subprocess.run(["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "jane@host.tld"], check=True)
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "a.deb").write_text("a package")
    publisher = REAL | {"signing_key": "jane@host.tld"}
    release.write_notes("Changed: see [install.md](etc/doc/install.md) and [this](https://host.tld/x).\n", "1.2.3", publisher, folder)
    release.write_sums(folder, publisher["signing_key"])
    notes = (folder / "NOTES.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", notes)
    assert "https://host.tld/it/blob/v1.2.3/etc/doc/install.md" in links and all(link.startswith("https://") for link in links), links
    line = ["sh", "-ec", re.search(r"```sh\n(.*?)```", notes, re.DOTALL)[1]]
    assert subprocess.run(line, cwd=folder).returncode == 0
    (folder / "a.deb").write_text("another")
    assert subprocess.run(line, cwd=folder).returncode != 0
    release.write_sums(folder, "")
    assert subprocess.run(line, cwd=folder).returncode != 0, "the sums are not those that were signed"
    with pytest.raises(SystemExit, match="with the key nobody of etc/publisher.json"):
        release.write_sums(folder, "nobody")
    subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=True)


def test_a_release_runs_no_tool_but_the_pinned_ones(release, tmp_path, monkeypatch, capfd):
    """Files with the right names and releases but other bytes, as from a changed index."""
    pins = re.findall(r"^(\S+)==(\S+)", release.TOOLS.read_text(), re.MULTILINE)
    for name, version in pins:
        (tmp_path / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").write_text("another")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="which make the files"):
        release.make_tools(tmp_path / "tools")
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
