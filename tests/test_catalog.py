"""Names, overlays and hostile files; the built-in files are scanned as they would be parsed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import catalog_files, names
from llmcalc.catalog import ENVIRONMENT_VARIABLE, Catalog, Entry, _mentioning, entries_with, find_entry, open_catalog
from llmcalc.catalog_files import MAX_FILE_BYTES, load_entries, parse_text, scan_text
from llmcalc.errors import InputError, UnknownNameError

ROOT = Path(__file__).parent.parent
BUILT_IN_FILES = sorted([*ROOT.glob("hardware/*.yaml"), *ROOT.glob("models/*.yaml")])


@pytest.fixture(autouse=True)
def no_user_catalogs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)


def catalog_of(text: str, kind: names.CatalogKind = "hardware") -> Catalog:
    return Catalog(kind, {block.id: (block,) for block in parse_text(text, "test.yaml")})


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


# Built-in files


@pytest.mark.parametrize("path", BUILT_IN_FILES, ids=lambda path: path.name)
def test_scan_equals_the_full_parse(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    scanned = [(b.id, sorted(b.names), b.line, b.parsed_fields()) for b in scan_text(text, path.name)]
    parsed = [(b.id, sorted(b.names), b.line, b.parsed_fields()) for b in parse_text(text, path.name)]
    assert scanned == parsed
    assert scanned


@pytest.mark.parametrize("kind", ["hardware", "models"])
def test_every_name_of_the_built_in_catalogs_means_its_entry(kind: names.CatalogKind) -> None:
    catalog = open_catalog(kind)
    written = [(id, name) for id in catalog.ids() for name in catalog.names(id)]
    assert len(written) > len(catalog.ids())
    assert [(id, name) for id, name in written if catalog._matches(name, None) != [id]] == []


@pytest.mark.parametrize("kind", ["hardware", "models"])
def test_a_look_up_that_reads_little_finds_what_the_whole_catalog_holds(kind: names.CatalogKind) -> None:
    catalog = open_catalog(kind)
    for id in catalog.ids():
        for name in catalog.names(id):
            found, whole = find_entry(kind, name), catalog.entry(id)
            assert (found, found.where) == (whole, whole.where)


def test_a_look_up_reads_only_entries_that_mention_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("llmcalc.catalog.built_in_catalog", lambda kind: pytest.fail("the whole catalog was scanned"))
    monkeypatch.setattr("llmcalc.catalog.scan_text", lambda *given: (seen.append(b.id) or b for b in scan_text(*given)))
    _mentioning.cache_clear()
    assert find_entry("hardware", "NVIDIA GeForce RTX 4090").id == "geforce-rtx-4090"
    assert all("4090" in id for id in seen)


@pytest.mark.parametrize(("kind", "part"), [("hardware", "RTX 40"), ("models", "llama3"), ("models", "")])
def test_entries_with_a_part_of_a_name_are_all_there(kind: names.CatalogKind, part: str) -> None:
    whole, some = open_catalog(kind), entries_with(kind, part)
    holds = [id for id in whole.ids() if any(names.normalise(part) in names.normalise(n) for n in whole.names(id))]
    assert holds and set(holds) <= set(some.ids())


@given(st.text(st.sampled_from("aAkK1 +-_/.ſßµ"), max_size=8), st.text(max_size=5), st.text(max_size=5))
def test_no_text_that_holds_an_ascii_name_is_passed_over(name: str, before: str, after: str) -> None:
    text = f"{before}{name}{after}".encode()
    assert not name.isascii() or names.mentions(names.flattened(text), names.normalise(name))


@pytest.mark.parametrize("kind", ["hardware", "models"])
def test_no_two_built_in_entries_claim_one_name(kind: names.CatalogKind) -> None:
    catalog = open_catalog(kind)
    owner: dict[str, str] = {}
    for id in catalog.ids():
        for name in catalog.names(id):
            assert owner.setdefault(names.normalise(name), id) == id, name


def test_scan_reads_the_forms_that_people_write() -> None:
    text = (
        "# head\n"
        "first-1:  # with a comment\n"
        '  name: "A: b"  # why\n'
        "  aliases: [one, \"2\", 'three',\n"
        "    four]\n"
        "  hugging_face: owner/repo-7B\n"
        "\n"
        "# between\n"
        "second:\n"
        "  name: C # d\n"
        "  hugging_face: [a/b, c/d]\n"
    )
    first, second = scan_text(text, "f.yaml")
    assert first.names == ("first-1", "A: b", "one", "2", "three", "four", "owner/repo-7B", "repo-7B")
    assert (first.line, second.line) == (2, 9)
    assert second.names == ("second", "C", "a/b", "c/d", "b", "d")
    assert second.parsed_fields() == {"name": "C", "hugging_face": ["a/b", "c/d"]}
    assert [sorted(b.names) for b in parse_text(text, "f.yaml")] == [sorted(first.names), sorted(second.names)]


# Names


@pytest.mark.parametrize("text", ["RTX 4090", "rtx4090", "rtx-4090", "RTX_4090", "Rtx/4090", "rtx:4090", "RTX (4090)"])
def test_normalise_ignores_case_and_separators(text: str) -> None:
    assert names.normalise(text) == "rtx4090"


def test_normalise_keeps_dots_and_tells_plus_apart() -> None:
    assert names.normalise("Llama 3.1") != names.normalise("Llama 31")
    assert names.normalise("8480+") == "8480plus" != names.normalise("8480")


@given(st.text(max_size=30))
def test_normalise_is_idempotent(text: str) -> None:
    assert names.normalise(names.normalise(text)) == names.normalise(text)


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20), min_size=1))
def test_normalise_all_is_normalise_of_each(texts: list[str]) -> None:
    assert names.normalise_all(texts) == [names.normalise(text) for text in texts]


MODELS = """
llama3-8b:
  name: Llama 3 8B
  hugging_face: meta-llama/Meta-Llama-3-8B
