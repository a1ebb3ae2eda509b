"""Profiles: nothing is lost or overwritten, whatever is in the folder and whoever else writes to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from calibration_cases import BACKEND, DEVICE, all_cases, measured, truth

from llmcalc.calibration import profile_use, profiles
from llmcalc.calibration.device_record import device_of, device_record, same_figures
from llmcalc.calibration.machine_runs import MachineRuns
from llmcalc.calibration.profile_use import named_machine, named_profile
from llmcalc.calibration.profiles import Profile
from llmcalc.calibration.results import calibrate_machines, profile_of
from llmcalc.device_catalog import custom_device, find_device, list_devices, with_cores
from llmcalc.efficiency import shipped
from llmcalc.errors import InputError
from llmcalc.timing import phase_time
from llmcalc.user_folder import PROFILES_VARIABLE, profile_names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path / "profiles"))
    return tmp_path / "profiles"


@pytest.fixture(scope="module")
def profile() -> Profile:
    cases = measured(all_cases()[:8], truth({"memory": 1.0}))
    return profile_of("mine", calibrate_machines(MachineRuns({(BACKEND, DEVICE): tuple(cases)}, ())))


def test_a_profile_comes_back_as_it_was(profile: Profile) -> None:
    path = profiles.save(profile)
    back = profiles.load("mine")
    assert path.read_text(encoding="utf-8").startswith("# A calibration")
    before, after = profile.machines[0], back.machines[0]
    assert after.device == replace(before.device, sources=(), notes=(), price_usd=None, confidence=None)
    assert after.factors.values.keys() == before.factors.values.keys()
    for name, value in before.factors.values.items():
        assert after.factors.values[name] == pytest.approx(value, abs=1e-6)
    assert [dict(run) for run in after.runs] == [dict(run) for run in before.runs]
    assert len(after.runs) == 8


def test_a_loaded_profile_estimates_as_the_calibration_did(profile: Profile) -> None:
    case = all_cases()[10]
    profiles.save(profile)
    applied = profiles.load("mine").applied(shipped())
    time = phase_time(case.phase, case.model, case.device, case.conditions, applied)
    direct = phase_time(case.phase, case.model, case.device, case.conditions, profile.applied(shipped()))
    assert float(time.seconds) == pytest.approx(float(direct.seconds), rel=1e-5)
    assert float(time.log_sd) == pytest.approx(float(direct.log_sd), rel=1e-3)
    assert "profile 'mine' (8 runs" in time.machine.origin


def test_saving_again_replaces_it(profile: Profile, folder: Path) -> None:
    profiles.save(profile)
    profiles.save(replace(profile, created="2030-01-01"))
    assert profiles.load("mine").created == "2030-01-01"
    assert os.listdir(folder) == ["mine.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "schema: [",
        "schema: something/1\n",
        "schema: llmcalc.profile/1\nmachines: []\n",
        "schema: llmcalc.profile/1\nmachines: [{backend: CUDA, factors: {memory: [.nan, 1]}}]\n",
        "\x00\x01",
        "- 1\n",
    ],
)
def test_a_damaged_profile_is_set_aside_and_never_overwritten(text: str, profile: Profile, folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"damaged .*set aside as .*mine\.yaml\.damaged-1"):
        profiles.load("mine")
    (folder / "mine.yaml").write_text(text + "#second", encoding="utf-8")
    profiles.save(profile)
    assert profiles.load("mine").machines
    assert (folder / "mine.yaml.damaged-1").read_text(encoding="utf-8") == text
    assert (folder / "mine.yaml.damaged-2").read_text(encoding="utf-8") == text + "#second"


def test_a_cut_off_profile_is_damaged(profile: Profile, folder: Path) -> None:
    path = profiles.save(profile)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: len(text) // 2], encoding="utf-8")
    found, damaged = profiles.load_all()
    assert not found
    assert "damaged" in damaged[0].reason
    assert len(os.listdir(folder)) == 1


def test_a_profile_of_a_newer_llmcalc_stays_where_it_is(profile: Profile, folder: Path) -> None:
    folder.mkdir()
    newer = "schema: llmcalc.profile/2\n"
    (folder / "mine.yaml").write_text(newer)
    with pytest.raises(InputError, match=r"has schema llmcalc\.profile/2"):
        profiles.load("mine")
    with pytest.raises(InputError, match=r"has schema llmcalc\.profile/2"):
        profiles.save(profile)
    assert (folder / "mine.yaml").read_text() == newer


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "con", "nul.x", "x.yaml", "a b", "é", "-x", "x" * 65]
)
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="profile name"):
        profiles.checked_name(name)


def test_names_do_not_differ_by_case(profile: Profile) -> None:
    profiles.save(replace(profile, name="My-PC"))
    assert profile_names() == ["my-pc"]
    assert profiles.load("MY-pc").machines


def test_the_newest_profile_of_the_device_matches(profile: Profile) -> None:
    device = find_device(DEVICE)
    assert profiles.matching(BACKEND, [device])[0] is None
    profiles.save(replace(profile, name="old", created="2020-01-01"))
    profiles.save(replace(profile, name="new", created="2026-01-01"))
    found, damaged = profiles.matching(BACKEND, [device])
    assert found is not None
    assert found.name == "new"
    assert not damaged
    assert profiles.matching("Vulkan", [device])[0] is None
    assert profiles.matching(BACKEND, [find_device("rtx4090")])[0] is None
    assert profiles.matching(BACKEND, [custom_device(base=device, bandwidth=900e9)])[0] is None


def test_files_of_other_devices_are_not_parsed(folder: Path) -> None:
    folder.mkdir()
    (folder / "other.yaml").write_text("no profile of this device, and no YAML: [")
    assert profiles.matching(BACKEND, [find_device(DEVICE)]) == (None, [])
    assert os.listdir(folder) == ["other.yaml"]


def test_a_failed_write_leaves_the_old_profile(profile: Profile, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.save(profile)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(InputError, match="No space left"):
            profiles.save(replace(profile, created="2030-01-01"))
    assert profiles.load("mine").created == profile.created
    assert os.listdir(folder) == ["mine.yaml"]


def test_writers_at_once_leave_one_whole_profile(profile: Profile, folder: Path) -> None:
    profiles.save(profile)
    code = (
        "from dataclasses import replace; from llmcalc.calibration import profiles as p;"
        "m = p.load('mine');"
        "[p.save(replace(m, created=str(i))) or p.load('mine') for i in range(20)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    for each in running:
        assert each.communicate()[1] == b""
    assert profiles.load("mine").created == "19"
    assert os.listdir(folder) == ["mine.yaml"]


def test_removing_and_missing(profile: Profile) -> None:
    with pytest.raises(InputError, match="llmcalc calibrate"):
        profiles.load("mine")
    profiles.save(profile)
    with pytest.raises(InputError, match="there are mine"):
        profiles.load("other")
    profiles.remove("mine")
    with pytest.raises(InputError, match="no profile"):
        profiles.remove("mine")


@pytest.mark.parametrize("device", list_devices()[::23], ids=lambda device: device.id)
def test_devices_come_back_from_their_records(device: object) -> None:
    bare = replace(device, sources=(), notes=(), price_usd=None, confidence=None)  # type: ignore[type-var]
    assert device_of(device_record(bare)) == bare  # type: ignore[arg-type]


def test_devices_with_other_roofs_are_others() -> None:
    cpu = find_device("ryzen-9-7950x")
    assert same_figures(cpu, replace(cpu, notes=("x",), memory_bytes=1.0))
    assert not same_figures(cpu, with_cores(cpu, 8))
    assert not same_figures(cpu, custom_device(base=cpu, peaks={"int8_cpu": 1e12}))


@pytest.mark.parametrize("record", [None, [], {"id": "x"}, {"unknown": 1}, {"id": "x", "host_link": 3}])
def test_records_of_no_device_are_errors(record: object) -> None:
    with pytest.raises(InputError, match="device"):
        device_of(record)


def changed_machine(profile: Profile, **changes: Any) -> str:
    """The profile as YAML, with some entries of its machine in place of their own."""
    data = yaml.safe_load(profiles.to_text(profile))
    data["machines"][0] |= changes
    return str(yaml.safe_dump(data))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"backend": None}, "each needs a backend and a device"),
        ({"device": "rtx4090"}, "device: expected a mapping"),
        ({"factors": []}, "factors: expected a mapping"),
        ({"factors": {}}, "is missing"),
        ({"factors": {"magic": [0, 1]}}, "'magic' is none of this version's"),
        ({"factors": {"memory": 1}}, "factors: memory: expected"),
        ({"factors": {"memory": [0, -1]}}, "factors: memory: expected a number"),
        ({"covariances": {"memory & magic": 0.1}}, "is of no two factors"),
        ({"covariances": {"memory & launch": 9e9}}, "larger than the standard deviations allow"),
        ({"covariances": 3}, "covariances: expected a mapping"),
        ({"spread": {"decode": "x"}}, "spread: decode: expected a number"),
        ({"errors": [1]}, "errors: expected a mapping"),
        ({"runs": ["x"]}, "runs: expected a list of mappings"),
    ],
)
def test_machines_that_no_calibration_made(profile: Profile, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        profiles.from_text(changed_machine(profile, **changes), "mine")


@pytest.mark.parametrize("text", ["", "[]", "schema: x", "schema: llmcalc.profile/1", "a: [", "a: &x 1", "!!set {a}"])
def test_texts_that_are_no_profile(text: str) -> None:
    with pytest.raises(InputError):
        profiles.from_text(text, "mine")


def test_a_file_of_absurd_size_is_no_profile(folder: Path) -> None:
    folder.mkdir()
    with (folder / "mine.yaml").open("wb") as file:
        file.truncate(profiles.MAX_BYTES + 1)
    with pytest.raises(InputError, match="too large"):
        profiles.load("mine")


def test_damaged_profiles_are_set_aside_beside_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    for number in range(3):
        (folder / "mine.yaml").write_text(f"damaged {number}", encoding="utf-8")
        if number == 2:  # a file system without hard links
            monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(95, "not supported")))
        with pytest.raises(InputError, match="damaged-1" if number == 0 else "damaged"):
            profiles.load("mine")
    kept = {path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert kept == {"damaged 0", "damaged 1", "damaged 2"}


def test_what_a_profile_says_nothing_of(profile: Profile) -> None:
    profiles.save(replace(profile, fit_version=-1))
    device, other = find_device(DEVICE), find_device("rtx3060")
    _, notes = named_profile("mine", BACKEND, [device, other])
    assert f"It says nothing of {other.id}." in notes
    with pytest.raises(InputError, match=f"is of {BACKEND}, not of Metal"):
        named_machine("mine", "Metal")
    with pytest.raises(InputError, match="with other bandwidth, peaks or cores"):
        named_profile("mine", BACKEND, [custom_device(base=device, bandwidth=1e12)])


def test_an_earlier_fit_is_said(profile: Profile) -> None:
    profiles.save(replace(profile, fit_version=-1))
    current = replace(shipped(), provenance={"fit_version": 3})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_use, "shipped", lambda: current)
        _, notes = named_profile("mine", BACKEND, [find_device(DEVICE)])
    assert any("made with an earlier fit" in note for note in notes)
