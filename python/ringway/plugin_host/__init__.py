"""The plugin host: runs the units of one folder, confined, and speaks the protocol of PROTOCOL.md.

Two kinds of process: the *supervisor* keeps the inventory, reads requests and runs no plugin's code; its
*workers* are forks of it, confined, with the units in them. A worker that hangs, dies or grows is replaced.
"""
