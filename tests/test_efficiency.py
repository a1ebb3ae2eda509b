"""Efficiency factors: the hierarchy, priors, and the file they are shipped in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmcalc.device_catalog import find_device
from llmcalc.efficiency import (
    CORRECTION_PRIORS,
    MACHINE_FACTORS,
    Efficiency,
    Gaussian,
    correction_prior,
    from_mapping,
    shipped,
    to_mapping,
)
from llmcalc.errors import InputError
from llmcalc.inventory import inventory
from llmcalc.model_catalog import find_model
from llmcalc.operations import decode_operations, prefill_operations
from llmcalc.phase_roofs import model_traits, phase_roofs
from llmcalc.quantization import weights
from llmcalc.run_machine import Conditions

RTX_4090 = find_device("geforce-rtx-4090")
RTX_4080 = find_device("geforce-rtx-4080")


def three_levels() -> Efficiency:
    return Efficiency(
        backends={"CUDA": {"memory": Gaussian(0.3, 0.1)}},
        hardware={"ada": {"memory": Gaussian(-0.05, 0.04)}},
        generations={"CUDA/ada": {"memory": Gaussian(0.1, 0.05)}},
        devices={"CUDA/geforce-rtx-4090": {"memory": Gaussian(0.02, 0.01)}},
    )


def test_a_device_with_runs_has_its_own_factors() -> None:
    machine = three_levels().machine("CUDA", RTX_4090)
    assert machine.measured
    assert machine.values["memory"] == Gaussian(0.02, 0.01)


def test_a_device_without_runs_has_its_generations_and_a_wider_interval() -> None:
    machine = three_levels().machine("CUDA", RTX_4080)
    assert not machine.measured
    assert machine.values["memory"].mean == 0.1
    assert machine.values["memory"].sd == pytest.approx((0.05**2 + MACHINE_FACTORS["memory"].device_sd ** 2) ** 0.5)
    assert "ada" in machine.origin


def test_a_generation_without_runs_has_its_backends_and_a_still_wider_one() -> None:
    factors = replace(three_levels(), generations={}, devices={})
    machine = factors.machine("CUDA", RTX_4080)
    assert machine.values["memory"].mean == pytest.approx(0.3 - 0.05)
    assert machine.values["memory"].sd > three_levels().machine("CUDA", RTX_4080).values["memory"].sd


def test_without_any_runs_there_are_priors_and_they_say_so() -> None:
    machine = Efficiency().machine("CUDA", RTX_4080)
    assert machine.values["memory"].mean == MACHINE_FACTORS["memory"].prior.mean
    assert "priors" in machine.origin
    assert set(machine.values) == set(MACHINE_FACTORS)


def test_corrections_fall_back_on_priors() -> None:
    factors = Efficiency(corrections={"experts.CUDA": Gaussian(0.2, 0.03)})
    assert factors.correction("experts.CUDA") == Gaussian(0.2, 0.03)
    assert factors.correction("experts.ROCm") == CORRECTION_PRIORS["experts"]


@pytest.mark.parametrize("processor", ["arm", "x86"])
def test_code_books_cost_more_on_cpus(processor: str) -> None:
    assert correction_prior(f"unpack_type.{processor}.IQ2_XXS").mean > correction_prior("unpack_type.gpu.IQ2_XXS").mean
    assert correction_prior(f"unpack_type.{processor}.F16").mean < correction_prior("unpack_type.gpu.F16").mean
    assert correction_prior("unpack_type.gpu.Q4_0").mean < correction_prior("unpack_type.gpu.Q6_K").mean


def test_the_file_round_trips() -> None:
    assert to_mapping(from_mapping(to_mapping(shipped()))) == to_mapping(shipped())


def test_another_schema_is_refused() -> None:
    with pytest.raises(InputError, match=r"llmcalc\.efficiency/1"):
        from_mapping({"schema": "something else"})


def test_the_shipped_file_says_where_its_factors_come_from() -> None:
    provenance = shipped().provenance
    assert provenance["runs"] > 3000
    assert provenance["devices"] > 100
    assert sum(provenance["runs_by_source"].values()) == provenance["runs"]
    assert all("/" in source or source == "" for source in provenance["runs_by_source"])


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_shipped_intervals_are_wider_for_95_than_for_80_percent(phase: str) -> None:
    assert 0.5 < shipped().quantile(phase, 0.8) < shipped().quantile(phase, 0.95) < 4
    assert 0.01 < shipped().sd_of_runs(phase, "CUDA") < 0.3


def test_backends_that_are_known_better_have_narrower_intervals() -> None:
    factors = shipped()
    metal, rocm = (factors.quantile("prefill", 0.8, backend) for backend in ("Metal", "ROCm"))
    assert metal < factors.quantile("prefill", 0.8) < rocm
    assert factors.quantile("prefill", 0.8, "HTP") == factors.quantile("prefill", 0.8)


def test_quantiles_nobody_measured_are_those_of_a_normal_distribution() -> None:
    assert Efficiency().quantile("decode", 0.95) == pytest.approx(1.96, abs=0.01)


@pytest.mark.parametrize(
    ("device", "backend"),
    [("geforce-rtx-4090", "CUDA"), ("radeon-rx-7900-xtx", "Vulkan"), ("apple-m3-max-40c", "Metal"),
     ("epyc-9654", "CPU"), ("arc-b580", "SYCL"), ("instinct-mi300x", "ROCm")],
)  # fmt: skip
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b", "qwen3-next-80b-a3b", "deepseek-r1"])
def test_every_factor_that_a_roof_names_has_a_prior(device: str, backend: str, model: str) -> None:
    found = find_model(model)
    file = inventory(found, weights(found, "Q4_K_M"))
    phases = decode_operations(found, file, occupied=999), prefill_operations(found, file, prompt=999)
    conditions = Conditions(backend, engine="ollama", weak_host=True, era="2024H1", kv_type_k="Q8_0", vulkan="amdvlk")
    for phase in phases:
        for group in phase_roofs(phase, find_device(device), conditions, model_traits(found)):
            for roof in group.roofs:
                names = [factor.name for factor in roof.factors + roof.saturation]
                assert all(name in MACHINE_FACTORS or correction_prior(name).sd > 0 for name in names)
