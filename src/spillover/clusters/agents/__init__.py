"""The cluster kind `agents`: connected agents, and those that the server starts on its own machine."""
