"""Nothing is lost, reached or run that should not be: whole writes, shared folders, no network, no escapes."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.calibration import profiles
from llmcalc.check_command import shell_word
from llmcalc.cli import run
from llmcalc.errors import InputError
from llmcalc.parameter_sweep import sweep
from llmcalc.sweep_output import resume
from llmcalc.whole_files import write_output, write_whole

PACKAGE = Path(__file__).resolve().parent.parent / "estimator"
SOURCES = sorted(PACKAGE.rglob("*.py"))
BY_NAME = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and links")

JOBS = [
    ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--explain"],
    ["compare", "--gpu", "rtx4090", "--gpu", "rtx3090", "--model", "llama3-8b"],
    ["plan", "--model", "llama3-8b", "--min-tps", "50"],
    ["sweep", "--gpu", "rtx4090", "--model", "llama3-8b", "--ctx", "1k..4k"],
    ["serve", "--gpu", "rtx4090", "--model", "llama3-8b", "--rate", "1"],
    ["memory", "--gpu", "rtx3090", "--model", "gemma3-27b", "--quant", "q4"],
    ["hardware", "list"],
    ["models", "show", "qwen3-30b-a3b"],
    ["profile", "list"],
    ["detect", "--json"],
]


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Every call in a module, with the dotted name of what is called as far as it is one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def modes(call: ast.Call) -> list[str]:
    """The texts among the arguments of a call of open, the mode last."""
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]


# Writing

WRITERS = {
    "whole_files.py": "writes whole files",
    "sweep_output.py": "writes a .part beside, and notes how much of it is whole",
    "calibration/runner.py": "adds a line to what is kept, whose readers pass over half a line",
    "calibration/fit_corpus.py": "writes a file of this repository",
    "importers/gguf_writer.py": "writes files for tests",
}


@BY_NAME
def test_files_are_written_by_few_modules_that_do_it_safely(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() in WRITERS:
        return
    for call, name in calls(path):
        assert not name.endswith((".write_text", ".write_bytes", "os.fdopen", "os.replace", "os.rename")), name
        if name.split(".")[-1] == "open" and ast.unparse(call) != "os.open(os.devnull, os.O_WRONLY)":
            assert modes(call) and set(modes(call)[-1]) <= {"r", "b"}, ast.unparse(call)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], step: str
) -> None:
    path = tmp_path / "kept.txt"
    write_whole(path, "old")

    def fail(*_: object, **__: object) -> NoReturn:
        raise error("now")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(InputError if error is OSError else error):
            write_whole(path, "new" * 100_000)
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["kept.txt"]


ENDLESS = """
import sys
from pathlib import Path
from llmcalc.whole_files import write_whole
path = Path(sys.argv[1])
for letter in "abcdefghij" * 10_000:
    write_whole(path, letter * 2_000_000)
    print(letter, flush=True)
