#!/usr/bin/env python3
"""Carries packets between two network interfaces, loses some, delays them, and resets connections.

  relay.py INTERFACE INTERFACE [--lose PERCENT] [--delay MILLISECONDS] [--tear-when FILE]

From the time when FILE exists, every TCP segment that opens no connection arrives as a reset.
"""
import argparse
import heapq
import os
import random
import select
import socket
import time

ALL_PROTOCOLS = 3
SOL_PACKET = 263
PACKET_IGNORE_OUTGOING = 23
PACKET_VNET_HDR = 15  # before each packet, whose checksum and segments are still to be made
HEAD = 10
ETHERNET = 14
SYN, RST = 0x02, 0x04


def opened(interface):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    end.bind((interface, ALL_PROTOCOLS))
    return end


def reset(packet):
    """The packet, with the reset flag where it is a TCP segment over IPv4 whose checksum is still to be made."""
    ip = HEAD + ETHERNET
    if packet[ip - 2 : ip] != b"\x08\x00" or packet[ip + 9] != socket.IPPROTO_TCP:
        return packet
    flags = ip + (packet[ip] & 15) * 4 + 13
    if packet[flags] & SYN or not packet[0] & 1:
        return packet
    changed = bytearray(packet)
    changed[flags] |= RST
    return bytes(changed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("interfaces", nargs=2)
    parser.add_argument("--lose", type=float, default=0)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--tear-when")
    wanted = parser.parse_args()
    ends = [opened(each) for each in wanted.interfaces]
    chance = random.Random(1)
    waiting = []
    count = 0
    while True:
        left = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        for end in select.select(ends, [], [], left)[0]:
            packet = end.recv(1 << 17)
            if chance.random() * 100 < wanted.lose:
                continue
            if wanted.tear_when and os.path.exists(wanted.tear_when):
                packet = reset(packet)
            count += 1
            heapq.heappush(waiting, (time.monotonic() + wanted.delay / 1000, count, end is ends[0], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, onward, packet = heapq.heappop(waiting)
            try:
                ends[1 if onward else 0].send(packet)
            except OSError:
                pass  # no room: lost


main()