gemma-3-4b:
  name: Gemma 3 4B
  hugging_face: google/gemma-3-4b-it
"""


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("llama3-8b", "llama3-8b"),
        ("Llama 3 8B", "llama3-8b"),
        ("llama3:8b", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("Meta-Llama-3-8B", "llama3-8b"),
        ("Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("somebody/Meta-Llama-3-8B-Instruct-GGUF", "llama3-8b"),
        ("somebody/Meta-Llama-3-8B-Instruct-GGUF:Q4_K_M", "llama3-8b"),
        ("Meta-Llama-3-8B-Instruct-Q4_K_M.gguf", "llama3-8b"),
        ("Meta-Llama-3-8B.IQ4_XS.gguf", "llama3-8b"),
        ("/models/Llama-3-8B-chat-UD-Q4_K_XL-00001-of-00003.gguf", "llama3-8b"),
        ("Llama-3-8B-i1-GGUF", "llama3-8b"),
        ("llama-3-8b-bf16", "llama3-8b"),
        ("gemma-3-4b-it-qat-q4_0", None),  # another set of weights, not only another way to write it
        ("gemma-3-4b", "gemma-3-4b"),
        ("google_gemma-3-4b-it-MXFP4_MOE.gguf", "gemma-3-4b"),
        ("llama3", None),
    ],
)
def test_model_names_and_file_names(name: str, id: str | None) -> None:
    catalog = catalog_of(MODELS, "models")
    if id is None:
        with pytest.raises(UnknownNameError):
            catalog.find(name)
    else:
        assert catalog.find(name).id == id


DEVICES = """
card-8gb: {name: Card 8GB}
card-16gb: {name: Card 16GB, aliases: [Card 16]}
card-x: {name: Card X}
cardigan: {name: Cardigan}
"""


def test_a_name_that_several_entries_go_on_from_is_ambiguous() -> None:
    with pytest.raises(
        UnknownNameError, match="device 'card' may mean any of: card-8gb, card-16gb, card-x; say"
    ) as error:
        catalog_of(DEVICES).find("card")
    assert error.value.candidates == ("card-8gb", "card-16gb", "card-x")


def test_an_unknown_name_lists_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="unknown device 'cardigam'; closest: cardigan"):
        catalog_of(DEVICES).find("cardigam")
    with pytest.raises(UnknownNameError, match="unknown device 'zzzzqqq'; see `llmcalc hardware list`"):
        catalog_of(DEVICES).find("zzzzqqq")


@pytest.mark.parametrize("name", ["", " ", "-", "NVIDIA", "(R)"])
def test_a_name_of_nothing_is_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError):
        catalog_of(DEVICES).find(name)


@given(st.text(max_size=40))
def test_any_text_is_found_or_refused(text: str) -> None:
    try:
        assert catalog_of(DEVICES).find(text).id.startswith("card")
    except UnknownNameError as error:
        assert "\n" not in str(error)


def test_accept_leaves_out_entries() -> None:
    catalog = catalog_of("a: {name: NVIDIA Thing}\nb: {name: AMD Thing}\n")
    assert catalog.find("Thing", lambda entry: entry.id == "b").id == "b"
    with pytest.raises(UnknownNameError, match="may mean any of: a, b"):
        catalog.find("Thing")
    with pytest.raises(UnknownNameError):
        catalog.find("a", lambda entry: entry.id == "b")


# User catalogs


def test_a_user_entry_replaces_the_one_of_the_same_id(tmp_path: Path) -> None:
    write(tmp_path, "hardware/mine.yaml", "geforce-rtx-4090: {name: Mine, bandwidth: 1 GB/s}\nnew-card: {name: New}\n")
    catalog = open_catalog("hardware", [tmp_path])
    assert catalog.find("Mine").fields == {"name": "Mine", "bandwidth": "1 GB/s"}
    assert catalog.find("new-card").file.endswith("mine.yaml")
    with pytest.raises(UnknownNameError):
        catalog.find("4090")  # the replaced entry's names went with it
    assert open_catalog("hardware").find("4090").id == "geforce-rtx-4090"


def test_extends_takes_the_fields_but_not_the_names(tmp_path: Path) -> None:
    write(tmp_path, "hardware.yaml", "slow-4090:\n  extends: geforce-rtx-4090\n  power: 220 W\n")
    catalog = open_catalog("hardware", [tmp_path])
    fields = catalog.find("slow 4090").fields
    assert fields["power"] == "220 W"
    assert fields["bandwidth"] == "1008 GB/s"
    assert not {"name", "aliases", "extends"} & set(fields)
    assert catalog.find("4090").fields["power"] == "450 W"


def test_extending_its_own_id_amends_an_entry_and_keeps_its_names(tmp_path: Path) -> None:
    first = write(tmp_path / "1", "hardware.yaml", "geforce-rtx-4090: {extends: geforce-rtx-4090, power: 220 W}\n")
    second = write(tmp_path / "2", "hardware.yaml", "geforce-rtx-4090: {extends: geforce-rtx-4090, aliases: [big]}\n")
    catalog = open_catalog("hardware", [first, second])
    for name in ("4090", "big"):
        fields = catalog.find(name).fields
        assert (fields["power"], fields["bandwidth"]) == ("220 W", "1008 GB/s")


def test_extends_overrides_single_keys_of_mappings_and_null_removes(tmp_path: Path) -> None:
    text = "a: {peaks: {x: 1, y: 2, z: 3}, power: 1 W}\nb: {extends: a, peaks: {y: 3, z: null}, power: null}\n"
    write(tmp_path, "hardware.yaml", text)
    assert open_catalog("hardware", [tmp_path]).find("b").fields == {"peaks": {"x": 1, "y": 3}}


def test_later_folders_win_and_the_environment_variable_comes_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "config/llmcalc", "hardware/a.yaml", "x: {name: X, power: 1 W}\ny: {name: Y, power: 1 W}\n")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv(
        ENVIRONMENT_VARIABLE, str(write(tmp_path / "env", "hardware.yaml", "x: {name: X, power: 2 W}\n"))
    )
    assert open_catalog("hardware").find("x").fields["power"] == "2 W"
    assert open_catalog("hardware").find("y").fields["power"] == "1 W"
    given = write(tmp_path / "given", "hardware.yaml", "x: {name: X, power: 3 W}\n")
    assert open_catalog("hardware", [given]).find("x").fields["power"] == "3 W"


def test_files_of_the_other_kind_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "models.yaml", "not yaml: [")
    assert open_catalog("hardware", [tmp_path]).ids() == open_catalog("hardware").ids()


def test_a_folder_called_hardware_counts_as_that_subfolder(tmp_path: Path) -> None:
    folder = write(tmp_path / "hardware", "anything.yml", "x: {name: X}\n")
    assert open_catalog("hardware", [folder]).find("x").id == "x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mine: {name: RTX 4090}", "the name 'RTX 4090' belongs to geforce-rtx-4090"),
        ("a: {name: Same thing}\nb: {name: same-thing}", "the name 'same-thing' belongs to a "),
        ("a: {aliases: [on]}", "a: aliases: expected text, got True"),
        ("a: {name: {b: c}}", "a: name: expected text"),
    ],
)
def test_claims_that_cannot_stand(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, "hardware.yaml", text)
    with pytest.raises(InputError, match=problem):
        open_catalog("hardware", [tmp_path])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {extends: nothing}", "extends: 'nothing' is not the id"),
        ("a: {extends: a}", "extends: a would extend itself"),
        ("a: {extends: b}\nb: {extends: a}", "extends: a would extend itself"),
        ("a: {extends: [b]}", "is not the id of an entry"),
    ],
)
def test_extends_that_cannot_stand(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, "hardware.yaml", text)
    catalog = open_catalog("hardware", [tmp_path])
    with pytest.raises(InputError, match=problem):
        catalog.find("a")


def test_folders_that_hold_no_catalog(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_catalog("hardware", [tmp_path / "nowhere"])
    with pytest.raises(InputError, match=r"holds none of"):
        open_catalog("hardware", [write(tmp_path, "devices.yaml", "a: {}\n")])


# Hostile files


LAUGHS = "a: &a {x: 1}\n" + "".join(f"b{i}: {{y: [*a, *a]}}\n" for i in range(9))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, r"f.yaml:1: anchors and aliases are not allowed"),
        ("a:\n  x: !!python/object/apply:os.system [ls]\n", r"f.yaml:2: the tag .*os.system is not allowed"),
        ("a:\n  x: !thing 1\n", r"f.yaml:2: the tag !thing is not allowed"),
        ("a:\n  x: 1\n  x: 2\n", r"f.yaml:3: the key 'x' is there twice"),
        ("a: {x: 1}\nb: {x: 1}\na: {x: 2}\n", r"f.yaml:3: the key 'a' is there twice"),
        ("- a\n- b\n", r"f.yaml:1: expected a mapping"),
        ("just text", r"f.yaml:1: expected a mapping"),
        ("a: text\n", r"f.yaml:1: expected a mapping"),
        ("a:\nb: {}\n", r"f.yaml:1: expected a mapping"),
        ("a:\n  ? [1, 2]\n  : x\n", r"f.yaml:2: a key must be plain text"),
        ("a: {x: 1\n", r"f.yaml:2: "),
        ("a:\n  x: [1, 2\nb: {}\n", r"f.yaml:3: "),
        ("a:\n\tx: 1\n", r"f.yaml:2: "),
        ("a: {x: \x00}", r"f.yaml:1: "),
        ("a:\n  x: " + "[" * 100, r"f.yaml:2: nested more than"),
        ("a: " + "{b: " * 5000, r"f.yaml:1: nested more than"),
        ("a: {x: 2023-99-99}", r"f.yaml:1: cannot read the value '2023-99-99'"),
        ("a: {x: 1}\n---\nb: {x: 1}\n", r"f.yaml:2: .*document"),
    ],
)
def test_hostile_or_broken_yaml_is_one_clear_line(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as error:
        load_entries(text, "f.yaml")
    assert "\n" not in str(error.value)


def test_lines_are_counted_from_where_the_text_begins() -> None:
    with pytest.raises(InputError, match=r"f.yaml:12: "):
        load_entries("a:\n  x: 1\n  x: 2\n", "f.yaml", first_line=10)


def test_an_empty_file_has_no_entries() -> None:
    assert load_entries("# nothing\n", "f.yaml") == []


def test_files_too_large_or_not_text_are_refused(tmp_path: Path) -> None:
    large = tmp_path / "hardware.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(InputError, match="larger than 4 MiB"):
        open_catalog("hardware", [tmp_path])
    large.write_bytes(b"a: {name: \xff}")
    with pytest.raises(InputError, match="not UTF-8"):
        open_catalog("hardware", [tmp_path])
    with pytest.raises(InputError, match=r"absent.yaml"):
        catalog_files.read_text(tmp_path / "absent.yaml")


@given(st.text(max_size=60))
def test_any_text_is_entries_or_an_input_error(text: str) -> None:
    try:
        for id, fields, line in load_entries(text, "f.yaml"):
            assert isinstance(id, str)
            assert isinstance(fields, dict)
            assert line >= 1
    except InputError as error:
        assert str(error).startswith("f.yaml:")


# Look-ups over user catalogs read only what has to do with the name


IDS = ("geforce-rtx-4090", "alpha", "alpha-2", "beta")
overlays = st.dictionaries(
    st.sampled_from(IDS),
    st.fixed_dictionaries(
        {"power": st.sampled_from(["1 W", "2 W"])},
        optional={"aliases": st.lists(st.sampled_from(["alpha ti", "one", "two", "4090"]), max_size=2, unique=True),
                  "extends": st.sampled_from((*IDS, "m2-ultra-76"))},
    ),
    min_size=1,
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=50)  # the whole catalog is opened each time
@given(st.lists(overlays, min_size=1, max_size=2))
def test_a_look_up_over_user_catalogs_finds_what_the_whole_catalog_finds(layers: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        folders = [
            write(Path(folder) / str(number), "hardware.yaml", yaml.safe_dump(layer))
            for number, layer in enumerate(layers)
        ]
        try:
            whole = open_catalog("hardware", folders)
        except InputError:
            return
        for name in (*IDS, "alpha ti", "one", "two", "RTX 4090", "4090", "m2-ultra-76", "nothing"):
            assert found(lambda n=name: find_entry("hardware", n, folders)) == found(lambda n=name: whole.find(n))


def found(look_up: Callable[[], Entry]) -> tuple[str, object]:
    try:
        entry = look_up()
    except InputError as error:
        return "error", str(error)
    return entry.where, dict(entry.fields)


def test_files_whose_lines_do_not_tell_entries_apart_are_parsed(tmp_path: Path) -> None:
    write(tmp_path, "hardware.yaml", '{"mine": {power: 1 W},\n"yours": {power: 2 W}}\n')
    assert find_entry("hardware", "yours", [tmp_path]).fields == {"power": "2 W"}


def test_errors_of_the_entry_in_question_show(tmp_path: Path) -> None:
    write(tmp_path, "hardware.yaml", "good:\n  power: 1 W\nbad:\n  power: [\nworse: 1\n")
    assert find_entry("hardware", "good", [tmp_path]).fields == {"power": "1 W"}
    with pytest.raises(InputError, match=r"hardware.yaml:\d"):
        find_entry("hardware", "bad", [tmp_path])
