"""oVirt's external scheduler: the XML-RPC calls of ovirt-scheduler-proxy, answered by a plugin host.

An oVirt engine configured with its address (localhost:18781 by default) finds the folder's units among
its own.
"""
