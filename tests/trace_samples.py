"""A small file of every format of whole-GPU traces."""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"
SAMPLE = {
    "csv": "gang_jobs.csv",
    "helios": "helios_jobs.csv",
    "philly": "philly_jobs.csv",
    "swf": "log.swf",
    "sacct": "sacct.txt",
    "openb": "openb_pods.csv",
    "pai": "pai_tasks.csv",
    "drac": "drac_jobs.csv",
    "beocat": "beocat_jobs.csv",
}
