"""The process that makes tasks and sees them end; started by the agent, with the standard library only.

Why a process of its own, and a small one:

* Spawning holds the interpreter's lock, and so does talking to the server. Apart they use two cores.
* Linux counts the memory of whoever spawns into the peak of the spawned (the old image is accounted at exec). Under this
  process that floor is some 10 MB; under the agent with gRPC loaded it would be 60 MB.
* When the agent is killed this process sees its socket close, kills every task and keeps what they wrote.

Nothing here may import anything but the standard library and its neighbours: `python -I -S` finds nothing else.
"""

from spillover.agent.nursery.procfs import birth_of

__all__ = ["birth_of"]
