"""ET and its units."""

from __future__ import annotations

import pytest

from smartmig.metrics.objective import energy_tardiness, minutes, watt_minutes


def test_units__a_watt_minute_is_sixty_joules() -> None:
    assert watt_minutes(60.0) == 1.0
    assert minutes(90.0) == 1.5


def test_energy_tardiness__converts_to_the_papers_units() -> None:
    # 2.5e6 W·min at 2e-7 each are half a minute; a mean tardiness of 90 s is one and a half.
    assert energy_tardiness(2.5e6 * 60, 90.0) == pytest.approx(2.0 / (1 + 2e-7), rel=1e-15)
    assert energy_tardiness(0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("energy_wmin", "tardiness_min", "et"),
    # arXiv 2606.29775, Fig. 12 and Table I: energies and tardiness as printed, ET by hand.
    [(2.57e6, 1.32, 1.834), (2.75e6, 1.67, 2.22), (3.1e6, 96.67, 97.29)],
)
def test_energy_tardiness__of_published_numbers(energy_wmin: float, tardiness_min: float, et: float) -> None:
    assert energy_tardiness(energy_wmin * 60, tardiness_min * 60) == pytest.approx(et, abs=1e-4)


def test_energy_tardiness__weight_moves_between_its_ends() -> None:
    assert energy_tardiness(60.0, 600.0, energy_weight=0.0) == 10.0
    assert energy_tardiness(60.0, 600.0, energy_weight=1.0) == pytest.approx(5.5)
    assert energy_tardiness(60.0, 600.0, energy_weight=1e12) == pytest.approx(1.0)
