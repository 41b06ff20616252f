"""Other hosts: an agent there, reached over any channel; its clock, and loads and watches with the interface
of local ones.

The agent's program is crates/dyno-agent; its README is the protocol.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.remote.agent import Agent
    from dbdyno.remote.answers import Hello
    from dbdyno.remote.channels import Channel, ProcessChannel
    from dbdyno.remote.clocks import HostClock
    from dbdyno.remote.load import RemoteLoad
    from dbdyno.remote.program import program
    from dbdyno.remote.spread import Driver, SpreadLoad
    from dbdyno.remote.watch import RemoteWatch

lazy(__name__)
