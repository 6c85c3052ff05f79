"""Assembles an agent and runs it until it is asked to stop."""

import asyncio
import logging
import os
import secrets
import signal
import time
from typing import Final

from spillover.agent.alone import Company, wait_alone
from spillover.agent.connection.introduction import add_offer, introduce
from spillover.agent.connection.link import Link
from spillover.agent.connection.peers import Peers
from spillover.agent.connection.transfers import ServerTransfers
from spillover.agent.files import folder
from spillover.agent.files.cache import Files
from spillover.agent.files.spool import Spool
from spillover.agent.leases.state import AgentState
from spillover.agent.notices import KINDS, watch
from spillover.agent.nursery.clock import boottime
from spillover.agent.options import AgentOptions
from spillover.agent.runtime import AgentRuntime
from spillover.agent.tasks.remains import kill_leftovers
from spillover.agent.tasks.task_runners import TaskRunners

SWEEP: Final = 3600.0
"""Seconds between two deletions of old output."""

log = logging.getLogger("spillover.agent")


class Agent:
    """One agent: its runtime, its task runners, its peers and its link to the server."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._lock = folder.lock(options.folder)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        """Set by the second request to stop."""
        self.turns_off = False
        """Whether it ended because nobody needs this machine any more."""
        self._spool = Spool(options.folder / "spool")
        state = AgentState(options.capacity, devices=options.devices)
        self.runtime = AgentRuntime(state, self._spool, options.folder / "output")
        transfers = ServerTransfers()
        files = Files(options.folder / "files", transfers, options.cache)
        self.task_runners = TaskRunners(options, files, self.runtime, transfers)
        self._introduction = introduce(options, secrets.token_hex(8), os.getpid())
        self._peers = Peers(self.runtime.fetched, self.runtime.unfetched, transfers, files, options.peers)
        self._link = Link(
            self.runtime,
            self._introduction,
            options.finder,
            transfers=transfers,
            peers=self._peers,
            joined=options.joined,
        )
        self.runtime.begin(self.task_runners, self._peers, self._link)

    async def run(self) -> None:
        """Run until asked to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        await self.recover()
        self.runtime.sessions.open()
        isolation = await self.task_runners.open_processes()
        self._introduction.labels["isolation"] = isolation.kind
        log.info("isolation of tasks: %s", isolation)
        add_offer(self._introduction, await self.task_runners.open_runners())
        folder.describe(self._options)
        self._introduction.peer = await self._peers.open()
        link = asyncio.create_task(self._link.run())
        sweeper = asyncio.create_task(self._delete_old_output())
        stop = asyncio.create_task(self._stop.wait())
        alone = asyncio.create_task(self._wait_alone())
        notices = asyncio.create_task(self._watch_notices())
        try:
            await asyncio.wait({link, stop, alone}, return_when=asyncio.FIRST_COMPLETED)
            if link.done():
                link.result()  # only a bug ends the link, so raise it
            if alone.done():
                self.turns_off = True
                log.warning("stopping: %s", alone.result())
            if self._options.drain:
                await self.runtime.drain(self._options.drain, self._hurry)
            await self.runtime.leave()
        finally:
            tasks = (link, sweeper, stop, alone, notices)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._peers.close()
            await self.task_runners.close()
            self.runtime.close()
            folder.delete_description(self._options.folder)
            os.close(self._lock)

    async def recover(self) -> None:
        """Kill what an earlier run left running, and load its unanswered results."""
        pids = [(entry.pid, entry.birth) for entry in self._spool.left()]
        killed = await asyncio.to_thread(kill_leftovers, self._options.folder, pids)
        lost, untold = self.runtime.recover()
        if untold or killed:
            log.info(
                "earlier run: %d processes killed, %d tasks lost, %d results to report", killed, lost, untold
            )

    def _told_to_stop(self) -> None:
        """Handle a signal to stop. The first lets tasks end within the drain time, the second stops at once."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def _wait_alone(self) -> str:
        """Return once nobody needs this machine, with the reason; never if no server made it."""
        join, state = self._options.join, self.runtime.state
        company = Company(
            lambda: self._link.connected,
            lambda: bool(state.running or state.preparing),
            boottime,
            time.time_ns,
        )
        return await wait_alone(company, join.alone_for if join else 0, join.join_by if join else 0)

    async def _watch_notices(self) -> None:
        """Watch whether the machine will be taken back."""
        kind = self._options.notices
        if (helper := self._options.helper) is not None:
            self.runtime.interrupt(await helper.notice())
        elif kind in KINDS:
            await watch(KINDS[kind](self._options.metadata), self.runtime.interrupt)
        elif kind:
            log.warning("this agent does not know how %s announces that it takes machines back", kind)

    async def _delete_old_output(self) -> None:
        """Delete output that is older than the retention of the server, again and again."""
        runtime = self.runtime
        while True:
            await asyncio.sleep(SWEEP)
            if runtime.log_retention:
                held = frozenset((lease.job, lease.attempt, lease.task) for lease in runtime.state.running)
                before = runtime.surely_past() - runtime.log_retention
                deleted = await asyncio.to_thread(runtime.outputs.delete_old, before, held)
                log.info("deleted %d files of old output", deleted)
