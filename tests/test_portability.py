"""The same on Linux, macOS and Windows: encodings, line ends, code pages, names of files, modules of one system."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcalc import cli
from llmcalc.calibration.profiles import checked_name
from llmcalc.calibration.readers import read_runs
from llmcalc.catalog_files import parse_text, read_text
from llmcalc.errors import InputError
from llmcalc.traces import read_trace

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "estimator"
SOURCES = sorted(PACKAGE.rglob("*.py"))
BY_NAME = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))

ONE_SYSTEM = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "posix", "readline", "curses", "syslog",
              "winreg", "msvcrt", "_winapi", "winsound", "nt"}  # fmt: skip
POSIX_CALLS = {"os.fork", "os.forkpty", "os.getuid", "os.geteuid", "os.getgid", "os.uname", "os.setsid", "os.killpg",
               "os.mkfifo", "os.sysconf", "os.getloadavg", "os.nice", "os.sched_getaffinity", "signal.alarm",
               "signal.setitimer", "time.tzset"}  # fmt: skip


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def given(call: ast.Call) -> dict[str, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg}


@BY_NAME
def test_text_has_a_stated_encoding(path: Path) -> None:
    for call, name in calls(path):
        last, keywords = name.split(".")[-1], given(call)
        if last in ("read_text", "write_text"):
            own = not name.startswith(("path", "self")) and len(call.args) > 0 and not keywords  # a reader of our own
            assert "encoding" in keywords or own, ast.unparse(call)
        elif last == "open" and name != "os.open":
            inside = (node for each in (*call.args, *call.keywords) for node in ast.walk(each))
            texts = [node.value for node in inside if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            assert "encoding" in keywords or any("b" in text for text in texts), ast.unparse(call)
        elif last in ("Popen", "run") and name.startswith("subprocess."):
            as_text = keywords.get("text") == "True" or keywords.get("universal_newlines") == "True"
            assert not as_text or "encoding" in keywords, ast.unparse(call)


@BY_NAME
def test_no_module_of_one_system_is_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level and node.module else []
        assert not {name.split(".")[0] for name in names} & ONE_SYSTEM


@BY_NAME
def test_calls_of_one_system_are_guarded(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    for call, name in calls(path):
        if name in POSIX_CALLS:
            owner, _, attribute = name.partition(".")
            guards = (f'hasattr({owner}, "{attribute}")', "except (AttributeError", "sys.platform")
            assert any(guard in source for guard in guards), ast.unparse(call)


ALL_MODULES = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {refused!r}:
            raise ModuleNotFoundError(name + " is not on every system")
for name in {refused!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
import llmcalc
for each in pkgutil.walk_packages(llmcalc.__path__, "llmcalc."):
    if each.name != "llmcalc.sweep_dask":
        importlib.import_module(each.name)
"""


