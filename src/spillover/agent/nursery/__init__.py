"""Starts tasks and waits for their end, in a process of its own that uses the standard library only.

Why this is a separate, small process:

* Spawning holds the interpreter's lock, and so does talking to the server. Two processes use two cores.
* Linux counts the memory of the spawning process into the peak of the spawned one (it accounts the old image at exec).
  In this process that floor is some 10 MB. In the agent, with gRPC loaded, it would be 60 MB.
* When the agent is killed, this process sees its socket close, kills every task and keeps their output.

Modules here may import only the standard library and each other, because `python -I -S` finds nothing else.
"""

from spillover.agent.nursery.procfs import birth_of

__all__ = ["birth_of"]
