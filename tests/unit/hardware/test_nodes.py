"""Clusters of nodes, as one writes them."""

from __future__ import annotations

import pytest

from smartmig.errors import InputError
from smartmig.hardware.nodes import Node, NodeCluster, Outage, parse_nodes


def test_nodes__one_kind() -> None:
    assert parse_nodes("30x8").nodes == (Node(8),) * 30
    assert parse_nodes("30x8").n_gpus == 240


def test_nodes__several_models_with_speeds() -> None:
    cluster = parse_nodes("2x8:a100, 1x4:v100@0.5")
    assert cluster.nodes == (Node(8, "a100"), Node(8, "a100"), Node(4, "v100", 0.5))


def test_nodes__hang_on_switches_in_order() -> None:
    assert [node.switch for node in parse_nodes("3x8,2x4", nodes_per_switch=2).nodes] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "entry 1 '': cannot be read"),
        ("30x8,", "entry 2 '': cannot be read"),
        ("8", "entry 1 '8': cannot be read; write NODESxGPUS"),
        ("0x8", "at least 1"),
        ("2x0", "at least 1"),
        ("2x8:v100@0", "a speed of 0"),
        ("2x8:v100@1.2.3", "a speed of 1.2.3"),
        ("99999x99999", "the limit is"),
    ],
)
def test_nodes__what_cannot_be_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InputError, match=r"--nodes: entry") as caught:
        parse_nodes(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("outage", [Outage(2, 0.0, 1.0), Outage(0, 5.0, 5.0), Outage(0, -1.0, 5.0)])
def test_outage__must_name_a_node_and_a_time(outage: Outage) -> None:
    with pytest.raises(InputError, match="needs a node from 0 to 1"):
        NodeCluster((Node(1), Node(1)), (outage,))


def test_cluster__needs_nodes_with_gpus() -> None:
    for nodes in ((), (Node(0),), (Node(1, speed=0.0),)):
        with pytest.raises(InputError, match="needs nodes"):
            NodeCluster(nodes)