"""


@POSIX
def test_a_killed_writer_leaves_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    for delay in (0.0, 0.003, 0.006, 0.009, 0.012):
        writer = subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout
        assert writer.stdout.readline()
        time.sleep(delay)
        writer.kill()
        writer.communicate()
        content = path.read_text(encoding="utf-8")
        assert len(content) == 2_000_000
        assert len(set(content)) == 1


@POSIX
def test_a_file_keeps_its_rights_and_new_ones_are_as_the_user_wants(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("x", encoding="utf-8")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        write_whole(old, "y")
        write_whole(new, "y")
    finally:
        os.umask(before)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


@POSIX
def test_outputs_go_through_links_and_into_pipes(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    write_output(link, "through")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "through"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_output(pipe, b"into")
        assert reader.communicate()[0] == b"into"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_output(os.devnull, "away")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("arguments", [
    ["report", "--gpu", "rtx4090", "--model", "llama3-8b", "-o", "{}/missing/page.html"],
    ["plot", "roofline", "--gpu", "rtx4090", "--model", "llama3-8b", "-o", "{}/missing/roofline.svg"],
    ["sweep", "--gpu", "rtx4090", "--model", "llama3-8b", "-o", "{}/missing/sweep.csv"],
])  # fmt: skip
def test_outputs_that_cannot_be_written_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run([each.format(tmp_path) for each in arguments]) == 2
    assert "missing" in capsys.readouterr().err


@POSIX
def test_a_killed_sweep_goes_on_to_the_same_file(tmp_path: Path) -> None:
    asked = ["sweep", "--gpu", "rtx4090,rtx3090,rtx3060", "--model", "llama3-8b,qwen3-30b-a3b", "--ctx", "8k",
             "--prompt", "1..4k"]  # fmt: skip
    program = [sys.executable, "-c", "from llmcalc.cli import main; main()"]
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    assert run([*asked, "-o", str(whole)]) == 0
    writer = subprocess.Popen([*program, *asked, "-o", str(cut)], stderr=subprocess.DEVNULL)
    note = tmp_path / "cut.csv.part.json"
    while not note.exists() and writer.poll() is None:
        time.sleep(0.002)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    if not cut.exists():
        assert run([*asked, "-o", str(cut), "--resume"]) == 0
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["cut.csv", "whole.csv"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["blocks", "size", "rows", "left_out", "problems", "sweep"]), plain) | plain)
def test_any_note_of_a_sweep_is_taken_up_or_refused(tmp_path: Path, note: Any) -> None:
    path = tmp_path / "sweep.csv"
    (tmp_path / "sweep.csv.part").write_bytes(b"0123456789")
    (tmp_path / "sweep.csv.part.json").write_text(json.dumps(note), encoding="utf-8")
    with pytest.raises(InputError, match=r"damaged|another sweep"):
        resume(path, sweep(model="llama3-8b", gpu="rtx4090", ctx="1k..2k"), "csv")


# Sharing


BUSY = """
import sys
from llmcalc.calibration import profiles
from llmcalc.errors import InputError
text = sys.stdin.read()
for number in range(25):
    try:
        if sys.argv[1] == "save":
            profiles.save(profiles.from_text(text, "mine"))
        elif sys.argv[1] == "remove":
            profiles.remove("mine")
        else:
            found, damaged = profiles.load_all()
            assert not damaged, damaged
            profiles.load("mine")
    except InputError as error:
        assert "there is no profile" in str(error), error
