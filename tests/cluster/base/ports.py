"""Ports for a test whose tasks choose them by themselves: each task of a host takes the next one."""
import pathlib
import random
import socket

import harness


def consecutive_ports(count):
    """The first of so many ports that follow each other; they are this process's until it ends (free_ports of harness.py)."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        first, keepers = random.randrange(10000, low - count), []
        try:
            for port in range(first, first + count):
                keepers.append(socket.socket())
                keepers[-1].bind(("127.0.0.1", port))
        except OSError:
            for keeper in keepers:
                keeper.close()
            continue
        for keeper in keepers:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        harness.kept_ports.extend(keepers)
        return first
