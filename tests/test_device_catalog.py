"""Devices by name, by fields, and typed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcalc.catalog import ENVIRONMENT_VARIABLE
from llmcalc.device_catalog import FIELDS, custom_device, device_from_fields, find_device, list_devices
from llmcalc.errors import InputError, UnknownNameError
from llmcalc.system import Device, Link
from llmcalc.units import GIB

GPU = ("gpu", "apu", "apple", "soc")


@pytest.fixture(autouse=True)
def no_user_catalogs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)


# Names that people type, and names that drivers and operating systems print.
NAMES = {
    "geforce-rtx-4090": ["rtx4090", "4090", "RTX 4090", "rtx-4090", "NVIDIA GeForce RTX 4090", "nvidia rtx 4090"],
    "geforce-rtx-4060-laptop": ["NVIDIA GeForce RTX 4060 Laptop GPU", "4060 laptop", "RTX 4060 Mobile"],
    "geforce-rtx-3080-10gb": ["rtx3080", "3080", "RTX 3080 10GB"],
    "geforce-rtx-3080-12gb": ["rtx 3080 12gb", "NVIDIA GeForce RTX 3080 12GB"],
    "geforce-rtx-3060-12gb": ["rtx3060", "NVIDIA GeForce RTX 3060"],
    "geforce-rtx-4060-ti-16gb": ["4060 ti 16gb", "RTX 4060 Ti 16 GB"],
    "geforce-rtx-2080-ti": ["2080ti", "RTX 2080 Ti"],
    "geforce-gtx-1080-ti": ["1080ti", "NVIDIA GeForce GTX 1080 Ti"],
    "titan-rtx": ["titan rtx", "NVIDIA TITAN RTX"],
    "quadro-rtx-6000": ["Quadro RTX 6000"],
    "rtx-6000-ada": ["NVIDIA RTX 6000 Ada Generation", "rtx 6000 ada"],
    "rtx-a6000": ["NVIDIA RTX A6000", "a6000"],
    "rtx-pro-6000-blackwell": ["rtx pro 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"],
    "rtx-pro-6000-blackwell-server": ["NVIDIA RTX PRO 6000 Blackwell Server Edition"],
    "tesla-p40": ["p40", "Tesla P40", "NVIDIA P40"],
    "tesla-t4": ["t4", "Tesla T4", "NVIDIA T4"],
    "tesla-v100-sxm2-16gb": ["Tesla V100-SXM2-16GB"],
    "tesla-p100-pcie-16gb": ["Tesla P100-PCIE-16GB"],
    "a100-sxm4-80gb": ["NVIDIA A100-SXM4-80GB"],
    "a100-pcie-40gb": ["NVIDIA A100-PCIE-40GB"],
    "a100-pcie-80gb": ["NVIDIA A100 80GB PCIe"],
    "a16": ["a16", "NVIDIA A16"],
    "h100-sxm5-80gb": ["h100", "NVIDIA H100 80GB HBM3"],
    "h100-pcie-80gb": ["NVIDIA H100 PCIe"],
    "h200-sxm-141gb": ["h200", "NVIDIA H200"],
    "gh200-96gb": ["NVIDIA GH200 480GB"],
    "gb10": ["dgx-spark", "spark", "NVIDIA GB10"],
    "jetson-agx-orin-64gb": ["agx orin"],
    "radeon-rx-7900-xtx": [
        "7900xtx", "RX 7900 XTX", "AMD Radeon RX 7900 XTX", "AMD Radeon RX 7900 XTX (RADV NAVI31)"
    ],
    "radeon-vii": ["Radeon VII", "AMD Radeon VII"],
    "radeon-rx-580-8gb": ["rx580", "RX 580"],
    "instinct-mi50-16gb": ["mi50"],
    "instinct-mi300x": ["mi300x", "AMD Instinct MI300X"],
    "radeon-8060s": ["strix-halo", "8060S", "AMD Radeon 8060S Graphics", "Radeon 8060S"],
    "radeon-780m-ddr5-5600": ["780m", "AMD Radeon 780M Graphics"],
    "arc-b580": ["b580", "Intel(R) Arc(TM) B580 Graphics"],
    "arc-a770-16gb": ["a770", "Intel(R) Arc(TM) A770 Graphics"],
    "arc-a770-8gb": ["a770 8gb"],
    "apple-m2-ultra-76c": ["m2-ultra-76", "m2-ultra", "Apple M2 Ultra", "M2 Ultra 76-core"],
    "apple-m2-ultra-60c": ["m2-ultra-60"],
    "apple-m4-max-40c": ["m4-max", "Apple M4 Max"],
    "apple-m4-max-32c": ["m4 max 32"],
    "apple-a16": ["Apple A16"],
    "raspberry-pi-5": ["pi5", "Raspberry Pi 5"],
    "ryzen-9-7950x": ["7950x", "Ryzen 9 7950X", "AMD Ryzen 9 7950X 16-Core Processor"],
    "ryzen-7-7840u": ["AMD Ryzen 7 7840U w/ Radeon 780M Graphics"],
    "ryzen-ai-max-plus-395": ["AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "ryzen ai max+ 395"],
    "threadripper-pro-5995wx": ["AMD Ryzen Threadripper PRO 5995WX 64-Cores", "5995wx"],
    "epyc-9654": ["AMD EPYC 9654 96-Core Processor", "epyc 9654"],
    "core-i9-13900k": ["13th Gen Intel(R) Core(TM) i9-13900K", "i9-13900k", "13900k", "Intel Core i9-13900K"],
    "core-i7-1185g7": ["11th Gen Intel(R) Core(TM) i7-1185G7 @ 3.00GHz"],
    "core-ultra-7-155h": ["Intel(R) Core(TM) Ultra 7 155H"],
    "xeon-e5-2680-v4": ["Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz"],
    "xeon-platinum-8480-plus": ["Intel(R) Xeon(R) Platinum 8480+"],
    "aws-graviton3": ["graviton3"],
    "intel-n100": ["n100", "Intel(R) N100"],
}  # fmt: skip


@pytest.mark.parametrize(("id", "name"), [(id, name) for id, names in NAMES.items() for name in names])
def test_names_as_people_and_drivers_write_them(id: str, name: str) -> None:
    assert find_device(name).id == id


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("a100", {"a100-pcie-40gb", "a100-sxm4-40gb", "a100-pcie-80gb", "a100-sxm4-80gb"}),
        ("v100", {"tesla-v100-pcie-16gb", "tesla-v100-pcie-32gb", "tesla-v100-sxm2-16gb", "tesla-v100-sxm2-32gb"}),
        ("rtx 4060 ti", {"geforce-rtx-4060-ti-8gb", "geforce-rtx-4060-ti-16gb"}),
        ("rtx 6000", {"rtx-6000-ada", "rtx-pro-6000-blackwell"}),
        ("xeon 6980p", {"xeon-6980p-mrdimm-8800", "xeon-6980p-ddr5-6400"}),
    ],
)
def test_ambiguous_names_list_what_they_may_mean(name: str, candidates: set[str]) -> None:
    with pytest.raises(UnknownNameError, match="may mean any of") as error:
        find_device(name)
    assert set(error.value.candidates) == candidates


@pytest.mark.parametrize(("name", "close"), [("rtx4091", "geforce-rtx-4090"), ("gtx 4090", "geforce-rtx-4090")])
def test_unknown_names_list_the_closest(name: str, close: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown device '{name}'; closest: {close}") as error:
        find_device(name)
    assert error.value.candidates[0] == close


def test_gpus_and_cpus_are_told_apart_by_kind() -> None:
    assert find_device("ryzen ai max+ 395", GPU).id == "radeon-8060s"
    assert find_device("ryzen ai max+ 395", ("cpu",)).id == "ryzen-ai-max-plus-395"
    with pytest.raises(
        UnknownNameError, match=r"'7950x' is the CPU ryzen-9-7950x, no GPU: give it as the CPU \(--cpu ryzen-9-7950x\)"
    ):
        find_device("7950x", ("gpu",))


@pytest.mark.parametrize(("name", "gib"), [("m4-max 64GB", 64), ("M2 Ultra 192 GiB", 192), ("m2-ultra-64gb", 64)])
def test_a_size_of_memory_may_follow_the_name(name: str, gib: float) -> None:
    assert find_device(name).memory_bytes == gib * GIB


def test_without_a_size_the_largest_counts() -> None:
    device = find_device("m2-ultra")
    assert device.memory_options_bytes == (64 * GIB, 128 * GIB, 192 * GIB)
    assert device.memory_bytes == 192 * GIB


def test_a_size_that_is_not_sold_is_refused() -> None:
    with pytest.raises(InputError, match=r"apple-m4-max-40c is sold with 48, 64, 128 GiB, not 36; .*--memory"):
        find_device("m4-max 36GB")
    with pytest.raises(InputError, match=r"radeon-780m-ddr5-5600 has no memory of its own; .*--memory"):
        find_device("780m 16GB")


def test_user_folders_reach_the_device(tmp_path: Path) -> None:
    text = "lab-4090: {extends: geforce-rtx-4090, aliases: [lab], memory: 48 GiB, peaks: {fp32: 90 TFLOPS}}\n"
    (tmp_path / "hardware.yaml").write_text(text)
    device = find_device("lab", folders=[tmp_path])
    assert device.memory_bytes == 48 * GIB
    assert device.bandwidth_bytes_per_s == 1008e9
    assert (device.peaks_flop_per_s["fp32"], device.peaks_flop_per_s["bf16_matrix"]) == (90e12, 165.2e12)
    assert len(list_devices([tmp_path])) == len(list_devices()) + 1


# Fields


def test_every_field_reaches_the_device() -> None:
    fields = {
        "name": "Card", "aliases": ["c"], "vendor": "nvidia", "kind": "soc", "class": "embedded",
        "architecture": "Ada Lovelace", "isa": "sm_89", "released": 2024, "cores": "8P+16E", "core_name": "Core",
        "units": "128 SMs", "shader_cores": 16384, "base_clock": "2.235 GHz", "boost_clock": ["2.52 GHz", "2 GHz"],
        "simd": "AVX2", "fp32_flop_per_cycle": [32, 16], "memory": ["24 GiB", "48 GiB"], "memory_type": "GDDR6X",
        "memory_channels": 2, "memory_bus": "384 bit", "memory_rate": "21 GT/s", "bandwidth": "1008 GB/s",
        "cache": "72 MiB L2", "peaks": {"fp32": "82.58 TFLOPS", "int8_dot": "330.3 TOPS"},
        "derived": {"fp32, int8_dot": "formula"}, "peaks_at_base_clock": {"fp32": "70 TFLOPS"}, "power": "450 W",
        "pcie": "5.0 x16", "host_link": {"name": "PCIe 4.0 x16", "bandwidth": "31.5 GB/s"},
        "peer_link": {"name": "NVLink 3", "bandwidth": "300 GB/s"}, "price": "1600 USD", "confidence": "B",
        "sources": ["a"], "notes": ["b"],
    }  # fmt: skip
    assert set(fields) == set(FIELDS)
    assert device_from_fields("card", fields, "f.yaml:1: card") == Device(
        id="card", name="Card", vendor="nvidia", kind="soc", device_class="embedded", architecture="Ada Lovelace",
        isa="sm_89", release_year=2024, cores=24, core_name="Core", units=128, shader_cores=16384, base_hertz=2.235e9,
        boost_hertz=2.52e9, simd="AVX2", fp32_flop_per_cycle_core=(32.0, 16.0), memory_bytes=48 * GIB,
        memory_options_bytes=(24 * GIB, 48 * GIB), memory_type="GDDR6X", memory_channels=2, memory_bus_bits=384,
        memory_transfers_per_s=21e9, bandwidth_bytes_per_s=1008e9, cache_bytes=72 * 2**20,
        peaks_flop_per_s={"fp32": 82.58e12, "int8_dot": 330.3e12},
        derived_peaks={"fp32": "formula", "int8_dot": "formula"}, base_clock_peaks_flop_per_s={"fp32": 70e12},
        power_watts=450.0, pcie="5.0 x16", host_link=Link("PCIe 4.0 x16", 31.5e9), peer_link=Link("NVLink 3", 300e9),
        price_usd=1600.0, confidence="B", sources=("a",), notes=("b",),
    )  # fmt: skip


def test_bandwidth_is_all_that_an_entry_needs() -> None:
    device = device_from_fields("mine", {"bandwidth": "1 TB/s"}, "f.yaml:1: mine")
    assert (device.name, device.kind, device.memory_bytes, device.generation) == ("mine", "gpu", None, None)
    assert "CUDA" in device.backends


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "bandwidth: is missing"),
        ({"bandwith": "1 GB/s"}, "unknown field 'bandwith'; did you mean 'bandwidth'?"),
        ({"bandwidth": 5}, "bandwidth: expected text with a unit, got '5'"),
        ({"bandwidth": "5 GB"}, "bandwidth: '5 GB' has no unit 'GB' of this kind; write it like '1008 GB/s'"),
        ({"bandwidth": "-5 GB/s"}, "bandwidth: '-5 GB/s' is negative"),
        ({"bandwidth": "0 GB/s"}, "bandwidth: must be positive"),
        ({"memory": "24"}, "memory: '24' needs a unit"),
        ({"memory": ["24 GiB", 5]}, "memory: expected text with a unit"),
        ({"memory": {"a": 1}}, "memory: expected text with a unit"),
        ({"kind": "tpu"}, "kind: expected one of gpu, apu, apple, soc, cpu, got 'tpu'"),
        ({"class": "big"}, "class: expected one of desktop"),
        ({"confidence": "D"}, "confidence: expected one of A, B, C"),
        ({"released": "2022"}, "released: expected a whole number"),
        ({"released": 22}, "released: 22 is not between"),
        ({"units": "many"}, "units: expected a number such as '128 SMs'"),
        ({"units": "0 SMs"}, "units: expected a number"),
        ({"cores": "eight"}, "cores: expected a number such as 16 or 8P"),
        ({"cache": "72 MiB"}, None),
        ({"cache": "large"}, "cache: cannot read 'large'"),
        ({"memory_rate": "21 Gbps"}, "memory_rate: '21 Gbps' is not a rate such as '21 GT/s'"),
        ({"memory_rate": "0 GT/s"}, "memory_rate: '0 GT/s' is not a rate"),
        ({"memory_bus": "384"}, "memory_bus: '384' is not a number of bit"),
        ({"memory_bus": "0 bit"}, "memory_bus: '0 bit' is not"),
        ({"price": "1600 EUR"}, "price: '1600 EUR' is not a number of USD"),
        ({"fp32_flop_per_cycle": ["x"]}, "fp32_flop_per_cycle: expected positive numbers"),
        ({"fp32_flop_per_cycle": float("nan")}, "fp32_flop_per_cycle: expected positive numbers"),
        ({"peaks": {"fp23": "1 TFLOPS"}}, "peaks: unknown field 'fp23'; did you mean 'fp32'?"),
        ({"peaks": {"fp32": "1 TB/s"}}, "peaks: fp32: '1 TB/s' has no unit"),
        ({"peaks": ["fp32"]}, "peaks: expected a mapping"),
        ({"derived": {"fp32": "f"}}, "derived: 'fp32' is not among the peaks"),
        ({"derived": "f"}, "derived: expected a mapping"),
        ({"host_link": "PCIe"}, "host_link: expected a mapping"),
        ({"host_link": {"name": "PCIe"}}, "host_link: bandwidth: expected a quantity"),
        ({"sources": "one"}, "sources: expected a list of texts"),
        ({"name": 5}, "name: expected text"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, object], problem: str | None) -> None:
    given = fields if fields == {} or "bandwidth" in fields else {"bandwidth": "1 GB/s", **fields}
    if problem is None:
        device_from_fields("x", given, "f.yaml:3: x")
        return
    with pytest.raises(InputError) as error:
        device_from_fields("x", given, "f.yaml:3: x")
    assert str(error.value).startswith("f.yaml:3: x: ")
    assert problem in str(error.value)


# Figures typed by hand


def test_a_custom_device_is_what_was_typed() -> None:
    device = custom_device(bandwidth="1.2 TB/s", memory="48GiB", peaks={"fp16_matrix": "200TFLOPS"})
    assert (device.id, device.bandwidth_bytes_per_s, device.memory_bytes) == ("custom", 1.2e12, 48 * GIB)
    assert dict(device.peaks_flop_per_s) == {"fp16_matrix": 200e12}
    assert device.notes == ("Set by hand: bandwidth 1.2 TB/s, memory 48GiB, fp16_matrix 200TFLOPS.",)


def test_figures_of_a_known_device_are_overridden_one_by_one() -> None:
    base = find_device("rtx4090")
    device = custom_device(base=base, memory="48 GiB", peaks={"fp16_matrix": 330e12})
    assert device.memory_bytes == 48 * GIB
    assert device.bandwidth_bytes_per_s == base.bandwidth_bytes_per_s
    assert device.peaks_flop_per_s["fp16_matrix"] == 330e12
    assert device.peaks_flop_per_s["bf16_matrix"] == base.peaks_flop_per_s["bf16_matrix"]
    assert "fp16_matrix" not in device.derived_peaks
    assert device.notes[-1] == "Set by hand: memory 48 GiB, fp16_matrix 330000000000000.0."
    assert custom_device(base=base) == base


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "needs a bandwidth and a memory"),
        ({"bandwidth": "1 TB/s"}, "needs a bandwidth and a memory"),
        ({"bandwidth": "1 TB/s", "memory": "-1 GiB"}, "memory: '-1 GiB' is negative"),
        ({"bandwidth": "fast", "memory": "1 GiB"}, "bandwidth: cannot read 'fast'"),
        ({"bandwidth": "1 TB/s", "memory": "1 GiB", "peaks": {"fp17": "1 TFLOPS"}}, "unknown compute path 'fp17'"),
        ({"bandwidth": "1 TB/s", "memory": "1 GiB", "peaks": {"fp16": "0 TFLOPS"}}, "fp16: must be positive"),
    ],
)
def test_custom_figures_that_cannot_be(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        custom_device(**arguments)  # type: ignore[arg-type]


# What a device is to llama.cpp


@pytest.mark.parametrize(
    ("name", "generation", "backends", "is_cpu"),
    [
        ("rtx4090", "ada", ("CUDA", "Vulkan"), False),
        ("rtx3090", "ampere", ("CUDA", "Vulkan"), False),
        ("a100-sxm4-80gb", "ampere-dc", ("CUDA", "Vulkan"), False),
        ("rtx5090", "blackwell", ("CUDA", "Vulkan"), False),
        ("b200", "blackwell-dc", ("CUDA", "Vulkan"), False),
        ("gb10", "blackwell", ("CUDA", "Vulkan"), False),
        ("7900xtx", "rdna3", ("ROCm", "Vulkan"), False),
        ("rx 5700 xt", "rdna1", ("Vulkan", "ROCm"), False),
        ("rx580", "gcn", ("Vulkan",), False),
        ("mi50", "vega", ("ROCm", "Vulkan"), False),
        ("mi300a", "cdna3", ("ROCm", "Vulkan"), False),
        ("strix-halo", "rdna3", ("Vulkan", "ROCm"), False),
        ("b580", "battlemage", ("Vulkan", "SYCL"), False),
        ("m4-max", "apple-m4", ("Metal",), False),
        ("m3-max", "apple-m3", ("Metal",), False),
        ("Apple A17 Pro", "apple-m3", ("Metal",), False),
        ("7950x", "zen4", ("CPU",), True),
        ("grace", "neoverse-v2", ("CPU",), True),
        ("pi5", "cortex-a76", ("CPU",), True),
    ],
)
def test_generation_and_backends(name: str, generation: str, backends: tuple[str, ...], is_cpu: bool) -> None:
    device = find_device(name)
    assert (device.generation, device.backends, device.is_cpu) == (generation, backends, is_cpu)
    assert device.default_backend == backends[0]


def test_a_device_without_a_backend_says_so() -> None:
    with pytest.raises(InputError, match=r"gaudi-3: llama.cpp has no backend for Gaudi 3"):
        _ = find_device("gaudi3").default_backend