"""


@pytest.fixture(scope="module")
def profile() -> profiles.Profile:
    from calibration_cases import BACKEND, DEVICE, all_cases, measured, truth

    from llmcalc.calibration.machine_runs import MachineRuns
    from llmcalc.calibration.results import calibrate_machines, profile_of

    cases = measured(all_cases()[:4], truth({"memory": 1.0}))
    return profile_of("mine", calibrate_machines(MachineRuns({(BACKEND, DEVICE): tuple(cases)}, ())))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMCALC_PROFILES", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


def test_writers_readers_and_removers_may_share_the_folder(profile: profiles.Profile, folder: Path) -> None:
    text = profiles.to_text(profile)
    roles = ["save", "save", "load", "load", "remove"]
    busy = [
        subprocess.Popen([sys.executable, "-c", BUSY, role], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for role in roles
    ]
    for each in busy:
        assert each.stdin
        each.stdin.write(text)
        each.stdin.close()
    for each in busy:
        assert each.stderr
        assert each.stderr.read() == ""
        assert each.wait() == 0
    assert set(os.listdir(folder)) <= {"mine.yaml"}


# Escaping


@pytest.mark.parametrize("name", ["../mine", "..", "/etc/passwd", "a/../../b", r"..\mine", "C:mine", "mine\0", "~", ""])
def test_names_of_profiles_cannot_leave_the_folder(profile: profiles.Profile, folder: Path, name: str) -> None:
    from dataclasses import replace

    for use in (profiles.load, profiles.remove, profiles.path_of):
        with pytest.raises(InputError, match="profile name"):
            use(name)
    with pytest.raises(InputError, match="profile name"):
        profiles.save(replace(profile, name=name))
    assert not folder.exists() or not os.listdir(folder)


@POSIX
def test_a_link_in_the_folder_of_profiles_is_replaced_not_followed(profile: profiles.Profile, folder: Path) -> None:
    folder.mkdir()
    outside = folder.parent / "outside.yaml"
    outside.write_text("kept", encoding="utf-8")
    (folder / "mine.yaml").symlink_to(outside)
    profiles.save(profile)
    assert outside.read_text(encoding="utf-8") == "kept"
    assert not (folder / "mine.yaml").is_symlink()
    assert profiles.load("mine").machines
    profiles.remove("mine")
    assert outside.exists()


@POSIX
def test_setting_a_linked_profile_aside_leaves_what_it_links_to(folder: Path) -> None:
    folder.mkdir()
    outside = folder.parent / "outside.yaml"
    outside.write_text("no profile", encoding="utf-8")
    (folder / "mine.yaml").symlink_to(outside)
    with pytest.raises(InputError, match="damaged"):
        profiles.load("mine")
    assert outside.read_text(encoding="utf-8") == "no profile"


def test_an_imported_profile_lands_in_the_folder(
    profile: profiles.Profile, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(profiles.to_text(profile).replace("name: mine", "name: ../../escaped"), encoding="utf-8")
    assert run(["profile", "import", str(file), "--as", "../escaped"]) == 2
    assert "profile name" in capsys.readouterr().err
    assert run(["profile", "import", str(file)]) == 0
    assert os.listdir(folder) == ["given.yaml"]


def test_ids_of_a_catalog_are_never_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hardware.yaml").write_text(
        "../../escaped; rm -rf ~:\n  extends: geforce-rtx-4090\n  name: A $(reboot) `reboot`\n", encoding="utf-8"
    )
    asked = ["--gpu", "../../escaped; rm -rf ~", "--catalog", str(tmp_path), "--model", "llama3-70b", "--ctx", "128k"]
    assert run(["estimate", *asked]) == 0
    printed = capsys.readouterr().out
    assert "--gpu '../../escaped; rm -rf ~'" in " ".join(printed.split())  # one word of the command to copy
    assert os.listdir(tmp_path) == ["hardware.yaml"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20))
def test_names_in_commands_to_copy_are_single_words(text: str) -> None:
    import shlex

    assert shlex.split(shell_word(text)) == [text]


# Network, YAML and code from elsewhere

NETWORK = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "telnetlib", "xmlrpc", "socketserver", "asyncio",
           "requests", "httpx", "aiohttp", "urllib3", "webbrowser"}  # fmt: skip
LOADS_CODE = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "runpy.run_path"}
MODULES_THAT_LOAD_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle", "code", "pty"}


@BY_NAME
def test_no_module_of_the_network_or_of_pickles_is_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level and node.module else []
        roots = {name.split(".")[0] for name in names}
        assert not roots & (NETWORK | MODULES_THAT_LOAD_CODE)
        if "distributed" in roots:  # only where Dask was asked for
            assert path.name == "sweep_dask.py"


@BY_NAME
def test_nothing_that_was_read_is_run(path: Path) -> None:
    for call, name in calls(path):
        assert name not in LOADS_CODE
        assert not any(keyword.arg == "shell" for keyword in call.keywords), name
        if name.startswith("yaml.") and not name.startswith(("yaml.safe_", "yaml.MarkedYAMLError")):
            loaders = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "Loader"]
            loaders += [ast.unparse(each) for each in call.args[1:2]]
            assert loaders and all(each == "loader" or "SafeLoader" in each for each in loaders), ast.unparse(call)


@pytest.mark.parametrize("arguments", JOBS, ids=lambda arguments: arguments[0])
def test_no_command_touches_the_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was touched")

    for name in ("socket", "create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setenv("LLMCALC_DEBUG", "1")
    monkeypatch.setenv("LLMCALC_PROFILES", str(tmp_path))
    assert run(arguments) == 0
    assert capsys.readouterr().out
