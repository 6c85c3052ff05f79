"""Which task may use which GPU."""

from msgspec.structs import replace

from spillover.agent.leases.devices import Devices
from spillover.agent.leases.values import Task
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Argv
from spillover.model.resources import Resources

A, B, C = (Lease(JobId(name), 1, 1) for name in "abc")


def task(gpu: int, **env: str) -> Task:
    return Task(Argv(("true",)), Resources(1000, 0, gpu), env)


def seen(task: Task) -> str:
    assert task.env["ROCR_VISIBLE_DEVICES"] == task.env["CUDA_VISIBLE_DEVICES"]
    return task.env["CUDA_VISIBLE_DEVICES"]


def test_tasks_that_run_at_a_time_have_different_ones() -> None:
    devices = Devices(("0", "1", "2"))
    assert seen(devices.assign(A, task(2), -1)) == "0,1"
    assert seen(devices.assign(B, task(1), -1)) == "2"
    devices.release(A)
    assert seen(devices.assign(C, task(1), -1)) == "0"


def test_a_task_without_gpus_sees_none_and_cannot_say_otherwise() -> None:
    shown = Devices(("0",)).assign(A, task(0, CUDA_VISIBLE_DEVICES="0"), -1)
    assert seen(shown) == ""
    assert shown.env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_an_agent_without_gpus_changes_nothing() -> None:
    asked = task(0, X="1")
    assert Devices().assign(A, asked, -1) is asked


def test_tasks_of_one_slot_share_theirs_until_the_last_is_over() -> None:
    devices = Devices(("0", "1"))
    assert seen(devices.assign(A, task(1), 7)) == "0"
    assert seen(devices.assign(B, task(1), 7)) == "0"
    devices.release(A)
    assert seen(devices.assign(C, task(1), -1)) == "1"
    devices.release(B)
    assert seen(devices.assign(A, task(1), -1)) == "0"


def test_gpus_that_the_server_names_are_used_by_id() -> None:
    devices = Devices(("0", "1", "2"))
    named = replace(task(2), gpus=("1", "2"))
    shown = devices.assign(A, named, -1)
    assert seen(shown) == "1,2"
    assert shown.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert seen(devices.assign(B, replace(task(1), gpus=("0",)), -1)) == "0"
    devices.release(A)
    assert seen(devices.assign(C, task(1), -1)) == "1"
