"""Jobs as Slurm's commands print them: whatever their owners wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartmig.adapters.slurm import asks, marks
from smartmig.adapters.slurm.calls import SlurmRefusal
from smartmig.adapters.slurm.records import JobRecord
from smartmig.adapters.slurm.scontrol import SQUEUE, Scontrol
from smartmig.adapters.slurm.squeue import COLUMNS, WIDER
from smartmig.errors import AdapterError


@dataclass(frozen=True)
class Printed:
    """A job, by what is printed of it."""

    job_id: int
    name: str = "a job"
    comment: str = "(null)"
    folder: str = "/home"
    admin_comment: str = marks.HELD
    account: str = "(null)"
    state: str = "PENDING"
    nodes: str = ""
    details: str = ""
    array: str = "N/A"
    array_id: int = 0

    def row(self) -> dict[str, str]:
        values = {
            "JobID": str(self.job_id),
            "ArrayJobID": str(self.array_id or self.job_id),
            "ArrayTaskID": self.array,
            "State": self.state,
            "Reason": "JobHeldUser",
            "Partition": "gpu",
            "PriorityLong": "0",
            "Nice": "0",
            "SubmitTime": "1970-01-01T00:16:40",
            "TimeLimit": "10:00",
            "UserID": "1000",
            "Account": self.account,
            "NodeList": self.nodes,
            "NumCPUs": "1",
            "NumTasks": "1",
            "tres-per-node": "gres:gpu:1",
            "OverSubscribe": "OK",
            "RestartCnt": "0",
            "Comment": self.comment,
            "admin_comment": self.admin_comment,
        }
        return {name: values.get(name, "N/A") for name in COLUMNS}

    def record(self) -> bytes:
        array = f"ArrayJobId={self.array_id} ArrayTaskId={self.array} " if self.array_id else ""
        return (
            f"JobId={self.job_id} {array}JobName={self.name} UserId=ann(1000) Account={self.account} Partition=gpu "
            f"ExcNodeList=(null) NodeList={self.nodes} NumNodes=1 NumCPUs=1 CoreSpec=* {self.details}MinCPUsNode=1 "
            f"MinMemoryCPU=100M Features=(null) WorkDir={self.folder} AdminComment={self.admin_comment}  "
            f"Comment={self.comment} StdErr=/dev/null \n"
        ).encode(errors="replace")


class Commands(Scontrol):
    """Prints as Slurm does."""

    def __init__(self, *jobs: Printed) -> None:
        super().__init__(None)
        self.there = jobs

    def _run(self, words: list[str], timeout_s: float, name: str = "scontrol") -> str:
        del timeout_s
        if name == SQUEUE:
            columns = [word.split(":") for word in words[-1].split(",")]
            wanted = set(words[words.index("-j") + 1].split(",")) if "-j" in words else None
            return "".join(
                "".join(cell(job.row()[column], int(width)) for column, width in columns) + "\n"
                for job in self.there
                if wanted is None or {str(job.job_id), str(job.array_id)} & wanted
            )
        if words[:2] == ["show", "hostnames"]:
            found = re.fullmatch(r"n\[(\d)-(\d)\]", words[2])
            assert found is not None
            return "".join(f"n{number}\n" for number in range(int(found[1]), int(found[2]) + 1))
        wanted = set(words[5:])
        shown = [job for job in self.there if not wanted or {str(job.job_id), str(job.array_id)} & wanted]
        if not shown:
            raise SlurmRefusal("Invalid job id")
        return b"".join(job.record() for job in shown).decode("latin-1")


def cell(value: str, width: int) -> str:
    return value.encode(errors="replace")[:width].ljust(width).decode("latin-1")


def read(*jobs: Printed) -> dict[int, JobRecord]:
    records = Commands(*jobs).jobs("gpu", 5.0)
    assert len({record.job_id for record in records}) == len(records)
    return {record.job_id: record for record in records}


MINE, OTHER = Printed(5), Printed(7, admin_comment="an operator's hold")
TASK, NEXT = Printed(8, array="1-4", array_id=8), Printed(9, array="0", array_id=8, state="RUNNING", nodes="n1")
ALL = (MINE, OTHER, TASK, NEXT)
TRUE = {
    job_id: Printed.record(job).decode().replace("\n", " ") for job_id, job in {job.job_id: job for job in ALL}.items()
}
fragments = st.sampled_from(
    [
        "\n", "\r", " ", "JobId=", "JobId=5 ", "JobId=7 ", "JobId=8 ", "JobId=1 ", "\nJobId=7 ", "\nJobId=9 x ", "é",
        " ExcNodeList=n1 ", " NumNodes=3 ", " MinCPUsNode=1", " MinMemoryNode=1M ", " AdminComment=smartmig held ",
        " Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:4(IDX:0-3)", " JobState=RUNNING ", "\x1f", "\x1e", "\x85",
        *(f"\n{record}" for record in TRUE.values()), *(f"\n{record}\n" for record in TRUE.values()), *TRUE.values(),
    ]
)  # fmt: skip
texts = st.lists(st.one_of(fragments, st.text(max_size=8)), max_size=8).map("".join).map(lambda text: text.rstrip(" "))


@given(texts, texts, texts, texts, st.sampled_from(ALL))
def test_jobs__no_text_of_a_user_changes_another_field_or_adds_a_job(
    name: str, comment: str, folder: str, account: str, whose: Printed
) -> None:
    forged = replace(whose, name=name, comment=comment, folder=folder, account=account)
    honest, found = read(*ALL), read(*(forged if job is whose else job for job in ALL))
    assert set(honest) == {job.job_id for job in ALL}
    same_array = {job.job_id for job in ALL if whose.array_id and job.array_id == whose.array_id}
    for job_id, record in honest.items():
        if job_id != whose.job_id:
            assert found[job_id] == record if job_id not in same_array else found.get(job_id, record) == record
        elif job_id in found:
            theirs = found[job_id].comment, found[job_id].account
            assert replace(found[job_id], comment="", account="") == record
            assert theirs == (as_read(comment), as_read(account))
    assert set(found) <= set(honest)


def as_read(text: str) -> str:
    return "" if text in ("(null)", "N/A") else text.encode(errors="replace").decode()


def test_jobs__a_line_feed_in_a_name_is_no_harm() -> None:
    assert set(read(replace(MINE, name="a\nb"), OTHER)) == {5, 7}


def test_jobs__what_looks_like_a_record_is_left_alone_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    slurm = Commands(replace(MINE, name="x MinMemoryNode=1M ExcNodeList=n1 "), OTHER)
    for _ in range(2):
        assert [record.job_id for record in slurm.jobs("gpu", 5.0)] == [7]
    assert len(caplog.messages) == 1
    assert "job 5" in caplog.messages[0]


@pytest.mark.parametrize("length", [COLUMNS["Comment"] - 1, COLUMNS["Comment"], 900, 2000])
def test_jobs__long_texts_are_read_to_their_end(length: int) -> None:
    comment = "x" * (length - len(marks.USER_HOLD)) + marks.USER_HOLD
    assert read(replace(MINE, comment=comment), OTHER)[5].comment == comment
    assert set(read(replace(MINE, comment="x" * WIDER * COLUMNS["Comment"]), OTHER)) == {7}


def test_jobs__columns_of_another_width_are_an_error() -> None:
    class Odd(Commands):
        def _run(self, words: list[str], timeout_s: float, name: str = "scontrol") -> str:
            return super()._run(words, timeout_s, name).replace("gpu", "GPU1")

    with pytest.raises(AdapterError, match="columns"):
        Odd(MINE).jobs("gpu", 5.0)


@pytest.mark.parametrize(
    ("details", "held"),
    [
        (" Nodes=n[1-2] CPU_IDs=0 Mem=100 GRES=gpu:a100:2(IDX:0-1) ", [("n1", 2), ("n2", 2)]),
        (
            " Nodes=n1 CPU_IDs=0 Mem=100 GRES=gpu:a100:1(IDX:0)   Nodes=n2 CPU_IDs=0 Mem=9 GRES=gpu:a100:3(IDX:0-2) ",
            [("n1", 1), ("n2", 3)],
        ),
        (" Nodes=n2 CPU_IDs=0 Mem=100 GRES=gpu:a100:1(IDX:0) ", [("n2", 1)]),
        ("", []),
    ],
)
def test_jobs__nodes_with_equal_shares_are_one_word(details: str, held: list[tuple[str, int]]) -> None:
    record = read(replace(MINE, state="RUNNING", nodes="n[1-2]", details=details))[5]
    assert [(node, count) for node, _, count, _ in asks.gpus_by_node(record)] == held


def test_job__is_read_alone() -> None:
    slurm = Commands(*ALL)
    assert slurm.job(7, 5.0) == (read(*ALL)[7],)
    assert [record.job_id for record in slurm.job(8, 5.0)] == [8, 9]
    lost = Commands(replace(MINE, name="x\nJobId=7 y"), OTHER)
    assert [record.job_id for record in lost.job(5, 5.0)] == [5]
