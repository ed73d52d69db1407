"""Scenario files are read strictly, and those that come with the project are good ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smartmig.errors import InputError
from smartmig.hardware.layouts import layout_text
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario, read_scenario
from smartmig.sim.mig.world import Settings
from smartmig.workload.diurnal import DiurnalDay

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
HEAD = "version: 1\n"


def read(folder: Path, text: str) -> Scenario:
    path = folder / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    return read_scenario(path)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_scenarios__are_valid_and_say_what_they_ask(path: Path) -> None:
    scenario = read_scenario(path)
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert scenario.title
    assert len(scenario.policies) >= 2
    assert scenario.seeds >= 20
    assert len(scenario.jobs(0)) > 1000
    for policy in scenario.policies:
        policy.policy()
        scenario.cluster_for(policy)


def test_scenarios__all_six_are_there() -> None:
    names = {path.stem for path in SCENARIOS.glob("*.yaml")}
    assert names >= {"day", "static-mixes", "slice-count", "relaxed-no-preemption", "drain", "mixed"}


def test_scenario__only_the_version_is_required(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD) == Scenario(version=1)
    plain = Scenario(version=1)
    assert plain.cluster == ClusterSpec("8xa100-40gb", None)
    assert [policy.title for policy in plain.policies] == ["categorical-edf, static"]
    assert plain.policies[0].settings() == Settings()


def test_scenario__every_key_arrives(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        """
version: 1
title: a lab
cluster: {gpus: "1xa100-40gb,1xa30", layouts: "3,2"}
workload: {id: day, multiplier: 2, deadline: [2, 4]}
seeds: 5
first_seed: 7
policies:
  - placement: {id: shortest-work, size_price: 0.5}
    repartition: {id: slice-count, check_s: 30}
    preempt: false
    recut: drain
    recut_s: 2
    restart_s: 9
    speed: estimated
    charge_after_release: true
  - name: own cuts
    layouts: 2x1