def test_every_module_is_imported_without_the_modules_of_one_system() -> None:
    refused = sorted(ONE_SYSTEM - {"posix", "nt"})  # the interpreter's own, under os
    done = subprocess.run(
        [sys.executable, "-c", ALL_MODULES.format(refused=refused)], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr


# What is printed

PAGE = ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b"]


def printed(monkeypatch: pytest.MonkeyPatch, encoding: str, arguments: list[str]) -> bytes:
    """What a run of the program writes to a stdout of this encoding."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    monkeypatch.setattr(sys, "argv", ["llmcalc", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    sys.stdout.flush()
    assert ended.value.code == 0
    return raw.getvalue()


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "cp932", "koi8-r", "ascii", "utf-8"])
def test_a_page_is_utf8_whatever_the_code_page(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    text = printed(monkeypatch, encoding, PAGE).decode("utf-8")
    assert "█" in text and "–" in text


def test_an_encoding_that_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    text = printed(monkeypatch, "cp1252", PAGE).decode("cp1252")
    assert "–" in text and "?" in text and "█" not in text


@pytest.mark.parametrize("arguments", [[*PAGE, "--format", "json"], ["hardware", "list", "--json"]], ids=lambda a: a[0])
def test_data_has_line_feeds_alone(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    assert b"\r" not in printed(monkeypatch, "utf-8", arguments)


# What is read


@pytest.mark.parametrize("path", sorted((ROOT / "tests/data/readers").iterdir()), ids=lambda path: path.name)
def test_runs_are_read_the_same_with_any_line_ends(tmp_path: Path, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    copy = tmp_path / path.name
    copy.write_bytes(text.replace("\n", "\r\n").encode())
    rates = [run.t_s for run in read_runs(path).runs]
    assert [run.t_s for run in read_runs(copy).runs] == rates
    for encoding in ("utf-8-sig", "utf-16"):  # as editors and shells of Windows write
        copy.write_text(text, encoding=encoding)
        assert [run.t_s for run in read_runs(copy).runs] == rates


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_catalogs_and_traces_are_read_with_any_line_ends(tmp_path: Path, end: str, encoding: str) -> None:
    catalog, trace = tmp_path / "hardware.yaml", tmp_path / "trace.csv"
    lines = ["my-gpu:", "  name: Mine é", "  bandwidth: 1 TB/s", "other:", "  extends: my-gpu", ""]
    catalog.write_bytes(end.join(lines).encode(encoding))
    trace.write_bytes(end.join(["arrival_s,prompt,output", "5,100,10", "6.5,200,20", ""]).encode(encoding))
    blocks = list(parse_text(read_text(catalog), "hardware.yaml"))
    assert [(block.id, block.line, block.parsed_fields()) for block in blocks] == [
        ("my-gpu", 1, {"name": "Mine é", "bandwidth": "1 TB/s"}),
        ("other", 4, {"extends": "my-gpu"}),
    ]
    assert read_trace(trace).lengths.prompts == (100, 200)


# Names of files


@pytest.mark.parametrize(
    "name",
    ["con", "PRN", "aux.backup", "nul", "com1", "lpt9", "com¹", "a:b", "a?b", "a*b", 'a"b', "a<b", "a>b", "a|b", "a\tb",
     "a.", "a ", ".hidden", "a/b", "a\\b", "x" * 65, "a\u202eb", "é"],
)  # fmt: skip
def test_names_that_a_file_system_may_refuse_are_refused(name: str) -> None:
    if name.strip() != name and name.strip():
        assert checked_name(name) == name.strip()
        return
    with pytest.raises(InputError, match="profile name"):
        checked_name(name)


def test_no_two_files_of_the_project_differ_by_case_or_have_a_reserved_name() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    names = listed.stdout.splitlines()
    assert len({name.casefold() for name in names}) == len(names)
    reserved = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
    parts = {part for name in names for part in Path(name).parts}
    assert not {part for part in parts if part.split(".")[0].casefold() in reserved}
    assert all(part.isascii() and part.isprintable() and not set(part) & set('<>:"|?*\\') for part in parts)
    assert max(map(len, names)) < 150  # Windows' limit is 260, with the folder it is cloned to


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CONFIG_HOME": "/x"}, Path("/x/llmcalc")),
        ("linux", {"XDG_CONFIG_HOME": "", "HOME": "/home/u"}, Path("/home/u/.config/llmcalc")),
    ],
)
def test_the_folder_of_the_user_is_the_platforms(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: Path
) -> None:
    from llmcalc.user_folder import user_folder

    if not sys.platform.startswith(platform):
        pytest.skip(f"of {platform}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_folder() == expected


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_platforms_ask_platformdirs(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    import platformdirs

    from llmcalc.user_folder import user_folder

    monkeypatch.setattr(sys, "platform", platform)
    assert user_folder() == Path(platformdirs.user_config_dir("llmcalc", appauthor=False))
    assert os.path.isabs(user_folder())
