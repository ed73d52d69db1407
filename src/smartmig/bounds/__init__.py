"""What nobody can beat: lower bounds on energy, tardiness and ET of every schedule, with certificates."""

from smartmig.bounds.ascent import QUICK, Search, Stage
from smartmig.bounds.certificate import Certificate, Verdict, check_certificate, load_certificates, save_certificates
from smartmig.bounds.joint import (
    Bound,
    ParetoBound,
    energy_bound,
    et_bound,
    paper_energy_bound,
    pareto_bound,
    tardiness_bound,
)
from smartmig.bounds.tardiness import mip_tardiness_bound

__all__ = [
    "QUICK",
    "Bound",
    "Certificate",
    "ParetoBound",
    "Search",
    "Stage",
    "Verdict",
    "check_certificate",
    "energy_bound",
    "et_bound",
    "load_certificates",
    "mip_tardiness_bound",
    "paper_energy_bound",
    "pareto_bound",
    "save_certificates",
    "tardiness_bound",
]