""",
    )
    first, second = scenario.policies
    assert (scenario.title, scenario.seeds, scenario.first_seed) == ("a lab", 5, 7)
    assert first.title == "shortest-work, slice-count"
    rules = first.policy()
    assert rules.placement == ShortestWork(size_price=0.5)
    assert rules.repartition == SliceCount(check_s=30.0)
    assert first.settings(seed=4, record=True) == Settings(
        preempt=False,
        drain=True,
        recut_s=2.0,
        restart_s=9.0,
        estimated_speed=True,
        charge_after_release=True,
        record=True,
        seed=4,
    )
    cluster = scenario.cluster_for(first)
    assert cluster.layouts is not None
    assert [layout_text(*pair) for pair in zip(cluster.gpus, cluster.layouts, strict=True)] == ["4g+2g+1g", "2g+2g"]
    own = scenario.cluster_for(second)
    assert own.layouts is not None
    assert [layout_text(*pair) for pair in zip(own.gpus, own.layouts, strict=True)] == ["7g", "4g"]
    day = DiurnalDay(multiplier=2.0, deadline=(2.0, 4.0)).jobs(7)
    assert scenario.jobs(7).deadline_s.tolist() == day.deadline_s.tolist()


def test_scenario__a_policy_without_layouts_begins_as_its_rule_does() -> None:
    assert Scenario(version=1).cluster_for(PolicySpec()).layouts is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("title: x\n", 1, "version: this key is required"),
        ("version: 2\n", 1, "version: Input should be 1, got 2"),
        ("version: '1'\n", 1, "version: .*got '1'"),
        (HEAD + "titel: x\n", 2, "titel: unknown key"),
        (HEAD + "cluster:\n  gpu: 8xa100-40gb\n", 3, r"cluster\.gpu: unknown key"),
        (
            HEAD + "policies:\n  - placement: largest-first\n    premept: true\n",
            4,
            r"policies\.0\.premept: unknown key",
        ),
        (HEAD + "seeds: 3\nseeds: 4\n", 3, "seeds: this key stands twice"),
        (HEAD + "policies:\n  - name: a\n    name: b\n", 4, "name: this key stands twice"),
        (HEAD + "seeds: many\n", 2, "seeds: .*integer.*'many'"),
        (HEAD + "seeds: '3'\n", 2, "seeds: .*integer.*'3'"),
        (HEAD + "seeds: true\n", 2, "seeds: .*integer.*True"),
        (HEAD + "seeds: 2.5\n", 2, "seeds: .*integer"),
        (HEAD + "seeds: 0\n", 2, "seeds: .*greater than or equal to 1"),
        (HEAD + "first_seed: -1\n", 2, "first_seed: .*greater"),
        (HEAD + "title:\n", 2, "title: .*valid string, got None"),
        (HEAD + "cluster:\n  gpus: 1xa100-40gb\n  layouts: 3\n", 4, r"cluster\.layouts: .*valid string, got 3"),
        (HEAD + "cluster:\n  gpus: 8xa10-40gb\n", 2, "no GPU 'a10-40gb'. Did you mean 'a100-40gb'"),
        (HEAD + "cluster:\n  gpus: 2xa100-40gb\n  layouts: 1,2,3\n", 2, "layouts for more GPUs than the 2 given"),
        (HEAD + "cluster:\n  gpus: a30\npolicies:\n  - layouts: '99'\n", 5, "no configuration 99 on a30-24gb"),
        (HEAD + "policies: []\n", 2, "policies: .*at least 1"),
        (HEAD + "policies:\n  placement: largest-first\n", 2, "policies: "),
        (HEAD + "policies:\n  - preempt: 'no'\n", 3, r"policies\.0\.preempt: .*valid boolean"),
        (HEAD + "policies:\n  - preempt: 0\n", 3, r"policies\.0\.preempt: .*valid boolean"),
        (HEAD + "policies:\n  - recut: fast\n", 3, "'paper' or 'drain', got 'fast'"),
        (HEAD + "policies:\n  - recut_s: -1\n", 3, "recut_s: .*greater"),
        (HEAD + "policies:\n  - restart_s: .inf\n", 3, "restart_s: .*finite"),
        (HEAD + "policies:\n  - placement: 3\n", 3, r"policies\.0\.placement: .*valid string"),
        (
            HEAD + "policies:\n  - placement: shortest-werk\n",
            3,
            "no placement 'shortest-werk'. Did you mean 'shortest-work'",
        ),
        (HEAD + "policies:\n  - repartition: slice-coutn\n", 3, "Did you mean 'slice-count'"),
        (HEAD + "policies:\n  - placement: {size_price: 1}\n", 3, "placement needs an 'id'"),
        (
            HEAD + "policies:\n  - placement: {id: shortest-work, size_prize: 1}\n",
            3,
            "Known: size_price, energy_weight, poor_scaling.$",
        ),
        (HEAD + "policies:\n  - placement: {id: shortest-work, kernels: 1}\n", 3, "no knob 'kernels'"),
        (HEAD + "policies:\n  - placement: {id: shortest-work, size_price: high}\n", 3, "size_price: .*valid number"),
        (HEAD + "policies:\n  - repartition: {id: slice-count, check_s: 0}\n", 3, "check_s must be above 0"),
        (HEAD + "policies:\n  - repartition: {id: slice-count, base: .nan}\n", 3, "base: got nan"),
        (HEAD + "policies:\n  - repartition: {id: static, mix: [9g]}\n", 3, "no MIG profile '9g'"),
        (HEAD + "policies:\n  - name: a\n  - name: a\n", 2, "two policies are called 'a'"),
        (HEAD + "workload: dya\n", 2, "Did you mean 'day'"),
        (HEAD + "workload:\n  id: day\n  multiplyer: 3\n", 2, "Did you mean 'multiplier'"),
        (HEAD + "workload:\n  id: day\n  multiplier: -3\n", 2, "multiplier: got -3"),
        (HEAD + "workload:\n  id: day\n  deadline: [4, 2]\n", 2, "deadline: got 4"),
        (HEAD + "workload: csv\n", 2, "path: Field required"),
        (HEAD + "cluster: [1,\n", 3, "not valid YAML"),
        (HEAD + "cluster:\n\tgpus: x\n", 3, "not valid YAML"),
        (HEAD + "title: !!python/object:os.system x\n", 2, "not valid YAML"),
        (HEAD + "---\nversion: 1\n", 2, "not valid YAML"),
    ],
)
def test_scenario__a_mistake_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'lab.yaml'}:{line}: ")
    assert re.search(said, message)
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "- 1\n", "hello\n"])
def test_scenario__must_be_a_mapping(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"lab\.yaml: a scenario is a mapping that begins with 'version: 1'"):
        read(tmp_path, text)


def test_scenario__unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.yaml: no such file"):
        read_scenario(tmp_path / "gone.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_scenario(tmp_path)
    for content in (b"\x00\xff\xfe", b"version: 1\x00\n"):
        odd = tmp_path / "odd.yaml"
        odd.write_bytes(content)
        with pytest.raises(InputError, match=r"odd\.yaml: [^\n]*$"):
            read_scenario(odd)
