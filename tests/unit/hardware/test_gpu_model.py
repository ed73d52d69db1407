"""The data files: complete, sourced, consistent with NVIDIA's published facts."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import pytest

from smartmig.errors import UnknownName
from smartmig.hardware.model import gpu_model, gpu_model_ids, read_card
from smartmig.types import SLICE_SIZES

FACTS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "mig_placements.json"


def test_gpu_model_ids__are_the_nine_cards() -> None:
    assert gpu_model_ids() == (
        "a100-40gb",
        "a100-80gb",
        "a30-24gb",
        "b200-180gb",
        "gh200-144gb",
        "gh200-96gb",
        "h100-80gb",
        "h100-94gb",
        "h200-141gb",
    )


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_gpu_model__every_number_group_names_its_source(model_id: str) -> None:
    raw = read_card(model_id)
    groups = [raw["profiles"], raw["board"], raw["speed"], raw["times"], *raw["power"]["curves"]]
    for group in groups:
        assert group["source"]
        assert isinstance(group["estimated"], bool)
    assert raw["id"] == model_id
    assert len(gpu_model(model_id).sources) == 5


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_gpu_model__sizes_speed_and_times_agree(model_id: str) -> None:
    model = gpu_model(model_id)
    sizes = {profile.compute for profile in model.profiles}
    assert set(model.create_s) == set(model.destroy_s) == sizes
    assert len(model.power.watts) == model.n_compute + 1
    for size, speed in zip(SLICE_SIZES, model.speed, strict=True):
        assert math.isnan(speed) == (size not in sizes)
    assert max(profile.memory_slices for profile in model.profiles) == model.n_memory
    for profile in model.profiles:
        assert all(start + profile.memory_slices <= model.n_memory for start in profile.starts)


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_gpu_model__speed_follows_its_stated_formula(model_id: str) -> None:
    # Dense FP16 tensor TFLOPS and SMs of the whole part, from the datasheets.
    peaks = {"a30": (165, 56), "a100": (312, 108), "h100-80gb": (989.4, 132), "h100-94gb": (835, 132),
             "h200": (989.4, 132), "gh200": (990, 132), "b200": (2250, 148)}  # fmt: skip
    tflops, n_sms = next(value for prefix, value in peaks.items() if model_id.startswith(prefix))
    h100 = {1: 16, 2: 32, 3: 60, 4: 64, 7: 132}
    model, a100 = gpu_model(model_id), gpu_model("a100-40gb")
    for size, speed in zip(SLICE_SIZES, model.speed, strict=True):
        if math.isnan(speed):
            continue
        own = model.profile(f"{size}g").sm_count or h100[size] / 132 * n_sms
        reference = a100.profile(f"{size}g").sm_count
        assert reference is not None
        assert speed == pytest.approx(own / reference * (tflops / n_sms) / (312 / 108), abs=6e-4)


def test_gpu_model__a100_speed_is_one() -> None:
    assert gpu_model("a100-40gb").speed == (1.0,) * 5


def test_gpu_model__keys_tell_double_memory_and_media_apart() -> None:
    assert [p.key for p in gpu_model("a100-40gb").profiles] == ["1g", "1g+me", "1g.10gb", "2g", "3g", "4g", "7g"]
    assert [p.key for p in gpu_model("a30").profiles] == ["1g", "1g+me", "2g", "2g+me", "4g"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("3g", "3g.20gb"),
        ("3g.20gb", "3g.20gb"),
        ("1g.10gb", "1g.10gb"),
        ("1g+me", "1g.5gb+me"),
        ("1g", "1g.5gb"),
        (" 7G ", "7g.40gb"),
    ],
)
def test_profile__takes_key_or_full_name(given: str, name: str) -> None:
    assert gpu_model("a100-40gb").profile(given).name == name


def test_profile__unknown_name_lists_the_cards_own() -> None:
    with pytest.raises(UnknownName, match=r"a100-40gb: no MIG profile '5g'.*7g\.40gb"):
        gpu_model("a100-40gb").profile("5g")


def test_gpu_model__aliases_and_case() -> None:
    assert gpu_model("A30") is gpu_model("a30-24gb")
    assert gpu_model("gh200").id == "gh200-96gb"
    assert gpu_model("B200").id == "b200-180gb"


def test_gpu_model__at_picks_a_power_curve() -> None:
    assert gpu_model("a100-40gb").power.name == "s3"
    assert gpu_model("A100-40GB@S1").power.watts == (40, 120, 160, 200, 240, 250, 250, 250)
    assert gpu_model("a100-40gb@s3") is gpu_model("a100-40gb")
    assert gpu_model("a100-40gb@s1") != gpu_model("a100-40gb")


def test_gpu_model__unknown_names_say_where_and_what_is_near() -> None:
    with pytest.raises(UnknownName, match=r"lab\.yaml: no GPU 'h10'\. Did you mean 'h100-\d+gb'\?"):
        gpu_model("h10", "lab.yaml")
    with pytest.raises(UnknownName, match=r"no power curve of a100-40gb 's9'.*Known: s3, s1"):
        gpu_model("a100-40gb@s9")
    with pytest.raises(UnknownName, match="power curve"):
        gpu_model("a100-40gb@")


def test_gpu_model__survives_pickling_and_hashing() -> None:
    model = gpu_model("a30")
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert hash(again) == hash(model)


@pytest.mark.shared
@pytest.mark.skipif(not FACTS.exists(), reason=f"needs the published placement table at {FACTS}")
@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_gpu_model__profiles_match_the_published_placements(model_id: str) -> None:
    facts = {entry["model"].lower(): entry for entry in json.loads(FACTS.read_text())["models"]}[model_id]
    model = gpu_model(model_id)
    assert (model.memory_gb, model.n_compute, model.n_memory) == (
        facts["memory_gb"],
        facts["total_compute_slices"],
        facts["total_memory_slices"],
    )
    ours = {
        p.name: (p.compute, p.memory_slices, p.max_count, list(p.starts), p.sm_count, p.media) for p in model.profiles
    }
    theirs = {
        p["name"]: (
            p["compute_slices"],
            p["placement_size"],
            p["max_instances"],
            p["placement_starts"],
            p["sm_count"],
            p["key"].endswith("+me"),
        )
        for p in facts["profiles"]
    }
    assert ours == theirs
