"""Objects that scripts/checks/binaries.py must refuse: each has one fault, and a twin without it."""

# SPDX-License-Identifier: Apache-2.0

import shutil
import subprocess

import pytest

from harness import REPOSITORY, load_script

FLAGS = ["-shared", "-fPIC", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]
SOUND = "int wanted(void) { return 1; }\n"

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")


@pytest.fixture(scope="module")
def checks():
    return load_script("checks/binaries.py")


@pytest.fixture
def make(tmp_path):
    """Makes a shared object; returns its path."""

    def build(source, *options, name="object", compiler="gcc"):
        text = tmp_path / f"{name}.{'cc' if compiler == 'g++' else 'c'}"
        text.write_text(source)
        path = tmp_path / f"lib{name}.so"
        subprocess.run([compiler, text, "-o", path, *FLAGS, *options], check=True, cwd=tmp_path)
        return path

    return build


UNIQUE = "template <class T> struct S { static int x; }; template <class T> int S<T>::x = 1;\n" \
         'extern "C" int wanted() { return S<int>::x++; }\n'

# The fault, its source, and a word that the message must have.
FAULTS = {
    "exports too much": (SOUND + "int more(void) { return 2; }\n", [], "too many ['more']"),
    "exports too little": ("int other(void) { return 1; }\n", [], "missing ['wanted']"),
    "init": (SOUND + "int init(void) { return 2; }\n", [], "exports init or fini"),
    "fini": (SOUND + "void fini(void) {}\n", [], "exports init or fini"),
    "another library": (SOUND + "double cos(double); double (*volatile f)(double) = cos;\n", ["-Wl,--no-as-needed", "-lm"],
                        "needs ['libm.so.6']"),
    "RUNPATH": (SOUND, ["-Wl,-rpath,/tmp", "-Wl,--enable-new-dtags"], "has RUNPATH"),
    "RPATH": (SOUND, ["-Wl,-rpath,/tmp", "-Wl,--disable-new-dtags"], "has RPATH"),
    "lazy": (SOUND, ["-Wl,-z,lazy"], "not linked with -z now"),
    "no RELRO": (SOUND, ["-Wl,-z,norelro"], "no RELRO"),
    "executable stack": (SOUND, ["-Wl,-z,execstack"], "executable stack"),
    "text relocations": (SOUND, ["-Wl,-z,notext", "text.s"], "has TEXTREL"),
}


def test_control_the_sound_object_passes(checks, make):
    assert list(checks.check_object(make(SOUND), {"wanted"})) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_object_is_refused(checks, make, tmp_path, fault):
    source, options, said = FAULTS[fault]
    (tmp_path / "text.s").write_text(".text\n.quad wanted\n.section .note.GNU-stack\n")  # an address within the code
    problems = list(checks.check_object(make(source, *options), {"wanted"}))
    assert any(said in problem for problem in problems), problems


def test_a_unique_symbol_is_refused(checks, make):
    problems = list(checks.check_object(make(UNIQUE, compiler="g++"), {"wanted", "_ZN1SIiE1xE"}))
    assert any("UNIQUE" in problem for problem in problems), problems


def test_init_of_a_library_that_ours_needs_is_refused(checks, make, tmp_path):
    make(SOUND.replace("wanted", "needed") + "int init(void) { return 2; }\n", name="needed")
    user = "int needed(void); int wanted(void) { return needed(); }\n"
    path = make(user, "-L.", "-lneeded", f"-Wl,-rpath,{tmp_path}", name="user")
    assert any("libneeded.so exports init or fini" in problem for problem in checks.check_loader_names(path))


def test_a_constructor_of_ours_is_refused(checks, make):
    source = SOUND + "__attribute__((constructor)) static void begin(void) { wanted(); }\n"
    assert any("begin" in problem for problem in checks.check_constructors(make(source), {"frame_dummy"}))
    assert list(checks.check_constructors(make(SOUND, name="sound"), {"frame_dummy"})) == []
    assert list(checks.check_constructors(make(SOUND, name="sound"), {"absent"}))


def test_a_call_that_the_plugin_must_not_make_is_refused(checks, make):
    source = "#include <stdlib.h>\nint wanted(void) { return system(\"true\"); }\n"
    assert list(checks.check_imports(make(source), checks.PLUGIN_IMPORTS_NEVER)) == ["imports ['system']"]


def test_a_newer_glibc_is_refused(checks, make):
    path = make("#include <dlfcn.h>\nvoid* wanted(void) { return dlsym(0, \"x\"); }\n")  # 2.34 since glibc 2.34
    assert checks.newest_glibc(path) >= (2, 2)
    below = (0, 0)
    assert list(checks.check_glibc(path, below)) and list(checks.check_glibc(path, checks.newest_glibc(path))) == []


@pytest.mark.skipif(not shutil.which("abidiff"), reason="needs abidiff")
def test_a_break_of_the_interface_is_found(checks, make, tmp_path, monkeypatch):
    build = REPOSITORY / "build" / "release"
    library = build / "libbootstrap/libbootstrap.so.0"
    assert not list(checks.check_record(build, library))
    symbols = tmp_path / "symbols"
    symbols.write_text("BOOTSTRAP_0 { global: bootstrap_version; local: *; };\n")
    other = make("long bootstrap_version(int which) { return which; }\n", "-g", f"-Wl,--version-script={symbols}")
    assert "differs from" in next(checks.check_record(build, other))
    shutil.copytree(checks.RECORD, tmp_path / "record")
    (tmp_path / "record/command.txt").write_text("status --gone\n" + (checks.RECORD / "command.txt").read_text())
    monkeypatch.setattr(checks, "RECORD", tmp_path / "record")
    assert "gone ['status --gone']" in next(checks.check_record(build, library))
